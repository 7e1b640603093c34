"""Named readiness gates and the verdict over them; a change is reported as an event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `/readyz` says: ready only when no gate is missing; a degraded gate does not make it unready."""

    ready: bool
    gates: dict[str, bool]
    missing: tuple[str, ...]
    degraded: tuple[str, ...]


class Judged(Protocol):
    """What the health pages ask: one service, or a whole node."""

    service: str

    @property
    def fatal(self) -> str | None:
        """Name the task whose crash loop was escalated, if any."""
        ...

    def verdict(self) -> Verdict:
        """Judge readiness now."""
        ...


class Gate:
    """One condition of readiness. Open means met; `degraded` means met, but worse than it should be."""

    __slots__ = ("_health", "advisory", "degraded", "name", "open", "why")

    def __init__(self, name: str, health: Health, *, is_open: bool) -> None:
        self.name = name
        self.open = is_open
        self.degraded = False
        # Shut, it makes its service unready and the node only degraded: the other services do not need it.
        self.advisory = False
        self.why = ""
        self._health = health

    def set(self, *, is_open: bool, degraded: bool = False, why: str = "") -> None:
        """Change the state; only a real change is reported."""
        changed = (self.open, self.degraded) != (is_open, degraded)
        self.open, self.degraded, self.why = is_open, degraded, why
        if changed:
            self._health.flipped(self)


class Health:
    """All gates of one service, and whether a crash loop was escalated to fatal."""

    def __init__(self, service: str, on_flip: Callable[[str, Gate], None] | None = None) -> None:
        """Report flips to `on_flip(service, gate)`."""
        self.service = service
        self.fatal: str | None = None  # the task whose crash loop was escalated
        # Says what is shed and why, nothing while nothing is; a service that never sheds has none.
        self.brownout: Callable[[], str] | None = None
        self._gates: dict[str, Gate] = {}
        self._on_flip = [] if on_flip is None else [on_flip]

    def on_flip(self, report: Callable[[str, Gate], None]) -> None:
        """Have somebody more hear of flips: the node connects this to its bus, a service to its own events."""
        self._on_flip.append(report)

    def gate(self, name: str, *, is_open: bool = False) -> Gate:
        """Return the gate of that name, declaring it (shut) at the first call."""
        if name not in self._gates:
            self._gates[name] = Gate(name, self, is_open=is_open)
        return self._gates[name]

    def gates(self) -> list[Gate]:
        """List the gates in order of declaration."""
        return list(self._gates.values())

    def verdict(self) -> Verdict:
        """Judge readiness. Without any gate the service is not ready."""
        gates = {gate.name: gate.open for gate in self._gates.values()}
        missing = tuple(name for name, is_open in gates.items() if not is_open)
        degraded = tuple(gate.name for gate in self._gates.values() if gate.degraded)
        return Verdict(bool(gates) and not missing and self.fatal is None, gates, missing, degraded)

    def flipped(self, gate: Gate) -> None:
        """Pass a flip on."""
        for report in self._on_flip:
            report(self.service, gate)
