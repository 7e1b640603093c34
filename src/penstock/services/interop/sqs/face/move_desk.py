"""The operations on moves of messages out of a dead-letter queue. The `mover` carries them out."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.contracts.mailbox import GetTopic
from penstock.kernel.deadline import timeout
from penstock.kernel.errors import NotFound
from penstock.services.interop.sqs.checks import check_move_page, check_move_rate
from penstock.services.interop.sqs.face.backing import denied
from penstock.services.interop.sqs.face.registry import QueueBook, edited
from penstock.services.interop.sqs.handles import MoveTask, read_task, write_task
from penstock.services.interop.sqs.names import read_arn
from penstock.services.interop.sqs.queues import MoveRecord, QueueRecord
from penstock.services.interop.sqs.refusals import SqsRefusal, invalid, no_queue

if TYPE_CHECKING:
    from penstock.kernel.inventory import Inventory
    from penstock.services.interop.sqs.face.asked import SqsAsked
    from penstock.services.interop.sqs.face.backing import SqsBacking
    from penstock.services.interop.sqs.face.registry import LiveQueue, QueueRegistry

CALL_S: Final = 5.0
# So many moves of a queue are remembered, as AWS shows at most ten.
MOVES_KEPT: Final = 10
_RUNNING: Final = (
    "There is already a task running. Only one active task is allowed for a source queue arn at a given time."
)
Answer = dict[str, Any]


class MoveDesk:
    """Starts, cancels and lists moves. A move is part of its source queue's record, so it survives a restart."""

    def __init__(self, inventory: Inventory, backing: SqsBacking, registry: QueueRegistry, *, account: str) -> None:
        """Take the account that all queues belong to."""
        self._backing = backing
        self._registry = registry
        self._account = account
        self._wall: Callable[[], float] = inventory.clock.wall

    def _source(self, asked: SqsAsked, arn: str) -> LiveQueue:
        found = self._registry.book.get(read_arn(arn))
        if found is None:
            raise _no_resource("SourceArn")
        if not asked.key.allows("admin", found.topic):
            raise denied(asked.key.id, "admin", found.topic)
        return found

    async def start(self, asked: SqsAsked) -> Answer:
        """StartMessageMoveTask."""
        rate = check_move_rate(asked.fields)
        source = self._source(asked, asked.fields["SourceArn"])
        self._check_destination(asked, source, asked.fields.get("DestinationArn", ""))
        move = MoveRecord(
            id=os.urandom(16).hex(),
            started_ms=int(self._wall() * 1000),
            destination=asked.fields.get("DestinationArn", ""),
            rate=rate or 0,
            to_move=await self._waiting(asked, source),
        )

        def decide(book: QueueBook) -> QueueRecord:
            record = _record(book, source)
            if any(each.status in ("RUNNING", "CANCELLING") for each in record.moves):
                raise invalid(_RUNNING)
            return edited(record, moves=(move, *record.moves)[:MOVES_KEPT])

        await self._registry.change(source.record.queue, decide, asked.corr_id)
        return {"TaskHandle": write_task(MoveTask(move.id, source.record.queue.arn(self._account)))}

    def _check_destination(self, asked: SqsAsked, source: LiveQueue, destination: str) -> None:
        feeds = any(live.record.dead_letter_queue() == source.record.queue for live in self._registry.book)
        if not feeds:
            raise invalid("Source queue must be configured as a Dead Letter Queue.")
        if not destination:
            return
        target = self._registry.book.get(read_arn(destination))
        if target is None:
            raise _no_resource("DestinationArn")
        if target.fifo != source.fifo:
            raise invalid("Source queue type and destination queue type must be the same.")
        if target.record.queue == source.record.queue:
            raise invalid("Source queue and destination queue must not be the same.")
        if not asked.key.allows("admin", target.topic):
            raise denied(asked.key.id, "admin", target.topic)

    async def _waiting(self, asked: SqsAsked, source: LiveQueue) -> int:
        call = await self._backing.call(asked.key, "recv", source.topic, asked.corr_id)
        try:
            async with timeout("sqs_call", CALL_S):
                return (await self._backing.mailbox.topic(GetTopic(source.topic), call)).ready
        except NotFound:
            return 0

    async def cancel(self, asked: SqsAsked) -> Answer:
        """CancelMessageMoveTask; what was moved stays moved."""
        task = read_task(asked.fields["TaskHandle"])
        source = self._source(asked, task.sourceArn)

        def decide(book: QueueBook) -> QueueRecord:
            record = _record(book, source)
            move = next((each for each in record.moves if each.id == task.taskId), None)
            if move is None:
                raise SqsRefusal("ResourceNotFoundException", "Task does not exist.")
            if move.status != "RUNNING":
                raise invalid("Only active tasks can be cancelled.")
            return with_move(record, msgspec.structs.replace(move, status="CANCELLED"))

        live = await self._registry.change(source.record.queue, decide, asked.corr_id)
        assert live is not None
        moved = next(each.moved for each in live.record.moves if each.id == task.taskId)
        return {"ApproximateNumberOfMessagesMoved": moved}

    async def list(self, asked: SqsAsked) -> Answer:
        """ListMessageMoveTasks, newest first."""
        count = check_move_page(asked.fields)
        source = self._source(asked, asked.fields["SourceArn"])
        arn = source.record.queue.arn(self._account)
        return {"Results": [_shown(move, arn) for move in source.record.moves[:count]]}


def _no_resource(parameter: str) -> SqsRefusal:
    said = f"The resource that you specified for the {parameter} parameter doesn't exist."
    return SqsRefusal("ResourceNotFoundException", said)


def _record(book: QueueBook, source: LiveQueue) -> QueueRecord:
    known = book.get(source.record.queue)
    if known is None:
        raise no_queue()
    return known.record


def with_move(record: QueueRecord, move: MoveRecord) -> QueueRecord:
    """Put a move in the place of its earlier state."""
    return edited(record, moves=tuple(move if each.id == move.id else each for each in record.moves))


def _shown(move: MoveRecord, source_arn: str) -> Answer:
    running = move.status == "RUNNING"
    return {
        "TaskHandle": write_task(MoveTask(move.id, source_arn)) if running else None,
        "Status": move.status,
        "SourceArn": source_arn,
        "DestinationArn": move.destination or None,
        "MaxNumberOfMessagesPerSecond": move.rate or None,
        "ApproximateNumberOfMessagesMoved": move.moved,
        "ApproximateNumberOfMessagesToMove": move.to_move,
        "FailureReason": move.failure or None,
        "StartedTimestamp": move.started_ms,
    }
