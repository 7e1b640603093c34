"""Calls that share requests, on the real code of the SDK: CallJoiner, JoinQueue, PlaceLine, Scope and deadlines.

The node is the model's own: it answers each request at any moment, in any order, or is killed at any moment, after
which every request fails. Three callers ask; one of them may be cancelled or have a deadline; the client may be closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock import weave
from penstock.kernel.deadline import current_deadline, timeout
from penstock.kernel.errors import DownstreamUnavailable, Timeout
from penstock.kernel.log import Log
from penstock.kernel.metrics import Metrics
from penstock.kernel.scope import Scope
from penstock.sdk.errors import ClientClosed
from penstock.sdk.joining.call_joiner import CallJoiner, ItemRefusal, JoinedKind
from penstock.sdk.joining.join_queue import JoinLimits

IGNORES = (JoinLimits, JoinedKind, Log, Metrics)
LIMITS = JoinLimits(batch_calls_max=2, in_flight_max=2, gather_s=0.005)
# Every request is large: its task goes on with what its callers call next.
ALL_LARGE = JoinLimits(batch_calls_max=2, in_flight_max=2, gather_s=0.005, halved_min=1)
SHORT_S = 0.02


@dataclass
class Node:
    """Answers each item by its own number, once; item 3 is refused in a batch and done on the single route."""

    refuses: bool = False
    dead: bool = False
    done: list[int] = field(default_factory=list)
    waiting: dict[int, asyncio.Future[None]] = field(default_factory=dict)
    requests: int = 0

    async def _cross(self) -> None:
        """Wait until the node answers, which is at any moment."""
        if self.dead:
            raise DownstreamUnavailable("Connection refused.")
        self.requests += 1
        number = self.requests
        crossing = self.waiting[number] = asyncio.get_running_loop().create_future()
        answers = weave.event(self._answer, crossing)
        try:
            if current_deadline() is None:
                await crossing
            else:
                # A request knows the deadline it is under, and ends by it.
                async with timeout("wire", 2 * SHORT_S):
                    await crossing
        finally:
            answers.cancel()
            del self.waiting[number]

    @staticmethod
    def _answer(crossing: asyncio.Future[None]) -> None:
        if not crossing.done():
            crossing.set_result(None)

    def kill(self) -> None:
        """Fail what is under way and whatever comes."""
        self.dead = True
        for crossing in self.waiting.values():
            if not crossing.done():
                crossing.set_exception(DownstreamUnavailable("The node is gone."))

    async def one(self, item: int) -> int:
        await self._cross()
        self.done.append(item)
        return -item

    async def many(self, items: tuple[int, ...]) -> Sequence[int | ItemRefusal]:
        await self._cross()
        refused = {3} if self.refuses else set()
        self.done += [item for item in items if item not in refused]
        return [ItemRefusal("busy", "not in a batch") if item in refused else -item for item in items]


class Swaps(CallJoiner[int, int]):
    """Gives the answers of a request in the other order: a planted bug."""

    async def _ask(self, requests: tuple[int, ...]) -> Sequence[int | ItemRefusal]:
        return (await super()._ask(requests))[::-1]


class CutsForOne(CallJoiner[int, int]):
    """Cuts the request when one of its callers leaves: a planted bug."""

    def _leave(self, call: Any) -> None:
        if call.flight is not None and call.flight.task is not None:
            call.flight.task.cancel()
        super()._leave(call)


class EndsInTheTask(CallJoiner[int, int]):
    """Notes the end of a request inside its task, which a task that is cut before its first step never does: a bug."""

    def _begin(self, batch: Any) -> None:
        super()._begin(batch)
        task = batch.calls[0].flight.task
        task.remove_done_callback(next(c for c, _ in task._callbacks if c.__qualname__.startswith("CallJoiner")))

    async def _make(self, batch: Any) -> None:
        try:
            await super()._make(batch)
        finally:
            task = asyncio.current_task()
            assert task is not None
            self._ended(task)


class OneDeadline(CallJoiner[int, int]):
    """Makes the request under the deadline of whoever caused it: a planted bug."""

    def _begin(self, batch: Any) -> None:
        for call in batch.calls:
            call.deadline = min((c.deadline for c in batch.calls if c.deadline), key=lambda d: d.at, default=None)
        super()._begin(batch)


PLANTED = {"swaps": Swaps, "cuts for one": CutsForOne, "ends in the task": EndsInTheTask, "one deadline": OneDeadline}


async def joined(
    happens: str = "", *, calls: int = 3, keyed: bool = False, planted: str = "", large: bool = False
) -> str:
    """Let callers ask at once; each gets its own answer or its own error, and nothing is left at the end."""
    metrics = Metrics("client")
    node = Node(refuses=happens == "refusal")
    scope = Scope("joined_call", 8, metrics)
    kind: JoinedKind[int, int] = JoinedKind(name="send", one=node.one, many=node.many)
    joiner = PLANTED.get(planted, CallJoiner)(kind, scope, ALL_LARGE if large else LIMITS)
    cancelled: list[int] = []
    made: list[int] = []
    key = "k" if keyed else None

    async def ask(item: int) -> int:
        made.append(item)
        if happens == "deadline" and item == 2:
            async with timeout("call", SHORT_S):
                return await joiner.call(item, key=key)
        return await joiner.call(item, key=key)

    tasks = {item: asyncio.ensure_future(ask(item)) for item in range(1, calls + 1)}

    def cancel() -> None:
        cancelled.extend([2] if tasks[2].cancel() else [])

    def close() -> None:
        joiner.close()
        scope.cancel()

    act = {"cancel": cancel, "kill": node.kill, "close": close}.get(happens)
    if act is not None:
        weave.event(act)
    await asyncio.wait(tasks.values())
    outcomes = {item: outcome_of(task) for item, task in tasks.items()}
    judge(outcomes, happens, cancelled)
    assert len(node.done) == len(set(node.done)), f"done twice: {node.done}"
    if keyed:
        assert node.done == sorted(node.done, key=made.index), f"made in order {made}, done in order {node.done}"
    await scope.close()
    # Time passes when nothing is ready any more: then every task's end has been heard of.
    await asyncio.sleep(1)
    assert joiner.queue.idle, "a request is noted as under way for ever"
    assert (joiner._room._in_use, joiner._again._in_use, len(scope)) == (0, 0, 0), "a place is lost"
    return ", ".join(f"{item} {told}" for item, told in outcomes.items())


def outcome_of(task: asyncio.Task[int]) -> str:
    """Tell what a caller got, in a word."""
    if task.cancelled():
        return "cancelled"
    error = task.exception()
    return type(error).__name__ if error is not None else str(task.result())


def judge(outcomes: dict[int, str], happens: str, cancelled: list[int]) -> None:
    """Demand that each caller got its own answer, or an error that is its own."""
    errors = {"kill": DownstreamUnavailable.__name__, "close": ClientClosed.__name__}
    for item, told in outcomes.items():
        late = Timeout.__name__ if happens == "deadline" and item == 2 else None
        allowed = {str(-item), late, errors.get(happens), "cancelled" if item in cancelled else None}
        assert told in allowed, f"call {item} got {told}"
