"""What is stored of a message: an immutable row with its checksum, and a state row unless it is ready and untried.

Pure.
"""

from __future__ import annotations

import struct
from typing import Any, Final, Literal, NamedTuple

import msgspec
from blake3 import blake3

from penstock.contracts.mailbox_rules import hash_chain
from penstock.kernel.errors import Integrity
from penstock.services.mailbox.ids import make_msg_id

SUM_BYTES: Final = 16
KIND_READY: Final = 0
KIND_LEASED: Final = 1
KIND_DELAYED: Final = 2

History = tuple[tuple[int, str], ...]
"""When (Unix ms) and why each attempt ended."""

_FIXED: Final = struct.Struct(">QHIqqIi")
_pack_fixed: Final = _FIXED.pack
_STATE: Final = struct.Struct(">QBqIQQ")
_CHAIN: Final = b"penstock/mailbox/chain/1"
_U32: Final = struct.Struct(">I").pack
_HASH_SIZE: Final = _U32(67)
_pack: Final = msgspec.msgpack.Encoder().encode


def chain_start(topic: str) -> bytes:
    """Write the part of a hash chain that is the same for all messages of a topic."""
    name = topic.encode()
    return _CHAIN + _U32(len(name)) + name


def chain_head(start: bytes, ts: int, idem_key: str | None = None) -> bytes:
    """Write all of a hash chain's text but the payload's address, for a message without attrs."""
    when, idem = b"%d" % ts, b"" if idem_key is None else idem_key.encode()
    return b"".join((start, _U32(len(when)), when, _U32(len(idem)), idem, _HASH_SIZE))


class _Head(msgspec.Struct, array_like=True, frozen=True, gc=False):
    nonce: int
    corr_id: str
    idem_key: str | None
    attrs: dict[str, str] | None
    payload_hash: bytes
    redriven_from: str | None


_read_head: Final = msgspec.msgpack.Decoder(_Head).decode
_read_history: Final = msgspec.msgpack.Decoder(tuple[tuple[int, str], ...]).decode


class MessageRow(msgspec.Struct, frozen=True, gc=False):
    """A message as it was sent. Nothing in it ever changes."""

    seq: int
    slot: int
    topic: int
    key: str | None
    ts: int
    expires: int | None
    nonce: int
    corr_id: str
    idem_key: str | None
    attrs: dict[str, str]
    payload_hash: bytes
    payload: bytes
    redriven_from: str | None = None
    # The size of a payload that was left on the disk; 0 when it is here.
    left_bytes: int = 0
    # Its msg_id, where that was written already.
    name: str = ""

    @property
    def size(self) -> int:
        """Return the size of the payload, here or not."""
        return self.left_bytes or len(self.payload)

    @property
    def msg_id(self) -> str:
        """Name the message."""
        return self.name or make_msg_id(self.ts, self.seq, self.slot, self.nonce)

    @property
    def damaged(self) -> bool:
        """Tell whether this stands for a row whose bytes do not match: it has no hash, and is never delivered."""
        return not any(self.payload_hash)

    @property
    def address(self) -> str:
        """Write the payload's digest as the envelope carries it."""
        return "b3:" + self.payload_hash.hex()

    def chain(self, topic: str, start: bytes = b"", address: str = "") -> str:
        """Bind the message's parts together: the contract's `hash_chain`.

        A caller that has the start or the address gives it.
        """
        address = address or self.address
        if self.attrs:
            return hash_chain(topic, self.ts, self.idem_key, address, self.attrs)
        head = chain_head(start or chain_start(topic), self.ts, self.idem_key)
        return "b3:" + blake3(head + address.encode()).hexdigest()

    def columns(self) -> tuple[Any, ...]:
        """Return the row as the table holds it."""
        seq, slot, topic, ts, expires, payload, key = (
            self.seq, self.slot, self.topic, self.ts, self.expires, self.payload, self.key,
        )  # fmt: skip
        head = _pack(
            (self.nonce, self.corr_id, self.idem_key, self.attrs or None, self.payload_hash, self.redriven_from)
        )
        if key is not None or expires is not None:
            fixed = (seq, slot, topic, None if key is None else key.encode(), ts, expires, len(payload))
            return (*fixed, head, payload, _row_sum(fixed, head))
        # The same as above, in line, because nearly all messages are like this.
        size = len(payload)
        total = blake3(_pack_fixed(seq, slot, topic, ts, -1, size, -1) + head).digest(SUM_BYTES)
        return seq, slot, topic, None, ts, None, size, head, payload, total


