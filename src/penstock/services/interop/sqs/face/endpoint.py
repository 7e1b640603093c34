"""HTTP to operations and back, in both protocols. Whatever refuses a request, the answer is one of the protocol's own.

A request is signed, so nothing of it is believed before the signature is checked. The check, the reading of the fields
and most refusals take no I/O and are done in the handler's own step. Operations on messages are errands to the mailbox,
which need no task; operations on queues are coroutines.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.kernel.errors import PenstockError
from penstock.net.message import Response
from penstock.net.server.core import RouteMatch
from penstock.net.server.route import Route
from penstock.services.interop.sqs import json_protocol, query_json, query_protocol
from penstock.services.interop.sqs.day_keys import DayKeys
from penstock.services.interop.sqs.face.asked import SqsAsked
from penstock.services.interop.sqs.face.backing import refusal_of
from penstock.services.interop.sqs.face.errands import Errand, ErrandReply
from penstock.services.interop.sqs.names import read_path
from penstock.services.interop.sqs.operations import OPERATIONS, SqsOperation
from penstock.services.interop.sqs.refusals import SqsRefusal
from penstock.services.interop.sqs.sigv4 import SignedRequest

if TYPE_CHECKING:
    from penstock.kernel.inventory import Inventory
    from penstock.net.message import HandlerResult, Request
    from penstock.services.interop.sqs.face.access_keys import AccessKey
    from penstock.services.interop.sqs.face.errands import Errands
    from penstock.services.interop.sqs.face.key_ring import KeyRing
    from penstock.services.interop.sqs.face.message_desk import MessageDesk
    from penstock.services.interop.sqs.face.move_desk import MoveDesk
    from penstock.services.interop.sqs.face.queue_desk import QueueDesk
    from penstock.services.interop.sqs.names import PathQueue
    from penstock.wire.http1.head import HttpHead

OP: Final = "sqs"
BODY_BYTES_MAX: Final = 8 << 20
# The longest wait of a receive, and two seconds.
DEADLINE_S: Final = 22.0
_PATHS: Final = (
    "/",
    "/sqs",
    "/sqs/",
    "/{account}/{queue}",
    "/sqs/{account}/{queue}",
    "/queue/{region}/{account}/{queue}",
)
# What is a path of this face although no route was found for it: another method, or a Host that is not ours.
_OURS: Final = re.compile(r"/(?:sqs/?|(?:sqs/)?[0-9]{12}/[^/]*|queue/[^/]*/[0-9]{12}/[^/]*)?")
_ERRORS: Final = (
    "malformed", "forbidden", "not_found", "over_limit", "busy", "rate_limited", "not_ready", "timeout",
    "downstream_unavailable", "internal",
)  # fmt: skip
_TRACE_CHARS_MAX: Final = 256
Perform = Callable[[SqsAsked], Awaitable[dict[str, Any]]]
Prepare = Callable[[SqsAsked], Errand | dict[str, Any]]


class SqsDesks:
    """Who does what: each operation's method by its name, those on messages apart."""

    def __init__(self, queues: QueueDesk, messages: MessageDesk, moves: MoveDesk, errands: Errands) -> None:
        """Take the three desks; every operation of the protocol is one's."""
        self.errands = errands
        self.on_messages: dict[str, Prepare] = {
            "ChangeMessageVisibility": messages.change_visibility,
            "ChangeMessageVisibilityBatch": messages.change_visibility_batch,
            "DeleteMessage": messages.delete,
            "DeleteMessageBatch": messages.delete_batch,
            "ReceiveMessage": messages.receive,
            "SendMessage": messages.send,
            "SendMessageBatch": messages.send_batch,
        }
        self.by_name: dict[str, Perform] = {
            "AddPermission": queues.add_permission,
            "CancelMessageMoveTask": moves.cancel,
            "CreateQueue": queues.create,
            "DeleteQueue": queues.delete,
            "GetQueueAttributes": queues.get_attributes,
            "GetQueueUrl": queues.get_url,
            "ListDeadLetterSourceQueues": queues.list_sources,
            "ListMessageMoveTasks": moves.list,
            "ListQueueTags": queues.list_tags,
            "ListQueues": queues.list,
            "PurgeQueue": queues.purge,
            "RemovePermission": queues.remove_permission,
            "SetQueueAttributes": queues.set_attributes,
            "StartMessageMoveTask": moves.start,
            "TagQueue": queues.tag,
            "UntagQueue": queues.untag,
        }


