"""Traffic classes, and what the gate has to know of a route."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.services.omnigate.fair.costs import RouteCost
from penstock.services.omnigate.fair.limits import RouteLatency

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.net.message import Request

ANON: Final = "anon"
AUTHED: Final = "authed"
VERIFY: Final = "verify"
UNPROVEN: Final = frozenset({ANON, VERIFY})
"""Classes anybody can fill."""
VERIFY_WEIGHT: Final = 1
"""The share of places for requests whose token is not known yet."""
GATEWAY: Final = "omnigate"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AdmissionRule:
    """What the gate does with the requests of a route."""

    # The class of verified callers here; empty: the one their token's root has.
    class_name: str = ""
    # Needs no capability; one that is sent all the same is judged.
    open: bool = False
    # A token is good here when its audience has one of these: the gateway, or the service the route leads to.
    audiences: tuple[str, ...] = (GATEWAY,)
    # What the caveats are judged on; None is an attribute this route's requests do not have.
    op: str | None = None
    topic: str | None = None
    # The path parameter that holds the topic, where there is one.
    topic_param: str = ""
    tenant: str | None = None
    # Families of caveats that are judged elsewhere, or that such a route asks nothing of.
    waived: frozenset[str] = frozenset()
    # Routes with the same key share their experience of costs and latency; empty: the route's path.
    cost_key: str = ""
    long_poll: bool = False
    # Shed first while the gateway is degraded.
    write: bool = False
    # For the operator's token alone, whatever another one allows.
    operator: bool = False
    # Its requests are signed by who sends them. A token is not looked at: what stands there is not meant for us.
    signed: bool = False
    # Leads to a service of the node, which has an admission of its own: a good token is not held to the quotas.
    own: bool = False
    # Bound for a downstream: its latency steers the adaptive limit.
    downstream: bool = True


STRICT: Final = AdmissionRule()
"""What holds for a route nobody made a rule for: a capability for the gateway."""


class RouteProfile:
    """A rule with what was learned of its requests."""

    __slots__ = ("cost", "latency", "rule")

    def __init__(self, rule: AdmissionRule, cost: RouteCost, latency: RouteLatency) -> None:
        """Share the experience with the routes of the same key."""
        self.rule = rule
        self.cost = cost
        self.latency = latency

    def topic(self, request: Request) -> str | None:
        """Return the topic a request touches, if its route has one."""
        rule = self.rule
        return request.params[rule.topic_param] if rule.topic_param else rule.topic


class RouteProfiles:
    """The lanes of all routes."""

    def __init__(self) -> None:
        self._costs: dict[str, RouteCost] = {}
        self._latencies: dict[str, RouteLatency] = {}

    def make(self, path: str, rule: AdmissionRule) -> RouteProfile:
        """Make the lane of one route."""
        key = rule.cost_key or path
        cost = self._costs.setdefault(key, RouteCost())
        return RouteProfile(rule, cost, self._latencies.setdefault(key, RouteLatency()))


def with_verify(weights: Mapping[str, int]) -> dict[str, int]:
    """Return the weights of all queues: the configured classes, and the one for tokens not known yet."""
    return {**weights, VERIFY: VERIFY_WEIGHT}
