"""svc-mailbox for users: send, receive, settle, look, and consume; results are the contract's own values."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from penstock.contracts import mailbox as m
from penstock.contracts.mailbox_rules import check_envelope
from penstock.contracts.plain_payloads import CONTENT_TYPE, payload_bytes
from penstock.kernel.deadline import Timers, timeout
from penstock.kernel.errors import Malformed
from penstock.kernel.metrics import Metrics
from penstock.sdk.consumer import (
    ConsumeOptions,
    Consumer,
    Handler,
    consumer_of,
)
from penstock.sdk.delivery import Delivery, OnLost
from penstock.sdk.lease_keeper import LeaseKeeper
from penstock.sdk.values import check_least, checked, in_words, several
from penstock.wire.ids import address_of

# Bytes as they are, text as UTF-8, anything else as compact JSON.
Payload: TypeAlias = bytes | bytearray | memoryview | str | dict[str, Any] | list[Any] | int | float | bool | None
_LEASE_MS: Final = 30_000


class Leased(Protocol):
    """Anything with the id of a message and the receipt of its lease: an envelope or a delivery."""

    @property
    def msg_id(self) -> str:
        """Which message."""
        ...

    @property
    def receipt(self) -> str:
        """Which lease of it."""
        ...


class MailboxClient:
    """The mailbox of a node. Every call has a deadline; errors are those of `penstock.kernel`."""

    def __init__(
        self,
        mailbox: m.Mailbox,
        keeper: LeaseKeeper,
        metrics: Metrics,
        *,
        timeout_s: float = 10.0,
        timers: Timers | None = None,
    ) -> None:
        """Speak through the contract; `keeper` renews the leases of deliveries that are worked on.

        `timers` bound the calls that programs make in numbers; without them the loop's do.
        """
        self._mailbox = mailbox
        self._keeper = keeper
        self._metrics = metrics
        self._timeout_s = timeout_s
        self._timers = timers

    # --- send

    async def send(  # noqa: PLR0913 - the options of a message, each by its name
        self,
        topic: str,
        payload: Payload,
        *,
        key: str | None = None,
        attrs: Mapping[str, str] | None = None,
        delay_ms: int | None = None,
        ttl_ms: int | None = None,
        idem_key: str | None = None,
        group: str | None = None,
        meta: bytes | None = None,
    ) -> m.Sent:
        """Store a message; returns when it is as durable as the engine promises.

        Messages with one `key` are delivered in order, one at a time. `delay_ms` holds a message back; one that
        waited `ttl_ms` becomes a dead letter; unset, the topic's own settings count. A repeat with the same `idem_key`
        is the same message; without one the SDK makes one, so that a retry cannot become a second message. Groups
        take turns in a topic that is fair by `group`. `meta` are bytes that travel with the payload.
        """
        message = new_message(
            topic,
            payload,
            key=key,
            attrs=attrs,
            delay_ms=delay_ms,
            ttl_ms=ttl_ms,
            idem_key=idem_key,
            group=group,
            meta=meta,
        )
        async with timeout("send", self._timeout_s, self._timers):
            return await self._mailbox.send(message)

    async def send_batch(self, messages: Iterable[m.Send]) -> tuple[m.SendResult, ...]:
        """Store up to 256 messages, each on its own; make them by `new_message`. Results are in order."""
        batch = m.SendBatch(tuple(map(_with_idem_key, several("send_batch", messages, "messages by new_message"))))
        async with timeout("send_batch", self._timeout_s):
            return (await self._mailbox.send_batch(batch)).results

    # --- receive and settle

    async def recv(
        self,
        topic: str,
        *,
        max_messages: int = 1,
        visibility_ms: int | None = None,
        wait_ms: int = 0,
        max_bytes: int | None = None,
    ) -> tuple[m.Envelope, ...]:
        """Lease messages, possibly none; a message that was changed on its way is refused.

        `wait_ms` is how long to wait for the first (at most 20 s). A lease lasts `visibility_ms`; unset, as long as the
        topic or else the service says.
        """
        request = checked(
            m.Recv,
            topic=topic,
            max_messages=max_messages,
            visibility_ms=visibility_ms,
            wait_ms=wait_ms,
            max_bytes=max_bytes,
        )
        async with timeout("recv", self._timeout_s + request.wait_ms / 1000):
            received = await self._mailbox.recv(request)
        for envelope in received.messages:
            check_envelope(envelope)
        return received.messages

    async def ack(self, lease: Leased) -> m.Acked:
        """Acknowledge a message: it is not delivered again. `Conflict` when the lease is over."""
        async with timeout("ack", self._timeout_s, self._timers):
            return await self._mailbox.ack(_ack(lease))

    async def nack(
        self, lease: Leased, reason: str | None = None, *, delay_ms: int | None = None, final: bool = False
    ) -> m.Nacked:
        """Give a message back, to be delivered again. Without `delay_ms` the mailbox backs off with full jitter.

        With `final` it is not delivered again: it is a dead letter at once, whatever attempts are left.
        """
        held = _ack(lease, "nack")
        request = checked(
            m.Nack, msg_id=held.msg_id, receipt=held.receipt, reason=reason, delay_ms=delay_ms, final=final
        )
        async with timeout("nack", self._timeout_s, self._timers):
            return await self._mailbox.nack(request)

    async def extend(self, lease: Leased, visibility_ms: int) -> m.Extended:
        """Lengthen a lease: it ends `visibility_ms` from now."""
        held = _ack(lease, "extend")
        request = checked(m.Extend, msg_id=held.msg_id, receipt=held.receipt, visibility_ms=visibility_ms)
        async with timeout("extend", self._timeout_s, self._timers):
            return await self._mailbox.extend(request)

    async def ack_batch(self, leases: Sequence[Leased]) -> tuple[m.SettleResult, ...]:
        """Acknowledge up to 256 messages, each on its own."""
        acks = tuple(_ack(lease) for lease in several("ack_batch", leases, "messages"))
        async with timeout("ack_batch", self._timeout_s):
            return (await self._mailbox.ack_batch(m.AckBatch(acks))).results

    # --- consume

    async def lease(
        self,
        topic: str,
        *,
        max_messages: int = 1,
        visibility_ms: int | None = None,
        wait_ms: int = 0,
        max_bytes: int | None = None,
    ) -> list[Delivery]:
        """Lease messages whose leases are renewed from now on, until each is acked or nacked."""
        lasting_ms = visibility_ms or _LEASE_MS
        received = await self.recv(
            topic, max_messages=max_messages, visibility_ms=lasting_ms, wait_ms=wait_ms, max_bytes=max_bytes
        )
        taken = [Delivery(envelope, lasting_ms, self._mailbox, self._keeper, on_lost="tell") for envelope in received]
        # Left by ack or nack, not by the end of a block.
        return [await delivery.__aenter__() for delivery in taken]

    def consume(  # noqa: PLR0913 - the options of a consumer, each by its name
        self,
        topic: str,
        *,
        concurrency: int = 1,
        visibility_ms: int = 30_000,
        wait_ms: int = 20_000,
        drain_s: float = 10.0,
        on_lost: OnLost = "interrupt",
    ) -> Consumer:
        """Iterate over deliveries, at most `concurrency` (1-256) of them unsettled; see `Consumer`.

        A lease lasts `visibility_ms` between renewals, so a consumer that dies is noticed after this. One poll waits
        `wait_ms` for a message. `drain_s` is how long `run` lets handlers finish when it is cancelled. A lost lease
        cancels the handler, or with `on_lost="tell"` only sets `delivery.lost`.
        """
        options = ConsumeOptions(
            concurrency=concurrency, visibility_ms=visibility_ms, wait_ms=wait_ms, drain_s=drain_s, on_lost=on_lost
        )
        return consumer_of(self._mailbox, topic, self._keeper, self._metrics, options)

    async def run(  # noqa: PLR0913 - the options of a consumer, each by its name
        self,
        topic: str,
        handler: Handler,
        *,
        concurrency: int = 1,
        visibility_ms: int = 30_000,
        wait_ms: int = 20_000,
        drain_s: float = 10.0,
        on_lost: OnLost = "interrupt",
        stop_on_signals: bool = False,
    ) -> None:
        """Have `handler` work on messages, `concurrency` at a time, until cancelled; then finish what it holds.

        With `stop_on_signals`, SIGTERM and Ctrl-C end it in the same way, and it returns.
        """
        consumer = self.consume(
            topic,
            concurrency=concurrency,
            visibility_ms=visibility_ms,
            wait_ms=wait_ms,
            drain_s=drain_s,
            on_lost=on_lost,
        )
        await consumer.run(handler, stop_on_signals=stop_on_signals)

    # --- look

    async def topics(self, *, prefix: str = "") -> tuple[m.TopicStats, ...]:
        """Count every topic the capability covers, or those whose names begin with `prefix`; asks page after page."""
        found: list[m.TopicStats] = []
        page = await self.topics_page(prefix=prefix)
        while True:
            found += page.topics
            if page.cursor is None:
                return tuple(found)
            page = await self.topics_page(prefix=prefix, cursor=page.cursor)

    async def topics_page(
        self, *, prefix: str = "", cursor: str | None = None, limit: int = m.TOPICS_MAX
    ) -> m.TopicList:
        """Count one page of topics; its cursor leads to the next, and is None on the last."""
        request = checked(m.GetTopics, prefix=prefix, cursor=cursor, limit=limit)
        async with timeout("topics", self._timeout_s):
            return await self._mailbox.topics(request)

    async def topic(self, name: str) -> m.TopicStats:
        """Count one topic; `NotFound`."""
        async with timeout("topic", self._timeout_s):
            return await self._mailbox.topic(checked(m.GetTopic, topic=name))

    async def peek(
        self, topic: str, state: m.State = "ready", *, limit: int = 10, payload: bool = False
    ) -> tuple[m.Peeked, ...]:
        """Show the oldest messages of a state (at most 256) without leasing them; `peek_all` goes on behind them."""
        return (await self.peek_page(topic, state, limit=limit, payload=payload)).messages

    async def peek_page(
        self,
        topic: str,
        state: m.State = "ready",
        *,
        limit: int = 10,
        payload: bool = False,
        cursor: str | None = None,
    ) -> m.PeekedList:
        """Show one page of messages (at most 256); its cursor leads to the next, and is None on the last.

        A page ends where its payloads reach 4 MiB, so it may be short and still have a cursor.
        """
        request = checked(m.Peek, topic=topic, state=state, limit=limit, payload=payload, cursor=cursor)
        async with timeout("peek", self._timeout_s):
            return await self._mailbox.peek(request)

    async def peek_all(
        self, topic: str, state: m.State = "ready", *, limit: int | None = None, payload: bool = False
    ) -> AsyncIterator[m.Peeked]:
        """Iterate over the messages of a state, or the first `limit` of them, page after page, and lease none."""
        left, cursor = checked_limit(limit), None
        while True:
            most = m.BATCH_MAX if left is None else min(left, m.BATCH_MAX)
            page = await self.peek_page(topic, state, limit=most, payload=payload, cursor=cursor)
            for message in page.messages:
                yield message
            cursor = page.cursor
            left = None if left is None else left - len(page.messages)
            if cursor is None or left == 0:
                return

    async def peek_one(self, topic: str, msg_id: str, *, payload: bool = False) -> m.Peeked:
        """Show one message, whatever its state, which it says; `NotFound` when it is not in the topic (any more)."""
        if not isinstance(msg_id, str):
            raise Malformed(f"msg_id is the id of a message, not {in_words(msg_id)}.")
        request = checked(m.Peek, topic=topic, payload=payload, msg_id=msg_id)
        async with timeout("peek", self._timeout_s):
            (message,) = (await self._mailbox.peek(request)).messages
        return message

    async def purge(self, topic: str) -> int:
        """Remove the waiting and leased messages of a topic; dead letters stay. Returns how many."""
        async with timeout("purge", self._timeout_s):
            return (await self._mailbox.purge(checked(m.Purge, topic=topic))).purged

    async def dlq(
        self, topic: str | None = None, *, reason: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> m.DlqPage:
        """Return one page of dead letters; its cursor leads to the next.

        `reason` is a whole one, as `rejected:ValueError`, or a kind: `rejected` is every `rejected:...`.
        """
        request = checked(m.GetDlq, topic=topic, reason=reason, cursor=cursor, limit=limit)
        async with timeout("dlq", self._timeout_s):
            return await self._mailbox.dlq(request)

    async def dead_letters(self, topic: str | None = None, *, reason: str | None = None) -> AsyncIterator[m.DeadLetter]:
        """Iterate over all dead letters, page after page; `reason` is a whole one or a kind, as in `dlq`."""
        page = await self.dlq(topic, reason=reason)
        while True:
            for entry in page.entries:
                yield entry
            if page.cursor is None:
                return
            page = await self.dlq(topic, reason=reason, cursor=page.cursor)

    async def reprocess(  # noqa: PLR0913 - which dead letters and where to, each by its name
        self,
        topic: str,
        *,
        limit: int = 1000,
        reason: str | None = None,
        dry_run: bool = False,
        to: str | None = None,
        msg_id: str | None = None,
    ) -> int:
        """Send dead letters back to their topic, or `to` another; returns how many will go back.

        `reason` (a whole one or a kind, as in `dlq`) and `msg_id` pick some of them; `dry_run` only counts.
        """
        request = checked(m.Reprocess, topic=topic, limit=limit, reason=reason, dry_run=dry_run, to=to, msg_id=msg_id)
        async with timeout("reprocess", self._timeout_s):
            return (await self._mailbox.reprocess(request)).accepted

    async def delete_dead(
        self,
        topic: str,
        *,
        limit: int = 1000,
        reason: str | None = None,
        dry_run: bool = False,
        msg_id: str | None = None,
    ) -> int:
        """Remove dead letters for good; returns how many are gone, or would be with `dry_run`.

        `reason` (a whole one or a kind, as in `dlq`) and `msg_id` pick some of them.
        """
        request = checked(m.DeleteDead, topic=topic, limit=limit, reason=reason, dry_run=dry_run, msg_id=msg_id)
        async with timeout("delete_dead", self._timeout_s):
            return (await self._mailbox.delete_dead(request)).deleted

    # --- topics

    async def settings(self, topic: str) -> m.SettingsShown:
        """Show the settings of a topic; `NotFound` when it has none of its own."""
        async with timeout("settings", self._timeout_s):
            return await self._mailbox.settings(checked(m.GetSettings, topic=topic))

    async def put_settings(self, topic: str, settings: m.TopicSettings) -> m.SettingsShown:
        """Give a topic settings in place of those it had; they hold from now on."""
        async with timeout("put_settings", self._timeout_s):
            return await self._mailbox.put_settings(_put_settings(topic, settings))

    async def delete_settings(self, topic: str) -> None:
        """Let a topic have the service's settings again."""
        async with timeout("delete_settings", self._timeout_s):
            await self._mailbox.delete_settings(checked(m.DeleteSettings, topic=topic))

    async def delete_topic(self, topic: str) -> int:
        """Remove a topic whole, its dead letters and settings too; returns how many messages went."""
        async with timeout("delete_topic", self._timeout_s):
            return (await self._mailbox.delete_topic(checked(m.DeleteTopic, topic=topic))).deleted


