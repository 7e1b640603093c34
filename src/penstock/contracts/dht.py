"""svc-dht: who provides a key. Values and the Protocol; the service is still to come. Pure."""

from __future__ import annotations

from typing import Annotated, Protocol

import msgspec

from penstock.contracts.call import NOBODY, Call

Key = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]


class Find(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask who provides a key."""

    key: Key


class Provider(msgspec.Struct, frozen=True):
    """One provider: its address, and until when its record holds (Unix milliseconds)."""

    node_id: str
    address: str
    expires_at: int


class Providers(msgspec.Struct, frozen=True):
    """Those that were found, nearest first."""

    key: str
    providers: tuple[Provider, ...]


class Dht(Protocol):
    """What svc-dht does for the others."""

    async def find(self, request: Find, call: Call = NOBODY) -> Providers:
        """Look a key up; NotFound when nobody provides it."""
