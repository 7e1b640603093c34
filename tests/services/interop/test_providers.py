"""Every kind of sender: good requests pass, everything else is refused for its own reason, and claims name events."""

from __future__ import annotations

import pytest

from penstock.services.interop.providers.claims import Claim, idem_key
from penstock.services.interop.providers.kinds import KINDS
from tests.services.interop.deliveries import PRODUCT, broken
from tests.services.interop.delivery_claims import pairs
from tests.services.interop.delivery_kinds import cases
from tests.services.interop.senders import SENDERS

CASES = cases()
PAIRS = pairs()


@pytest.mark.parametrize("kind", KINDS)
def test_request_is_accepted_or_refused_for_its_own_reason(kind):
    assert [fault for case in CASES if case.kind == kind and (fault := broken(PRODUCT, case))] == []


@pytest.mark.parametrize("kind", KINDS)
def test_deliveries_of_one_event_have_one_claim_and_others_another(kind):
    assert [fault for pair in PAIRS if pair.kind == kind and (fault := broken(PRODUCT, pair))] == []


def test_every_kind_is_tested():
    assert set(SENDERS) == set(KINDS) == {case.kind for case in CASES} == {pair.kind for pair in PAIRS}


def test_rules_have_names_of_their_own():
    names = [str(rule) for rule in [*CASES, *PAIRS]]

    assert len(names) == len(set(names))


def test_same_claim_at_another_endpoint_or_of_another_kind_is_another_event():
    claim = Claim("id", b"1")
    keys = {
        idem_key("a", "github", claim), idem_key("b", "github", claim), idem_key("a", "gitea", claim),
        idem_key("a", "github", Claim("content", b"1")), idem_key("ag", "ithub", claim),
    }  # fmt: skip

    assert len(keys) == 5
    assert all(len(key) == 64 for key in keys)
