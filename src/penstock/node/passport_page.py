"""What svc-passport adds to the operator's page: narrowing a token, which needs no issuer but a little code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.admin.concern import PagePart
from penstock.capability.caveats import parse_all
from penstock.capability.making import attenuate
from penstock.net.server.route import Route

if TYPE_CHECKING:
    from penstock.net.message import Request


class NarrowIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token and what else it shall be held to."""

    token: str
    caveats: tuple[str, ...]


class NarrowOut(msgspec.Struct, frozen=True):
    """The narrower token."""

    token: str
    caveats: tuple[str, ...]


def passport_page() -> PagePart:
    """Describe what is added to the page."""
    route = Route(
        method="POST",
        path="/tokens/narrow",
        handler=_narrow,
        body=NarrowIn,
        answer=NarrowOut,
        summary="Narrow a token by further caveats.",
        errors=("malformed", "over_limit", "conflict"),
    )
    return PagePart(routes=(route,))


def _narrow(_request: Request, asked: NarrowIn) -> NarrowOut:
    return NarrowOut(attenuate(asked.token, parse_all(list(asked.caveats))), asked.caveats)
