"""What an exploration found: the verdict, its figures, and the failing schedule."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Literal

Verdict = Literal["holds", "fails", "cut"]
Kind = Literal["", "assertion", "exception", "deadlock", "livelock", "leak"]

_JSON = (
    "verdict",
    "complete",
    "kind",
    "schedules",
    "states",
    "steps",
    "outcomes",
    "seconds",
    "token",
    "message",
    "trace",
)


@dataclass(frozen=True, slots=True)
class Ending:
    """How one schedule ended."""

    kind: Kind
    message: str
    outcome: str

    @property
    def failed(self) -> bool:
        """Tell whether this schedule breaks the program."""
        return bool(self.kind)


class WeaveFailure(AssertionError):
    """Some schedule breaks the program, or not all of them could be tried."""

    def __init__(self, report: WeaveReport) -> None:
        """Tell all that the report tells."""
        super().__init__(str(report))
        self.report = report


@dataclass(frozen=True, slots=True, kw_only=True)
class WeaveReport:
    """The verdict on a program over all its schedules, and the figures of the search."""

    verdict: Verdict
    complete: bool
    """Whether every schedule was covered; a failure ends the search early."""
    kind: Kind = ""
    schedules: int = 0
    states: int = 0
    steps: int = 0
    outcomes: tuple[str, ...] = ()
    seconds: float = 0.0
    token: str = ""
    message: str = ""
    trace: tuple[str, ...] = ()
    mode: str = "any"
    strategy: str = "hash"
    notes: tuple[str, ...] = field(default=())
    """What the reader should know: state that could not be seen, clocks that were read."""
    job_cpu_s: tuple[float, ...] = ()
    """The CPU time of each process, where several searched."""

    def to_json(self) -> str:
        """Print on one line, with the keys that the command promises."""
        values = {name: getattr(self, name) for name in _JSON}
        values["seconds"] = round(self.seconds, 3)
        values["message"] = "; ".join([part for part in (self.message, *self.notes) if part])
        return json.dumps(values)

    def __str__(self) -> str:
        """Print for a person."""
        scope = "every schedule" if self.complete and self.verdict == "holds" else "searched"
        head = (
            f"{self.verdict}: {scope} in mode {self.mode}, strategy {self.strategy}: {self.schedules} schedules, "
            f"{self.states} states, {self.steps} steps, {len(self.outcomes)} outcomes, {self.seconds:.2f} s"
        )
        lines = [head]
        if self.message:
            lines.append(f"{self.kind}: {self.message}" if self.kind else self.message)
        lines += [f"note: {note}" for note in self.notes]
        if self.trace:
            lines += ["", "The failing schedule (* = not the oldest ready step):", *self.trace]
        if self.token:
            lines += ["", f"Replay it with the schedule {self.token}"]
        return "\n".join(lines)

    def demand(self) -> WeaveReport:
        """Raise `WeaveFailure` unless the program holds in every schedule; return the report."""
        if self.verdict != "holds" or not self.complete:
            raise WeaveFailure(self)
        return self
