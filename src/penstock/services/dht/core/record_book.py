"""The provider records a node keeps for others: bounded, with quotas, idempotent per key and publisher. Pure.

A record replaces an earlier one of the same key and publisher when its `seq` is higher; the same record again changes
nothing. A withdrawal is a record without addresses: it stays for what is left of its ttl, so that it hides copies that
come late. Once the book is half full, one publisher may hold a sixteenth of it and one network an eighth: nobody fills
it alone. `refusal` is asked before a signature is verified, `store` after.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.services.dht.core.record import ProviderRecord

ANSWER_RECORDS_MAX: Final = 20
ANSWER_BYTES_MAX: Final = 64 << 10


class KeepVerdict(enum.Enum):
    """What became of a record."""

    STORED = "stored"
    REPEATED = "repeated"  # the same record is here already
    STALE = "stale"  # a newer one is here
    FULL = "full"
    KEY_FULL = "key_full"
    PUBLISHER_FULL = "publisher_full"
    SUBNET_FULL = "subnet_full"

    @property
    def accepted(self) -> bool:
        """Tell whether the keeper now holds this record."""
        return self in (KeepVerdict.STORED, KeepVerdict.REPEATED)


@dataclass(frozen=True, kw_only=True, slots=True)
class BookLimits:
    """How much a book holds."""

    records_max: int = 50_000
    bytes_max: int = 64 << 20
    a_key_max: int = 64
    publisher_share: float = 1 / 16
    subnet_share: float = 1 / 8


class RecordBook:
    """The records of one keeper; one writer."""

    def __init__(self, limits: BookLimits | None = None) -> None:
        self._limits = limits or BookLimits()
        self._by_key: dict[int, dict[int, ProviderRecord]] = {}
        self._subnet_of: dict[tuple[int, int], str] = {}
        self._publishers: dict[int, int] = {}
        self._subnets: dict[str, int] = {}
        # When to look at a record again; an entry whose record was replaced meanwhile is skipped.
        self._expiries: list[tuple[int, int, int]] = []
        self.count = 0
        self.size_bytes = 0

    def __len__(self) -> int:
        """Return how many records there are."""
        return self.count

    def refusal(self, record: ProviderRecord, subnet: str | None) -> KeepVerdict | None:
        """Say why a record would not be taken, before anything is spent on its signature; None when it would."""
        held = self._by_key.get(record.key, {})
        mine = held.get(record.publisher)
        if mine is not None:
            if record.seq == mine.seq:
                return KeepVerdict.REPEATED if record.raw == mine.raw else KeepVerdict.STALE
            if record.seq < mine.seq:
                return KeepVerdict.STALE
            return (
                None
                if self.size_bytes + len(record.raw) - len(mine.raw) <= self._limits.bytes_max
                else KeepVerdict.FULL
            )
        return self._no_room(record, subnet, len(held))

    def _no_room(self, record: ProviderRecord, subnet: str | None, held: int) -> KeepVerdict | None:
        limits = self._limits
        if self.count >= limits.records_max or self.size_bytes + len(record.raw) > limits.bytes_max:
            return KeepVerdict.FULL
        if held >= limits.a_key_max:
            return KeepVerdict.KEY_FULL
        if self.count * 2 < limits.records_max:
            return None
        if self._publishers.get(record.publisher, 0) >= limits.publisher_share * limits.records_max:
            return KeepVerdict.PUBLISHER_FULL
        if subnet is not None and self._subnets.get(subnet, 0) >= limits.subnet_share * limits.records_max:
            return KeepVerdict.SUBNET_FULL
        return None

    def store(self, record: ProviderRecord, subnet: str | None) -> KeepVerdict:
        """Take a verified record, unless something newer came meanwhile."""
        refused = self.refusal(record, subnet)
        if refused is not None:
            return refused
        self._remove(record.key, record.publisher)
        self._by_key.setdefault(record.key, {})[record.publisher] = record
        self._publishers[record.publisher] = self._publishers.get(record.publisher, 0) + 1
        if subnet is not None:
            self._subnet_of[record.key, record.publisher] = subnet
            self._subnets[subnet] = self._subnets.get(subnet, 0) + 1
        self.count += 1
        self.size_bytes += len(record.raw)
        heapq.heappush(self._expiries, (record.expires_ms, record.key, record.publisher))
        if len(self._expiries) > 2 * self._limits.records_max + 64:
            self._rebuild()
        return KeepVerdict.STORED

    def _rebuild(self) -> None:
        """Throw away the entries of replaced records: a publisher that replaces often must not grow the heap."""
        self._expiries = [(each.expires_ms, each.key, each.publisher) for each in self.records()]
        heapq.heapify(self._expiries)

    def expire(self, now_ms: int) -> list[ProviderRecord]:
        """Remove and return what has expired."""
        gone: list[ProviderRecord] = []
        while self._expiries and self._expiries[0][0] <= now_ms:
            _, key, publisher = heapq.heappop(self._expiries)
            record = self._by_key.get(key, {}).get(publisher)
            if record is not None and record.expires_ms <= now_ms:
                self._remove(key, publisher)
                gone.append(record)
        return gone

    def _remove(self, key: int, publisher: int) -> None:
        held = self._by_key.get(key)
        record = held.pop(publisher, None) if held is not None else None
        if held is None or record is None:
            return
        if not held:
            del self._by_key[key]
        self.count -= 1
        self.size_bytes -= len(record.raw)
        _lower(self._publishers, publisher)
        subnet = self._subnet_of.pop((key, publisher), None)
        if subnet is not None:
            _lower(self._subnets, subnet)

    def answer(self, key: int, now_ms: int) -> list[ProviderRecord]:
        """Return the newest records of a key, as many as one answer carries."""
        held = self._by_key.get(key)
        if not held:
            return []
        live = sorted(
            (each for each in held.values() if each.expires_ms > now_ms),
            key=lambda each: (-each.issued_ms, each.publisher),
        )
        answer: list[ProviderRecord] = []
        size = 0
        for record in live[:ANSWER_RECORDS_MAX]:
            size += len(record.raw)
            if size > ANSWER_BYTES_MAX:
                break
            answer.append(record)
        return answer

    def records(self) -> Iterator[ProviderRecord]:
        """Go through all records."""
        for held in self._by_key.values():
            yield from held.values()


def _lower(counts: dict[int, int] | dict[str, int], name: int | str) -> None:
    left = counts[name] - 1  # type: ignore[index]  # the name is of the dict's own kind
    if left:
        counts[name] = left  # type: ignore[index]  # as above
    else:
        del counts[name]  # type: ignore[arg-type]  # as above
