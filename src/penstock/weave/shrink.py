"""Shrink a failing schedule to the fewest departures from asyncio's own order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.weave.loop import Refused
from penstock.weave.outside import OutOfTime, real_now
from penstock.weave.run import ScheduleRun
from penstock.weave.search import FailingSchedule, Fixed
from penstock.weave.token import BadToken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.weave.search import Search

_RUNS_MAX = 3_000
_SECONDS_MAX = 5.0

Departures = dict[int, int]


class Shrinker:
    """Tries schedules with fewer departures that fail in the same way."""

    def __init__(self, search: Search, failure: FailingSchedule) -> None:
        self._search = search
        self._kind = failure.ending.kind
        self._runs = 0
        self._until = real_now() + _SECONDS_MAX
        self.best = failure
        self.widths: list[int] = []

    def shrink(self) -> FailingSchedule:
        """Return the smallest failing schedule found within a bounded number of runs."""
        if self._try(self.best.choices) is None:
            # It does not fail again by itself: say what was found as it was found.
            return self.best
        self._drop_one_by_one()
        self._search_smaller()
        return self.best

    def _drop_one_by_one(self) -> None:
        """Leave out one departure after the other, the last first, as long as the failure stays."""
        dropped = True
        while dropped and self._may_run():
            departures = _departures(self.best.choices)
            dropped = any(self._try(_choices(departures, without=at)) is not None for at in reversed(departures))

    def _search_smaller(self) -> None:
        """Look for a failure with fewer departures than the best, the fewest first."""
        for bound in range(len(_departures(self.best.choices))):
            for choices in self._with_departures(bound):
                if self._try(choices) is not None:
                    return
                if not self._may_run():
                    return

    def _with_departures(self, bound: int) -> Iterator[tuple[int, ...]]:
        """Enumerate the schedules with exactly so many departures."""
        frontier: list[tuple[int, ...]] = [()]
        for _ in range(bound):
            following: list[tuple[int, ...]] = []
            for prefix in frontier:
                picker = self._run(prefix)
                if picker is None:
                    return
                for at in range(len(prefix), len(picker.widths)):
                    start = (*prefix, *[0] * (at - len(prefix)))
                    following += [(*start, choice) for choice in range(1, picker.widths[at])]
            frontier = following
        yield from frontier

    def _try(self, choices: tuple[int, ...]) -> FailingSchedule | None:
        """Run a schedule; keep it when it fails alike."""
        picker = self._run(choices)
        if picker is None or picker.ending is None or picker.ending.kind != self._kind:
            return None
        self.best = FailingSchedule(picker.ending, _without_tail(picker.choices))
        self.widths = picker.widths
        return self.best

    def _run(self, choices: tuple[int, ...]) -> Fixed | None:
        if not self._may_run():
            return None
        self._runs += 1
        picker = Fixed(choices)
        run = ScheduleRun(self._search.program, picker, self._search.settings.mode, {})
        run.follow(self._search.settings)
        try:
            picker.ending = run.go()
        except (BadToken, Refused, OutOfTime):
            return None
        return picker

    def _may_run(self) -> bool:
        return self._runs < _RUNS_MAX and real_now() < self._until


def _departures(choices: tuple[int, ...]) -> Departures:
    return {at: choice for at, choice in enumerate(choices) if choice}


def _choices(departures: Departures, *, without: int) -> tuple[int, ...]:
    kept = {at: choice for at, choice in departures.items() if at != without}
    return tuple(kept.get(at, 0) for at in range(max(kept, default=-1) + 1))


def _without_tail(choices: list[int]) -> tuple[int, ...]:
    last = max((at for at, choice in enumerate(choices) if choice), default=-1)
    return tuple(choices[: last + 1])
