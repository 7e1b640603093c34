"""Removes dead letters that the operator does not want any more, slice by slice, each written down before it goes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from penstock.kernel.log import Log
from penstock.services.mailbox.engine_reader import pause

if TYPE_CHECKING:
    from penstock.services.mailbox.engines.engine import DeadPage
    from penstock.services.mailbox.rows import MessageRow
    from penstock.services.mailbox.state import MailboxParts

_SLICE: Final = 1000
_BUSY_S: Final = 0.05
# A slice that others are moving so often in a row is left to them.
_ATTEMPTS_MAX: Final = 20


class DeadRemover:
    """Takes dead letters under the same guard as redrives and retention, so that none is moved and removed at once."""

    def __init__(self, parts: MailboxParts) -> None:
        self._state = parts.state
        self._guard = parts.state.redrive_guard
        self._reader = parts.reader
        self._writer = parts.writer
        self._log = Log(parts.inventory.service)
        text = "Dead letters removed by retention or the operator."
        self._removed = parts.inventory.metrics.counter("dlq_dropped_total", text, reason="operator")

    async def remove(self, page: DeadPage) -> int:
        """Remove what the page names; returns how many are gone."""
        removed, attempts = 0, 0
        while removed < page.limit and attempts < _ATTEMPTS_MAX:
            mark = self._guard.mark()
            limit = min(page.limit - removed, _SLICE)
            found = await self._reader.ask(self._reader.reads.dead, replace(page, limit=limit, payloads=False))
            if not found:
                break
            taken = self._guard.take([row.seq for row, _ in found], mark)
            attempts = 0 if taken else attempts + 1
            if not taken:
                # Others are being moved just now: read again what is left.
                await pause(_BUSY_S)
                continue
            try:
                await self._drop([row for row, _ in found if row.seq in taken])
            finally:
                self._guard.ended(taken)
            removed += len(taken)
        return removed

    async def _drop(self, rows: list[MessageRow]) -> None:
        topics, at = self._state.ledger.by_id, self._state.now().wall
        names = {row.topic: topics[row.topic].name if row.topic in topics else "" for row in rows}
        await self._reader.note(
            [
                {
                    "at_ms": at,
                    "action": "dlq.dropped",
                    "why": "operator",
                    "topic": names[row.topic],
                    "msg_id": row.msg_id,
                }
                for row in rows
            ]
        )
        self._removed.value += len(rows)
        self._log.warning("dlq.dropped", count=len(rows), why="operator")
        self._writer.batch.dead_gone += rows
        # The next look must not find them again.
        await self._writer.flushed()
