"""The connections a node keeps: spread over the key space, and given up where there are most."""

from __future__ import annotations

from penstock.services.dht.core.ids import ID_BITS
from penstock.services.dht.core.link_spread import LinkRank, LinkRegion, LinkStanding, link_shares, region_of

FAR = 1 << ID_BITS - 1


def rank(
    *, failing: bool = False, crowding: float = 1.0, neighbours: int = 1, stranger: bool = False, unused_s: float = 0.0
) -> LinkRank:
    return LinkRank(failing, crowding, neighbours, stranger, quiet=False, unused_s=unused_s)


def test_shares_use_every_place_and_the_far_half_has_most() -> None:
    shares = link_shares(73, range(8), 20)

    assert round(sum(shares.values()), 6) == 73
    assert sorted(shares.values(), reverse=True) == [shares[bucket] for bucket in range(8)]
    assert shares[0] > 20
    assert shares[7] > 4


def test_with_places_to_spare_each_bucket_has_room_for_its_contacts() -> None:
    shares = link_shares(2048, range(12), 20)

    assert min(shares.values()) >= 20


def test_a_peer_is_placed_in_its_bucket_and_in_an_eighth_of_it() -> None:
    assert region_of(0, FAR) == LinkRegion(0, 0)
    assert region_of(0, FAR | FAR >> 3) == LinkRegion(0, 1)
    assert region_of(0, FAR >> 1 | FAR >> 2) == LinkRegion(1, 4)


def test_a_bucket_with_more_than_its_share_is_crowded_and_an_empty_one_misses_some() -> None:
    standing = LinkStanding([LinkRegion(0, 0)] * 2 + [LinkRegion(1, number) for number in range(8)], 10, 20)

    assert standing.crowding(LinkRegion(1, 0)) > 1 > standing.crowding(LinkRegion(0, 0))
    assert standing.neighbours(LinkRegion(0, 0)) == 2
    assert standing.missing(0) >= 1
    assert standing.missing(1) == 0
    assert standing.missing(2) >= 1


def test_a_failing_peer_goes_first_then_the_most_crowded_then_neighbours_strangers_and_the_unused() -> None:
    order = [
        rank(failing=True),
        rank(crowding=2.0),
        rank(neighbours=2),
        rank(stranger=True),
        rank(unused_s=1.0),
        rank(),
    ]

    assert sorted(order, reverse=True) == order
