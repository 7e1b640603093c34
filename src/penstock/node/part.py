"""A service as the node holds it: how it is supervised, where it listens, what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.admin.concern import PagePart
    from penstock.admin.panel import Panel
    from penstock.config import Settings
    from penstock.kernel.supervisor import Supervisor
    from penstock.net.server.listener import Listener
    from penstock.net.server.route import Route

STAGE_EDGE = 1
STAGE_INNER = 2
STAGE_NODE = 3


@dataclass(frozen=True, slots=True)
class ServicePart:
    """A built service: how it is supervised, where it listens, what it answers."""

    name: str
    supervisor: Supervisor
    listener: Listener | None
    routes: list[Route]
    # What else follows a reload, and what is let go when everything has ended.
    apply: Callable[[Settings], None] | None = None
    close: Callable[[], Awaitable[None]] | None = None
    # The gateway drains first, while what it leads to still answers.
    stage: int = STAGE_INNER
    # What it adds to the operator's page.
    panels: tuple[Panel, ...] = ()
    page: PagePart | None = None
    # What the admin listener answers for it.
    admin_routes: tuple[Route, ...] = ()
    # Where other nodes reach it, for a service with a listener for them beside its own.
    peer_port: Callable[[], int] | None = None
    # What the node's ready line says about it beside its port.
    told: Callable[[], dict[str, dict[str, str]]] | None = None

    def ports(self) -> dict[str, int]:
        """Return where it listens, once started; the HTTP port of one with peers has a name of its own."""
        if self.listener is None:
            return {}
        if self.peer_port is None:
            return {self.name: self.listener.port}
        return {self.name: self.peer_port(), f"{self.name}_http": self.listener.port}

    def urls(self) -> list[str]:
        """Return where it can be reached, once started."""
        if self.listener is None:
            return []
        scheme = "http" if self.listener.options.tls_cert_path is None else "https"
        return [
            f"unix:{address}" if isinstance(address, str) else f"{scheme}://{_host(address[0])}:{address[1]}"
            for address in self.listener.addresses
        ]

    def door(self) -> dict[str, str | None]:
        """Return its URL, once started, and the certificate to expect there."""
        url = next((url for url in self.urls() if url.startswith("http")), None)
        certificate = None if self.listener is None else self.listener.options.tls_cert_path
        return {"url": url, "certificate": None if certificate is None else str(certificate.absolute())}


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
