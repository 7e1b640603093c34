"""Budgets and rates: the narrowest of a block counts, an account lives as long as its block, a full table costs little."""

from __future__ import annotations

import pytest

from penstock.capability.metering import CountedCaveat, Meter
from penstock.capability.verifier import VerifierOptions
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


def test_a_full_table_of_living_accounts_is_not_searched_in_vain():
    meter = Meter(capacity=1000)
    for number in range(1000):
        meter.charge(
            [CountedCaveat(number.to_bytes(16, "big"), "budget.reqs", 5, NOW + 100 + number)], 0, wall=NOW, now=0.0
        )
    looked = 0

    class Watched(dict):
        def items(self):
            nonlocal looked
            looked += 1
            return super().items()

    meter._accounts = Watched(meter._accounts)
    fresh = CountedCaveat(b"x" * 16, "budget.reqs", 5, NOW + 900)
    for _ in range(100):
        with pytest.raises(RateLimited):
            meter.charge([fresh], 0, wall=NOW + 50, now=0.0)
    assert looked <= 1
    meter.charge([fresh], 0, wall=NOW + 100, now=0.0)

    assert len(meter) == 1000
