"""The one reader of `Authorization: Bearer`: what it does not take for a token, nobody does."""

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
    # Heads are ASCII; what a caller of our own made otherwise is no token anybody can read.
    return field[len(_SCHEME) :].strip().decode("ascii", "replace")


def bearer(request: Request) -> str:
    """Return the token that came with a request, or nothing."""
    return token_in(request.headers.get(b"authorization", b""))


def admit_bearers(request: Request) -> None:
    """Refuse at the end of the headers who shows no token where one is needed: as an admission, before any body is read."""
    if not request.route.open and not bearer(request):
        raise Unauthenticated("No capability was given.", reason="missing")
