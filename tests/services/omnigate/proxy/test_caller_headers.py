"""An upstream hears about the caller what its route allows, and never the token itself."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from nacl.signing import VerifyKey

from penstock.capability.families import AUDIENCES, OPS
from penstock.capability.making import mint, seal
from penstock.capability.token import TokenRoot, decode
from penstock.contracts.capability import Grant, RequestContext
from penstock.services.omnigate.proxy.caller_headers import STATEMENT_S, SignedCallerHeaders
from penstock.services.omnigate.proxy.config import ProxyRoute
from penstock.testing.fakes import VirtualClock
from tests.capability.kit import NOW, Issuer

ROUTE = ProxyRoute(prefix=("shop",), upstreams=("http://h",))
GRANT = Grant("ada", "acme", "authed", "tid", ("omnigate",), 10**10, caveats=("op=get",))
TOKEN = mint(
    TokenRoot(
        alg="ed25519", kid="test", epoch=0, iss="test", aud=("omnigate",), sub="ada", class_="authed", iat=0, nbf=0,
        exp=10**10, tid=bytes(16), caveats=(), epk=bytes(32), via=(), tenant=None,
    ),
    lambda message: bytes(64),
)  # fmt: skip


def request(*, grant: Grant | None = GRANT, token: str = TOKEN) -> Any:
    """Make as much of a request as the teller looks at."""
    return SimpleNamespace(
        ticket=SimpleNamespace(grant=grant),
        headers={b"authorization": b"Bearer " + token.encode()},
        method="GET",
        segments=("shop", "1"),
        timeout_s=2.0,
    )


def test_nothing_is_told_unless_the_route_says_so() -> None:
    assert SignedCallerHeaders(VirtualClock()).lines(ROUTE, request()) == b""


@pytest.mark.parametrize("forward", ["identity", "token"])
def test_an_anonymous_caller_has_nothing_to_tell(forward: Any) -> None:
    assert SignedCallerHeaders(VirtualClock()).lines(replace(ROUTE, forward=forward), request(grant=None)) == b""


def test_an_identity_is_signed_by_the_key_the_gateway_shows() -> None:
    clock = VirtualClock()
    teller = SignedCallerHeaders(clock)

    line = teller.lines(replace(ROUTE, forward="identity"), request()).decode()

    name, _, statement = line.strip().partition(": ")
    signed, _, signature = statement.rpartition(".")
    assert name == "X-Penstock-Identity"
    VerifyKey(_unb64(teller.key.x)).verify(signed.encode(), _unb64(signature))
    said = json.loads(_unb64(signed.partition(".")[2]))
    assert (said["sub"], said["tenant"], said["class"], said["aud"]) == ("ada", "acme", "authed", "/shop")
    assert said["exp"] - said["iat"] == STATEMENT_S


def test_a_statement_is_made_anew_before_it_runs_out() -> None:
    clock = VirtualClock()
    teller, route = SignedCallerHeaders(clock), replace(ROUTE, forward="identity")

    first = teller.lines(route, request())
    again = teller.lines(route, request())
    clock.advance(STATEMENT_S / 2 + 1)
    later = teller.lines(route, request())

    assert first is again
    assert later != first


def test_a_token_is_narrowed_to_this_request_and_sealed() -> None:
    line = SignedCallerHeaders(VirtualClock()).lines(replace(ROUTE, forward="token"), request()).decode()

    token = decode(line.strip().removeprefix("Authorization: Bearer "))
    written = {str(caveat) for caveat in token.caveats}
    assert token.proof[0] == 1
    assert {"method=GET", "route=/shop/1"} <= written
    assert TOKEN not in line


def forwarded(route: ProxyRoute, token: str, path: str = "/shop/1") -> str:
    """Return the token that an upstream of this route gets."""
    asked = request(token=token)
    asked.segments = tuple(path.removeprefix("/").split("/"))
    line = SignedCallerHeaders(VirtualClock(wall_s=float(NOW))).lines(replace(route, forward="token"), asked).decode()
    return line.strip().removeprefix("Authorization: Bearer ")


OPERATOR = {"aud": ("*",), "sub": "operator", "tenant": None, "class_": "internal"}
SERVICES = [name for name in AUDIENCES if name != "*"]


@pytest.mark.parametrize("fields", [OPERATOR, {"aud": ("omnigate", "svc-mailbox", "svc-passport")}])
def test_what_an_upstream_gets_is_good_for_its_route_and_for_no_service(fields: dict[str, Any]) -> None:
    issuer = Issuer()
    token = forwarded(ROUTE, issuer.token("op=*", **fields))

    route = RequestContext(aud="route:/shop", op="get", method="GET", route="/shop/1")
    assert issuer.verdict(token, route) == "ok"
    for service in SERVICES:
        for op in OPS[:-1]:
            context = RequestContext(aud=service, op=op, topic="t", method="GET", route="/shop/1")
            assert issuer.verdict(token, context).startswith("forbidden:")
    assert issuer.verdict(token, msgspec.structs.replace(route, aud="route:/bank")) == "forbidden:caveat:aud"


@pytest.mark.parametrize("op", ["issue", "revoke"])
def test_no_route_forwards_the_power_to_issue_or_revoke(op: str) -> None:
    issuer = Issuer()
    token = forwarded(ROUTE, issuer.token("op=*", **OPERATOR))
    asked = RequestContext(aud="route:/shop", op=op, method="GET", route="/shop/1")

    assert issuer.verdict(token, asked) == "forbidden:caveat:op"
    assert forwarded(replace(ROUTE, require=(("op", op),)), issuer.token("op=*", **OPERATOR)) == ""


@pytest.mark.parametrize("path", ["/shop/a,/v1/send", "/shop/*", "/*"])
def test_a_path_that_would_be_more_than_one_as_a_caveat_forwards_nothing(path: str) -> None:
    assert forwarded(ROUTE, Issuer().token(aud=("omnigate",)), path) == ""


def test_a_sealed_token_cannot_be_narrowed_and_stays_here() -> None:
    assert SignedCallerHeaders(VirtualClock()).lines(replace(ROUTE, forward="token"), request(token=seal(TOKEN))) == b""


def _unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
