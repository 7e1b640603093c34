"""The HTTP/1.1 client: pooled, bounded, every wait under a deadline, every failure one of our errors.

| what happened | what the caller gets |
|---|---|
| refused, unreachable, breaker open | `DownstreamUnavailable`, 503 |
| garbage, a cut answer, hung up unanswered, too large | `DownstreamUnavailable`, 502 |
| a deadline passed | `Timeout` with the wait's name: call, acquire, connect, write, read, request_body |
| too many callers wait already | `Busy` |
| the client was closed meanwhile | `Canceled` |

A status is no error: it is the caller's to judge. Redirects are not followed and nothing is decompressed.
The request body is sent before the answer's body is read; a peer that refuses early ends the sending.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TypeVar, Unpack

from penstock.kernel.backoff import Rng
from penstock.kernel.deadline import Deadline, timeout, use_deadline
from penstock.kernel.errors import Busy, Canceled, DownstreamUnavailable, Timeout
from penstock.kernel.inventory import Inventory
from penstock.kernel.resource import Resource
from penstock.net.calls.answer import Answer, StreamAnswer
from penstock.net.calls.call import (
    CallOptions,
    ClientCall,
    ClientOptions,
    make_call,
)
from penstock.net.calls.downstream import OpenAnswer, OriginState
from penstock.net.calls.drive_task import RetryPauses, TryAgain, drive
from penstock.net.calls.origin import HttpOrigin
from penstock.net.calls.plan import Act, CallPlan
from penstock.net.calls.pool import ClientShared, Dial
from penstock.net.calls.retry import HttpRetries

__all__ = ["Answer", "CallOptions", "ClientOptions", "HttpClient", "StreamAnswer"]

T = TypeVar("T")
Finish = Callable[[OpenAnswer], Awaitable[T]]


class HttpClient(Resource):
    """Calls to one downstream service, at one origin or several. Close it, or use it by `async with`."""

    def __init__(
        self,
        inventory: Inventory,
        options: ClientOptions | None = None,
        *,
        rng: Rng | None = None,
        dial: Dial | None = None,
    ) -> None:
        """Declare the client's limits and timeouts; nothing is dialled before the first call."""
        self._options = options or ClientOptions()
        self._shared = ClientShared(self._options, inventory.metrics, dial)
        self._retries = HttpRetries(self._options, inventory.metrics, rng)
        self._latency = inventory.metrics.histogram(
            "downstream_latency_seconds", "From the call to its answer.", service=self._options.service
        )
        self._pauses = RetryPauses()
        self._downstreams: dict[HttpOrigin, OriginState] = {}
        self._declare(inventory)
        self.opened(f"http_client {self._options.service}")

    async def request(self, method: str, url: str, **said: Unpack[CallOptions]) -> Answer:
        """Make a call and return its whole answer."""
        return await self._run(make_call(method, url, said, self._options, whole=True), self._take_all)

    def stream(self, method: str, url: str, **said: Unpack[CallOptions]) -> Streaming:
        """Make a call whose answer is read as it comes: `async with client.stream("GET", url) as answer`."""
        call = make_call(method, url, said, self._options, whole=False)
        return Streaming(lambda: self._run(call, _hold))

    @property
    def connections(self) -> int:
        """Return how many connections are open, idle ones included."""
        return sum(downstream.pool.connections for downstream in self._downstreams.values())

    # --- one call, with its retries

    async def _run(self, call: ClientCall, finish: Finish[T]) -> T:
        loop = asyncio.get_running_loop()
        downstream = self._downstream(call.origin)
        downstream.calls += 1
        try:
            with use_deadline(Deadline.after(call.timeout_s, loop.time())) as deadline:
                assert deadline is not None
                if deadline.expired(loop.time()):
                    raise Timeout("call", budget_s=deadline.budget_s)
                downstream.budget.record_call(loop.time())
                plan = CallPlan(self._retries.rules(downstream.budget), deadline, repeatable=call.repeatable)
                return await drive(lambda: self._try(downstream, call, plan, finish), self._pauses.pause)
        finally:
            downstream.calls -= 1

    async def _try(self, downstream: OriginState, call: ClientCall, plan: CallPlan, finish: Finish[T]) -> T | TryAgain:
        """Try once; the breaker and the counters learn of it, whichever way it ends."""
        clock = asyncio.get_running_loop().time
        trial = downstream.admit(clock())
        plan.begin()
        try:
            opened = await downstream.open(call)
            step = self._retries.after_head(plan, opened.head, clock())
            if step.act is Act.TRY:
                opened.release()
                outcome: T | TryAgain = TryAgain(step.delay_s)
            else:
                outcome = await finish(opened)
        except (DownstreamUnavailable, Timeout) as error:
            trial.end(error, clock())
            self._retries.count(plan, 0)
            step = self._retries.after_error(plan, error, clock())
            if step.act is not Act.TRY:
                raise
            return TryAgain(step.delay_s)
        except BaseException as error:
            trial.end(error, clock())
            raise
        trial.answered(opened.head.status, clock())
        self._retries.count(plan, opened.head.status)
        return outcome

    async def _take_all(self, opened: OpenAnswer) -> Answer:
        """Read the body and give the connection back, whatever happens meanwhile."""
        try:
            answer = StreamAnswer(opened.head, opened.connection, opened.body)
            body = await answer.read(self._options.body_bytes_max)  # lint: allow PK009 each read is bounded inside
        finally:
            opened.release()
        return Answer(answer.status, answer.headers, answer.fields, body)

    # --- origins

    def _downstream(self, origin: HttpOrigin) -> OriginState:
        if self.is_closed:
            raise Canceled("The client was closed.")
        found = self._downstreams.get(origin)
        if found is None:
            self._make_room()
            found = self._downstreams[origin] = OriginState(origin, self._shared, self._latency)
        return found

    def _make_room(self) -> None:
        """Forget an origin without calls when `origins_max` is reached; raise `Busy` if each has some."""
        if len(self._downstreams) < self._options.origins_max:
            return
        for origin, downstream in self._downstreams.items():
            if downstream.quiet:
                downstream.pool.cut()
                del self._downstreams[origin]
                return
        raise Busy(f"Calls to too many origins of {self._options.service} are under way.", limit="client_origins")

    def _declare(self, inventory: Inventory) -> None:
        options, prefix = self._options, f"client.{self._options.service}"
        for op, seconds in (
            ("connect", options.connect_timeout_s),
            ("write", options.write_timeout_s),
            ("read", options.read_timeout_s),
            ("call", options.timeout_s),
        ):
            inventory.timeout(f"{prefix}.{op}", seconds, "Timeout, the connection is closed")
        live: Callable[[], dict[str, object]] = lambda: {"in_use": self.connections}  # noqa: E731
        inventory.limit(f"{prefix}.connections", options.connections_max, "an origin; none left: wait in line", live)
        inventory.limit(f"{prefix}.waiters", options.waiters_max, "an origin; full: Busy")
        inventory.limit(f"{prefix}.origins", options.origins_max, "full: an unused one is forgotten, else Busy")

    async def _release(self) -> None:
        """Cut every call and connection, and wait a moment for the sockets to be gone."""
        self._pauses.cut(Canceled("The client was closed."))
        for downstream in self._downstreams.values():
            downstream.pool.cut()
        with contextlib.suppress(Timeout):
            async with timeout("close", self._options.close_timeout_s):
                for downstream in self._downstreams.values():
                    await downstream.pool.emptied()


async def _hold(opened: OpenAnswer) -> OpenAnswer:  # noqa: RUF029 - a `Finish`, like the one that reads the body
    return opened


class Streaming:
    """A call that is made on entering the block; on leaving it the connection is given back, or cut if unfinished."""

    __slots__ = ("_answer", "_open", "_opened")

    def __init__(self, open_call: Callable[[], Awaitable[OpenAnswer]]) -> None:
        """Hold the call until the block is entered."""
        self._open = open_call
        self._opened: OpenAnswer | None = None
        self._answer: StreamAnswer | None = None

    async def __aenter__(self) -> StreamAnswer:
        """Make the call and wait for the answer's head."""
        opened = self._opened = await self._open()
        self._answer = StreamAnswer(opened.head, opened.connection)
        return self._answer

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        """Give the connection back; the answer cannot be read any more."""
        if self._answer is not None:
            self._answer.detach()
        if self._opened is not None:
            self._opened.release()
