"""One proxied request: asked in the callback that brought it, answered in the callback that brings the answer.

There is a task only where somebody has to wait for more than one thing: a connection that must be dialled or waited
for, a request body that is still coming in, an answer that is streamed. The listener's deadline of the request ends
it all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Hashable
from typing import TYPE_CHECKING, Final

from penstock.kernel.deadline import Deadline
from penstock.kernel.errors import Busy, Canceled, DownstreamUnavailable, PenstockError, Timeout
from penstock.net.calls.connection import ClientConnection
from penstock.net.calls.drive_callback import CallbackDriver
from penstock.net.calls.plan import Act, CallPlan, NextStep
from penstock.net.promise import Promise
from penstock.services.omnigate.gate.ticket import GateTicket
from penstock.services.omnigate.proxy.relay import RelayStream, endless, relay_stream, relay_whole
from penstock.wire.http1.head import CHUNKED

if TYPE_CHECKING:
    from penstock.net.calls.downstream import BreakerReport
    from penstock.net.message import Request
    from penstock.services.omnigate.proxy.routes import Proxy
    from penstock.services.omnigate.proxy.shares import TenantShares
    from penstock.services.omnigate.proxy.upstream import Upstream
    from penstock.wire.http1.answer import AnswerHead

IDEMPOTENT: Final = frozenset(("GET", "HEAD", "OPTIONS", "PUT", "DELETE"))
_CORR_LINE: Final = b"%bX-Corr-ID: %b\r\nX-Deadline-Ms: %d\r\n"
_SLACK_S: Final = 0.001


class ProxyCall(Promise):
    """The promise of an answer from one of a route's upstreams, with its retries and its hedge."""

    __slots__ = (
        "_body", "_driver", "_due", "_fields", "_path", "_receiving", "_upload_owed", "key", "method", "proxy",
        "request", "spooled_bytes", "uploads",
    )  # fmt: skip

    op = "rpc"

    def __init__(self, proxy: Proxy, request: Request, key: Hashable, path: bytes, fields: bytes) -> None:
        """Take path and fields as the upstream gets them; `key` says whose share of the connections it uses."""
        super().__init__()
        self.proxy = proxy
        self.request = request
        self.method = request.method
        # The body follows the head, piece by piece; otherwise it is here, or there is none.
        self.uploads = request.head.length != 0 and not request.body
        self._body = request.body
        self.key = key
        # Set while an upload is counted that no task of its own has begun to send.
        self._upload_owed = False
        # Receives the body before anybody is asked, where the share of uploads is used up.
        self._receiving: asyncio.Task[None] | None = None
        self.spooled_bytes = 0
        self._path = path
        self._fields = fields
        self._due = request.received_at + request.timeout_s
        self._driver: CallbackDriver[ProxyAttempt] = CallbackDriver()

    # --- tries

    def start(self, now: float) -> None:
        """Ask the first time; raises what is known at once."""
        if self.uploads and not self.proxy.shares.begin_upload(self.key):
            self._receiving = self.proxy.scope.start(self._receive())
            return
        self._upload_owed = self.uploads
        try:
            self._begin_try(now, None, hedge=False)
        except PenstockError:
            self._release()
            raise
        wait_s = self.proxy.hedge_after_s(self.method)
        if wait_s is not None and self._driver.alive:
            self._driver.hedge_after(wait_s, self)

    async def _receive(self) -> None:
        """Take the body in at its client's pace, which costs no connection, and ask when it is whole."""
        pieces: list[bytes] = []
        try:
            async for piece in self.request.stream():
                self.proxy.spool(self, len(piece))
                pieces.append(piece)
            self._receiving = None
            self.uploads, self._body = False, b"".join(pieces)
            self.begin_try(None, hedge=False)
        except PenstockError as error:
            self.resolve(error)

    def upload_begins(self, task: asyncio.Task[None]) -> None:
        """Leave it to the task that sends the body to say when that is over."""
        if self._upload_owed:
            self._upload_owed = False
            task.add_done_callback(self._upload_ended)

    def _upload_ended(self, _task: asyncio.Task[None]) -> None:
        self.proxy.shares.end_upload(self.key)

    def resolve(self, result: object) -> None:
        """Answer; what was received is not needed any more."""
        self._release()
        super().resolve(result)

    def _release(self) -> None:
        """Give back what is held of the route's shares and of the node's bytes; the second time does nothing."""
        if self._upload_owed:
            self._upload_owed = False
            self.proxy.shares.end_upload(self.key)
        if self.spooled_bytes:
            self._body = b""
            self.proxy.unspool(self)

    def begin_try(self, beside: ProxyAttempt | None, *, hedge: bool) -> None:
        """Ask an upstream, rather another than the one of `beside`."""
        self._begin_try(self.proxy.monotonic(), None if beside is None else beside.upstream, hedge=hedge)

    def _begin_try(self, now: float, shunned: Upstream | None, *, hedge: bool) -> None:
        upstream, trial = self.proxy.choose(now, shunned)
        attempt = ProxyAttempt(self, upstream, trial, hedge=hedge)
        self._driver.alive.append(attempt)
        attempt.begin()

    def make_plan(self) -> CallPlan:
        """Make the plan of a call that something happened to."""
        proxy = self.proxy
        repeatable = proxy.route.retry and self.method in IDEMPOTENT and not self.uploads
        return CallPlan(proxy.rules, Deadline(self._due, self.request.timeout_s), repeatable=repeatable)

    def request_bytes(self, upstream: Upstream, now: float) -> bytes:
        """Write the request as this upstream gets it, with the time that is left."""
        left_ms = max(1, int((self._due - now) * 1000))
        tail = _CORR_LINE % (self._fields, self.request.corr, left_ms)
        start = b"%b %b%b%b%b" % (self.method.encode("ascii"), upstream.base, self._path, upstream.host_line, tail)
        if self.uploads:
            length = self.body_bytes
            framing = b"Transfer-Encoding: chunked" if length is None else b"Content-Length: %d" % length
            return b"%b%b\r\n\r\n" % (start, framing)
        body = self._body
        if body or self.method not in _BODILESS:
            return b"%bContent-Length: %d\r\n\r\n%b" % (start, len(body), body)
        return start + b"\r\n"

    @property
    def body_bytes(self) -> int | None:
        """Return the length of the body that follows, if it is known: inflating leaves it open."""
        head = self.request.head
        return None if head.length == CHUNKED or head.encoded else head.length

    # --- what becomes of a try

    def answered(self, attempt: ProxyAttempt, head: AnswerHead, body: bytes) -> None:
        """Take a whole answer."""
        if head.status in self.proxy.retries.statuses and self._try_again(attempt, head):
            return
        self._settle(attempt)
        self.resolve(relay_whole(head, body, self.proxy.date))

    def begun(self, attempt: ProxyAttempt, head: AnswerHead, connection: ClientConnection) -> None:
        """Take an answer whose body is on its way; from here on the client's pace and the read timeout rule."""
        if head.status in self.proxy.retries.statuses and self._try_again(attempt, head):
            attempt.drop(Canceled())
            return
        self._settle(attempt)
        if self.done:
            attempt.drop(Canceled())
            return
        ticket = self.request.ticket
        taker = ticket if isinstance(ticket, GateTicket) else None
        # Nobody knows how much of another body is left: that is passed on to its end, or until the drain's deadline.
        shutdown = self.request.shutdown if endless(head) else None
        stream = RelayStream(attempt, connection, self.key, taker, shutdown)
        self.resolve(relay_stream(head, stream, self.proxy.date))

    def lost(self, attempt: ProxyAttempt, error: PenstockError) -> None:
        """Take the failure of a try; it is the answer unless another runs or will."""
        proxy, driver = self.proxy, self._driver
        if self.done:
            driver.alive.remove(attempt)
            return
        plan = driver.plan_of(self)
        step = proxy.retries.after_error(plan, error, proxy.monotonic(), others=len(driver.alive) - 1)
        if not self._repeats(attempt, step):
            proxy.retries.count(plan, 0)
            driver.cancel(Canceled())
            self.resolve(error)

    def _try_again(self, attempt: ProxyAttempt, head: AnswerHead) -> bool:
        """Tell whether this status is let go for another try: a hedge that runs, or one after a pause."""
        proxy, driver = self.proxy, self._driver
        plan = driver.plan_of(self)
        step = proxy.retries.after_head(plan, head, proxy.monotonic(), others=len(driver.alive) - 1)
        return self._repeats(attempt, step)

    def _repeats(self, attempt: ProxyAttempt, step: NextStep) -> bool:
        driver = self._driver
        if not driver.repeats(self, attempt, step):
            return False
        if step.act is Act.TRY:
            self.proxy.retries.count(driver.plan_of(self), 0)
        return True

    # --- the end

    def _settle(self, winner: ProxyAttempt) -> None:
        """Let everything else go: the answer is here."""
        plan = self._driver.plan
        if plan is not None:
            self.proxy.retries.count(plan, winner.status)
        if self._driver.settle(winner):
            self.proxy.counts.hedged(won=winner.hedge)

    def cancel(self) -> None:
        """Give up, because the deadline passed or the client left: the connections under way are not used again."""
        super().cancel()
        if self._receiving is not None:
            self._receiving.cancel()
        # A client that gave less time than it need have says nothing about the upstream.
        late = self.request.timeout_s >= self.proxy.patience_s and self.proxy.monotonic() >= self._due - _SLACK_S
        reason = Timeout("read", budget_s=self.request.timeout_s) if late else Canceled()
        self._driver.cancel(reason)
        self._release()


