"""What Hypothesis draws: caveats from a small world, so that they often meet, and requests of that world."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.capability.caveats import parse
from penstock.capability.families import AUDIENCES, CLASSES, OPS
from penstock.contracts.capability import RequestContext

TOPICS = ["orders", "orders/", "orders/eu", "orders/eu/1", "orders*", "orders-x", "o", "*", "b.c", "b:c"]
ROUTES = ["/", "/v1", "/v1/", "/v1/send", "/v1/s*", "/v2"]
NETWORKS = ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "10.1.2.3", "2001:db8::/32", "::/0"]
IPS = ["10.1.2.3", "10.2.0.1", "9.9.9.9", "2001:db8::1", "::1"]


def _words(name: str, words: list[str]) -> st.SearchStrategy:
    chosen = st.lists(st.sampled_from(words), min_size=1, max_size=3, unique=True)
    return chosen.map(lambda values: parse(f"{name}={','.join(values)}"))


def _numbers(name: str, low: int = 0, high: int = 5) -> st.SearchStrategy:
    return st.integers(low, high).map(lambda value: parse(f"{name}={value}"))


ASKING = st.one_of(
    _words("aud", list(AUDIENCES)),
    _words("svc", list(AUDIENCES)),
    _words("op", list(OPS)),
    _words("method", ["GET", "POST", "PUT"]),
    _words("region", ["eu", "us"]),
    _words("topic", TOPICS),
    _words("route", ROUTES),
    _words("ip", NETWORKS),
)
"""Caveats that ask something of a request."""

SCOPED = st.builds(
    lambda scope, caveat: parse(f"{scope}:{caveat}"),
    st.sampled_from(["omnigate", "svc-mailbox", "svc-storage"]),
    st.one_of(_words("op", list(OPS)), _words("topic", TOPICS), _words("method", ["GET", "POST"])),
)
"""Caveats that count at one service."""

CAVEATS = st.one_of(
    ASKING,
    SCOPED,
    _words("tenant", ["acme", "victim"]),
    _words("scope", list(CLASSES)),
    _numbers("exp"),
    _numbers("nbf"),
    _numbers("budget.bytes"),
    _numbers("budget.reqs"),
    _numbers("rate.rps"),
    st.sampled_from(["amnesia=true", "amnesia=false", "pq.fallback=true"]).map(parse),
)
"""Every caveat there is."""


def _maybe(values: list[str]) -> st.SearchStrategy:
    return st.none() | st.sampled_from(values)


def _behind(context: RequestContext, service: str | None) -> RequestContext:
    """Have a request for the gateway done by a service behind it."""
    return replace(context, service=service) if context.aud == "omnigate" else context


_DIRECT = st.builds(
    RequestContext,
    aud=_maybe([name for name in AUDIENCES if name != "*"]),
    op=_maybe([op for op in OPS if op != "*"]),
    topic=_maybe(["orders", "orders/eu", "orders/eu/1", "orders-x", "order", "o", "b.c", "x"]),
    method=_maybe(["GET", "POST", "PUT"]),
    route=_maybe(["/", "/v1", "/v1/send", "/v1/sx", "/v2/x"]),
    ip=_maybe(IPS),
    tenant=_maybe(["acme", "victim"]),
    region=_maybe(["eu", "us"]),
)
CONTEXTS = st.builds(_behind, _DIRECT, _maybe(["svc-mailbox", "svc-storage"]))
