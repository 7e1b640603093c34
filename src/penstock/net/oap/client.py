"""The OAP/1 client: one connection, many calls at once; deadlines, cancel, reconnect with backoff, close."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.contracts.call import NOBODY, Call
from penstock.contracts.method import Method, Methods
from penstock.kernel.backoff import CALLS, MAX_TRIES, Backoff, RetryBudget, Rng
from penstock.kernel.deadline import current_deadline, no_deadline, timeout
from penstock.kernel.errors import Busy, Closed, DownstreamUnavailable, NotReady, OverLimit, PenstockError
from penstock.kernel.inventory import Inventory
from penstock.kernel.log import Log
from penstock.kernel.metrics import Histogram, Metrics
from penstock.kernel.resource import Resource
from penstock.kernel.worker import current_corr_id
from penstock.net.oap.call import RequestHead
from penstock.net.oap.calling import OapClientConnection
from penstock.net.oap.connection import FrameTimeouts
from penstock.wire.oap.frame import CAPABILITY_BYTES_MAX, REQ, Frame
from penstock.wire.oap.hello import MAX_INFLIGHT, Hello
from penstock.wire.oap.problem import decode_problem
from penstock.wire.oap.stream import ANSWER_BYTES_MAX, OapAnswer, StreamTable

OK: Final = 200
Dial = Callable[[Callable[[], OapClientConnection]], Awaitable[tuple[asyncio.BaseTransport, OapClientConnection]]]
OnEvent = Callable[[int, int, bytes], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class OapClientOptions:
    """Whom to call and within which bounds."""

    uds_path: Path | None = None
    host: str = ""
    port: int = 0
    ua: str = "penstock"
    connect_timeout_s: float = 2.0
    call_timeout_s: float = 5.0
    close_timeout_s: float = 1.0
    max_inflight: int = MAX_INFLIGHT
    max_frame: int | None = None
    answer_bytes_max: int = ANSWER_BYTES_MAX
    # Tries of an idempotent call; a caller with a discipline of its own says 1.
    tries_max: int = MAX_TRIES
    backoff: Backoff = CALLS
    # For a peer that may not be configured at all: the text of `NotReady` while its socket does not exist.
    absent: str = ""
    # Shorter than a server's idle time, so that it is us who close and no call meets a closing connection.
    waits: FrameTimeouts = field(default_factory=lambda: FrameTimeouts(idle_s=30.0))


class OapClient(Resource):
    """Calls one peer. The connection is made by the first call that needs one, and again after it broke."""

    def __init__(
        self,
        inventory: Inventory,
        options: OapClientOptions,
        *,
        on_event: OnEvent | None = None,
        dial: Dial | None = None,
        rng: Rng | None = None,
    ) -> None:
        """Take the peer's address; `dial` replaces it with a transport that is no socket."""
        self._options = options
        self._on_event = on_event
        self._dial = dial or self._dial_socket
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not a secret
        self._metrics: Metrics = inventory.metrics
        self._log = Log(inventory.service)
        self._timeouts = {
            op: inventory.metrics.counter("io_timeouts_total", "I/O deadlines that passed.", op=f"oap_client_{op}")
            for op in ("read", "write")
        }
        self._latencies: dict[int, Histogram] = {}
        self._retries = RetryBudget()
        # The latest connection from the moment it is dialled, so that close() finds it in any state.
        self._connection: OapClientConnection | None = None
        # Set while one call dials; the others wait for it to have tried.
        self._dialling: asyncio.Future[None] | None = None
        self._calls = 0
        self._failures = 0
        # True after the first connection: a peer that is gone later has failed, and is not merely absent.
        self._met = False
        self._retry_at = 0.0
        self._shut = False

    # --- calls

    @property
    def full(self) -> bool:
        """Tell whether as many calls are under way as one connection takes."""
        return self._calls >= self._options.max_inflight

    async def call(
        self,
        methods: Methods,
        name: str,
        value: object,
        call: Call = NOBODY,
    ) -> Any:  # noqa: ANN401 - the method table says what comes back
        """Ask and wait for the answer: min(own timeout, the caller's deadline). Raises what the peer raised.

        Cancelling withdraws the request at the peer. A method marked idempotent is tried again when the connection
        breaks; any other then fails with `outcome: unknown`, because the peer may have done it.
        """
        if self.full:
            raise Busy("As many calls are under way as the peer takes.", queue="oap_calls")
        method = methods.by_name[name]
        self._calls += 1
        try:
            async with timeout(f"{methods.service}.{name}", self._options.call_timeout_s):
                answer = await self._try(methods, method, value, call)
        finally:
            self._calls -= 1
        if answer.code != OK:
            raise decode_problem(answer.code, answer.payload)
        return methods.decode_answer(method, answer.payload)

    async def _try(self, methods: Methods, method: Method, value: object, call: Call) -> OapAnswer:
        self._retries.record_call(self._now())
        tries_max = self._options.tries_max
        for attempt in range(tries_max):
            try:
                connection = await self._connected()
                return await self._ask(connection, methods, method, self._request(methods, method, value, call))
            except DownstreamUnavailable:
                last = attempt == tries_max - 1
                if self._shut or last or not method.idempotent or not self._retries.allow(self._now()):
                    raise
            op = f"{methods.service}.{method.name}"
            self._metrics.counter("backoff_retries_total", "Calls tried again.", op=op).value += 1
            await asyncio.sleep(self._options.backoff.delay(attempt, self._rng))
        raise AssertionError("the last attempt returns or raises")

    def _request(self, methods: Methods, method: Method, value: object, call: Call) -> Frame:
        """Write the request; what is left of the deadline is measured here, so a retry sends less."""
        if method.check_request is not None:
            method.check_request(value)
        capability = call.capability.encode("ascii", "replace")
        if len(capability) > CAPABILITY_BYTES_MAX:
            raise OverLimit("The capability is too long.", limit="token_bytes")
        head = RequestHead(
            self._budget_ms(),
            call.corr_id or current_corr_id(),
            call.traceparent,
            call.origin,
            msgspec.Raw(msgspec.msgpack.encode(value)),
        )
        payload = msgspec.msgpack.encode(head)
        return Frame(REQ, 0, method.code, methods.app_proto_id, call.tenant_id, capability, payload)

    def _budget_ms(self) -> int | None:
        deadline = current_deadline()
        return None if deadline is None else int(deadline.remaining(self._now()) * 1000)

    async def _ask(
        self, connection: OapClientConnection, methods: Methods, method: Method, request: Frame
    ) -> OapAnswer:
        started = self._now()
        reply = connection.ask(request)
        try:
            return await reply
        finally:
            if not reply.done() or reply.cancelled():
                connection.withdraw(reply)
            self._latency(methods).observe(self._now() - started)

    def _latency(self, methods: Methods) -> Histogram:
        found = self._latencies.get(methods.app_proto_id)
        if found is None:
            service = methods.service or str(methods.app_proto_id)
            found = self._latencies[methods.app_proto_id] = self._metrics.histogram(
                "downstream_latency_seconds", "Time a downstream took to answer.", service=service
            )
        return found

    # --- events

    async def send_event(self, methods: Methods, event: object) -> bool:
        """Push an event to the peer; False when it is too slow to take it now."""
        payload = msgspec.msgpack.encode(event)
        async with timeout("oap_event", self._options.call_timeout_s):
            connection = await self._connected()
        return connection.event(methods.app_proto_id, methods.event_code(event), payload)

    # --- the connection

    async def connect(self) -> None:
        """Connect without calling: to learn early whether the peer is there, or to receive its events."""
        async with timeout("oap_connect", self._options.connect_timeout_s):
            await self._connected()

    async def _connected(self) -> OapClientConnection:
        """Return the live connection; one call dials, the others wait until it has tried."""
        while True:
            if self._shut:
                raise Closed("The client is closed.")
            if self._dialling is None and self._connection is not None and self._connection.is_open:
                return self._connection
            if self._dialling is None:
                return await self._redial()
            # Shielded: a waiter that is cancelled must not cancel the others' signal.
            await asyncio.shield(self._dialling)

    async def _redial(self) -> OapClientConnection:
        """Dial once, after the pause that earlier failures earned.

        The waiters share a failure. A caller that leaves (cancelled, out of time) tells nothing about the peer: the
        next waiter dials then.
        """
        tried = self._dialling = asyncio.get_running_loop().create_future()
        try:
            await self._pause()
            return await self._dial_once(tried)
        finally:
            if not tried.done():
                tried.set_result(None)
            self._dialling = None

    async def _dial_once(self, tried: asyncio.Future[None]) -> OapClientConnection:
        try:
            async with timeout("oap_connect", self._options.connect_timeout_s):
                connection = await self._open()
        except (OSError, PenstockError) as exc:
            failure = self._unreached(exc)
            tried.set_exception(failure)
            tried.exception()
            raise failure from exc
        self._failures, self._met = 0, True
        return connection

    def _unreached(self, exc: OSError | PenstockError) -> PenstockError:
        """Return the error of a failed dial, with the time to try again; a socket that never existed is `NotReady`."""
        if self._options.absent and not self._met and isinstance(exc, FileNotFoundError):
            return NotReady(self._options.absent, phase="absent")
        self._retry_at = self._now() + self._options.backoff.delay(self._failures, self._rng)
        self._failures += 1
        return DownstreamUnavailable(f"The peer cannot be reached: {exc}")

    async def _pause(self) -> None:
        """Wait out the backoff, or refuse at once when the caller's deadline is nearer."""
        wait_s = self._retry_at - self._now()
        if wait_s <= 0:
            return
        deadline = current_deadline()
        if deadline is not None and deadline.remaining(self._now()) <= wait_s:
            raise DownstreamUnavailable("The peer was not there a moment ago.")
        await asyncio.sleep(wait_s)

    async def _open(self) -> OapClientConnection:
        _, connection = await self._dial(self._protocol)
        if self._shut:
            # Closed while dialling: nobody else knows of this connection.
            connection.abort()
            raise Closed("The client is closed.")
        if self.is_closed:
            self.opened(f"oap client {self._options.uds_path or self._options.host}")
        self._connection = connection
        try:
            await connection.greet(Hello(self._options.ua, self._options.max_frame))
        except BaseException:
            connection.abort()
            raise
        return connection

    def _protocol(self) -> OapClientConnection:
        options = self._options
        table = StreamTable(max_inflight=options.max_inflight + 1, answer_bytes_max=options.answer_bytes_max)
        return OapClientConnection(table, options.waits, self._timeouts, self._log, self._on_event)

    async def _dial_socket(
        self, protocol: Callable[[], OapClientConnection]
    ) -> tuple[asyncio.BaseTransport, OapClientConnection]:
        loop, options = asyncio.get_running_loop(), self._options
        async with timeout("oap_connect", options.connect_timeout_s):
            # The connection outlives the call that needed it first.
            with no_deadline():
                if options.uds_path is not None:
                    return await loop.create_unix_connection(protocol, str(options.uds_path))
                return await loop.create_connection(protocol, options.host, options.port)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def close(self) -> None:
        """Fail what is under way and close the socket; idempotent, bounded."""
        self._shut = True
        await super().close()

    async def _release(self) -> None:
        if self._connection is not None:
            await self._connection.shut(self._options.close_timeout_s)
