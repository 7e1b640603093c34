"""The strategy `dpor`: one schedule for each order of the steps that touch something in common.

Dynamic partial order reduction (Flanagan and Godefroid) with sleep sets. A run is a sequence of steps, each of a
*process*: a task, a timer, or the queue of plain callbacks. While a run goes on, the search looks for
races: a step that touches what an earlier step of another process touched, where nothing forces this order. At the
choice before the earlier step it then asks for the later process to go first, in a run of its own. A process that was
already tried at a choice sleeps in the runs after it, until a step touches what it would touch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.weave.loop import EVENT, PLAIN, TIME, Step, WeaveLoop
from penstock.weave.run import Pruned, ScheduleRun
from penstock.weave.search import Nondeterministic
from penstock.weave.sharing import shared_out_of_sight
from penstock.weave.tracking import CALLBACKS, TRACKED, Cell, TrackedLoop, TrackedStep, tracking

if TYPE_CHECKING:
    from penstock.weave.search import Search

Process = tuple[int, ...] | str
Clock = dict[Process, int]

_LOOKS_MAX = 64

_QUEUE: Process = "callbacks"


class Untracked(Exception):
    """Tasks share something that is not tracked: the reduction would not be sound."""


class _TrackedRun(ScheduleRun):
    """A run on the loop with footprints."""

    loop_class = TrackedLoop


def _process(step: Step) -> Process:
    """Name whose step this is, alike in every run."""
    return _QUEUE if step.kind == PLAIN else (step.kind, *step.path)


@dataclass(slots=True)
class _Node:
    """A choice of the run under way: what could go, what was tried, what is still asked for."""

    enabled: tuple[Process, ...]
    sleep: dict[Process, frozenset[int]]
    wanted: set[Process] = field(default_factory=set)
    tried: dict[Process, frozenset[int]] = field(default_factory=dict)
    chosen: Process = ()

    def next_wanted(self) -> Process | None:
        """Find a process that is asked for and was not tried."""
        return next((who for who in self.enabled if who in self.wanted and who not in self.tried), None)


@dataclass(slots=True)
class _Taken:
    """A step of the run under way."""

    process: Process
    clock: Clock
    node: _Node


class DporSearch:
    """Depth-first over the races of each run; raises `Untracked` where that would not be sound."""

    exhaustive = True
    told = "dpor"

    def __init__(self, tracks: tuple[type, ...] = ()) -> None:
        self._tracks = (*TRACKED, *tracks)
        self._nodes: list[_Node] = []
        self._taken: list[_Taken] = []
        self._last: dict[int, int] = {}
        self._clocks: dict[Process, Clock] = {}
        self._depth = 0
        # Where there is one option nothing is chosen: a token, and every other strategy, passes over it.
        self._choices: list[int] = []
        self._runs = 0
        self._time_passed_at = 0

    def search(self, search: Search) -> None:
        """Run until no race asks for another order."""
        search.run_class = _TrackedRun
        with tracking(self._tracks):
            while True:
                self._taken, self._last, self._clocks = [], {}, {}
                self._choices, self._depth, self._time_passed_at = [], 0, 0
                self._runs += 1
                search.run(self.pick, self._choices, self._prepare)
                if not self._turn_back():
                    return
                search.progress.waiting = sum(len(node.wanted) - len(node.tried) for node in self._nodes)

    def _prepare(self, run: ScheduleRun) -> None:
        loop = run.loop
        assert isinstance(loop, TrackedLoop)
        loop.on_step = lambda step, touched: self._took(loop, step, touched)

    def _turn_back(self) -> bool:
        """Go back to the last choice that has something left to try."""
        while self._nodes:
            node = self._nodes[-1]
            following = node.next_wanted()
            if following is not None:
                node.sleep = {**node.sleep, **node.tried}
                if following not in node.sleep:
                    node.chosen = following
                    return True
                node.tried.setdefault(following, node.sleep[following])
                continue
            self._nodes.pop()
        return False

    # -- one run -----------------------------------------------------------------------------------------------

    def pick(self, loop: WeaveLoop, options: list[Step]) -> int:
        """Follow the choices so far, then take the first process that does not sleep."""
        if options[-1].kind in {EVENT, TIME}:
            raise Untracked("outside events may be put off for ever, which only hash can tell from progress")
        enabled = tuple(_process(step) for step in (options[:1] if loop.still else options))
        depth, self._depth = self._depth, self._depth + 1
        if depth < len(self._nodes):
            node = self._nodes[depth]
            if node.enabled != enabled:
                raise Nondeterministic("not deterministic: the same choices led to other steps than before")
        else:
            node = self._new_node(enabled)
        choice = enabled.index(node.chosen)
        if len(options) > 1 and not loop.still:
            self._choices.append(choice)
        self._look_for_sharing(loop, depth)
        return choice

    def _look_for_sharing(self, loop: WeaveLoop, depth: int) -> None:
        """Look in the first run at its first choices, later at one choice of each run: a look costs much."""
        if depth > _LOOKS_MAX or (self._runs > 1 and depth != self._runs % _LOOKS_MAX):
            return
        if shared := shared_out_of_sight(loop, (*self._tracks, Cell)):
            raise Untracked(f"tasks share {shared} that is not tracked")

    def _new_node(self, enabled: tuple[Process, ...]) -> _Node:
        node = _Node(enabled, self._inherited_sleep())
        awake = [who for who in enabled if who not in node.sleep]
        if not awake:
            raise Pruned
        node.chosen = awake[0]
        node.wanted.add(awake[0])
        self._nodes.append(node)
        return node

    def _inherited_sleep(self) -> dict[Process, frozenset[int]]:
        """Keep asleep what the step before does not concern."""
        if not self._nodes:
            return {}
        node = self._nodes[-1]
        step = node.tried[node.chosen]
        return {who: touched for who, touched in node.sleep.items() if who != node.chosen and not (touched & step)}

    def _took(self, loop: TrackedLoop, step: Step, touched: set[int]) -> None:
        """Look for races between this step and the earlier ones."""
        node = self._nodes[self._depth - 1]
        process = node.chosen
        if step.kind == PLAIN:
            touched.add(CALLBACKS)
        node.tried[process] = frozenset(touched)
        at = len(self._taken)
        if loop.time_passed_at != self._time_passed_at:
            # Whatever came before is before everything now: nothing of it can race any more.
            self._time_passed_at = loop.time_passed_at
            self._clocks.clear()
        clock = dict(self._clocks.get(process, {}))
        if isinstance(step, TrackedStep) and loop.time_passed_at < step.made_at <= at:
            _join(clock, self._taken[step.made_at - 1].clock)
        before = dict(clock)
        for key in touched:
            earlier = self._last.get(key)
            self._last[key] = at
            if earlier is None or earlier < loop.time_passed_at:
                continue
            taken = self._taken[earlier]
            if taken.process != process and before.get(taken.process, -1) < earlier:
                self._ask(earlier, process, before)
            _join(clock, taken.clock)
        clock[process] = at
        self._clocks[process] = clock
        self._taken.append(_Taken(process, clock, node))
        for cancelled in loop.cancelled_now:
            who = _process(cancelled)
            if who in node.enabled:
                node.wanted.add(who)

    def _ask(self, earlier: int, process: Process, before: Clock) -> None:
        """Ask for this process, or one that leads to it, to go before an earlier step."""
        node = self._taken[earlier].node
        if process in node.enabled:
            node.wanted.add(process)
            return
        leading = [who for who in node.enabled if before.get(who, -1) > earlier]
        node.wanted.update(leading[:1] or node.enabled)


def _join(clock: Clock, other: Clock) -> None:
    for who, at in other.items():
        if at > clock.get(who, -1):
            clock[who] = at
