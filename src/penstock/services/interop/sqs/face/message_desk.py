"""The operations on messages: send, receive, delete, change of visibility, alone and in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import UNSET

from penstock.contracts.mailbox import (
    Ack,
    AckBatch,
    Acked,
    Extend,
    ExtendBatch,
    Extended,
    Received,
    Recv,
    Send,
    SendBatch,
    SendResult,
    Sent,
    SettleResult,
)
from penstock.contracts.mailbox_rules import NOT_LEASED, SETTLED_OR_UNKNOWN, STALE_RECEIPT
from penstock.kernel.errors import Conflict, Forbidden, NotFound, PenstockError
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
from penstock.services.interop.sqs.deliveries import DEAD_FROM, message_of, send_of, sent_answer
from penstock.services.interop.sqs.face.errands import Errand
from penstock.services.interop.sqs.handles import ReceiptHandle, foreign_handle, write_handle
from penstock.services.interop.sqs.names import PathQueue, read_queue_url
from penstock.services.interop.sqs.refusals import SqsRefusal, invalid

if TYPE_CHECKING:
    from penstock.contracts.mailbox import Envelope
    from penstock.kernel.inventory import Inventory
    from penstock.services.interop.sqs.face.asked import SqsAsked
    from penstock.services.interop.sqs.face.registry import LiveQueue, QueueRegistry

T = TypeVar("T")
Answer = dict[str, Any]


class MessageDesk:
    """Turns what is asked of messages into errands to the mailbox, and says what came of them.

    Each operation returns an errand, or its answer where the mailbox need not be asked.
    """

    def __init__(self, inventory: Inventory, registry: QueueRegistry, *, account: str) -> None:
        """Take where queues are found."""
        self._registry = registry
        self._account = account
        metrics = inventory.metrics
        self._sent = metrics.counter("sqs_messages_sent_total", "Messages sent through the SQS face.")
        self._received = metrics.counter("sqs_messages_received_total", "Messages received through the SQS face.")
        self._deleted = metrics.counter("sqs_messages_deleted_total", "Messages deleted through the SQS face.")

    def _queue(self, asked: SqsAsked) -> LiveQueue:
        url = asked.fields.get("QueueUrl")
        if url is None and asked.path is not None:
            return self._registry.find(asked.path, asked.region, self._account)
        return self._registry.find_url(url or "", asked.region, self._account)

    # --- send ---------------------------------------------------------------------------------------------------------

    def send(self, asked: SqsAsked) -> Errand:
        """SendMessage."""
        queue = self._queue(asked)
        checked = check_send(asked.fields, queue.rules)
        request = send_of(queue.sending, checked, asked.key.id, asked.trace)

        def conclude(outcome: Sent | PenstockError) -> Answer:
            sent = _unless_refused(outcome)
            self._sent.value += 1
            return sent_answer(checked, request.payload, sent.msg_id, fifo=queue.fifo)

        return Errand(asked.key, "send", queue.topic, asked.corr_id, request, conclude)

    def send_batch(self, asked: SqsAsked) -> Errand | Answer:
        """SendMessageBatch; a bad entry fails alone."""
        queue = self._queue(asked)
        items = check_send_batch(asked.fields["Entries"], queue.rules)
        good = [item for item in items if isinstance(item.value, CheckedSend)]
        sends = tuple(send_of(queue.sending, item.value, asked.key.id, asked.trace) for item in good)
        if not good:
            return _batch(items, {})

        def conclude(outcome: Sequence[SendResult] | PenstockError) -> Answer:
            results = _unless_refused(outcome)
            outcomes = {
                item.id: self._sent_one(item.value, send, result, queue)
                for item, send, result in zip(good, sends, results, strict=True)
            }
            return _batch(items, outcomes)

        return Errand(asked.key, "send", queue.topic, asked.corr_id, SendBatch(sends), conclude)

    def _sent_one(self, checked: CheckedSend, send: Send, result: SendResult, queue: LiveQueue) -> Answer | SqsRefusal:
        if isinstance(result.msg_id, str):
            self._sent.value += 1
            return sent_answer(checked, send.payload, result.msg_id, fifo=queue.fifo)
        return _refused_code(str(result.code), "" if result.detail is UNSET else str(result.detail))

    # --- receive ------------------------------------------------------------------------------------------------------

    def receive(self, asked: SqsAsked) -> Errand:
        """ReceiveMessage."""
        queue = self._queue(asked)
        checked = check_receive(asked.fields)
        wait_s = queue.wait_s if checked.wait_s is None else checked.wait_s
        visibility_ms = None if checked.visibility_s is None else checked.visibility_s * 1000
        wanted = Recv(queue.topic, checked.messages_max, visibility_ms, wait_s * 1000)

        def conclude(outcome: Received | PenstockError) -> Answer:
            messages = _unless_refused(outcome).messages
            self._received.value += len(messages)
            return {"Messages": [self._shown(each, checked, queue) for each in messages]} if messages else {}

        return Errand(asked.key, "recv", queue.topic, asked.corr_id, wanted, conclude, wait_s)

    def _shown(self, envelope: Envelope, checked: CheckedReceive, queue: LiveQueue) -> Answer:
        source = envelope.attrs.get(DEAD_FROM)
        came_from = None if source is None else self._registry.book.by_topic(source)
        arn = "" if came_from is None else came_from.record.queue.arn(self._account)
        return message_of(envelope, checked, fifo=queue.fifo, source_arn=arn)

    # --- delete -------------------------------------------------------------------------------------------------------

    def delete(self, asked: SqsAsked) -> Errand:
        """DeleteMessage; a message that is gone already is a success."""
        queue = self._queue(asked)
        handle = _of_queue(check_delete(asked.fields), queue)

        def conclude(outcome: Acked | PenstockError) -> Answer:
            if isinstance(outcome, Conflict | NotFound | Forbidden):
                refusal = _delete_refusal(outcome.code, _reason(outcome), handle)
                if refusal is not None:
                    raise refusal
            else:
                _unless_refused(outcome)
            self._deleted.value += 1
            return {}

        return Errand(asked.key, "ack", queue.topic, asked.corr_id, Ack(handle.msg_id, handle.receipt), conclude)

    def delete_batch(self, asked: SqsAsked) -> Errand | Answer:
        """DeleteMessageBatch."""
        queue = self._queue(asked)
        entries = check_entries(asked.fields["Entries"], "DeleteMessageBatchRequestEntry")
        items = each_entry(entries, lambda entry: _of_queue(check_delete(entry), queue))
        good = [item for item in items if isinstance(item.value, ReceiptHandle)]
        if not good:
            return _batch(items, {})

        def conclude(outcome: Sequence[SettleResult] | PenstockError) -> Answer:
            results = _unless_refused(outcome)
            refusals = [_deleted(result, item.value) for item, result in zip(good, results, strict=True)]
            self._deleted.value += sum(refusal is None for refusal in refusals)
            return _batch(items, {item.id: refusal or {} for item, refusal in zip(good, refusals, strict=True)})

        acks = AckBatch(tuple(Ack(item.value.msg_id, item.value.receipt) for item in good))
        return Errand(asked.key, "ack", queue.topic, asked.corr_id, acks, conclude)

    # --- visibility ---------------------------------------------------------------------------------------------------

    def change_visibility(self, asked: SqsAsked) -> Errand:
        """ChangeMessageVisibility; 0 makes the message visible at once."""
        queue = self._queue(asked)
        checked = check_visibility(asked.fields)
        handle = _of_queue(checked.handle, queue)

        def conclude(outcome: Extended | PenstockError) -> Answer:
            if isinstance(outcome, Conflict | NotFound | Forbidden):
                refusal = _visibility_refusal(outcome.code, _reason(outcome), handle, queue)
                if refusal is not None:
                    raise refusal
            else:
                _unless_refused(outcome)
            return {}

        return Errand(asked.key, "recv", queue.topic, asked.corr_id, _extend(checked), conclude)

    def change_visibility_batch(self, asked: SqsAsked) -> Errand | Answer:
        """ChangeMessageVisibilityBatch."""
        queue = self._queue(asked)
        entries = check_entries(asked.fields["Entries"], "ChangeMessageVisibilityBatchRequestEntry")
        items = each_entry(entries, lambda entry: _visibility_of_queue(entry, queue))
        good = [item for item in items if isinstance(item.value, CheckedVisibility)]
        if not good:
            return _batch(items, {})

        def conclude(outcome: Sequence[SettleResult] | PenstockError) -> Answer:
            results = _unless_refused(outcome)
            outcomes = {i.id: _changed(r, i.value.handle, queue) for i, r in zip(good, results, strict=True)}
            return _batch(items, outcomes)

        extends = ExtendBatch(tuple(_extend(item.value) for item in good))
        return Errand(asked.key, "recv", queue.topic, asked.corr_id, extends, conclude)


def _unless_refused(outcome: T | PenstockError) -> T:
    """Return what the mailbox answered; raise what it refused with."""
    if isinstance(outcome, PenstockError):
        raise outcome
    return outcome


def _reason(error: PenstockError) -> str:
    return str(error.facts.get("reason", ""))


def queue_path(asked: SqsAsked) -> PathQueue:
    """Return which queue is meant: QueueUrl, or in the query protocol the path."""
    url = asked.fields.get("QueueUrl")
    if url is None and asked.path is not None:
        return asked.path
    return read_queue_url(url or "")


def _of_queue(handle: ReceiptHandle, queue: LiveQueue) -> ReceiptHandle:
    """Refuse a handle of another queue."""
    if handle.topic != queue.topic:
        raise foreign_handle(write_handle(handle))
    return handle


def _visibility_of_queue(entry: Any, queue: LiveQueue) -> CheckedVisibility:  # noqa: ANN401 - an entry's fields
    checked = check_visibility(entry)
    _of_queue(checked.handle, queue)
    return checked


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
    return {"Successful": done, "Failed": failed} if failed else {"Successful": done}


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


def _changed(result: SettleResult, handle: ReceiptHandle, queue: LiveQueue) -> Answer | SqsRefusal:
    if result.code is UNSET:
        return {}
    return _visibility_refusal(_text(result.code), _text(result.reason), handle, queue) or {}


def _visibility_refusal(code: str, reason: str, handle: ReceiptHandle, queue: LiveQueue) -> SqsRefusal | None:
    """Say why a lease was not changed; None where AWS says nothing.

    That is a message whose lease is over and that nobody has received since: it stays visible. A FIFO queue's handle
    has expired then.
    """
    if code in _GONE:
        return foreign_handle(write_handle(handle))
    if code == Conflict.code and reason == NOT_LEASED:
        return None
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
