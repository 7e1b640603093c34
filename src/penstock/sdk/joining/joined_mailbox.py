"""The mailbox contract, with sends, acks, nacks and extends that are under way together joined into batch requests.

Everything else, and every call that names a caller of its own, goes straight through.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import UnsetType

from penstock.contracts import mailbox as m
from penstock.contracts.call import NOBODY, Call
from penstock.contracts.mailbox_rules import size_of
from penstock.kernel.inventory import Inventory
from penstock.kernel.scope import Scope
from penstock.sdk.joining.call_joiner import UNDER_WAY_MAX, WAITING_MAX, CallJoiner, ItemRefusal, JoinedKind
from penstock.sdk.joining.join_queue import DEFAULT_LIMITS, JoinLimits

# JSON names, quotes, ids and the hash of one message.
_SEND_BYTES: Final = 512
# Twice what all kinds may have in flight: a task that has ended leaves its scope one turn of the loop later.
_TASKS_PER_REQUEST: Final = 2


class JoinedMailbox:
    """Implements `penstock.contracts.mailbox.Mailbox` by another one. Close it before that one."""

    def __init__(self, mailbox: m.Mailbox, inventory: Inventory, limits: JoinLimits = DEFAULT_LIMITS) -> None:
        """Call through `mailbox`, which is not owned."""
        self._mailbox = mailbox
        kinds = self._send_kind(), self._ack_kind(), self._nack_kind(), self._extend_kind()
        requests_max = len(kinds) * limits.in_flight_max
        self._scope = Scope("joined_call", _TASKS_PER_REQUEST * requests_max, inventory.metrics)
        self._sends = CallJoiner(kinds[0], self._scope, limits)
        self._acks = CallJoiner(kinds[1], self._scope, limits)
        self._nacks = CallJoiner(kinds[2], self._scope, limits)
        self._extends = CallJoiner(kinds[3], self._scope, limits)
        self._joiners: tuple[CallJoiner[Any, Any], ...] = self._sends, self._acks, self._nacks, self._extends
        self._declare(inventory, limits)

    async def close(self) -> None:
        """End every call, and refuse further ones."""
        for joiner in self._joiners:
            joiner.close()
        await self._scope.close()

    def _declare(self, inventory: Inventory, limits: JoinLimits) -> None:
        live: Callable[[], dict[str, object]] = lambda: {  # noqa: E731
            "gathered": sum(len(joiner.queue) for joiner in self._joiners),
            "in_flight": sum(joiner.queue.in_flight for joiner in self._joiners),
        }
        inventory.limit("joined.requests", limits.in_flight_max, "of a kind in flight; none left: calls gather", live)
        inventory.limit("joined.calls", UNDER_WAY_MAX, "of a kind under way; full: wait in line")
        inventory.limit("joined.waiting", WAITING_MAX, "callers of a kind in that line; full: Busy")

    # --- joined

    async def send(self, request: m.Send, call: Call = NOBODY) -> m.Sent:
        """Store a message. One without an idem_key goes alone: its request must not be repeated, that of others may."""
        if call is not NOBODY or request.idem_key is None:
            return await self._mailbox.send(
                request, call
            )  # lint: allow PK009 the caller's deadline, else that of `Caller`
        key = None if request.key is None else (request.topic, request.key)
        return await self._sends.call(request, key=key, size_bytes=_size_bytes(request))

    async def ack(self, request: m.Ack, call: Call = NOBODY) -> m.Acked:
        """Acknowledge a message."""
        return await (self._acks.call(request) if call is NOBODY else self._mailbox.ack(request, call))

    async def nack(self, request: m.Nack, call: Call = NOBODY) -> m.Nacked:
        """Give a message back."""
        return await (self._nacks.call(request) if call is NOBODY else self._mailbox.nack(request, call))

    async def extend(self, request: m.Extend, call: Call = NOBODY) -> m.Extended:
        """Lengthen a lease; of two calls for one message the later one counts."""
        if call is not NOBODY:
            return await self._mailbox.extend(request, call)
        return await self._extends.call(request, key=request.msg_id)

    # --- how each kind is made

    def _send_kind(self) -> JoinedKind[m.Send, m.Sent]:
        async def many(sends: tuple[m.Send, ...]) -> Sequence[m.Sent | ItemRefusal]:
            answer = await self._mailbox.send_batch(m.SendBatch(sends))
            return [_sent(result) for result in answer.results]

        return JoinedKind(name="send", one=self._mailbox.send, many=many)

    def _ack_kind(self) -> JoinedKind[m.Ack, m.Acked]:
        async def many(acks: tuple[m.Ack, ...]) -> Sequence[m.Acked | ItemRefusal]:
            answer = await self._mailbox.ack_batch(m.AckBatch(acks))
            return [_refusal(result) or m.Acked() for result in answer.results]

        return JoinedKind(name="ack", one=self._mailbox.ack, many=many)

    def _nack_kind(self) -> JoinedKind[m.Nack, m.Nacked]:
        async def many(nacks: tuple[m.Nack, ...]) -> Sequence[m.Nacked | ItemRefusal]:
            answer = await self._mailbox.nack_batch(m.NackBatch(nacks))
            return [_refusal(result) or _nacked(result) for result in answer.results]

        return JoinedKind(name="nack", one=self._mailbox.nack, many=many, idempotent=False)

    def _extend_kind(self) -> JoinedKind[m.Extend, m.Extended]:
        async def many(extends: tuple[m.Extend, ...]) -> Sequence[m.Extended | ItemRefusal]:
            answer = await self._mailbox.extend_batch(m.ExtendBatch(extends))
            return [_refusal(result) or _extended(result) for result in answer.results]

        return JoinedKind(name="extend", one=self._mailbox.extend, many=many)

    # --- straight through

    async def send_batch(self, request: m.SendBatch, call: Call = NOBODY) -> m.SentBatch:
        """Store many, each on its own."""
        return await self._mailbox.send_batch(request, call)

    async def recv(self, request: m.Recv, call: Call = NOBODY) -> m.Received:
        """Lease messages."""
        return await self._mailbox.recv(request, call)

    async def ack_batch(self, request: m.AckBatch, call: Call = NOBODY) -> m.SettledBatch:
        """Acknowledge many messages, each on its own."""
        return await self._mailbox.ack_batch(request, call)

    async def nack_batch(self, request: m.NackBatch, call: Call = NOBODY) -> m.SettledBatch:
        """Give many back, each on its own."""
        return await self._mailbox.nack_batch(request, call)

    async def extend_batch(self, request: m.ExtendBatch, call: Call = NOBODY) -> m.SettledBatch:
        """Lengthen many leases, each on its own."""
        return await self._mailbox.extend_batch(request, call)

    async def topics(self, request: m.GetTopics, call: Call = NOBODY) -> m.TopicList:
        """Count the topics that the call may see, a page at a time."""
        return await self._mailbox.topics(request, call)

    async def topic(self, request: m.GetTopic, call: Call = NOBODY) -> m.TopicStats:
        """Count one topic."""
        return await self._mailbox.topic(request, call)

    async def peek(self, request: m.Peek, call: Call = NOBODY) -> m.PeekedList:
        """Look without taking."""
        return await self._mailbox.peek(request, call)

    async def purge(self, request: m.Purge, call: Call = NOBODY) -> m.Purged:
        """Remove everything of a topic."""
        return await self._mailbox.purge(request, call)

    async def dlq(self, request: m.GetDlq, call: Call = NOBODY) -> m.DlqPage:
        """Page through dead letters."""
        return await self._mailbox.dlq(request, call)

    async def reprocess(self, request: m.Reprocess, call: Call = NOBODY) -> m.Reprocessing:
        """Send dead letters back."""
        return await self._mailbox.reprocess(request, call)

    async def delete_dead(self, request: m.DeleteDead, call: Call = NOBODY) -> m.DeadDeleted:
        """Remove dead letters for good."""
        return await self._mailbox.delete_dead(request, call)

    async def settings(self, request: m.GetSettings, call: Call = NOBODY) -> m.SettingsShown:
        """Show a topic's settings."""
        return await self._mailbox.settings(request, call)

    async def put_settings(self, request: m.PutSettings, call: Call = NOBODY) -> m.SettingsShown:
        """Give a topic settings."""
        return await self._mailbox.put_settings(request, call)

    async def delete_settings(self, request: m.DeleteSettings, call: Call = NOBODY) -> m.SettingsGone:
        """Let a topic have the service's settings again."""
        return await self._mailbox.delete_settings(request, call)

    async def delete_topic(self, request: m.DeleteTopic, call: Call = NOBODY) -> m.TopicDeleted:
        """Remove a topic whole."""
        return await self._mailbox.delete_topic(request, call)


