"""Which fields pass the proxy, in both directions. Pure.

The framing is never passed on: the client's connection and the upstream's each get their own. Hop-by-hop fields are
dropped, what the client says about its own address is replaced by what the listener saw, and fields meant for the
gateway are not passed on.
"""

from __future__ import annotations

import re
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from penstock.kernel.errors import Malformed
from penstock.wire.http1.answer import AnswerHead, Framing
from penstock.wire.http1.head import HttpHead

if TYPE_CHECKING:
    from penstock.net.message import Peer

# What only concerns one connection (RFC 9110, 7.6.1), and what asks to change its protocol.
HOP_BY_HOP: Final = frozenset(
    (
        b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization", b"te",
        b"trailer",
        b"transfer-encoding", b"upgrade", b"http2-settings",
    )
)  # fmt: skip
# What we say ourselves: framing, address, origin of the request, correlation and time left. The body's coding was taken
# off by the listener, under its inflate guard.
_SET_BY_GATEWAY: Final = frozenset(
    (
        b"host", b"content-length", b"content-encoding", b"expect", b"forwarded", b"x-real-ip", b"x-corr-id",
        b"x-deadline-ms",
        b"via", b"authorization",
    )
)  # fmt: skip
# What upstreams and their frameworks believe of a proxy: who asks, from where, with which certificate, and what was
# "originally" asked. Anybody can send such a field, and every product has its own, so they are known by their words. A
# route may let single ones through.
_BELIEVED: Final = re.compile(
    rb"""
      (?:^|-)(?:remote|authenticated|webauth|impersonate|oidc|saml|sso)(?:-|$)
    | (?:^|-)(?:ssl|tls|mtls)-
    | (?:^|-)(?:client|peer)-(?:cert|certificate|dn|cn|verify|verified|subject|issuer|serial)
    | (?:^|-)(?:client|peer)-(?:addr|address|host|identity|principal)
    | (?:^|-)cert(?:ificate)?(?:-|$)
    | (?:^|-)ip(?:v4|v6|country)?$
    | ^cf-(?:access|connecting|visitor|worker) | ^x-envoy- | ^forwarded
    | ^x-(?:original|override|rewrite|forwarded|forward)-?
    | ^x-http-method | method-override$ | ^x-host$ | ^x-(?:scheme|proto|protocol)$ | ^front-end-https$
    | (?:^|-)(?:principal|identity|entitlements|userinfo|auth-request)(?:-|$)
    | ^x-(?:auth|authorized|verified|login|logged-in|current|effective|acting)
      -(?:user|group|role|email|name|id|sub|tenant)
    | ^(?!sec-)(?:[a-z0-9]+-)*(?:user|username|userid|uid|login|account|subject|email|groups?|roles?|tenant|org)
      (?:-(?:id|name|email|groups?|roles?|dn|claims?|info))?$
    """,
    re.VERBOSE,
)
_DOTS: Final = frozenset((".", ".."))
_REQUEST_DROPPED: Final = HOP_BY_HOP | _SET_BY_GATEWAY
_OURS: Final = b"x-penstock-"
_ANSWER_DROPPED: Final = HOP_BY_HOP | {b"content-length", b"x-corr-id"}
_OUR_COOKIE: Final = b"penstock_"
_REASONS: Final = {status.value: status.phrase.encode("ascii") for status in HTTPStatus}
_NO_LENGTH: Final = frozenset((204, 304))


def request_fields(head: HttpHead, via: bytes, allowed: frozenset[bytes] = frozenset()) -> bytes:
    """Return the field lines an upstream gets, as far as the head alone decides: equal heads of others give the same.

    `allowed` names fields that speak of who asks and pass all the same, because the route says so. Host, framing,
    corr_id, deadline and who asked are added for each request.
    """
    named = _named(head.headers.get(b"connection"))
    lines = []
    for name, value in head.headers.items():
        if name in _REQUEST_DROPPED or name in named or b"_" in name or name.startswith(_OURS):
            continue
        if name not in allowed and is_believed(name):
            continue
        kept = _foreign_cookies(value) if name == b"cookie" else value
        if kept or not value:
            lines.append(b"%b: %b\r\n" % (name, kept))
    passed = head.headers.get(b"via")
    lines.append(b"Via: %b%b\r\n" % (passed + b", " if passed and b"via" not in named else b"", via))
    return b"".join(lines)


