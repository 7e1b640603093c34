"""Makes calls of one kind together: performs what `joining` decides.

A call that finds nothing under way is made by its own task, as if there were no joining. The others gather, and a
task of the client makes the request for all of them. Each caller waits for its own answer: when it is cancelled or its
deadline passes, it leaves, and the request goes on for the others. A request that nobody waits for is cut.

| what happens | each caller of the request gets |
|---|---|
| the answer holds its result | the result |
| the answer refuses its item | the answer of a request of its own, with every fact of the error and the usual retries |
| the request is too large for the node | the same |
| the request fails | that error |
| the client is closed | `ClientClosed` |
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from penstock.kernel.deadline import Deadline, current_deadline, use_deadline
from penstock.kernel.errors import BY_CODE, DownstreamUnavailable, OverLimit, PenstockError
from penstock.kernel.scope import Scope
from penstock.sdk.errors import ClientClosed
from penstock.sdk.joining.join_queue import DEFAULT_LIMITS, GatheredCall, JoinBatch, JoinLimits, JoinQueue
from penstock.sdk.joining.place_line import PlaceLine
from penstock.wire.oap.problem import rebuild

Q = TypeVar("Q")
R = TypeVar("R")

# Calls of one kind that gather or are in flight together; above that a caller waits, within its deadline.
UNDER_WAY_MAX: Final = 2048
# Callers that wait for that; above that `Busy`.
WAITING_MAX: Final = 8192
# Refused items that ask again on their own at once.
_AGAIN_MAX: Final = 16
# After one of these it is not known whether the item was done.
_UNKNOWN: Final = frozenset({"canceled", "downstream_unavailable", "internal", "timeout"})


@dataclass(frozen=True, slots=True)
class ItemRefusal:
    """What an answer says of an item that was not done."""

    code: str
    detail: str

    def error(self) -> PenstockError:
        """Return it as the error it stands for."""
        kind = BY_CODE.get(self.code, DownstreamUnavailable)
        return rebuild(kind, self.detail, kind.status, {})


@dataclass(frozen=True, kw_only=True, slots=True)
class JoinedKind(Generic[Q, R]):
    """One kind of call: how it is made alone, how many are made together, and what of it may be repeated."""

    name: str
    one: Callable[[Q], Awaitable[R]]
    # Answers in the order of the requests.
    many: Callable[[tuple[Q, ...]], Awaitable[Sequence[R | ItemRefusal]]]
    # Safe to do twice.
    idempotent: bool = True


class _JoinedCall(GatheredCall[Q], Generic[Q, R]):
    """A gathered call with the future its caller waits for."""

    __slots__ = ("answer", "deadline", "flight")

    def __init__(self, request: Q, key: Hashable | None, size_bytes: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(request, key, size_bytes, loop.time())
        self.answer: asyncio.Future[R | ItemRefusal] = loop.create_future()
        self.deadline = current_deadline()
        # The request it is part of, once it has left.
        self.flight: _Flight[Q, R] | None = None


class _Flight(Generic[Q, R]):
    """One request under way: its calls, the task that makes it, and how many still wait for it."""

    __slots__ = ("batch", "task", "waiting")

    def __init__(self, batch: JoinBatch[_JoinedCall[Q, R]], task: asyncio.Task[None]) -> None:
        self.batch = batch
        self.waiting = len(batch.calls)
        # None once the request was answered: the task then makes another one, which is not to be cut.
        self.task: asyncio.Task[None] | None = task

    def leave(self) -> None:
        """Cut the request when its last caller leaves."""
        self.waiting -= 1
        if self.waiting == 0 and self.task is not None:
            self.task.cancel()


class CallJoiner(Generic[Q, R]):
    """Joins the calls of one kind. The tasks belong to `scope`, whose owner closes this too."""

    def __init__(self, kind: JoinedKind[Q, R], scope: Scope, limits: JoinLimits = DEFAULT_LIMITS) -> None:
        self._kind = kind
        self._scope = scope
        self.queue: JoinQueue[_JoinedCall[Q, R]] = JoinQueue(limits)
        self._room = PlaceLine(f"joined_{kind.name}", UNDER_WAY_MAX, waiting_max=WAITING_MAX)
        self._again = PlaceLine(f"refused_{kind.name}", _AGAIN_MAX, waiting_max=UNDER_WAY_MAX + WAITING_MAX)
        # Requests begin in a context of their own: the deadline of the caller that happens to be running is not the
        # others'.
        self._context = contextvars.Context()
        # Looks at the end of this turn of the loop which calls should go out.
        self._look: asyncio.Handle | None = None
        self._timer: asyncio.Handle | None = None
        # When it fires: uvloop returns a plain handle, which does not know, for an instant that has passed.
        self._timer_at = 0.0
        # What each task is making now.
        self._flights: dict[asyncio.Task[None], _Flight[Q, R]] = {}
        self._closed = False

    async def call(self, request: Q, *, key: Hashable | None = None, size_bytes: int = 0) -> R:
        """Make a call, together with others where that saves requests; the caller's deadline bounds it."""
        if self._closed:
            raise ClientClosed
        if self.queue.idle and not self._room.full:
            return await self._alone(request, key)
        await self._room.take()
        try:
            outcome = await self._together(request, key, size_bytes)
        finally:
            self._room.give()
        return await self._made_again(request, outcome) if isinstance(outcome, ItemRefusal) else outcome

    def close(self) -> None:
        """Refuse calls from now on, and end those that gather; requests in flight end with the scope."""
        self._closed = True
        self._stop_looking()
        for call in self.queue.withdraw_all():
            _fail(call, ClientClosed())

    # --- one call

    async def _alone(self, request: Q, key: Hashable | None) -> R:
        """Make the call in its own task; others gather meanwhile."""
        batch = self.queue.begin_alone(key)
        try:
            return await self._kind.one(request)
        finally:
            self._end(batch)

    async def _together(self, request: Q, key: Hashable | None, size_bytes: int) -> R | ItemRefusal:
        if self._closed:
            raise ClientClosed
        loop = asyncio.get_running_loop()
        call: _JoinedCall[Q, R] = _JoinedCall(request, key, size_bytes, loop)
        self.queue.add(call)
        if self._look is None:
            self._look_soon(loop)
        try:
            return await call.answer
        except asyncio.CancelledError:
            self._leave(call)
            raise

    def _leave(self, call: _JoinedCall[Q, R]) -> None:
        """Forget a caller that was cancelled or is out of time; the others of its request are left alone."""
        if not self.queue.withdraw(call) and call.flight is not None:
            call.flight.leave()

    async def _made_again(self, request: Q, refusal: ItemRefusal) -> R:
        """Ask on its own for what was refused as an item, unless that might do it twice."""
        if not self._kind.idempotent and refusal.code in _UNKNOWN:
            raise refusal.error()
        await self._again.take()
        try:
            return await self._kind.one(request)
        finally:
            self._again.give()

    # --- requests

    def _look_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look once for all calls of this turn of the loop: the callers of one request mostly call again together."""
        # lint: allow PK006 one look a kind of call, taken off the loop by close()
        self._look = loop.call_soon(self._on_look, context=self._context)

    def _on_look(self) -> None:
        self._look = None
        self._send_due()

    def _send_due(self) -> None:
        """Begin every request that should go out now, and look again when the next one is due."""
        loop = asyncio.get_running_loop()
        while (batch := self.queue.take(loop.time())) is not None:
            self._begin(batch)
        self._arm(loop, self.queue.due_at())

    def _on_timer(self) -> None:
        self._timer = None
        self._send_due()

    def _arm(self, loop: asyncio.AbstractEventLoop, due_at: float | None) -> None:
        """Look again then. The timer stays as it is when the first call is the same as before, as it mostly is."""
        if self._timer is not None and self._timer_at == due_at:
            return
        self._disarm()
        if due_at is not None:
            # lint: allow PK006 one timer a kind of call, taken off the loop by close()
            self._timer, self._timer_at = loop.call_at(due_at, self._on_timer), due_at

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_looking(self) -> None:
        self._disarm()
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def _begin(self, batch: JoinBatch[_JoinedCall[Q, R]]) -> None:
        task = self._scope.start(self._make_all(), name=f"joined {self._kind.name}")
        self._board(task, batch)
        # A task that is cancelled before its first step runs nothing of `_make_all`, so the end is noted here.
        task.add_done_callback(self._ended)

    def _board(self, task: asyncio.Task[None], batch: JoinBatch[_JoinedCall[Q, R]]) -> None:
        flight = self._flights[task] = _Flight(batch, task)
        for call in batch.calls:
            call.flight = flight

    async def _make_all(self) -> None:
        """Make a request; then, while the many callers it answered call again at once, the next one."""
        task = asyncio.current_task()
        assert task is not None
        while (flight := self._flights.get(task)) is not None:
            await self._make(flight.batch)
            if not self.queue.is_large(flight.batch):
                return
            flight.task = None
            # The callers run in this turn of the loop. Those that call again leave right behind them, before the
            # callers of another request that was answered at the same time run: so the node works on this request while
            # the program makes the other one. Until then the request counts as in flight.
            await asyncio.sleep(0)
            self._ended(task)
            batch = None if self._closed else self.queue.take(asyncio.get_running_loop().time())
            if batch is not None:
                self._board(task, batch)

    async def _make(self, batch: JoinBatch[_JoinedCall[Q, R]]) -> None:
        requests = tuple(call.request for call in batch.calls)
        try:
            with use_deadline(_latest(batch.calls)):
                answers = await self._ask(requests)
        except Exception as error:  # noqa: BLE001  # lint: allow PK015 whatever it is, the callers are told
            for call in batch.calls:
                _fail(call, error)
            return
        for call, answer in zip(batch.calls, answers, strict=True):
            if not call.answer.done():
                call.answer.set_result(answer)

    async def _ask(self, requests: tuple[Q, ...]) -> Sequence[R | ItemRefusal]:
        if len(requests) == 1:
            return (await self._kind.one(requests[0]),)
        try:
            answers = await self._kind.many(requests)
        except OverLimit as error:
            return [ItemRefusal(error.code, error.detail)] * len(requests)
        if len(answers) != len(requests):
            raise DownstreamUnavailable("The answer is about other calls.", status=502)
        return answers

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Note the end of the request that a task was making, if it was making one."""
        flight = self._flights.pop(task, None)
        if flight is None:
            return
        flight.task = None
        for call in flight.batch.calls:
            if not call.answer.done():
                # Only a closed client cuts a request that somebody waits for.
                _fail(call, ClientClosed())
        self._end(flight.batch)

    def _end(self, batch: JoinBatch[_JoinedCall[Q, R]]) -> None:
        self.queue.ended(batch)
        if not self._closed and len(self.queue) and self._look is None:
            self._look_soon(asyncio.get_running_loop())


def _latest(calls: Sequence[_JoinedCall[Q, R]]) -> Deadline | None:
    """Return the deadline of the most patient caller; None when one has none, and the service's timeout bounds it."""
    deadlines = [call.deadline for call in calls if call.deadline is not None]
    return max(deadlines, key=lambda deadline: deadline.at) if len(deadlines) == len(calls) else None


def _fail(call: _JoinedCall[Q, R], error: Exception) -> None:
    """Tell a caller, if it still waits. Each gets an error of its own: a raised one carries its raiser's stack."""
    if call.answer.done():
        return
    if isinstance(error, PenstockError):
        own: Exception = rebuild(type(error), error.detail, error.status, error.facts)
        own.__cause__ = error
        call.answer.set_exception(own)
    else:
        call.answer.set_exception(error)