class SqsEndpoint:
    """The face's routes."""

    def __init__(self, inventory: Inventory, keys: KeyRing, desks: SqsDesks, *, url: str = "", rps: int = 0) -> None:
        """Take the keys and who does the work; `url` is what clients are told instead of the Host they asked."""
        self._keys = keys
        self._desks = desks.by_name
        self._on_messages = desks.on_messages
        self._errands = desks.errands
        self._url = url.rstrip("/")
        self._signers = DayKeys(keys.secret)
        self._wall: Callable[[], float] = inventory.clock.wall
        self._monotonic: Callable[[], float] = inventory.clock.monotonic
        self._rate = inventory.bucket("sqs_rps", rate=rps, depth=rps) if rps else None
        metrics = inventory.metrics
        self._requests = {
            name: metrics.counter("sqs_requests_total", "Operations of the SQS face that were understood.", op=name)
            for name in OPERATIONS
        }

    def routes(self) -> list[Route]:
        """Describe the routes."""
        return [self._route(method, path) for path in _PATHS for method in ("GET", "POST")]

    def gateway_routes(self, account: str) -> list[Route]:
        """Describe the routes for a gateway, where paths are scarce: only this account's, and at / only what posts."""
        paths = [path.replace("{account}", account) for path in _PATHS if path != "/"]
        return [self._route("POST", "/"), *(self._route(method, path) for path in paths for method in ("GET", "POST"))]

    def _route(self, method: str, path: str) -> Route:
        return Route(
            method=method,
            path=path,
            handler=self.handle,
            op=OP,
            open=True,
            raw_body=True,
            body_bytes_max=BODY_BYTES_MAX,
            deadline_s=DEADLINE_S,
            long_poll=True,
            summary="An operation of the SQS protocol, signed with an access key.",
            errors=_ERRORS,
        )

    # --- a request ----------------------------------------------------------------------------------------------------

    def handle(self, request: Request) -> HandlerResult:
        """Check and read a request, and have it done."""
        voice = _voice(request.head)
        try:
            if not self._keys.is_open:
                raise SqsRefusal("ServiceUnavailable", "The access keys are not read yet.")
            if self._rate is not None and not self._rate.try_take(self._monotonic()):
                raise SqsRefusal("RequestThrottled", "Rate exceeded.")
            path = read_path(request.path)
            key, region = self._signer(request)
            operation, fields = voice.read(request, path)
            name = operation.name
            prepare = self._on_messages.get(name)
            base = self.base(request) if prepare is None else ""
            asked = SqsAsked(name, fields, key, region, base, request.corr_id, path, _trace(request))
            self._requests[name].value += 1
            if prepare is None:
                return self._perform(asked, operation, voice)
            errand = prepare(asked)
            if not isinstance(errand, Errand):
                return voice.answer(operation, errand, asked.corr_id)
            request.timeout_s = min(request.timeout_s, errand.budget_s)
            result = self._errands.run(errand, partial(_concluded, operation, voice), request.shutdown)
            if errand.wait_s and not isinstance(result, Response) and not request.ticket.park():
                # At a gateway a receiver gives its slot back while it waits.
                _give_up(result)
                raise SqsRefusal("RequestThrottled", "Rate exceeded: too many receivers wait already.")
            return result
        except SqsRefusal as refusal:
            return voice.refuse(refusal, request.corr_id)
        except PenstockError as error:
            return voice.refuse(refusal_of(error), request.corr_id)

    def _signer(self, request: Request) -> tuple[AccessKey, str]:
        head, now = request.head, self._wall()
        target = head.target
        headers = head.headers if head.repeats is None else None
        signer = None
        if headers is not None and not target.query:
            signer = self._signers.known(head.method, target.path, headers, request.body, now)
        if signer is None:
            query = target.query.decode("ascii", "replace")
            signed = SignedRequest(head.method, target.path, query, request.fields, request.body)
            signer = self._signers.prove(signed, headers, now)
        key = self._keys.get(signer.key_id)
        if key is None:
            raise SqsRefusal("InvalidClientTokenId", "The security token included in the request is invalid.")
        return key, signer.region

    def base(self, request: Request) -> str:
        """Return the URL that clients are told: the configured one, else the one that this request came to."""
        if self._url:
            return self._url
        scheme = "https" if request.peer.secure else "http"
        return f"{scheme}://{request.headers.get(b'host', b'localhost').decode('ascii', 'replace')}"

    async def _perform(self, asked: SqsAsked, operation: SqsOperation, voice: _Voice) -> Response:
        try:
            answer = await self._desks[asked.operation](asked)
        except SqsRefusal as refusal:
            return voice.refuse(refusal, asked.corr_id)
        except PenstockError as error:
            return voice.refuse(refusal_of(error), asked.corr_id)
        return voice.answer(operation, answer, asked.corr_id)

    @staticmethod
    def words(head: HttpHead, error: PenstockError, corr_id: str) -> Response | None:
        """Write what the listener refuses in the protocol's words, on the paths of this face."""
        found = head.memo
        ours = found.route.op == OP if isinstance(found, RouteMatch) else _OURS.fullmatch(head.target.path)
        return _voice(head).refuse(refusal_of(error), corr_id) if ours else None


def _give_up(result: ErrandReply | Coroutine[Any, Any, Response]) -> None:
    if isinstance(result, ErrandReply):
        result.cancel()
    else:
        result.close()


