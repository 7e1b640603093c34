"""What a simulation must show, judged from its results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.services.dht.sim.scenario import Looked, SimResult

HOPS_MAX: Final = {0.50: 3, 0.95: 4, 0.99: 5}
SUCCESS_MIN: Final = 0.99
RECOVERY_S: Final = 300.0
WINDOW_S: Final = 60.0
GROUPS_MIN: Final = 3
SLOWER_MAX: Final = 3.0


@dataclass(frozen=True, slots=True)
class SimGate:
    """One promise: what was measured, what is allowed, and whether it holds."""

    name: str
    measured: str
    allowed: str
    holds: bool


def quantile(values: Iterable[float], share: float) -> float:
    """Return the value below which a share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def success(looked: Sequence[Looked]) -> float:
    """Return the share of lookups that found what they looked for."""
    return sum(each.found for each in looked) / len(looked) if looked else 0.0


def judge_hops(result: SimResult) -> list[SimGate]:
    """Judge the depth of all lookups; a failure counts as deeper than the budget."""
    hops = [each.hops for each in result.looked]
    return [
        SimGate(f"hops p{share * 100:.0f}", f"{quantile(hops, share):.0f}", f"<= {most}", quantile(hops, share) <= most)
        for share, most in HOPS_MAX.items()
    ]


def judge_recovery(result: SimResult) -> SimGate:
    """Judge how long after the mass death nearly every lookup succeeds again, minute by minute."""
    died = result.options.dead_at_s
    recovered: float | None = None
    start = died
    while start < result.options.span_s and recovered is None:
        window = [each for each in result.looked if start <= each.at_s < start + WINDOW_S]
        if window and success(window) >= SUCCESS_MIN:
            recovered = start - died + WINDOW_S
        start += WINDOW_S
    name = f"success >= {SUCCESS_MIN:.0%} after losing {result.options.dead:.0%}"
    if recovered is None:
        return SimGate(name, "never", f"within {RECOVERY_S:.0f} s", holds=False)
    return SimGate(name, f"within {recovered:.0f} s", f"within {RECOVERY_S:.0f} s", recovered <= RECOVERY_S)


def judge_groups(result: SimResult) -> SimGate:
    """Judge how many address groups every successful lookup saw, where most nodes lie in one."""
    least = min((each.groups for each in result.looked if each.found), default=0)
    return SimGate(
        f"groups in a lookup, {result.options.one_group:.0%} of nodes in one",
        f"{least}",
        f">= {GROUPS_MIN}",
        least >= GROUPS_MIN,
    )


def judge_hostile(result: SimResult) -> SimGate:
    """Judge how many lookups succeed among liars."""
    share = success(result.looked)
    name = f"success with {result.options.hostile:.0%} hostile, paths={result.options.paths}"
    return SimGate(name, f"{share:.2%}", f">= {SUCCESS_MIN:.0%}", share >= SUCCESS_MIN)


def judge_latency(healthy: SimResult, dying: SimResult) -> SimGate:
    """Judge what dead nodes cost at the tail."""
    before, after = (quantile([each.took_s for each in result.looked], 0.99) for result in (healthy, dying))
    ratio = after / before if before else 0.0
    name = f"p99 latency at {dying.options.dead:.0%} dead over healthy"
    return SimGate(
        name,
        f"{ratio:.2f} ({after * 1000:.0f} ms / {before * 1000:.0f} ms)",
        f"<= {SLOWER_MAX:.0f}",
        ratio <= SLOWER_MAX,
    )
