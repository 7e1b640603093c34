"""Who may look and act on the admin listener: whoever holds the operator token. Loopback is no credential."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Final

from penstock.kernel.errors import Unauthenticated
from penstock.net.admission import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.net.message import Request

_BEARER: Final = b"bearer "
_MISSING = Refusal(Unauthenticated("This needs the operator token as a bearer token.", reason="missing"))
_WRONG = Refusal(Unauthenticated("This is not the operator token.", reason="bad_signature"))


class OperatorOnly:
    """Admission for the admin listener: open routes pass, all others need the operator token."""

    def __init__(self, token: Callable[[], str], *, open_metrics: Callable[[], bool], anyone: bool = False) -> None:
        """Ask for the token each time, because a revocation replaces it; `anyone` turns all checks off."""
        self._token = token
        self._open_metrics = open_metrics
        self._anyone = anyone

    def __call__(self, request: Request) -> Refusal | None:
        """Decide at the end of the headers, before any body is read."""
        if request.route.open or self._anyone or (request.route.path == "/metrics" and self._open_metrics()):
            return None
        given = request.headers.get(b"authorization", b"")
        if given[: len(_BEARER)].lower() != _BEARER:
            return _MISSING
        # Digests are compared, so that it takes the same time whatever comes; no token yet admits nobody.
        token = self._token().encode("ascii")
        digest = hashlib.sha256(given[len(_BEARER) :].strip()).digest()
        right = bool(token) and hmac.compare_digest(digest, hashlib.sha256(token).digest())
        return None if right else _WRONG
