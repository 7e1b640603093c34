"""The DLQ Reprocessor: sends dead letters back as new messages, in slices and at a bounded rate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from penstock.contracts import mailbox as m
from penstock.kernel.backoff import Doubling
from penstock.kernel.channel import Channel
from penstock.kernel.child import Child
from penstock.kernel.errors import Busy, Closed, PenstockError
from penstock.kernel.log import Log
from penstock.net.promise import answer_of
from penstock.services.mailbox.codec import VALUES
from penstock.services.mailbox.engines.engine import DeadPage
from penstock.services.mailbox.jobs import (
    BatchPromise,
    RequestMeta,
    SendBatchJob,
    SendItem,
)
from penstock.services.mailbox.rows import DeadRow, MessageRow

if TYPE_CHECKING:
    from penstock.services.mailbox.dispatch import Dispatcher
    from penstock.services.mailbox.state import MailboxParts

_log: Final = Log("svc-mailbox")
SLICE: Final = 100
_REFUSED: Final = Doubling(0.05, 0.1, cap_s=2.0)
# A slice that was refused so often in a row is skipped.
_ATTEMPTS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Redrive:
    """Which dead letters to send back, and where to; None is where each came from."""

    page: DeadPage
    to: str | None
    corr_id: str


class Reprocessor:
    """Works off the `reproc` channel."""

    def __init__(self, parts: MailboxParts, reproc: Channel[Redrive]) -> None:
        """Send through the same workers as everybody else."""
        self.reproc = reproc
        self._state = parts.state
        self._guard = parts.state.redrive_guard
        self._reader = parts.reader
        self._dispatcher = parts.dispatcher
        self._log = Log(parts.inventory.service)
        self._moved = parts.inventory.metrics.counter("dlq_redriven_total", "Dead letters sent back.")
        text = "Slices of dead letters that a shard refused, tried again."
        self._retries = parts.inventory.metrics.counter("backoff_retries_total", text, op="reprocess", result="success")
        # Redrives taken on and not finished.
        self.open = 0

    def submit(self, redrive: Redrive) -> None:
        """Take a redrive on, or say Busy."""
        try:
            self.reproc.try_send(redrive)
        except Busy as error:
            self._log.warning("reproc_queue_full", corr_id=redrive.corr_id)
            raise Busy("Too many redrives are waiting.", queue="reproc", reason="reproc_queue_full") from error
        self.open += 1

    async def run(self, child: Child) -> None:
        """Work until the service drains; what is left stays a dead letter."""
        while not child.shutdown.draining:
            try:
                redrive = await self.reproc.recv()
            except Closed:
                return
            try:
                await self._redrive(redrive, child)
            except PenstockError as error:
                self._log.warning("redrive.failed", detail=error.detail, corr_id=redrive.corr_id)
            finally:
                self.open -= 1

    async def _redrive(self, redrive: Redrive, child: Child) -> None:
        left, page = redrive.page.limit, redrive.page
        attempt = 0
        while left and not child.shutdown.draining:
            mark = self._guard.mark()
            found = await self._reader.ask(self._reader.reads.dead, replace(page, limit=min(left, SLICE)))
            if not found:
                return
            taken = self._guard.take([row.seq for row, _ in found], mark)
            if not taken:
                # Others are being moved just now: read again what is left.
                await child.shutdown.sleep(_REFUSED.delay(1, self._state.rng))
                continue
            try:
                moved, refused = await self._send_back([each for each in found if each[0].seq in taken], redrive)
            finally:
                self._guard.ended(taken)
            self._moved.value += moved
            left -= moved
            attempt = attempt + 1 if refused else 0
            if attempt:
                self._retries.value += 1
            if not refused or attempt > _ATTEMPTS_MAX:
                # Otherwise the same ones are read again: what was moved is gone from there, what was refused is not.
                page = replace(page, after=found[-1][0].seq)
            # Also after the last slice: many small redrives together keep to the rate too.
            pause_s = (
                _REFUSED.delay(attempt, self._state.rng) if attempt else len(found) / self._state.options.reprocess_rps
            )
            await child.shutdown.sleep(pause_s)

    async def _send_back(self, found: list[tuple[MessageRow, DeadRow]], redrive: Redrive) -> tuple[int, int]:
        """Replace dead letters by new messages, each in one commit; returns how many were moved, and refused."""
        items = [self._item(row, dead, redrive) for row, dead in found]
        return await send_back(
            self._dispatcher, [item for item in items if item is not None], RequestMeta(redrive.corr_id)
        )

    def _item(self, row: MessageRow, dead: DeadRow, redrive: Redrive) -> SendItem | None:
        topic = self._state.ledger.by_id.get(row.topic)
        name = redrive.to or (None if topic is None else topic.name)
        if name is None or row.damaged:
            return None  # its bytes are damaged: it stays where it can be looked at
        origin = m.MessageOrigin(*(row.origin or (row.msg_id, row.ts)))
        send = m.Send(
            name, row.payload, attrs=row.attrs, key=row.key, idem_key=row.idem_key, delay_ms=0, group=row.group,
            meta=row.meta, origin=origin,
        )  # fmt: skip
        item = SendItem(send, self._dispatcher.slot_for(name, row.key), row.payload_hash, RequestMeta(row.corr_id))
        item.redrive = (row, dead)
        return item


async def send_back(dispatcher: Dispatcher, items: list[SendItem], meta: RequestMeta) -> tuple[int, int]:
    """Store new messages in place of dead letters, each in one commit; returns how many were moved and refused."""
    groups: dict[int, list[SendItem]] = {}
    for item in items:
        groups.setdefault(dispatcher.worker_of(item.slot).index, []).append(item)
    results: list[m.SendResult] = []
    for index, group in groups.items():
        bulk = BatchPromise(len(group), VALUES)
        for place, item in enumerate(group):
            item.bulk, item.place = bulk, place
        try:
            dispatcher.workers[index].offer(SendBatchJob([*group], bulk, meta))
            results += await answer_of(bulk)
        except PenstockError as error:
            _log.info("redrive.refused", detail=error.detail, corr_id=meta.corr_id)
    moved = sum(isinstance(result.msg_id, str) for result in results)
    return moved, len(items) - moved
