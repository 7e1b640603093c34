"""The worker pool: where admitted request units run, bounded, supervised, and ended with their supervisor's patience.

A unit is a task of this pool from the end of admission to its answer. A relayed request that needs no task of its own
takes none. When the pool is killed its units are answered `canceled`, the gate is shut, and it comes back by the
restart rules like everything else.
"""

from __future__ import annotations

import inspect
from collections.abc import Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.kernel.deadline import use_deadline
from penstock.kernel.errors import NotReady, PenstockError, forget_where
from penstock.services.omnigate.gate.ticket import tenant_of
from penstock.services.omnigate.own.fair_slots import CALLER

if TYPE_CHECKING:
    import asyncio

    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.scope import Scope
    from penstock.net.message import Request
    from penstock.net.server.route import Route


class WorkerPool:
    """Runs units in the scope of its present life."""

    def __init__(self, inventory: Inventory, size: int) -> None:
        """Allow `size` units at once; parked ones are counted by their ticket, and have their own cap."""
        self._size = size
        self._scope: Scope | None = None

        def live() -> dict[str, object]:
            return {"in_use": 0 if self._scope is None else len(self._scope)}

        inventory.limit("worker_pool", size, "request units at once; full: 429 busy", live)

    @property
    def scope(self) -> Scope:
        """Return where units run now, or raise `NotReady` between two lives."""
        if self._scope is None:
            raise NotReady("The worker pool is being restarted.", phase="restarting")
        return self._scope

    def serve(self, route: Route, default_deadline_s: float, deadline_max_s: float) -> Route:
        """Make a route's requests units of this pool.

        One that names no deadline has the default, or the route's own; it may ask for more, up to a bound.
        """
        handler, deadline_s = route.handler, route.deadline_s or default_deadline_s
        most_s = max(deadline_s, deadline_max_s)
        if not inspect.iscoroutinefunction(handler):
            return replace(route, deadline_s=deadline_s, deadline_max_s=most_s)

        def start(request: Request, *body: object) -> asyncio.Task[Any]:
            return self.scope.start(_under_deadline(request, handler(request, *body)))

        return replace(route, handler=start, deadline_s=deadline_s, deadline_max_s=most_s)

    async def run(self, child: Child) -> None:
        """Offer a scope until the end; what is in it may finish while the service drains."""
        self._scope = child.scope("worker", self._size)
        try:
            child.announce()
            await child.shutdown.wait()
            await self._scope.join()
        finally:
            self._scope = None


async def _under_deadline(request: Request, work: Coroutine[Any, Any, Any]) -> object:
    """Run a unit under its request's deadline; what it raises on purpose is its answer, no failure of the pool."""
    CALLER.set(tenant_of(request))
    try:
        with use_deadline(request.deadline):
            return await work
    except PenstockError as error:
        return forget_where(error)
