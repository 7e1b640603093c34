"""A service's metrics and health on a separate address, for scrapers that may not reach the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.admin.exposition import CONTENT_TYPE, Exposition
from penstock.kernel.child import ChildSpec, Drain
from penstock.net.message import Response
from penstock.net.server.listener import Listener
from penstock.net.server.listener_options import ListenerOptions
from penstock.net.server.route import Route

if TYPE_CHECKING:
    from penstock.kernel.inventory import Inventory
    from penstock.net.message import Request


def metrics_child(inventory: Inventory, host: str, port: int) -> ChildSpec:
    """Describe the listener as a child of its service."""
    exposition = Exposition(lambda: [inventory.metrics])

    def metrics(_request: Request) -> Response:
        return Response(200, exposition.recent_page(), CONTENT_TYPE)

    route = Route(method="GET", path="/metrics", handler=metrics, open=True, summary="The metrics of this service.")
    options = ListenerOptions(name="metrics_listener", host=host, port=port, max_conns=64)
    listener = Listener(inventory, options, [route])
    return ChildSpec("metrics_listener", listener.run, drain=Drain.STOP_INTAKE, announces=True)
