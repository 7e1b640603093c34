"""Who may look and act on the admin listener: the operator token, or a session made from it. Loopback is no credential.

The token is compared as a whole and then judged like any other capability, at each request: what is revoked opens
nothing.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Final

from penstock.admin.sessions import SESSION_S, Sessions
from penstock.kernel.clock import SYSTEM
from penstock.kernel.errors import Unauthenticated
from penstock.net.bearer import bearer
from penstock.net.server.admission import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.net.message import Request

_COOKIE: Final = "penstock_session"
_MISSING = Refusal(Unauthenticated("This needs the operator token as a bearer token.", reason="missing"))
_WRONG = Refusal(Unauthenticated("This is not the operator token.", reason="bad_signature"))
_LAPSED = Refusal(Unauthenticated("This session has ended; sign in again.", reason="session"))
# What a browser says of a request that another page made; a page on another port of this host is such a page too.
_OWN_SITE: Final = frozenset({b"", b"same-origin", b"none"})


class OperatorOnly:
    """Admission for the admin listener: open routes pass, all others need the operator token or a session."""

    def __init__(
        self,
        token: Callable[[], str],
        *,
        open_metrics: Callable[[], bool],
        now: Callable[[], float] = SYSTEM.monotonic,
        stands: Callable[[], bool] = lambda: True,
        anyone: bool = False,
    ) -> None:
        """Ask for the token each time, because a revocation replaces it; `anyone` turns all checks off.

        `stands` tells whether that token is good by the keys and floors of this moment: one that was revoked, has
        expired or is of a key that is gone opens nothing, and no session made from it goes on.
        """
        self._kept = token
        self._stands = stands
        self._open_metrics = open_metrics
        self._now = now
        self._anyone = anyone
        self.sessions = Sessions()

    def __call__(self, request: Request) -> Refusal | None:
        """Decide at the end of the headers, before any body is read."""
        if request.route.open or (request.route.path == "/metrics" and self._open_metrics()):
            return None
        return self.judge(request)

    def judge(self, request: Request) -> Refusal | None:
        """Decide whatever the route: None for the operator."""
        if self._anyone:
            return None
        given = bearer(request)
        if given:
            return None if self.is_token(given.encode()) else _WRONG
        secret = session_of(request)
        if not secret:
            return _MISSING
        return None if _own_page(request) and self.sessions.holds(secret, self._token(), self._now()) else _LAPSED

    def is_operator(self, request: Request) -> bool:
        """Tell whether a request comes from the operator, also where the route is open to all."""
        return self.judge(request) is None

    def _token(self) -> str:
        """Return the operator's token while it is good; no token admits nobody and holds no session."""
        return self._kept() if self._stands() else ""

    def is_token(self, given: bytes) -> bool:
        """Compare with the operator token; no token yet admits nobody."""
        # Digests are compared, so that it takes the same time whatever comes.
        token = self._token().encode("ascii")
        digest = hashlib.sha256(given).digest()
        return bool(token) and hmac.compare_digest(digest, hashlib.sha256(token).digest())

    def make_link(self) -> str:
        """Make the secret of a one-time link."""
        return self.sessions.make_link(self._token(), self._now())

    def sign_in(self, *, token: str = "", once: str = "") -> str | None:
        """Begin a session for the operator token, or for the secret of a link that was not used; None for neither."""
        if token:
            right = self.is_token(token.strip().encode("utf-8", "surrogatepass"))
            return self.sessions.open(self._token(), self._now()) if right else None
        return self.sessions.redeem(once, self._token(), self._now())


def _own_page(request: Request) -> bool:
    """Tell whether a request comes from our page or by hand.

    A cookie goes to every port of a host, so it alone is no proof.
    """
    headers = request.headers
    origin, host = headers.get(b"origin"), headers.get(b"host", b"")
    same = origin is None or origin.lower().partition(b"://")[2] == host.lower()
    return same and headers.get(b"sec-fetch-site", b"").lower() in _OWN_SITE


def _cookie_name(request: Request) -> str:
    """Name the cookie by port: browsers keep one jar for all ports of a host, and two nodes may run on one."""
    port = request.headers.get(b"host", b"").decode("ascii", "replace").rpartition(":")[2]
    return f"{_COOKIE}_{port}" if port.isdigit() else _COOKIE


def session_of(request: Request) -> str:
    """Return the secret of the session a request carries; empty when there is none."""
    name = _cookie_name(request)
    for pair in request.headers.get(b"cookie", b"").decode("ascii", "replace").split(";"):
        given, _, value = pair.strip().partition("=")
        if given == name:
            return value
    return ""


def session_cookie(request: Request, secret: str) -> tuple[bytes, bytes]:
    """Make the field that hands a session to a browser; an empty secret takes it back."""
    lasts_s = int(SESSION_S) if secret else 0
    parts = [f"{_cookie_name(request)}={secret}", "Path=/", "HttpOnly", "SameSite=Strict", f"Max-Age={lasts_s}"]
    return b"Set-Cookie", "; ".join([*parts, "Secure"] if request.peer.secure else parts).encode("ascii")
