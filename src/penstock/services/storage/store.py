"""The store: what the routes and the contract share. It takes in, looks and reads; the committers make visible.

Everything a decision needs is changed on the loop in single steps; the disk is visited through bounded pools, one for
reading, one for taking in, one for committing large objects and one, of a single thread, for the packs, so that a slow
sync holds up no reader. What is in memory already is read on the loop.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from blake3 import blake3

from penstock.contracts.storage import Stored
from penstock.kernel.channel import Full
from penstock.kernel.errors import (
    Closed,
    DownstreamUnavailable,
    Integrity,
    NotFound,
    NotReady,
    OverLimit,
    PenstockError,
)
from penstock.kernel.log import Log
from penstock.kernel.worker import Job
from penstock.services.storage.incoming import IncomingObject, check_expected
from penstock.services.storage.ledger import INSUFFICIENT_STORAGE, QuotaLedger
from penstock.services.storage.manifest import LEAF_BYTES
from penstock.services.storage.packed_put import PackedPut
from penstock.services.storage.reading import ObjectReader
from penstock.wire.ids import address_of, format_address

if TYPE_CHECKING:
    from penstock.kernel.channel import Channel
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.limiter import Limiter
    from penstock.kernel.pool import Pool
    from penstock.services.storage.config import StorageOptions
    from penstock.services.storage.engines.disk import FileStamp
    from penstock.services.storage.engines.engine import ObjectEngine
    from penstock.services.storage.engines.objects import FoundObject
    from penstock.services.storage.incoming import CommitJob
    from penstock.services.storage.packed_put import Form

P = ParamSpec("P")
R = TypeVar("R")

READ_S: Final = 30.0
_FULL_DISK: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_VERIFIED_KEPT: Final = 8192
# A file system stamps changes by the kernel's tick, which is 10 ms at the most.
_TICK_NS_MAX: Final = 50_000_000


class ObjectStore:
    """Holds the objects, the quota over them, and the ways to the disk."""

    def __init__(self, inventory: Inventory, options: StorageOptions, engine: ObjectEngine) -> None:
        """Declare everything; nothing is open yet."""
        self.inventory = inventory
        self.options = options
        self.engine = engine
        self.objects = engine.files
        self.ledger = QuotaLedger(options.bytes_max)
        self.ready = False
        # What keeps the store shut, if its packs cannot be read.
        self.damage = ""
        self.log = Log(inventory.service)
        self.puts = inventory.limiter("puts", options.puts_max)
        self.gets = inventory.limiter("gets", options.gets_max)
        self.commits: list[Channel[CommitJob]] = [self._commit_channel(index) for index in range(options.committers)]
        self.small_puts: Channel[PackedPut] = inventory.channel(
            "pack", PackedPut, capacity=options.pack_capacity, full=Full.REFUSE, producers="listener",
            consumers="pack_writer",
        )  # fmt: skip
        # Every draft holds a place of `puts` or `uploads`, so that this is never full.
        self.discards: Channel[IncomingObject] = inventory.channel(
            "discard", IncomingObject, capacity=options.puts_max + options.uploads_max, full=Full.REFUSE,
            producers="listener, committer, reaper", consumers="keeper",
        )  # fmt: skip
        # Each request makes one visit at a time: whoever has a place finds room in the pool.
        self._reading = inventory.pool("storage_reads", threads=options.io_threads, capacity=options.gets_max)
        visits = options.puts_max + options.uploads_max + 1
        self._writing = inventory.pool("storage_writes", threads=options.io_threads, capacity=visits)
        self._committing = inventory.pool("storage_commits", threads=options.committers, capacity=options.committers)
        # One thread: groups are appended one after the other, also when their writer was replaced meanwhile.
        self._packing = inventory.pool("storage_packs", threads=1, capacity=4)
        # Which large objects were held against their address, and what their files looked like then.
        self._verified: dict[str, FileStamp] = {}
        self._declare_metrics()

    def _commit_channel(self, index: int) -> Channel[CommitJob]:
        return self.inventory.channel(
            "commit", Job, capacity=self.options.commit_capacity, full=Full.REFUSE, producers="listener",
            consumers="committer", shard=index,
        )  # fmt: skip

    def _declare_metrics(self) -> None:
        metrics, ledger = self.inventory.metrics, self.ledger
        metrics.gauge("storage_objects", "Objects stored.", read=lambda: ledger.objects)
        metrics.gauge("packed_objects", "Small objects in the index.", read=lambda: self.engine.index.count)
        metrics.gauge("storage_bytes", "Bytes of all objects.", read=lambda: ledger.used_bytes)
        metrics.gauge("storage_reserved_bytes", "Bytes promised to puts under way.", read=lambda: ledger.reserved_bytes)
        text = "Puts answered, by what became of the bytes."
        self.outcomes = {
            name: metrics.counter("puts_total", text, outcome=name) for name in ("new", "existed", "healed")
        }
        self.bytes_in = metrics.counter("object_bytes_in_total", "Bytes of new objects.")
        self.bytes_out = metrics.counter("object_bytes_out_total", "Bytes of objects handed out.")
        text = "Damaged bytes that were found instead of served."
        self._damaged = {
            name: metrics.counter("integrity_fail_total", text, reason=name)
            for name in ("payload", "manifest", "packs")
        }
        self._failures = metrics.counter("disk_errors_total", "Calls the disk failed.")
        policy = "stored and promised together; full: 507 over_limit; 0 = off"
        self.inventory.limit("storage", ledger.bytes_max, policy, self._quota)

    def _quota(self) -> dict[str, object]:
        ledger = self.ledger
        return {"in_use": ledger.used_bytes + ledger.reserved_bytes, "refused": ledger.refused}

    # --- visits to the disk

    async def look(self, op: str, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Read on a thread."""
        try:
            return await self._visit(self._reading, op, READ_S, call, *args, **kwargs)
        except DownstreamUnavailable as failed:
            # Whoever only looked has changed nothing: there is no outcome to be unsure of.
            raise DownstreamUnavailable("The disk failed; the object cannot be read.") from failed.__cause__

    async def write(self, op: str, seconds: float, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Write a draft on a thread."""
        return await self._visit(self._writing, op, seconds, call, *args, **kwargs)

    async def commit(self, op: str, seconds: float, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Make a large object visible on a thread."""
        return await self._visit(self._committing, op, seconds, call, *args, **kwargs)

    async def pack(self, op: str, seconds: float, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Open, append to or close the packs, on their one thread."""
        return await self._visit(self._packing, op, seconds, call, *args, **kwargs)

    @property
    def packs_idle(self) -> bool:
        """Tell whether nobody is at work on the packs, also no call that was given up."""
        return not self._packing.depth

    async def _visit(
        self, pool: Pool, op: str, seconds: float, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Make a call that blocks; what the disk answers becomes a condition the caller can act on."""
        try:
            return await pool.run(op, seconds, call, *args, **kwargs)
        except Integrity as found:
            self._note_damage(op, found)
            raise
        except OSError as failed:
            raise self.condition(op, failed) from failed

    def _note_damage(self, op: str, found: Integrity) -> None:
        reason = str(found.facts["reason"])
        self._damaged[reason].value += 1
        self.log.error("object.damaged", op=op, where=reason)

    def condition(self, op: str, failed: OSError) -> PenstockError:
        """Count what the disk failed, and turn it into what the caller can act on."""
        self._failures.value += 1
        self.log.warning("disk.failed", op=op, reason=failed.strerror or type(failed).__name__)
        if failed.errno in _FULL_DISK:
            return OverLimit("The disk is full.", limit="disk", status=INSUFFICIENT_STORAGE)
        return DownstreamUnavailable("The disk failed; the object may or may not be stored.", outcome="unknown")

    async def close(self) -> None:
        """End the threads, after everything else has ended."""
        for pool in (self._reading, self._writing, self._committing, self._packing):
            await pool.close()

    def check_ready(self) -> None:
        """Refuse until the engine is open."""
        if not self.ready:
            raise NotReady(self.damage or "The store is not open yet.", gate="objects" if self.damage else "keeper")

    # --- taking in

    def check_size(self, size: int) -> None:
        """Refuse an object that is too large."""
        bytes_max = self.options.put_bytes_max
        if size > bytes_max:
            detail = f"The object is too large: storage.put_max_bytes is {bytes_max} bytes."
            raise OverLimit(detail, limit="object_bytes")

    def begin(self, places: Limiter, size_hint: int = 0) -> IncomingObject:
        """Start an object; Busy without a place, OverLimit without the room."""
        self.check_ready()
        return IncomingObject(self, places, size_hint)

    async def put(self, data: bytes, expect: str | None) -> Stored:
        """Store bytes that are here already."""
        self.check_ready()
        if len(data) <= LEAF_BYTES:
            put = self.put_small(data, expect)
            return put if isinstance(put, Stored) else await put.wait()
        self.check_size(len(data))
        address = address_of(data)
        check_expected(address, expect)
        if await self.has(address):
            return self._existed(address, len(data))
        incoming = self.begin(self.puts, len(data))
        try:
            await incoming.add(data)
            return await self.settle(incoming, expect)
        finally:
            self.let_go(incoming)

    def put_small(self, data: bytes, expect: str | None, form: Form | None = None) -> Stored | PackedPut:
        """Store an object of at most one leaf; at once if it is there and in memory, else when its promise is kept."""
        self.check_size(len(data))
        digest = blake3(data).digest()
        address = format_address(digest)
        check_expected(address, expect)
        with suppress(Integrity):  # the writer puts these bytes in the place of the damaged ones
            if self.find_now(address) is not None:
                return self._existed(address, len(data))
        put = PackedPut(digest, data, self.inventory.clock.monotonic(), form)
        self.puts.acquire_or_busy()
        try:
            self.ledger.reserve(len(data))
        except OverLimit:
            self.puts.release()
            raise
        put.hold(self.ledger, self.puts, len(data))
        try:
            self.small_puts.try_send(put)
        except PenstockError:
            put.close()
            raise
        return put

    async def take(self, pieces: AsyncIterator[bytes], expect: str | None, size_hint: int) -> Stored:
        """Store bytes as they arrive; what is there already under the expected address is only hashed."""
        self.check_ready()
        if expect is not None and await self.has(expect):
            return await self._compare(pieces, expect)
        incoming = self.begin(self.puts, size_hint)
        try:
            async for piece in pieces:
                await incoming.add(piece)
            return await self.settle(incoming, expect)
        finally:
            self.let_go(incoming)

    async def _compare(self, pieces: AsyncIterator[bytes], expect: str) -> Stored:
        whole, size = blake3(), 0
        async for piece in pieces:
            whole.update(piece)
            size += len(piece)
        check_expected(format_address(whole.digest()), expect)
        return self._existed(expect, size)

    def _existed(self, address: str, size: int) -> Stored:
        self.outcomes["existed"].value += 1
        return Stored(address, size, existed=True)

    async def settle(self, incoming: IncomingObject, expect: str | None) -> Stored:
        """Hand a small object to the pack writer and a large one to its committer, where equal ones meet in order."""
        made = await incoming.finish(expect)
        if incoming.draft is None:
            put = PackedPut(bytes.fromhex(made.address[3:]), bytes(incoming.tail), self.inventory.clock.monotonic())
            self.small_puts.try_send(put)
            incoming.hand_over(put)
            return await put.wait()
        job: CommitJob = Job(incoming)
        self.commits[int(made.address[3:7], 16) % len(self.commits)].try_send(job)
        incoming.job = job
        return await job.reply

    def let_go(self, incoming: IncomingObject) -> None:
        """End what was taken in, unless a committer has it: then it ends it."""
        if incoming.job is None or not incoming.job.taken:
            incoming.close()

    def discard(self, incoming: IncomingObject) -> bool:
        """Give a draft to the keeper; False when there is none any more, and the next start sweeps instead."""
        assert incoming.draft is not None
        incoming.draft.dropped = True
        try:
            self.discards.try_send(incoming)
        except Closed:
            return False
        return True

    # --- looking and reading

    def reading(self) -> ObjectReader:
        """Take a reader's place; Busy when all are taken."""
        return ObjectReader(self)

    def find_now(self, address: str) -> FoundObject | None:
        """Find an object that is packed and in memory; None says: it takes a reader and a visit to the disk."""
        try:
            return self.engine.find_now(address)
        except Integrity as found:
            self._note_damage("find", found)
            raise

    async def has(self, address: str) -> bool:
        """Tell whether an object is there and whole."""
        with self.reading() as reading:
            try:
                await reading.find(address)
                await reading.verify()
            except (NotFound, Integrity):
                return False
        return True

    def knows(self, found: FoundObject) -> bool:
        """Tell whether an object was held against its address and its file has not changed since."""
        return found.data is not None or self._verified.get(found.address) == found.stamp

    def remember(self, found: FoundObject) -> None:
        """Note that an object was held against its address; the oldest note goes when there are too many.

        Not of a file that has only just changed: within one tick of the file system's clock the next change leaves the
        same stamp, and the note would vouch for bytes that nobody has looked at.
        """
        now_s = self.inventory.clock.wall()  # lint: allow PK012 a file system stamps by wall time
        if now_s * 1e9 < found.stamp.changed_ns + _TICK_NS_MAX:
            return
        if len(self._verified) >= _VERIFIED_KEPT:
            del self._verified[next(iter(self._verified))]
        self._verified[found.address] = found.stamp
