"""svc-mailbox in RAM: the contract over `MailboxState`, with an injected clock. For tests and for amnesia."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from penstock.contracts import mailbox as m
from penstock.contracts.call import NOBODY, Call
from penstock.contracts.mailbox_batches import unread_in
from penstock.contracts.mailbox_rules import check_batch, check_send, size_of
from penstock.kernel.backoff import Rng
from penstock.kernel.clock import Clock, LoopClock
from penstock.kernel.deadline import current_deadline, timeout
from penstock.kernel.errors import Malformed, NotFound, PenstockError, Timeout
from penstock.testing.contracts.memory_mailbox_state import (
    MemoryMailboxOptions,
    MemoryMailboxState,
    MemoryMessage,
    MemoryNow,
)

_T = TypeVar("_T")
_CURSOR_CHARS_MAX: Final = 15


class Guard(Protocol):
    """Decides whether a call may do `op` on a topic; raises when it may not."""

    def __call__(self, call: Call, op: str, topic: str | None) -> None:
        """Raise Unauthenticated, Expired, Forbidden or RateLimited."""


def open_to_all(call: Call, op: str, topic: str | None) -> None:
    """Allow everything: the guard of a mailbox without authority."""


class MemoryMailbox:
    """The mailbox contract. Every command is one synchronous step; only an empty `recv` waits."""

    def __init__(
        self,
        clock: Clock,
        options: MemoryMailboxOptions | None = None,
        *,
        guard: Guard = open_to_all,
        rng: Rng | None = None,
    ) -> None:
        """Take the clock that leases run on."""
        self._clock = clock
        self._guard = guard
        self.state = MemoryMailboxState(options or MemoryMailboxOptions(), rng or random.Random())
        # Set when something may have become deliverable; parked receivers look again.
        self._changed = asyncio.Event()

    def _now(self) -> MemoryNow:
        """Apply what time has changed, and return the instant."""
        now = MemoryNow(self._clock.monotonic() * 1000, int(self._clock.wall() * 1000))
        self.state.advance(now)
        return now

    def _wake(self) -> None:
        self._changed.set()

    # --- send

    async def send(self, request: m.Send, call: Call = NOBODY) -> m.Sent:
        """Store one message."""
        return self._send(request, call)

    def _send(self, request: m.Send, call: Call) -> m.Sent:
        check_send(request)
        self._guard(call, "send", request.topic)
        if request.origin is not None:
            self._guard(call, "admin", request.topic)
        sent = self.state.send(request, call.corr_id, self._now())
        self._wake()
        return sent

    async def send_batch(self, request: m.SendBatch, call: Call = NOBODY) -> m.SentBatch:
        """Store many, each on its own."""
        check_batch(request.messages)
        unread = unread_in(request)
        results = [self._send_result(send, call, unread.get(place)) for place, send in enumerate(request.messages)]
        return m.SentBatch(tuple(results))

    def _send_result(self, send: m.Send, call: Call, unread: PenstockError | None) -> m.SendResult:
        try:
            if unread is not None:
                raise unread
            sent = self._send(send, call)
        except PenstockError as error:
            return m.SendResult(code=error.code, detail=error.detail)
        return m.SendResult(msg_id=sent.msg_id, duplicate=sent.duplicate, shard=sent.shard)

    # --- recv

    async def recv(self, request: m.Recv, call: Call = NOBODY) -> m.Received:
        """Lease messages, or wait for the first until `wait_ms` or the caller's deadline."""
        self._guard(call, "recv", request.topic)
        until_ms = self._clock.monotonic() * 1000 + _patience_ms(request)
        while True:
            now = self._now()
            full = self.state.inflight() >= self.state.options.global_inflight
            leased = self.state.lease(request, now)
            if leased or full or now.mono_ms >= until_ms:
                return m.Received(tuple(self._envelope(message, now) for message in leased), inflight_full=full)
            await self._park(request.topic, until_ms, now)

    async def _park(self, topic: str, until_ms: float, now: MemoryNow) -> None:
        due_ms = self.state.next_due_ms(topic, now)
        wait_ms = (until_ms if due_ms is None else min(until_ms, due_ms)) - now.mono_ms
        try:
            async with timeout("memory_mailbox_recv", wait_ms / 1000):
                self._changed.clear()
                await self._changed.wait()
        except Timeout:
            return

    def _envelope(self, message: MemoryMessage, now: MemoryNow) -> m.Envelope:
        sent = message.sent
        return m.Envelope(
            msg_id=message.msg_id,
            receipt=message.receipt or "",
            topic=sent.topic,
            ts=message.ts,
            payload=sent.payload,
            attrs=sent.attrs,
            corr_id=message.corr_id,
            shard=self.state.shard(sent),
            attempt=message.attempts,
            visible_until=_wall(message.until_ms, now),
            payload_hash=message.payload_hash,
            hash_chain=message.hash_chain,
            key=sent.key,
            idem_key=sent.idem_key,
            redriven_from=message.redriven_from,
            group=sent.group,
            meta=sent.meta,
            origin_id=None if sent.origin is None else sent.origin.msg_id,
            origin_ts=None if sent.origin is None else sent.origin.ts,
            first_at=message.first_at,
        )

    # --- settlements

    async def ack(self, request: m.Ack, call: Call = NOBODY) -> m.Acked:
        """Settle one message."""
        return self._ack(request, call)

    def _ack(self, request: m.Ack, call: Call) -> m.Acked:
        now = self._now()
        self._guard_message(call, "ack", request.msg_id)
        self.state.ack(request, now)
        self._wake()
        return m.Acked()

    async def nack(self, request: m.Nack, call: Call = NOBODY) -> m.Nacked:
        """Give one message back."""
        return self._nack(request, call)

    def _nack(self, request: m.Nack, call: Call) -> m.Nacked:
        now = self._now()
        self._guard_message(call, "nack", request.msg_id)
        message = self.state.nack(request, now)
        dead = message.dead is not None
        self.state.move(now)
        self._wake()
        visible_in_ms = 0 if dead else round(message.until_ms - now.mono_ms)
        return m.Nacked(message.attempts, visible_in_ms, dead)

    async def extend(self, request: m.Extend, call: Call = NOBODY) -> m.Extended:
        """Lengthen one lease."""
        return self._extend(request, call)

    def _extend(self, request: m.Extend, call: Call) -> m.Extended:
        now = self._now()
        self._guard_message(call, "recv", request.msg_id)
        message = self.state.extend(request, now)
        self.state.move(now)
        self._wake()
        return m.Extended(request.receipt, _wall(message.until_ms, now))

    def _guard_message(self, call: Call, op: str, msg_id: str) -> None:
        """Judge a settlement on the message's own topic, not on what the caller says."""
        message = self.state.messages.get(msg_id)
        self._guard(call, op, None if message is None else message.sent.topic)

    async def ack_batch(self, request: m.AckBatch, call: Call = NOBODY) -> m.SettledBatch:
        """Settle many, each on its own."""
        return _each(request, request.acks, lambda item: _settled(self._ack(item, call)))

    async def nack_batch(self, request: m.NackBatch, call: Call = NOBODY) -> m.SettledBatch:
        """Give many back, each on its own."""
        return _each(request, request.nacks, lambda item: _settled(self._nack(item, call)))

    async def extend_batch(self, request: m.ExtendBatch, call: Call = NOBODY) -> m.SettledBatch:
        """Lengthen many, each on its own."""
        return _each(request, request.extends, lambda item: _settled(self._extend(item, call)))

    # --- looking

    async def topics(self, request: m.GetTopics, call: Call = NOBODY) -> m.TopicList:
        """Count the topics that the call may see, a page at a time."""
        now, after = self._now(), request.cursor or ""
        names = sorted({*(message.sent.topic for message in self.state.messages.values()), *self.state.settings})
        seen = [
            name for name in names if name > after and name.startswith(request.prefix) and self._may_see(call, name)
        ]
        shown = seen[: request.limit]
        more = shown[-1] if len(seen) > len(shown) else None
        return m.TopicList(tuple(self._stats(name, now) for name in shown), more)

    def _may_see(self, call: Call, topic: str) -> bool:
        try:
            self._guard(call, "recv", topic)
        except PenstockError:
            return False
        return True

    async def topic(self, request: m.GetTopic, call: Call = NOBODY) -> m.TopicStats:
        """Count one topic."""
        self._guard(call, "recv", request.topic)
        now = self._now()
        if not self.state.of(request.topic) and request.topic not in self.state.settings:
            raise NotFound("There is no such topic.")
        return self._stats(request.topic, now)

    def _stats(self, topic: str, now: MemoryNow) -> m.TopicStats:
        messages = self.state.of(topic)
        states = [message.state(now) for message in messages]
        living = [message.ts for message in messages if message.dead is None]
        return m.TopicStats(
            topic=topic,
            ready=states.count("ready"),
            inflight=states.count("inflight"),
            delayed=states.count("delayed"),
            dlq=states.count("dlq"),
            bytes=sum(size_of(message.sent) for message in messages),
            oldest_age_s=max(0.0, (now.wall_ms - min(living, default=now.wall_ms)) / 1000),
            paused=self.state.settings_of(topic).paused,
        )

    async def peek(self, request: m.Peek, call: Call = NOBODY) -> m.PeekedList:
        """Show messages of one state, or one message, without touching them; the cursor is the last one's seq."""
        self._guard(call, "recv", request.topic)
        now, after = self._now(), _cursor(request.cursor)
        here = self.state.of(request.topic)
        if request.msg_id is None:
            found = [message for message in here if message.state(now) == request.state and message.seq > after]
        else:
            found = [message for message in here if message.msg_id == request.msg_id]
            if not found:
                raise NotFound("There is no such message in this topic.")
        page = found[: request.limit]
        shown = (self._peeked(message, now, with_payload=request.payload) for message in page)
        return m.PeekedList(tuple(shown), str(page[-1].seq) if len(found) > len(page) else None)

    def _peeked(self, message: MemoryMessage, now: MemoryNow, *, with_payload: bool) -> m.Peeked:
        sent = message.sent
        return m.Peeked(
            msg_id=message.msg_id,
            topic=sent.topic,
            ts=message.ts,
            attrs=sent.attrs,
            corr_id=message.corr_id,
            shard=self.state.shard(sent),
            attempt=message.attempts,
            payload_hash=message.payload_hash,
            hash_chain=message.hash_chain,
            size=size_of(sent),
            payload=sent.payload if with_payload else None,
            key=sent.key,
            idem_key=sent.idem_key,
            visible_at=_wall(message.until_ms, now) if message.state(now) in ("inflight", "delayed") else None,
            redriven_from=message.redriven_from,
            group=sent.group,
            meta=sent.meta if with_payload else None,
            origin_id=None if sent.origin is None else sent.origin.msg_id,
            origin_ts=None if sent.origin is None else sent.origin.ts,
            first_at=message.first_at or None,
            state=message.state(now),
        )

    # --- the operator

    async def purge(self, request: m.Purge, call: Call = NOBODY) -> m.Purged:
        """Remove everything that waits."""
        self._guard(call, "admin", request.topic)
        self._now()
        return m.Purged(self.state.purge(request.topic))

    async def settings(self, request: m.GetSettings, call: Call = NOBODY) -> m.SettingsShown:
        """Show a topic's settings."""
        self._guard(call, "recv", request.topic)
        return self._shown(request.topic)

    def _shown(self, topic: str) -> m.SettingsShown:
        if topic not in self.state.settings:
            raise NotFound("This topic has no settings of its own.")
        return m.SettingsShown(topic, self.state.settings[topic], self.state.generations.get(topic, 0))

    async def put_settings(self, request: m.PutSettings, call: Call = NOBODY) -> m.SettingsShown:
        """Give a topic settings."""
        self._guard(call, "admin", request.topic)
        target = request.settings.dead_letter_to
        if target is not None:
            self._guard(call, "admin", target)
        if self.state.leads_back(request.topic, target):
            raise Malformed("dead_letter_to leads back to this topic.", reason="dead_letter_cycle")
        self._now()
        self.state.settings[request.topic] = request.settings
        self._wake()
        return self._shown(request.topic)

    async def delete_settings(self, request: m.DeleteSettings, call: Call = NOBODY) -> m.SettingsGone:
        """Let a topic have the usual settings again."""
        self._guard(call, "admin", request.topic)
        self._now()
        self.state.settings.pop(request.topic, None)
        self._wake()
        return m.SettingsGone()

    async def delete_topic(self, request: m.DeleteTopic, call: Call = NOBODY) -> m.TopicDeleted:
        """Remove a topic whole."""
        self._guard(call, "admin", request.topic)
        self._now()
        return m.TopicDeleted(self.state.delete(request.topic))

    async def dlq(self, request: m.GetDlq, call: Call = NOBODY) -> m.DlqPage:
        """Page through dead letters; the cursor is the seq of the last one shown."""
        self._guard(call, "admin", request.topic)
        self._now()
        after = _cursor(request.cursor)
        found = [message for message in self.state.dead(request.topic, request.reason) if message.seq > after]
        page = found[: request.limit]
        more = str(page[-1].seq) if len(found) > len(page) else None
        return m.DlqPage(tuple(map(_dead_letter, page)), more)

    async def reprocess(self, request: m.Reprocess, call: Call = NOBODY) -> m.Reprocessing:
        """Send dead letters back."""
        self._guard(call, "admin", request.topic)
        self._guard(call, "admin", request.to or request.topic)
        now = self._now()
        found = self._chosen(request)
        if not request.dry_run:
            for message in found:
                self.state.redrive(message, request.to, now)
            self._wake()
        return m.Reprocessing(len(found))

    async def delete_dead(self, request: m.DeleteDead, call: Call = NOBODY) -> m.DeadDeleted:
        """Remove dead letters for good."""
        self._guard(call, "admin", request.topic)
        self._now()
        found = self._chosen(request)
        if not request.dry_run:
            for message in found:
                self.state.forget(message)
        return m.DeadDeleted(len(found))

    def _chosen(self, request: m.Reprocess | m.DeleteDead) -> list[MemoryMessage]:
        dead = self.state.dead(request.topic, request.reason)
        return [message for message in dead if request.msg_id in (None, message.msg_id)][: request.limit]


