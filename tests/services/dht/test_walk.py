"""How a walk drives its lookup: what a timer means that fires late."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from penstock.kernel.clock import LoopClock
from penstock.kernel.deadline import pause, timeout
from penstock.kernel.inventory import Inventory
from penstock.services.dht.agents.walk import READ_S, STALLED_S, Walk
from penstock.services.dht.config import DhtOptions
from penstock.services.dht.core.contact import Contact
from penstock.services.dht.core.lookup import Goal
from penstock.services.dht.core.peer_book import Basis, SlowPoint
from penstock.services.dht.core.record import RecordSigner
from penstock.services.dht.peers.link import Done
from penstock.services.dht.protocol.messages import AnswerCode, DhtAnswer
from penstock.services.dht.service import SERVICE, DhtService
from tests.services.dht.making import contacts

SLOW_S = 0.005


class Peers:
    """Peers that are all connected, slow after five milliseconds, and answer when a test says so."""

    near_enough = 20

    def __init__(self) -> None:
        self.asked: dict[int, Done] = {}

    def slow_point(self, _peer: int) -> SlowPoint:
        return SlowPoint(SLOW_S, Basis.OWN)

    def connected(self, _peer: int) -> bool:
        return True

    def callers(self, _target: int, _count: int) -> list[Contact]:
        return []

    def ask(self, contact: Contact, _opcode: object, _payload: bytes, done: Done, _namer: int = 0) -> None:
        self.asked[contact.id] = done


class Walking:
    """A walk of alpha 3 on a node whose process can stand still."""

    def __init__(self) -> None:
        self.peers = Peers()
        self._service = DhtService(Inventory(SERVICE, LoopClock()), DhtOptions())
        state = self._service.state
        state.adopt(RecordSigner(b"\x03" * 32))
        self._stood_s, running = 0.0, state.monotonic
        state.monotonic = lambda: running() + self._stood_s
        pool: Any = self.peers
        self.walk = Walk(state, pool, self._service.verifier)
        start = contacts(Random(1), 20)
        deadline_at = state.monotonic() + 60.0
        run = self.walk.run(7, Goal.NODES, deadline_at=deadline_at, alpha=3, start=start)
        self._task = asyncio.ensure_future(run)

    def stand_still(self, seconds: float) -> None:
        """Let time pass in which this process does nothing."""
        self._stood_s += seconds

    async def end(self) -> None:
        """Wait until the walk's own deadline ends it."""
        async with timeout("test", 120.0):
            await self._task
        await self._service.close()


async def test_after_the_process_stood_still_answers_are_read_before_anybody_counts_as_slow() -> None:
    walking = Walking()
    await pause("test", 0.001)
    first = list(walking.peers.asked)
    assert len(first) == 3
    walking.stand_still(1.0)
    await pause("test", SLOW_S)
    for peer in first:
        walking.peers.asked[peer](DhtAnswer(AnswerCode.OK))
    await pause("test", 0.001)

    assert walking.walk.lookup.hedges == 0
    assert len(walking.peers.asked) == 6, "each answer started the next"
    await walking.end()


async def test_whoever_has_not_answered_by_then_is_slow() -> None:
    walking = Walking()
    await pause("test", 0.001)
    walking.stand_still(1.0)
    await pause("test", 1.0 + SLOW_S + 2 * READ_S)

    assert walking.walk.lookup.hedges >= 6
    await walking.end()


async def test_a_timer_that_is_hardly_late_counts_at_once() -> None:
    walking = Walking()
    await pause("test", 0.001)
    walking.stand_still(STALLED_S / 2)
    await pause("test", SLOW_S)

    assert walking.walk.lookup.hedges >= 6
    await walking.end()
