"""The strategy `hash`: over all choices, and a state that was seen before is not followed again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.weave.fingerprint import Opaque
from penstock.weave.loop import EVENT
from penstock.weave.run import Pruned
from penstock.weave.search import Nondeterministic

if TYPE_CHECKING:
    from penstock.weave.loop import Step, WeaveLoop
    from penstock.weave.search import Search

Prefix = tuple[tuple[int, ...], int]
"""The choices that lead to a branch, and how many options its last choice had."""


FRONTIER_MAX = 200_000


class Frontier:
    """The branches not taken yet, by how often they depart from asyncio's order; the fewest departures come first.

    So a failure is found with few departures. A frontier that grows too large is worked off from its far end, which
    keeps it small as a depth-first search does.
    """

    def __init__(self) -> None:
        self.levels: list[list[Prefix]] = []
        self.count = 0

    def add(self, level: int, branches: list[Prefix]) -> None:
        """Keep branches that depart so often."""
        while len(self.levels) <= level:
            self.levels.append([])
        self.levels[level] += branches
        self.count += len(branches)

    def pop(self) -> tuple[Prefix, int]:
        """Take the next branch, and tell how often it departs."""
        order = range(len(self.levels)) if self.count < FRONTIER_MAX else range(len(self.levels) - 1, -1, -1)
        level = next(level for level in order if self.levels[level])
        self.count -= 1
        return self.levels[level].pop(), level


class HashSearch:
    """Search with pruning by fingerprints.

    Each run follows a prefix of choices to a branch that was not taken yet, and then always takes the first option.
    At every choice after the prefix the state is fingerprinted: a known state ends the run, a new one leaves its other
    options in the frontier. A state that comes back within one run is a cycle: the run goes on without pruning in
    asyncio's own order, and if that order never leaves the cycle the loop reports a livelock.
    """

    exhaustive = True
    told = "hash"

    def __init__(self) -> None:
        self.seen: set[bytes] = set()
        self.frontier = Frontier()
        self._search: Search | None = None
        self._prefix: tuple[int, ...] = ()
        self._width = 0
        self._level = 0
        self._choices: list[int] = []
        self._marks: set[bytes] = set()
        self._cycling = False
        self._blind = False

    def search(self, search: Search) -> None:
        """Try every schedule."""
        self._search = search
        self.frontier.add(0, [((), 0)])
        self.work_off()

    def work_off(self) -> None:
        """Follow every branch of the frontier."""
        while self.frontier.count:
            self.work_off_some(1000)

    def work_off_some(self, runs: int) -> None:
        """Follow some branches of the frontier."""
        search = self._search
        assert search is not None
        while self.frontier.count and runs:
            runs -= 1
            (self._prefix, self._width), self._level = self.frontier.pop()
            self._choices = []
            self._marks = set()
            self._cycling = False
            search.progress.waiting = self.frontier.count
            search.run(self.pick, self._choices)
            search.progress.states = len(self.seen)

    def pick(self, loop: WeaveLoop, options: list[Step]) -> int:
        """Follow the prefix, then explore."""
        choices = self._choices
        at = len(choices)
        if at < len(self._prefix):
            choice = self._prefix[at]
            if at == len(self._prefix) - 1 and len(options) != self._width:
                raise Nondeterministic(
                    f"not deterministic: the same choices led to {self._width} options before and {len(options)} now"
                )
        else:
            choice = self._explore(loop, options)
        choices.append(choice)
        return choice

    def _explore(self, loop: WeaveLoop, options: list[Step]) -> int:
        if self._cycling:
            # Fair: what may happen outside does happen at last.
            return next((at for at, step in enumerate(options) if step.kind == EVENT), 0)
        if self.knows(loop):
            return self._explore(loop, options)
        here = tuple(self._choices)
        width = len(options)
        self.frontier.add(self._level + 1, [((*here, choice), width) for choice in range(width - 1, 0, -1)])
        return 0

    def knows(self, loop: WeaveLoop) -> bool:
        """Tell whether this state closes a cycle; end the run if it was met in another one."""
        if self._blind:
            return False
        search = self._search
        assert search is not None
        try:
            mark = search.prints.of(loop, search.beside(loop))
        except Opaque as opaque:
            search.notes[f"state inside {opaque} cannot be seen: states are not compared any more"] = None
            self._blind = True
            return False
        if mark in self._marks:
            self._cycling = True
            return True
        self._marks.add(mark)
        if not self.is_new(mark):
            raise Pruned
        return False

    def is_new(self, mark: bytes) -> bool:
        """Note a state; tell whether nobody has seen it before."""
        before = len(self.seen)
        self.seen.add(mark)
        return len(self.seen) > before