def _concluded(operation: SqsOperation, voice: _Voice, errand: Errand, outcome: object) -> Response:
    """Write what an errand came to."""
    try:
        return voice.answer(operation, errand.conclude(outcome), errand.corr_id)
    except SqsRefusal as refusal:
        return voice.refuse(refusal, errand.corr_id)
    except PenstockError as error:
        return voice.refuse(refusal_of(error), errand.corr_id)


def _trace(request: Request) -> str:
    """Return the trace that a request is part of; one that is no legal text is none."""
    trace = request.headers.get(b"x-amzn-trace-id", b"")
    return trace.decode("ascii") if trace.isascii() and len(trace) <= _TRACE_CHARS_MAX else ""


# --- the two protocols -----------------------------------------------------------------------------------------------


class _Voice(Protocol):
    """How a client speaks: reads its requests, writes its answers."""

    def read(self, request: Request, path: PathQueue | None) -> tuple[SqsOperation, dict[str, Any]]:
        """Return which operation is asked for, and its fields."""
        ...

    def answer(self, operation: SqsOperation, answer: dict[str, Any], corr_id: str) -> Response:
        """Write what an operation answers."""
        ...

    def refuse(self, refusal: SqsRefusal, corr_id: str) -> Response:
        """Write a refusal."""
        ...


class _JsonVoice:
    def read(self, request: Request, path: PathQueue | None) -> tuple[SqsOperation, dict[str, Any]]:
        operation = json_protocol.operation_of(request.headers.get(b"x-amz-target", b""))
        return operation, json_protocol.decode_json(operation, request.body)

    def answer(self, operation: SqsOperation, answer: dict[str, Any], corr_id: str) -> Response:
        written = operation.on_messages
        body = json_protocol.encode_written(answer) if written else json_protocol.encode_json(operation, answer)
        return Response(200, body, json_protocol.CONTENT_TYPE, [(b"x-amzn-RequestId", corr_id.encode("ascii"))])

    def refuse(self, refusal: SqsRefusal, corr_id: str) -> Response:
        body, fields = json_protocol.encode_json_refusal(refusal)
        fields.append((b"x-amzn-RequestId", corr_id.encode("ascii")))
        return Response(refusal.status, body, json_protocol.CONTENT_TYPE, fields)


class _QueryVoice:
    def read(self, request: Request, path: PathQueue | None) -> tuple[SqsOperation, dict[str, Any]]:
        text = request.query if request.method == "GET" else request.body
        tree = query_protocol.decode_form(text)
        if request.method != "GET" and "Action" not in tree and request.query:
            tree = {**query_protocol.decode_form(request.query), **tree}
        if request.method == "GET" and "Action" not in tree:
            raise SqsRefusal("UnknownOperationException", "")
        operation = query_protocol.operation_of(tree)
        if path is not None:
            if not operation.asked_at_queue:
                raise query_protocol.not_valid_here(operation.name)
            # Older clients name the queue by the path alone.
            tree.setdefault("QueueUrl", request.path)
        return operation, query_protocol.decode_query(operation, tree)

    def answer(self, operation: SqsOperation, answer: dict[str, Any], corr_id: str) -> Response:
        body = query_protocol.encode_query(operation, answer, corr_id)
        return Response(200, body, query_protocol.CONTENT_TYPE, [(b"x-amzn-RequestId", corr_id.encode("ascii"))])

    def refuse(self, refusal: SqsRefusal, corr_id: str) -> Response:
        body = query_protocol.encode_query_refusal(refusal, corr_id)
        fields = [(b"x-amzn-RequestId", corr_id.encode("ascii"))]
        return Response(refusal.status, body, query_protocol.CONTENT_TYPE, fields)


class _QueryJsonVoice(_QueryVoice):
    """The query protocol for clients that read JSON: requests are the same."""

    def answer(self, operation: SqsOperation, answer: dict[str, Any], corr_id: str) -> Response:
        body = query_json.encode_query_json(operation, answer, corr_id)
        return Response(200, body, query_json.CONTENT_TYPE, [(b"x-amzn-RequestId", corr_id.encode("ascii"))])

    def refuse(self, refusal: SqsRefusal, corr_id: str) -> Response:
        if refusal.name == "UnknownOperationException":
            # AWS answers a request for nothing in XML, whatever is accepted.
            return super().refuse(refusal, corr_id)
        body = query_json.encode_query_json_refusal(refusal, corr_id)
        fields = [(b"x-amzn-RequestId", corr_id.encode("ascii"))]
        return Response(refusal.status, body, query_json.CONTENT_TYPE, fields)


_JSON: Final = _JsonVoice()
_QUERY: Final = _QueryVoice()
_QUERY_JSON: Final = _QueryJsonVoice()


def _voice(head: HttpHead) -> _Voice:
    """Tell the protocols apart by what only JSON clients send."""
    if b"x-amz-target" in head.headers or b"amz-json" in head.headers.get(b"content-type", b""):
        return _JSON
    return _QUERY_JSON if query_json.is_wanted(head.headers.get(b"accept", b"")) else _QUERY
