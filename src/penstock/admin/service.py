"""The wiring of the node's own service: the loop watch, the admin listener, and the operator's page on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock import __version__
from penstock.admin.actions import PanelActions
from penstock.admin.concern import PagePart, summed_up
from penstock.admin.drawing import Drawing
from penstock.admin.event_tail import EventTail
from penstock.admin.log_tail import LogTail
from penstock.admin.node_panels import node_panels, verdict
from penstock.admin.own_concerns import own_concerns
from penstock.admin.page import OperatorPage
from penstock.admin.passage import Passage
from penstock.admin.publisher import Publisher
from penstock.admin.readings import MetricReadings, ProcessReadings
from penstock.admin.routes import AdminRoutes
from penstock.admin.sampler import Sampler
from penstock.admin.scrapes import ScrapeQuota
from penstock.kernel.child import Child, ChildSpec, Drain
from penstock.kernel.runtime import LoopWatch
from penstock.kernel.supervisor import SupervisorOptions
from penstock.net.server.listener import Listener
from penstock.net.server.listener_config import listener_options

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.admin.authority import OperatorOnly
    from penstock.admin.panel import Panel
    from penstock.admin.passage import Doors
    from penstock.admin.view import NodeHealth, NodeView
    from penstock.config import ListenerSettings
    from penstock.kernel.broadcast import Broadcast
    from penstock.kernel.bus import KernelEvent
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.limiter import ByteBudget
    from penstock.net.server.route import Route

SERVICE = "node"


@dataclass(frozen=True, slots=True)
class Shown:
    """What the page shows beyond the node itself: what the services add to it, and what each says of its API."""

    panels: Sequence[Panel]
    descriptions: Callable[[], dict[str, dict[str, Any]]]
    parts: Sequence[PagePart] = ()
    # Where the services listen, and the token the operator's requests are passed on with.
    doors: Doors = dict
    token: Callable[[], str] = str
    data_dir: Path | None = None


class AdminService:
    """Starts before all services and drains after them, so that an operator can watch both."""

    def __init__(
        self, inventory: Inventory, health: NodeHealth, bus: Broadcast[KernelEvent], *, debug: bool = False
    ) -> None:
        """Declare what watches the process; the listener is opened with `listen`."""
        self._inventory = inventory
        self._health = health
        self._watch = LoopWatch(inventory.metrics, debug=debug)
        self.tail = EventTail(bus, inventory.clock.wall)
        self._started_at = self.tail.now_ms()
        self.publisher: Publisher | None = None
        self.sampler: Sampler | None = None
        self.log_tail = LogTail(inventory)
        self.listener: Listener | None = None
        self._passage: Passage | None = None
        self._parts: Sequence[PagePart] = ()
        self.routes: list[Route] = []
        # What single services add to the admin listener.
        self.extra: list[Route] = []

    def listen(
        self,
        settings: ListenerSettings,
        view: NodeView,
        authority: OperatorOnly,
        shown: Shown,
        budget: ByteBudget | None = None,
    ) -> None:
        """Make the listener over the whole node."""
        panels = node_panels(view, self.tail, shown.panels)
        drawing = Drawing(panels, self._inventory.metrics)
        self._parts = shown.parts
        own = (ProcessReadings(shown.data_dir), MetricReadings(view.metrics))
        self.sampler = Sampler(
            self._inventory,
            [*own, *(part.readings for part in shown.parts if part.readings)],
            [part.refresh for part in shown.parts if part.refresh],
        )
        self._passage = Passage(self._inventory, shown.doors, shown.token)
        self.publisher = Publisher(self._inventory, lambda number: self._frame(number, view, drawing))
        page = OperatorPage(authority, self.publisher, shown.descriptions)
        self.routes = [
            *page.routes(),
            *PanelActions(panels).routes(),
            *AdminRoutes(view, authority.is_operator).routes(),
            *self.sampler.routes(),
            *self.log_tail.routes(),
            *self._passage.routes(),
            *(route for part in shown.parts for route in part.routes),
            *self.extra,
        ]
        options = listener_options(settings)
        scrapes = ScrapeQuota(self._inventory, options.name, is_operator=authority.is_operator)
        self.listener = Listener(
            self._inventory,
            options,
            self.routes,
            admission=lambda request: authority(request) or scrapes.admit(request),
            known=lambda request: authority(request) is None,
            budget=budget,
            health=self._health,
        )

    def _frame(self, number: int, view: NodeView, drawing: Drawing) -> dict[str, object]:
        """Return everything the page shows, in one step of the loop."""
        assert self.sampler is not None
        said, sampled = verdict(view), self.sampler
        concerns = [
            *own_concerns(view.supervisors(), sampled.now, sampled.lately("refused.")),
            *(concern for part in self._parts for concern in part.concerns()),
        ]
        judged = summed_up(str(said["state"]), str(said["why"]), concerns)
        frame: dict[str, object] = {
            "number": number,
            "at": self.tail.now_ms(),
            "node": {**judged, "version": __version__, "started_at": self._started_at},
            "now": sampled.now,
            "panels": drawing.draw(),
            "reloads": view.reloads().count,
        }
        for part in self._parts:
            frame.update(part.facts())
        return frame

    def children(self) -> list[ChildSpec]:
        """List what runs, in start order."""
        watch = ChildSpec("loop_watch", self._watch.run)
        if self.listener is None or self.publisher is None or self.sampler is None:
            return [watch]
        self.log_tail.attach()
        return [
            watch,
            ChildSpec("history_sampler", self.sampler.run),
            ChildSpec("history_refresher", self.sampler.refresh),
            ChildSpec("event_tail", self.tail.run),
            ChildSpec("page_publisher", self.publisher.run),
            ChildSpec("listener", self._listen, critical=True, drain=Drain.STOP_INTAKE, announces=True),
        ]

    async def _listen(self, child: Child) -> None:
        """Serve; when asked to drain, end the streams first: they are admitted requests that would never end."""
        assert self.listener is not None
        assert self.publisher is not None
        forget = child.shutdown.on_drain(self.publisher.end)
        try:
            await self.listener.run(child)
        finally:
            forget()

    async def close(self) -> None:
        """Let go what is held beyond the tasks."""
        self.log_tail.detach()
        if self._passage is not None:
            await self._passage.close()

    @staticmethod
    def supervision(drain_deadline_s: float) -> SupervisorOptions:
        """Say how long the drain may take."""
        return SupervisorOptions(drain_deadline_s=drain_deadline_s)