_BODILESS: Final = frozenset(("GET", "HEAD", "OPTIONS", "DELETE"))


class ProxyAttempt:
    """One try of a call at one upstream: it owns the connection until the answer is here or streamed to its end."""

    __slots__ = ("_call", "_connection", "_in_line", "_task", "_trial", "hedge", "status", "upstream")

    def __init__(self, call: ProxyCall, upstream: Upstream, trial: BreakerReport, *, hedge: bool) -> None:
        """Owe the breaker one outcome."""
        self.upstream = upstream
        self.hedge = hedge
        self.status = 0
        self._call = call
        self._trial = trial
        self._connection: ClientConnection | None = None
        # It waits for others to be done, not for the upstream.
        self._in_line = False
        # Dials or waits for a connection, then sends the body; None when neither is needed.
        self._task: asyncio.Task[None] | None = None

    @property
    def shares(self) -> TenantShares:
        """Return what of the route's connections is held by slow clients."""
        return self._call.proxy.shares

    def begin(self) -> None:
        """Ask at once on a kept connection, or start to get one."""
        connection = self.upstream.pool.take_idle()
        if connection is None:
            self._in_line = self.upstream.pool.full
            self._start(self._connect(fresh=False))
        else:
            self._ask(connection)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        try:
            self._task = self._call.proxy.scope.start(work)
        except Busy as busy:
            self.failed(busy)

    async def _connect(self, *, fresh: bool) -> None:
        pool = self.upstream.pool
        try:
            connection = await (pool.fresh() if fresh else pool.acquire())
        except PenstockError as error:
            self._task = None
            self.failed(error)
            return
        self._task, self._in_line = None, False
        self._ask(connection)

    def _ask(self, connection: ClientConnection) -> None:
        call, self._connection = self._call, connection
        data = call.request_bytes(self.upstream, call.proxy.monotonic())
        connection.ask(call.method, data, self, body_follows=call.uploads)
        if call.uploads:
            self._start(self._upload(connection))
            if self._task is not None:
                call.upload_begins(self._task)

    async def _upload(self, connection: ClientConnection) -> None:
        """Send the body as it comes in; what ends it early ends the call, or cuts the answer that has begun."""
        call = self._call
        try:
            await connection.upload(call.request.stream(), call.body_bytes, call.request.timeout_s)
        except PenstockError as error:
            connection.fail(error)
        finally:
            self._task = None

    # --- the taker's side

    def whole(self, head: AnswerHead, body: bytes) -> None:
        """Give the connection back and the answer on."""
        self._heard(head)
        self.let_go()
        self._call.answered(self, head, body)

    def begun(self, head: AnswerHead) -> None:
        """Keep the connection until the body was passed on."""
        self._heard(head)
        assert self._connection is not None
        self._call.begun(self, head, self._connection)

    def _heard(self, head: AnswerHead) -> None:
        self.status = head.status
        self._call.proxy.observe(self._trial.answered(head.status, self._call.proxy.monotonic()))

    def cut_short(self, error: PenstockError) -> None:
        """Hear that an answer which has begun will not end; a client that went away is nobody's fault."""
        if not isinstance(error, Canceled):
            self._call.proxy.counts.failed(error)

    def failed(self, error: PenstockError) -> None:
        """Close the connection; a kept one that died unnoticed is replaced once, which is no retry."""
        connection, call = self._connection, self._call
        self.let_go()
        if connection is not None and connection.died_unseen and self._may_resend(error):
            self._start(self._connect(fresh=True))
            return
        self._trial.end(error, call.proxy.monotonic())
        call.proxy.counts.failed(error)
        call.lost(self, error)

    def _may_resend(self, error: PenstockError) -> bool:
        return isinstance(error, DownstreamUnavailable) and self._call.method in IDEMPOTENT and not self._call.uploads

    def let_go(self) -> None:
        """Give the connection back to its pool, which closes it unless the exchange is over on both sides."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        connection, self._connection = self._connection, None
        if connection is not None:
            self.upstream.pool.release(connection)

    def drop(self, reason: PenstockError) -> None:
        """End a try that nobody waits for: its connection is cut, and the breaker hears why."""
        if not self.status:
            self._trial.end(Canceled() if self._in_line else reason, self._call.proxy.monotonic())
        if self._connection is not None:
            self._connection.drop()
        self.let_go()
