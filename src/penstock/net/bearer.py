"""Reads `Authorization: Bearer`. Every service uses this reader, so all agree on what a token is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.kernel.errors import Unauthenticated

if TYPE_CHECKING:
    from penstock.net.message import Request

_SCHEME: Final = b"bearer "


def token_in(field: bytes) -> str:
    """Return the token of an Authorization field, or nothing where the scheme is another."""
    if field[: len(_SCHEME)].lower() != _SCHEME:
        return ""
    # Heads from the wire are ASCII. One that was made in this process may not be; then it holds no valid token.
    return field[len(_SCHEME) :].strip().decode("ascii", "replace")


def bearer(request: Request) -> str:
    """Return the token that came with a request, or nothing."""
    return token_in(request.headers.get(b"authorization", b""))


def admit_bearers(request: Request) -> None:
    """Refuse a request without a token where one is needed. An admission hook: it runs before any body is read."""
    if not request.route.open and not bearer(request):
        raise Unauthenticated("No capability was given.", reason="missing")
