"""Batches of which some items cannot be read: those are refused alone, each in its place. Pure.

A batch is read as a whole, which is fast. Only when that fails it is read once more, item by item: the items that can
be read are taken, and the others are named in `unread` by their places, with what is wrong with them. In their places
stand items that nobody ever sent and that are never looked at. If what is around the items cannot be read either, the
whole batch is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec

from penstock.contracts import mailbox as m
from penstock.contracts.plain_payloads import PlainSend, read_plain_send
from penstock.kernel.errors import Malformed, OverLimit, PenstockError
from penstock.wire.plain_words import plain_fault

ItemReader: TypeAlias = Callable[[bytes], Any]
Places: TypeAlias = MappingProxyType[int, PenstockError]
_NONE: Final[Places] = MappingProxyType({})
# More commas than a batch of 256 full messages has: its items are not even counted.
_COMMAS_MAX: Final = 16_384


class PartlyReadSends(m.SendBatch, frozen=True):
    """Messages, some of which could not be read."""

    unread: dict[int, str]


class PartlyReadAcks(m.AckBatch, frozen=True):
    """Acks, some of which could not be read."""

    unread: dict[int, str]


class PartlyReadNacks(m.NackBatch, frozen=True):
    """Nacks, some of which could not be read."""

    unread: dict[int, str]


class PartlyReadExtends(m.ExtendBatch, frozen=True):
    """Extensions, some of which could not be read."""

    unread: dict[int, str]


# By kind of batch: the field with its items, an item to stand in the place of one that could not be read, the result.
_KINDS: Final[dict[type, tuple[str, Any, Callable[..., Any]]]] = {
    m.SendBatch: ("messages", m.Send("unread", b""), PartlyReadSends),
    m.AckBatch: ("acks", m.Ack("unread", "unread"), PartlyReadAcks),
    m.NackBatch: ("nacks", m.Nack("unread", "unread"), PartlyReadNacks),
    m.ExtendBatch: ("extends", m.Extend("unread", "unread", 250), PartlyReadExtends),
}
_PARTLY: Final = (PartlyReadSends, PartlyReadAcks, PartlyReadNacks, PartlyReadExtends)


def unread_in(batch: object) -> Places:
    """Return the places of the items that could not be read, each with its refusal."""
    if not isinstance(batch, _PARTLY):
        return _NONE
    return MappingProxyType({place: Malformed(detail) for place, detail in batch.unread.items()})


def json_batch(kind: type) -> Callable[[bytes], Any]:
    """Return what reads a batch from JSON item by item; it raises as msgspec does when that is not possible."""
    item = _item(kind, msgspec.json.Decoder)
    item = partial(_read_send, item) if kind is m.SendBatch else item
    return partial(_read, kind, msgspec.json.Decoder(_outer(kind)).decode, item)


def _read_send(decode: Callable[[bytes], Any], raw: bytes) -> m.Send:
    """Read a message with its payload as base64, or else plain."""
    try:
        sent: m.Send = decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        try:
            return read_plain_send(bytes(raw))
        except msgspec.ValidationError:
            raise exc from None
    return sent


def msgpack_batch(kind: type) -> Callable[[bytes], Any]:
    """Return what reads a batch from msgpack item by item."""
    return partial(_read, kind, msgspec.msgpack.Decoder(_outer(kind)).decode, _item(kind, msgspec.msgpack.Decoder))


def _outer(kind: type) -> Any:  # noqa: ANN401 - a type made here
    field = _KINDS[kind][0]
    return msgspec.defstruct(f"{kind.__name__}Outer", [(field, tuple[msgspec.Raw, ...])], forbid_unknown_fields=True)


def _item(kind: type, decoder: Callable[[type], Any]) -> Callable[[bytes], Any]:
    decode: Callable[[bytes], Any] = decoder(type(_KINDS[kind][1])).decode
    return decode


def _read(kind: type, outer: ItemReader, decode: ItemReader, data: bytes) -> Any:  # noqa: ANN401 - typed by its callers
    if bytes(data).count(b",") > _COMMAS_MAX:
        raise msgspec.ValidationError("too many items")
    field, stand_in, partly = _KINDS[kind]
    raws = getattr(outer(data), field)
    if len(raws) > m.BATCH_MAX:
        raise OverLimit(f"A batch has at most {m.BATCH_MAX} items.", limit="batch")
    unread: dict[int, str] = {}
    items = []
    for place, raw in enumerate(raws):
        try:
            items.append(decode(raw))
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            unread[place] = plain_fault(str(exc), type(stand_in), PlainSend if kind is m.SendBatch else None)
            items.append(stand_in)
        except Malformed as exc:
            unread[place] = exc.detail
            items.append(stand_in)
    return partly(tuple(items), unread)
