"""Prove that real code stays inside its specification, step by step, in every schedule.

The specification is the state graph that TLC dumped. The program shows its own state in the words of the specification
by `weave.view(...)`, after every step. Each change of what it shows must be a step of the graph; no change is a
stutter. A view may leave variables of the specification out: then all states that agree with what is shown are
possible, and a step must lead from one possible state to another.

    graph = graph_of(Path("models/Drain.cfg"))
    refinement = Refinement(graph)
    report = weave.explore(program, refines=refinement)
    assert report.verdict == "holds" and report.complete
    refinement.unused()                                # steps of the specification that no schedule took
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.weave.promises import Broken
from penstock.weave.values import FUNCTION, Value, as_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.weave.promises import Promises
    from penstock.weave.tlc import StateGraph

Shown = frozenset[tuple[str, Value]]


@dataclass(slots=True)
class Refinement:
    """A specification, and how much of it the code has used."""

    graph: StateGraph
    steps: int = 0
    """Steps of the code that were steps of the specification."""
    stutters: int = 0
    """Looks at which nothing had changed."""
    used: set[tuple[int, int]] = field(default_factory=set)
    visited: set[int] = field(default_factory=set)
    _possible: frozenset[int] = frozenset()
    _shown: Shown | None = None
    _by_shown: dict[Shown, frozenset[int]] = field(default_factory=dict)
    _names: tuple[str, ...] = ()
    _after: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Index the steps of the graph."""
        for source, target in self.graph.edges:
            self._after.setdefault(source, []).append(target)

    def attach(self, promises: Promises) -> None:
        """Follow a new run from its beginning."""
        self._possible = frozenset()
        self._shown = None
        promises.on_view = self._look

    def place(self) -> object:
        """Tell where in the specification the run is: part of its state."""
        return sorted(self._possible)

    def _look(self, view: Mapping[str, object]) -> None:
        shown = frozenset((name, as_value(value)) for name, value in view.items())
        if shown == self._shown:
            self.stutters += 1
            return
        matching = self._matching(shown, tuple(sorted(view)))
        if self._shown is None:
            self._begin(matching & self.graph.initial, view)
        else:
            self._step(matching, view)
        self._shown = shown

    def _begin(self, possible: frozenset[int], view: Mapping[str, object]) -> None:
        if not possible:
            raise Broken(f"refinement: the specification does not begin with {_told(view)}")
        self._possible = possible
        self.visited |= possible

    def _step(self, matching: frozenset[int], view: Mapping[str, object]) -> None:
        taken = {
            (source, target)
            for source in self._possible
            for target in self._after.get(source, ())
            if target in matching
        }
        if not taken:
            raise Broken(
                f"refinement: no step of the specification leads from {_told(dict(self._shown or ()))} to {_told(view)}"
            )
        self.steps += 1
        self.used |= taken
        self._possible = frozenset(target for _, target in taken)
        self.visited |= self._possible

    def _matching(self, shown: Shown, names: tuple[str, ...]) -> frozenset[int]:
        """Find the states that agree with what is shown."""
        if names != self._names:
            self._names, self._by_shown = names, {}
            index: dict[Shown, set[int]] = {}
            for number, state in self.graph.states.items():
                if missing := [name for name in names if name not in state]:
                    raise Broken(f"refinement: the specification has no variable {', '.join(missing)}")
                index.setdefault(frozenset((name, state[name]) for name in names), set()).add(number)
            self._by_shown = {key: frozenset(numbers) for key, numbers in index.items()}
        return self._by_shown.get(shown, frozenset())

    def unused(self) -> list[str]:
        """Name the steps of the specification that no schedule took: the action, and where it begins."""
        return sorted(
            f"{action} from {_told(self.graph.states[edge[0]])}"
            for edge, action in self.graph.edges.items()
            if edge not in self.used
        )

    def shown_steps(self) -> tuple[int, int]:
        """Count the steps that the code took and that there are, as the view shows them.

        A view that leaves variables out cannot tell steps apart that differ only in these, nor see those that change
        nothing else. Such steps are one here, or none.
        """
        every = {self._as_shown(edge) for edge in self.graph.edges}
        return len({self._as_shown(edge) for edge in self.used}), sum(source != target for source, target in every)

    def unshown_by_action(self) -> dict[str, int]:
        """Count the steps that the view could show and no schedule took, by their action."""
        used = {self._as_shown(edge) for edge in self.used}
        left = {}
        for edge, action in self.graph.edges.items():
            source, target = shown = self._as_shown(edge)
            if source != target and shown not in used:
                left[shown] = action
        return dict(sorted(Counter(left.values()).items()))

    def _as_shown(self, edge: tuple[int, int]) -> tuple[Shown, Shown]:
        source, target = (self.graph.states[number] for number in edge)
        return (
            frozenset((name, source[name]) for name in self._names),
            frozenset((name, target[name]) for name in self._names),
        )

    def told(self) -> str:
        """Sum up in one line."""
        return (
            f"{len(self.graph.states)} states and {len(self.graph.edges)} steps in the specification; the code took "
            f"{self.steps} steps, all of them inside, in {len(self.visited)} states and {len(self.used)} of the steps"
        )


def _told(view: Mapping[str, object]) -> str:
    return ", ".join(f"{name} = {_plain(value)}" for name, value in sorted(view.items()))


def _plain(value: object) -> str:
    if isinstance(value, tuple) and value[:1] == (FUNCTION,):
        return "[" + ", ".join(sorted(f"{_plain(key)} |-> {_plain(item)}" for key, item in value[1])) + "]"
    if isinstance(value, (frozenset, set)):
        return "{" + ", ".join(sorted(map(_plain, value))) + "}"
    return repr(value)
