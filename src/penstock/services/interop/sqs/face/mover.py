"""The agent that carries moves out: it takes messages from a dead-letter queue and sends them where they belong.

One message is moved in three steps: it is leased, sent to its destination under an `idem_key` made of its own msg_id,
and acknowledged at the source. A crash after the send leaves it leased; when the lease ends it is taken again, the
second send is found to be a repeat, and the source lets it go. So exactly one survives. A queue moves at most its
task's rate, and never more than 500 messages a second. How far a move is, is written about once a second, and at its
end.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.contracts.mailbox import Ack, AckBatch, Envelope, MessageOrigin, Recv, Send, SendBatch
from penstock.kernel.deadline import timeout
from penstock.kernel.errors import PenstockError
from penstock.kernel.log import Log
from penstock.services.interop.sqs.deliveries import DEAD_ATTRS, DEAD_FROM
from penstock.services.interop.sqs.face.move_desk import with_move
from penstock.services.interop.sqs.face.registry import QueueBook
from penstock.services.interop.sqs.names import read_arn
from penstock.services.interop.sqs.queues import TOPICS, MoveRecord, QueueRecord
from penstock.services.interop.sqs.refusals import SqsRefusal, no_queue

if TYPE_CHECKING:
    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory
    from penstock.services.interop.sqs.face.backing import SqsBacking
    from penstock.services.interop.sqs.face.registry import LiveQueue, QueueRegistry

CALL_S: Final = 5.0
RATE_MAX: Final = 500
TICK_S: Final = 0.1
_LEASE_MS: Final = 60_000
_IDLE_S: Final = 30.0
_BATCH: Final = RATE_MAX // 10


class MessageMover:
    """Works on every running move, a little each tick."""

    def __init__(self, inventory: Inventory, backing: SqsBacking, registry: QueueRegistry) -> None:
        """Take the queues and the way to their messages."""
        self._backing = backing
        self._registry = registry
        self._log = Log(inventory.service)
        self._wake = asyncio.Event()
        registry.on_moves = self._wake.set
        self._moved = inventory.metrics.counter("sqs_messages_moved_total", "Messages moved by move tasks.")
        # What each running move has moved since it was last written, and how many it may move now.
        self._unwritten: dict[str, int] = {}
        self._allowed: dict[str, float] = {}

    async def run(self, child: Child) -> None:
        """Move until the service drains; without a running move it sleeps until there is one."""
        ticks = 0
        while not child.shutdown.draining:
            running = self._running()
            for live, move in running:
                await self._step(live, move, write=ticks % 10 == 0)
            ticks += 1
            if running:
                await child.shutdown.sleep(TICK_S)
            else:
                await self._rest(child)

    async def _rest(self, child: Child) -> None:
        self._wake.clear()
        forget = child.shutdown.on_drain(self._wake.set)
        try:
            async with timeout("sqs_mover", _IDLE_S):
                await self._wake.wait()
        except PenstockError:
            return
        finally:
            forget()

    def _running(self) -> list[tuple[LiveQueue, MoveRecord]]:
        if not self._registry.loaded:
            return []
        found = ((live, move) for live in self._registry.book for move in live.record.moves[:1])
        return [(live, move) for live, move in found if move.status == "RUNNING"]

    async def _step(self, live: LiveQueue, move: MoveRecord, *, write: bool) -> None:
        rate = min(move.rate or RATE_MAX, RATE_MAX)
        allowed = min(float(rate), self._allowed.get(move.id, 1.0) + rate * TICK_S)
        try:
            count = await self._move(live, move, min(_BATCH, int(allowed)))
        except PenstockError as error:
            # The mailbox does not answer, or is full: the next tick tries again.
            self._log.warning("sqs_mover.waits", reason=error.code, queue=live.record.queue.name)
            return
        except SqsRefusal as refusal:
            await self._end(live, move, "FAILED", refusal.message)
            return
        self._allowed[move.id] = allowed - count
        self._unwritten[move.id] = self._unwritten.get(move.id, 0) + count
        if int(allowed) and not count:
            await self._end(live, move, "COMPLETED")
        elif write and self._unwritten[move.id]:
            await self._write(live, move)

    async def _move(self, live: LiveQueue, move: MoveRecord, count: int) -> int:
        if not count:
            return 0
        mailbox = self._backing.mailbox
        recv = await self._backing.own_call("recv", TOPICS)
        async with timeout("sqs_mover", CALL_S):
            got = await mailbox.recv(Recv(live.topic, max_messages=count, visibility_ms=_LEASE_MS), recv)
        if not got.messages:
            return 0
        sends = tuple(self._resend(each, live, move) for each in got.messages)
        admin = await self._backing.own_call("send,admin", TOPICS)
        ack = await self._backing.own_call("ack", TOPICS)
        async with timeout("sqs_mover", CALL_S):
            sent = await mailbox.send_batch(SendBatch(sends), admin)
        done = [each for each, one in zip(got.messages, sent.results, strict=True) if isinstance(one.msg_id, str)]
        if done:
            async with timeout("sqs_mover", CALL_S):
                await mailbox.ack_batch(AckBatch(tuple(Ack(each.msg_id, each.receipt) for each in done)), ack)
        self._moved.value += len(done)
        return len(done)

    def _resend(self, envelope: Envelope, live: LiveQueue, move: MoveRecord) -> Send:
        """Make the message that takes this one's place; its id and time of the first send go with it."""
        target = self._target(envelope, live, move)
        attrs = {name: value for name, value in envelope.attrs.items() if not name.startswith(DEAD_ATTRS)}
        return Send(
            target.topic,
            envelope.payload,
            idem_key=f"move:{envelope.msg_id}",
            attrs=attrs,
            key=envelope.key,
            group=envelope.group,
            meta=envelope.meta,
            origin=MessageOrigin(envelope.origin_id or envelope.msg_id, envelope.origin_ts or envelope.ts),
        )

    def _target(self, envelope: Envelope, live: LiveQueue, move: MoveRecord) -> LiveQueue:
        book = self._registry.book
        if move.destination:
            target = book.get(read_arn(move.destination))
        else:
            target = book.by_topic(envelope.attrs.get(DEAD_FROM, "")) or _only_source(book, live)
        if target is None:
            raise SqsRefusal("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue")
        return target

    async def _write(self, live: LiveQueue, move: MoveRecord, **changes: object) -> None:
        moved = self._unwritten.pop(move.id, 0)
        queue = live.record.queue

        def decide(book: QueueBook) -> QueueRecord:
            known = book.get(queue)
            now = None if known is None else next((each for each in known.record.moves if each.id == move.id), None)
            if known is None or now is None:
                raise no_queue()
            if now.status != "RUNNING":
                changes.clear()
            return with_move(known.record, msgspec.structs.replace(now, moved=now.moved + moved, **changes))

        try:
            await self._registry.change(queue, decide)
        except PenstockError as error:
            self._unwritten[move.id] = moved
            self._log.warning("sqs_mover.unwritten", reason=error.code, queue=queue.name)
        except SqsRefusal:
            # The queue was deleted meanwhile, and its moves with it.
            return

    async def _end(self, live: LiveQueue, move: MoveRecord, status: str, failure: str = "") -> None:
        self._allowed.pop(move.id, None)
        await self._write(live, move, status=status, failure=failure)


def _only_source(book: QueueBook, live: LiveQueue) -> LiveQueue | None:
    """Return the queue whose dead letters come here, where there is just one."""
    found = [each for each in book if each.record.dead_letter_queue() == live.record.queue]
    return found[0] if len(found) == 1 else None
