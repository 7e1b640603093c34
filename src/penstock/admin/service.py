"""The wiring of the node's own service: the loop watch and the admin listener."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.admin.routes import AdminRoutes
from penstock.kernel.child import ChildSpec, Drain
from penstock.kernel.runtime import LoopWatch
from penstock.kernel.supervisor import SupervisorOptions
from penstock.net.listener import Listener
from penstock.net.listener_config import listener_options

if TYPE_CHECKING:
    from penstock.admin.authority import OperatorOnly
    from penstock.admin.view import NodeHealth, NodeView
    from penstock.config import ListenerSettings
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.limiter import ByteBudget
    from penstock.net.route import Route

SERVICE = "node"


class AdminService:
    """Starts before all services and drains after them, so that an operator can watch both."""

    def __init__(self, inventory: Inventory, health: NodeHealth, *, debug: bool = False) -> None:
        """Declare what watches the process; the listener is opened with `listen`."""
        self._inventory = inventory
        self._health = health
        self._watch = LoopWatch(inventory.metrics, debug=debug)
        self.listener: Listener | None = None
        self.routes: list[Route] = []

    def listen(
        self, settings: ListenerSettings, view: NodeView, authority: OperatorOnly, budget: ByteBudget | None = None
    ) -> None:
        """Make the listener over the whole node."""
        self.routes = AdminRoutes(view).routes()
        self.listener = Listener(
            self._inventory,
            listener_options(settings),
            self.routes,
            admission=authority,
            budget=budget,
            health=self._health,
        )

    def children(self) -> list[ChildSpec]:
        """List what runs, in start order."""
        watch = ChildSpec("loop_watch", self._watch.run)
        if self.listener is None:
            return [watch]
        return [
            watch,
            ChildSpec("listener", self.listener.run, critical=True, drain=Drain.STOP_INTAKE, announces=True),
        ]

    @staticmethod
    def supervision(drain_deadline_s: float) -> SupervisorOptions:
        """Say how long the drain may take."""
        return SupervisorOptions(drain_deadline_s=drain_deadline_s)
