"""May this caller do that: a put needs a capability for `put`, a read one for `get`, the inbox one for `admin`."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.capability.relayed import judge_relayed, was_charged
from penstock.contracts.call import origin_of
from penstock.contracts.capability import RequestContext
from penstock.kernel.errors import Unauthenticated

if TYPE_CHECKING:
    from penstock.contracts.call import Call
    from penstock.contracts.capability import Verifier

AUDIENCE: Final = "svc-interop"


class BridgeCallers:
    """Asks the verifier. What a caller's token allows ends here: inside, the bridge acts by its own authority."""

    def __init__(self, verifier: Verifier | None) -> None:
        """Without a verifier everything is open: only for a node that was told so."""
        self._verifier = verifier

    async def allow(self, call: Call, op: str, cost_bytes: int = 0) -> None:
        """Return when the call may do it; raise when it may not."""
        if self._verifier is None:
            return
        self.check_given(call.capability)
        context = RequestContext(aud=AUDIENCE, op=op, **origin_of(call))
        if was_charged(call):
            verdict = judge_relayed(partial(self._verifier.verify, call.capability, charged=True), context)
        else:
            verdict = self._verifier.verify(call.capability, context, cost_bytes=cost_bytes)
        if isinstance(verdict, Awaitable):
            await verdict

    def check_given(self, capability: str) -> None:
        """Refuse a call without any capability, which costs the least to refuse."""
        if self._verifier is not None and not capability:
            raise Unauthenticated("No capability was given.", reason="missing")
