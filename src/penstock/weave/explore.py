"""Explore every schedule of a program, and report what was found.

`explore` runs the program again and again on a loop of its own, each time under another schedule, until a schedule
fails, all are covered, or a limit is reached. A failing schedule is shrunk to the fewest departures from asyncio's own
order and told step by step. `replay` runs one schedule again, with output and debugger as in any program.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from penstock.weave.dpor import Untracked
from penstock.weave.globals import GlobalState, value_named
from penstock.weave.loop import Mode, Refused, Step, WeaveLoop
from penstock.weave.outside import OutOfTime, RunListener, alarm, apart, leaving_nothing, real_now
from penstock.weave.report import Ending, Verdict, WeaveFailure, WeaveReport
from penstock.weave.run import Program, ScheduleRun
from penstock.weave.search import (
    ExploreSettings,
    FailingSchedule,
    Fixed,
    Found,
    Limit,
    Nondeterministic,
    Options,
    Search,
)
from penstock.weave.shrink import Shrinker
from penstock.weave.strategies import Strategy, strategy_for
from penstock.weave.token import BadToken, check_sum, read_token, write_token
from penstock.weave.trace import Tracer

if TYPE_CHECKING:
    from typing import Unpack


def explore(program: Program, **options: Unpack[Options]) -> WeaveReport:
    """Try every schedule of an async function without arguments; `ExploreSettings` tells the options."""
    settings = ExploreSettings(**options)
    strategy = strategy_for(settings)
    began = real_now()
    search = Search(program, settings)
    with apart():
        with alarm(settings.seconds, search.expired):
            verdict, message = _searched(search, strategy)
        return _Account(search, strategy, verdict, message).report(began)


def check(program: Program, **options: Unpack[Options]) -> WeaveReport:
    """Explore, and raise `WeaveFailure` unless the program holds in every schedule."""
    return explore(program, **options).demand()


class Drawn(Protocol):
    """What Hypothesis gives a test as `data`."""

    def draw(self, strategy: Any, label: object = None) -> Any:  # noqa: ANN401 as Hypothesis has it
        """Draw a value."""


def check_drawn(program: Program, data: Drawn, mode: Mode = "any") -> None:
    """Run one schedule whose choices Hypothesis draws, and so shrinks; raise `WeaveFailure` when it fails.

    For worlds that are too large to explore: `@given(st.data()) def test_it(data): weave.check_drawn(program, data)`.
    """
    # Whoever has `data` has imported Hypothesis; weave itself works without it.
    strategies = sys.modules["hypothesis"].strategies
    choices: list[int] = []

    def pick(_: WeaveLoop, options: list[Step]) -> int:
        choices.append(data.draw(strategies.integers(0, len(options) - 1), label="next step"))
        return choices[-1]

    with leaving_nothing():
        failed = ScheduleRun(program, pick, mode, {}).go().failed
    if failed:
        tracer = Tracer()
        with apart():
            ending, picker = _run_fixed(program, ExploreSettings(mode=mode), tuple(choices), tracer)
        token = write_token(mode, picker.choices, picker.widths)
        raise WeaveFailure(_told_once(ending, token, tracer, mode))


def _searched(search: Search, strategy: Strategy) -> tuple[Verdict, str]:
    """Run the strategy to its end; say how far it came."""
    try:
        _check_determinism(search)
        strategy.search(search)
    except Found:
        return "fails", ""
    except (Limit, Refused, Nondeterministic, BadToken, Untracked) as cut:
        return "cut", str(cut)
    except OutOfTime:
        return "cut", f"cut after {search.settings.seconds} seconds"
    return ("fails" if search.failures else "holds"), ""


def _check_determinism(search: Search) -> None:
    """Run the first schedule twice: it must take the same steps, and should leave no trace in module state."""
    listener = RunListener()
    first = _first_run(search, listener)
    search.notes |= listener.notes
    before = GlobalState(listener.modules, search.prints)
    second = _first_run(search, None)
    changed = GlobalState(listener.modules, search.prints).changed_since(before)
    if changed:
        search.notes[f"module state outlives a run, so runs depend on each other: {', '.join(changed)}"] = None
        search.roots = [partial(value_named, name) for name in changed]
    if first != second:
        told = "; ".join(search.notes) or (
            "the same choices led to other steps in a second run; "
            "does it iterate over a set of objects, whose order follows their addresses?"
        )
        raise Nondeterministic(f"not deterministic: {told}")


def _first_run(search: Search, listener: RunListener | None) -> tuple[list[str], list[int], str]:
    picker = Fixed(())
    run = ScheduleRun(search.program, picker, search.settings.mode, {})
    run.follow(search.settings)
    if listener is None:
        ending = run.go()
    else:
        with listener.listening():
            ending = run.go()
    return picker.labels, picker.widths, ending.outcome


@dataclass(slots=True)
class _Account:
    """What is known at the end of a search, turned into a report."""

    search: Search
    strategy: Strategy
    verdict: Verdict
    message: str

    def report(self, began: float) -> WeaveReport:
        failure = self.search.failures[0] if self.search.failures else self._unreached()
        cut = self.verdict == "cut"
        token = ""
        trace: tuple[str, ...] = ()
        if failure is not None:
            self.verdict = "fails"
            failure, token, trace = self._shrunk(failure)
            self.message = f"{failure.ending.message}{self._depends_on_order(failure)}"
        progress = self.search.progress
        return WeaveReport(
            verdict=self.verdict,
            complete=self.strategy.exhaustive and not cut and (failure is None or self.search.settings.until == "end"),
            kind="" if failure is None else failure.ending.kind,
            schedules=progress.schedules,
            states=progress.states,
            steps=progress.steps,
            outcomes=tuple(sorted(self.search.outcomes)),
            seconds=real_now() - began,
            token=token,
            message=self.message,
            trace=trace,
            mode=self.search.settings.mode,
            strategy=self.strategy.told,
            notes=tuple(self.search.notes),
            job_cpu_s=tuple(self.search.job_cpu_s),
        )

    def _unreached(self) -> FailingSchedule | None:
        """Tell what `sometimes` asked for and no schedule did, once all were tried."""
        missing = [name for name, hit in self.search.reached.items() if not hit]
        if not missing or self.verdict != "holds" or not self.strategy.exhaustive:
            return None
        message = f"sometimes: no schedule gets to {', '.join(missing)}"
        return FailingSchedule(Ending("assertion", message, message), ())

    def _shrunk(self, failure: FailingSchedule) -> tuple[FailingSchedule, str, tuple[str, ...]]:
        if failure.ending.message.startswith("sometimes:"):
            return failure, "", ()
        shrinker = Shrinker(self.search, failure)
        failure = shrinker.shrink()
        token = write_token(self.search.settings.mode, failure.choices, shrinker.widths)
        tracer = Tracer()
        _run_fixed(self.search.program, self.search.settings, failure.choices, tracer)
        return failure, token, tuple(tracer.lines)

    def _depends_on_order(self, failure: FailingSchedule) -> str:
        """Say whether asyncio's own order can show the failure."""
        settings = self.search.settings
        if settings.mode == "fifo" or not any(failure.choices):
            return ""
        stock = replace(settings, mode="fifo", strategy="hash", seconds=None, schedules_max=20_000, until="failure")
        verdict, _ = _searched(Search(self.search.program, stock), strategy_for(stock))
        return " (depends on first-in-first-out order: asyncio itself never does this)" if verdict == "holds" else ""


