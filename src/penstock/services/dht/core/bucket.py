"""One k-bucket: up to k proven contacts, the least recently verified first, and a cache of replacements. Pure.

A contact gets in only when the caller has proved it: it answered a query of ours at an address we dialled. A full
bucket never drops a contact that is alive. It remembers the newcomer in its replacement cache and names the contact
that was verified longest ago, unless that was within the last minute; the caller then pings it. If it answers, `seen`
moves it to the end and the newcomer stays in the cache; if not, `evict` removes it and the newest replacement takes its
place.

Every bucket has one writer. Readers get `view`, an immutable value that is replaced whole.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.services.dht.core.diversity import DiversityRules, Mix

if TYPE_CHECKING:
    from penstock.services.dht.core.contact import Contact

# Nobody is doubted who was verified within this: every newcomer to a full bucket would cost a ping.
FRESH_S: Final = 60.0


class Inserted(enum.Enum):
    """What became of a contact."""

    ADDED = "added"
    REFRESHED = "refreshed"  # it was there already
    CACHED = "cached"  # the bucket is full
    REFUSED = "refused"  # too many of its network are here already


class Insertion(NamedTuple):
    """The outcome of an insert, and whom to ping because of it."""

    outcome: Inserted
    doubted: Contact | None = None


@dataclass(frozen=True, slots=True)
class BucketView:
    """What readers see of a bucket: contacts and, in the same order, when each was last verified."""

    contacts: tuple[Contact, ...] = ()
    verified_at: tuple[float, ...] = ()
    spares: int = 0
    # The contacts by id, for whoever sorts them by distance.
    by_id: Mapping[int, Contact] = field(default_factory=dict)


class Bucket:
    """The state of one bucket."""

    __slots__ = ("_by_id", "_entries", "_k", "_mix", "_rules", "_spares")

    def __init__(self, k: int, rules: DiversityRules | None = None) -> None:
        self._k = k
        self._rules = rules or DiversityRules(group_max=max(1, int(0.4 * k)))
        self._mix = Mix(self._rules)
        # Contact and time of its last verification by id, in that time's order: a dict keeps the order of insertion.
        self._entries: dict[int, tuple[Contact, float]] = {}
        # What views show of who is here; remade when somebody comes or goes. Most changes only move a contact.
        self._by_id: dict[int, Contact] | None = None
        # The newest last, at most k.
        self._spares: dict[int, tuple[Contact, float]] = {}

    @classmethod
    def restore(cls, view: BucketView, k: int, rules: DiversityRules | None = None) -> Bucket:
        """Make a bucket that holds what a view shows; its replacements are not in the view and are lost."""
        bucket = cls(k, rules)
        for contact, at in zip(view.contacts, view.verified_at, strict=True):
            bucket._add(contact, at)
        return bucket

    def __len__(self) -> int:
        """Return how many contacts it holds."""
        return len(self._entries)

    def __contains__(self, node_id: object) -> bool:
        """Tell whether a node is in the bucket proper."""
        return node_id in self._entries

    def insert(self, contact: Contact, now: float) -> Insertion:
        """Take in a contact that was just proved at its address."""
        held = self._entries.get(contact.id)
        if held is not None:
            return self._refresh(held[0], contact, now)
        if contact.group is not None and not self._mix.allows(contact.group):
            return Insertion(Inserted.REFUSED)
        if len(self._entries) < self._k:
            self._add(contact, now)
            return Insertion(Inserted.ADDED)
        self._cache(contact, now)
        oldest, verified_at = next(iter(self._entries.values()))
        return Insertion(Inserted.CACHED, oldest if now - verified_at >= FRESH_S else None)

    def _refresh(self, held: Contact, contact: Contact, now: float) -> Insertion:
        """Move a known node to the end. A proved new address replaces the old if its network has room."""
        if held.address != contact.address:
            self._drop(held.id)
            if contact.group is not None and not self._mix.allows(contact.group):
                contact = held
        else:
            del self._entries[held.id]
            self._entries[held.id] = (held, now)
            return Insertion(Inserted.REFRESHED)
        self._add(contact, now)
        return Insertion(Inserted.REFRESHED)

    def seen(self, node_id: int, now: float) -> bool:
        """Note that a contact answered; False when it is not here."""
        held = self._entries.pop(node_id, None)
        if held is None:
            return False
        self._entries[node_id] = (held[0], now)
        return True

    def evict(self, node_id: int) -> Contact | None:
        """Remove a contact that does not answer; return the replacement that took its place."""
        self._spares.pop(node_id, None)
        if node_id not in self._entries:
            return None
        self._drop(node_id)
        return self._promote()

    def _promote(self) -> Contact | None:
        """Take the newest replacement whose network still has room."""
        for spare_id in reversed(self._spares):
            contact, at = self._spares[spare_id]
            if contact.group is None or self._mix.allows(contact.group):
                del self._spares[spare_id]
                self._add(contact, at)
                # It was verified before contacts that have answered since.
                self._entries = dict(sorted(self._entries.items(), key=lambda item: item[1][1]))
                return contact
        return None

    def _add(self, contact: Contact, now: float) -> None:
        self._spares.pop(contact.id, None)
        self._entries[contact.id] = (contact, now)
        self._by_id = None
        if contact.group is not None:
            self._mix.add(contact.group)

    def _drop(self, node_id: int) -> None:
        contact, _ = self._entries.pop(node_id)
        self._by_id = None
        if contact.group is not None:
            self._mix.remove(contact.group)

    def _cache(self, contact: Contact, now: float) -> None:
        self._spares.pop(contact.id, None)
        self._spares[contact.id] = (contact, now)
        if len(self._spares) > self._k:
            del self._spares[next(iter(self._spares))]

    def view(self) -> BucketView:
        """Return what readers may see now."""
        if not self._entries:
            return BucketView(spares=len(self._spares))
        contacts, verified_at = zip(*self._entries.values(), strict=True)
        if self._by_id is None:
            self._by_id = dict(zip(self._entries, contacts, strict=True))
        return BucketView(contacts, verified_at, len(self._spares), self._by_id)
