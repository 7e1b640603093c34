"""Opens links before a lookup needs them: to the nearest nodes, to each bucket's share, and into every region.

The contacts of a far bucket are often neighbours of each other, because one node named them all. A lookup whose target
is in another part of the bucket then finds no open link near it and has to dial. So for an eighth of a bucket with too
few links, where no contact is known either, the linked peer nearest to it is asked who lives there. Some of those it
names are dialled, drawn at random: if all nodes dialled the nearest one, that one would have to close most of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from penstock.services.dht.core.ids import BUCKETS, ID_BITS, bucket_of
from penstock.services.dht.core.link_spread import EIGHTHS, LinkRegion, region_of, target_in_region
from penstock.services.dht.core.readiness import EXPECTED_MIN
from penstock.services.dht.protocol.envelope import Opcode
from penstock.services.dht.protocol.messages import EMPTY, DhtAnswer, find_request

if TYPE_CHECKING:
    from penstock.services.dht.core.contact import Contact
    from penstock.services.dht.peers.kept_links import KeptLinks
    from penstock.services.dht.peers.link import Done, PeerReply
    from penstock.services.dht.state import DhtState

# So many links are opened ahead in one turn of the upkeep, and none twice within this.
OPENED_A_TURN: Final = 2
OPENED_AGAIN_S: Final = 300.0
TRIED_MAX: Final = 4096
# So many regions are looked into in one turn, and none twice within this.
LOOKED_INTO_A_TURN: Final = 2
LOOKED_INTO_AGAIN_S: Final = 60.0


class Asking(Protocol):
    """How a peer is asked, dialling it if need be."""

    def __call__(self, contact: Contact, opcode: Opcode, payload: bytes, done: Done, namer: int = 0) -> None:
        """Ask; `done` hears what came of it."""
        ...


class LinksAhead:
    """Owned by the pool, which calls it with every turn of its upkeep."""

    def __init__(self, state: DhtState, kept: KeptLinks, ask: Asking) -> None:
        self._state = state
        self._kept = kept
        self._ask = ask
        self._rng = random.Random()  # noqa: S311 - whom to connect to need not be secret
        # When a link was opened ahead, or closed by its peer; bounded, the oldest goes first.
        self._tried_at: dict[int, float] = {}
        self._looked_at: dict[LinkRegion, float] = {}  # when a region was looked into

    def open(self, now: float) -> None:
        """Open a few.

        A peer that has closed a link has no place for it. Who dialled it again at once would push another node
        out there, which would dial elsewhere, and so on without end: a network of full nodes would never come to rest.
        """
        if self._state.identity is None:
            return
        self._tried_at = {peer: at for peer, at in self._tried_at.items() if now - at < OPENED_AGAIN_S}
        if self.cover(now, LOOKED_INTO_A_TURN):
            return
        room = min(self._state.options.peer_conns - len(self._kept.by_peer), OPENED_A_TURN)
        if room > 0:
            for contact in islice(self._openable(self._missed()), room):
                self._open(contact, now)

    def closed_by_peer(self, peer: int) -> None:
        """Note that a peer closed its link, for want of room: it is not opened ahead for a while."""
        self._note(peer, self._state.monotonic())

    def _note(self, peer: int, now: float) -> None:
        self._tried_at.pop(peer, None)
        if len(self._tried_at) >= TRIED_MAX:
            del self._tried_at[next(iter(self._tried_at))]
        self._tried_at[peer] = now

    # --- the nearest, and each bucket's share -------------------------------------------------------------------

    def _openable(self, contacts: Iterable[Contact]) -> Iterator[Contact]:
        """Leave out who is linked, does not answer, or was dialled ahead lately."""
        for contact in contacts:
            peer = contact.id
            if peer not in self._kept.by_peer and peer not in self._state.book.failing and peer not in self._tried_at:
                yield contact

    def _open(self, contact: Contact, now: float, namer: int = 0) -> None:
        self._note(contact.id, now)
        self._ask(contact, Opcode.PING, EMPTY, _ignore, namer)

    def _missed(self) -> Iterator[Contact]:
        """Go through the contacts a link to whom would serve lookups, the most useful first.

        The nearest are left out where their bucket has its share: such a link would be the first to be closed again.
        """
        state, standing = self._state, self._kept.standing
        for contact in state.table.closest(state.own, state.options.k):
            if standing.has_room(bucket_of(state.own, contact.id)):
                yield contact
        for bucket, view in enumerate(state.table.views):
            missing = standing.missing(bucket) if view.contacts else 0
            if missing > 0:
                yield from islice(sorted(view.contacts, key=self._neighbours()), missing)

    def _neighbours(self) -> Callable[[Contact], tuple[bool, int]]:
        """Return the order of a bucket's contacts: those without a link, and of them those far from other links."""
        own, links, standing = self._state.own, self._kept.by_peer, self._kept.standing
        return lambda contact: (contact.id in links, standing.neighbours(region_of(own, contact.id)))

    # --- regions with too few links -------------------------------------------------------------------------------

    def cover(self, now: float, most: int = BUCKETS * EIGHTHS) -> bool:
        """Connect into regions where nodes live and this node has few links or none; False when there are none."""
        lacking = (each for each in self._lacking() if now - self._looked_at.get(each[0], -1e9) >= LOOKED_INTO_AGAIN_S)
        chosen = list(islice(lacking, most))
        for region, missing in chosen:
            self._looked_at[region] = now
            self._connect_into(region, missing, now)
        return bool(chosen)

    def _lacking(self) -> Iterator[tuple[LinkRegion, int]]:
        """Go through the regions that lack links, as far as two nodes may be expected in each."""
        nodes = self._state.size.nodes / EIGHTHS
        for bucket in range(BUCKETS):
            nodes /= 2
            if nodes < EXPECTED_MIN:
                return
            yield from self._kept.standing.lacking(bucket)

    def _connect_into(self, region: LinkRegion, missing: int, now: float) -> None:
        contacts = self._state.table.views[region.bucket].contacts
        known = list(islice(self._openable(each for each in contacts if self._lies_in(region, each)), missing))
        for contact in known:
            self._open(contact, now)
        missing -= len(known)
        target = target_in_region(self._state.own, region, self._rng.getrandbits(ID_BITS))
        guide = next((each for each in self._guides(target) if each.id not in self._state.book.failing), None)
        if missing and guide is not None:
            heard = partial(self._on_named, region, missing, guide.id)
            self._ask(guide, Opcode.FIND_NODE, find_request(target), heard)

    def _guides(self, target: int) -> Iterator[Contact]:
        """Go through the linked peers nearest to a target, as contacts."""
        for link in self._kept.nearest(target):
            if link.contact is not None or link.listen:
                yield link.contact or link.listen[0]

    def _on_named(self, region: LinkRegion, missing: int, guide: int, reply: PeerReply) -> None:
        """Dial some of those whom a guide names in the region."""
        if not isinstance(reply, DhtAnswer):
            return
        named = list(self._openable(each for each in reply.contacts if self._lies_in(region, each)))
        for contact in self._rng.sample(named, min(missing, len(named))):
            self._open(contact, self._state.monotonic(), guide)

    def _lies_in(self, region: LinkRegion, contact: Contact) -> bool:
        return region_of(self._state.own, contact.id) == region


def _ignore(_reply: PeerReply) -> None:
    """Nobody waits for this: the outcome has taught the peer book already."""
