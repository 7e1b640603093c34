"""One accepted OAP/1 connection: requests in, dispatch, answers out under the caller's deadline."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import msgspec

from penstock.contracts.call import Call
from penstock.contracts.method import Method
from penstock.kernel.deadline import Deadline, use_deadline
from penstock.kernel.errors import (
    Busy,
    Canceled,
    Forbidden,
    Internal,
    NotFound,
    PenstockError,
    Timeout,
    Unauthenticated,
)
from penstock.kernel.log import Log
from penstock.kernel.scope import Scope
from penstock.net.oap.call import RequestHead, read_head
from penstock.net.oap.connection import CANCEL, FrameConnection
from penstock.net.oap.service import OapCounters, OapServerOptions, OapService
from penstock.wire.oap.frame import (
    CONTROL,
    EVENT,
    RESP,
    Frame,
    split,
)
from penstock.wire.oap.problem import encode_problem
from penstock.wire.oap.stream import (
    Budget,
    Decision,
    OapControl,
    OapRefusal,
    OapRequest,
    StreamTable,
)

OK = 200


class OapEndpoint(Protocol):
    """What a connection needs of its server."""

    options: OapServerOptions
    counters: OapCounters
    services: dict[int, OapService]
    allowed_uids: frozenset[int]
    budget: Budget | None
    draining: bool
    log: Log

    @property
    def scope(self) -> Scope:
        """Where a request that needs a task gets it."""

    def admit(self, connection: OapServerConnection) -> bool:
        """Count a connection in, or refuse it."""

    def gone(self, connection: OapServerConnection) -> None:
        """Count a connection out."""

    def settled(self) -> None:
        """Note that a request has its answer."""


@dataclass(slots=True)
class _Job:
    """A request that is being worked on: the future of its answer and the timer of its deadline."""

    service: OapService
    method: Method
    corr_id: str
    reply: asyncio.Future[Any]
    timer: asyncio.TimerHandle


class OapServerConnection(FrameConnection):
    """Owned by its server from `admit` to `gone`."""

    def __init__(self, endpoint: OapEndpoint) -> None:
        options = endpoint.options
        table = StreamTable(
            max_inflight=options.max_inflight, request_bytes_max=options.request_bytes_max, budget=endpoint.budget
        )
        super().__init__(table, options.waits, endpoint.counters.timeouts, endpoint.log)
        self._endpoint = endpoint
        self._local = False
        self._jobs: dict[int, _Job] = {}
        self.lower(options.max_frame)

    # --- life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Check the peer's user before a byte is read."""
        super().connection_made(transport)
        uid = self.peer_uid
        self._local = uid is not None
        if not self._endpoint.admit(self):
            self._turn_away(Busy("Too many connections are open.", queue="oap_conns"))
        elif uid is not None and uid not in self._endpoint.allowed_uids:
            self._turn_away(Forbidden("This user may not connect here.", reason="peer_uid"))

    def _turn_away(self, error: PenstockError) -> None:
        self._endpoint.counters.refused(error)
        self.refuse(error)

    def lost(self, error: PenstockError | None) -> None:
        """Cancel the work that the peer asked for: nobody waits for the answers."""
        jobs, self._jobs = self._jobs, {}
        for job in jobs.values():
            job.timer.cancel()
            job.reply.cancel()
        self._endpoint.gone(self)

    # --- decisions

    def handle(self, decision: Decision) -> None:
        """Act on what the stream table decided."""
        if isinstance(decision, OapRequest):
            self._request(decision)
        elif isinstance(decision, OapControl):
            self._control(decision.frame)
        elif isinstance(decision, OapRefusal):
            self._refused(decision)

    def _refused(self, refusal: OapRefusal) -> None:
        """Close a stream that broke the rules, together with the work it started."""
        self._endpoint.counters.refused(refusal.error)
        self._forget(refusal.corr_id)
        if refusal.answer:
            self._problem(refusal.corr_id, refusal.error, CONTROL)
        self._endpoint.settled()

    def _control(self, frame: Frame) -> None:
        if frame.flags & EVENT:
            self._event(frame)
        elif frame.code == 0:
            self.welcome(frame)
        else:
            self._problem(frame.corr_id, NotFound("There is no such control request."), CONTROL)

    def _event(self, frame: Frame) -> None:
        if frame.app_proto_id == CONTROL:
            if frame.code == CANCEL:
                self._cancel(frame.corr_id)
            return
        service = self._endpoint.services.get(frame.app_proto_id)
        if service is None or service.on_event is None:
            self._endpoint.counters.events_lost.value += 1
            return
        try:
            service.on_event(service.methods.decode_event(frame.code, frame.payload))
        except PenstockError as error:
            self._endpoint.counters.refused(error)

    def _cancel(self, corr_id: int) -> None:
        """Cancel the work: the caller left. It is answered all the same, to free the stream's place in the window."""
        self._forget(corr_id)
        if self.table.settle(corr_id):
            self._problem(corr_id, Canceled("The caller no longer waits."), CONTROL)
            self._endpoint.settled()

    def _forget(self, corr_id: int) -> None:
        if (job := self._jobs.pop(corr_id, None)) is not None:
            job.timer.cancel()
            job.reply.cancel()

    # --- requests

    def _request(self, request: OapRequest) -> None:
        """Find the method, read the value, and start the work; whatever goes wrong is this request's answer."""
        endpoint = self._endpoint
        try:
            if endpoint.draining:
                raise endpoint.options.draining_error()
            service = endpoint.services.get(request.app_proto_id)
            if service is None:
                raise NotFound(f"Protocol {request.app_proto_id} is not served here.", reason="unknown_protocol")
            method = service.methods.method(request.code)
            head = read_head(request.payload)
        except PenstockError as error:
            endpoint.counters.refused(error)
            self._settle(request.corr_id, error, request.app_proto_id)
            return
        self._dispatch(request, service, method, head)

    def _dispatch(self, request: OapRequest, service: OapService, method: Method, head: RequestHead) -> None:
        deadline = self._deadline(head)
        try:
            value = service.methods.decode_request(method, head.value)
            call = self._call(request, head)
            with use_deadline(deadline):
                result = service.handle(method, value, call)
                if inspect.iscoroutine(result):
                    # The task is made inside the deadline, so it inherits it.
                    result = self._endpoint.scope.start(result, name=f"oap_{method.name}")
        except PenstockError as error:
            self._answer(request.corr_id, service, method, error)
        except Exception as bug:  # noqa: BLE001 - a handler's bug is this request's, not the connection's
            self._answer(request.corr_id, service, method, self._bug(bug, head.corr_id))
        else:
            if isinstance(result, asyncio.Future):
                self._wait(request.corr_id, _Job(service, method, head.corr_id, result, self._alarm(request, deadline)))
            else:
                self._answer(request.corr_id, service, method, result)

    def _deadline(self, head: RequestHead) -> Deadline:
        limit_s = self._endpoint.options.request_deadline_s
        budget_s = limit_s if head.budget_ms is None else min(limit_s, head.budget_ms / 1000)
        return Deadline.after(budget_s, self._loop.time())

    def _call(self, request: OapRequest, head: RequestHead) -> Call:
        """Say who asks; where the request first came in is believed only from a peer on the Unix socket."""
        try:
            capability = request.capability.decode("ascii")
        except UnicodeDecodeError as exc:
            raise Unauthenticated("The capability is not text.", reason="malformed") from exc
        origin = head.origin if self._local else None
        return Call(capability, head.corr_id, head.traceparent, request.tenant_id, origin)

    def _alarm(self, request: OapRequest, deadline: Deadline) -> asyncio.TimerHandle:
        return self._loop.call_at(deadline.at, self._overdue, request.corr_id, deadline.budget_s)

    def _wait(self, corr_id: int, job: _Job) -> None:
        self._jobs[corr_id] = job
        job.reply.add_done_callback(partial(self._done, corr_id))

    def _overdue(self, corr_id: int, budget_s: float) -> None:
        if (job := self._jobs.pop(corr_id, None)) is not None:
            job.reply.cancel()
            self._answer(corr_id, job.service, job.method, Timeout("oap_request", budget_s=budget_s))

    def _done(self, corr_id: int, reply: asyncio.Future[Any]) -> None:
        job = self._jobs.get(corr_id)
        error = None if reply.cancelled() else reply.exception()
        if job is None or job.reply is not reply:
            return
        del self._jobs[corr_id]
        job.timer.cancel()
        result: object
        if reply.cancelled():
            result = Canceled(corr_id=job.corr_id)
        elif isinstance(error, PenstockError):
            result = error
        elif error is not None:
            # A task's own scope has already counted and logged its bug.
            in_scope = isinstance(reply, asyncio.Task)
            result = Internal(corr_id=job.corr_id) if in_scope else self._bug(error, job.corr_id)
        else:
            result = reply.result()
        self._answer(corr_id, job.service, job.method, result)

    def _bug(self, bug: BaseException, corr_id: str) -> Internal:
        self._endpoint.counters.failed(bug)
        self._log.error("oap.request_failed", error=bug, corr_id=corr_id)
        return Internal(corr_id=corr_id)

    # --- answers

    def _answer(self, corr_id: int, service: OapService, method: Method, result: object) -> None:
        """Send a result or an error, unless the stream was closed before."""
        app = service.methods.app_proto_id
        try:
            if isinstance(result, PenstockError):
                raise result
            if method.check_answer is not None:
                method.check_answer(result)
            payload, status = msgspec.msgpack.encode(result), OK
        except PenstockError as error:
            payload, status = encode_problem(error), error.status
        except (TypeError, ValueError) as bug:
            internal = self._bug(bug, "")
            payload, status = encode_problem(internal), internal.status
        self._endpoint.counters.answered(service.methods, method, status)
        if self.table.settle(corr_id):
            self._write(corr_id, status, payload, app)
        self._endpoint.settled()

    def _settle(self, corr_id: int, error: PenstockError, app: int) -> None:
        if self.table.settle(corr_id):
            self._problem(corr_id, error, app)
        self._endpoint.settled()

    def _problem(self, corr_id: int, error: PenstockError, app: int) -> None:
        self._write(corr_id, error.status, encode_problem(error), app)

    def _write(self, corr_id: int, status: int, payload: bytes, app: int) -> None:
        frame = Frame(RESP, corr_id, code=status, app_proto_id=app, payload=payload)
        self.send(split(frame, frame_bytes_max=self.frame_bytes_max))
