"""What is stored of a message: an immutable row with its checksum, and a state row unless it is ready and untried.

Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple

import msgspec
from blake3 import blake3

from penstock.contracts.handler_error import plain_cause
from penstock.contracts.mailbox_rules import hash_chain
from penstock.kernel.errors import Integrity
from penstock.services.mailbox.ids import OLD_SLOT_FORM, SLOT_FORM, make_msg_id

SUM_BYTES: Final = 16
ROW_WIDTH: Final = 11
"""How many columns a row has."""
KIND_READY: Final = 0
KIND_LEASED: Final = 1
KIND_DELAYED: Final = 2

HISTORY_KEPT: Final = 16

History = tuple[tuple[int, str], ...]
"""When (Unix ms) and why each attempt ended: the first and the last 16 of them. `attempts` says how many there were."""

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
    # Where the meta begins behind the payload, and its hash. It lies in the same column, so it is only read with it.
    meta_at: int | None = None
    meta_sum: bytes = b""
    origin: tuple[str, int] | None = None


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
    group: str | None = None
    meta: bytes | None = None
    # msg_id and ts of the first send, where this message was moved or redriven.
    origin: tuple[str, int] | None = None

    @property
    def size(self) -> int:
        """Return the size of the payload and the meta, here or not."""
        return self.left_bytes or len(self.payload) + (len(self.meta) if self.meta else 0)

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
        return "b3:" + blake3(head + address.encode()).digest().hex()

    def columns(self) -> tuple[Any, ...]:
        """Return the row as the table holds it."""
        head: tuple[Any, ...] = (
            self.nonce, self.corr_id, self.idem_key, self.attrs or None, self.payload_hash, self.redriven_from,
        )  # fmt: skip
        content = self.payload
        if self.meta is not None or self.origin is not None:
            at, total = None, b""
            if self.meta is not None:
                content, at, total = self.payload + self.meta, len(self.payload), blake3(self.meta).digest(SUM_BYTES)
            head = (*head, at, total, self.origin)
        key = None if self.key is None else self.key.encode()
        group = None if self.group is None else self.group.encode()
        fixed = (self.seq, self.slot, self.topic, key, self.ts, self.expires, len(content))
        packed = _pack(head)
        return (*fixed, packed, content, _row_sum(fixed, packed, group), group)


def columns_of(rows: Iterable[MessageRow]) -> list[tuple[Any, ...]]:
    """Return rows as the table holds them, in one pass: for each the same as `MessageRow.columns`."""
    hasher = blake3()
    reset, update, digest = hasher.reset, hasher.update, hasher.digest
    out: list[tuple[Any, ...]] = []
    for row in rows:
        if (
            row.key is not None or row.expires is not None or row.group is not None
            or row.meta is not None or row.origin is not None
        ):  # fmt: skip
            out.append(row.columns())
            continue
        # Nearly all messages are like this: the same as there, in line and with one hasher.
        seq, slot, topic, ts, payload = row.seq, row.slot, row.topic, row.ts, row.payload
        head = _pack((row.nonce, row.corr_id, row.idem_key, row.attrs or None, row.payload_hash, row.redriven_from))
        size = len(payload)
        reset()
        update(_pack_fixed(seq, slot, topic, ts, -1, size, -1) + head)
        out.append((seq, slot, topic, None, ts, None, size, head, payload, digest(SUM_BYTES), None))
    return out


def _row_sum(fixed: tuple[Any, ...], head: bytes, group: bytes | None) -> bytes:
    """Hash every column; the payload and the meta through their digests, which are part of the head."""
    seq, slot, topic, key, ts, expires, size = fixed
    expires = -1 if expires is None else expires
    key_size = -1 if key is None else len(key)
    start = _pack_fixed(seq, slot, topic, ts, expires, size, key_size)
    return blake3(start + (key or b"") + head + (group or b"")).digest(SUM_BYTES)


def read_row(columns: tuple[Any, ...]) -> MessageRow:
    """Read a stored row and check its sums; raises Integrity.

    A payload of None was left on the disk: the rest is checked.
    """
    seq, slot, topic, key, ts, expires, size, head, content, total, group = columns[:ROW_WIDTH]
    left = content is None
    payload, meta = content, None
    try:
        fixed = (seq, slot, topic, key, ts, expires, size)
        good = _row_sum(fixed, head, group) == total and (left or len(content) == size)
        parts = _read_head(head) if good else None
        if parts is not None and parts.meta_at is not None and not left:
            payload, meta = content[: parts.meta_at], content[parts.meta_at :]
    except (struct.error, TypeError, msgspec.MsgspecError) as exc:
        raise Integrity("A stored row is damaged.", where="row", seq=seq) from exc
    if parts is None or not (left or _holds(parts, payload, meta)):
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
        group=None if group is None else group.decode(),
        meta=meta,
        origin=parts.origin,
    )


def _holds(parts: _Head, payload: bytes, meta: bytes | None) -> bool:
    good = blake3(payload).digest() == parts.payload_hash
    return good and (meta is None or blake3(meta).digest(SUM_BYTES) == parts.meta_sum)


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
    # When (Unix ms) it was delivered for the first time; 0 in what an earlier format stored.
    first_at: int = 0

    def left(self, wall: int) -> int:
        """Return the milliseconds that are left of a lease or delay."""
        left = max(0, self.until - wall)
        return min(left, self.span) if self.span else left

    def columns(self) -> tuple[Any, ...]:
        """Return the row as the table holds it."""
        history = _pack(self.history)
        fixed = (self.seq, self.kind, self.until, self.attempts, self.gen, self.span)
        return (*fixed, history, _state_sum(fixed, history, self.first_at), self.first_at)


def _state_sum(fixed: tuple[Any, ...], history: bytes, first_at: int) -> bytes:
    """Hash every column; a row without a first delivery is hashed as format 1 did it, which had no such column."""
    first = first_at.to_bytes(8, "big") if first_at else b""
    return blake3(_STATE.pack(*fixed) + history + first).digest(SUM_BYTES)


def read_state(columns: tuple[Any, ...]) -> MessageState:
    """Read and check a state row."""
    *fixed, history, total, first_at = columns
    try:
        if _state_sum(tuple(fixed), history, first_at) == total:
            seq, kind, until, attempts, gen, span = fixed
            return MessageState(seq, kind, until, attempts, gen, _read_history(history), span, first_at)
    except (struct.error, TypeError, AttributeError, OverflowError, msgspec.MsgspecError) as exc:
        raise Integrity("A stored state is damaged.", where="state", seq=columns[0]) from exc
    raise Integrity("A stored state is damaged.", where="state", seq=columns[0])


def remember_end(history: History, at: int, cause: str) -> History:
    """Add the end of an attempt; of many, the first and the last 16 are kept, and the error of the last alone."""
    history = tuple((then, plain_cause(past)) for then, past in history)
    if len(history) < 2 * HISTORY_KEPT:
        return (*history, (at, cause))
    return (*history[:HISTORY_KEPT], *history[HISTORY_KEPT + 1 :], (at, cause))


class TopicRow(NamedTuple):
    """A topic as the engine keeps it."""

    number: int
    name: str
    # By which rule its messages are given their slots; see `ids.slot_of`.
    form: int = SLOT_FORM
    # Part of the names of its claims on idem_keys: what was claimed under another one is forgotten.
    generation: int = 0

    @property
    def sum(self) -> bytes:
        """Hash the row; one that says nothing format 1 did not know is hashed as that did it."""
        named = self.number.to_bytes(8, "big") + self.name.encode()
        if self.form != OLD_SLOT_FORM or self.generation:
            named += b"\0" + self.form.to_bytes(1, "big") + self.generation.to_bytes(8, "big")
        return blake3(named).digest(SUM_BYTES)


def settings_sum(number: int, body: bytes) -> bytes:
    """Hash a row of the table of settings."""
    return blake3(b"settings" + number.to_bytes(8, "big") + body).digest(SUM_BYTES)


# A message as a read brings it.
Loaded = tuple[MessageRow, MessageState | None]


PURGED_GEN: Final = -1
ANY_GEN: Final = -2
"""In place of the generation of a settled lease: the message was purged; any receipt of the message may repeat the ack.
"""


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
