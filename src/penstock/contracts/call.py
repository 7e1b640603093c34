"""What travels with every contract call beside its value: capability, correlation id, origin. Pure."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

CorrId = Annotated[str, msgspec.Meta(max_length=64)]


class Origin(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """What the client sent to the node, as the first penstock hop saw it.

    `route`, `method` and `ip` caveats are judged on this. It is believed only from a peer on a Unix socket;
    `charged` says that budgets and rates were already counted there.
    """

    method: str = ""
    route: str = ""
    ip: str = ""
    charged: bool = False


class Call(msgspec.Struct, frozen=True, gc=False):
    """The metadata of one contract call. The deadline is not in it: it is the caller's current deadline."""

    capability: str = ""
    corr_id: CorrId = ""
    traceparent: str = ""
    tenant_id: int = 0
    origin: Origin | None = None


NOBODY: Final = Call()
"""A call without a capability: enough for what is open to anyone."""


def origin_of(call: Call) -> dict[str, str]:
    """Name what is known of a call's origin, as the fields of a `RequestContext`."""
    origin = call.origin
    if origin is None:
        return {}
    named = {"method": origin.method, "route": origin.route, "ip": origin.ip}
    return {name: value for name, value in named.items() if value}
