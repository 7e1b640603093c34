"""Claims on idem_keys: compact tables in RAM that find them, and the rules that bound them. Pure."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
from blake3 import blake3

from penstock.contracts import mailbox as m
from penstock.kernel.errors import OverLimit
from penstock.services.mailbox.ledger import Now
from penstock.services.mailbox.rows import IdemClaim
from penstock.services.mailbox.shares import ClaimShares

_MARK_MS: Final = 1000
_SLOTS_MIN: Final = 8
# A part of the table holds about so many entries when the whole is full.
_PART_ENTRIES: Final = 1024
# Hashes are kept by number in chunks of 1024.
_CHUNK_SHIFT: Final = 10
_IN_CHUNK: Final = (1 << _CHUNK_SHIFT) - 1
_NO_HASHES: Final = bytes(8 << _CHUNK_SHIFT)
CLASS_SHIFT: Final = 40
"""A claim's number on the disk is class << 40 | number. The class is its ledger's window in seconds; 0 is the usual."""

WINDOWS_MAX: Final = 16
_NUMBER: Final = (1 << CLASS_SHIFT) - 1
_pack: Final = msgspec.msgpack.Encoder(order="sorted").encode


def claim_name(topic: str, idem_key: str, generation: int = 0) -> bytes:
    """Name a claim: 16 bytes for (topic, idem_key) in one generation of the topic."""
    return claim_names(topic, (idem_key,), generation)[0]


def content_sum(send: m.Send, payload_hash: bytes) -> bytes:
    """Hash what makes two sends the same message: all but the idem_key."""
    content: tuple[object, ...] = (
        send.topic, send.key, payload_hash, send.attrs, send.delay_ms or 0, send.ttl_ms,
    )  # fmt: skip
    if send.group is not None or send.meta is not None:
        content = (*content, send.group, send.meta)
    return blake3(_pack(content)).digest(16)


def claim_names(topic: str, idem_keys: Iterable[str | None], generation: int = 0) -> list[bytes]:
    """Name the claims of messages of one topic that were sent together."""
    # No topic begins with the mark, so no two names have the same text.
    start = f"{topic}\0" if not generation else f"\1{topic}\0{generation}\0"
    return [blake3(f"{start}{idem_key}".encode()).digest(16) for idem_key in idem_keys]


class IdemClaimTable:
    """Finds claims by the hashes of their names: open hash tables in flat arrays, 16 bytes an entry.

    The upper bits of a hash name one of many small tables. Each grows by itself, so that no step moves more than about
    a thousand entries, however many there are. The hashes are also kept in chunks, to remove claims by their numbers.
    """

    __slots__ = ("_chunks", "_oldest", "_parts", "_shift")

    def __init__(self, entries_max: int) -> None:
        bits = ((entries_max - 1) // _PART_ENTRIES).bit_length()
        self._shift = 64 - bits
        self._parts = [_ClaimPart() for _ in range(1 << bits)]
        self._chunks: dict[int, array[int]] = {}
        # No chunk below this one is kept.
        self._oldest = 0

    def find(self, name: bytes) -> int | None:
        """Return the number of a claim, if it is here."""
        value = claim_hash(name)
        part = self._parts[value >> self._shift]
        number = part.numbers[part.place(value)]
        return number - 1 if number else None

    def holds_any(self, names: Iterable[bytes]) -> bool:
        """Tell whether the hash of any of these names is here."""
        parts, shift = self._parts, self._shift
        for value in map(claim_hash, names):
            part = parts[value >> shift]
            if part.numbers[part.place(value)]:
                return True
        return False

    def put(self, values: Sequence[int], first: int) -> None:
        """Add claims by the hashes of their names and the number of the first."""
        parts, shift, chunks = self._parts, self._shift, self._chunks
        if not chunks:
            self._oldest = first >> _CHUNK_SHIFT
        for number, value in enumerate(values, first):
            parts[value >> shift].put(value, number + 1)
            chunk = chunks.get(number >> _CHUNK_SHIFT)
            if chunk is None:
                chunk = chunks[number >> _CHUNK_SHIFT] = array("Q", _NO_HASHES)
            chunk[number & _IN_CHUNK] = value

    def take_out(self, number: int) -> None:
        """Remove the claim with this number."""
        chunk = self._chunks.get(number >> _CHUNK_SHIFT)
        if chunk is not None:
            value = chunk[number & _IN_CHUNK]
            self._parts[value >> self._shift].take_out(value, number + 1)

    def drop_below(self, number: int) -> None:
        """Give up the chunks that hold only numbers below this one: none of these is taken out any more."""
        while self._oldest < number >> _CHUNK_SHIFT:
            self._chunks.pop(self._oldest, None)
            self._oldest += 1


class _ClaimPart:
    """One small hash table. 0 is an empty place; numbers are kept one higher."""

    __slots__ = ("hashes", "mask", "numbers", "used")

    def __init__(self) -> None:
        self.used = 0
        self._resize(_SLOTS_MIN)

    def _resize(self, slots: int) -> None:
        self.mask = slots - 1
        self.hashes = array("Q", bytes(8 * slots))
        self.numbers = array("Q", bytes(8 * slots))

    def place(self, value: int) -> int:
        """Return where a hash is, or where it would be put."""
        hashes, numbers, mask = self.hashes, self.numbers, self.mask
        place = value & mask
        while numbers[place] and hashes[place] != value:
            place = place + 1 & mask
        return place

    def put(self, value: int, number: int) -> None:
        """Set the number of a hash."""
        if self.used * 2 > self.mask:
            self._grow()
        place = self.place(value)
        if not self.numbers[place]:
            self.used += 1
        self.hashes[place], self.numbers[place] = value, number

    def _grow(self) -> None:
        old = [(value, number) for value, number in zip(self.hashes, self.numbers, strict=True) if number]
        self._resize((self.mask + 1) * 2)
        for value, number in old:
            place = self.place(value)
            self.hashes[place], self.numbers[place] = value, number

    def take_out(self, value: int, number: int) -> None:
        """Remove a hash if it still has this number, and close the gap behind it."""
        hashes, numbers, mask = self.hashes, self.numbers, self.mask
        gap = place = self.place(value)
        if numbers[place] != number:
            return
        self.used -= 1
        while True:
            place = place + 1 & mask
            if not numbers[place]:
                break
            if (place - hashes[place]) & mask >= (place - gap) & mask:
                hashes[gap], numbers[gap] = hashes[place], numbers[place]
                gap = place
        numbers[gap] = 0


def claim_hash(name: bytes) -> int:
    """Return the part of a claim's name that the table finds it by."""
    return int.from_bytes(name[:8], "big")