def _run_fixed(
    program: Program, settings: ExploreSettings, choices: tuple[int, ...], tracer: Tracer
) -> tuple[Ending, Fixed]:
    picker = Fixed(choices, tracer)
    run = ScheduleRun(program, picker, settings.mode, {})
    run.loop.before = tracer.before
    run.follow(settings)
    return run.go(), picker


def replay(program: Program, token: str, **options: Unpack[Options]) -> WeaveReport:
    """Run one schedule again, with its output, and tell it step by step."""
    mode, choices, checked = read_token(token)
    options["mode"] = mode
    settings = ExploreSettings(**options)
    began, tracer = real_now(), Tracer()
    with leaving_nothing():
        ending, picker = _run_fixed(program, settings, choices, tracer)
    if check_sum(picker.widths[: len(choices)]) != checked:
        raise BadToken(f"{token} does not belong to this program, or the program has changed since")
    return replace(_told_once(ending, token, tracer, mode), seconds=real_now() - began)


def _told_once(ending: Ending, token: str, tracer: Tracer, mode: Mode) -> WeaveReport:
    """Report one schedule."""
    return WeaveReport(
        verdict="fails" if ending.failed else "holds",
        complete=False,
        kind=ending.kind,
        schedules=1,
        steps=len(tracer.lines),
        outcomes=(ending.outcome,),
        token=token,
        message=ending.message,
        trace=tuple(tracer.lines),
        mode=mode,
        strategy="one schedule",
    )
