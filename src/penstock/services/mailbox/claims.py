"""Claims on idem_keys: a compact table in RAM that finds them, and the rules that bound them. Pure."""

from __future__ import annotations

from array import array
from collections import deque
from typing import Any, Final

import msgspec
from blake3 import blake3

from penstock.contracts import mailbox as m
from penstock.services.mailbox.ledger import Now
from penstock.services.mailbox.rows import IdemClaim

_MARK_MS: Final = 1000
_SLOTS_MIN: Final = 64
_pack: Final = msgspec.msgpack.Encoder(order="sorted").encode


def claim_name(topic: str, idem_key: str) -> bytes:
    """Name a claim: 16 bytes for (topic, idem_key)."""
    return blake3(f"{topic}\0{idem_key}".encode()).digest(16)


def content_sum(send: m.Send, payload_hash: bytes) -> bytes:
    """Hash what makes two sends the same message: all but the idem_key."""
    content = (send.topic, send.key, payload_hash, send.attrs, send.delay_ms, send.ttl_ms)
    return blake3(_pack(content)).digest(16)


class IdemClaimTable:
    """A hash table in flat arrays: a hash and a number, 16 bytes an entry, and a ring of hashes to remove by number."""

    __slots__ = ("_hashes", "_mask", "_numbers", "_ring")

    def __init__(self, entries_max: int) -> None:
        self._ring = array("Q", [0])
        self._resize(max(_SLOTS_MIN, 1 << (min(entries_max, 1024) * 2 - 1).bit_length()))

    def _resize(self, slots: int) -> None:
        self._mask = slots - 1
        self._hashes = array("Q", bytes(8 * slots))
        # 0 is an empty place; numbers are kept one higher.
        self._numbers = array("Q", bytes(8 * slots))

    def find(self, name: bytes) -> int | None:
        """Return the number of a claim, if it is here."""
        place = self._place(claim_hash(name))
        number = self._numbers[place]
        return number - 1 if number else None

    def _place(self, value: int) -> int:
        hashes, numbers, mask = self._hashes, self._numbers, self._mask
        place = value & mask
        while numbers[place] and hashes[place] != value:
            place = place + 1 & mask
        return place

    def put(self, name: bytes, number: int, live: int) -> None:
        """Add a claim; `live` is how many there are, so that the table grows in time."""
        self.put_hash(claim_hash(name), number, live)

    def put_hash(self, value: int, number: int, live: int) -> None:
        """Add a claim by the hash of its name."""
        if live * 2 > self._mask:
            self._grow()
        place = self._place(value)
        self._hashes[place], self._numbers[place] = value, number + 1
        if number >= len(self._ring) and len(self._ring) <= self._mask:
            self._ring.extend([0] * (self._mask + 1 - len(self._ring)))
        self._ring[number % len(self._ring)] = value

    def _grow(self) -> None:
        old = [(h, n) for h, n in zip(self._hashes, self._numbers, strict=True) if n]
        self._resize((self._mask + 1) * 2)
        self._ring = array("Q", bytes(8 * (self._mask + 1)))
        for value, number in old:
            place = self._place(value)
            self._hashes[place], self._numbers[place] = value, number
            self._ring[(number - 1) % len(self._ring)] = value

    def take_out(self, number: int) -> None:
        """Remove the claim with this number, and close the gap behind it."""
        value = self._ring[number % len(self._ring)]
        hashes, numbers, mask = self._hashes, self._numbers, self._mask
        place = self._place(value)
        if numbers[place] != number + 1:
            return
        gap = place
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
    """Which idem_keys are taken.

    A claim is committed with its message; sends that wait for that commit stand in `pending`.
    """

    def __init__(self, entries_max: int, window_ms: float) -> None:
        self.entries_max = entries_max
        self.window_ms = window_ms
        self.clear(0)

    def clear(self, next_number: int) -> None:
        """Forget everything: the engine was opened."""
        self._table = IdemClaimTable(self.entries_max)
        self.floor = self.next = next_number
        # (number, wall ms): every claim below the number is at least that old.
        self._marks: deque[tuple[int, int]] = deque()
        # Claims on their way to the disk, or being looked up, with the sends that wait for the outcome.
        self.pending: dict[bytes, list[Any]] = {}

    def restore(self, claims: array[int]) -> None:
        """Take over the claims of an earlier life, in order: number, hash of the name, and time of each."""
        if not claims:
            return
        self.floor = claims[0]
        for place in range(0, len(claims), 3):
            number, value, at = claims[place : place + 3]
            self.next = number + 1
            self._mark(at)
            self._table.put_hash(value, number, self.next - self.floor)

    @property
    def live(self) -> int:
        """Return how many are remembered."""
        return self.next - self.floor

    def full(self, now: Now) -> bool:
        """Tell whether there is no room for another claim, after forgetting those that are over."""
        if self.live >= self.entries_max:
            self.forget(now)
        return self.live >= self.entries_max

    def find(self, name: bytes) -> int | None:
        """Return the number of a claim that may be this one.

        Only a hash is in RAM: its row on the disk has to be read.
        """
        number = self._table.find(name)
        return number if number is not None and number >= self.floor else None

    def is_good(self, claim: IdemClaim | None, name: bytes, now: Now) -> bool:
        """Tell whether a claim that was looked up is this name's, and still in its window."""
        return claim is not None and claim.name == name and claim.at + self.window_ms > now.wall

    def lapse(self, name: bytes) -> None:
        """Forget a claim that turned out to be over or another one's."""
        number = self._table.find(name)
        if number is not None:
            self._table.take_out(number)

    def number(self, now: Now) -> int:
        """Hand out the number of the next claim."""
        number, self.next = self.next, self.next + 1
        self._mark(now.wall)
        return number

    def made(self, claim: IdemClaim) -> None:
        """Remember a claim whose commit is done."""
        self._table.put(claim.name, claim.n, self.live)

    def _mark(self, wall: int) -> None:
        if not self._marks or wall - self._marks[-1][1] >= _MARK_MS:
            self._marks.append((self.next, wall))

    def forget(self, now: Now, limit: int = 1000) -> None:
        """Forget claims that are older than the window, at most `limit` of them."""
        while limit and len(self._marks) > 1 and self._marks[1][1] + self.window_ms <= now.wall:
            end = min(self._marks[1][0], self.floor + limit)
            for number in range(self.floor, end):
                self._table.take_out(number)
            limit -= end - self.floor
            self.floor = end
            if end == self._marks[1][0]:
                self._marks.popleft()
