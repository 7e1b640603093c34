"""May this call do that: every data route needs a capability for its op and its topic."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from penstock.contracts.call import Call, Origin
from penstock.contracts.capability import Grant, RequestContext
from penstock.kernel.errors import PenstockError, Unauthenticated

if TYPE_CHECKING:
    from penstock.contracts.capability import Verifier
    from penstock.net.message import Request

AUDIENCE: Final = "svc-mailbox"


class Authority:
    """Asks the verifier; counts what it refused, so that a spike can be seen."""

    def __init__(self, verifier: Verifier | None) -> None:
        """Without a verifier everything is open: only for a node that was told so."""
        self._verifier = verifier
        self.failures = 0

    @property
    def open(self) -> bool:
        """Tell whether nothing is checked."""
        return self._verifier is None

    def allow(self, call: Call, op: str, topic: str | None) -> Awaitable[None] | None:
        """Return at once when the verifier can tell at once; raise when it says no."""
        if self._verifier is None:
            return None
        context = RequestContext(aud=AUDIENCE, op=op, topic=topic, **_origin(call))
        return self._judge(self._verifier, call.capability, context)

    def admit(self, request: Request, op: str, topic: str | None) -> Awaitable[None] | None:
        """Do the same for a request of this service's own listener."""
        if self._verifier is None:
            return None
        context = RequestContext(AUDIENCE, op, topic, request.method, request.route.path, request.peer.host or None)
        return self._judge(self._verifier, _token_of(request), context)

    def _judge(self, verifier: Verifier, token: str, context: RequestContext) -> Awaitable[None] | None:
        if not token:
            self.failures += 1
            raise Unauthenticated(reason="missing")
        try:
            verdict = verifier.verify(token, context)
        except PenstockError:
            self.failures += 1
            raise
        return None if isinstance(verdict, Grant) else self._wait(verdict)

    async def _wait(self, verdict: Awaitable[Grant]) -> None:
        try:
            await verdict
        except PenstockError:
            self.failures += 1
            raise


def call_of(request: Request) -> Call:
    """Write down who asks, for what goes through the contract."""
    origin = Origin(request.method, request.route.path, request.peer.host)
    return Call(_token_of(request), request.corr_id, request.traceparent or "", origin=origin)


def _token_of(request: Request) -> str:
    given = request.headers.get(b"authorization", b"")
    return given[7:].decode("ascii", "replace") if given[:7].lower() == b"bearer " else ""


def _origin(call: Call) -> dict[str, str]:
    origin = call.origin
    if origin is None:
        return {}
    named = {"method": origin.method, "route": origin.route, "ip": origin.ip}
    return {name: value for name, value in named.items() if value}
