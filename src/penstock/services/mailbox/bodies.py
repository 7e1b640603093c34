"""Request bodies whose HTTP form differs from the contract's value: one or many, and what the path already says.

Pure.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.contracts import mailbox as m
from penstock.contracts.mailbox_bodies import AckIn, ExtendIn, NackIn, as_ack, as_extend, as_nack, forms_of

__all__ = [
    "AckIn", "AnySendBatch", "ExtendIn", "NackIn", "ReceivedOut", "ReceivedPlain", "RecvIn", "StreamIn", "as_ack",
    "as_extend", "as_nack", "forms_of",
]  # fmt: skip

INFLIGHT_MAX = 8192
# Both forms are components of the description: the route for a single message names them.
_EITHER_SEND: Final = {"oneOf": [{"$ref": f"#/components/schemas/{form}"} for form in ("Send", "PlainSend")]}


class AnySendBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Up to 256 messages, each with `payload` or `payload_b64`; only described, `json_batch` reads it."""

    messages: Annotated[tuple[Annotated[Any, Meta(extra_json_schema=_EITHER_SEND)], ...], Meta(max_length=m.BATCH_MAX)]


class RecvIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Ask for messages; without `visibility_ms` the topic's own or the configured one holds."""

    topic: m.Topic
    max_messages: Annotated[int, Meta(ge=1, le=m.BATCH_MAX)] = 1
    visibility_ms: m.VisibilityMs | None = None
    wait_ms: Annotated[int, Meta(ge=0, le=20_000)] = 0
    max_bytes: m.Positive | None = None
    # Also hand out `payload`, where the content-type says that it is text or JSON.
    text: bool = True

    def __post_init__(self) -> None:
        """Refuse a lease that is too short."""
        m.check_visibility_ms(self.visibility_ms)


class StreamIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Ask for a stream with at most `max_inflight` unsettled messages; it always waits, whatever `wait_ms` says."""

    topic: m.Topic
    max_messages: Annotated[int, Meta(ge=1, le=m.BATCH_MAX)] = 32
    visibility_ms: m.VisibilityMs | None = None
    wait_ms: Annotated[int, Meta(ge=0, le=20_000)] = 0
    max_bytes: m.Positive | None = None
    max_inflight: Annotated[int, Meta(ge=1, le=INFLIGHT_MAX)] = 64

    def __post_init__(self) -> None:
        """Refuse a lease that is too short."""
        m.check_visibility_ms(self.visibility_ms)


class ReceivedOut(msgspec.Struct, frozen=True):
    """The leased messages, possibly none."""

    messages: tuple[m.Envelope, ...]


class PlainEnvelope(m.Envelope, frozen=True, omit_defaults=True, rename={"plain": "payload"}):
    """A leased message; `payload` is there where the content-type says that it is text or JSON, and it is."""

    plain: Any | UnsetType = UNSET


class ReceivedPlain(msgspec.Struct, frozen=True):
    """The leased messages, possibly none; only described, the codec writes it."""

    messages: tuple[PlainEnvelope, ...]
