"""May this call do that: every data route needs a capability for its op and its topic."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from penstock.contracts.call import Call
from penstock.contracts.capability import Grant, RequestContext
from penstock.kernel.errors import PenstockError, Unauthenticated

if TYPE_CHECKING:
    from penstock.contracts.capability import Verifier

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
        if not call.capability:
            self.failures += 1
            raise Unauthenticated(reason="missing")
        context = RequestContext(aud=AUDIENCE, op=op, topic=topic, **_origin(call))
        try:
            verdict = self._verifier.verify(call.capability, context)
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


def _origin(call: Call) -> dict[str, str]:
    origin = call.origin
    if origin is None:
        return {}
    named = {"method": origin.method, "route": origin.route, "ip": origin.ip}
    return {name: value for name, value in named.items() if value}
