"""Every contract's method table, and the page generated from them. Pure."""

from __future__ import annotations

from typing import Final

from penstock.contracts import bus, dht, interop, mailbox_rules, passport, storage
from penstock.contracts.method import Methods, methods_markdown

TABLES: Final[tuple[Methods, ...]] = (
    mailbox_rules.METHODS,
    passport.METHODS,
    storage.METHODS,
    dht.METHODS,
    interop.METHODS,
    bus.METHODS,
)


def oap_markdown() -> str:
    """Write `docs/_generated/oap.md`."""
    return methods_markdown(TABLES)
