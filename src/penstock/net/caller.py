"""Who asks, written down for the contract behind a route. Every service uses this, so all judge callers by the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.contracts.call import Call, Origin
from penstock.net.bearer import bearer

if TYPE_CHECKING:
    from penstock.net.message import Request


def call_of(request: Request) -> Call:
    """Return the metadata of a call: the capability, and what its caveats are judged on."""
    origin = Origin(request.method, "/" + "/".join(request.segments), request.peer.host, charged=request.ticket.relayed)
    return Call(bearer(request), request.corr_id, request.traceparent or "", origin=origin)
