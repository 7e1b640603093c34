"""Joins the network: seeds in random order, walks to the own id, then into every bucket. Judges readiness."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from penstock.kernel.deadline import pause
from penstock.kernel.errors import PenstockError
from penstock.services.dht.agents.refresher import target_in
from penstock.services.dht.core.ids import BUCKETS
from penstock.services.dht.core.readiness import EXPECTED_MIN, LONELY_S, PeerReadiness, PeerSituation, judge
from penstock.services.dht.protocol.envelope import Opcode
from penstock.services.dht.protocol.messages import EMPTY
from penstock.services.dht.state import DhtPhase

if TYPE_CHECKING:
    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory
    from penstock.services.dht.agents.lookup_worker import LookupWorkers
    from penstock.services.dht.agents.republisher import Republisher
    from penstock.services.dht.agents.routes import RouteQueues
    from penstock.services.dht.core.contact import Contact
    from penstock.services.dht.events import DhtEvents
    from penstock.services.dht.peers.pool import PeerPool
    from penstock.services.dht.state import DhtState

TIERS_S: Final = (1.0, 5.0, 15.0, 60.0, 300.0)
RECHECK_S: Final = 30.0
CANDIDATES_TRIED: Final = 20
SAVE_S: Final = 300.0
ASKED_AROUND: Final = 3
GATE: Final = "dht_peers"


class Bootstrapper:
    """Owns the readiness gate `dht_peers` and the phase."""

    def __init__(  # noqa: PLR0913 - what joining touches
        self,
        inventory: Inventory,
        state: DhtState,
        pool: PeerPool,
        workers: LookupWorkers,
        *,
        routes: RouteQueues,
        republisher: Republisher,
        events: DhtEvents,
    ) -> None:
        self._state = state
        self._pool = pool
        self._workers = workers
        self._routes = routes
        self._republisher = republisher
        self._events = events
        self._gate = inventory.health.gate(GATE)
        # A lost peer must not take the other services of the node down.
        self._gate.advisory = True
        self._rng = random.Random()  # noqa: S311 - order and jitter
        self._seeds_up: set[tuple[str, int]] = set()
        self._walks: list[frozenset[int]] = []
        self._saved_at = state.monotonic()
        inventory.metrics.gauge("dht_network_nodes", "Estimated nodes in the network.", read=lambda: state.size.nodes)
        inventory.metrics.gauge("dht_contacts", "Contacts in the routing table.", read=lambda: len(state.table))

    async def run(self, child: Child) -> None:
        """Join, then look every half minute whether this node is still part of the network."""
        tier = 0
        while True:
            await self._ask_around()
            if not self.judge().ready or self._lonely():
                await self._join()
                self._pool.ahead.cover(self._state.monotonic())
            ready = self.judge().ready
            wait_s = self._recheck_s() if ready else TIERS_S[min(tier, len(TIERS_S) - 1)] * self._rng.uniform(0.8, 1.2)
            tier = 0 if ready else tier + 1
            self._save_candidates()
            if await child.shutdown.sleep(wait_s):
                return

    def _recheck_s(self) -> float:
        """Return when to look again: every half minute, or when nobody will have answered for a minute."""
        silent_s = self._state.monotonic() - self._state.book.answered_at
        return min(RECHECK_S, max(1.0, LONELY_S - silent_s + 0.1))

    async def _ask_around(self) -> None:
        """Ping a few contacts when nobody has been heard of for a while, before the worst is believed."""
        state = self._state
        if state.monotonic() - state.book.answered_at < LONELY_S / 2 or not len(state.table):
            return
        contacts = list(state.table.contacts())
        for contact in self._rng.sample(contacts, min(len(contacts), ASKED_AROUND)):
            self._pool.ask(contact, Opcode.PING, EMPTY, lambda _reply: None)
        await pause("ask_around", state.options.rpc_timeout_s)

    def _lonely(self) -> bool:
        return not len(self._state.table) and bool(self._state.options.seeds)

    # --- joining ------------------------------------------------------------------------------------------------

    async def _join(self) -> None:
        start = await self._reach(self._shuffled(self._state.options.seeds), self._seeds_up)
        if not start and not len(self._state.table):
            start = await self._reach(self._shuffled(self._republisher.candidates)[:CANDIDATES_TRIED], set())
        if not start and not len(self._state.table):
            return
        for contact in start:
            await self._routes.insert(contact)
        await self._walk_to_self(tuple(start) or None)
        await self._walk_to_self()
        if len(self._state.table) >= self._state.options.k:
            await self._fill()
        await self._walk_to_self()

    def _shuffled(self, addresses: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        found = list(dict.fromkeys(addresses))
        self._rng.shuffle(found)
        return found

    async def _reach(self, addresses: list[tuple[str, int]], up: set[tuple[str, int]]) -> list[Contact]:
        """Dial addresses one after the other; enough is what readiness asks for."""
        reached: list[Contact] = []
        for host, port in addresses:
            try:
                link = await self._pool.dial(host, port)
            except (OSError, PenstockError):
                up.discard((host, port))
                continue
            up.add((host, port))
            reached.append(link.contact or self._state.contact_of(link.peer, host, port))
            if len(reached) >= max(self._state.options.required, 1):
                break
        return reached

    async def _walk_to_self(self, start: tuple[Contact, ...] | None = None) -> None:
        try:
            outcome = await self._workers.walk_in_background(self._state.own, start)
        except PenstockError:
            return
        if outcome.nearest or not self._state.options.seeds:
            self._walks = [
                *self._walks[-1:],
                frozenset(contact.id for contact in outcome.nearest[: self._state.options.k]),
            ]

    async def _fill(self) -> None:
        """Walk into each bucket that a network of this size fills and that holds few contacts."""
        state = self._state
        for bucket in range(BUCKETS):
            if state.size.nodes / 2 ** (bucket + 1) < EXPECTED_MIN:
                return
            if len(state.table.views[bucket].contacts) < state.options.k:
                try:
                    await self._workers.walk_in_background(target_in(state.own, bucket, self._rng))
                except PenstockError:
                    continue

    # --- readiness ----------------------------------------------------------------------------------------------

    def judge(self) -> PeerReadiness:
        """Judge readiness now, set the gate, and say so when it changed."""
        state, options = self._state, self._state.options
        state.size.know(len(state.table))
        situation = PeerSituation(
            seeds=len(set(options.seeds)),
            seeds_answered=len(self._seeds_up),
            required=options.required,
            walks_equal=len(self._walks) == 2 and self._walks[0] == self._walks[1],
            contacts=len(state.table),
            nodes=state.size.nodes,
            k=options.k,
            filled=tuple(bool(view.contacts) for view in state.table.views),
            lonely_s=state.monotonic() - state.book.answered_at,
        )
        verdict = judge(situation)
        changed = verdict.ready != state.readiness.ready or verdict.alone != state.readiness.alone
        state.readiness = verdict
        if state.phase is not DhtPhase.DRAINING:
            state.phase = DhtPhase.READY if verdict.ready else DhtPhase.BOOTSTRAPPING
        self._gate.set(is_open=verdict.ready, degraded=verdict.alone, why=verdict.reason)
        if changed:
            self._events.say("ready.changed", ready=verdict.ready, alone=verdict.alone, why=verdict.reason)
        return verdict

    def _save_candidates(self) -> None:
        """Remember good contacts for the next start, now and then."""
        now = self._state.monotonic()
        if now - self._saved_at < SAVE_S and self._republisher.saved_candidates:
            return
        self._saved_at = now
        self._republisher.save_candidates([contact.address for contact in self._state.table.contacts()])
