"""What a token may spend it spends once in a process, whichever of its services that is at."""

from __future__ import annotations

from penstock.capability.metering import Meter
from penstock.capability.trust import Trust
from penstock.config import Sources, load
from penstock.kernel.clock import SYSTEM
from penstock.kernel.inventory import Inventory
from penstock.node.build import schema
from penstock.node.trust_source import TrustSource

SETTINGS = load(schema(), Sources(sets=("capability.budgets=16",)))


def meters(belief: TrustSource) -> list[Meter]:
    names = ("svc-one", "svc-two")
    pools = [Inventory(name).pool("crypto", threads=1, capacity=1) for name in names]
    return [belief.verifier(SETTINGS, SYSTEM, pool).meter for pool in pools]


def test_services_that_follow_an_issuer_count_together_within_the_configured_number() -> None:
    one, two = meters(TrustSource())

    assert one is two
    assert one.capacity == 16


def test_services_beside_their_issuer_count_together_with_it() -> None:
    belief, theirs = TrustSource(), Meter(7)
    belief.adopt(Trust(), theirs)

    assert all(meter is theirs for meter in meters(belief))
