"""dead_letter_to across crashes and refusals: exactly one of the dead letter and the moved message exists, always."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from penstock.contracts import mailbox as m
from penstock.services.mailbox.engines.sqlite import SqliteEngine
from tests.services.mailbox.invariants import check_all, settled
from tests.services.mailbox.worlds import mailbox_options, make_engine, running

SETTINGS = m.TopicSettings(max_attempts=1, dead_letter_to="dead")


class SnapshotEngine(SqliteEngine):
    """Copies its files after every commit: what a kill -9 at that moment would leave."""

    def __init__(self, directory: Path, copies: Path) -> None:
        super().__init__(directory, fsync=False, wal_bytes=64 << 10)
        self._copies = copies

    def commit(self, batch) -> None:
        super().commit(batch)
        shutil.copytree(self.path.parent, self._copies / f"{len(list(self._copies.iterdir())):03}")


async def places(mailbox) -> list[str]:
    """Say where the message is, dead or alive."""
    topics = (await mailbox.api.topics(m.GetTopics())).topics
    return [each.topic for each in topics for _ in range(each.ready + each.inflight + each.delayed + each.dlq)]


async def kill(mailbox, topic: str = "orders") -> None:
    """Let a message have its last attempt."""
    (got,) = (await mailbox.api.recv(m.Recv(topic))).messages
    assert (await mailbox.api.nack(m.Nack(got.msg_id, got.receipt, "bad", 0))).dead_lettered


async def until_in(mailbox, topic: str) -> None:
    for _ in range(100):
        await settled(mailbox)
        if await places(mailbox) == [topic]:
            return
    raise AssertionError(await places(mailbox))


async def test_exactly_one_survives_a_kill_after_any_commit_of_the_move(tmp_path: Path) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    (tmp_path / "live").mkdir()
    async with running(SnapshotEngine(tmp_path / "live", copies), mailbox_options({})) as mailbox:
        await mailbox.api.put_settings(m.PutSettings("orders", SETTINGS))
        await mailbox.api.send(m.Send("orders", b"x"))
        first = len(list(copies.iterdir()))
        await kill(mailbox)
        await until_in(mailbox, "dead")
    seen = set()
    for copy in sorted(copies.iterdir())[first:]:
        async with running(SqliteEngine(copy, fsync=False, wal_bytes=64 << 10), mailbox_options({})) as mailbox:
            (place,) = await places(mailbox)
            seen.add((place, (await mailbox.api.topic(m.GetTopic(place))).dlq))
            if place == "orders" and (await mailbox.api.topic(m.GetTopic("orders"))).inflight:
                continue  # killed before the nack was durable: the lease goes on
            await until_in(mailbox, "dead")
            check_all(mailbox)

    # The crashes hit the dead letter and the moved message.
    assert {("orders", 1), ("dead", 0)} <= seen


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_message_stays_dead_while_its_target_is_not_set_up(kind: str, tmp_path: Path) -> None:
    options = mailbox_options({"topics_auto": False})
    async with running(make_engine(kind, tmp_path), options) as mailbox:
        await mailbox.api.put_settings(m.PutSettings("orders", SETTINGS))
        await mailbox.api.send(m.Send("orders", b"x"))
        await kill(mailbox)
        await settled(mailbox)
        (dead,) = (await mailbox.api.dlq(m.GetDlq("orders"))).entries
        assert dead.reason == "rejected:bad"
        await mailbox.api.put_settings(m.PutSettings("dead", m.TopicSettings()))
        for _ in range(20):
            # It is tried again by and by, also after a long time.
            await asyncio.sleep(1)

        assert await places(mailbox) == ["dead"]


async def test_dead_letters_from_before_the_setting_are_moved_too(tmp_path: Path) -> None:
    async with running(make_engine("sqlite", tmp_path), mailbox_options({"max_attempts": 1})) as mailbox:
        for _ in range(250):
            await mailbox.api.send(m.Send("orders", b"x"))
        while got := (await mailbox.api.recv(m.Recv("orders", 256))).messages:
            nacks = tuple(m.Nack(each.msg_id, each.receipt, "bad", 0) for each in got)
            await mailbox.api.nack_batch(m.NackBatch(nacks))
        await mailbox.api.put_settings(m.PutSettings("orders", SETTINGS))
        for _ in range(50):
            await settled(mailbox)

        assert (await mailbox.api.topic(m.GetTopic("dead"))).ready == 250
        assert await places(mailbox) == ["dead"] * 250
        check_all(mailbox)
