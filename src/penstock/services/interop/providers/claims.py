"""What makes two deliveries the same event; pure.

A provider that gets no answer sends the event again, signed anew with a new time. A claim therefore holds only what is
the same in every delivery of one event and is covered by the signature: the signed id where there is one, else the
signed content without time and signature. Fields are written with their length in front, so that no two different
sequences of fields have the same bytes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias

from blake3 import blake3

_LENGTH_BYTES: Final = 8
ID_CHARS_MAX: Final = 256
ClaimedBy: TypeAlias = Literal["id", "content", "pointer", "header", "signature"]


def length_prefixed(*parts: bytes) -> bytes:
    """Write parts one after the other, each with its length in front."""
    return b"".join([len(part).to_bytes(_LENGTH_BYTES, "big") + part for part in parts])


class Claim(NamedTuple):
    """The name of an event: by what it is claimed, and that value."""

    by: ClaimedBy
    value: bytes

    @property
    def text(self) -> str:
        """Show the claim in an event: an id as it is, bytes as hex."""
        shown = self.value.hex() if self.by in ("content", "signature") else self.value.decode("utf-8", "replace")
        return f"{self.by}:{shown}"


def by_content(*parts: bytes) -> Claim:
    """Claim by the signed content, given in parts without the time."""
    return Claim("content", blake3(length_prefixed(*parts)).digest())


def by_id(event_id: object, *content: bytes) -> Claim:
    """Claim by a signed id; by the content where the id is no usable text."""
    if isinstance(event_id, str) and 0 < len(event_id) <= ID_CHARS_MAX:
        return Claim("id", event_id.encode("utf-8"))
    return by_content(*content)


def idem_key(endpoint: str, kind: str, claim: Claim) -> str:
    """Return the key under which the mailbox knows this event of this endpoint."""
    named = length_prefixed(claim.by.encode("ascii"), claim.value)
    return blake3(_of_endpoint(endpoint, kind) + length_prefixed(named)).hexdigest()


@lru_cache(maxsize=1024)
def _of_endpoint(endpoint: str, kind: str) -> bytes:
    """Return how every key of an endpoint begins."""
    return length_prefixed(endpoint.encode("utf-8"), kind.encode("ascii"))


def replay_key(delivery: str, corr_id: str) -> str:
    """Return the key of a replay: one for each time somebody asks, so that a repeated call is still one message."""
    return blake3(length_prefixed(b"replay", delivery.encode("utf-8"), corr_id.encode("utf-8"))).hexdigest()
