"""The whole simulation: the scenario that was asked for, then smaller ones for the promises it cannot show."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.services.dht.sim import gates
from penstock.services.dht.sim.scenario import Scenario, SimResult

if TYPE_CHECKING:
    from penstock.services.dht.sim.options import SimOptions

# The scenarios behind the gates are this much smaller than the main one, within these bounds.
_SMALLER = 10
_NODES_MIN, _NODES_MAX = 300, 1000
_LOOKUPS_MIN, _LOOKUPS_MAX = 300, 2000
_SHORT_S = 300.0

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class SimReport:
    """Everything that was measured and judged."""

    main: SimResult
    gates: tuple[gates.SimGate, ...]

    @property
    def holds(self) -> bool:
        """Tell whether every gate holds."""
        return all(gate.holds for gate in self.gates)


def run(options: SimOptions, progress: Progress = lambda _name, _share: None) -> SimReport:
    """Run the main scenario and those behind the gates; the same options give the same report."""
    with _collector_off():
        return _run_all(options, progress)


@contextmanager
def _collector_off() -> Iterator[None]:
    """Spare the collector millions of objects that live as long as the simulation: lookups leave no cycles behind."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _run_all(options: SimOptions, progress: Progress) -> SimReport:
    main = _run("main", options, progress)
    small = replace(
        options,
        nodes=min(max(options.nodes // _SMALLER, _NODES_MIN), _NODES_MAX, options.nodes),
        lookups=min(max(options.lookups // _SMALLER, _LOOKUPS_MIN), _LOOKUPS_MAX, options.lookups),
        keys=200, churn=0.0, dead=0.0, span_s=_SHORT_S, partition=0.0,
    )  # fmt: skip
    judged = [*gates.judge_hops(main)]
    if options.dead:
        judged.append(gates.judge_recovery(main))
    grouped = _run("one group", replace(small, one_group=0.7, walks_instead=True), progress)
    hostile = _run("hostile", replace(small, hostile=0.2, paths=3), progress)
    healthy = _run("healthy", small, progress)
    dying = _run("40 % dead", replace(small, dead=0.4, dead_at_s=0.0), progress)
    judged += [gates.judge_groups(grouped), gates.judge_hostile(hostile), gates.judge_latency(healthy, dying)]
    return SimReport(main, tuple(judged))


def _run(name: str, options: SimOptions, progress: Progress) -> SimResult:
    return Scenario(options).run(lambda share: progress(name, share))