def _ack(lease: Leased, call: str = "ack") -> m.Ack:
    """Return what names a lease; anything else than a message is refused in a sentence, before it leaves here."""
    msg_id, receipt = getattr(lease, "msg_id", None), getattr(lease, "receipt", None)
    if not isinstance(msg_id, str) or not isinstance(receipt, str):
        raise Malformed(f"{call} takes a message that recv returned, or a delivery, not {in_words(lease)}.")
    return m.Ack(msg_id, receipt)


def new_message(  # noqa: PLR0913 - the options of a message, each by its name
    topic: str,
    payload: Payload,
    *,
    key: str | None = None,
    attrs: Mapping[str, str] | None = None,
    delay_ms: int | None = None,
    ttl_ms: int | None = None,
    idem_key: str | None = None,
    group: str | None = None,
    meta: bytes | None = None,
) -> m.Send:
    """Make a message to send, with its hash, which shows a change on the way, and with an idem_key."""
    attached = _attrs(attrs)
    if meta is not None and not isinstance(meta, bytes):
        raise Malformed(f"meta are bytes, not {in_words(meta)}.")
    if isinstance(payload, bytes):
        data = payload
    elif isinstance(payload, str):
        data = _text_bytes(payload)
    elif isinstance(payload, (bytearray, memoryview)):
        data = bytes(payload)
    else:
        data, kind = json_bytes(payload)
        attached = {CONTENT_TYPE: kind, **attached}
    _check_utf8(idem_key, key, group, *attached, *attached.values())
    return checked(
        m.Send,
        topic=topic,
        payload_b64=data,
        payload_hash=address_of(data),
        idem_key=idem_key or secrets.token_hex(16),
        attrs=attached,
        key=key,
        delay_ms=delay_ms,
        ttl_ms=ttl_ms,
        group=group,
        meta_b64=meta,
    )


