"""Named fault points: constant False, except inside a simulation that draws for them.

A component asks `strikes("mailbox.slow_fsync")` where something rare could happen. Outside a simulation the answer
is False at the cost of one comparison. Inside, each point is enabled or not for the whole run, and an enabled one
strikes now and then: rare events meet in some runs instead of being spread thin over all of them.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Faults:
    """The faults of one simulation, all drawn from its seed."""

    def __init__(self, seed: int, rates: Mapping[str, float] | None = None, *, enabled_share: float = 0.25) -> None:
        """Fix the seed; `rates` names points that strike at a rate of their own, whatever the draw."""
        self.seed = seed
        self.asked: Counter[str] = Counter()
        """How often each point was passed."""
        self.struck: Counter[str] = Counter()
        """How often each point struck."""
        self._rates = dict(rates or {})
        self._enabled_share = enabled_share
        self._streams: dict[str, random.Random] = {}

    def strikes(self, name: str) -> bool:
        """Draw for this point; one point's draws do not depend on how often another is passed."""
        if name not in self._streams:
            self._open(name)
        self.asked[name] += 1
        if self._streams[name].random() >= self._rates[name]:
            return False
        self.struck[name] += 1
        return True

    def _open(self, name: str) -> None:
        stream = self._streams[name] = random.Random(f"{self.seed}:{name}")
        if name not in self._rates:
            self._rates[name] = stream.uniform(0.01, 0.25) if stream.random() < self._enabled_share else 0.0


_active: Faults | None = None


def strikes(name: str) -> bool:
    """Tell whether this fault point strikes now; always False outside a simulation."""
    return _active is not None and _active.strikes(name)


@contextmanager
def simulation(faults: Faults) -> Iterator[Faults]:
    """Let these faults strike inside the block; an error that escapes it carries the seed."""
    global _active  # noqa: PLW0603 one simulation at a time, and one comparison at a point
    before, _active = _active, faults
    try:
        yield faults
    except BaseException as error:
        error.add_note(f"seed of the faults: {faults.seed}; struck: {dict(faults.struck)}")
        raise
    finally:
        _active = before
