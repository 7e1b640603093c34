"""The audit's one writer: takes acts from the ring, makes the links of the chain, writes the lines to the sink."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.contracts.passport import Attested
from penstock.kernel.deadline import timeout
from penstock.kernel.errors import Closed, PenstockError
from penstock.kernel.log import Log
from penstock.services.interop.audit import AuditBook
from penstock.wire.audit_chain import ChainEnd, walk_chain

if TYPE_CHECKING:
    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory
    from penstock.services.interop.audit import BridgeAct
    from penstock.services.interop.config import InteropOptions
    from penstock.services.interop.records import BridgeRecords

WRITE_S: Final = 5.0
ATTEST_S: Final = 3.0
BATCH: Final = 256
# So many lines are kept in memory, whatever the sink: the operator's page shows them.
RECENT: Final = 512
# Has the head of the chain signed: called with its number and hash.
Attest = Callable[[int, str], Awaitable[Attested]]


class AuditWriter:
    """Writes in groups, off the loop. What cannot be written is logged and lost; business never waits for it."""

    def __init__(
        self, inventory: Inventory, options: InteropOptions, records: BridgeRecords, attest: Attest | None = None
    ) -> None:
        """Declare the thread that writes; nothing is opened yet."""
        self._options = options
        self._records = records
        self._attest = attest
        self._log = Log(inventory.service)
        self._pool = inventory.pool("audit_sink", threads=1, capacity=4)
        inventory.timeout("audit_sink", WRITE_S, "the lines are lost and counted")
        inventory.timeout("attest", ATTEST_S, "the head is signed with the next thousand records")
        self._book = AuditBook()
        # True after a failed write: where the file ends is not known until it is walked again.
        self._stale = False
        # The newest lines, bounded.
        self.recent: deque[bytes] = deque(maxlen=RECENT)
        self._emitted = inventory.metrics.counter("audit_emitted_total", "Records written.", sink=options.audit_sink)
        self._failures = inventory.metrics.counter("audit_failures_total", "Writes of the audit that failed.")

    @property
    def end(self) -> ChainEnd:
        """Return where the chain ends."""
        return self._book.end

    async def run(self, child: Child) -> None:
        """Write until the ring is closed and empty."""
        await self._begin()
        acts = self._records.acts
        while True:
            try:
                taken = await acts.recv_many(BATCH)
            except Closed:
                break
            await self._write(taken)
            await self._sign(draining=False)
        await self._sign(draining=True)
        await self.close()

    async def _begin(self) -> None:
        """Go on where the file's chain ended; a broken one is refused, and the service does not start on it."""
        path = self._options.audit_path
        if self._options.audit_sink == "file" and path is not None:
            self._book.go_on_after(await self._pool.run("audit_sink", WRITE_S, _walk, path))
        self._stale = False

    async def _write(self, acts: list[BridgeAct]) -> None:
        """Write the lines of these acts; when that fails they are lost, and a later record says how many."""
        if not await self._again():
            self._book.lose(len(acts))
            return
        lines = self._book.write(acts, self._records.acts.dropped, self._records.now_ms())
        if not await self._put(lines):
            self._book.lose(len(acts))

    async def _again(self) -> bool:
        """After a failed write find out where the file ends: a late write may have come through after all."""
        if not self._stale:
            return True
        try:
            await self._begin()
        except (OSError, PenstockError) as exc:
            self._note_failure(exc)
        return not self._stale

    async def _put(self, lines: bytes) -> bool:
        if self._options.audit_sink != "memory":
            try:
                await self._pool.run("audit_sink", WRITE_S, _sink, self._options.audit_path, lines)
            except (OSError, PenstockError) as exc:
                self._stale = True
                self._note_failure(exc)
                return False
        self.recent.extend(lines.splitlines(keepends=True))
        self._emitted.value += lines.count(b"\n")
        return True

    def _note_failure(self, exc: Exception) -> None:
        self._failures.value += 1
        self._log.error("audit.failed", reason=type(exc).__name__)

    async def _sign(self, *, draining: bool) -> None:
        # A chain that begins anew with each start is not worth a signature.
        lasting = self._attest is not None and self._options.audit_sink == "file" and not self._stale
        due = self._book.attest_due(draining=draining) if lasting else None
        if due is None or self._attest is None:
            return
        try:
            async with timeout("attest", ATTEST_S):
                word = await self._attest(due.records, due.head)
        except PenstockError as error:
            # The next thousand records, or the drain, ask again.
            self._log.warning("audit.unsigned", reason=error.code, detail=error.detail)
            return
        await self._put(self._book.attested(word, self._records.now_ms()))

    async def close(self) -> None:
        """Let the thread go."""
        await self._pool.close()


def _walk(path: Path) -> ChainEnd:
    try:
        with path.open("rb") as file:
            return walk_chain(file)
    except FileNotFoundError:
        return ChainEnd()


def _sink(path: Path | None, lines: bytes) -> None:
    if path is None:
        sys.stdout.buffer.write(lines)
        sys.stdout.buffer.flush()
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    size = os.fstat(descriptor).st_size
    try:
        with os.fdopen(os.dup(descriptor), "wb") as out:
            out.write(lines)
        os.fsync(descriptor)
    except OSError:
        # Half a line in the middle would break the chain for good.
        os.ftruncate(descriptor, size)
        raise
    finally:
        os.close(descriptor)
