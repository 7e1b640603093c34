"""The audit's one writer: lines are chained where things happen and written in groups, off the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.kernel.channel import Full
from penstock.kernel.deadline import timeout
from penstock.kernel.errors import Closed, DownstreamUnavailable
from penstock.services.passport.audit import Chain, Walked

if TYPE_CHECKING:
    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory
    from penstock.services.passport.store import Store

GATHER_S: Final = 0.05
WRITE_S: Final = 5.0


class AuditTrail:
    """Chains what happened. A full channel refuses the act itself: what cannot be recorded is not done."""

    def __init__(self, inventory: Inventory, store: Store) -> None:
        """Declare the channel to the writer."""
        self._chain = Chain()
        self._store = store
        # Lines taken from the channel and not written yet; bounded, because a failing write leaves the channel full.
        self._owed: list[bytes] = []
        self._wall = inventory.clock.wall
        self.lines = inventory.channel(
            "audit",
            bytes,
            capacity=8192,
            full=Full.REFUSE,
            producers="issuance, revocation_worker",
            consumers="audit_writer",
        )
        self._pool = inventory.pool("passport_audit", threads=1, capacity=8)
        inventory.timeout("passport_audit", WRITE_S, "503; the writer is restarted")
        self._written = inventory.metrics.counter("audit_records_total", "Records written to the audit.")

    @property
    def head(self) -> str:
        """Return the hash of the newest line."""
        return self._chain.head

    def begin(self, walked: Walked) -> None:
        """Go on where the last run ended."""
        self._chain = Chain(walked.records, walked.head)

    def note(self, action: str, **facts: Any) -> None:  # noqa: ANN401 - whatever is worth recording
        """Record something that may be lost with the last moments of a crash: an issue."""
        if self.lines.depth >= self.lines.capacity:
            # Refused before the chain moves on: a line that is not written must not be named by the next.
            self.lines.try_send(b"")
        self.lines.try_send(self._chain.add(action, int(self._wall() * 1000), facts))

    async def note_durably(self, action: str, **facts: Any) -> None:  # noqa: ANN401 - whatever is worth recording
        """Record something and wait for the disk: a revocation or rotation."""
        self.note(action, **facts)
        await self.flush(sync=True)

    async def flush(self, *, sync: bool) -> None:
        """Write what waits. The one thread of the pool keeps the order of the lines."""
        self._owed += [await self.lines.recv() for _ in range(self.lines.depth)]
        owed, self._owed = self._owed, []
        if not owed:
            return
        try:
            await self._pool.run("passport_audit", WRITE_S, self._append, b"".join(owed), sync)
        except OSError as exc:
            # The chain goes through them: they are written before anything else is.
            self._owed = [*owed, *self._owed]
            raise DownstreamUnavailable("The audit cannot be written.", reason="audit") from exc
        self._written.value += len(owed)

    def _append(self, lines: bytes, sync: bool) -> None:  # noqa: FBT001 - called by position on the pool
        self._store.append_audit(lines, sync=sync)

    async def run(self, child: Child) -> None:
        """Write in groups until the channel is closed and empty; a moment's wait makes one write of many lines."""
        while True:
            try:
                if not self._owed:
                    self._owed.append(await self.lines.recv())
            except Closed:
                return
            await child.shutdown.sleep(GATHER_S)
            async with timeout("passport_audit", WRITE_S * 2):
                await self.flush(sync=False)

    async def close(self) -> None:
        """Let the thread go."""
        await self._pool.close()
