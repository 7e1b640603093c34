"""Keeps the log of a node readable on a terminal: refusals and cut tasks are summed up, what is routine is left out.

Only where a person reads the log as text. A program that reads it gets every event of a node that started; of one that
could not start it gets the sentence that says why, without the routine before it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from typing import Final

from penstock.kernel.log import ROOT

EVERY_S: Final = 10.0
_NAMED: Final = 3
_HELD_MAX: Final = 256
# What every start and every end says, and what the table and the countdown show already.
_ROUTINE: Final = frozenset({"phase", "listener.closed", "drained", "store.open", "dht.ready.changed", "shutdown"})


class QuietLog(logging.Filter):
    """Holds single refusals and cut tasks back and says every ten seconds how many there were, and why.

    What the end of the node cuts off is in the line that says how it ended.
    """

    def __init__(self) -> None:
        """Begin with nothing held back."""
        super().__init__()
        self._refused: Counter[tuple[str, str]] = Counter()
        self._cut: Counter[str] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        """Let everything pass but single refusals, and routine that is not even a warning."""
        fields = getattr(record, "fields", None) or {}
        event = fields.get("event")
        if event == "request.refused":
            # One line may stand for many that the listener did not say.
            count = 1 + int(fields.get("unsaid", 0))
            self._refused[str(fields.get("service")), str(fields.get("reason"))] += count
            return False
        if event == "task.aborted":
            self._cut[str(fields.get("service"))] += 1
            return False
        return record.levelno > logging.INFO or event not in _ROUTINE

    def summary(self) -> str:
        """Return a line about what was refused since the last time, and one about what was cut off, if anything."""
        return self._refusals() + self._cuts()

    def _cuts(self) -> str:
        cut, self._cut = self._cut, Counter()
        if not cut:
            return ""
        named = ", ".join(f"{count} of {service}" for service, count in cut.most_common(_NAMED))
        total = sum(cut.values())
        return f"{total} task{'s' if total != 1 else ''} cut off in the last {EVERY_S:.0f} s: {named}\n"

    def _refusals(self) -> str:
        refused, self._refused = self._refused, Counter()
        if not refused:
            return ""
        named = ", ".join(f"{count} {reason} ({service})" for (service, reason), count in refused.most_common(_NAMED))
        more = "" if len(refused) <= _NAMED else ", and others"
        total = sum(refused.values())
        return f"{total} request{'s' if total != 1 else ''} refused in the last {EVERY_S:.0f} s: {named}{more}\n"


def quieten(level: str, style: str) -> QuietLog | None:
    """Put the filter on the log, if a person reads it; None elsewhere, and where somebody wants to see everything."""
    if not sys.stderr.isatty() or style == "json" or level == "debug":
        return None
    quiet = QuietLog()
    for handler in logging.getLogger(ROOT).handlers:
        handler.filters[:] = [quiet]
    return quiet


class HeldStart(logging.Filter):
    """Holds routine events back until the node is ready, and then lets them go, each with its own time.

    A node that cannot start says so in one sentence. What it did until then, and that it stopped again, would stand
    before that sentence; the events of a failed start that are not routine are never held.
    """

    def __init__(self, handlers: list[logging.Handler]) -> None:
        super().__init__()
        self._handlers = handlers
        self._held: list[logging.LogRecord] = []
        self._holding = True

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep a routine event for later, while there is room."""
        fields = getattr(record, "fields", None) or {}
        routine = record.levelno <= logging.INFO and fields.get("event") in _ROUTINE
        if not self._holding or not routine or len(self._held) >= _HELD_MAX:
            return True
        self._held.append(record)
        return False

    def release(self) -> None:
        """Write what was held, and hold nothing from now on."""
        self._holding, held, self._held = False, self._held, []
        for record in held:
            for handler in self._handlers:
                handler.handle(record)


def hold_start(level: str) -> HeldStart | None:
    """Hold the routine of a start back; None where somebody wants to see everything as it happens."""
    if level == "debug":
        return None
    handlers = logging.getLogger(ROOT).handlers
    held = HeldStart(handlers)
    for handler in handlers:
        handler.filters[:] = [held]
    return held


class SummaryTimer:
    """Says the summary every ten seconds, from the first call of `start` until the loop ends."""

    def __init__(self, quiet: QuietLog) -> None:
        """Speak of what `quiet` has held back."""
        self._quiet = quiet

    def start(self) -> None:
        """Say what there is, and look again later."""
        from penstock.kernel.log import say_beside

        if line := self._quiet.summary():
            say_beside(line)
        # lint: allow PK006 one timer, gone with the loop; it only writes a line
        asyncio.get_running_loop().call_later(EVERY_S, self.start)