def _patience_ms(request: m.Recv) -> float:
    """Wait as long as asked, but never beyond the caller's deadline, which is on the loop's clock."""
    deadline = current_deadline()
    if deadline is None or not request.wait_ms:
        return request.wait_ms
    return min(request.wait_ms, deadline.remaining(LoopClock().monotonic()) * 1000)


def _cursor(text: str | None) -> int:
    if text is None:
        return 0
    if not (text.isascii() and text.isdecimal() and len(text) <= _CURSOR_CHARS_MAX):
        raise Malformed("This is not a cursor of ours.", reason="bad_cursor")
    return int(text)


def _wall(mono_ms: float, now: MemoryNow) -> int:
    return now.wall_ms + round(mono_ms - now.mono_ms)


def _each(batch: object, items: Sequence[_T], settle: Callable[[_T], m.SettleResult]) -> m.SettledBatch:
    check_batch(tuple(items))
    unread = unread_in(batch)
    return m.SettledBatch(tuple(_result(item, settle, unread.get(place)) for place, item in enumerate(items)))


def _result(item: _T, settle: Callable[[_T], m.SettleResult], unread: PenstockError | None) -> m.SettleResult:
    try:
        if unread is not None:
            raise unread
        return settle(item)
    except PenstockError as error:
        reason = error.facts.get("reason")
        if isinstance(reason, str):
            return m.SettleResult(code=error.code, detail=error.detail, reason=reason)
        return m.SettleResult(code=error.code, detail=error.detail)


def _settled(value: m.Acked | m.Nacked | m.Extended) -> m.SettleResult:
    if isinstance(value, m.Nacked):
        return m.SettleResult(
            ok=True, attempt=value.attempt, visible_in_ms=value.visible_in_ms, dead_lettered=value.dead_lettered
        )
    if isinstance(value, m.Extended):
        return m.SettleResult(ok=True, receipt=value.receipt, visible_until=value.visible_until)
    return m.SettleResult(ok=True)


def _dead_letter(message: MemoryMessage) -> m.DeadLetter:
    return m.DeadLetter(
        msg_id=message.msg_id,
        topic=message.sent.topic,
        reason=message.dead or "",
        attempts=message.attempts,
        ts=message.ts,
        dead_at=message.dead_at,
        payload_hash=message.payload_hash,
        history=tuple(message.history),
        key=message.sent.key,
    )