@lru_cache(maxsize=4096)
def is_believed(name: bytes) -> bool:
    """Tell whether an upstream might take this field for a word of the proxy's."""
    return _BELIEVED.search(name) is not None


def may_be_allowed(name: bytes) -> bool:
    """Tell whether a route may let this field through: what frames a message or is said by us never passes."""
    return name not in _REQUEST_DROPPED and b"_" not in name and not name.startswith(_OURS)


def _named(connection: bytes | None) -> frozenset[bytes]:
    """Return the fields a Connection field makes hop-by-hop."""
    if connection is None:
        return frozenset()
    return frozenset(option.strip(b" \t") for option in connection.lower().split(b","))


def _foreign_cookies(value: bytes) -> bytes:
    """Leave out the node's own cookies: an upstream must not get a session of the node."""
    if _OUR_COOKIE not in value:
        return value
    pairs = [pair.strip() for pair in value.split(b";")]
    return b"; ".join(pair for pair in pairs if not pair.startswith(_OUR_COOKIE))


def forwarded(peer: Peer, host: bytes | None) -> bytes:
    """Return the `Forwarded` field (RFC 7239): client, host and scheme as the socket showed them."""
    return _forwarded("" if peer.uid is not None else peer.host, host, peer.secure)


# Each client asks often, and mostly for the same host.
@lru_cache(maxsize=4096)
def _forwarded(address: str, host: bytes | None, secure: bool) -> bytes:  # noqa: FBT001 - a fact of the socket
    proto = b"https" if secure else b"http"
    return b"Forwarded: for=%b;host=%b;proto=%b\r\n" % (_node(address), _quoted(host or b"unknown"), proto)


def _node(address: str) -> bytes:
    if not address:
        return b"_local"
    return (f'"[{address.partition("%")[0]}]"' if ":" in address else address).encode("ascii")


def _quoted(host: bytes) -> bytes:
    # Host was checked by the listener: it holds no quote and no backslash.
    return b'"%b"' % host if b":" in host or b"[" in host else host


def relay_start(head: AnswerHead, *, to_head: bool) -> bytes:
    """Return status line and fields of an upstream's answer as the client gets them, with the length if it is known.

    Repeated fields stay apart and in order; Date and Server stay the upstream's. A 5xx is the upstream's own too.
    """
    named = _named(head.headers.get(b"connection"))
    lines = [b"HTTP/1.1 %d %b\r\n" % (head.status, _REASONS.get(head.status, b""))]
    lines += [
        b"%b: %b\r\n" % (name, value)
        for name, value in head.fields
        if name not in _ANSWER_DROPPED
        and name not in named
        and b"_" not in name
        and not name.startswith(b"x-penstock-")
        # Cookies know no ports: an upstream must not be able to hand out a session with the node.
        and not (name == b"set-cookie" and value.startswith(_OUR_COOKIE))
    ]
    known = head.framing is Framing.LENGTH or (to_head and head.length is not None)
    if known and head.status not in _NO_LENGTH:
        lines.append(b"Content-Length: %d\r\n" % (head.length or 0))
    return b"".join(lines)


def named_via(head: HttpHead, via: bytes) -> bool:
    """Tell whether a request has passed this gateway before, which would loop until its deadline."""
    passed = head.headers.get(b"via")
    return passed is not None and via in passed


def target_path(head: HttpHead, strip: int) -> bytes:
    """Return path and query as they were received, without the first `strip` segments.

    To some upstreams `..;x` is `..` with a parameter: that would be another path than the one that was judged.
    """
    target = head.target
    if any(segment.partition(";")[0] in _DOTS for segment in target.segments):
        raise Malformed("A path holds no dot segments, with parameters or without.")
    path = target.path
    if strip:
        path = "/" + "/".join(path.split("/")[strip + 1 :])
    query = b"?" + target.query if target.query else b""
    return path.encode("ascii") + query
