"""May this call do that: publishing needs a capability for `provide`, looking up one for `find`, the rest `admin`."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.capability.relayed import judge_relayed, was_charged
from penstock.contracts.call import Call, origin_of
from penstock.contracts.capability import RequestContext
from penstock.kernel.errors import Unauthenticated
from penstock.net.bearer import bearer

if TYPE_CHECKING:
    from penstock.contracts.capability import Verifier
    from penstock.net.message import Request

AUDIENCE: Final = "svc-dht"


class DhtAuthority:
    """Asks the verifier."""

    def __init__(self, verifier: Verifier | None) -> None:
        """Without a verifier everything is open: only for a node that was told so."""
        self._verifier = verifier

    def admit(self, request: Request) -> None:
        """Refuse a request without any capability at the end of its headers, which costs the least to refuse."""
        if self._verifier is not None and not request.route.open and not bearer(request):
            raise Unauthenticated(reason="missing")

    async def allow(self, call: Call, op: str) -> None:
        """Return when the call may do it; raise when it may not."""
        if self._verifier is None:
            return
        if not call.capability:
            raise Unauthenticated(reason="missing")
        context = RequestContext(aud=AUDIENCE, op=op, **origin_of(call))
        if was_charged(call):
            verdict = judge_relayed(partial(self._verifier.verify, call.capability, charged=True), context)
        else:
            verdict = self._verifier.verify(call.capability, context)
        if isinstance(verdict, Awaitable):
            await verdict
