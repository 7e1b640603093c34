"""The proven links of a node, one a peer, and which of them is given up when there are too many.

They are counted by region as they come and go, because a link that comes usually makes another one superfluous, and the
request it was opened for waits meanwhile: choosing looks at a few links of one region, not at all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from penstock.services.dht.core.link_spread import LinkRank, LinkRegion, LinkStanding

if TYPE_CHECKING:
    from penstock.services.dht.peers.link import PeerLink


class KeptLinks:
    """Owned by the pool; a link that is being closed is no longer here."""

    def __init__(self, places: int, k: int) -> None:
        self.by_peer: dict[int, PeerLink] = {}
        self.standing = LinkStanding((), places, k)
        self._by_region: dict[LinkRegion, dict[int, PeerLink]] = {}

    def put(self, link: PeerLink) -> None:
        """Keep a link, in place of another one to the same peer."""
        if link.peer not in self.by_peer:
            self.standing.add(link.region)
        self.by_peer[link.peer] = link
        self._by_region.setdefault(link.region, {})[link.peer] = link

    def drop(self, link: PeerLink) -> bool:
        """Forget a link; False when it is not here, or another one serves its peer."""
        if self.by_peer.get(link.peer) is not link:
            return False
        del self.by_peer[link.peer]
        self.standing.remove(link.region)
        here = self._by_region[link.region]
        del here[link.peer]
        if not here:
            del self._by_region[link.region]
        return True

    def superfluous(
        self, newest: PeerLink, failing: AbstractSet[int], rank: Callable[[PeerLink], LinkRank]
    ) -> PeerLink | None:
        """Return the link that lookups miss least: to a peer that does not answer, else where there are most.

        Never the newest, on which somebody is about to ask, nor one on which somebody waits for an answer.
        """
        for links in self._by_standing(failing):
            idle = [link for link in links if link is not newest and not link.pending]
            if idle:
                return max(idle, key=rank)
        return None

    def _by_standing(self, failing: AbstractSet[int]) -> Iterator[list[PeerLink]]:
        yield [self.by_peer[peer] for peer in self.by_peer.keys() & failing]
        for region in self.standing.most_crowded():
            yield list(self._by_region[region].values())

    def nearest(self, target: int) -> Iterator[PeerLink]:
        """Go through the links, those to the peers nearest to a target first."""
        for away in sorted([peer ^ target for peer in self.by_peer]):
            yield self.by_peer[away ^ target]
