"""Whom a node believes: its own svc-passport without a lease, else one follower for all its verifiers, else nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.capability.trust import FOREVER_S, Trust
from penstock.config import Settings, Sources, load
from penstock.kernel.clock import SYSTEM
from penstock.kernel.inventory import Inventory
from penstock.node.build import schema
from penstock.node.trust_source import GATE, NeedsPassport, TrustSource


def settings(*sets: str) -> Settings:
    return load(schema(), Sources(sets=sets))


def verified(belief: TrustSource, found: Settings, inventory: Inventory):
    return belief.verifier(found, SYSTEM, inventory.pool("crypto", threads=1, capacity=1))


def test_beside_its_issuer_nobody_is_followed() -> None:
    belief, inventory = TrustSource(), Inventory("svc-test")
    belief.adopt(Trust())
    verifier = verified(belief, settings(), inventory)

    assert belief.follower(settings(), inventory) is None
    assert verifier.trust.lease_until == FOREVER_S


def test_apart_from_its_issuer_the_first_service_that_verifies_follows_and_is_not_ready_yet(tmp_path: Path) -> None:
    belief, inventory = TrustSource(), Inventory("svc-test")
    found = settings(f"node.data_dir={tmp_path}")
    assert belief.follower(found, inventory) is None  # nobody verifies: nobody needs it
    verifier = verified(belief, found, inventory)
    child = belief.follower(found, inventory)

    assert child is not None
    assert child.name == "capability_follower"
    assert belief.follower(found, inventory) is None
    assert inventory.health.verdict().missing == (GATE,)
    assert verifier.trust.lease_until < SYSTEM.monotonic()


@pytest.mark.parametrize(
    "sets",
    [
        ("node.amnesia=true",),
        ("capability.issuer=http://",),
        ("capability.issuer=oap://",),
        ("capability.issuer=http://10.0.0.7:5307",),
        ("capability.issuer=http://passport.example:5307",),
        ("capability.issuer=oap://10.0.0.7:5317",),
        ("capability.issuer=http://[2001:db8::1]:5307",),
        ("capability.issuer=https://10.0.0.7:5307", "capability.issuer_certificate=/nowhere/cert.pem"),
    ],
)
def test_who_can_believe_nobody_is_told_so_before_it_starts(sets: tuple[str, ...]) -> None:
    belief, inventory = TrustSource(), Inventory("svc-test")
    verified(belief, settings(*sets), inventory)

    with pytest.raises(NeedsPassport, match=r"capability\.issuer"):
        belief.follower(settings(*sets), inventory)


def test_a_changed_post_quantum_mode_reaches_every_verifier_and_what_it_remembers() -> None:
    belief, inventory = TrustSource(), Inventory("svc-test")
    belief.adopt(Trust())
    verifiers = [verified(belief, settings(), each) for each in (inventory, Inventory("svc-other"))]
    before = belief.trust.version
    belief.apply(settings("passport.pq.mode=enforce"))

    assert {verifier.options.pq_mode for verifier in verifiers} == {"enforce"}
    assert belief.trust.version > before
    after = belief.trust.version
    belief.apply(settings("passport.pq.mode=enforce"))
    assert belief.trust.version == after


@pytest.mark.parametrize(
    "address",
    ["https://10.0.0.7:5307", "http://127.0.0.1:5307", "http://localhost:5307", "http://[::1]:5307", "oap:/s"],
)
async def test_an_issuer_that_proves_who_it_is_or_lies_on_this_machine_is_followed(address: str) -> None:
    belief, inventory = TrustSource(), Inventory("svc-test")
    found = settings(f"capability.issuer={address}")
    verified(belief, found, inventory)

    assert belief.follower(found, inventory) is not None
    await belief.close()
