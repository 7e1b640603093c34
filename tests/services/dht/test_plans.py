"""Size estimate, republishing plan and readiness: pure plans against what they promise."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.services.dht.agents.own_records import KEEPERS_MAX, OwnRecord
from penstock.services.dht.core.ids import ID_BITS
from penstock.services.dht.core.readiness import LONELY_S, PeerSituation, judge
from penstock.services.dht.core.republish import DuePlan, due_ms, interval_ms, region_bits, region_of
from penstock.services.dht.core.size import SPACE, SizeEstimate
from tests.services.dht.making import ids

HOUR_MS = 3_600_000


@pytest.mark.parametrize("nodes", [100, 1000, 10_000])
def test_the_median_of_walks_estimates_the_network_within_a_fifth(nodes: int) -> None:
    rng = Random(nodes)
    everybody, size = ids(rng, nodes), SizeEstimate(20)
    for _ in range(32):
        target = rng.getrandbits(ID_BITS)
        size.walked(target, sorted(everybody, key=lambda node: node ^ target)[:20])

    assert 0.8 * nodes <= size.nodes <= 1.2 * nodes
    assert size.radius == pytest.approx(20 / size.nodes * SPACE, rel=1e-6)


def test_one_walk_that_errs_does_not_move_the_estimate() -> None:
    size = SizeEstimate(20)
    for share in (0.02, 0.02, 0.0002, 0.02, 0.02):
        size.walked(0, [int(share * SPACE)] * 20)

    assert size.nodes == pytest.approx(19 / 0.02 + 1, rel=1e-6)


def test_a_crowd_around_a_key_raises_the_alarm_and_not_the_estimate() -> None:
    rng, size = Random(1), SizeEstimate(20)
    everybody = ids(rng, 1000)
    for _ in range(16):
        target = rng.getrandbits(ID_BITS)
        size.walked(target, sorted(everybody, key=lambda node: node ^ target)[:20])
    before, key = size.nodes, rng.getrandbits(ID_BITS)

    assert size.walked(key, [key ^ number for number in range(1, 21)])
    assert size.suspicions == 1
    assert size.nodes == before


def test_fewer_than_k_nodes_are_simply_counted() -> None:
    size = SizeEstimate(20)
    size.walked(0, [1, 2, 3])

    assert size.nodes == 4


# --- republishing ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Own:
    """As much of an own record as the plan looks at."""

    key: int
    ttl_s: int = 86_400
    published_ms: int = 0


@given(st.integers(0, SPACE - 1), st.integers(60, 172_800), st.integers(1, 10**13), st.integers(0, 8), st.floats(0, 1))
def test_a_record_is_published_again_well_before_it_expires(
    key: int, ttl_s: int, at: int, bits: int, jitter: float
) -> None:
    due = due_ms(Own(key, ttl_s, at), bits, jitter)

    assert at < due <= at + 1.25 * interval_ms(ttl_s) + 1
    assert due < at + 0.6 * ttl_s * 1000


def planned(own: Iterable[Own], bits: int, now_ms: int) -> DuePlan:
    """Judge records one at a time."""
    plan = DuePlan(bits, now_ms, 0.0)
    for record in own:
        plan.look([record])
    return plan


@given(st.lists(st.integers(0, SPACE - 1), min_size=1, max_size=20, unique=True), st.integers(1, 20 * HOUR_MS))
def test_a_plan_says_when_the_first_record_is_due_that_is_not_due_yet(keys: list[int], now: int) -> None:
    own = [Own(key, published_ms=HOUR_MS) for key in keys]
    plan, dues = planned(own, 4, now), [due_ms(each, 4, 0.0) for each in own]

    assert sum(len(region.keys) for region in plan.regions()) == sum(due <= now for due in dues)
    assert plan.next_ms == min((due for due in dues if due > now), default=None)


def test_walks_are_bounded_by_regions_not_by_keys() -> None:
    rng = Random(3)
    own = {key: Own(key) for key in ids(rng, 5000)}
    bits = region_bits(200, 20)

    found = planned(own.values(), bits, HOUR_MS).regions()
    assert len(found) <= 2**bits <= 16
    assert sum(len(each.keys) for each in found) == 5000
    assert all(region_of(key, bits) == each.region for each in found for key in each.keys)


def test_the_longest_overdue_region_comes_first() -> None:
    late, later = Own(1, published_ms=1), Own(SPACE - 1, published_ms=20 * HOUR_MS)
    now = 100 * HOUR_MS

    found = planned([later, late], 1, now).regions()
    assert [each.keys for each in found] == [(late.key,), (later.key,)]


def test_regions_are_spread_over_the_interval() -> None:
    own = [Own(number << ID_BITS - 4, published_ms=HOUR_MS) for number in range(16)]
    dues = sorted(due_ms(each, 4, 0.3) for each in own)
    gaps = [later - earlier for earlier, later in pairwise(dues)]

    assert max(gaps) <= 2 * interval_ms(86_400) / 16


def test_whoever_kept_an_earlier_record_is_remembered_behind_the_new_keepers_up_to_a_bound() -> None:
    own = OwnRecord(1, ("a",), 3600, 1, 1, keepers=("x@h:1", "y@h:2"))
    again = own.published(5, ("z@h:3", "x@h:1"))

    assert again.keepers == ("z@h:3", "x@h:1", "y@h:2")
    assert len(again.published(6, tuple(f"{number}@h:1" for number in range(100))).keepers) == KEEPERS_MAX


# --- readiness
# ---------------------------------------------------------------------------------------------------------

JOINED = PeerSituation(
    seeds=3,
    seeds_answered=3,
    required=3,
    walks_equal=True,
    contacts=60,
    nodes=200.0,
    k=20,
    filled=tuple(index < 8 for index in range(64)),
    lonely_s=1.0,
)


def test_a_joined_node_is_ready() -> None:
    assert judge(JOINED).ready
    assert not judge(JOINED).alone


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"seeds_answered": 1}, "1 of 3 seeds"),
        ({"walks_equal": False}, "own id"),
        ({"filled": tuple(index < 2 for index in range(64))}, "buckets"),
        ({"lonely_s": LONELY_S}, "No peer has answered"),
    ],
)
def test_whatever_is_missing_is_named(change: dict[str, object], why: str) -> None:
    verdict = judge(replace(JOINED, **change))  # type: ignore[arg-type]  # one field each

    assert not verdict.ready
    assert why in verdict.reason


def test_one_configured_seed_is_enough_when_there_is_only_one() -> None:
    assert judge(replace(JOINED, seeds=1, seeds_answered=1, contacts=5)).ready


def test_a_node_without_seeds_is_ready_and_alone_until_somebody_comes() -> None:
    nobody = replace(JOINED, seeds=0, seeds_answered=0, contacts=0, lonely_s=float("inf"))

    assert judge(nobody) == replace(judge(nobody), ready=True, alone=True)
    assert not judge(replace(nobody, contacts=3, lonely_s=1.0)).alone
    assert judge(replace(nobody, contacts=3, lonely_s=61.0)).alone, "and alone again when they are gone"
