"""The lookup against the truth: it finds what is there, asks nobody twice, stays inside its bounds and always ends."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.services.dht.core.contact import Contact
from penstock.services.dht.core.lookup import DIALS_APART_S, Goal, Lookup, LookupEnd, LookupRules, ProbeFailure
from penstock.services.dht.core.peer_book import Basis, PeerBook, SlowPoint
from tests.services.dht.making import contact, contacts
from tests.services.dht.small_network import RTT_S, Said, SmallNetwork, outcome_of

SEEDS = st.integers(0, 1 << 32)
few = settings(max_examples=12, deadline=None)


@few
@given(SEEDS, st.sampled_from((5, 40, 120)), st.sampled_from((0.0, 0.2, 0.4)))
def test_a_walk_ends_with_the_nearest_live_nodes(seed: int, count: int, dead: float) -> None:
    rng = Random(seed)
    network = SmallNetwork.of(rng, count)
    start, target = network.members[0].id, rng.getrandbits(256)
    network.dead = {each.id for each in rng.sample(network.members[1:], int(dead * (count - 1)))}

    lookup = network.look(start, target)

    found = [each.id for each in outcome_of(lookup).nearest]
    truth = network.nearest(target, 20, start)
    # A dead node takes places in the answers of the living, so the last few of the twenty may be missed.
    assert found[:8] == truth[:8]
    assert len(network.asked) == len(set(network.asked)), "nobody is asked twice"
    assert network.in_flight_peak <= 20


@few
@given(SEEDS, st.sampled_from((1, 3)))
def test_a_value_is_found_wherever_it_is_kept(seed: int, paths: int) -> None:
    rng = Random(seed)
    network = SmallNetwork.of(rng, 120)
    key, start = rng.getrandbits(256), network.members[0].id
    for keeper in network.nearest(key, 20, start):
        network.values[keeper] = [Said(publisher=9, seq=1)]
    network.dead = {each.id for each in rng.sample(network.members[1:], 40)}

    lookup = network.look(start, key, Goal.FIRST, paths=paths)

    assert [each.publisher for each in lookup.providers()] == [9]
    outcome = outcome_of(lookup)
    assert outcome.ending is LookupEnd.FOUND
    assert not outcome.complete
    assert 1 <= outcome.hops <= 5
    assert len(outcome.trail) == outcome.hops


@few
@given(SEEDS)
def test_a_key_nobody_provides_is_looked_for_to_the_end(seed: int) -> None:
    rng = Random(seed)
    network = SmallNetwork.of(rng, 60)
    key = rng.getrandbits(256)

    lookup = network.look(network.members[0].id, key, Goal.FIRST)

    assert lookup.providers() == []
    assert outcome_of(lookup).complete
    assert {each.id for each in outcome_of(lookup).nearest} == set(network.nearest(key, 20, network.members[0].id))


@few
@given(SEEDS, st.integers(0, 80))
def test_a_lookup_never_outlives_its_deadline(seed: int, silent: int) -> None:
    rng = Random(seed)
    network = SmallNetwork.of(rng, 81)
    network.dead = {each.id for each in network.members[1 : 1 + silent]}

    lookup = network.look(network.members[0].id, rng.getrandbits(256), deadline_s=0.5)

    assert network.now - lookup.began_at <= 0.5
    assert lookup.outcome is not None


def test_forty_percent_dead_cost_milliseconds_not_timeouts() -> None:
    rng = Random(4)
    network = SmallNetwork.of(rng, 200)
    network.dead = {each.id for each in rng.sample(network.members[1:], 80)}
    took = []
    for _ in range(50):
        key, start = rng.getrandbits(256), network.members[0].id
        network.values = {node: [Said(1, 1)] for node in network.nearest(key, 12, start)}
        lookup = network.look(start, key, Goal.FIRST, rules=LookupRules(alpha=5))
        assert lookup.providers()
        took.append(network.now - lookup.began_at)

    assert max(took) < 0.1, "a timeout of 1.5 s would show"


def test_the_highest_seq_of_a_publisher_counts_and_a_withdrawal_hides_the_rest() -> None:
    rng = Random(5)
    network = SmallNetwork.of(rng, 30)
    key, start = rng.getrandbits(256), network.members[0].id
    first, second, *others = network.nearest(key, 20, start)
    network.values = {first: [Said(7, 2, ())], second: [Said(7, 1)], others[-1]: [Said(8, 1)]}

    lookup = network.look(start, key, Goal.LIMIT)

    assert [each.publisher for each in lookup.providers()] == [8]
    assert outcome_of(lookup).complete


def test_a_limit_ends_the_lookup_when_it_is_reached() -> None:
    rng = Random(6)
    network = SmallNetwork.of(rng, 60)
    key, start = rng.getrandbits(256), network.members[0].id
    network.values = {node: [Said(node, 1)] for node in network.nearest(key, 20, start)}

    lookup = network.look(start, key, Goal.LIMIT, limit=5)

    assert 5 <= len(lookup.providers()) < 20
    assert outcome_of(lookup).ending is LookupEnd.FOUND


def test_a_busy_peer_is_asked_again_only_when_nobody_else_is_left_and_three_times_at_most() -> None:
    rng = Random(7)
    network = SmallNetwork.of(rng, 8)
    target = network.members[3].id
    network.busy = {target: 99}

    lookup = network.look(network.members[0].id, target)

    assert network.asked.count(target) == 3
    assert network.asked.index(target, network.asked.index(target) + 1) >= 7, "everybody else came first"
    assert lookup.retries == 2


def test_beyond_the_hop_budget_nobody_is_asked() -> None:
    chain = contacts(Random(8), 6)
    chain.sort(key=lambda each: -each.id)
    lookup = started([chain[0]], rules=LookupRules(hop_budget=2))
    for here, there in pairwise(chain):
        for probe in lookup.next_probes(0.0):
            assert probe.contact is here
            lookup.answered(here.id, 0.0, [there])

    assert lookup.next_probes(0.0) == []
    assert outcome_of(lookup).ending is LookupEnd.HOPS
    assert outcome_of(lookup).hops == 2


# --- slow probes -----------------------------------------------------------------------------------------------------


class Fixed:
    """Says the same slow point for everybody."""

    def __init__(self, after_s: float, basis: Basis = Basis.GUESS) -> None:
        self.point = SlowPoint(after_s, basis)
        self.open: set[int] = set()

    def slow_point(self, _peer: int) -> SlowPoint:
        return self.point

    # Connections do not matter, unless a test says so.
    near_enough = 1

    def connected(self, peer: int) -> bool:
        return peer in self.open


class Connected(Fixed):
    """Prefers whoever is connected among the eight nearest."""

    near_enough = 8


def started(known: list[Contact], rules: LookupRules | None = None, rtt: Fixed | None = None) -> Lookup:
    lookup = Lookup(0, Goal.NODES, rules or LookupRules(), rtt or Fixed(0.02), now=0.0, deadline_at=10.0)
    lookup.begin(known)
    return lookup


def test_alpha_probes_go_out_and_each_answer_starts_the_next() -> None:
    known = contacts(Random(1), 20)
    lookup = started(known)

    first = lookup.next_probes(0.0)
    assert len(first) == 3
    assert lookup.next_probes(0.0) == []
    lookup.answered(first[0].contact.id, 0.001, [])
    assert len(lookup.next_probes(0.001)) == 1


def test_an_open_connection_is_preferred_among_the_nearest_and_not_beyond() -> None:
    known = sorted(contacts(Random(1), 20), key=lambda each: each.id)
    rtt = Connected(0.02)
    rtt.open = {known[5].id, known[15].id}
    lookup = started(known, rtt=rtt)

    asked = [probe.contact for probe in lookup.next_probes(0.0)]
    assert asked == [known[5], known[0]]


def test_nobody_is_dialled_while_two_others_may_answer_and_a_hedge_is_dialled_at_once() -> None:
    known = sorted(contacts(Random(1), 20), key=lambda each: each.id)
    rtt = Connected(0.02)
    rtt.open = {known[1].id, known[2].id}
    lookup = started(known, rtt=rtt)

    assert [probe.contact for probe in lookup.next_probes(0.0)] == [known[1], known[2]]
    assert lookup.next_probes(0.0) == []
    lookup.answered(known[1].id, 0.001, [])
    assert [probe.contact for probe in lookup.next_probes(0.001)] == [known[0]]
    lookup.tick(0.02)
    assert [probe.hedge for probe in lookup.next_probes(0.02)][:2] == [True, True]


def test_with_nobody_connected_one_is_dialled_and_a_second_a_moment_later_and_no_third() -> None:
    lookup = started(contacts(Random(1), 20), rtt=Connected(0.02))
    assert len(lookup.next_probes(0.0)) == 1
    assert lookup.wake_at == DIALS_APART_S
    assert lookup.next_probes(0.9 * DIALS_APART_S) == []

    assert len(lookup.next_probes(DIALS_APART_S)) == 1
    assert lookup.wake_at == 0.02
    assert lookup.next_probes(0.01) == []


def test_after_a_dial_that_failed_the_next_does_not_wait() -> None:
    lookup = started(contacts(Random(1), 20), rtt=Connected(0.02))
    [first] = lookup.next_probes(0.0)
    lookup.failed(first.contact.id, 0.0001, ProbeFailure.USELESS, Random(1))

    assert len(lookup.next_probes(0.0001)) == 1


def test_a_dial_does_not_wait_for_another_lookups_or_for_probes_over_open_connections() -> None:
    known = sorted(contacts(Random(1), 20), key=lambda each: each.id)
    rtt = Connected(0.02)
    rtt.open = {known[5].id}
    lookup = started(known, rtt=rtt)

    assert [probe.contact for probe in lookup.next_probes(0.0)] == [known[5], known[0]]


def test_a_peer_slower_than_its_own_estimate_has_more_dialled() -> None:
    lookup = started(contacts(Random(1), 20), rtt=Connected(0.02, Basis.OWN))

    lookup.next_probes(0.0)
    lookup.tick(0.02)
    lookup.next_probes(0.02)
    assert len(lookup.in_flight) == 6, "the slow one, and five at once"


def found_near(known: list[Contact], radius: int) -> Lookup:
    """Begin a find whose target is 0, with alpha 5."""
    point = Fixed(0.02)
    point.point = SlowPoint(0.02, Basis.OWN, 0.004)
    rules = LookupRules(alpha=5, radius=radius)
    lookup = Lookup(0, Goal.FIRST, rules, point, now=0.0, deadline_at=10.0)
    lookup.begin(known)
    return lookup


def test_where_the_nearest_probably_keep_the_record_a_find_begins_with_three_probes() -> None:
    known = sorted(contacts(Random(1), 20), key=lambda each: each.id)

    assert len(found_near(known, known[0].id).next_probes(0.0)) == 3
    assert len(found_near(known, known[0].id - 1).next_probes(0.0)) == 5


def test_the_first_wave_ends_with_an_answer_without_the_record_or_when_one_is_due() -> None:
    known = sorted(contacts(Random(1), 20), key=lambda each: each.id)
    answered, late = found_near(known, known[0].id), found_near(known, known[0].id)
    first = answered.next_probes(0.0)
    late.next_probes(0.0)
    answered.answered(first[0].contact.id, 0.001, [])

    assert len(answered.next_probes(0.001)) == 3
    assert late.wake_at == 0.004
    assert late.next_probes(0.003) == []
    late.tick(0.004)
    assert len(late.next_probes(0.004)) == 2


def test_once_somebody_answered_a_nearer_node_is_dialled_though_farther_ones_are_out() -> None:
    known = sorted(contacts(Random(1), 20), key=lambda each: each.id)
    rtt = Connected(0.02)
    rtt.open = {each.id for each in known[10:13]}
    lookup = started(known[10:13], rtt=rtt)
    lookup.next_probes(0.0)
    lookup.answered(known[10].id, 0.001, known[:5])

    assert [probe.contact.id for probe in lookup.next_probes(0.001)] == [known[0].id]
    assert lookup.next_probes(0.001) == []


def test_callers_are_at_most_half_of_the_candidates_and_begin_no_trail_of_others() -> None:
    known = sorted(contacts(Random(1), 30), key=lambda each: each.id)
    lookup = Lookup(0, Goal.FIRST, LookupRules(alpha=20), Fixed(0.02), now=0.0, deadline_at=10.0)
    lookup.begin(known[20:], known[:20])
    asked = [probe.contact.id for probe in lookup.next_probes(0.0)]

    assert sum(peer in {each.id for each in known[:20]} for peer in asked) == 10
    lookup.answered(asked[0], 0.001, [], verifying=True)
    lookup.verified(asked[0], 0.001, [Said(1, 1)])
    assert outcome_of(lookup).trail == (asked[0],)


def test_a_slow_probe_frees_its_place_and_starts_beta_extras() -> None:
    lookup = started(contacts(Random(1), 20))
    first = lookup.next_probes(0.0)
    lookup.answered(first[0].contact.id, 0.001, [])
    lookup.answered(first[1].contact.id, 0.001, [])
    second = lookup.next_probes(0.01)

    lookup.tick(0.02)

    assert len(lookup.next_probes(0.02)) == 2
    assert lookup.hedges == 2
    lookup.answered(first[2].contact.id, 0.025, [contact(1)])
    for probe in second:
        lookup.answered(probe.contact.id, 0.025, [])
    assert lookup.next_probes(0.025)[0].contact == contact(1), "a late answer still counts"


@pytest.mark.parametrize(("basis", "in_flight"), [(Basis.GUESS, 9), (Basis.OWN, 13)])
def test_alpha_rises_only_when_a_peer_is_slower_than_its_own_estimate(basis: Basis, in_flight: int) -> None:
    lookup = started(contacts(Random(1), 20), rtt=Fixed(0.02, basis))
    lookup.next_probes(0.0)
    lookup.tick(0.02)
    lookup.next_probes(0.02)

    assert len(lookup.in_flight) == in_flight


def test_a_peer_known_to_be_far_away_keeps_its_place_and_allows_beta_extras_a_depth() -> None:
    lookup = started(contacts(Random(1), 20), rtt=Fixed(0.25, Basis.PATIENT))
    lookup.next_probes(0.0)
    lookup.tick(0.25)

    assert len(lookup.next_probes(0.25)) == 2, "two for the depth, not two for each of the three probes"


def test_at_most_k_probes_are_in_flight_however_slow_they_are() -> None:
    lookup = started(contacts(Random(1), 100))
    now = 0.0
    for _ in range(30):
        lookup.next_probes(now)
        now += 0.02
        lookup.tick(now)

    assert len(lookup.in_flight) == 20


def test_several_paths_share_one_bound_of_k_probes_in_flight() -> None:
    lookup = Lookup(0, Goal.FIRST, LookupRules(alpha=5), Fixed(0.02), now=0.0, deadline_at=10.0, paths=3)
    lookup.begin(contacts(Random(2), 120))
    now, peak = 0.0, 0
    for _ in range(40):
        lookup.next_probes(now)
        peak = max(peak, len(lookup.in_flight))
        now += 0.02
        lookup.tick(now)

    assert peak == 20


def test_an_older_record_that_comes_later_does_not_undo_a_withdrawal() -> None:
    lookup = Lookup(0, Goal.LIMIT, LookupRules(), Fixed(1.0), now=0.0, deadline_at=9.0)
    lookup.begin([contact(5), contact(6)])
    lookup.next_probes(0.0)
    for peer, said in ((5, Said(7, 2, ())), (6, Said(7, 1))):
        lookup.answered(peer, 0.0, [], verifying=True)
        lookup.verified(peer, 0.0, [said])

    assert lookup.providers() == []


def test_one_namer_holds_at_most_half_of_the_probes_in_flight() -> None:
    rng = Random(1)
    liar, honest = contact(1 << 200), contacts(rng, 20)
    lookup = started([liar, *honest], rules=LookupRules(alpha=1))
    (probe,) = lookup.next_probes(0.0)
    assert probe.contact is liar
    lookup.answered(liar.id, 0.001, [contact(number) for number in range(1, 21)])
    now = 0.001
    for _ in range(30):
        lookup.next_probes(now)
        now += 0.02
        lookup.tick(now)

    named = sum(peer <= 20 for peer in lookup.in_flight)
    assert named == 10
    assert len(lookup.in_flight) == 19, "honest nodes take the other half; the liar itself is one of the k"


def test_a_node_that_two_paths_reach_is_asked_once_and_serves_both() -> None:
    one, two, shared = contact(1 << 250), contact(1 << 251), contact(1)
    lookup = Lookup(0, Goal.FIRST, LookupRules(), Fixed(1.0), now=0.0, deadline_at=9.0, paths=2)
    lookup.begin([one, two])
    assert len(lookup.next_probes(0.0)) == 2
    for each in (one, two):
        lookup.answered(each.id, 0.0, [shared])
    probes = lookup.next_probes(0.0)

    assert [probe.contact for probe in probes] == [shared]
    lookup.answered(shared.id, 0.0, [], verifying=True)
    lookup.verified(shared.id, 0.0, [Said(5, 1)])
    assert outcome_of(lookup).ending is LookupEnd.FOUND, "its set counts for both paths"


def test_one_path_alone_does_not_convince_a_lookup_with_several() -> None:
    one, two = contact(1 << 250), contact(1 << 251)
    lookup = Lookup(0, Goal.FIRST, LookupRules(), Fixed(1.0), now=0.0, deadline_at=9.0, paths=2)
    lookup.begin([one, two])
    lookup.next_probes(0.0)
    lookup.answered(one.id, 0.0, [], verifying=True)
    lookup.verified(one.id, 0.0, [Said(5, 1)])

    assert lookup.outcome is None
    lookup.failed(two.id, 0.0, ProbeFailure.TIMEOUT, Random(1))
    lookup.next_probes(0.0)
    assert outcome_of(lookup).complete


def test_a_lookup_waits_for_records_that_are_being_verified() -> None:
    lookup = Lookup(0, Goal.FIRST, LookupRules(), Fixed(1.0), now=0.0, deadline_at=9.0)
    lookup.begin([contact(5)])
    lookup.next_probes(0.0)
    lookup.answered(5, 0.0, [], verifying=True)
    lookup.next_probes(0.0)

    assert lookup.outcome is None
    lookup.verified(5, 0.0, [])
    lookup.next_probes(0.0)
    assert outcome_of(lookup).ending is LookupEnd.EXHAUSTED


# --- the peer book ---------------------------------------------------------------------------------------------------


def test_the_slow_point_follows_the_peers_own_round_trips() -> None:
    book = PeerBook()
    assert book.slow_point(1)[:2] == (0.02, Basis.GUESS)
    book.answered(1, 0.010, 0.0)

    assert book.slow_point(1)[:2] == (0.010 + 4 * 0.005, Basis.OWN)
    for _ in range(200):
        book.answered(1, RTT_S, 0.0)
    assert book.slow_point(1).after_s == pytest.approx(0.005), "never below 5 ms"
    assert book.slow_point(1).after_s * 2 == pytest.approx(book.slow_point(1, connecting=True).after_s)


def test_strangers_are_judged_by_twice_the_95th_percentile_of_the_others() -> None:
    book = PeerBook()
    for number in range(100):
        book.answered(number, 0.010 if number < 90 else 0.040, 0.0)

    assert book.slow_point(1000)[:2] == (0.08, Basis.GUESS)


def test_no_slow_point_is_later_than_the_longest_wait() -> None:
    book = PeerBook()
    for _ in range(20):
        book.answered(1, 0.9, 0.0)

    assert book.slow_point(1)[:2] == (0.25, Basis.PATIENT)
    assert book.slow_point(2)[:2] == (0.25, Basis.GUESS)


def test_a_peer_that_failed_is_failing_until_it_answers_and_five_failures_open_its_breaker() -> None:
    book = PeerBook()
    for number in range(4):
        book.failed(1, float(number))
    assert book.failing == {1}
    assert book.may_ask(1, 4.0)
    book.failed(1, 4.0)

    assert not book.may_ask(1, 5.0)
    assert book.may_ask(1, 9.1), "half-open: one probe"
    assert not book.may_ask(1, 9.1)
    book.answered(1, 0.001, 9.2)
    assert book.failing == set()
    assert book.may_ask(1, 9.3)


def test_the_book_forgets_whom_it_heard_of_longest_ago() -> None:
    book = PeerBook(peers_max=3)
    for peer in (1, 2, 3):
        book.failed(peer, 0.0)
    book.answered(1, 0.01, 0.0)
    book.answered(4, 0.01, 0.0)

    assert len(book) == 3
    assert book.failing == {3}
