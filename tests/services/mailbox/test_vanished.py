"""A mailbox whose file was emptied or lost is not a new mailbox: it says so and is not ready, and touches nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.contracts.mailbox import Recv, Send
from penstock.services.mailbox.engines.engine import Corrupt
from penstock.services.mailbox.engines.sqlite import SqliteEngine
from tests.services.mailbox.worlds import mailbox_options, running

WAL_BYTES = 1 << 20


def engine(directory: Path, *, fsync: bool = True) -> SqliteEngine:
    return SqliteEngine(directory, fsync=fsync, wal_bytes=WAL_BYTES)


async def filled(directory: Path) -> None:
    async with running(engine(directory), mailbox_options({})) as mailbox:
        await mailbox.api.send(Send("orders", b"the only one"))


def empty(directory: Path) -> None:
    (directory / "mailbox.db").write_bytes(b"")


def lose(directory: Path) -> None:
    (directory / "mailbox.db").unlink()


@pytest.mark.parametrize("vanish", [empty, lose])
async def test_a_mailbox_that_lost_its_file_is_refused(vanish, tmp_path) -> None:
    await filled(tmp_path)
    vanish(tmp_path)

    with pytest.raises(Corrupt, match=r"mailbox\.lived"):
        engine(tmp_path).open(16)


@pytest.mark.parametrize("vanish", [empty, lose])
async def test_without_a_sync_a_commit_it_begins_anew_and_tells(vanish, tmp_path) -> None:
    await filled(tmp_path)
    vanish(tmp_path)
    opened = engine(tmp_path, fsync=False)

    assert "a mailbox lived here" in opened.open(16).damage
    opened.close()


async def test_whoever_wants_to_begin_anew_removes_the_mark(tmp_path) -> None:
    await filled(tmp_path)
    empty(tmp_path)
    (tmp_path / "mailbox.lived").unlink()
    (tmp_path / "mailbox.record").unlink()

    async with running(engine(tmp_path), mailbox_options({})) as mailbox:
        assert not (await mailbox.api.recv(Recv("orders"))).messages


async def test_a_file_that_is_put_back_is_taken(tmp_path) -> None:
    await filled(tmp_path)
    whole = (tmp_path / "mailbox.db").read_bytes()
    empty(tmp_path)
    with pytest.raises(Corrupt):
        engine(tmp_path).open(16)
    (tmp_path / "mailbox.db").write_bytes(whole)

    async with running(engine(tmp_path), mailbox_options({})) as mailbox:
        assert [message.payload for message in (await mailbox.api.recv(Recv("orders"))).messages] == [b"the only one"]


async def test_a_first_life_that_was_killed_before_its_first_checkpoint_is_whole(tmp_path) -> None:
    first = engine(tmp_path / "live")
    first.open(16)
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in (tmp_path / "live").iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    first.close()
    second = engine(copy)

    assert second.open(16).boot == 2
    second.close()
