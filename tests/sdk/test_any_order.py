"""The SDK in any order of steps: consumers, handlers, renewals and trouble, as the dice fall."""

from __future__ import annotations

import asyncio
import random

import pytest

from penstock.testing import Session, VirtualLoop
from penstock.testing.session import run_with
from tests.sdk.kit import (
    AWAY,
    GONE,
    TOPIC,
    World,
    world,
)
from tests.sdk.test_interleavings import Bench


class Shift:
    """Three consumers of one client, handlers that take and fail as the dice fall, and trouble in between."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.bench = Bench()

    async def handle(self, delivery) -> None:
        self.bench.seconds = self.dice.choice([0.0, 0.01, 0.1, 0.33, 0.7])
        await self.bench(delivery)
        if self.dice.random() < 0.2:
            raise RuntimeError
        if self.dice.random() < 0.1:
            await delivery.ack()

    async def trouble(self, w: World, consumers: list, working: list) -> None:
        for _ in range(4):
            await asyncio.sleep(self.dice.random() * 0.6)
            which = self.dice.randrange(3)
            if which == 0:
                w.server.down = AWAY
                await asyncio.sleep(self.dice.random() * 0.2)
                w.server.down = None
            elif which == 1:
                consumers[0].stop()
            else:
                working[1].cancel()

    async def work(self) -> tuple[int, int, dict[str, int], int]:
        async with world(max_attempts=50) as w:
            await w.send(10)
            w.server.lag_s = 0.01
            places = [
                {"concurrency": self.dice.choice([1, 2, 5]), "wait_ms": self.dice.choice([0, 100, 500])} for _ in "abc"
            ]
            consumers = [w.mailbox.consume(TOPIC, visibility_ms=300, **said) for said in places]
            working = [asyncio.get_running_loop().create_task(consumer.run(self.handle)) for consumer in consumers]
            await self.trouble(w, consumers, working)
            await asyncio.sleep(40)
            for consumer in consumers:
                consumer.stop()
            await asyncio.wait(working)
            assert [task for task in working if not task.cancelled() and task.exception()] == []
            return self.bench.twice, len(set(self.bench.finished)), await w.left(), len(w.keeper)


@pytest.mark.parametrize("seed", [*range(15), 275])
def test_in_any_order_of_steps_every_message_is_done_by_one_at_a_time(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shift = Shift(seed)
    monkeypatch.setattr("penstock.sdk.consumer._rng", shift.dice)
    monkeypatch.setattr("penstock.sdk.delivery._rng", shift.dice)
    loop = VirtualLoop(chooser=lambda ready: shift.dice.randrange(len(ready)))

    assert run_with(shift.work, Session(loop), "shift") == (0, 10, GONE, 0)
