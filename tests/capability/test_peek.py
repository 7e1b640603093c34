"""Looking a token up: no crypto, no word about an unknown one, and a known bad one is refused again."""

from __future__ import annotations

import pytest

from penstock.capability.judged_token import JudgedToken
from penstock.kernel.errors import Forbidden, RateLimited, Unauthenticated
from tests.capability.kit import NOW, SEND, Issuer


def test_an_unknown_token_has_a_digest_and_no_standing_and_costs_no_crypto() -> None:
    issuer = Issuer()
    token = issuer.token()
    digest = issuer.verifier.digest(token)
    standing = issuer.verifier.peek(digest)

    assert standing is None
    assert issuer.verifier.misses == 0
    assert token.encode() not in digest
    assert digest == issuer.verifier.digest(token) != issuer.verifier.digest(issuer.token())


def test_a_token_verified_before_is_known_until_it_expires_or_is_revoked() -> None:
    issuer = Issuer()
    token = issuer.token()
    issuer.verifier.open(token)
    known = issuer.verifier.peek(issuer.verifier.digest(token))
    issuer.revoke("tenant", "acme", 1)

    assert isinstance(known, JudgedToken)
    with pytest.raises(Unauthenticated):
        issuer.verifier.peek(issuer.verifier.digest(token))


def test_a_proof_that_has_lapsed_is_unknown_again() -> None:
    issuer = Issuer()
    token = issuer.token(exp=NOW + 10_000)
    issuer.verifier.open(token)
    issuer.clock.advance(61)

    assert issuer.verifier.peek(issuer.verifier.digest(token)) is None


def test_a_token_refused_before_is_refused_without_crypto() -> None:
    issuer, forger = Issuer(), Issuer(seed=bytes(32))
    forged = forger.token()
    with pytest.raises(Unauthenticated):
        issuer.verifier.open(forged)
    misses = issuer.verifier.misses

    with pytest.raises(Unauthenticated) as told:
        issuer.verifier.peek(issuer.verifier.digest(forged))
    assert told.value.facts["reason"] == "bad_signature"
    assert issuer.verifier.misses == misses


def test_allow_judges_every_caveat_and_charges_budgets_like_verify() -> None:
    issuer = Issuer()
    narrow, counted = issuer.token("op=recv"), issuer.token("budget.reqs=1")
    standings = [issuer.verifier.open(token) for token in (narrow, counted)]
    assert all(isinstance(standing, JudgedToken) for standing in standings)

    with pytest.raises(Forbidden):
        issuer.verifier.allow(standings[0], SEND)  # type: ignore[arg-type]
    assert issuer.verifier.allow(standings[1], SEND).tenant == "acme"  # type: ignore[arg-type]
    with pytest.raises(RateLimited):
        issuer.verifier.allow(standings[1], SEND)  # type: ignore[arg-type]
