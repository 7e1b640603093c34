"""Known answers: the bytes of tokens for fixed keys never change, and every wrong one is refused for its reason."""

from __future__ import annotations

import json

import pytest

from penstock.capability import ed25519
from penstock.capability.verifier import CapabilityVerifier
from penstock.contracts.capability import RequestContext
from penstock.kernel.errors import Malformed, PenstockError
from tests.capability.kit import Issuer
from tests.capability.vectors import FILE, build

VECTORS = json.loads(FILE.read_text(encoding="utf-8"))


def test_the_bytes_have_not_changed():
    assert build() == VECTORS


@pytest.mark.parametrize("vector", VECTORS["good"], ids=lambda vector: vector["name"])
def test_a_good_token_is_good(vector):
    issuer = Issuer()
    grant = issuer.verifier.verify(vector["token"], RequestContext(**VECTORS["request"]))

    assert list(grant.caveats) == vector["caveats"]
    assert [value[:32] for value in vector["chain"]] == list(grant.rids)


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=lambda vector: vector["name"])
def test_a_wrong_token_is_refused_for_its_reason(vector):
    issuer = Issuer()
    verifier = CapabilityVerifier(issuer.trust, issuer.clock)
    for good in VECTORS["good"]:
        verifier.verify(good["token"], RequestContext(**VECTORS["request"]))

    with pytest.raises(PenstockError) as caught:
        verifier.verify(vector["token"], RequestContext(**VECTORS["request"]))
    assert caught.value.facts["reason"] == vector["reason"]


@pytest.mark.parametrize("point", VECTORS["refused_public_keys"])
def test_a_weak_key_is_refused(point):
    with pytest.raises(Malformed):
        ed25519.read_public(bytes.fromhex(point))
