"""The operations on messages: send, receive, delete, change of visibility, alone and in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from penstock.contracts.mailbox import (
    Ack,
    AckBatch,
    Extend,
    ExtendBatch,
    Received,
    Recv,
    SendBatch,
    SendResult,
    SettleResult,
)
from penstock.contracts.mailbox_rules import NOT_LEASED, SETTLED_OR_UNKNOWN, STALE_RECEIPT
from penstock.kernel.deadline import timeout
from penstock.kernel.errors import Conflict, Forbidden, NotFound
from penstock.services.interop.sqs.checks import (
    BatchItem,
    CheckedReceive,
    CheckedSend,
    CheckedVisibility,
    batch_failure,
    check_delete,
    check_entries,
    check_receive,
    check_send,
    check_send_batch,
    check_visibility,
    each_entry,
)
from penstock.services.interop.sqs.deliveries import DEAD_FROM, SendingQueue, message_of, send_of, sent_answer
from penstock.services.interop.sqs.handles import ReceiptHandle, foreign_handle, write_handle
from penstock.services.interop.sqs.names import PathQueue, read_queue_url
from penstock.services.interop.sqs.refusals import SqsRefusal, invalid

if TYPE_CHECKING:
    from penstock.contracts.call import Call
    from penstock.contracts.mailbox import Envelope
    from penstock.kernel.inventory import Inventory
    from penstock.services.interop.sqs.face.asked import SqsAsked
    from penstock.services.interop.sqs.face.backing import SqsBacking
    from penstock.services.interop.sqs.face.registry import LiveQueue, QueueRegistry

CALL_S: Final = 5.0
_MARGIN_S: Final = 2.0
Answer = dict[str, Any]


class MessageDesk:
    """Does what is asked of messages."""

    def __init__(
        self, inventory: Inventory, backing: SqsBacking, registry: QueueRegistry, *, account: str, waiters_max: int
    ) -> None:
        """Declare how many receivers may wait."""
        self._backing = backing
        self._registry = registry
        self._account = account
        self._waiters = inventory.limiter("sqs_waiters", waiters_max)
        inventory.timeout("sqs_call", CALL_S, "503 ServiceUnavailable")
        # The tasks of receivers that wait, bounded by the limit on waiters, and whether the drain has ended them.
        self._parked: dict[asyncio.Task[Any], None] = {}
        self._ended = False
        metrics = inventory.metrics
        self._sent = metrics.counter("sqs_messages_sent_total", "Messages sent through the SQS face.")
        self._received = metrics.counter("sqs_messages_received_total", "Messages received through the SQS face.")
        self._deleted = metrics.counter("sqs_messages_deleted_total", "Messages deleted through the SQS face.")

    def _queue(self, asked: SqsAsked) -> LiveQueue:
        return self._registry.find(queue_path(asked), asked.region, self._account)

    # --- send ---------------------------------------------------------------------------------------------------------

    async def send(self, asked: SqsAsked) -> Answer:
        """SendMessage."""
        queue = self._queue(asked)
        checked = check_send(asked.fields, queue.rules)
        call = await self._backing.call(asked.key, "send", queue.topic, asked.corr_id)
        async with timeout("sqs_call", CALL_S):
            sent = await self._backing.mailbox.send(send_of(_sending(queue), checked, asked.key.id, asked.trace), call)
        self._sent.value += 1
        return sent_answer(checked, sent.msg_id, fifo=queue.fifo)

    async def send_batch(self, asked: SqsAsked) -> Answer:
        """SendMessageBatch; a bad entry fails alone."""
        queue = self._queue(asked)
        items = check_send_batch(asked.fields["Entries"], queue.rules)
        good = [item for item in items if isinstance(item.value, CheckedSend)]
        results: Sequence[SendResult] = ()
        if good:
            call = await self._backing.call(asked.key, "send", queue.topic, asked.corr_id)
            sends = tuple(send_of(_sending(queue), item.value, asked.key.id, asked.trace) for item in good)
            async with timeout("sqs_call", CALL_S):
                results = (await self._backing.mailbox.send_batch(SendBatch(sends), call)).results
        outcomes = {
            item.id: self._sent_one(item.value, result, queue) for item, result in zip(good, results, strict=True)
        }
        return _batch(items, outcomes)

    def _sent_one(self, checked: CheckedSend, result: SendResult, queue: LiveQueue) -> Answer | SqsRefusal:
        if isinstance(result.msg_id, str):
            self._sent.value += 1
            return sent_answer(checked, result.msg_id, fifo=queue.fifo)
        return _refused_code(str(result.code), "" if result.detail is UNSET else str(result.detail))

    # --- receive ------------------------------------------------------------------------------------------------------

    async def receive(self, asked: SqsAsked) -> Answer:
        """ReceiveMessage; a receiver that waits holds a place among the waiters and nothing else."""
        queue = self._queue(asked)
        checked = check_receive(asked.fields)
        call = await self._backing.call(asked.key, "recv", queue.topic, asked.corr_id)
        wait_s = queue.wait_s if checked.wait_s is None else checked.wait_s
        visibility_ms = None if checked.visibility_s is None else checked.visibility_s * 1000
        wanted = Recv(
            queue.topic, max_messages=checked.messages_max, visibility_ms=visibility_ms, wait_ms=wait_s * 1000
        )
        if wait_s:
            received = await self._wait(wanted, call, wait_s)
        else:
            async with timeout("sqs_call", _MARGIN_S):
                received = await self._backing.mailbox.recv(wanted, call)
        self._received.value += len(received.messages)
        return {"Messages": [self._shown(envelope, checked, queue) for envelope in received.messages]}

    async def _wait(self, wanted: Recv, call: Call, wait_s: int) -> Received:
        """Wait for the first message; the drain ends the wait, and the answer is then an empty one."""
        task = asyncio.current_task()
        assert task is not None
        self._waiters.acquire_or_busy()
        self._parked[task] = None
        try:
            async with timeout("sqs_call", wait_s + _MARGIN_S):
                return await self._backing.mailbox.recv(wanted, call)
        except asyncio.CancelledError:
            # lint: allow PK013 our own cancel and no other: a client that left cancels too
            if not self._ended or task.uncancel():
                raise
            return Received(())
        finally:
            del self._parked[task]
            self._waiters.release()

    def end_waits(self) -> None:
        """Answer every receiver that waits: the service drains, and must not be held for their sake."""
        self._ended = True
        for task in tuple(self._parked):
            task.cancel()

    def _shown(self, envelope: Envelope, checked: CheckedReceive, queue: LiveQueue) -> Answer:
        source = envelope.attrs.get(DEAD_FROM)
        came_from = None if source is None else self._registry.book.by_topic(source)
        arn = "" if came_from is None else came_from.record.queue.arn(self._account)
        return message_of(envelope, checked, fifo=queue.fifo, source_arn=arn)

    # --- delete -------------------------------------------------------------------------------------------------------

    async def delete(self, asked: SqsAsked) -> Answer:
        """DeleteMessage; a message that is gone already is a success."""
        queue = self._queue(asked)
        handle = _of_queue(check_delete(asked.fields), queue)
        call = await self._backing.call(asked.key, "ack", queue.topic, asked.corr_id)
        try:
            async with timeout("sqs_call", CALL_S):
                await self._backing.mailbox.ack(Ack(handle.msg_id, handle.receipt), call)
        except (Conflict, NotFound, Forbidden) as error:
            refusal = _delete_refusal(error.code, str(error.facts.get("reason", "")), handle)
            if refusal is not None:
                raise refusal from error
        self._deleted.value += 1
        return {}

    async def delete_batch(self, asked: SqsAsked) -> Answer:
        """DeleteMessageBatch."""
        queue = self._queue(asked)
        entries = check_entries(asked.fields["Entries"], "DeleteMessageBatchRequestEntry")
        items = each_entry(entries, lambda entry: _of_queue(check_delete(entry), queue))
        good = [item for item in items if isinstance(item.value, ReceiptHandle)]
        refusals: Sequence[SqsRefusal | None] = ()
        if good:
            call = await self._backing.call(asked.key, "ack", queue.topic, asked.corr_id)
            acks = AckBatch(tuple(Ack(item.value.msg_id, item.value.receipt) for item in good))
            async with timeout("sqs_call", CALL_S):
                results = (await self._backing.mailbox.ack_batch(acks, call)).results
            refusals = [_deleted(result, item.value) for item, result in zip(good, results, strict=True)]
        self._deleted.value += sum(refusal is None for refusal in refusals)
        return _batch(items, {item.id: refusal or {} for item, refusal in zip(good, refusals, strict=True)})

    # --- visibility ---------------------------------------------------------------------------------------------------

    async def change_visibility(self, asked: SqsAsked) -> Answer:
        """ChangeMessageVisibility; 0 makes the message visible at once."""
        queue = self._queue(asked)
        checked = check_visibility(asked.fields)
        handle = _of_queue(checked.handle, queue)
        call = await self._backing.call(asked.key, "recv", queue.topic, asked.corr_id)
        try:
            async with timeout("sqs_call", CALL_S):
                await self._backing.mailbox.extend(_extend(checked), call)
        except (Conflict, NotFound, Forbidden) as error:
            raise _visibility_refusal(error.code, str(error.facts.get("reason", "")), handle, queue) from error
        return {}

    async def change_visibility_batch(self, asked: SqsAsked) -> Answer:
        """ChangeMessageVisibilityBatch."""
        queue = self._queue(asked)
        entries = check_entries(asked.fields["Entries"], "ChangeMessageVisibilityBatchRequestEntry")

        def check(entry: Any) -> CheckedVisibility:  # noqa: ANN401 - an entry's fields
            checked = check_visibility(entry)
            _of_queue(checked.handle, queue)
            return checked

        items = each_entry(entries, check)
        good = [item for item in items if isinstance(item.value, CheckedVisibility)]
        results: Sequence[SettleResult] = ()
        if good:
            call = await self._backing.call(asked.key, "recv", queue.topic, asked.corr_id)
            extends = ExtendBatch(tuple(_extend(item.value) for item in good))
            async with timeout("sqs_call", CALL_S):
                results = (await self._backing.mailbox.extend_batch(extends, call)).results

        def outcome(checked: CheckedVisibility, result: SettleResult) -> Answer | SqsRefusal:
            if result.code is UNSET:
                return {}
            return _visibility_refusal(_text(result.code), _text(result.reason), checked.handle, queue)

        return _batch(items, {i.id: outcome(i.value, r) for i, r in zip(good, results, strict=True)})


def queue_path(asked: SqsAsked) -> PathQueue:
    """Return which queue is meant: QueueUrl, or in the query protocol the path."""
    url = asked.fields.get("QueueUrl")
    if url is None and asked.path is not None:
        return asked.path
    return read_queue_url(url or "")


def _sending(queue: LiveQueue) -> SendingQueue:
    return SendingQueue(queue.topic, queue.fifo, queue.by_group)


def _of_queue(handle: ReceiptHandle, queue: LiveQueue) -> ReceiptHandle:
    """Refuse a handle of another queue."""
    if handle.topic != queue.topic:
        raise foreign_handle(write_handle(handle))
    return handle


def _extend(checked: CheckedVisibility) -> Extend:
    return Extend(checked.handle.msg_id, checked.handle.receipt, checked.visibility_s * 1000)


def _text(value: object) -> str:
    return "" if value is UNSET else str(value)


def _batch(items: Iterable[BatchItem], outcomes: dict[str, Answer | SqsRefusal]) -> Answer:
    """Write the outcome of each entry under its id."""
    done: list[Answer] = []
    failed: list[Answer] = []
    for item in items:
        outcome = item.value if isinstance(item.value, SqsRefusal) else outcomes[item.id]
        if isinstance(outcome, SqsRefusal):
            failed.append(batch_failure(item.id, outcome))
        else:
            done.append({"Id": item.id, **outcome})
    return {"Successful": done, "Failed": failed}


# --- what the mailbox refuses, in the protocol's words ---------------------------------------------------------------

_CODES: Final[dict[str, Callable[[str], SqsRefusal]]] = {
    "busy": lambda detail: SqsRefusal("RequestThrottled", f"Rate exceeded: {detail}"),
    "rate_limited": lambda detail: SqsRefusal("RequestThrottled", f"Rate exceeded: {detail}"),
    "over_limit": invalid,
    "malformed": invalid,
    "conflict": invalid,
    "forbidden": lambda detail: SqsRefusal("AccessDeniedException", detail),
    "internal": lambda _detail: SqsRefusal("InternalFailure", "The request failed for an unknown reason."),
}


def _refused_code(code: str, detail: str) -> SqsRefusal:
    """Say the refusal of one item of a batch; what is nobody's fault is to be tried again."""
    known = _CODES.get(code)
    return SqsRefusal("ServiceUnavailable", detail or "Try again.") if known is None else known(detail)


