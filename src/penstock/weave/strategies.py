"""The strategies by their names, and those that try only some schedules."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Protocol

from penstock.weave.dpor import DporSearch, Untracked
from penstock.weave.hashing import HashSearch
from penstock.weave.jobs import search_with_jobs
from penstock.weave.search import BadOption, ExploreSettings, Fixed, Limit, Search

if TYPE_CHECKING:
    from penstock.weave.loop import Step, WeaveLoop

_RANDOM_FAIR_AFTER = 2_000


class Strategy(Protocol):
    """Decides which schedules are run, in which order."""

    exhaustive: bool
    """Whether it covers every schedule."""
    told: str
    """Its name, as the report tells it."""

    def search(self, search: Search) -> None:
        """Run schedules until there are no more."""
        ...


class DelaySearch:
    """All schedules with at most so many departures from the first option."""

    exhaustive = False

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.told = f"delay:{bound}"

    def search(self, search: Search) -> None:
        """Run them, those with few departures first."""
        frontier: list[tuple[int, ...]] = [()]
        for left in range(self.bound, -1, -1):
            following: list[tuple[int, ...]] = []
            for prefix in frontier:
                picker = Fixed(prefix)
                search.run(picker, picker.choices)
                if left:
                    following += _branches(prefix, picker.widths)
            frontier = following


def _branches(prefix: tuple[int, ...], widths: list[int]) -> list[tuple[int, ...]]:
    """List the schedules that depart once more, after the end of this prefix."""
    branches = []
    for at in range(len(prefix), len(widths)):
        start = (*prefix, *[0] * (at - len(prefix)))
        branches += [(*start, choice) for choice in range(1, widths[at])]
    return branches


class RandomSearch:
    """So many schedules with every choice thrown by dice; the seed is fixed, so two searches are equal."""

    exhaustive = False

    def __init__(self, count: int) -> None:
        self.count = count
        self.told = f"random:{count}"

    def search(self, search: Search) -> None:
        """Run them."""
        dice = random.Random(0)
        for _ in range(self.count):
            picker = _Dice(dice)
            search.run(picker, picker.choices)


class _Dice:
    """A picker that throws dice for a while and then is fair, so that a polling program comes to its end."""

    def __init__(self, dice: random.Random) -> None:
        self.choices: list[int] = []
        self._dice = dice

    def __call__(self, _: WeaveLoop, options: list[Step]) -> int:
        choice = self._dice.randrange(len(options)) if len(self.choices) < _RANDOM_FAIR_AFTER else 0
        self.choices.append(choice)
        return choice


class AutoSearch:
    """`dpor` where all that tasks share is tracked, else `hash`."""

    exhaustive = True

    def __init__(self, settings: ExploreSettings) -> None:
        self._settings = settings
        self.told = "auto"

    def search(self, search: Search) -> None:
        """Try `dpor` first; begin again with `hash` when something is shared out of sight."""
        if self._settings.mode == "any":
            try:
                self.told = "dpor"
                DporSearch(self._settings.tracks).search(search)
                return
            except Untracked:
                search.begin_again()
        self.told = "hash"
        HashSearch().search(search)


class JobsSearch:
    """`hash` with several processes."""

    exhaustive = True

    def __init__(self, settings: ExploreSettings) -> None:
        self._settings = settings
        self.told = f"hash with {settings.jobs} jobs"

    def search(self, search: Search) -> None:
        """Fork, search, gather."""
        if cut := search_with_jobs(search.program, self._settings, search):
            raise Limit(cut)


def strategy_for(settings: ExploreSettings) -> Strategy:
    """Make the strategy that the settings name."""
    name = settings.strategy
    if settings.jobs > 1 and name in {"auto", "hash"} and settings.refines is None:
        return JobsSearch(settings)
    kind, _, number = name.partition(":")
    if kind in {"delay", "random"}:
        if not number.isdecimal() or (kind == "random" and int(number) < 1):
            raise BadOption(f"the strategy {kind} wants a number: {kind}:{2 if kind == 'delay' else 1000}")
        return DelaySearch(int(number)) if kind == "delay" else RandomSearch(int(number))
    if name == "auto":
        return AutoSearch(settings)
    if name == "dpor" and settings.mode != "any":
        # In asyncio's own order there is little to reduce, and nothing to track it by.
        return HashSearch()
    if name in {"hash", "dpor"}:
        return HashSearch() if name == "hash" else DporSearch(settings.tracks)
    raise BadOption(f"the strategy is auto, hash, dpor, delay:K or random:N, not {name!r}")
