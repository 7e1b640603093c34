"""A call that came through the gateway.

It was judged and charged there, and is good here if it was meant for either.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.capability.families import GATEWAY
from penstock.contracts.capability import Grant, RequestContext
from penstock.kernel.errors import Forbidden

if TYPE_CHECKING:
    from penstock.contracts.call import Call

# What fails on these is asked once more, for the gateway.
_OF_AUDIENCE: Final = frozenset({"caveat:aud", "caveat:svc"})
Verify = Callable[[RequestContext], Grant | Awaitable[Grant]]


def was_charged(call: Call) -> bool:
    """Tell whether budgets and rates were counted at the gateway; only who may say so is believed that far."""
    return call.origin is not None and call.origin.charged


def judge_relayed(verify: Verify, context: RequestContext) -> Grant | Awaitable[Grant]:
    """Judge a call of the gateway's: a token for it, or for the service behind it, will do.

    Everything else must hold.
    """
    try:
        verdict = verify(context)
    except Forbidden as error:
        return verify(_at_gateway(context, error))
    return verdict if isinstance(verdict, Grant) else _judge_later(verify, context, verdict)


async def _judge_later(verify: Verify, context: RequestContext, verdict: Awaitable[Grant]) -> Grant:
    try:
        return await verdict
    except Forbidden as error:
        again = verify(_at_gateway(context, error))
    return again if isinstance(again, Grant) else await again


def _at_gateway(context: RequestContext, error: Forbidden) -> RequestContext:
    if error.facts.get("reason") not in _OF_AUDIENCE:
        raise error
    # It is still this service that does the work: what is scoped to it counts, whoever the token is for.
    return msgspec.structs.replace(context, aud=GATEWAY, service=context.at)
