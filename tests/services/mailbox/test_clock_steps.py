"""A step of the system's clock changes nothing.

Not a time to live, not a claim on an idem_key, not what retention takes.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.contracts.mailbox import GetDlq, Recv, Send
from penstock.kernel.clock import LoopClock
from penstock.services.mailbox.engines.sqlite import SqliteEngine
from tests.services.mailbox.worlds import mailbox_options, make_engine, running

YEAR_2026 = 1_770_000_000.0
MINUTE = 60.0
STEPS = [10 * MINUTE, -120 * MINUTE, 8 * 24 * 60 * MINUTE]


class SteppingClock:
    """The loop's clock, with a wall clock that an operator moves."""

    def __init__(self) -> None:
        self._clock = LoopClock(YEAR_2026)
        self.step_s = 0.0

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def wall(self) -> float:
        return self._clock.wall() + self.step_s


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
@pytest.mark.parametrize("step_s", STEPS)
async def test_step_changes_no_claim_no_ttl_and_no_age(tmp_path: Path, engine: str, step_s: float) -> None:
    clock = SteppingClock()
    async with running(make_engine(engine, tmp_path), mailbox_options({}), clock) as mailbox:
        first = await mailbox.api.send(Send("claims", b"one", idem_key="k"))
        await mailbox.api.send(Send("lasting", b"a minute", ttl_ms=60_000))
        await mailbox.api.send(Send("plain", b"no ttl"))
        await mailbox.api.send(Send("short", b"a second and a half", ttl_ms=1500))
        clock.step_s = step_s
        await asyncio.sleep(3.0)
        again = await mailbox.api.send(Send("claims", b"one", idem_key="k"))
        lasting = (await mailbox.api.recv(Recv("lasting"))).messages
        plain = (await mailbox.api.recv(Recv("plain"))).messages
        short = (await mailbox.api.recv(Recv("short"))).messages
        dead = (await mailbox.api.dlq(GetDlq())).entries

        assert (again.msg_id, again.duplicate) == (first.msg_id, True)
        assert [m.payload for m in (*lasting, *plain)] == [b"a minute", b"no ttl"]
        assert not short
        assert [(letter.topic, letter.reason) for letter in dead] == [("short", "ttl")]


async def test_step_while_the_node_was_down_changes_no_age_either(tmp_path: Path) -> None:
    clock = SteppingClock()
    async with running(SqliteEngine(tmp_path, wal_bytes=1 << 20), mailbox_options({}), clock) as mailbox:
        first = await mailbox.api.send(Send("claims", b"one", idem_key="k"))
        await mailbox.api.send(Send("lasting", b"a minute", ttl_ms=60_000))
    clock.step_s = 10 * MINUTE
    async with running(SqliteEngine(tmp_path, wal_bytes=1 << 20), mailbox_options({}), clock) as mailbox:
        await asyncio.sleep(1.0)
        again = await mailbox.api.send(Send("claims", b"one", idem_key="k"))
        lasting = (await mailbox.api.recv(Recv("lasting"))).messages

        assert again.msg_id == first.msg_id
        assert [m.payload for m in lasting] == [b"a minute"]
