"""Floors: one counter, the maximum over all levels, and nothing that was revoked comes back."""

from __future__ import annotations

from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.capability import floors as floors_module
from penstock.capability.floors import Floors, merged, name_digest, within
from penstock.capability.token import IssuingLevel
from penstock.contracts.passport import Revocation
from tests.capability.kit import Issuer

KINDS = ["epoch", "kid", "tenant", "subject_ref", "tid", "rid"]
NAMES = {
    "epoch": [""],
    "kid": ["k1", "k2"],
    "tenant": ["acme", "b"],
    "subject_ref": ["alice", "bob"],
    "tid": ["t"],
    "rid": ["r"],
}


@st.composite
def entries(draw):
    kinds = draw(st.lists(st.sampled_from(KINDS), max_size=12))
    return [
        Revocation(seq, kind, draw(st.sampled_from(NAMES[kind])), draw(st.integers(0, 9)), seq)
        for seq, kind in enumerate(kinds, 1)
    ]


def root(**fields):
    return Issuer().root(**fields)


@given(entries())
def test_effective_floor_is_the_maximum_over_all_levels(drawn):
    floors = merged(Floors(), drawn, current=0, issuer=0)
    applies = {"epoch": [""], "kid": ["k1"], "tenant": ["acme"], "subject_ref": ["alice"]}
    expected = max([0, *(entry.floor for entry in drawn if entry.value in applies.get(entry.kind, []))])

    assert floors.floor_of(root()) == expected


@given(entries(), entries())
def test_floors_only_rise_and_what_fell_stays_fallen(first, more):
    before = merged(Floors(), first, current=0, issuer=0)
    after = merged(before, more, current=0, issuer=0)

    assert after.floor_of(root()) >= before.floor_of(root())
    assert (after.current, after.issuer, after.seq) >= (before.current, before.issuer, before.seq)
    assert after.current >= before.current
    for epoch in range(10):
        assert not before.hits(root(epoch=epoch), ()) or after.hits(root(epoch=epoch), ())


@given(entries(), st.randoms())
def test_order_of_arrival_does_not_matter(drawn, random):
    shuffled = list(drawn)
    random.shuffle(shuffled)
    one, other = merged(Floors(), drawn, current=0, issuer=0), merged(Floors(), shuffled, current=0, issuer=0)

    assert all(one.hits(root(epoch=epoch), ()) == other.hits(root(epoch=epoch), ()) for epoch in range(10))


@pytest.mark.parametrize(("epoch", "falls"), [(4, True), (5, False), (6, False)])
def test_a_token_falls_below_the_floor_and_stands_on_it(epoch, falls):
    floors = Floors().with_entry(Revocation(1, "tenant", "acme", 5, 0))

    assert floors.hits(root(epoch=epoch), ()) is falls


def test_a_tenant_and_a_subject_of_one_name_are_two_things():
    floors = Floors().with_entry(Revocation(1, "tenant", "alice", 5, 0))

    assert not floors.hits(root(tenant=None), ())
    assert floors.hits(root(tenant="alice"), ())


def test_an_id_a_token_was_issued_with_takes_it_along():
    issuer_tid, issuer_rid = b"t" * 16, b"r" * 16
    child = root(via=((issuer_tid, issuer_rid),))

    for kind, one in (("tid", issuer_tid), ("rid", issuer_rid)):
        assert Floors().with_entry(Revocation(1, kind, one.hex(), 1, 0)).hits(child, ())
    assert not Floors().with_entry(Revocation(1, "tid", (b"x" * 16).hex(), 1, 0)).hits(child, ())


LEVEL = IssuingLevel((b"t" * 16, b"r" * 16), "boss", "acme", "k7", 3)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("subject_ref", "boss"),
        ("subject_ref", name_digest("boss")),
        ("subject_ref", within(name_digest("boss"), name_digest("acme"))),
        ("tenant", name_digest("acme")),
        ("kid", "k7"),
        ("epoch", "4"),
        ("tid", (b"t" * 16).hex()),
        ("rid", (b"r" * 16).hex()),
    ],
)
@pytest.mark.parametrize("below", [0, 1, 3])
def test_revoking_an_issuer_by_any_of_its_names_takes_what_it_issued_however_deep(kind, value, below):
    others = tuple(IssuingLevel((bytes([n]) * 16,), f"s{n}", f"o{n}", "k1", 9) for n in range(below))
    child = root(epoch=9, tenant="other", via=(LEVEL, *others))
    entry = Revocation(1, kind, value, 4, 0)

    assert Floors().with_entry(entry).hits(child, ())
    stranger = root(epoch=9, tenant="other", via=(IssuingLevel((b"x" * 16,), "clerk", "b", "k1", 9), *others))
    assert not Floors().with_entry(entry).hits(stranger, ())


def test_what_an_issuer_issued_after_its_revocation_stands():
    child = root(epoch=9, via=(IssuingLevel((b"y" * 16,), "boss", "acme", "k8", 4),))

    assert not Floors().with_entry(Revocation(1, "subject_ref", name_digest("boss"), 4, 0)).hits(child, ())


@pytest.mark.parametrize("kind", ["subject_ref", "tid", "rid"])
def test_a_revocation_within_a_tenant_leaves_every_other_tenant_alone(kind):
    value = {"subject_ref": name_digest("alice"), "tid": (b"t" * 16).hex(), "rid": (b"r" * 16).hex()}[kind]
    floors = Floors().with_entry(Revocation(1, kind, within(value, name_digest("acme")), 1, 0))

    assert floors.hits(root(tenant="acme", tid=b"t" * 16), (b"r" * 16,))
    assert not floors.hits(root(tenant="other", tid=b"t" * 16), (b"r" * 16,))


def test_a_long_feed_is_merged_in_one_step_not_in_one_for_each_entry(monkeypatch):
    """Counted in states made, not in seconds.

    A copy for each of ten thousand revocations stopped the loop for seconds.
    """
    entries = [Revocation(n, "tid", f"{n:032x}", n, 0) for n in range(1, 10_001)]
    made = []
    monkeypatch.setattr(floors_module, "MappingProxyType", lambda state: made.append(1) or MappingProxyType(state))
    found = merged(Floors(), entries, current=10_000, issuer=0)

    assert (len(found.in_force), found.seq) == (10_000, 10_000)
    assert len(made) <= 2
