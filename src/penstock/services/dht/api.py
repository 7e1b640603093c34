"""The dht contract: what routes and other services call. Authority first, then a job in a queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final

from penstock.contracts import dht as d
from penstock.contracts.call import NOBODY, Call
from penstock.kernel.deadline import Deadline, current_deadline, timeout
from penstock.kernel.errors import Malformed, NotReady, PenstockError
from penstock.kernel.worker import Job
from penstock.services.dht.agents.lookup_worker import (
    WALK_S,
    FindOrder,
    LookupDone,
    LookupJob,
    LookupOrder,
    ProvideOrder,
    WalkOrder,
    raise_if_nothing,
)
from penstock.services.dht.agents.republisher import Announce, OwnCommand, OwnJob, Published, Retract, SignedRecord
from penstock.services.dht.core.ids import parse_key, to_text
from penstock.services.dht.core.lookup import Goal, LookupOutcome
from penstock.services.dht.core.record import ProviderRecord
from penstock.services.dht.peers.dialing import may_dial

if TYPE_CHECKING:
    from penstock.kernel.channel import Channel
    from penstock.services.dht.agents.publishing import Publishing
    from penstock.services.dht.agents.record_keeper import RecordKeeper
    from penstock.services.dht.agents.republisher import Republisher
    from penstock.services.dht.authority import DhtAuthority
    from penstock.services.dht.core.contact import Contact
    from penstock.services.dht.peers.pool import PeerPool
    from penstock.services.dht.state import DhtState

LIMIT: Final = 20
STREAMED_MAX: Final = 64


class DhtApi:
    """Implements `penstock.contracts.dht.Dht`."""

    def __init__(  # noqa: PLR0913 - what the contract leads to
        self,
        state: DhtState,
        authority: DhtAuthority,
        *,
        work: Channel[LookupJob],
        republisher: Republisher,
        keeper: RecordKeeper,
        pool: PeerPool,
    ) -> None:
        """Stand in front of these."""
        self.state = state
        self.keeper = keeper
        self.republisher = republisher
        self.pool = pool
        self._authority = authority
        self._work = work

    async def allow(self, call: Call, op: str) -> None:
        """Judge a call's capability."""
        await self._authority.allow(call, op)

    # --- provide and withdraw -------------------------------------------------------------------------------

    async def provide(self, request: d.Provide, call: Call = NOBODY) -> d.Provided:
        """Sign, keep and publish."""
        await self.allow(call, "provide")
        began = self.state.monotonic()
        self._must_be_ready()
        addrs = tuple(request.addrs or [self.own_address()])
        if not all(addr.isprintable() for addr in addrs):
            raise Malformed("An address is a printable text.", reason="bad_address")
        ttl_s = request.ttl_s or self.state.options.ttl_s
        signed = await self._own(Announce(parse_key(request.key), addrs, ttl_s))
        done = await self._order(ProvideOrder(signed.record, wait_s=self._wait_s(), done=self._published), call)
        return d.Provided(
            provider_out(signed.record), done.stored, done.pending, done.outcome.hops, self._elapsed_ms(began)
        )

    async def withdraw(self, request: d.Withdraw, call: Call = NOBODY) -> d.DhtDone:
        """Publish the withdrawal to everybody who stores the record, and to the nearest nodes."""
        await self.allow(call, "provide")
        self._must_be_ready()
        signed = await self._own(Retract(parse_key(request.key)))
        also = tuple(keeper_contact(self.state, text) for text in signed.keepers)
        await self._order(ProvideOrder(signed.record, also=also, wait_s=self._wait_s(), done=self._published), call)
        return d.DhtDone()

    def _must_be_ready(self) -> None:
        if not self.state.readiness.ready:
            raise NotReady(self.state.readiness.reason, phase=self.state.phase.value)

    def own_address(self) -> str:
        """Return where peers reach this node, as a record names it."""
        return f"tcp://{self.state.options.host}:{self.state.port}"

    def _published(self, publishing: Publishing) -> None:
        """Have the republisher remember who keeps it; those that answer later are found by the walk of a withdrawal."""
        try:
            self.republisher.queue.try_send(Job(Published({publishing.record.key: publishing.keepers()})))
        except PenstockError:
            return

    async def _own(self, command: OwnCommand) -> SignedRecord:
        job: OwnJob = Job(command, deadline=current_deadline())
        self.republisher.queue.try_send(job)
        async with timeout("own", WALK_S):
            signed = await job.reply
        assert signed is not None
        return signed

    # --- finding ----------------------------------------------------------------------------------------------

    async def find(self, request: d.Find, call: Call = NOBODY) -> d.Providers:
        """Look a key up."""
        await self.allow(call, "find")
        began = self.state.monotonic()
        order = self._find_order(request)
        done = await self._order(order, call)
        raise_if_nothing(done, order.wait_s)
        return self.found_out(request, done, began)

    def _find_order(self, request: d.Find, on_record: Callable[[ProviderRecord], None] | None = None) -> FindOrder:
        goal = Goal.FIRST if request.limit is None else Goal.LIMIT
        wait_s = min(request.wait_ms / 1000, self._wait_s())
        limit = request.limit or LIMIT
        order = FindOrder(parse_key(request.key), goal, limit, request.paths, wait_s)
        return order if on_record is None else FindOrder(order.key, goal, limit, request.paths, wait_s, on_record)

    async def stream(self, request: d.Find, call: Call) -> AsyncIterator[d.Provider | d.Providers]:
        """Yield verified records as they come, each publisher's newest, and at last the whole answer."""
        began = self.state.monotonic()
        # Bounded by the lookup: it reports at most so many before they are read.
        arrived: list[ProviderRecord] = []
        woken = asyncio.Event()

        def on_record(record: ProviderRecord) -> None:
            if len(arrived) < STREAMED_MAX:
                arrived.append(record)
            woken.set()

        order = self._find_order(request, on_record)
        job = self._send(order, call)
        job.reply.add_done_callback(lambda _reply: woken.set())
        ends_at = began + order.wait_s * 1.05 + 0.05
        seen: dict[int, int] = {}
        try:
            while True:
                while arrived:
                    record = arrived.pop(0)
                    if record.seq > seen.get(record.publisher, -1):
                        seen[record.publisher] = record.seq
                        yield provider_out(record)
                if job.reply.done():
                    break
                woken.clear()
                async with timeout("find_value", max(0.0, ends_at - self.state.monotonic())):
                    await woken.wait()
        finally:
            # Whoever goes away before a worker has begun spares it the lookup.
            job.withdraw()
        done = job.reply.result()
        raise_if_nothing(done, order.wait_s)
        yield self.found_out(request, done, began)

    def found_out(self, request: d.Find, done: LookupDone, began: float) -> d.Providers:
        """Write the answer of a find."""
        outcome = done.outcome
        records = sorted(done.records, key=lambda record: -record.issued_ms)[: request.limit or LIMIT]
        found = tuple(provider_out(record) for record in records)
        path = tuple(to_text(node) for node in outcome.trail)
        return d.Providers(
            request.key, found, outcome.hops, path, outcome.messages, self._elapsed_ms(began), outcome.complete
        )

    async def nodes(self, request: d.FindNodes, call: Call = NOBODY) -> d.DhtNodes:
        """Find the nodes nearest to an id."""
        await self.allow(call, "admin")
        began = self.state.monotonic()
        done = await self._order(WalkOrder(parse_key(request.node_id), self.state.options.find_alpha), call)
        return self._nodes_out(done.outcome, began)

    def _nodes_out(self, outcome: LookupOutcome, began: float) -> d.DhtNodes:
        nodes = tuple(d.DhtNode(to_text(each.id), each.host, each.port) for each in outcome.nearest)
        return d.DhtNodes(nodes, outcome.hops, outcome.messages, self._elapsed_ms(began), outcome.complete)

    # --- the rest ---------------------------------------------------------------------------------------------

    async def status(self, request: d.DhtStatusAsk, call: Call = NOBODY) -> d.DhtStatus:
        """Tell how the node stands."""
        await self.allow(call, "admin")
        return self.status_now()

    def status_now(self) -> d.DhtStatus:
        """Read the status."""
        state = self.state
        return d.DhtStatus(
            node_id=to_text(state.own),
            peer_addr=f"{state.options.host}:{state.port}",
            phase=state.phase.value,
            ready=state.readiness.ready,
            alone=state.readiness.alone,
            reason=state.readiness.reason,
            contacts=len(state.table),
            links=len(self.pool.links),
            network_nodes=round(state.size.nodes, 1),
            records_kept=len(self.keeper.book),
            records_own=sum(not own.withdrawn for own in self.republisher.own.values()),
            eclipse_suspects=state.size.suspicions,
        )

    async def ping(self, request: d.DhtPing, call: Call = NOBODY) -> d.DhtPong:
        """Dial an address of a kind that peers may have, and prove who is there."""
        await self.allow(call, "admin")
        if not may_dial(request.host, request.port, self.state.options.host):
            raise Malformed(
                "Peers are dialled at global addresses or ours, on ports from 1024 on.", reason="bad_address"
            )
        began = self.state.monotonic()
        try:
            link = await self.pool.dial(request.host, request.port)
        except OSError as exc:
            raise NotReady("Nobody listens at this address.", phase="dial") from exc
        return d.DhtPong(to_text(link.peer), self._elapsed_ms(began))

    # --- jobs ---------------------------------------------------------------------------------------------------

    def _send(self, order: LookupOrder, call: Call) -> LookupJob:
        now = self.state.monotonic()
        job: LookupJob = Job(order, deadline=Deadline.after(order.wait_s * 1.05 + 0.05, now), corr_id=call.corr_id)
        self._work.try_send(job)
        return job

    async def _order(self, order: LookupOrder, call: Call) -> LookupDone:
        job = self._send(order, call)
        try:
            async with timeout("lookup", order.wait_s * 1.05 + 0.05):
                return await asyncio.shield(job.reply)
        finally:
            job.withdraw()

    def _wait_s(self) -> float:
        """Return what is left of the caller's time, at most what a walk may take."""
        deadline = current_deadline()
        return WALK_S if deadline is None else max(0.05, 0.95 * deadline.clip(WALK_S, self.state.monotonic()))

    def _elapsed_ms(self, began: float) -> float:
        return round((self.state.monotonic() - began) * 1000, 3)


def provider_out(record: ProviderRecord) -> d.Provider:
    """Write a record as the contract names it."""
    return d.Provider(to_text(record.publisher), record.addrs, record.seq, record.issued_ms, record.expires_ms)


def keeper_contact(state: DhtState, text: str) -> Contact:
    """Read a keeper back from `id@host:port`."""
    node_id, _, address = text.partition("@")
    host, _, port = address.rpartition(":")
    return state.contact_of(int(node_id, 16), host, int(port))
