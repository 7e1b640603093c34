"""The mailbox rules that sender, service and receiver share: sizes, hashes, and the method table. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from blake3 import blake3

from penstock.contracts import mailbox as m
from penstock.contracts.mailbox_batches import msgpack_batch
from penstock.contracts.method import Method, Methods
from penstock.kernel.errors import Integrity, OverLimit
from penstock.wire.ids import Address, address_of
from penstock.wire.plain_words import size_text

PAYLOAD_BYTES_MAX: Final = 704 << 10
# A topic's `max_payload` may raise the limit up to here.
PAYLOAD_BYTES_CEILING: Final = 1 << 20
ATTRS_MAX: Final = 32
ATTRS_BYTES_MAX: Final = 8 << 10
STALE_RECEIPT: Final = "stale_receipt"
SETTLED_OR_UNKNOWN: Final = "settled_or_unknown"
NOT_LEASED: Final = "not_leased"
_CHAIN: Final = b"penstock/mailbox/chain/1"


def hash_chain(topic: str, ts: int, idem_key: str | None, payload_hash: str, attrs: dict[str, str]) -> Address:
    """Bind a message's parts together: BLAKE3 over length-prefixed fields, attrs sorted by name."""
    texts = [topic, str(ts), idem_key or "", payload_hash]
    for name in sorted(attrs):
        texts += (name, attrs[name])
    fields = [_CHAIN]
    for text in texts:
        raw = text.encode()
        fields += (len(raw).to_bytes(4, "big"), raw)
    return Address("b3:" + blake3(b"".join(fields)).hexdigest())


def size_of(send: m.Send) -> int:
    """Return what a message counts: its payload, and its meta with it."""
    return len(send.payload) if send.meta is None else len(send.payload) + len(send.meta)


def check_send(send: m.Send, *, payload_bytes_max: int = PAYLOAD_BYTES_CEILING) -> None:
    """Refuse what is too large for any topic, and a payload that is not what its sender says it is."""
    if size_of(send) > payload_bytes_max:
        raise payload_too_large(size_of(send), payload_bytes_max)
    if len(send.attrs) > ATTRS_MAX:
        raise OverLimit(
            f"The message has {len(send.attrs)} attrs; at most {ATTRS_MAX} are taken.",
            limit="attrs",
            limit_value=ATTRS_MAX,
            actual=len(send.attrs),
        )
    if sum(len(name.encode()) + len(value.encode()) for name, value in send.attrs.items()) > ATTRS_BYTES_MAX:
        raise OverLimit(f"The attrs are above {ATTRS_BYTES_MAX} bytes.", limit="attrs_bytes")
    if send.payload_hash is not None and address_of(send.payload) != send.payload_hash:
        raise Integrity("The payload does not match its payload_hash.", reason="payload_hash")


def payload_too_large(actual: int, limit: int) -> OverLimit:
    """Make the refusal of a payload."""
    return OverLimit(
        f"The payload of {size_text(actual)} is over the limit of {size_text(limit)} (mailbox.max_payload_bytes).",
        limit="payload_bytes",
        limit_value=limit,
        actual=actual,
        setting="mailbox.max_payload_bytes",
        hint="Store it with penstock put (client.storage.put), and send its address as the message.",
    )


def check_batch(items: tuple[object, ...]) -> None:
    """Refuse a batch of more than 256."""
    if len(items) > m.BATCH_MAX:
        said = f"The batch has {len(items)} items; at most {m.BATCH_MAX} are taken."
        raise OverLimit(said, limit="batch", limit_value=m.BATCH_MAX, actual=len(items))


def check_envelope(envelope: m.Envelope) -> None:
    """Refuse a delivered message whose payload or fields were changed on the way."""
    if address_of(envelope.payload) != envelope.payload_hash:
        raise Integrity("The payload does not match its payload_hash.", reason="payload_hash")
    e = envelope
    if hash_chain(e.topic, e.ts, e.idem_key, e.payload_hash, e.attrs) != e.hash_chain:
        raise Integrity("The message does not match its hash_chain.", reason="hash_chain")


def check_received(received: m.Received) -> None:
    """Refuse an answer in which any message was changed on the way."""
    for envelope in received.messages:
        check_envelope(envelope)


def content_of(send: m.Send) -> tuple[object, ...]:
    """Return what makes two sends with one idem_key the same message: all but the idem_key itself."""
    attrs = tuple(sorted(send.attrs.items()))
    said = (send.topic, send.key, address_of(send.payload), attrs, send.delay_ms or 0, send.ttl_ms)
    return (*said, send.group, send.meta)


def reason_matches(wanted: str | None, reason: str) -> bool:
    """Tell whether a dead letter is among those asked for.

    `rejected:ValueError` is a kind and what the consumer said. A reason without a colon is a kind, and stands for every
    reason of that kind; None stands for all.
    """
    return wanted is None or reason == wanted or (":" not in wanted and reason.startswith(wanted + ":"))


def dead_letter_attrs(topic: str, reason: str, attempts: int, history: Iterable[tuple[int, str]]) -> dict[str, str]:
    """Say in attrs where a message comes from that another topic sent here after its last attempt, and why."""
    ends = [f"{at}:{cause}" for at, cause in history]
    return {
        "penstock.dead.topic": topic,
        "penstock.dead.reason": reason,
        "penstock.dead.attempts": str(attempts),
        "penstock.dead.history": "\n".join(ends),
    }


METHODS: Final = Methods(
    1,
    [
        # A send without an idem_key is not safe to repeat, so the client never does it by itself.
        Method(1, "send", m.Send, m.Sent, check_request=check_send),
        Method(2, "send_batch", m.SendBatch, m.SentBatch, reread=msgpack_batch(m.SendBatch)),
        Method(3, "recv", m.Recv, m.Received, check_answer=check_received),
        Method(4, "ack", m.Ack, m.Acked, idempotent=True),
        Method(5, "ack_batch", m.AckBatch, m.SettledBatch, idempotent=True, reread=msgpack_batch(m.AckBatch)),
        Method(6, "nack", m.Nack, m.Nacked),
        Method(7, "nack_batch", m.NackBatch, m.SettledBatch, reread=msgpack_batch(m.NackBatch)),
        Method(8, "extend", m.Extend, m.Extended, idempotent=True),
        Method(9, "extend_batch", m.ExtendBatch, m.SettledBatch, idempotent=True, reread=msgpack_batch(m.ExtendBatch)),
        Method(10, "topics", m.GetTopics, m.TopicList, idempotent=True),
        Method(11, "topic", m.GetTopic, m.TopicStats, idempotent=True),
        Method(12, "peek", m.Peek, m.PeekedList, idempotent=True),
        Method(13, "purge", m.Purge, m.Purged, idempotent=True),
        Method(14, "dlq", m.GetDlq, m.DlqPage, idempotent=True),
        Method(15, "reprocess", m.Reprocess, m.Reprocessing),
        Method(16, "settings", m.GetSettings, m.SettingsShown, idempotent=True),
        Method(17, "put_settings", m.PutSettings, m.SettingsShown, idempotent=True),
        Method(18, "delete_settings", m.DeleteSettings, m.SettingsGone, idempotent=True),
        Method(19, "delete_topic", m.DeleteTopic, m.TopicDeleted, idempotent=True),
        Method(20, "delete_dead", m.DeleteDead, m.DeadDeleted),
    ],
    service="mailbox",
)
