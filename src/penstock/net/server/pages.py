"""What every listener answers itself: /healthz, /readyz, /version and /openapi.json."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.kernel.errors import NotReady
from penstock.net.message import Request, Response
from penstock.net.problem import retry_after_s
from penstock.net.server.core import encode_json
from penstock.net.server.openapi import openapi
from penstock.net.server.route import Route

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.kernel.health import Judged


class ServicePages:
    """Say how the service is and what it offers; while draining it is alive and not ready."""

    def __init__(self, health: Judged, version: str, phase: Callable[[], str], described: Iterable[Route]) -> None:
        """Read the verdicts from `health` when asked, never before; describe the routes in /openapi.json."""
        self._health = health
        self._version = version
        self._phase = phase
        pages = (
            ("/healthz", self.healthz),
            ("/readyz", self.readyz),
            ("/version", self.version),
            ("/openapi.json", self.description),
        )
        # They need no capability.
        self.routes = [
            Route(method="GET", path=path, handler=page, open=True, summary=page.__doc__ or "") for path, page in pages
        ]
        self.describe((*described, *self.routes))

    def describe(self, routes: Iterable[Route]) -> None:
        """Describe these routes from now on; the description is made when somebody asks, not at every start."""
        self._described = tuple(routes)
        self._description = b""

    def description(self, _request: Request) -> Response:
        """Describe every route as OpenAPI 3.1."""
        if not self._description:
            self._description = encode_json(openapi(self._health.service, self._version, self._described))
        return Response(200, self._description)

    def healthz(self, _request: Request) -> Response:
        """Tell whether the loop lives and no crash loop was escalated."""
        if self._health.fatal is None:
            return Response(200, encode_json({"status": "ok"}))
        return self._unready({"status": "fatal", "task": self._health.fatal})

    def readyz(self, _request: Request) -> Response:
        """Tell whether work is taken, and which gates are shut if not."""
        verdict, phase = self._health.verdict(), self._phase()
        if verdict.ready and phase == "running":
            return Response(200, encode_json({"ready": True, "gates": verdict.gates, "degraded": verdict.degraded}))
        shut = {"ready": False, "gates": verdict.gates, "missing": verdict.missing, "degraded": verdict.degraded}
        return self._unready({**shut, "phase": phase})

    def version(self, _request: Request) -> Response:
        """Name the service and the version it runs."""
        return Response(200, encode_json({"service": self._health.service, "version": self._version}))

    def _unready(self, body: dict[str, object]) -> Response:
        retry_after = retry_after_s(NotReady()) or 1
        headers = [(b"Retry-After", b"%d" % retry_after)]
        return Response(503, encode_json({**body, "retry_after": retry_after}), headers=headers)
