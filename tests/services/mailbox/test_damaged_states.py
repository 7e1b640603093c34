"""A state row whose bytes do not match.

The message is delivered once more rather than never, and the damage is counted.
"""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from penstock.contracts.mailbox import Ack, GetTopic, Nack, Recv, Send
from penstock.services.mailbox.engines.sqlite import SqliteEngine
from tests.services.mailbox.worlds import mailbox_options, running


def engine(directory: Path) -> SqliteEngine:
    return SqliteEngine(directory, wal_bytes=1 << 20)


async def leave_a_state(directory: Path, state: str, key: str | None) -> None:
    """Leave a message leased, delayed or tried once, and a plain neighbour behind it."""
    async with running(engine(directory), mailbox_options({})) as mailbox:
        await mailbox.api.send(Send("orders", b"hit", key=key))
        (message,) = (await mailbox.api.recv(Recv("orders", visibility_ms=3_600_000))).messages
        if state != "leased":
            delay_ms = 3_600_000 if state == "delayed" else 0
            await mailbox.api.nack(Nack(message.msg_id, message.receipt, delay_ms=delay_ms))
        await mailbox.api.send(Send("orders", b"neighbour"))


def damage(directory: Path, change: str) -> None:
    db = apsw.Connection(str(directory / "mailbox.db"))
    db.execute(f"UPDATE st SET {change}")
    assert db.total_changes() == 1
    db.close()


@pytest.mark.parametrize("change", ["attempts = attempts + 4", "kind = 1", "kind = 2", "kind = 9", "until = until - 1"])
@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("state", ["leased", "delayed", "tried"])
async def test_message_whose_state_is_damaged_is_delivered_and_the_damage_is_counted(
    state: str, key: str | None, change: str, tmp_path: Path
) -> None:
    await leave_a_state(tmp_path, state, key)
    damage(tmp_path, f"{change}, gen = gen + 1")
    async with running(engine(tmp_path), mailbox_options({})) as mailbox:
        got = [*(await mailbox.api.recv(Recv("orders", 10, wait_ms=2000))).messages]
        if len(got) < 2:
            got += (await mailbox.api.recv(Recv("orders", 10, wait_ms=2000))).messages
        assert sorted(message.payload for message in got) == [b"hit", b"neighbour"]
        stats = await mailbox.api.topic(GetTopic("orders"))
        assert (stats.ready, stats.inflight, stats.delayed) == (0, 2, 0)
        assert mailbox.state.integrity["state"].value > 0
        for message in got:
            await mailbox.api.ack(Ack(message.msg_id, message.receipt))

    async with running(engine(tmp_path), mailbox_options({})) as mailbox:
        assert (await mailbox.api.recv(Recv("orders", 10))).messages == ()
        assert mailbox.state.ledger.messages == 0
