"""The account of one exploration: its settings, its limits, the schedules it ran and what they led to.

A strategy asks the search to run one schedule after the other; the search counts them, keeps the outcomes and the
failures, and ends the strategy by an exception when a limit is reached or a failure is enough.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypedDict, get_args

from penstock.weave.fingerprint import Fingerprints
from penstock.weave.loop import Mode, Step, WeaveLoop
from penstock.weave.outside import OutOfTime
from penstock.weave.report import Ending
from penstock.weave.run import Pick, Program, Pruned, ScheduleRun
from penstock.weave.token import BadToken
from penstock.weave.trace import Tracer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.weave.refine import Refinement

SCHEDULES_MAX = 2_000_000
SECONDS_MAX = 60.0
_SECONDS_LONGEST = 1e7
_LOOK_EVERY = 250
_YOUNG_MAX = 1_000
"""So many new objects are collected at once: a few runs, whose objects are still in the processor's cache."""


class BadOption(ValueError):
    """An option of `explore` that cannot be."""


class Options(TypedDict, total=False):
    """How to explore; every name has a default in `ExploreSettings`."""

    mode: Mode
    strategy: str
    schedules_max: int
    seconds: float | None
    until: Literal["failure", "end"]
    jobs: int
    refines: Refinement | None
    threads: Literal["late", "prompt"]
    ignores: tuple[type, ...]
    tracks: tuple[type, ...]
    progress: Callable[[Progress], None] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ExploreSettings:
    """How to explore."""

    mode: Mode = "any"
    strategy: str = "auto"
    """`auto`, `hash`, `dpor`, `delay:K` or `random:N`."""
    schedules_max: int = SCHEDULES_MAX
    seconds: float | None = SECONDS_MAX
    until: Literal["failure", "end"] = "failure"
    """Whether the first failure ends the search, or all failures are looked for."""
    jobs: int = 1
    """How many processes search; more than one take the strategy `hash`, and none refines."""
    refines: Refinement | None = None
    threads: Literal["late", "prompt"] = "late"
    """Whether time may pass while work in a thread is under way, or waits for it."""
    ignores: tuple[type, ...] = ()
    """Classes whose objects decide nothing, such as counters: they are no part of the state."""
    tracks: tuple[type, ...] = ()
    """Classes of the program whose objects tasks share: `dpor` notes every access to them."""
    progress: Callable[[Progress], None] | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if self.mode not in get_args(Mode):
            raise BadOption(f"the mode is any, fifo or chaos, not {self.mode!r}")
        if self.schedules_max < 1 or self.jobs < 1:
            raise BadOption("the limits are at least 1")
        if self.seconds is not None and not 0 < self.seconds <= _SECONDS_LONGEST:
            raise BadOption(f"the seconds are more than 0 and at most {_SECONDS_LONGEST:g}, not {self.seconds}")


@dataclass(slots=True)
class Progress:
    """The figures of a search under way."""

    schedules: int = 0
    states: int = 0
    steps: int = 0
    waiting: int = 0
    """Schedules known to be left; more may be found."""


@dataclass(frozen=True, slots=True)
class FailingSchedule:
    """A schedule that breaks the program."""

    ending: Ending
    choices: tuple[int, ...]


class Found(Exception):
    """A failing schedule ends the search."""


class Limit(Exception):
    """A limit ends the search before every schedule was tried."""


class Nondeterministic(Exception):
    """The same choices led elsewhere than before."""


@dataclass(slots=True)
class Search:
    """One exploration: runs schedules for a strategy, and keeps the account."""

    program: Program
    settings: ExploreSettings
    progress: Progress = field(default_factory=Progress)
    outcomes: dict[str, None] = field(default_factory=dict)
    failures: list[FailingSchedule] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    reached: dict[str, bool] = field(default_factory=dict)
    run_class: type[ScheduleRun] = ScheduleRun
    expired: list[bool] = field(default_factory=list)
    job_cpu_s: list[float] = field(default_factory=list)
    prints: Fingerprints = field(init=False)
    roots: list[Callable[[], object]] = field(default_factory=list)
    """Module state that the program changes: part of its state."""

    def __post_init__(self) -> None:
        """Know what is no part of the state."""
        self.prints = Fingerprints(self.settings.ignores)

    def run(
        self, pick: Pick, choices: Sequence[int], prepare: Callable[[ScheduleRun], None] | None = None
    ) -> Ending | None:
        """Run one schedule; None when it was pruned. `choices` is filled by the picker as it goes."""
        self._check_limits()
        run = self.run_class(self.program, pick, self.settings.mode, self.reached)
        run.follow(self.settings)
        if prepare is not None:
            prepare(run)
        self.progress.schedules += 1
        try:
            ending = run.go()
        except Pruned:
            return None
        finally:
            self.progress.steps += run.loop.steps
        self.outcomes[ending.outcome] = None
        if ending.failed:
            self.failures.append(FailingSchedule(ending, tuple(choices)))
            if self.settings.until == "failure":
                raise Found
        return ending

    def begin_again(self) -> None:
        """Forget what another strategy has done."""
        self.progress = Progress()
        self.outcomes.clear()
        self.run_class = ScheduleRun

    def beside(self, loop: WeaveLoop) -> object:
        """Tell what else belongs to the state: promises still due, the place in the specification, module state."""
        promises = loop.promises
        refines = self.settings.refines
        return [list(promises.due), None if refines is None else refines.place(), [read() for read in self.roots]]

    def _check_limits(self) -> None:
        done = self.progress.schedules
        if done >= self.settings.schedules_max:
            raise Limit(f"cut after {done} schedules")
        if self.expired:
            raise OutOfTime
        if gc.get_count()[0] > _YOUNG_MAX:
            gc.collect(0)
        if not done % _LOOK_EVERY:
            if not done % (8 * _LOOK_EVERY):
                gc.collect(1)
            if self.settings.progress is not None:
                self.settings.progress(self.progress)


class Fixed:
    """A picker that follows given choices, then takes the first option."""

    def __init__(self, choices: Sequence[int], tracer: Tracer | None = None) -> None:
        self.given = choices
        self.choices: list[int] = []
        self.widths: list[int] = []
        self.labels: list[str] = []
        self.tracer = tracer
        self.ending: Ending | None = None
        """How its run ended, once it has."""

    def __call__(self, loop: WeaveLoop, options: list[Step]) -> int:
        """Choose."""
        at = len(self.choices)
        choice = self.given[at] if at < len(self.given) else 0
        if choice >= len(options):
            raise BadToken(f"choice {at} has {len(options)} options, not {choice + 1}: the program has changed")
        self.choices.append(choice)
        self.widths.append(len(options))
        self.labels.append(f"{options[choice].path}")
        if self.tracer is not None and choice:
            self.tracer.departed = options[choice]
        return choice
