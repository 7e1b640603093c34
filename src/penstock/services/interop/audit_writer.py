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
from penstock.kernel.errors import Closed, PenstockError, Timeout
from penstock.kernel.log import Log
from penstock.services.interop.audit import AuditBook
from penstock.wire.audit_chain import ChainEnd, walk_chain

if TYPE_CHECKING:
    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory
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
            await self._write(self._book.write(taken, acts.dropped, self._records.now_ms()))
            await self._sign(draining=False)
        await self._sign(draining=True)
        await self.close()

    async def _begin(self) -> None:
        """Go on where the file's chain ended; a broken one is refused, and the service does not start on it."""
        path = self._options.audit_path
        if self._options.audit_sink == "file" and path is not None:
            self._book = AuditBook(await self._pool.run("audit_sink", WRITE_S, _walk, path))

    async def _write(self, lines: bytes) -> None:
        self.recent.extend(lines.splitlines(keepends=True))
        if self._options.audit_sink == "memory":
            self._emitted.value += lines.count(b"\n")
            return
        try:
            await self._pool.run("audit_sink", WRITE_S, _sink, self._options.audit_path, lines)
        except (OSError, Timeout) as exc:
            self._failures.value += 1
            self._log.error("audit.lost", reason=type(exc).__name__, records=lines.count(b"\n"))
            return
        self._emitted.value += lines.count(b"\n")

    async def _sign(self, *, draining: bool) -> None:
        # A chain that begins anew with each start is not worth a signature.
        lasting = self._attest is not None and self._options.audit_sink == "file"
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
        await self._write(self._book.attested(word, self._records.now_ms()))

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
    try:
        os.write(descriptor, lines)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