def _size_bytes(send: m.Send) -> int:
    """Return about how much of a request's body the message takes, counted as payload: base64 adds a third."""
    attrs = sum(len(name) + len(value) for name, value in send.attrs.items())
    return size_of(send) + attrs + _SEND_BYTES


def _sent(result: m.SendResult) -> m.Sent | ItemRefusal:
    msg_id, duplicate, shard = result.msg_id, result.duplicate, result.shard
    if isinstance(msg_id, UnsetType) or isinstance(duplicate, UnsetType) or isinstance(shard, UnsetType):
        return _refusal_of(result.code, result.detail)
    return m.Sent(msg_id, duplicate, shard)


def _nacked(result: m.SettleResult) -> m.Nacked | ItemRefusal:
    attempt, wait_ms, dead = result.attempt, result.visible_in_ms, result.dead_lettered
    if isinstance(attempt, UnsetType) or isinstance(wait_ms, UnsetType) or isinstance(dead, UnsetType):
        return _refusal_of(result.code, result.detail)
    return m.Nacked(attempt, wait_ms, dead)


def _extended(result: m.SettleResult) -> m.Extended | ItemRefusal:
    if isinstance(result.receipt, UnsetType) or isinstance(result.visible_until, UnsetType):
        return _refusal_of(result.code, result.detail)
    return m.Extended(result.receipt, result.visible_until)


def _refusal(result: m.SettleResult) -> ItemRefusal | None:
    return None if result.ok is True else _refusal_of(result.code, result.detail)


def _refusal_of(code: str | UnsetType, detail: str | UnsetType) -> ItemRefusal:
    """Read an item's refusal; one without a code is the node's fault, and what became of the item is not known."""
    if isinstance(code, UnsetType):
        return ItemRefusal("downstream_unavailable", "The answer does not say what became of the call.")
    return ItemRefusal(code, "" if isinstance(detail, UnsetType) else detail)
