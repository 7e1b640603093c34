"""The table and its buckets against an oracle: all contacts, sorted."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.kernel.errors import Malformed
from penstock.services.dht.core.bucket import FRESH_S, Bucket, Inserted
from penstock.services.dht.core.contact import Contact
from penstock.services.dht.core.ids import BUCKETS, ID_BITS, bucket_of, parse_key, to_text
from penstock.services.dht.core.table import RoutingTable
from tests.services.dht.making import contact

IDS = st.integers(0, (1 << ID_BITS) - 1)


def filled(own: int, known: list[Contact], k: int = 20) -> RoutingTable:
    """Fill a table as its writers would."""
    table = RoutingTable(own)
    buckets = [Bucket(k) for _ in range(BUCKETS)]
    for each in known:
        b = bucket_of(own, each.id)
        buckets[b].insert(each, 0.0)
        table.publish(b, buckets[b].view())
    return table


def near(own: int, bits: int, rng: Random) -> int:
    """Draw an id that shares its first `bits` bits with `own`."""
    return own ^ rng.getrandbits(ID_BITS - bits)


@given(IDS, IDS)
def test_a_bucket_is_the_number_of_shared_bits_and_the_last_holds_the_rest(own: int, other: int) -> None:
    shared = next((i for i in range(ID_BITS) if (own ^ other) >> (ID_BITS - 1 - i) & 1), ID_BITS)

    assert bucket_of(own, other) == min(shared, 63)


@given(st.integers(0, 1 << 32), st.integers(1, 40))
def test_closest_is_what_sorting_everybody_gives(seed: int, count: int) -> None:
    rng = Random(seed)
    own = rng.getrandbits(ID_BITS)
    known = [contact(near(own, rng.choice((0, 0, 1, 2, 3, 5, 8, 13, 40, 62, 63, 64, 70)), rng)) for _ in range(120)]
    table = filled(own, known)
    kept = list(table.contacts())
    target = rng.choice((rng.getrandbits(ID_BITS), near(own, rng.randrange(80), rng), own, rng.choice(kept).id))
    hidden = {each.id for each in rng.sample(kept, len(kept) // 3)}

    oracle = sorted((each for each in kept if each.id not in hidden), key=lambda each: each.id ^ target)[:count]
    assert table.closest(target, count, hidden) == oracle


class BucketMachine(RuleBasedStateMachine):
    """A bucket beside a plain list of who was verified when, with a live set that must never be dropped."""

    K = 4

    def __init__(self) -> None:
        super().__init__()
        self.bucket = Bucket(self.K)
        self.model: dict[int, float] = {}
        self.now = 0.0

    def tick(self) -> float:
        self.now += FRESH_S / 6
        return self.now

    @rule(node=st.integers(1, 9))
    def insert(self, node: int) -> None:
        known, full = node in self.model, len(self.model) >= self.K
        outcome, doubted = self.bucket.insert(contact(node), self.tick())
        if known or not full:
            self.model[node] = self.now
            assert outcome is (Inserted.REFRESHED if known else Inserted.ADDED)
        else:
            assert outcome is Inserted.CACHED
            oldest = min(self.model, key=self.model.__getitem__)
            fresh = self.now - self.model[oldest] < FRESH_S
            assert (None if fresh else oldest) == (doubted and doubted.id), "the least recently verified is doubted"

    @rule(node=st.integers(1, 9))
    def seen(self, node: int) -> None:
        assert self.bucket.seen(node, self.tick()) == (node in self.model)
        if node in self.model:
            self.model[node] = self.now

    @rule(node=st.integers(1, 9))
    def evict(self, node: int) -> None:
        was = node in self.model
        promoted = self.bucket.evict(node)
        if was:
            del self.model[node]
        if promoted is not None:
            assert was
            view = self.bucket.view()
            self.model[promoted.id] = view.verified_at[[each.id for each in view.contacts].index(promoted.id)]

    @invariant()
    def agrees(self) -> None:
        view = self.bucket.view()
        assert dict(zip((each.id for each in view.contacts), view.verified_at, strict=True)) == self.model
        assert list(view.verified_at) == sorted(view.verified_at), "least recently verified first"
        assert len(view.contacts) <= self.K
        assert view.spares <= self.K


TestBucketMachine = BucketMachine.TestCase


def test_a_full_bucket_keeps_its_live_contacts_and_replaces_a_dead_one() -> None:
    bucket = Bucket(2)
    for node in (1, 2):
        bucket.insert(contact(node), float(node))
    cached = bucket.insert(contact(3), 3.0)

    assert cached.outcome is Inserted.CACHED
    assert [each.id for each in bucket.view().contacts] == [1, 2]
    promoted = bucket.evict(1)
    assert promoted is not None
    assert promoted.id == 3
    assert 1 not in bucket


def test_a_node_that_proves_a_new_address_is_moved_not_doubled() -> None:
    bucket = Bucket(4)
    bucket.insert(contact(7, "127.0.0.1", 5302), 1.0)
    bucket.insert(contact(7, "127.0.0.1", 6302), 2.0)

    assert [each.port for each in bucket.view().contacts] == [6302]


@pytest.mark.parametrize("text", ["", "ab", "b3:" + "0" * 63, "g" * 64, "0" * 65, "B3:" + "0" * 64, "0" * 64 + "\n"])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        parse_key(text)


@given(IDS)
def test_a_key_is_read_in_both_its_forms(key: int) -> None:
    assert parse_key(to_text(key)) == parse_key("b3:" + to_text(key).upper()) == key


def test_an_empty_table_names_nobody() -> None:
    assert RoutingTable(5).closest(9, 20) == []