_GONE: Final = (NotFound.code, Forbidden.code)


def _deleted(result: SettleResult, handle: ReceiptHandle) -> SqsRefusal | None:
    return None if result.ok is True else _delete_refusal(_text(result.code), _text(result.reason), handle)


def _delete_refusal(code: str, reason: str, handle: ReceiptHandle) -> SqsRefusal | None:
    """Say why a message was not deleted; None when it is gone anyway.

    Of a standard queue any handle deletes a message that lives, between two leases too: the mailbox waits for the end
    of the lease that is being written. What is left is a FIFO queue's lease that is over, and a message that is dying.
    """
    if code == Conflict.code and reason == STALE_RECEIPT:
        return _expired(handle)
    if code == Conflict.code and reason == SETTLED_OR_UNKNOWN:
        return None
    return foreign_handle(write_handle(handle)) if code in _GONE else _refused_code(code, "")


def _visibility_refusal(code: str, reason: str, handle: ReceiptHandle, queue: LiveQueue) -> SqsRefusal:
    if code in _GONE:
        return foreign_handle(write_handle(handle))
    if code == Conflict.code and reason == NOT_LEASED:
        return SqsRefusal("MessageNotInflight", "The message is not in flight.")
    if code == Conflict.code and reason == STALE_RECEIPT and queue.fifo:
        return _expired(handle)
    if code == Conflict.code:
        return invalid(
            f"Value {write_handle(handle)} for parameter ReceiptHandle is invalid. "
            "Reason: Message does not exist or is not available for visibility timeout change."
        )
    return _refused_code(code, "")


def _expired(handle: ReceiptHandle) -> SqsRefusal:
    return invalid(
        f"Value {write_handle(handle)} for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
    )