def _row_sum(fixed: tuple[Any, ...], head: bytes) -> bytes:
    """Hash every column; the payload through its digest, which is part of the head."""
    seq, slot, topic, key, ts, expires, size = fixed
    expires = -1 if expires is None else expires
    key_size = -1 if key is None else len(key)
    return blake3(_pack_fixed(seq, slot, topic, ts, expires, size, key_size) + (key or b"") + head).digest(SUM_BYTES)


def read_row(columns: tuple[Any, ...]) -> MessageRow:
    """Read a stored row and check its sums; raises Integrity.

    A payload of None was left on the disk: the rest is checked.
    """
    seq, slot, topic, key, ts, expires, size, head, payload, total = columns[:10]
    left = payload is None
    try:
        good = _row_sum((seq, slot, topic, key, ts, expires, size), head) == total and (left or len(payload) == size)
        parts = _read_head(head) if good else None
    except (struct.error, TypeError, msgspec.MsgspecError) as exc:
        raise Integrity("A stored row is damaged.", where="row", seq=seq) from exc
    if parts is None or not (left or blake3(payload).digest() == parts.payload_hash):
        raise Integrity("A stored row is damaged.", where="row", seq=seq)
    return MessageRow(
        seq=seq,
        slot=slot,
        topic=topic,
        key=None if key is None else key.decode(),
        ts=ts,
        expires=expires,
        nonce=parts.nonce,
        corr_id=parts.corr_id,
        idem_key=parts.idem_key,
        attrs=parts.attrs or {},
        payload_hash=parts.payload_hash,
        payload=b"" if left else payload,
        redriven_from=parts.redriven_from,
        left_bytes=size if left else 0,
    )


class MessageState(msgspec.Struct, frozen=True, gc=False):
    """A message that is leased, delayed, or ready after an attempt. `until` is Unix milliseconds."""

    seq: int
    kind: int
    until: int
    attempts: int
    gen: int
    history: History = ()
    # How long was asked for (ms): after a restart it never becomes more, whatever the wall clock did meanwhile.
    span: int = 0

    def left(self, wall: int) -> int:
        """Return the milliseconds that are left of a lease or delay."""
        left = max(0, self.until - wall)
        return min(left, self.span) if self.span else left

    def columns(self) -> tuple[Any, ...]:
        """Return the row as the table holds it."""
        history = _pack(self.history)
        fixed = (self.seq, self.kind, self.until, self.attempts, self.gen, self.span)
        return (*fixed, history, blake3(_STATE.pack(*fixed) + history).digest(SUM_BYTES))


def read_state(columns: tuple[Any, ...]) -> MessageState:
    """Read and check a state row."""
    *fixed, history, total = columns
    try:
        good = blake3(_STATE.pack(*fixed) + history).digest(SUM_BYTES) == total
        if good:
            seq, kind, until, attempts, gen, span = fixed
            return MessageState(seq, kind, until, attempts, gen, _read_history(history), span)
    except (struct.error, TypeError, msgspec.MsgspecError) as exc:
        raise Integrity("A stored state is damaged.", where="state", seq=columns[0]) from exc
    raise Integrity("A stored state is damaged.", where="state", seq=columns[0])


def topic_sum(number: int, name: str) -> bytes:
    """Hash a row of the topic table."""
    return blake3(number.to_bytes(8, "big") + name.encode()).digest(SUM_BYTES)


# A message as a read brings it.
Loaded = tuple[MessageRow, MessageState | None]


class StoredTrace(NamedTuple):
    """What the engine knows of a message that is not in RAM."""

    kind: Literal["acked", "purged", "here", "none"]
    gen: int = 0
    msg_id: str = ""


class DeadRow(msgspec.Struct, frozen=True, gc=False):
    """A dead letter's own facts, beside its row."""

    seq: int
    reason: str
    at: int
    attempts: int
    history: History


class IdemClaim(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What an idem_key was used for."""

    n: int
    name: bytes
    content: bytes
    msg_id: str
    slot: int
    at: int
