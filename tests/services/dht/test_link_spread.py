"""The connections a node keeps: spread over the key space, and given up where there are most."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from penstock.services.dht.core.ids import ID_BITS
from penstock.services.dht.core.link_spread import (
    LinkRank,
    LinkRegion,
    LinkStanding,
    link_shares,
    region_of,
    target_in_region,
)

FAR = 1 << ID_BITS - 1


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


def test_counting_as_they_come_and_go_is_the_same_as_counting_anew() -> None:
    rng = Random(1)
    regions = [region_of(0, rng.getrandbits(ID_BITS)) for _ in range(60)]
    counted = LinkStanding(regions, 40, 20)
    for region in regions[:30]:
        counted.remove(region)
    anew = LinkStanding(regions[30:], 40, 20)

    assert set(counted.most_crowded()) == set(anew.most_crowded()) == set(regions[30:])
    assert [counted.missing(bucket) for bucket in range(9)] == [anew.missing(bucket) for bucket in range(9)]
    assert [list(counted.lacking(bucket)) for bucket in range(9)] == [list(anew.lacking(bucket)) for bucket in range(9)]
    assert {each: counted.crowding(each) for each in regions[30:]} == {
        each: anew.crowding(each) for each in regions[30:]
    }


def test_every_eighth_lacks_connections_until_it_has_two_or_its_part_of_the_buckets_share() -> None:
    standing = LinkStanding([LinkRegion(0, 1), LinkRegion(0, 1), LinkRegion(1, 0)], 32, 20)
    share = link_shares(32, (0, 1), 20)
    assert 16 <= share[0] < 24
    assert 8 <= share[1] < 16

    assert list(standing.lacking(0)) == [(LinkRegion(0, eighth), 2) for eighth in (0, 2, 3, 4, 5, 6, 7)]
    assert list(standing.lacking(1)) == [(LinkRegion(1, eighth), 1) for eighth in range(1, 8)]
    assert next(LinkStanding([LinkRegion(0, 0)], 200, 20).lacking(0)) == (LinkRegion(0, 0), 1), "two at most"
    assert list(LinkStanding([LinkRegion(0, 0)], 7, 20).lacking(0)) == [], "too few places for one in each"


@given(st.integers(0, (1 << ID_BITS) - 1), st.integers(0, 62), st.integers(0, 7), st.integers(0, (1 << ID_BITS) - 1))
def test_a_target_drawn_in_a_region_lies_in_it(own: int, bucket: int, eighth: int, drawn: int) -> None:
    region = LinkRegion(bucket, eighth)

    assert region_of(own, target_in_region(own, region, drawn)) == region


def test_a_stranger_goes_before_a_contact_then_the_quiet_then_the_unused() -> None:
    order = [
        LinkRank(stranger=True, quiet=False, unused_s=0.0),
        LinkRank(stranger=False, quiet=True, unused_s=0.0),
        LinkRank(stranger=False, quiet=False, unused_s=1.0),
        LinkRank(stranger=False, quiet=False, unused_s=0.0),
    ]

    assert sorted(order, reverse=True) == order
