"""The audit's one writer.

Lines are chained where things happen and written in groups, off the loop, none lost on the way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.kernel.channel import Full
from penstock.kernel.deadline import timeout
from penstock.kernel.errors import Closed, DownstreamUnavailable, PenstockError, Timeout
from penstock.kernel.log import Log
from penstock.services.passport.audit import Walked, last_records
from penstock.services.passport.issued import issued_page
from penstock.wire.audit_chain import GENESIS, AuditChain

if TYPE_CHECKING:
    from penstock.contracts.passport import Attested, IssuedList
    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory
    from penstock.services.passport.issued import IssuedQuery
    from penstock.services.passport.store import PassportStore

GATHER_S: Final = 0.05
WRITE_S: Final = 5.0
AGAIN_S: Final = 1.0
# So many records at most are walked at the next start: the disk is waited for, and the place marked, this often.
MARK_RECORDS: Final = 65_536
# So many are kept for the operator's page.
RECENT: Final = 50


class AuditLine(NamedTuple):
    """One record on its way to the disk, and who waits for it to be there."""

    data: bytes
    ends: Walked
    done: asyncio.Future[None] | None


class AuditEntry(NamedTuple):
    """A record as an operator reads it."""

    n: int
    at_ms: int
    action: str
    facts: dict[str, Any]


class AuditTrail:
    """Chains what happened. A full channel refuses the act itself: what cannot be recorded is not done."""

    def __init__(self, inventory: Inventory, store: PassportStore) -> None:
        """Declare the channel to the writer."""
        self._chain = AuditChain()
        self._epoch = 0
        self._store = store
        # The last ones, of the runs before too; newest last.
        self.recent: deque[AuditEntry] = deque(maxlen=RECENT)
        # Lines taken from the channel and not known to be written; they stay here until they are.
        self._owed: list[AuditLine] = []
        # Touched by the one thread of the pool alone: a call that was given up on may still write its lines.
        self._written_to = 0
        self._synced_to = 0
        self._ends = Walked(0, GENESIS)
        # The newest line that the key store has signed for.
        self._signed_to = 0
        self._urgent = asyncio.Event()
        self._wall = inventory.clock.wall
        self._log = Log(inventory.service)
        self.lines = inventory.channel(
            "audit",
            AuditLine,
            capacity=8192,
            full=Full.REFUSE,
            producers="issuance, revocation_worker",
            consumers="audit_writer",
        )
        self._pool = inventory.pool("passport_audit", threads=1, capacity=8)
        inventory.timeout(
            "passport_audit", WRITE_S, "the lines are kept and written again; who waits for one: 503 or 504"
        )
        self._written = inventory.metrics.counter("audit_records_total", "Records written to the audit.")
        self._failures = inventory.metrics.counter(
            "audit_failures_total", "Writes of the audit that failed or were late."
        )

    @property
    def records(self) -> int:
        """Return how many lines the chain has."""
        return self._chain.n

    @property
    def head(self) -> str:
        """Return the hash of the newest line."""
        return self._chain.head

    def begin(self, walked: Walked, last_lines: bytes = b"") -> None:
        """Go on where the last run ended; `last_lines` of the file are what the operator's page shows first."""
        self.recent.extend(AuditEntry(*each) for each in last_records(last_lines, RECENT))
        self._chain = AuditChain(walked.records, walked.head)
        self._epoch = walked.epoch
        self._written_to = self._synced_to = walked.records
        self._ends = walked

    @property
    def has_unsigned(self) -> bool:
        """Tell whether something was written that the key store has not signed for."""
        return self._written_to > self._signed_to

    @property
    def signed(self) -> int:
        """Return up to which line the key store has signed."""
        return self._signed_to

    async def settle(self) -> Walked:
        """Wait for the disk to have all that was written; returns where that ends."""
        return await self._pool.run("passport_audit", WRITE_S, self._settle)

    def _settle(self) -> Walked:
        if self._synced_to < self._written_to:
            self._store.append_audit(b"", self._ends, sync=True)
            self._synced_to = self._written_to
        return self._ends

    async def keep_head(self, attested: Attested) -> None:
        """Keep a signed head beside the file."""
        await self._pool.run("passport_audit", WRITE_S, self._store.keep_head, attested)
        self._signed_to = attested.n

    # --- where things happen
    # -------------------------------------------------------------------------------------------

    def note(self, action: str, **facts: Any) -> None:  # noqa: ANN401 - whatever is worth recording
        """Record something that may be lost with the last moments of a crash: an issue."""
        self._add(action, facts, None)

    async def note_durably(self, action: str, **facts: Any) -> None:  # noqa: ANN401 - whatever is worth recording
        """Record something and wait for the disk: a revocation or rotation."""
        done = asyncio.get_running_loop().create_future()
        self._add(action, facts, done)
        self._urgent.set()
        async with timeout("passport_audit", WRITE_S):
            await done

    async def issued(self, query: IssuedQuery) -> IssuedList:
        """List what was issued; the first page has what was issued a moment ago."""
        if query.asked.cursor is None:
            await self._flush()
        return await self._pool.run("passport_audit", WRITE_S, issued_page, self._store, query)

    async def _flush(self) -> None:
        """Wait for what was noted to be written."""
        if not self._owed and not self.lines.depth:
            return
        done = asyncio.get_running_loop().create_future()
        self.lines.try_send(AuditLine(b"", self._noted(), done))
        self._urgent.set()
        async with timeout("passport_audit", WRITE_S):
            await done

    def _noted(self) -> Walked:
        return Walked(self._chain.n, self._chain.head, self._epoch)

    def _add(self, action: str, facts: dict[str, Any], done: asyncio.Future[None] | None) -> None:
        if self.lines.depth >= self.lines.capacity:
            # Refused before the chain moves on: a line that is not written must not be named by the next.
            self.lines.try_send(AuditLine(b"", Walked(0, ""), None))
        at_ms = int(self._wall() * 1000)
        data = self._chain.add(action, at_ms, facts)
        self.recent.append(AuditEntry(self._chain.n, at_ms, action, facts))
        self._epoch = max(self._epoch, facts.get("epoch", 0))
        self.lines.try_send(AuditLine(data, self._noted(), done))

    # --- the writer
    # ----------------------------------------------------------------------------------------------------

    async def run(self, child: Child) -> None:
        """Write in groups until the channel is closed and empty; a moment's wait makes one write of many lines."""
        while await self._gather():
            if await self._write():
                continue
            if child.shutdown.draining:
                self._log.error("audit.lost", records=len(self._owed))
                return
            await child.shutdown.sleep(AGAIN_S)

    async def _gather(self) -> bool:
        """Wait for lines and take what is there; False when there will be no more."""
        try:
            if not self._owed:
                self._owed.append(await self.lines.recv())
        except Closed:
            return False
        try:
            async with timeout("audit_gather", GATHER_S):
                await self._urgent.wait()
        except Timeout:
            self._urgent.clear()
        self._urgent.clear()
        # A failing disk leaves the channel full, and a full channel refuses: this list has a bound too.
        room = min(self.lines.depth, self.lines.capacity - len(self._owed))
        self._owed += [await self.lines.recv() for _ in range(room)]
        return True

    async def _write(self) -> bool:
        """Write all that is owed; what fails is owed still, and whoever waits for it is told."""
        owed = tuple(self._owed)
        sync = any(line.done is not None for line in owed) or self.lines.closed
        sync = sync or owed[-1].ends.records - self._synced_to >= MARK_RECORDS
        try:
            await self._pool.run("passport_audit", WRITE_S, self._append, owed, sync)
        except (OSError, Timeout) as exc:
            self._failures.value += 1
            self._log.warning("audit.failed", reason=type(exc).__name__)
            self._tell(owed, DownstreamUnavailable("The audit cannot be written.", reason="audit"))
            self._owed = [line._replace(done=None) for line in owed]
            return False
        self._owed.clear()
        self._written.value += sum(1 for line in owed if line.data)
        self._tell(owed, None)
        return True

    def _append(self, owed: tuple[AuditLine, ...], sync: bool) -> None:  # noqa: FBT001 - called by position on the pool
        """Append what a call before this one did not; on the pool's one thread, so in order."""
        fresh = [line for line in owed if line.ends.records > self._written_to]
        self._store.append_audit(b"".join(line.data for line in fresh), owed[-1].ends, sync=sync)
        self._written_to = owed[-1].ends.records
        self._ends = owed[-1].ends
        if sync:
            self._synced_to = self._written_to

    @staticmethod
    def _tell(owed: tuple[AuditLine, ...], error: PenstockError | None) -> None:
        for line in owed:
            if line.done is None or line.done.done():
                continue
            if error is None:
                line.done.set_result(None)
            else:
                line.done.set_exception(error)
                line.done.exception()

    async def close(self) -> None:
        """Let the thread go."""
        await self._pool.close()
