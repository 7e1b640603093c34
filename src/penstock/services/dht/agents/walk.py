"""Drives one lookup over the peers: sends the probes it decides on, reports what comes back, and waits for its end.

Answers arrive in callbacks and are handled at once. Only the verification of records waits, in the worker's own task.
The walk's end cancels nobody's request: those stay with their links, and their outcomes still feed the peer book.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.kernel.deadline import timeout
from penstock.kernel.errors import PenstockError
from penstock.services.dht.core.lookup import Goal, Lookup, LookupOutcome, LookupRules, Probe, ProbeFailure
from penstock.services.dht.protocol.envelope import Opcode
from penstock.services.dht.protocol.messages import AnswerCode, DhtAnswer, find_request, unique

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.services.dht.agents.record_verifier import RecordVerifier
    from penstock.services.dht.core.contact import Contact
    from penstock.services.dht.core.record import ProviderRecord
    from penstock.services.dht.peers.link import PeerReply
    from penstock.services.dht.peers.pool import PeerPool
    from penstock.services.dht.state import DhtState

# A timer that fires later than this says that this process stood still, not that peers are slow.
STALLED_S: Final = 0.002
# Time for the loop to read its sockets before the timer counts.
READ_S: Final = 0.001
_RNG: Final = random.Random()  # noqa: S311 - jitter of retries


class Walk:
    """One lookup on its way; used once."""

    def __init__(self, state: DhtState, pool: PeerPool, verifier: RecordVerifier) -> None:
        """Lean on what the node has."""
        self._state = state
        self._pool = pool
        self._verifier = verifier
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Event = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._due_at = 0.0  # when the timer should fire
        self._stalled = False  # it fired late, and waits for what is in the sockets
        # lint: allow PK003 bounded by the probes in flight: one entry an answer
        self._unverified: deque[tuple[int, list[ProviderRecord]]] = deque()
        self.answered: list[Contact] = []
        # Told of each contact that answered, for a provide that stores on its way.
        self.on_answered: Callable[[Contact], None] = lambda _contact: None
        # Told of each verified record, for an answer that is streamed.
        self.on_record: Callable[[ProviderRecord], None] = lambda _record: None
        # What this node keeps itself: the first set of all.
        self.known: list[ProviderRecord] = []
        self.lookup: Lookup

    async def run(  # noqa: PLR0913 - a lookup is asked for with these
        self,
        target: int,
        goal: Goal,
        *,
        deadline_at: float,
        alpha: int,
        limit: int = 20,
        paths: int = 1,
        start: list[Contact] | None = None,
    ) -> LookupOutcome:
        """Walk to the end; the deadline ends it at the latest."""
        state, options = self._state, self._state.options
        rules = LookupRules(
            k=options.k, alpha=alpha, beta=options.beta, hop_budget=options.hop_budget, radius=state.size.radius
        )
        self.lookup = Lookup(
            target, goal, rules, self._pool, now=self._now(), deadline_at=deadline_at, limit=limit, paths=paths
        )
        self._request = find_request(target)
        self._opcode = Opcode.FIND_NODE if goal is Goal.NODES else Opcode.FIND_VALUE
        if self.known:
            self.lookup.know(self.known)
            for record in self.known:
                if record.addrs:
                    self.on_record(record)
        self._begin(goal, paths, start)
        self._advance()
        try:
            while self.lookup.outcome is None:
                await self._wait()
        finally:
            self._disarm()
        return self.lookup.outcome

    def _begin(self, goal: Goal, paths: int, start: list[Contact] | None) -> None:
        """Give the lookup its first candidates, unless what the node keeps itself was all that is wanted."""
        lookup, state = self.lookup, self._state
        if lookup.outcome is not None:
            return
        k = state.options.k
        near = state.table.closest(lookup.target, k, state.book.failing) if start is None else start
        lookup.begin(near, self._callers(lookup.target, goal, paths))

    def _callers(self, target: int, goal: Goal, paths: int) -> list[Contact]:
        """Return whom a find may ask besides contacts, over open connections.

        A walk to the nearest nodes asks contacts alone: a record must be kept by nodes that others can reach. So does a
        find on several paths, which is for whoever expects liars.
        """
        return [] if goal is Goal.NODES or paths > 1 else self._pool.callers(target, self._state.options.k // 2)

    async def _wait(self) -> None:
        """Verify what came in, or wait for something to come; the timer wakes this at the deadline."""
        if self._unverified:
            peer, records = self._unverified.popleft()
            self._report(peer, await self._verified(records))
            return
        self._ended.clear()
        await self._ended.wait()

    async def _verified(self, records: list[ProviderRecord]) -> list[ProviderRecord]:
        """Return the records that hold, as many as could be verified until the lookup's deadline."""
        good: list[ProviderRecord] = []
        try:
            async with timeout("verify", max(0.0, self.lookup.deadline_at - self._now())):
                for record in records:
                    if await self._verifier.holds(record):
                        good.append(record)  # noqa: PERF401 - what was verified before a timeout counts
        except PenstockError:
            # The time is over, or the pool is full: what was verified before counts.
            return good
        return good

    def _report(self, peer: int, good: list[ProviderRecord]) -> None:
        for record in good:
            if record.addrs:
                self.on_record(record)
        self.lookup.verified(peer, self._now(), good)
        self._advance()

    def _now(self) -> float:
        return self._state.monotonic()

    def _advance(self) -> None:
        """Send the next probes, and set the timer for the next slow point."""
        lookup = self.lookup
        for probe in lookup.next_probes(self._now()):
            self._pool.ask(probe.contact, self._opcode, self._request, partial(self._on_reply, probe), _namer(probe))
        if lookup.outcome is not None or self._unverified:
            self._ended.set()
        if lookup.outcome is None:
            self._arm(lookup.wake_at)

    def _arm(self, when: float) -> None:
        self._disarm()
        self._due_at = when
        # lint: allow PK006 cancelled when the walk ends
        self._timer = self._loop.call_at(when, self._on_timer)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        """Notice slow probes. After this process itself stood still, their answers are read first."""
        self._timer = None
        now = self._now()
        if now - self._due_at > STALLED_S and not self._stalled:
            self._stalled = True
            self._arm(now + READ_S)
            return
        self._stalled = False
        self.lookup.tick(now + 1e-4)
        self._advance()

    def _on_reply(self, probe: Probe, reply: PeerReply) -> None:
        if self.lookup.outcome is not None:
            return
        peer = probe.contact.id
        if isinstance(reply, DhtAnswer) and reply.code == AnswerCode.OK:
            self._on_answer(probe.contact, reply)
        elif isinstance(reply, DhtAnswer):
            why = ProbeFailure.REFUSED if reply.code in _TRY_AGAIN else ProbeFailure.USELESS
            self.lookup.failed(peer, self._now(), why, _RNG)
        else:
            self.lookup.failed(peer, self._now(), reply, _RNG)
        # A probe may fail inside `ask`, while the lookup is still handing out probes.
        # lint: allow PK006 runs once, and changes nothing after the end
        self._loop.call_soon(self._advance)

    def _on_answer(self, contact: Contact, answer: DhtAnswer) -> None:
        self.answered.append(contact)
        lookup = self.lookup
        records = []
        if lookup.goal is not Goal.NODES:
            parsed = (self._verifier.read(value, lookup.target) for value in answer.records)
            records = [record for record in parsed if record is not None]
        lookup.answered(contact.id, self._now(), unique(answer.contacts, self._state.own), verifying=bool(records))
        self.on_answered(contact)
        if not records:
            return
        judged = [self._verifier.settle(record) for record in records]
        if None in judged:
            self._unverified.append((contact.id, records))
        else:
            self._report_known(contact.id, [record for record, held in zip(records, judged, strict=True) if held])

    def _report_known(self, peer: int, records: list[ProviderRecord]) -> None:
        for record in records:
            if record.addrs:
                self.on_record(record)
        self.lookup.verified(peer, self._now(), records)


_TRY_AGAIN: Final = frozenset({AnswerCode.BUSY, AnswerCode.QUOTA_EXCEEDED, AnswerCode.TIMEOUT})


def _namer(probe: Probe) -> int:
    return probe.paths[0][1].namer if probe.paths else 0
