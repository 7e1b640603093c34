"""A configured route says what it takes and where that goes, or is refused before anything is served."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.net.server.route import Route
from penstock.services.omnigate.config import TABLE, WEIGHTS
from penstock.services.omnigate.gate.rules import own_rules, proxy_rules
from penstock.services.omnigate.own.mailbox import GatewayMailboxRoutes
from penstock.services.omnigate.own.passport import GatewayPassportRoutes
from penstock.services.omnigate.proxy.config import ProxyRoute, RouteRefused, read_routes

ROW = {
    "prefix": "/shop",
    "upstream": ("http://127.0.0.1:8000",),
    "methods": ("GET", "POST"),
    "class": "",
    "require": (),
    "timeout": 5.0,
    "retry": True,
    "hedge": False,
    "strip_prefix": False,
    "forward": "none",
    "tags": (),
    "allow_headers": (),
}


def read(**changed: Any) -> ProxyRoute:
    """Read one route."""
    return read_routes(({**ROW, **changed},))[0]


def test_a_route_keeps_what_it_was_given() -> None:
    route = read(prefix="/a/b/", upstream=("http://h:1/base/", "https://i"), require=("op=get", "topic=orders"))

    assert (route.prefix, route.name) == (("a", "b"), "/a/b")
    assert route.upstreams == ("http://h:1/base", "https://i")
    assert route.require == (("op", "get"), ("topic", "orders"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"prefix": "shop"},
        {"prefix": "/a//b"},
        {"prefix": "/a/../b"},
        {"prefix": "/{x}"},
        {"prefix": "/v1/o"},
        {"prefix": "/v1/anything"},
        {"prefix": "/healthz"},
        {"upstream": ()},
        {"upstream": ("ftp://h",)},
        {"upstream": ("http://user:secret@h",)},
        {"upstream": ("http://h?x=1",)},
        {"upstream": ("127.0.0.1:8000",)},
        {"upstream": ("http://h:99999",)},
        {"upstream": ("http://h:port",)},
        {"upstream": ("http://[::1",)},
        {"upstream": ("http://h/a b",)},
        {"upstream": ("http://h/x#part",)},
        {"upstream": ("http://",)},
        {"methods": ()},
        {"methods": ("FETCH",)},
        {"require": ("op",)},
        {"require": ("color=red",)},
        {"require": ("op=",)},
    ],
)
def test_a_route_that_cannot_be_served_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(RouteRefused):
        read(**wrong)


@pytest.mark.parametrize(("named", "holds"), [("", True), ("authed", True), ("gold", False), ("verify", False)])
def test_a_route_names_a_class_that_there_is(named: str, *, holds: bool) -> None:
    rules = [rule for rule in TABLE.rules if rule.keys == ("omnigate.routes", "omnigate.fair_queue.weights")]

    assert [rule.holds(({**ROW, "class": named},), WEIGHTS) is True for rule in rules] == [holds]


def test_two_routes_may_not_have_one_prefix() -> None:
    with pytest.raises(RouteRefused):
        read_routes(({**ROW}, {**ROW, "prefix": "/shop/"}))


# --- what the gate is told of routes


def test_a_route_without_require_is_open_and_asks_a_token_only_who_comes() -> None:
    open_route, shut = (Route(method="GET", path=path, handler=print) for path in ("/shop/{rest*}", "/vault/{rest*}"))
    rules = proxy_rules({open_route: read(), shut: read(prefix="/vault", require=("op=get",))})

    assert rules[open_route].open
    assert "op" in rules[open_route].waived
    assert (rules[shut].open, rules[shut].op, rules[shut].waived) == (False, "get", frozenset())


def test_reads_are_not_writes() -> None:
    methods = {
        name: Route(method=name, path="/shop/{rest*}", handler=print) for name in ("GET", "HEAD", "POST", "DELETE")
    }
    rules = proxy_rules(dict.fromkeys(methods.values(), read()))

    assert {name: rules[route].write for name, route in methods.items()} == {
        "GET": False,
        "HEAD": False,
        "POST": True,
        "DELETE": True,
    }


def test_own_routes_take_tokens_for_the_gateway_or_the_service_behind() -> None:
    routes = [
        *GatewayMailboxRoutes(None, None).routes(),  # type: ignore[arg-type]
        *GatewayPassportRoutes(None, None).routes(),  # type: ignore[arg-type]
    ]
    rules = {f"{route.method} {route.path}": rule for route, rule in own_rules(routes).items()}

    send, recv = rules["POST /v1/mailbox/{topic}"], rules["POST /v1/mailbox/{topic}/recv"]
    assert (send.audiences, send.op, send.topic_param, send.write) == (
        ("omnigate", "svc-mailbox"),
        "send",
        "topic",
        True,
    )
    assert (recv.long_poll, recv.write) == (True, False)
    # Settling ends work and revoking ends a danger: neither is shed.
    assert not rules["POST /v1/mailbox/{topic}/ack"].write
    assert not rules["POST /v1/passport/revoke"].write
    assert rules["POST /v1/passport/issue"].write
    assert "topic" in rules["POST /v1/passport/issue"].waived
    assert rules["POST /v1/passport/verify"].open
