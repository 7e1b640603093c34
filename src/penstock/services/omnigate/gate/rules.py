"""What the gate needs to know of each route: which capability it takes, and what kind of work it is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from penstock.services.omnigate.gate.classes import GATEWAY, AdmissionRule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.net.server.route import Route
    from penstock.services.omnigate.proxy.config import ProxyRoute

# An open route asks nobody what they may do: a token says only who comes, and under which class.
UNASKED: Final = frozenset({"op", "topic", "region"})
# On the node's own open routes not even whom a token is meant for: who may ask without one may ask with any good one.
# Its class, its tenant, its budgets and the address it is bound to count all the same. A configured route is not like
# that: what is behind it may be told who comes, and takes only what was meant for the gateway.
UNASKED_BY_NODE: Final = UNASKED | {"aud", "svc", "route", "method"}
# What an issuer's own caveats say of these is judged by svc-passport on the token that is asked for.
JUDGED_BY_COVERS: Final = frozenset({"topic", "route", "method", "region"})
# By a path's first segment, or the one after `v1`: who is behind it. A token for the gateway or that service will do.
_BEHIND_ROOT: Final = {"webhooks": "svc-interop", "put": "svc-interop", "o": "svc-interop"}
_BEHIND: Final = {
    "o": "svc-storage",
    "mailbox": "svc-mailbox",
    "passport": "svc-passport",
    "dht": "svc-dht",
    "webhooks": "svc-interop",
}
_IN_THE_BODY: Final = frozenset({"topic"})
# What the node itself answers, below this path.
_OPERATORS: Final = "/v1/node/"
# Shed first while degraded. Settlements and revocations are not: they end work, or end a danger.
_WRITES: Final = frozenset({"send", "put", "issue"})


def own_rules(routes: Iterable[Route]) -> dict[Route, AdmissionRule]:
    """Make the rules of the gateway's own routes."""
    return {route: _own_rule(route, _behind(route.path)) for route in routes}


def mounted_rules(routes: Mapping[Route, str]) -> dict[Route, AdmissionRule]:
    """Make the rules of services under their own paths. A topic that is not in the path is judged by the service."""
    rules = {route: _own_rule(route, behind) for route, behind in routes.items()}
    return {
        route: rule if rule.topic_param else replace(rule, waived=rule.waived | _IN_THE_BODY)
        for route, rule in rules.items()
    }


def signed_rules(routes: Mapping[Route, str]) -> dict[Route, AdmissionRule]:
    """Make the rules of a service that checks its requests' signatures itself. They share one experience of costs."""
    return {
        route: AdmissionRule(
            own=True,
            open=True,
            audiences=(GATEWAY, behind),
            waived=UNASKED,
            cost_key=f"{behind}:{route.op}",
            long_poll=route.long_poll,
            signed=True,
        )
        for route, behind in routes.items()
    }


def _own_rule(route: Route, behind: str | None) -> AdmissionRule:
    return AdmissionRule(
        own=True,
        open=route.open,
        audiences=(GATEWAY,) if behind is None else (GATEWAY, behind),
        op=route.op or None,
        topic_param="topic" if "{topic}" in route.path else "",
        waived=UNASKED_BY_NODE if route.open else JUDGED_BY_COVERS if route.op == "issue" else frozenset(),
        long_poll=route.long_poll,
        write=route.op in _WRITES,
        signed=route.op == "webhook",
        operator=route.path.startswith(_OPERATORS),
    )


def _behind(path: str) -> str | None:
    first, _, rest = path[1:].partition("/")
    return _BEHIND.get(rest.partition("/")[0]) if first == "v1" else _BEHIND_ROOT.get(first)


def proxy_rules(routes: Mapping[Route, ProxyRoute]) -> dict[Route, AdmissionRule]:
    """Make the rules of the configured routes: with nothing required they are open to anyone."""
    return {route: _proxy_rule(route, said) for route, said in routes.items()}


def _proxy_rule(route: Route, said: ProxyRoute) -> AdmissionRule:
    asked = dict(said.require)
    return AdmissionRule(
        class_name=said.class_name,
        open=not said.require,
        op=asked.get("op"),
        topic=asked.get("topic"),
        waived=UNASKED if not said.require else frozenset(),
        tenant=asked.get("tenant"),
        cost_key=said.name,
        write=route.method not in {"GET", "HEAD", "OPTIONS"},
    )
