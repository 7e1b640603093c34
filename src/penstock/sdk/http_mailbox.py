"""The mailbox contract over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlencode

import msgspec

from penstock.contracts import mailbox as m
from penstock.contracts.call import NOBODY, Call
from penstock.contracts.mailbox_rules import PAYLOAD_BYTES_MAX, payload_too_large, size_of
from penstock.kernel.errors import OverLimit
from penstock.net.calls.client import Answer
from penstock.sdk.calling import Caller, PreparedCall, post
from penstock.wire.plain_words import size_text


class _Messages(msgspec.Struct, frozen=True):
    messages: tuple[m.Envelope, ...]


def _received(answer: Answer) -> m.Received:
    return m.Received(answer.json(_Messages).messages, inflight_full=b"x-inflight-full" in answer.headers)


class HttpMailbox:
    """Implements `penstock.contracts.mailbox.Mailbox` by the routes of svc-mailbox."""

    def __init__(self, caller: Caller) -> None:
        """Call through this; it is not owned."""
        self._caller = caller

    async def send(self, request: m.Send, call: Call = NOBODY) -> m.Sent:
        """Store a message; repeated by itself only when its idem_key makes that safe."""
        if size_of(request) > PAYLOAD_BYTES_MAX:
            raise payload_too_large(size_of(request), PAYLOAD_BYTES_MAX)
        return await self._caller.json(post("/v1/send", request, call, idempotent=request.idem_key is not None), m.Sent)

    async def send_batch(self, request: m.SendBatch, call: Call = NOBODY) -> m.SentBatch:
        """Store many, each on its own."""
        safe = all(send.idem_key is not None for send in request.messages)
        ask = post("/v1/send/batch", request, call, idempotent=safe)
        try:
            return await self._caller.json(ask, m.SentBatch)
        except OverLimit as error:
            if error.facts.get("limit") == "body":
                raise _batch_too_large(request, error) from error
            raise

    async def recv(self, request: m.Recv, call: Call = NOBODY) -> m.Received:
        """Lease messages; waits up to `wait_ms` for the first."""
        # Without the second form of the payload, which is for people and for other languages.
        asked = {**msgspec.to_builtins(request), "text": False}
        ask = post("/v1/recv", asked, call, wait_s=request.wait_ms / 1000)
        return await self._caller.parsed(ask, _received)

    async def ack(self, request: m.Ack, call: Call = NOBODY) -> m.Acked:
        """Acknowledge a message."""
        return await self._caller.json(post("/v1/ack", request, call, idempotent=True), m.Acked)

    async def ack_batch(self, request: m.AckBatch, call: Call = NOBODY) -> m.SettledBatch:
        """Acknowledge many messages, each on its own."""
        return await self._caller.json(post("/v1/ack", request, call, idempotent=True), m.SettledBatch)

    async def nack(self, request: m.Nack, call: Call = NOBODY) -> m.Nacked:
        """Give a message back."""
        return await self._caller.json(post("/v1/nack", request, call), m.Nacked)

    async def nack_batch(self, request: m.NackBatch, call: Call = NOBODY) -> m.SettledBatch:
        """Give many back, each on its own."""
        return await self._caller.json(post("/v1/nack", request, call), m.SettledBatch)

    async def extend(self, request: m.Extend, call: Call = NOBODY) -> m.Extended:
        """Lengthen a lease."""
        return await self._caller.json(post("/v1/extend", request, call, idempotent=True), m.Extended)

    async def extend_batch(self, request: m.ExtendBatch, call: Call = NOBODY) -> m.SettledBatch:
        """Lengthen many, each on its own."""
        return await self._caller.json(post("/v1/extend", request, call, idempotent=True), m.SettledBatch)

    # --- looking and the operator

    async def topics(self, request: m.GetTopics, call: Call = NOBODY) -> m.TopicList:
        """Count the topics that the call may see, a page at a time."""
        return await self._caller.json(_get("/v1/topics", msgspec.to_builtins(request), call), m.TopicList)

    async def topic(self, request: m.GetTopic, call: Call = NOBODY) -> m.TopicStats:
        """Count one topic."""
        return await self._caller.json(_get(_topic(request.topic), {}, call), m.TopicStats)

    async def peek(self, request: m.Peek, call: Call = NOBODY) -> m.PeekedList:
        """Look without taking."""
        # Only what is asked for: a node of an earlier version refuses the fields that it does not know.
        asked = {**msgspec.to_builtins(request), "payload": int(request.payload)}
        query = {name: value for name, value in asked.items() if name != "topic"}
        return await self._caller.json(_get(f"{_topic(request.topic)}/peek", query, call), m.PeekedList)

    async def purge(self, request: m.Purge, call: Call = NOBODY) -> m.Purged:
        """Remove everything of a topic."""
        ask = PreparedCall(path=f"{_topic(request.topic)}/purge", idempotent=True, call=call)
        return await self._caller.json(ask, m.Purged)

    async def dlq(self, request: m.GetDlq, call: Call = NOBODY) -> m.DlqPage:
        """Page through dead letters."""
        return await self._caller.json(_get("/v1/dlq", msgspec.to_builtins(request), call), m.DlqPage)

    async def reprocess(self, request: m.Reprocess, call: Call = NOBODY) -> m.Reprocessing:
        """Send dead letters back."""
        ask = post("/v1/dlq/reprocess", request, call, idempotent=request.dry_run)
        return await self._caller.json(ask, m.Reprocessing)

    async def delete_dead(self, request: m.DeleteDead, call: Call = NOBODY) -> m.DeadDeleted:
        """Remove dead letters for good."""
        return await self._caller.json(post("/v1/dlq/delete", request, call, idempotent=True), m.DeadDeleted)

    async def settings(self, request: m.GetSettings, call: Call = NOBODY) -> m.SettingsShown:
        """Show a topic's settings."""
        return await self._caller.json(_get(f"{_topic(request.topic)}/settings", {}, call), m.SettingsShown)

    async def put_settings(self, request: m.PutSettings, call: Call = NOBODY) -> m.SettingsShown:
        """Give a topic settings."""
        path, body = f"{_topic(request.topic)}/settings", msgspec.json.encode(request.settings)
        ask = PreparedCall(method="PUT", path=path, body=body, idempotent=True, call=call)
        return await self._caller.json(ask, m.SettingsShown)

    async def delete_settings(self, request: m.DeleteSettings, call: Call = NOBODY) -> m.SettingsGone:
        """Let a topic have the service's settings again."""
        ask = PreparedCall(method="DELETE", path=f"{_topic(request.topic)}/settings", idempotent=True, call=call)
        return await self._caller.json(ask, m.SettingsGone)

    async def delete_topic(self, request: m.DeleteTopic, call: Call = NOBODY) -> m.TopicDeleted:
        """Remove a topic whole."""
        ask = PreparedCall(method="DELETE", path=_topic(request.topic), idempotent=True, call=call)
        return await self._caller.json(ask, m.TopicDeleted)


def _batch_too_large(request: m.SendBatch, error: OverLimit) -> OverLimit:
    """Say of a batch what can be done about its size; as JSON it is a third larger."""
    count, size = len(request.messages), sum(map(size_of, request.messages))
    said = f"The batch of {count} messages with {size_text(size)} of payload is too large for one request."
    hint = f"Send fewer at once: {size_text(PAYLOAD_BYTES_MAX)} of payload together, and as much in a single message."
    refusal = OverLimit(said, limit="body")
    refusal.facts.update({**error.facts, "hint": hint})
    return refusal


def _get(path: str, query: Mapping[str, object], call: Call) -> PreparedCall:
    return PreparedCall(method="GET", path=f"{path}?{urlencode(query)}" if query else path, idempotent=True, call=call)


def _topic(name: str) -> str:
    return "/v1/topics/" + quote(name, safe="")
