"""What an upstream is told about the caller: as much as the route's `forward` says.

| `forward` | the upstream gets |
|---|---|
| `none` | nothing: neither the token nor who its holder is |
| `identity` | `X-Penstock-Identity`, signed by this gateway: subject, tenant, class, a digest of the caveats |
| `token` | `Authorization` with the caller's token narrowed to this method, path and deadline, and sealed |

A statement is a compact JWS (EdDSA); the gateway's public key is at `/v1/gateway/keys`. What cannot be told (a sealed
token cannot be narrowed, an anonymous caller has no identity) is left out, and the upstream sees that nothing came.
"""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Final, cast

import msgspec
from blake3 import blake3

from penstock.capability import ed25519
from penstock.capability.caveats import Caveat, from_wire
from penstock.capability.families import FAMILIES, GRANTED_OPS, OPS, ROUTE_AUDIENCE
from penstock.capability.making import attenuate, seal
from penstock.kernel.errors import PenstockError
from penstock.kernel.memo import Memo
from penstock.net.bearer import bearer
from penstock.net.server.route import Route
from penstock.net.server.ticket import NO_TICKET

if TYPE_CHECKING:
    from penstock.contracts.capability import Grant
    from penstock.kernel.clock import Clock
    from penstock.net.message import Request
    from penstock.services.omnigate.gate.ticket import GateTicket
    from penstock.services.omnigate.proxy.config import ProxyRoute

# A statement is made anew after half its life, so that what is handed out is always good for a while.
STATEMENT_S: Final = 60
_KEPT_HERE: Final = GRANTED_OPS | {"*"}
_KEPT_MAX: Final = 4096


class CallerStatement(msgspec.Struct, frozen=True, rename={"class_": "class"}):
    """What an identity says."""

    iss: str
    aud: str
    sub: str
    tenant: str
    class_: str
    cav: str
    iat: int
    exp: int


class PublicKey(msgspec.Struct, frozen=True):
    """The gateway's own key as a JWK."""

    kid: str
    x: str
    kty: str = "OKP"
    crv: str = "Ed25519"
    alg: str = "EdDSA"
    use: str = "sig"


class KeyList(msgspec.Struct, frozen=True):
    """A JWKS."""

    keys: tuple[PublicKey, ...]


class SignedCallerHeaders:
    """Makes the lines. Its key lives as long as the process and signs statements only."""

    def __init__(self, clock: Clock) -> None:
        seed = os.urandom(ed25519.SEED_BYTES)
        public, self._secret = ed25519.expand(seed)
        self._wall = clock.wall
        self.key = PublicKey(kid="omnigate-" + blake3(public).hexdigest()[:16], x=_b64(public))
        self._head = _b64(msgspec.json.encode({"alg": "EdDSA", "kid": self.key.kid, "typ": "JWT"}))
        self._said: Memo[tuple[str, str], tuple[float, bytes]] = Memo(_KEPT_MAX)

    def routes(self) -> list[Route]:
        """Offer the public key."""
        return [
            Route(
                method="GET",
                path="/v1/gateway/keys",
                handler=lambda _request: KeyList((self.key,)),
                answer=KeyList,
                open=True,
                summary="The key that signs what upstreams are told about callers.",
            )
        ]

    def lines(self, route: ProxyRoute, request: Request) -> bytes:
        """Return whole field lines, or nothing."""
        if route.forward == "none" or request.ticket is NO_TICKET:
            return b""
        ticket = cast("GateTicket", request.ticket)
        if ticket.grant is None:
            return b""
        if route.forward == "identity":
            return self._identity(route, ticket.grant)
        return self._narrowed(route, request)

    def _identity(self, route: ProxyRoute, grant: Grant) -> bytes:
        """Return the signed identity of the caller; a statement is reused for half of its life."""
        now, key = self._wall(), (route.name, grant.tid + "".join(grant.rids))
        said = self._said.get(key)
        if said is not None and now < said[0]:
            return said[1]
        statement = CallerStatement(
            iss="omnigate",
            aud=route.name,
            sub=grant.sub,
            tenant=grant.tenant,
            class_=grant.class_,
            cav=blake3("\n".join(grant.caveats).encode()).hexdigest()[:32],
            iat=int(now),
            exp=min(int(now) + STATEMENT_S, grant.exp),
        )
        signed = f"{self._head}.{_b64(msgspec.json.encode(statement))}"
        signature = ed25519.sign_with(self._secret, signed.encode("ascii"))
        line = f"X-Penstock-Identity: {signed}.{_b64(signature)}\r\n".encode("ascii")
        self._said.put(key, (now + STATEMENT_S / 2, line))
        return line

    def _narrowed(self, route: ProxyRoute, request: Request) -> bytes:
        """Narrow the caller's token to this route and request; one that cannot be narrowed stays here.

        The upstream gets a token for the audience `route:<name>`, which no service of the node is. Whatever the
        caller may do elsewhere, the upstream can do nothing with it but ask the issuer whether it is good.
        """
        until = int(self._wall() + request.timeout_s) + 1
        path = f"/{'/'.join(request.segments)}"
        if path.endswith("*"):
            # As a caveat it would stand for every path that begins like this.
            return b""
        try:
            caveats = [
                _caveat("aud", ROUTE_AUDIENCE + route.name),
                _caveat("method", request.method),
                _caveat("route", path),
                _caveat("op", *_forwarded_ops(route)),
                _caveat("exp", until),
            ]
            token = seal(attenuate(bearer(request), caveats))
        except PenstockError:
            return b""
        return b"Authorization: Bearer %b\r\n" % token.encode("ascii")


def _caveat(name: str, *values: str | int) -> Caveat:
    """Make a caveat from values: a comma in a path must not make two of it, as it would in the written form."""
    return from_wire([FAMILIES[name].code, *values])


def _forwarded_ops(route: ProxyRoute) -> tuple[str, ...]:
    """Return the ops an upstream may be shown: the one its route asks for, and never one that makes or ends tokens."""
    asked = tuple(value for name, value in route.require if name == "op")
    return tuple(op for op in asked or OPS if op not in _KEPT_HERE)


def _b64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
