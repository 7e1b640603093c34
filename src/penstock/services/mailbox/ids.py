"""Slots, msg_ids and receipts. Pure.

A msg_id is a UUIDv7 whose random part carries seq and slot, and a receipt carries slot, seq, boot and lease
generation under a keyed tag: whoever holds one needs no directory to find the message.
"""

from __future__ import annotations

import struct
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Sequence
from typing import Final, NamedTuple

from blake3 import blake3

SLOTS: Final = 4096
SECTIONS: Final = 64
OLD_SLOT_FORM: Final = 1
SLOT_FORM: Final = 2
"""The rule by which a topic's messages get their slots. A topic keeps the one it began with until it is empty."""

SEQ_MAX: Final = (1 << 46) - 1
NONCE_MAX: Final = (1 << 16) - 1
BOOT_SHIFT: Final = 40
"""A generation is boot << 40 | lease counter: it is never handed out twice, also not after a restart."""

_HALVES: Final = struct.Struct(">QQ")
_RECEIPT: Final = struct.Struct(">BHQQ")
_RECEIPT_VERSION: Final = 1
_TAG_BYTES: Final = 8
_RECEIPT_CHARS: Final = 36
_TO_URL: Final = bytes.maketrans(b"+/", b"-_")
_FROM_URL: Final = bytes.maketrans(b"-_", b"+/")
_MSG_ID_CHARS: Final = 36
_LOW: Final = (1 << 62) - 1
_new: Final = tuple.__new__


class MessageName(NamedTuple):
    """What a msg_id says."""

    ts: int
    seq: int
    slot: int
    nonce: int


def slot_of(topic: str, key: str | None, form: int = SLOT_FORM) -> int:
    """Place a message: a stable hash that is stored with it and never changes.

    The upper half is the section of its topic, so all messages of a topic lie in one of 64 sections; the lower half
    spreads its keys. In the old form the whole slot was spread.
    """
    name = topic if key is None else f"{topic}\0{key}"
    digest = blake3(name.encode()).digest(6)
    if form == OLD_SLOT_FORM:
        return int.from_bytes(digest[:4], "big") % SLOTS
    section = digest if key is None else blake3(topic.encode()).digest(4)
    return int.from_bytes(section[:4], "big") % SECTIONS << 6 | int.from_bytes(digest[4:6], "big") % (SLOTS // SECTIONS)


def make_msg_id(ts: int, seq: int, slot: int, nonce: int) -> str:
    """Write a UUIDv7 that sorts by time, then by seq."""
    bits = seq << 28 | slot << 16 | nonce
    # The older way to format, because it is the faster one and this is done for every message.
    return "%08x-%04x-7%03x-%04x-%012x" % (  # noqa: UP031
        ts >> 16, ts & 0xFFFF, bits >> 62, 0x8000 | bits >> 48 & 0x3FFF, bits & 0xFFFFFFFFFFFF,
    )  # fmt: skip


def make_msg_ids(ts: int, first: int, slot: int, nonces: Sequence[int]) -> list[str]:
    """Write the msg_ids of messages that were sent together: one slot, and seqs from `first` on."""
    if (first + len(nonces)) >> 20 != first >> 20:
        return [make_msg_id(ts, seq, slot, nonce) for seq, nonce in enumerate(nonces, first)]
    # All but the last group of digits is the same for all of them.
    start = make_msg_id(ts, first, slot, 0)[:24]
    bits = (first & 0xFFFFF) << 28 | slot << 16
    return [start + "%012x" % (bits + (place << 28) | nonce) for place, nonce in enumerate(nonces)]


def read_msg_id(text: str) -> MessageName | None:
    """Read a msg_id; None when it cannot be one of ours, letter for letter."""
    digits = text.replace("-", "")
    try:
        raw = bytes.fromhex(digits)
    except ValueError:
        return None
    if len(raw) != _HALVES.size or len(text) != _MSG_ID_CHARS or text[8:24:5] != "----" or raw.hex() != digits:
        return None
    high, low = _HALVES.unpack(raw)
    if high & 0xF000 != 0x7000 or low >> 62 != 2:
        return None
    bits = (high & 0xFFF) << 62 | low & _LOW
    # By the tuple's own constructor: this is done for every settlement.
    return _new(MessageName, (high >> 16, bits >> 28, bits >> 16 & SLOTS - 1, bits & NONCE_MAX))


class Receipts:
    """Makes and reads receipts under one key. The loop alone uses it."""

    __slots__ = ("_hasher",)

    def __init__(self, key: bytes) -> None:
        """Take the 32-byte key that the data directory holds."""
        # One for all tags, begun anew for each: to make a hasher costs more than to use it.
        self._hasher = blake3(key=key)

    def _tag(self, body: bytes) -> bytes:
        self._hasher.reset()
        self._hasher.update(body)
        return self._hasher.digest(_TAG_BYTES)

    def make(self, slot: int, seq: int, gen: int) -> str:
        """Write the receipt of one lease."""
        body = _RECEIPT.pack(_RECEIPT_VERSION, slot, seq, gen)
        return _url_text(body + self._tag(body))

    def make_all(self, leases: Sequence[tuple[int, int, int]]) -> list[str]:
        """Write the receipts of leases that were made together; each is given by slot, seq and generation."""
        if len(leases) == 1:
            return [self.make(*leases[0])]
        hasher, pack = self._hasher, _RECEIPT.pack
        reset, update, digest = hasher.reset, hasher.update, hasher.digest
        parts: list[bytes] = []
        for slot, seq, gen in leases:
            body = pack(_RECEIPT_VERSION, slot, seq, gen)
            reset()
            update(body)
            parts += (body, digest(_TAG_BYTES))
        # The bytes of a receipt are whole groups of three, so the text of all is the texts of each.
        text = _url_text(b"".join(parts))
        return [text[at : at + _RECEIPT_CHARS] for at in range(0, len(text), _RECEIPT_CHARS)]

    def read(self, text: str) -> tuple[int, int] | None:
        """Return seq and generation of a receipt that is ours, else None."""
        if len(text) != _RECEIPT_CHARS or not text.isascii():
            return None
        try:
            raw = a2b_base64(text.encode().translate(_FROM_URL), strict_mode=True)
        except Base64Error:
            return None
        body = raw[: _RECEIPT.size]
        if self._tag(body) != raw[_RECEIPT.size :]:
            return None
        version, _slot, seq, gen = _RECEIPT.unpack(body)
        return (seq, gen) if version == _RECEIPT_VERSION else None


def _url_text(raw: bytes) -> str:
    return b2a_base64(raw, newline=False).translate(_TO_URL).decode()