class IdemClaims:
    """One ledger of idem_keys: which of them are taken.

    A claim is committed with its message; sends that wait for that commit stand in `pending`. Numbers ascend within a
    ledger, so what is over is found by a floor; on the disk they carry the ledger's class in their upper bits.
    """

    def __init__(self, entries_max: int, window_ms: float, window_class: int = 0) -> None:
        self.entries_max = entries_max
        self.window_ms = window_ms
        self._class = window_class << CLASS_SHIFT
        self.shares = ClaimShares()
        # Forgotten before their time, because there was no room; and when (wall ms) the last of them was.
        self.evicted = self.evicted_at = 0
        self.clear()

    def clear(self) -> None:
        """Forget everything: the engine was opened."""
        self._table = IdemClaimTable(self.entries_max)
        self.floor = self.next = 0
        # (number, wall ms): every claim below the number is at least that old.
        self._marks: deque[tuple[int, int]] = deque()
        # Claims on their way to the disk, or being looked up, with the sends that wait for the outcome.
        self.pending: dict[bytes, list[Any]] = {}

    def restore(self, number: int, value: int, at: int) -> None:
        """Take over a claim of an earlier life, in order: number on the disk, hash of the name, and time."""
        local = number & _NUMBER
        if not self.next:
            self.floor = local
        self.next = local + 1
        self._mark(at)
        self._table.put((value,), local)

    @property
    def live(self) -> int:
        """Return how many are remembered."""
        return self.next - self.floor

    @property
    def stored_floor(self) -> int:
        """Return the number on the disk below which the claims of this ledger are over."""
        return self._class | self.floor

    def full(self, now: Now) -> bool:
        """Tell whether there is no room for another claim, after forgetting those that are over."""
        if self.live >= self.entries_max:
            self.forget(now)
        return self.live >= self.entries_max

    def evict(self, now: Now) -> None:
        """Forget the oldest claim before its time, to make room."""
        self._table.take_out(self.floor)
        self.floor += 1
        self._table.drop_below(self.floor)
        self.evicted += 1
        self.evicted_at = now.wall

    def all_new(self, names: list[bytes]) -> bool:
        """Tell whether there is room for these claims, and none is taken, on its way to the disk, or named twice."""
        if self.live + len(names) > self.entries_max or len(set(names)) != len(names):
            return False
        return self.pending.keys().isdisjoint(names) and not self._table.holds_any(names)

    def find(self, name: bytes) -> int | None:
        """Return the number on the disk of a claim that may be this one.

        Only a hash is in RAM: its row on the disk has to be read.
        """
        number = self._table.find(name)
        return self._class | number if number is not None and number >= self.floor else None

    def is_good(self, claim: IdemClaim | None, name: bytes, now: Now) -> bool:
        """Tell whether a claim that was looked up is this name's, and still in its window."""
        return claim is not None and claim.name == name and claim.at + self.window_ms > now.wall

    def lapse(self, name: bytes) -> None:
        """Forget a claim that turned out to be over or another one's."""
        number = self._table.find(name)
        if number is not None:
            self._table.take_out(number)

    def number(self, now: Now, count: int = 1) -> int:
        """Hand out the numbers of the next claims; returns the first, as it is on the disk."""
        number, self.next = self.next, self.next + count
        self._mark(now.wall)
        return self._class | number

    def made(self, claims: Sequence[IdemClaim]) -> None:
        """Remember claims whose commit is done; their numbers follow each other."""
        self._table.put([claim_hash(claim.name) for claim in claims], claims[0].n & _NUMBER)

    def _mark(self, wall: int) -> None:
        if not self._marks or wall - self._marks[-1][1] >= _MARK_MS:
            self._marks.append((self.next, wall))

    def forget(self, now: Now, limit: int = 1000) -> None:
        """Forget claims that are older than the window, at most `limit` of them."""
        while limit and len(self._marks) > 1 and self._marks[1][1] + self.window_ms <= now.wall:
            end = max(self.floor, min(self._marks[1][0], self.floor + limit))
            for number in range(self.floor, end):
                self._table.take_out(number)
            limit -= end - self.floor
            self.floor = end
            self._table.drop_below(end)
            if end >= self._marks[1][0]:
                self._marks.popleft()


