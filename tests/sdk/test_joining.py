"""The rules of joining: what goes out now, whatever comes in whatever order."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from penstock.sdk.joining.join_queue import GatheredCall, JoinBatch, JoinLimits, JoinQueue

LIMITS = JoinLimits(batch_calls_max=4, batch_bytes_max=100, in_flight_max=2, halved_min=4, gather_s=1.0)

Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add"] * 6 + ["end", "withdraw", "tick"]), st.integers(0, 2), st.sampled_from([1, 45, 60, 120])
    ),
    min_size=20,
    max_size=60,
)
# The same examples in every run, and none is made smaller: all that counts is whether a bug is found.
SEARCH = settings(derandomize=True, max_examples=300, phases=[Phase.generate], database=None, deadline=None)


class Play:
    """Plays steps against a queue as the driver does, and checks every request that goes out."""

    def __init__(self, queue: JoinQueue) -> None:
        self.queue = queue
        self.now = 0.0
        self.came: list[GatheredCall[int]] = []
        self.left: list[GatheredCall[int]] = []
        self.withdrawn: list[GatheredCall[int]] = []
        self.flying: list[JoinBatch] = []

    def step(self, step: Step) -> None:
        what, number, size = step
        if what == "add":
            call = GatheredCall(len(self.came), f"k{number}" if number else None, size, self.now)
            self.came.append(call)
            self.queue.add(call)
        elif what == "end" and self.flying:
            self.queue.ended(self.flying.pop(number % len(self.flying)))
        elif what == "withdraw" and self.came:
            call = self.came[-1 - size % min(3, len(self.came))]
            if self.queue.withdraw(call):
                self.withdrawn.append(call)
        elif what == "tick":
            self.now += number / 2
        self.go()

    def go(self) -> None:
        while (batch := self.queue.take(self.now)) is not None:
            self.check(batch)
            self.flying.append(batch)
            self.left += batch.calls
        due_at = self.queue.due_at()
        assert due_at is None or due_at > self.now

    def check(self, batch: JoinBatch) -> None:
        calls = batch.calls
        assert 1 <= len(calls) <= LIMITS.batch_calls_max
        assert len(calls) == 1 or sum(call.size_bytes for call in calls) <= LIMITS.batch_bytes_max
        assert len(self.flying) < LIMITS.in_flight_max
        keys = {call.key for call in calls} - {None}
        assert not keys & {call.key for other in self.flying for call in other.calls}
        if self.flying and self.now - min(call.since for call in calls) < LIMITS.gather_s:
            self.check_company(batch)

    def check_company(self, batch: JoinBatch) -> None:
        """Demand that a request beside others, whose calls have not waited, is as large as those, or is full."""
        calls, flying = batch.calls, sum(len(other.calls) for other in self.flying)
        behind = [c for c in self.came if c not in {*self.left, *self.withdrawn, *calls}]
        size = sum(call.size_bytes for call in calls)
        is_full = len(calls) == LIMITS.batch_calls_max or any(
            size + call.size_bytes > LIMITS.batch_bytes_max for call in behind
        )
        assert len(calls) >= flying or is_full or size > LIMITS.batch_bytes_max

    def finish(self) -> None:
        """End what flies until nothing is left, and check that everything left once, in the order of its key."""
        for _ in range(len(self.came) + 1):
            for batch in self.flying[:]:
                self.flying.remove(batch)
                self.queue.ended(batch)
            self.go()
        assert self.queue.idle
        assert len(self.left) == len(set(self.left))
        assert set(self.left) | set(self.withdrawn) == set(self.came)
        assert not set(self.left) & set(self.withdrawn)
        for key in {call.key for call in self.left} - {None}:
            numbers = [call.request for call in self.left if call.key == key]
            assert numbers == sorted(numbers)


def play(queue: JoinQueue, steps: list[Step]) -> bool:
    """Play all steps; every broken rule raises."""
    playing = Play(queue)
    for step in steps:
        playing.step(step)
    playing.finish()
    return queue.idle


@given(STEPS)
def test_every_call_leaves_once_in_the_order_of_its_key_and_within_the_bounds(steps: list[Step]) -> None:
    assert play(JoinQueue(LIMITS), steps)


# --- the same play finds planted bugs


class ForgetsBusyKeys(JoinQueue):
    def take(self, now: float) -> JoinBatch | None:
        self._busy_keys.clear()
        return super().take(now)


class NeverFreesKeys(JoinQueue):
    def ended(self, batch: JoinBatch) -> None:
        super().ended(batch)
        self._busy_keys |= batch.keys


class CountsNoBytes(JoinQueue):
    def _next_calls(self) -> tuple[list, bool]:
        return [call for call in self._gathered if call.key not in self._busy_keys][: LIMITS.batch_calls_max], False


class SkipsWhatDoesNotFit(JoinQueue):
    """A smaller call passes a larger one with the same key."""

    def _next_calls(self) -> tuple[list, bool]:
        chosen, room = [], LIMITS.batch_bytes_max
        for call in self._gathered:
            fits = call.size_bytes <= room or not chosen
            if call.key not in self._busy_keys and fits and len(chosen) < LIMITS.batch_calls_max:
                chosen.append(call)
                room -= call.size_bytes
        return chosen, False


class NewestFirst(JoinQueue):
    def _next_calls(self) -> tuple[list, bool]:
        chosen, is_full = super()._next_calls()
        return chosen[::-1], is_full


class TakesTwice(JoinQueue):
    def take(self, now: float) -> JoinBatch | None:
        batch = super().take(now)
        if batch is not None and len(batch.calls) == 2:
            self.add(batch.calls[0])
        return batch


class NeverGathers(JoinQueue):
    def _may_leave(self, calls: list, now: float) -> bool:
        return True


class WaitsForEver(JoinQueue):
    """Looks at how many gathered, never at the time: `due_at` then lies in the past."""

    def _may_leave(self, calls: list, now: float) -> bool:
        return not self._in_flight or len(calls) >= self._calls_in_flight


class Unbounded(JoinQueue):
    def take(self, now: float) -> JoinBatch | None:
        held, self._in_flight = self._in_flight, dict(list(self._in_flight.items())[:1])
        batch = super().take(now)
        self._in_flight = {**held, **self._in_flight}
        return batch


class LosesWithdrawn(JoinQueue):
    def withdraw(self, call: GatheredCall) -> bool:
        super().withdraw(call)
        return True


PLANTED = [
    ForgetsBusyKeys, NeverFreesKeys, CountsNoBytes, SkipsWhatDoesNotFit, NewestFirst, TakesTwice, NeverGathers,
    WaitsForEver, Unbounded, LosesWithdrawn,
]  # fmt: skip


@pytest.mark.parametrize("planted", PLANTED)
def test_the_play_finds_a_planted_bug(planted: Callable[[JoinLimits], JoinQueue]) -> None:
    @SEARCH
    @given(STEPS)
    def broken(steps: list[Step]) -> None:
        play(planted(LIMITS), steps)

    with pytest.raises((AssertionError, ExceptionGroup)):
        broken()


def test_a_lone_call_that_its_caller_makes_keeps_its_key_busy() -> None:
    queue: JoinQueue[GatheredCall[int]] = JoinQueue(LIMITS)
    alone = queue.begin_alone("k")
    queue.add(GatheredCall(1, "k", 1, 0.0))

    assert (queue.take(100.0), queue.due_at()) == (None, None)
    queue.ended(alone)
    batch = queue.take(100.0)
    assert batch is not None
    assert [call.request for call in batch.calls] == [1]


def filled(count: int) -> JoinQueue[GatheredCall[int]]:
    queue: JoinQueue[GatheredCall[int]] = JoinQueue()
    for number in range(count):
        queue.add(GatheredCall(number, None, 1, 0.0))
    return queue


def test_many_calls_leave_in_two_halves_that_then_take_turns() -> None:
    queue = filled(64)
    first, second = queue.take(0.0), queue.take(0.0)
    assert (len(first.calls), len(second.calls), queue.take(0.0)) == (32, 32, None)

    for _ in range(3):
        queue.ended(first)
        for call in first.calls:
            queue.add(call)
        first, second = second, queue.take(0.0)
        assert len(second.calls) == 32


def test_parts_that_were_split_off_grow_together_again() -> None:
    queue = filled(64)
    large, half = queue.take(0.0), queue.take(0.0)
    queue.ended(half)
    for call in half.calls[:5]:
        queue.add(GatheredCall(call.request, None, 1, 0.0))
    few = queue.take(1.0)
    assert len(few.calls) == 5, "they have waited too long for company"
    for call in half.calls[5:]:
        queue.add(GatheredCall(call.request, None, 1, 1.0))
    assert queue.take(1.0) is None, "27 wait for company while 37 are in flight"
    queue.ended(few)
    for call in few.calls:
        queue.add(GatheredCall(call.request, None, 1, 1.0))

    assert len(queue.take(1.0).calls) == 32 == len(large.calls)
