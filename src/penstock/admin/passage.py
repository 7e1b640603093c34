"""The passage: the API of every service, reached by the page with its session instead of a capability.

The page and the `try it` of the API pages ask `/api/{service}/...` on the admin listener. The request goes on to that
service's own listener with the operator's token, so that a button does exactly what the public API does: same limits,
same checks, same errors. Who may use it is judged before, as on every route that is not open; a session counts only for
requests that our own page made.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from penstock.kernel.errors import NotFound, NotReady
from penstock.kernel.log import Log
from penstock.net.calls.client import ClientOptions, HttpClient
from penstock.net.message import Response
from penstock.net.server.route import Route

if TYPE_CHECKING:
    from penstock.kernel.inventory import Inventory
    from penstock.net.message import Request

TIMEOUT_S: Final = 30.0
_METHODS: Final = ("GET", "POST", "PUT", "DELETE")
_ANSWER_BYTES_MAX: Final = 8 << 20
# What a service may need to know of a request; everything else, the cookie first of all, ends here.
_PASSED: Final = frozenset(
    {b"accept", b"content-type", b"idempotency-key", b"range", b"x-payload-hash", b"x-idempotency-mode"}
)
_RETURNED: Final = frozenset({b"content-range", b"etag", b"location", b"retry-after"})
_log: Final = Log("node")

Doors = Callable[[], Mapping[str, Mapping[str, str | None]]]
"""Where each service listens: its URL and the certificate to expect there, by name."""


class Passage:
    """Passes requests of the operator on."""

    def __init__(self, inventory: Inventory, doors: Doors, token: Callable[[], str]) -> None:
        """Ask for the doors and the token each time: a listener may move, and a token may be replaced."""
        self._doors = doors
        self._token = token
        options = ClientOptions(
            service="passage",
            timeout_s=TIMEOUT_S,
            read_timeout_s=TIMEOUT_S,
            connections_max=16,
            tries_max=1,
            body_bytes_max=_ANSWER_BYTES_MAX,
            tls=_to_ourselves(),
        )
        self._client = HttpClient(inventory, options)

    def routes(self) -> list[Route]:
        """List one route a method."""
        return [
            Route(
                method=method,
                path="/api/{service}/{rest*}",
                handler=self._pass,
                summary="Ask a service of this node with the operator's capability.",
                errors=("not_found", "not_ready", "downstream_unavailable", "timeout"),
                deadline_s=TIMEOUT_S,
            )
            for method in _METHODS
        ]

    async def _pass(self, request: Request) -> Response:
        service = request.params["service"]
        door = self._doors().get(service)
        if door is None:
            raise NotFound("There is no such service on this node.")
        url = door["url"]
        if url is None:
            raise NotReady(f"{service} does not listen on TCP.", phase="absent", service=service)
        if request.method != "GET":
            _log.info("operator.acts", service=service, route=request.path, corr_id=request.corr_id)
        # The path as it was sent: what is encoded stays so.
        path = request.path.split("/", 3)[3]
        query = b"?" + request.query if request.query else b""
        answer = await self._client.request(
            request.method,
            f"{_dialled(url)}/{path}{query.decode('ascii')}",
            headers=self._headers(request),
            body=request.body,
            corr_id=request.corr_id,
            timeout_s=TIMEOUT_S - 1.0,
            idempotent=False,
        )
        kept = [(name, value) for name, value in answer.fields if name.lower() in _RETURNED]
        kind = answer.headers.get(b"content-type", b"")
        return Response(answer.status, answer.body, kind, [*kept, (b"X-Content-Type-Options", b"nosniff")])

    def _headers(self, request: Request) -> list[tuple[bytes, bytes]]:
        passed = [(name, value) for name, value in request.fields if name in _PASSED]
        token = self._token()
        return [*passed, (b"Authorization", b"Bearer " + token.encode("ascii"))] if token else passed

    async def close(self) -> None:
        """Let the connections go."""
        await self._client.close()


def _dialled(url: str) -> str:
    """Return where a listener on all addresses is reached from here."""
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def _to_ourselves() -> ssl.SSLContext:
    """Take any certificate: what is dialled is a socket that this very process listens on, by its address.

    The bytes do not leave the machine, and a certificate that was replaced meanwhile is taken as well.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
