"""The one writer of the node's own records: signs them, keeps them on disk, and publishes them again in time.

Whoever wants a record announced or withdrawn sends a job and gets the signed record back once it is durable.
Publishing it is a lookup and happens elsewhere; what came of it returns here as another job. Regions of the key space
that are due are published in a small scope, a batch of keys at a time, so that this agent is always there for its
queue.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from penstock.kernel.channel import Full
from penstock.kernel.deadline import pause, timeout
from penstock.kernel.errors import Busy, Closed, NotFound, OverLimit, PenstockError, Timeout
from penstock.kernel.log import Log
from penstock.kernel.worker import Job
from penstock.services.dht.agents.own_records import OwnFiles, OwnRecord
from penstock.services.dht.agents.publishing import Publishing
from penstock.services.dht.core.record import TTL_S_MAX, TTL_S_MIN, ProviderRecord, RecordSigner, make_record
from penstock.services.dht.core.republish import DuePlan, DueRegion, region_bits

if TYPE_CHECKING:
    from penstock.kernel.channel import Channel
    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.scope import Scope
    from penstock.services.dht.agents.lookup_worker import LookupWorkers
    from penstock.services.dht.agents.record_keeper import Keeping
    from penstock.services.dht.core.contact import Contact
    from penstock.services.dht.peers.pool import PeerPool
    from penstock.services.dht.state import DhtState

FILE_S: Final = 5.0
# It looks what is due this often, or when the first record is due, but not again at once.
LOOK_S: Final = 30.0
LOOK_S_MIN: Final = 5.0
# So many records are judged in one step of the loop.
JUDGED_A_STEP: Final = 2000
REGIONS_AT_A_TIME: Final = 2
KEYS_A_BATCH: Final = 256
STORE_S: Final = 5.0
# What a disk that is full, gone or damaged raises.
FILE_ERRORS: Final = (OSError, sqlite3.Error)


@dataclass(frozen=True, slots=True)
class Announce:
    """Publish a key from now on."""

    key: int
    addrs: tuple[str, ...]
    ttl_s: int


@dataclass(frozen=True, slots=True)
class Retract:
    """Stop publishing a key."""

    key: int


@dataclass(frozen=True, slots=True)
class Published:
    """Records went out: who keeps each of them."""

    keepers: dict[int, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class SignedRecord:
    """A record that is durable at home, and the nodes that keep an earlier one."""

    record: ProviderRecord
    keepers: tuple[str, ...]


OwnCommand = Announce | Retract | Published
OwnJob = Job[OwnCommand, SignedRecord | None]


class Republisher:
    """First to start and last to end: it also reads the node's identity."""

    def __init__(self, inventory: Inventory, state: DhtState, files: OwnFiles) -> None:
        """Declare the queue and the thread for the files."""
        self.own: dict[int, OwnRecord] = {}
        self.candidates: list[tuple[str, int]] = []
        self.saved_candidates = False
        self.queue: Channel[OwnJob] = inventory.channel(
            "own", Job, capacity=state.options.own_capacity, full=Full.REFUSE, producers="listener, lookup_worker",
            consumers="republisher",
        )  # fmt: skip
        self._state = state
        self._files = files
        self._threads = inventory.pool("files", threads=1, capacity=64)
        self._log = Log(inventory.service)
        self._jitter = random.random()  # noqa: S311 - each node's own place in the interval
        self._under_way: set[int] = set()
        self._scope: Scope | None = None
        # Set by the service, which makes those who publish after this.
        self.workers: LookupWorkers
        self.pool: PeerPool
        self.records: Channel[Keeping]
        metrics = inventory.metrics
        metrics.gauge("provider_records_total", "Records kept for others.", read=lambda: len(self.own), state="own")
        self._republished = {
            result: metrics.counter("provider_republish_total", "Own records published again.", result=result)
            for result in ("ok", "failed")
        }

    # --- life -----------------------------------------------------------------------------------------------

    async def run(self, child: Child) -> None:
        """Read the files, then work until the queue is closed and empty.

        Every half minute or sooner it looks what is due, however often jobs come: a node that announces a key every few
        seconds must publish its earlier ones again too.
        """
        await self._open()
        child.announce()
        self._scope = child.scope("republish", REGIONS_AT_A_TIME)
        self._under_way.clear()
        look_at = self._state.monotonic() + LOOK_S
        while True:
            now = self._state.monotonic()
            if now >= look_at:
                wait_s = await self._tend_if_possible()
                now = self._state.monotonic()
                look_at = now + wait_s
            try:
                async with timeout("own", look_at - now):
                    job = await self.queue.recv()
            except Timeout:
                continue
            except Closed:
                break
            await self._take(job)
        if child.shutdown.draining:
            await self._end()

    async def _open(self) -> None:
        if self._state.identity is not None:
            return
        seed, records, self.candidates = await self._threads.run("own_open", FILE_S, self._files.open)
        self.own = {record.key: record for record in records}
        self._state.adopt(RecordSigner(seed, post_quantum=self._state.options.post_quantum))

    async def _end(self) -> None:
        """Write down where good contacts are, and close the files."""
        addresses = [contact.address for contact in self._state.table.contacts()]
        try:
            if addresses:
                await self._threads.run("candidates", FILE_S, self._files.save_candidates, addresses)
            await self._threads.run("own_close", FILE_S, self._files.close)
        except (OSError, PenstockError) as error:
            self._log.warning("own.not_closed", why=str(error))

    async def close(self) -> None:
        """End the thread."""
        await self._threads.close()

    def save_candidates(self, addresses: list[tuple[str, int]]) -> None:
        """Have the addresses written, if there is a place to run it."""
        if self._scope is None or not addresses:
            return
        self.saved_candidates = True
        try:
            self._scope.start(self._save(addresses))
        except Busy:
            return

    async def _save(self, addresses: list[tuple[str, int]]) -> None:
        await self._threads.run("candidates", FILE_S, self._files.save_candidates, addresses)

    # --- jobs -----------------------------------------------------------------------------------------------

    async def _take(self, job: OwnJob) -> None:
        if not job.take():
            return
        try:
            job.done(await self._do(job.value))
        except PenstockError as error:
            job.fail(error)
        except (*FILE_ERRORS, ValueError) as error:
            self._log.error("own.failed", error=error)
            job.fail(Busy("The node cannot write its records.", limit="own"))

    async def _do(self, command: OwnCommand) -> SignedRecord | None:
        match command:
            case Announce(key, addrs, ttl_s):
                return await self._announce(key, addrs, ttl_s)
            case Retract(key):
                return await self._retract(key)
            case Published(keepers):
                await self._note(keepers)
                return None

    async def _announce(self, key: int, addrs: tuple[str, ...], ttl_s: int) -> SignedRecord:
        held = self.own.get(key)
        if held is None and len(self.own) >= self._state.options.own_max:
            raise OverLimit("This node publishes as many records as it may.", limit="own_records", status=507)
        now_ms = self._state.wall_ms()
        fresh = OwnRecord(
            key, addrs, ttl_s, self._next_seq(held, now_ms), now_ms, keepers=() if held is None else held.keepers
        )
        return await self._sign_and_keep(fresh)

    async def _retract(self, key: int) -> SignedRecord:
        held = self.own.get(key)
        if held is None or held.withdrawn:
            raise NotFound("This node does not provide that key.")
        now_ms = self._state.wall_ms()
        left_s = (held.issued_ms + held.ttl_s * 1000 - now_ms) // 1000
        ttl_s = min(max(left_s, TTL_S_MIN), TTL_S_MAX)
        gone = replace(held, addrs=(), ttl_s=ttl_s, seq=self._next_seq(held, now_ms), issued_ms=now_ms, withdrawn=True)
        return await self._sign_and_keep(gone)

    def _next_seq(self, held: OwnRecord | None, now_ms: int) -> int:
        return max(0 if held is None else held.seq + 1, now_ms)

    async def _sign_and_keep(self, own: OwnRecord) -> SignedRecord:
        record = self._sign(own)
        await self._threads.run("own_write", FILE_S, self._files.put, [own])
        self.own[own.key] = own
        return SignedRecord(record, own.keepers)

    def _sign(self, own: OwnRecord) -> ProviderRecord:
        return make_record(
            self._state.signer, own.key, own.addrs, seq=own.seq, issued_ms=own.issued_ms, ttl_s=own.ttl_s
        )

    async def _note(self, keepers: dict[int, tuple[str, ...]]) -> None:
        """Remember when records went out and who keeps them."""
        now_ms = self._state.wall_ms()
        changed = [self.own[key].published(now_ms, kept) for key, kept in keepers.items() if key in self.own]
        await self._threads.run("own_write", FILE_S, self._files.put, changed)
        for own in changed:
            self.own[own.key] = own

    # --- again and again ----------------------------------------------------------------------------------------

    async def _tend_if_possible(self) -> float:
        """Tend, and leave what a full disk or a slow one does not allow to the next look; say when that is."""
        try:
            return await self._tend()
        except (*FILE_ERRORS, PenstockError) as error:
            self._log.warning("own.not_tended", why=f"{type(error).__name__}: {error}")
            return LOOK_S

    async def _tend(self) -> float:
        """Start the regions that are due, and forget withdrawals whose time is over; say when to look again."""
        now_ms = self._state.wall_ms()
        await self._forget(now_ms)
        if not self._state.readiness.ready:
            return LOOK_S
        plan = await self._plan(now_ms)
        for due in plan.regions():
            if self._scope is None or len(self._scope) >= REGIONS_AT_A_TIME:
                return LOOK_S_MIN
            await self._start_region(due)
        return LOOK_S if plan.next_ms is None else max(LOOK_S_MIN, min(LOOK_S, (plan.next_ms - now_ms) / 1000))

    async def _plan(self, now_ms: int) -> DuePlan:
        """Judge every record that is not being published, and let others run now and then."""
        bits = region_bits(self._state.size.nodes, self._state.options.k)
        plan, records = DuePlan(bits, now_ms, self._jitter), iter(list(self.own.values()))
        while batch := list(islice(records, JUDGED_A_STEP)):
            plan.look(own for own in batch if not own.withdrawn and own.key not in self._under_way)
            await asyncio.sleep(0)
        return plan

    async def _forget(self, now_ms: int) -> None:
        gone = [own.key for own in self.own.values() if own.withdrawn and own.issued_ms + own.ttl_s * 1000 <= now_ms]
        for key in gone[:KEYS_A_BATCH]:
            await self._threads.run("own_write", FILE_S, self._files.remove, key)
            del self.own[key]

    async def _start_region(self, due: DueRegion) -> None:
        now_ms = self._state.wall_ms()
        keys = due.keys[:KEYS_A_BATCH]
        fresh = [replace(self.own[key], seq=self._next_seq(self.own[key], now_ms), issued_ms=now_ms) for key in keys]
        await self._threads.run("own_write", FILE_S, self._files.put, fresh)
        for own in fresh:
            self.own[own.key] = own
        assert self._scope is not None
        # Raises Busy if the place was taken while the records were written; they are due again at the next look.
        self._scope.start(self._publish_region(due, [self._sign(own) for own in fresh]))
        self._under_way.update(keys)

    async def _publish_region(self, due: DueRegion, records: list[ProviderRecord]) -> None:
        """Publish a region; however that ends, its records are due again when their time comes."""
        try:
            await self._walk_and_store(due, records)
        except PenstockError:
            self._republished["failed"].value += len(records)
        finally:
            self._under_way.difference_update(record.key for record in records)

    async def _walk_and_store(self, due: DueRegion, records: list[ProviderRecord]) -> None:
        """Walk to the middle of a region once, then store each of its records at the nodes nearest to its key."""
        outcome = await self.workers.walk_in_background(due.region.middle)
        keepers: dict[int, tuple[str, ...]] = {}
        for record in records:
            publishing = self._send(record, outcome.nearest)
            await _wait_for(publishing)
            keepers[record.key] = publishing.keepers()
            self._republished["ok" if publishing.reached else "failed"].value += 1
        await self.tell_published(keepers)

    def _send(self, record: ProviderRecord, found: Iterable[Contact]) -> Publishing:
        state, k = self._state, self._state.options.k
        near = {contact.id: contact for contact in (*state.table.closest(record.key, k, state.book.failing), *found)}
        nearest = sorted(near.values(), key=lambda contact: contact.id ^ record.key)[:k]
        publishing = Publishing(self.pool, self.records, record)
        publishing.keep_at_home()
        publishing.send_all(nearest, k)
        return publishing

    async def tell_published(self, keepers: dict[int, tuple[str, ...]]) -> None:
        """Report what was published, and try again a little later when the queue is full."""
        for _ in range(3):
            try:
                self.queue.try_send(Job(Published(keepers)))
            except Busy:
                await pause("own", 1.0)
            except PenstockError:
                return
            else:
                return


async def _wait_for(publishing: Publishing) -> None:
    try:
        async with timeout("republish", STORE_S):
            await publishing.settled.wait()
    except Timeout:
        return