class DedupLedgers:
    """Every ledger of claims: the usual one, and one for each other window that a topic asked for.

    A claim that is kept for days would keep all younger ones of its ledger from being forgotten, so those with
    another window have a ledger of their own.
    """

    def __init__(self, entries_max: int, window_ms: float) -> None:
        self.usual = IdemClaims(entries_max, window_ms)
        self._by_window: dict[int, IdemClaims] = {}

    def __iter__(self) -> Iterator[IdemClaims]:
        """Name the ledgers, the usual one first."""
        return iter((self.usual, *self._by_window.values()))

    def of(self, settings: m.TopicSettings) -> IdemClaims:
        """Return the ledger of a topic with these settings."""
        dedup = settings.dedup
        return self.usual if dedup is None else self._ledger(dedup.window_s)

    def _ledger(self, window_s: int) -> IdemClaims:
        ledger = self._by_window.get(window_s)
        if ledger is None:
            ledger = self._by_window[window_s] = IdemClaims(self.usual.entries_max, window_s * 1000, window_s)
        return ledger

    def check(self, settings: m.TopicSettings) -> None:
        """Refuse a window for which there would be one ledger too many."""
        dedup = settings.dedup
        if dedup is not None and dedup.window_s not in self._by_window and len(self._by_window) >= WINDOWS_MAX:
            raise OverLimit(f"At most {WINDOWS_MAX} windows of idem_keys may be in use.", limit="dedup_windows")

    def bound(self, wanted: Iterable[m.TopicSettings]) -> None:
        """Let the largest wish of the topics that share a ledger bound it; ledgers that none uses go when empty."""
        entries: dict[int, int] = {}
        for dedup in (settings.dedup for settings in wanted):
            if dedup is not None:
                entries[dedup.window_s] = max(entries.get(dedup.window_s, 0), dedup.entries or self.usual.entries_max)
        for window_s, most in entries.items():
            self._ledger(window_s).entries_max = most
        unused = [
            w for w, ledger in self._by_window.items() if w not in entries and not (ledger.live or ledger.pending)
        ]
        for window_s in unused:
            del self._by_window[window_s]

    def clear(self) -> None:
        """Forget everything: the engine was opened."""
        for ledger in self:
            ledger.clear()

    def restore(self, claims: array[int]) -> None:
        """Take over the claims of an earlier life, in order: number on the disk, hash of the name, time of each."""
        for place in range(0, len(claims), 3):
            number, value, at = claims[place : place + 3]
            window_s = number >> CLASS_SHIFT
            ledger = self._ledger(window_s) if window_s else self.usual
            ledger.restore(number, value, at)

    def forget(self, now: Now) -> None:
        """Forget claims of every ledger that are older than its window."""
        for ledger in self:
            ledger.forget(now)

    @property
    def floors(self) -> list[int]:
        """Return, for each ledger, the number on the disk below which its claims are over."""
        return [ledger.stored_floor for ledger in self]

    @property
    def live(self) -> int:
        """Return how many claims are remembered."""
        return sum(ledger.live for ledger in self)

    @property
    def evicted(self) -> int:
        """Return how many claims were forgotten before their time."""
        return sum(ledger.evicted for ledger in self)

    @property
    def pending(self) -> bool:
        """Tell whether any send waits for the outcome of another."""
        return any(ledger.pending for ledger in self)

    def short_of_room(self, now: Now) -> list[str]:
        """Name the ledgers that forgot claims which would still be in their window."""
        return [
            f"idem_keys of {round(ledger.window_ms / 1000)} s"
            for ledger in self
            if ledger.evicted and ledger.evicted_at + ledger.window_ms > now.wall
        ]