def json_bytes(payload: object) -> tuple[bytes, str]:
    """Return the bytes of a JSON value and their type; what is none is refused here."""
    try:
        return payload_bytes(payload)
    except RecursionError as exc:
        said = "A payload is bytes, a text or a JSON value: this one holds itself, or is too deep."
        raise Malformed(said, reason="bad_payload") from exc
    except (TypeError, ValueError) as exc:
        raise Malformed(f"A payload is bytes, a text or a JSON value: {exc}.", reason="bad_payload") from exc


def _text_bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as exc:
        said = f"The payload has a character that UTF-8 lacks, at place {exc.start}; send bytes in its place."
        raise Malformed(said, reason="bad_payload") from exc


def _check_utf8(*texts: object) -> None:
    """Refuse a text that cannot be sent, here: in a request that is shared it would fail the calls of others too."""
    for text in texts:
        if isinstance(text, str) and not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as exc:
                raise Malformed(f"{text!a} is not UTF-8 text: its character {exc.start + 1} cannot be sent.") from exc


def checked_limit(limit: int | None) -> int | None:
    """Return how many messages are wanted, or None for all of them."""
    if limit is not None:
        check_least("limit", limit, 1)
    return limit


def _put_settings(topic: str, settings: m.TopicSettings) -> m.PutSettings:
    if not isinstance(settings, m.TopicSettings):
        raise Malformed(f"put_settings takes TopicSettings(max_attempts=20), not {in_words(settings)}.")
    return m.PutSettings(checked(m.GetSettings, topic=topic).topic, settings)


def _with_idem_key(message: m.Send) -> m.Send:
    if not isinstance(message, m.Send):
        raise Malformed(f"send_batch takes messages that new_message made, not {in_words(message)}.")
    if message.idem_key is not None:
        return message
    return msgspec.structs.replace(message, idem_key=secrets.token_hex(16))


def _attrs(attrs: object) -> dict[str, str]:
    if attrs is None:
        return {}
    if not isinstance(attrs, Mapping):
        raise Malformed(f'attrs is an object of texts, such as {{"colour": "red"}}, not {in_words(attrs)}.')
    return dict(attrs)
