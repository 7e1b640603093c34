"""The lookup pool: works off finds, provides and background walks, each within its own deadline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.kernel.deadline import timeout
from penstock.kernel.errors import Busy, Timeout
from penstock.kernel.worker import Job, JobLoop
from penstock.services.dht.agents.publishing import Publishing
from penstock.services.dht.agents.walk import Walk
from penstock.services.dht.core.ids import BUCKETS, bucket_of
from penstock.services.dht.core.lookup import Goal, LookupEnd, LookupOutcome

if TYPE_CHECKING:
    from penstock.kernel.channel import Channel
    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory
    from penstock.services.dht.agents.record_keeper import Keeping
    from penstock.services.dht.agents.record_verifier import RecordVerifier
    from penstock.services.dht.agents.routes import RouteQueues
    from penstock.services.dht.core.contact import Contact
    from penstock.services.dht.core.record import ProviderRecord
    from penstock.services.dht.core.record_book import RecordBook
    from penstock.services.dht.events import DhtEvents
    from penstock.services.dht.peers.pool import PeerPool
    from penstock.services.dht.state import DhtState

WALK_S: Final = 10.0
BACKGROUND_MAX: Final = 4
HOP_BUCKETS: Final = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


def _nobody(_record: ProviderRecord) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class FindOrder:
    """Find records of a key."""

    key: int
    goal: Goal
    limit: int
    paths: int
    wait_s: float
    on_record: Callable[[ProviderRecord], None] = _nobody


@dataclass(frozen=True, slots=True)
class WalkOrder:
    """Find the nodes nearest to a target."""

    target: int
    alpha: int
    start: tuple[Contact, ...] | None = None
    wait_s: float = WALK_S


@dataclass(frozen=True, slots=True)
class ProvideOrder:
    """Store a record at the nodes nearest to its key, and at others that kept an earlier one."""

    record: ProviderRecord
    also: tuple[Contact, ...] = ()
    wait_s: float = WALK_S
    done: Callable[[Publishing], None] = lambda _publishing: None


@dataclass(frozen=True, slots=True)
class LookupDone:
    """What came of an order."""

    outcome: LookupOutcome
    records: tuple[ProviderRecord, ...] = ()
    stored: int = 0
    pending: int = 0


LookupOrder = FindOrder | WalkOrder | ProvideOrder
LookupJob = Job[LookupOrder, LookupDone]


class LookupWorkers:
    """What all workers share; a job's answer comes first, its routing updates after it."""

    def __init__(  # noqa: PLR0913 - what a lookup touches
        self,
        inventory: Inventory,
        state: DhtState,
        pool: PeerPool,
        verifier: RecordVerifier,
        *,
        work: Channel[LookupJob],
        routes: RouteQueues,
        records: Channel[Keeping],
        book: RecordBook,
        events: DhtEvents,
    ) -> None:
        self._inventory = inventory
        self._state = state
        self._pool = pool
        self._verifier = verifier
        self._work = work
        self._routes = routes
        self._records = records
        self._book = book
        self._events = events
        self._places = inventory.limiter("background_walks", BACKGROUND_MAX)
        self.touched_at = [state.monotonic()] * BUCKETS  # when a lookup last fell into each bucket
        metrics = inventory.metrics
        self._hedges = metrics.counter("hedge_spawned_total", "Extra probes for slow ones.")
        self._canceled = metrics.counter(
            "hedge_canceled_total", "Probes nobody waited for any more when their lookup ended."
        )
        self._retries = {
            op: metrics.counter("backoff_retries_total", "Probes that were tried again.", op=op)
            for op in ("find_node", "find_value")
        }
        self._hops = {
            op: metrics.histogram("dht_lookup_hops", "Depth at which lookups ended.", buckets=HOP_BUCKETS, op=op)
            for op in ("find_node", "find_value")
        }
        self._latency = {
            op: metrics.histogram("dht_lookup_latency_seconds", "How long lookups took.", op=op)
            for op in ("find_node", "find_value")
        }
        self._suspects = metrics.watched("eclipse_suspect_total", "Walks that ended suspiciously dense.")
        self._suspects.append(lambda: state.size.suspicions)

    async def run(self, child: Child) -> None:
        """Work until the queue is closed and empty."""
        loop: JobLoop[LookupOrder, LookupDone] = JobLoop(
            "lookup_worker", self._work, self._handle, self._inventory.metrics
        )
        await loop.run(self._state.monotonic)

    async def _handle(self, order: LookupOrder) -> LookupDone:
        match order:
            case FindOrder():
                return await self._find(order)
            case WalkOrder():
                return await self._nodes(order)
            case ProvideOrder():
                return await self._provide(order)

    # --- the three kinds ------------------------------------------------------------------------------------

    async def _find(self, order: FindOrder) -> LookupDone:
        walk = self._walk()
        walk.on_record = order.on_record
        walk.known = self._book.answer(order.key, self._state.wall_ms())
        deadline_at = self._state.monotonic() + order.wait_s
        outcome = await walk.run(
            order.key,
            order.goal,
            deadline_at=deadline_at,
            alpha=self._state.options.find_alpha,
            limit=order.limit,
            paths=order.paths,
        )
        self._count(walk, outcome, "find_value")
        records = tuple(record for record in walk.lookup.providers())
        return LookupDone(outcome, records)  # type: ignore[arg-type]  # the records of this walk are ProviderRecords

    async def _nodes(self, order: WalkOrder) -> LookupDone:
        walk = self._walk()
        start = None if order.start is None else list(order.start)
        deadline_at = self._state.monotonic() + order.wait_s
        outcome = await walk.run(order.target, Goal.NODES, deadline_at=deadline_at, alpha=order.alpha, start=start)
        self._count(walk, outcome, "find_node")
        return LookupDone(outcome)

    async def _provide(self, order: ProvideOrder) -> LookupDone:
        state, record = self._state, order.record
        publishing = Publishing(self._pool, self._records, record)
        publishing.keep_at_home()
        walk = self._walk()
        radius = state.size.radius

        def on_way(contact: Contact) -> None:
            if contact.id ^ record.key <= radius:
                publishing.send(contact)

        walk.on_answered = on_way
        deadline_at = state.monotonic() + order.wait_s
        outcome = await walk.run(record.key, Goal.NODES, deadline_at=deadline_at, alpha=state.options.find_alpha)
        self._count(walk, outcome, "find_node")
        for contact in order.also:
            publishing.send(contact)
        publishing.send_all(outcome.nearest, state.options.k)
        async with timeout("provide", max(0.001, deadline_at - state.monotonic())):
            await publishing.settled.wait()
        order.done(publishing)
        if not publishing.reached:
            raise Busy(
                "Too few nodes took the record. It stays with this node and is published again.", limit="majority"
            )
        return LookupDone(outcome, (record,), publishing.count, publishing.pending)

    # --- what every walk leaves behind ------------------------------------------------------------------------

    def _walk(self) -> Walk:
        return Walk(self._state, self._pool, self._verifier)

    def _count(self, walk: Walk, outcome: LookupOutcome, op: str) -> None:
        state, now = self._state, self._state.monotonic()
        lookup = walk.lookup
        failed = outcome.ending in (LookupEnd.DEADLINE, LookupEnd.HOPS)
        self._hops[op].observe(state.options.hop_budget + 1 if failed else outcome.hops)
        self._latency[op].observe(now - lookup.began_at)
        self._hedges.value += outcome.hedges
        self._canceled.value += len(lookup.in_flight)
        self._retries[op].value += lookup.retries
        self.touched_at[bucket_of(state.own, lookup.target)] = now
        if op == "find_node" and outcome.complete:
            state.size.know(len(state.table))
            state.size.walked(lookup.target, [contact.id for contact in outcome.nearest])
        self._events.say(
            "lookup.done", op=op, hops=outcome.hops, messages=outcome.messages, ending=outcome.ending.value
        )
        for contact in walk.answered:
            # Whoever answered on a connection of its own showed who it is, not that others reach it at this address.
            if self._pool.proved_at(contact):
                self._routes.try_insert(contact)

    def figures(self) -> dict[str, object]:
        """Return what the page shows of all lookups."""
        counts = [sum(pair) for pair in zip(*(histogram.counts for histogram in self._hops.values()), strict=True)]
        total, seen = sum(counts), 0
        p99 = 0.0
        for bound, count in zip((*HOP_BUCKETS, HOP_BUCKETS[-1]), counts, strict=True):
            seen += count
            if total and seen >= 0.99 * total:
                p99 = bound
                break
        return {"lookups": total, "hops": p99, "hedges": self._hedges.value}

    # --- background walks ---------------------------------------------------------------------------------------

    async def walk_in_background(self, target: int, start: tuple[Contact, ...] | None = None) -> LookupOutcome:
        """Walk for an agent of the node itself; these hold at most a few of the workers."""
        self._places.acquire_or_busy()
        try:
            job: LookupJob = Job(WalkOrder(target, self._state.options.alpha, start))
            self._work.try_send(job)
            async with timeout("background_walk", WALK_S + 1.0):
                return (await job.reply).outcome
        finally:
            self._places.release()


def raise_if_nothing(done: LookupDone, wait_s: float) -> None:
    """Refuse to answer a find that reached its deadline before anybody answered."""
    outcome = done.outcome
    if outcome.ending is LookupEnd.DEADLINE and not outcome.nearest and not done.records:
        raise Timeout("find_value", budget_s=wait_s)
