"""Budgets and rates.

The narrowest of a block counts, an account lives as long as its block, a full table costs little.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.capability.floors import Floors
from penstock.capability.metering import TOKEN_ACCOUNTS_MAX, CountedCaveat, Meter
from penstock.capability.verifier import VerifierOptions
from penstock.contracts.passport import Revocation
from penstock.kernel.errors import RateLimited
from tests.capability.kit import NOW, Issuer, narrowed


def spent(issuer: Issuer, token: str, most: int = 50) -> int:
    """Use a token until it is used up; return how often that went well."""
    return next((count for count in range(most) if issuer.verdict(token) != "ok"), most)


@pytest.mark.parametrize("order", [("budget.reqs=9", "budget.reqs=3"), ("budget.reqs=3", "budget.reqs=9")])
def test_of_two_budgets_in_one_block_the_narrower_counts_and_once(order):
    issuer = Issuer()

    assert spent(issuer, issuer.token(*order)) == 3
    assert spent(issuer, narrowed(issuer.token(), order)) == 3


@pytest.mark.parametrize("order", [("rate.rps=20", "rate.rps=2"), ("rate.rps=2", "rate.rps=20")])
def test_of_two_rates_in_one_block_the_narrower_counts(order):
    issuer = Issuer()
    token = issuer.token(*order)
    assert spent(issuer, token) == 2
    issuer.clock.advance(1)

    assert spent(issuer, token) == 2


def test_a_short_lived_child_does_not_shorten_the_account_of_its_parent():
    """Else a holder spends through a child of a second, lets the table fill, and spends again."""
    issuer = Issuer(VerifierOptions(accounts_max=2))
    parent = issuer.token("budget.reqs=2")
    child = narrowed(parent, (f"exp={NOW + 1}",))
    assert spent(issuer, child) == 2
    issuer.clock.advance(2)
    for number in range(3):  # the table fills, and what has ended is forgotten
        issuer.verdict(issuer.token("budget.reqs=1", exp=NOW + 900 + number))

    assert spent(issuer, parent) == 0


def counted(issuer: Issuer, number: int, exp: int = NOW + 900, **fields) -> CountedCaveat:
    """Return a budget of a token of its own."""
    return CountedCaveat("budget.reqs", 5, exp, issuer.root(**fields), (number.to_bytes(16, "big"),))


def refused_share(meter: Meter, each: CountedCaveat, wall: float = NOW, floors: Floors | None = None) -> str:
    """Charge one request; return which share was full, or nothing."""
    try:
        meter.charge([each], 0, wall=wall, now=0.0, floors=floors)
    except RateLimited as error:
        return str(error.facts["share"])
    return ""


def test_one_tokens_narrowings_never_take_more_than_its_share():
    """Narrowing costs nothing and needs no issuer: each narrowing with a budget would open an account of its own."""
    issuer, meter = Issuer(), Meter()
    root = issuer.root()
    for number in range(TOKEN_ACCOUNTS_MAX):
        assert not refused_share(meter, replace(counted(issuer, number), root=root))

    assert refused_share(meter, replace(counted(issuer, TOKEN_ACCOUNTS_MAX), root=root)) == "token"
    assert not refused_share(meter, counted(issuer, 10**6))


def test_a_tenant_that_fills_the_table_leaves_places_to_the_others():
    issuer, meter = Issuer(), Meter(capacity=64)
    taken = [refused_share(meter, counted(issuer, number, tenant="flood")) for number in range(64)]
    assert taken.count("") == 32
    assert set(taken) == {"", "tenant"}

    assert not any(refused_share(meter, counted(issuer, 100 + n, tenant="light")) for n in range(10))
    assert not any(refused_share(meter, counted(issuer, 200 + n, tenant=f"other-{n}")) for n in range(10))
    assert len(meter) == 52


def test_an_account_goes_the_moment_its_block_expires():
    issuer, meter = Issuer(), Meter(capacity=16)
    for number in range(8):
        assert not refused_share(meter, counted(issuer, number, NOW + 10 + number))
    assert refused_share(meter, counted(issuer, 99)) == "tenant"

    assert not refused_share(meter, counted(issuer, 99), wall=NOW + 10)
    assert len(meter) == 8
    meter.charge([], 0, wall=NOW + 900, now=0.0)
    assert len(meter) == 0


@pytest.mark.parametrize(("kind", "value"), [("tenant", "flood"), ("subject_ref", "mallory"), ("kid", "k1")])
def test_the_accounts_of_revoked_tokens_go_at_once(kind, value):
    issuer, meter = Issuer(), Meter(capacity=64)
    for number in range(32):
        assert not refused_share(meter, counted(issuer, number, tenant="flood", sub="mallory"))
    floors = Floors().with_entry(Revocation(1, kind, value, 1, 0))
    meter.charge([], 0, wall=NOW, now=0.0, floors=floors)

    assert len(meter) == 0
    assert not refused_share(meter, counted(issuer, 50, epoch=1, tenant="flood", sub="mallory"), floors=floors)


def test_a_revoked_block_takes_its_own_accounts_and_leaves_its_siblings():
    issuer, meter = Issuer(), Meter()
    root = issuer.root()
    for last in (b"a" * 16, b"b" * 16):
        meter.charge(
            [CountedCaveat("budget.reqs", 5, NOW + 9, root, (b"0" * 16, last))], 0, wall=NOW, now=0.0, floors=Floors()
        )
    floors = Floors().with_entry(Revocation(1, "rid", (b"a" * 16).hex(), 1, 0))
    meter.charge([], 0, wall=NOW, now=0.0, floors=floors)

    assert list(meter._accounts) == [(b"b" * 16, "budget.reqs")]


def test_a_large_table_is_judged_in_steps_and_to_its_end():
    issuer, meter = Issuer(), Meter()
    for number in range(2000):
        meter.charge([counted(issuer, number, tenant=f"t{number % 7}")], 0, wall=NOW, now=0.0, floors=Floors())
    floors = Floors().with_entry(Revocation(1, "kid", "k1", 1, 0))
    sizes = []
    while len(meter):
        meter.charge([], 0, wall=NOW, now=0.0, floors=floors)
        sizes.append(len(meter))

    assert sizes[0] >= 1700
    assert len(sizes) <= 8


def test_revoking_an_attacker_gives_everybody_his_places_back():
    """Black box: narrowed copies of one token fill its share; the revocation of its tenant empties it."""
    issuer = Issuer(VerifierOptions(accounts_max=16))
    token = issuer.token("budget.reqs=1000")
    for number in range(20):
        issuer.verdict(narrowed(token, (f"exp={NOW + 600 + number}", "budget.reqs=10")))
    assert issuer.verdict(issuer.token("budget.reqs=5")) == "rate_limited:budget_table"
    assert issuer.verdict(issuer.token("budget.reqs=5", tenant="other")) == "ok"
    issuer.revoke("tenant", "acme", 1)

    assert issuer.verdict(issuer.token("budget.reqs=5", epoch=1)) == "ok"
