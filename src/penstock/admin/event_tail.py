"""The event tail: the node's last events. They are kept while nobody looks, because people look after a fault."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from penstock.kernel.bus import (
    ConfigUpdated,
    HealthChanged,
    ServiceCrashed,
    ShutdownRequested,
)
from penstock.kernel.errors import Lagging
from penstock.kernel.lifecycle import Phase

if TYPE_CHECKING:
    from penstock.kernel.broadcast import Broadcast
    from penstock.kernel.bus import KernelEvent
    from penstock.kernel.child import Child
    from penstock.kernel.supervisor import Supervisor

EVENTS_KEPT: Final = 100
PHASES_KEPT: Final = 32
Level = Literal["info", "warn", "bad"]
_PHASE_LEVELS: Final[dict[Phase, Level]] = {Phase.DRAINING: "warn", Phase.ABORTING: "bad"}


class Moment(NamedTuple):
    """One line: Unix milliseconds, service, what happened, severity."""

    at: int
    service: str
    text: str
    level: Level


class EventTail:
    """Two bounded rings, oldest out: events of the bus, and phases of the services."""

    def __init__(self, bus: Broadcast[KernelEvent], wall: Callable[[], float]) -> None:
        """Take the bus to listen to; `wall` gives the times of the events."""
        self._bus = bus
        self._wall = wall
        self.events: deque[Moment] = deque(maxlen=EVENTS_KEPT)
        self.phases: deque[Moment] = deque(maxlen=PHASES_KEPT)
        # Events that were lost because this tail was too slow; the page says so.
        self.skipped = 0
        # Whether each gate is open, as last told: one that opens at the start, or only changes its colour, is no news.
        self._gates: dict[tuple[str, str], bool] = {}
        # The place on the bus from which on a gate is news; None while the node starts. Until then gates open and shut
        # as child after child comes up, and a quiet node would begin with a page of warnings.
        self._news_from: int | None = 0

    def await_start(self) -> None:
        """Hold gates to be no news until `end_start`."""
        self._news_from = None

    def end_start(self, shut: Iterable[tuple[str, str]]) -> None:
        """Tell the gates, by service and name, that are shut though the node has started; from now on all are news."""
        self._news_from = self._bus.published
        for service, gate in shut:
            self._keep(HealthChanged(service, ok=False, gate=gate))

    def follow(self, supervisor: Supervisor) -> None:
        """Note every phase a service enters from now on, the present one included."""
        supervisor.phase.on_change(partial(self._enter, supervisor))
        self._enter(supervisor)

    def _enter(self, supervisor: Supervisor) -> None:
        phase = supervisor.phase.value
        self.phases.append(self._moment(supervisor.service, phase.value, _PHASE_LEVELS.get(phase, "info")))

    async def run(self, child: Child) -> None:
        """Listen until the service drains."""
        events = self._bus.subscribe()
        # Waiting for an event ends by an event: the drain is one too.
        forget = child.shutdown.on_drain(self._say_drain)
        try:
            while not child.shutdown.draining:
                try:
                    event = await events.recv()
                    self.note(event, events.cursor - 1)
                except Lagging as lost:
                    self.skipped += lost.skipped
        finally:
            forget()
            events.close()

    def _say_drain(self) -> None:
        self._bus.publish(ShutdownRequested("drain"))

    def note(self, event: KernelEvent, place: int | None = None) -> None:
        """Keep one event from this place of the bus, unless it repeats the known state of a gate or is of the start."""
        if isinstance(event, HealthChanged):
            gate = event.service, event.gate
            if event.ok == self._gates.get(gate, True):
                return
            self._gates[gate] = event.ok
            if place is not None and (self._news_from is None or place < self._news_from):
                return
        self._keep(event)

    def _keep(self, event: KernelEvent) -> None:
        service, text, level = _told(event)
        self.events.append(self._moment(service, text, level))

    def _moment(self, service: str, text: str, level: Level) -> Moment:
        return Moment(self.now_ms(), service, text, level)

    def now_ms(self) -> int:
        """Return Unix milliseconds: what the page shows is read by people."""
        return int(self._wall() * 1000)


def _told(event: KernelEvent) -> tuple[str, str, Level]:
    """Describe an event in a few words."""
    if isinstance(event, HealthChanged):
        return event.service, f"gate {event.gate} {'opened' if event.ok else 'shut'}", "info" if event.ok else "warn"
    if isinstance(event, ServiceCrashed):
        return event.service, f"{event.task} crashed: {event.reason}", "bad"
    if isinstance(event, ConfigUpdated):
        return "node", f"configuration {event.version} in force", "info"
    return "node", f"asked to stop ({event.cause})", "warn"
