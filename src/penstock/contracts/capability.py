"""Verification of tokens: what every service asks of the shared verifier. Pure."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Literal, Protocol

import msgspec

TrafficClass = Literal["anon", "authed", "internal"]


class RequestContext(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the caveats of a token are judged on; None means that the request has no such attribute.

    A caveat on an attribute the request does not have is not satisfied. A request that touches several topics is
    judged once for each.
    """

    aud: str | None = None
    op: str | None = None
    topic: str | None = None
    method: str | None = None
    route: str | None = None
    ip: str | None = None
    tenant: str | None = None
    region: str | None = None
    # The service that does the work, where that is not the audience: a token for the gateway is judged behind it too.
    service: str | None = None

    @property
    def at(self) -> str | None:
        """Return the service whose scoped caveats count."""
        return self.service or self.aud


class Grant(msgspec.Struct, frozen=True, rename={"class_": "class"}):
    """What a verified token gives. Class, tenant and subject come from its root and cannot be changed by a holder."""

    sub: str
    # Already settled: the root's tenant, else `sub:` + sub.
    tenant: str
    class_: TrafficClass
    tid: str
    aud: tuple[str, ...]
    exp: int
    epoch: int = 0
    kid: str = ""
    # One id a block: revoking one revokes that child and its children.
    rids: tuple[str, ...] = ()
    # All blocks together, in written form (`op=recv,ack`): the grant is their conjunction.
    caveats: tuple[str, ...] = ()


class Verifier(Protocol):
    """Judges tokens. `verify` answers at once when it can, and hands out an awaitable only for uncached crypto.

    Both raise Unauthenticated, Expired, Forbidden or RateLimited, with the reasons of the passport contract.
    """

    def verify(
        self,
        token: str,
        context: RequestContext,
        *,
        cost_bytes: int = 0,
        charged: bool = False,
        waived: frozenset[str] = frozenset(),
    ) -> Grant | Awaitable[Grant]:
        """Check signatures, times, revocation and every caveat; charge budgets and rates, unless that was done.

        `waived` names families of caveats that the caller judges in another way.
        """

    def check(self, grant: Grant, context: RequestContext) -> None:
        """Judge a further attribute of a request already verified, such as the topic of an acked message."""
