"""HTTP to the contract and back; no decisions.

Send, recv and the settlements of one message go straight to the dispatcher.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.contracts import mailbox as m
from penstock.contracts.mailbox_batches import json_batch, unread_in
from penstock.contracts.mailbox_bodies import kind_attrs
from penstock.contracts.mailbox_rules import PAYLOAD_BYTES_MAX, check_batch, size_of
from penstock.contracts.plain_payloads import PlainSend, read_plain_send
from penstock.kernel.deadline import Deadline
from penstock.kernel.errors import Malformed
from penstock.net.bearer import bearer
from penstock.net.caller import call_of
from penstock.net.message import Response, StreamResponse
from penstock.net.promise import answer_of
from penstock.net.server.route import Route
from penstock.net.tracing import TRACER
from penstock.services.mailbox import bodies
from penstock.services.mailbox.api import settlements_of
from penstock.services.mailbox.bodies import AnySendBatch, ReceivedPlain, RecvIn, StreamIn
from penstock.services.mailbox.codec import JSON, JSON_TEXT
from penstock.services.mailbox.jobs import RequestMeta
from penstock.services.mailbox.stream import HEARTBEAT_S, RecvStream
from penstock.services.mailbox.tracing import with_sender
from penstock.wire.plain_words import fault_facts, plain_fault, size_text

if TYPE_CHECKING:
    from penstock.net.message import Request
    from penstock.net.promise import Promise
    from penstock.services.mailbox.api import MailboxApi, SettlementBatch
    from penstock.services.mailbox.authority import MailboxAuthority
    from penstock.services.mailbox.state import MailboxParts

_encode: Final = msgspec.json.Encoder().encode
_NDJSON: Final = b"application/x-ndjson"
_SETTINGS: Final = "/v1/topics/{topic}/settings"
_COMMON: Final = (
    "malformed",
    "unauthenticated",
    "expired",
    "forbidden",
    "over_limit",
    "unsupported",
    "not_ready",
    "internal",
)
_STREAM_S: Final = 86_400.0
Convert = Callable[[Any, str | None], Any]


class MailboxRoutes:
    """Every route of the mailbox."""

    def __init__(self, parts: MailboxParts, api: MailboxApi, authority: MailboxAuthority) -> None:
        self._parts = parts
        self._state = parts.state
        self._ledger = parts.state.ledger
        self._dispatcher = parts.dispatcher
        self._api = api
        self._authority = authority

    def routes(self) -> list[Route]:
        """Describe the routes; OpenAPI and the router read the same description."""
        post, get, put, delete = map(_describe, ("POST", "GET", "PUT", "DELETE"))
        sending = ("conflict", "integrity", "busy", "timeout", "downstream_unavailable")
        settling = ("not_found", "conflict", "busy", "timeout", "downstream_unavailable")
        setting = ("busy", "downstream_unavailable")
        missing = ("not_found",)
        back, whole = "Send dead letters back.", "Remove a topic whole."
        gone = "Remove dead letters for good."
        return [
            post("/v1/send", self._send, "send", "Store a message.", m.Send, m.Sent, sending),
            post("/v1/send/batch", self._send_batch, "send", "Store up to 256.", m.SendBatch, m.SentBatch, sending),
            post("/v1/send/{topic}", self._send_raw, "send", "Store the raw body as a message.", None, m.Sent, sending),
            post("/v1/recv", self._recv, "recv", "Lease messages.", RecvIn, ReceivedPlain, ("busy", "timeout")),
            post("/v1/recv/stream", self._stream, "recv", "Lease messages as they come.", StreamIn, None, ("busy",)),
            *(
                post(path + tail, self._settler(op, convert), op, text, body, settled, settling)
                for paths, op, text, body, settled, convert in _SETTLEMENTS
                for path in paths
                for tail in ("", "/{msg_id}")
            ),
            get("/v1/topics", self._topics, "recv", "Count topics, a page at a time.", None, m.TopicList, ()),
            get("/v1/topics/{topic}", self._topic, "recv", "Count one topic.", None, m.TopicStats, missing),
            get("/v1/topics/{topic}/peek", self._peek, "recv", "Look without taking.", None, m.PeekedList, missing),
            delete("/v1/topics/{topic}", self._delete_topic, "admin", whole, None, m.TopicDeleted, ("busy",)),
            get(_SETTINGS, self._settings, "recv", "Show a topic's settings.", None, m.SettingsShown, missing),
            put(_SETTINGS, self._put_settings, "admin", "Set a topic up.", m.TopicSettings, m.SettingsShown, setting),
            delete(_SETTINGS, self._delete_settings, "admin", "Set a topic back.", None, m.SettingsGone, setting),
            post("/v1/topics/{topic}/purge", self._purge, "admin", "Remove what waits.", None, m.Purged, ("busy",)),
            get("/v1/dlq", self._dlq, "admin", "Page through dead letters.", None, m.DlqPage, ()),
            post("/v1/dlq/reprocess", self._reprocess, "admin", back, m.Reprocess, m.Reprocessing, ("busy",)),
            post("/v1/dlq/delete", self._delete_dead, "admin", gone, m.DeleteDead, m.DeadDeleted, ("busy",)),
        ]  # fmt: skip

    # --- send and recv

    def _send(self, request: Request, send: m.Send) -> Any:  # noqa: ANN401 - typed by its caller
        if TRACER.sink is not None:
            send = with_sender(send, request.corr_id)
        waiting = self._authority.admit(request, "send", send.topic, size_of(send))
        self._note_sender(request, send.topic)
        if send.origin is not None:
            return self._send_moved(request, send, waiting)
        if waiting is not None:
            return _after(waiting, lambda: self._dispatcher.send(send, _meta(request)))
        return _now_or_later(self._dispatcher.send(send, _meta(request)))

    async def _send_moved(self, request: Request, send: m.Send, waiting: Awaitable[None] | None) -> Any:  # noqa: ANN401
        """Store a message that names its origin: only an operator of the topic may."""
        for each in (waiting, self._authority.admit(request, "admin", send.topic)):
            if each is not None:
                await each
        return await answer_of(self._dispatcher.send(send, _meta(request)))

    def _send_raw(self, request: Request) -> Any:  # noqa: ANN401 - typed by its caller
        headers = request.headers
        value = {
            "topic": request.params["topic"],
            "payload_b64": request.body,
            "idem_key": _text(headers.get(b"idempotency-key")),
            "payload_hash": _text(headers.get(b"x-payload-hash")),
            "attrs": kind_attrs(_text(headers.get(b"content-type"))),
        }
        return self._send(request, _convert(value, m.Send))

    def _send_batch(self, request: Request, batch: m.SendBatch) -> Any:  # noqa: ANN401 - typed by its caller
        """Store a batch without a task of its own if one like it was allowed a moment ago; otherwise judge it first."""
        topics = {send.topic for send in batch.messages}
        moved = {send.origin for send in batch.messages} != {None}
        if moved or TRACER.sink is not None or not self._authority.stands(request, "send", topics):
            judge = partial(self._authority.admit, request)
            return self._api.send_many(batch, call_of(request), _meta(request), judge)
        check_batch(batch.messages)
        for name in topics:
            self._note_sender(request, name)
        return _now_or_later(self._dispatcher.send_batch(batch.messages, _meta(request), unread_in(batch)))

    def _note_sender(self, request: Request, name: str) -> None:
        """Let a topic count for the tenant that is first seen sending to it."""
        topic = self._ledger.topics.get(name)
        if topic is not None and topic.tenant is None and not self._authority.open:
            topic.tenant = self._authority.tenant_of(bearer(request))

    def _recv(self, request: Request, recv: RecvIn) -> Any:  # noqa: ANN401 - typed by its caller
        asked = m.Recv(recv.topic, recv.max_messages, recv.visibility_ms, recv.wait_ms, recv.max_bytes)
        waiting = self._authority.admit(request, "recv", recv.topic)
        meta = self._watched(request, recv.topic) if recv.wait_ms else _meta(request)
        if recv.text:
            meta.codec = JSON_TEXT
        if waiting is not None:
            return _after(waiting, lambda: self._dispatcher.recv(asked, meta).promise)
        return _now_or_later(self._dispatcher.recv(asked, meta).promise)

    async def _stream(self, request: Request, asked: StreamIn) -> StreamResponse:
        waiting = self._authority.admit(request, "recv", asked.topic)
        if waiting is not None:
            await waiting
        self._dispatcher.check_intake()
        if asked.visibility_ms is not None:
            self._state.options.rules.check_visibility(asked.visibility_ms)
        recv = m.Recv(asked.topic, asked.max_messages, asked.visibility_ms, 0, asked.max_bytes)
        stream = RecvStream(self._parts, recv, asked.max_inflight)
        answer = StreamResponse(200, stream.lines(self._watched(request, asked.topic)), _NDJSON)
        # It is silent between heartbeats, and one may be preceded by a wait for credit.
        answer.chunk_s = 3 * HEARTBEAT_S
        return answer

    def _watched(self, request: Request, topic: str) -> RequestMeta:
        """Have a request that may wait judged again meanwhile, and answered when its listener drains."""
        meta = _meta(request)
        meta.shutdown = request.shutdown
        meta.rejudge = self._authority.watch(call_of(request), "recv", topic)
        return meta

    # --- settlements

    def _settler(self, op: str, convert: Convert) -> Callable[[Request, Any], Any]:
        def settle(request: Request, body: Any) -> Any:  # noqa: ANN401 - typed by its caller
            value = convert(body, request.params.get("msg_id"))
            if isinstance(value, m.AckBatch | m.NackBatch | m.ExtendBatch):
                return self._settle_batch(request, op, value)
            name = self._ledger.read_name(value.msg_id)
            if not self._authority.open:
                (topic,) = self._dispatcher.topics_of((name,))
                waiting = None if topic is None else self._authority.admit(request, op, topic)
                if topic is None or waiting is not None:
                    return self._settle_later(request, op, value, waiting)
            return _now_or_later(self._dispatcher.settle(value, name, _meta(request)))

        return settle

    def _settle_batch(self, request: Request, op: str, batch: SettlementBatch) -> Any:  # noqa: ANN401 - as written
        """Settle a batch as `_send_batch` stores one, if all of it is in RAM: then its topics are known at once."""
        items = settlements_of(batch)
        names = [self._ledger.read_name(item.msg_id) for item in items]
        topics = set(self._dispatcher.topics_of(names))
        if not topics or None in topics or not self._authority.stands(request, op, topics):
            judge = partial(self._authority.admit, request)
            return self._api.settle_many(op, batch, call_of(request), _meta(request), judge)
        check_batch(items)
        return _now_or_later(self._dispatcher.settle_batch(items, names, _meta(request), unread_in(batch)))

    async def _settle_later(
        self, request: Request, op: str, value: m.Settlement, waiting: Awaitable[None] | None
    ) -> Any:  # noqa: ANN401 - typed by its caller
        """Judge a settlement whose topic the disk has to be asked for, or whose capability takes long to verify."""
        name = self._ledger.read_name(value.msg_id)
        if waiting is None:
            # Nobody's token is worth a read of the disk.
            await self._authority.authenticate(call_of(request), op)
            topic = await self._api.topic_of(name, value.receipt)
            waiting = self._authority.allow(call_of(request), op, topic)
        if waiting is not None:
            await waiting
        return await answer_of(self._dispatcher.settle(value, name, _meta(request)))

    # --- looking and the operator

    async def _topics(self, request: Request) -> m.TopicList:
        return await self._api.topics(_convert(request.query_params(), m.GetTopics), call_of(request))

    async def _topic(self, request: Request) -> m.TopicStats:
        return await self._api.topic(_convert({"topic": request.params["topic"]}, m.GetTopic), call_of(request))

    async def _peek(self, request: Request) -> m.PeekedList:
        asked = {**request.query_params(), "topic": request.params["topic"]}
        return await self._api.peek(_convert(asked, m.Peek), call_of(request))

    async def _delete_topic(self, request: Request) -> m.TopicDeleted:
        return await self._api.delete_topic(
            _convert({"topic": request.params["topic"]}, m.DeleteTopic), call_of(request)
        )

    async def _settings(self, request: Request) -> m.SettingsShown:
        return await self._api.settings(_convert({"topic": request.params["topic"]}, m.GetSettings), call_of(request))

    async def _put_settings(self, request: Request, settings: m.TopicSettings) -> m.SettingsShown:
        topic = _convert({"topic": request.params["topic"]}, m.GetSettings).topic
        return await self._api.put_settings(m.PutSettings(topic, settings), call_of(request))

    async def _delete_settings(self, request: Request) -> m.SettingsGone:
        asked = _convert({"topic": request.params["topic"]}, m.DeleteSettings)
        return await self._api.delete_settings(asked, call_of(request))

    async def _purge(self, request: Request) -> m.Purged:
        return await self._api.purge(_convert({"topic": request.params["topic"]}, m.Purge), call_of(request))

    async def _dlq(self, request: Request) -> m.DlqPage:
        return await self._api.dlq(_convert(request.query_params(), m.GetDlq), call_of(request))

    async def _reprocess(self, request: Request, asked: m.Reprocess) -> Response:
        return Response(202, _encode(await self._api.reprocess(asked, call_of(request))))

    async def _delete_dead(self, request: Request, asked: m.DeleteDead) -> m.DeadDeleted:
        return await self._api.delete_dead(asked, call_of(request))


def _describe(method: str) -> Callable[..., Route]:
    def route(*columns: Any) -> Route:  # noqa: ANN401 - typed by its caller
        path, handler, op, summary, body, answer, errors = columns
        return Route(
            method=method,
            path=path,
            handler=handler,
            op=op,
            summary=summary,
            body=body,
            answer=answer,
            errors=(*_COMMON, *errors),
            deadline_s=_STREAM_S if path.endswith("/stream") else None,
            long_poll=path.startswith("/v1/recv"),
            reread=_REREAD.get(body),
            octets=path == "/v1/send/{topic}",
            body_advice=_TOO_LARGE if op == "send" else "",
            body_forms=_FORMS.get(body) or bodies.forms_of(body, in_path=path.endswith("{msg_id}")),
            body_too=PlainSend if body is m.Send else None,
            answer_many=m.SettledBatch if answer in _SETTLED and not path.endswith("}") else None,
            params=_PARAMS,
            query=_QUERIES.get(path) if method == "GET" else None,
        )

    return route


_TOO_LARGE: Final = (
    f"A message holds {size_text(PAYLOAD_BYTES_MAX)} at most, and Base64 makes it a third larger: "
    "store what is larger with penstock put, and send its address."
)
_SETTLED: Final = (m.Acked, m.Nacked, m.Extended)
_PARAMS: Final = {"topic": m.Topic, "msg_id": m.MsgId}
_QUERIES: Final = {"/v1/topics": m.GetTopics, "/v1/topics/{topic}/peek": m.Peek, "/v1/dlq": m.GetDlq}
# Forms of a body that its struct alone does not describe.
_FORMS: Final = {m.SendBatch: (AnySendBatch,)}
# How bodies are read that are not of the usual form: with a plain payload, and batches of which some items cannot be.
_REREAD: Final = {
    m.Send: read_plain_send,
    m.SendBatch: json_batch(m.SendBatch),
    bodies.AckIn: json_batch(m.AckBatch),
    bodies.NackIn: json_batch(m.NackBatch),
    bodies.ExtendIn: json_batch(m.ExtendBatch),
}
_SETTLEMENTS: Final = (
    (("/v1/ack", "/ack"), "ack", "Acknowledge: not delivered again.", bodies.AckIn, m.Acked, bodies.as_ack),
    (("/v1/nack", "/nack"), "nack", "Give back.", bodies.NackIn, m.Nacked, bodies.as_nack),
    (("/v1/extend",), "recv", "Lengthen a lease.", bodies.ExtendIn, m.Extended, bodies.as_extend),
)


def _meta(request: Request) -> RequestMeta:
    strict = request.headers.get(b"x-idempotency-mode") == b"409-conflict"
    began_at = request.received_at
    deadline = Deadline(began_at + request.timeout_s, request.timeout_s, began_at)
    return RequestMeta(request.corr.decode("ascii"), deadline, JSON, strict=strict)


def _now_or_later(promise: Promise) -> Any:  # noqa: ANN401 - typed by its caller
    """Return the answer if it is known already: a promise that is kept tells nobody."""
    return promise.result if promise.done else promise


async def _after(waiting: Awaitable[None], act: Callable[[], Promise]) -> Any:  # noqa: ANN401 - typed by its caller
    await waiting
    return await answer_of(act())


def _text(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise Malformed("A header is not UTF-8.") from exc


def _convert(value: dict[str, Any], kind: type) -> Any:  # noqa: ANN401 - typed by its caller
    """Read a value from a path, a query or headers by the same rules as a body; numbers come as text there."""
    try:
        return msgspec.convert(value, kind, strict=False, builtin_types=(bytes,))
    except msgspec.ValidationError as exc:
        raise Malformed(plain_fault(str(exc), kind), **fault_facts(str(exc))) from exc
