"""Issued tokens for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.cli.payloads import printable
from penstock.cli.tables import table_of
from penstock.wire.plain_words import age_text

if TYPE_CHECKING:
    from penstock.contracts.passport import IssuedToken

# What a service of the node asks for on its own behalf spends the quota of a tenant of this kind.
_OWN: Final = "svc-"


def issued(rows: Sequence[IssuedToken], now: float) -> None:
    """Print a row for each token; those that the node issued to itself are marked."""
    columns = ("subject", "expires", "state", "tid", "audience", "may")
    cells = [
        (
            _subject(row),
            _expires(row.exp - now),
            row.state,
            row.tid,
            ", ".join(row.aud),
            printable("; ".join(row.caveats)),
        )
        for row in rows
    ]
    table_of(columns, cells, "no tokens: penstock token issue makes one")


def _subject(row: IssuedToken) -> str:
    return printable(row.sub) + (" (the node's own)" if row.tenant.startswith(_OWN) else "")


def _expires(left_s: float) -> str:
    return f"in {age_text(left_s)}" if left_s > 0 else f"{age_text(-left_s)} ago"
