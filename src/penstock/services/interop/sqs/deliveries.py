"""Messages between the mailbox and SQS: a send as the mailbox takes it, an envelope as a receiver reads it; pure."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from penstock.contracts.mailbox import Envelope, Send
from penstock.services.interop.sqs.checks import CheckedReceive, CheckedSend
from penstock.services.interop.sqs.digests import attributes_md5, body_md5
from penstock.services.interop.sqs.handles import ReceiptHandle, write_handle
from penstock.services.interop.sqs.messages import (
    MessageMeta,
    body_of,
    carried,
    effective_dedup_id,
    fifo_idem_key,
    pack_meta,
    select_attributes,
    sequence_number,
    shown,
    unpack_meta,
)

# What the mailbox says of a dead letter in another topic, and where it says which topic it came from.
DEAD_ATTRS: Final = "penstock.dead."
DEAD_FROM: Final = "penstock.dead.topic"
DEAD_ATTEMPTS: Final = "penstock.dead.attempts"
# What every receiver may ask for; beside the meta, so that these bytes do not count as the message's own.
SENDER: Final = "sqs.sender"
DEDUP_ID: Final = "sqs.dedup_id"
_SEQ_SHIFT: Final = 28
_LOW_BITS: Final = 62


class SendingQueue(NamedTuple):
    """What of a queue decides how a message is stored."""

    topic: str
    fifo: bool
    # Whether repeats count by group.
    by_group: bool


def seq_of(msg_id: str) -> int:
    """Return the place of a message that its id carries; ids of another making have none."""
    digits = msg_id.replace("-", "")
    try:
        bits = int(digits, 16)
    except ValueError:
        return 0
    high, low = bits >> 64 & 0xFFF, bits & (1 << _LOW_BITS) - 1
    return (high << _LOW_BITS | low) >> _SEQ_SHIFT


def send_of(queue: SendingQueue, checked: CheckedSend, sender: str, trace: str = "") -> Send:
    """Make the mailbox's message; `trace` is that of the request, for a message that says none itself."""
    meta = None
    if checked.attributes or checked.trace or trace:
        meta = pack_meta(MessageMeta(carried(checked.attributes), checked.trace or trace))
    payload, attrs = checked.body.encode("utf-8"), {SENDER: sender}
    if queue.fifo:
        attrs[DEDUP_ID] = effective_dedup_id(checked.body, checked.dedup_id)
        idem_key = fifo_idem_key(checked.body, checked.dedup_id, group=checked.group if queue.by_group else "")
        return Send(queue.topic, payload, idem_key=idem_key, attrs=attrs, key=checked.group, meta=meta)
    delay_ms = None if checked.delay_s is None else checked.delay_s * 1000
    return Send(queue.topic, payload, attrs=attrs, delay_ms=delay_ms, group=checked.group or None, meta=meta)


def sent_answer(checked: CheckedSend, payload: bytes, msg_id: str, *, fifo: bool) -> dict[str, Any]:
    """Answer a send with the digests by which the client checks it."""
    answer: dict[str, Any] = {"MessageId": msg_id, "MD5OfMessageBody": body_md5(payload)}
    if checked.attributes:
        answer["MD5OfMessageAttributes"] = attributes_md5(checked.attributes)
    if checked.trace:
        header = {"AWSTraceHeader": {"DataType": "String", "StringValue": checked.trace}}
        answer["MD5OfMessageSystemAttributes"] = attributes_md5(header)
    if fifo:
        answer["SequenceNumber"] = sequence_number(seq_of(msg_id))
    return answer


def message_of(envelope: Envelope, asked: CheckedReceive, *, fifo: bool, source_arn: str = "") -> dict[str, Any]:
    """Show a leased message as the receiver asked for it."""
    meta = unpack_meta(envelope.meta)
    body = body_of(envelope.payload)
    message: dict[str, Any] = {
        "MessageId": envelope.origin_id or envelope.msg_id,
        "ReceiptHandle": write_handle(ReceiptHandle(envelope.topic, envelope.msg_id, envelope.receipt)),
        "MD5OfBody": body_md5(body.data),
        "Body": body.text,
    }
    chosen = None
    if asked.attribute_names:
        chosen = select_attributes(asked.attribute_names, shown({**meta.attributes, **body.attributes}))
    if asked.system_names:
        known = _system(envelope, meta, fifo=fifo) | ({"DeadLetterQueueSourceArn": source_arn} if source_arn else {})
        attributes = {name: value for name, value in known.items() if name in asked.system_names}
        if attributes:
            message["Attributes"] = attributes
    if chosen:
        message["MessageAttributes"] = chosen
        message["MD5OfMessageAttributes"] = attributes_md5(chosen)
    return message


def _system(envelope: Envelope, meta: MessageMeta, *, fifo: bool) -> dict[str, str]:
    known = {
        "SenderId": envelope.attrs.get(SENDER, ""),
        "SentTimestamp": str(envelope.origin_ts or envelope.ts),
        # A dead letter counts on from where its own queue gave it up.
        "ApproximateReceiveCount": str(envelope.attempt + int(envelope.attrs.get(DEAD_ATTEMPTS, 0))),
        "ApproximateFirstReceiveTimestamp": str(envelope.first_at) if envelope.first_at else "",
        "MessageGroupId": (envelope.key if fifo else envelope.group) or "",
        "AWSTraceHeader": meta.trace,
    }
    if fifo:
        known["SequenceNumber"] = sequence_number(seq_of(envelope.msg_id))
        known["MessageDeduplicationId"] = envelope.attrs.get(DEDUP_ID, "")
    return {name: value for name, value in known.items() if value}
