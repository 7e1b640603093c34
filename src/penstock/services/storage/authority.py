"""May this call do that: writing needs a capability for `put`, reading one for `get` unless reading is public."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.capability.relayed import judge_relayed, was_charged
from penstock.contracts.call import Call, origin_of
from penstock.contracts.capability import Grant, RequestContext
from penstock.kernel.errors import Unauthenticated

if TYPE_CHECKING:
    from penstock.contracts.capability import Verifier

AUDIENCE: Final = "svc-storage"


class StorageAuthority:
    """Asks the verifier."""

    def __init__(self, verifier: Verifier | None, *, public_read: bool) -> None:
        """Without a verifier everything is open: only for a node that was told so."""
        self._verifier = verifier
        self._public_read = public_read

    def allow(self, call: Call, op: str, cost_bytes: int = 0) -> Awaitable[Grant] | None:
        """Return at once when the verifier can tell at once; raise when it says no."""
        if self._verifier is None or (op == "get" and self._public_read):
            return None
        if not call.capability:
            raise Unauthenticated(reason="missing")
        context = RequestContext(aud=AUDIENCE, op=op, **origin_of(call))
        if was_charged(call):
            verdict = judge_relayed(partial(self._verifier.verify, call.capability, charged=True), context)
        else:
            verdict = self._verifier.verify(call.capability, context, cost_bytes=cost_bytes)
        return None if isinstance(verdict, Grant) else verdict
