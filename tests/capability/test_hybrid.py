"""The hybrid: both halves hold or nothing does, and the mode decides what is accepted.

Without the library it fails closed.
"""

from __future__ import annotations

import pytest

from penstock.capability import hybrid
from penstock.capability.making import seal
from penstock.capability.token import BYTES_MAX, HYBRID, decode
from penstock.capability.trust import record_of
from penstock.capability.verifier import VerifierOptions
from penstock.kernel.errors import Malformed
from tests.capability.kit import Issuer, narrowed, rebuilt

BAD = "unauthenticated:bad_signature"
pytestmark = pytest.mark.skipif(not hybrid.available(), reason="this build has no ML-DSA-65")


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer(alg=HYBRID)


def test_both_halves_hold(issuer):
    token = issuer.token("op=send")

    assert issuer.verdict(token) == "ok"
    assert issuer.verdict(seal(narrowed(token, ("topic=orders/",)))) == "ok"
    assert 4096 < len(decode(token).data) + len(decode(token).signature) + 700 < BYTES_MAX[HYBRID]


@pytest.mark.parametrize("place", [0, 63, 64, 3372])
def test_either_half_broken_is_refused(issuer, place):
    whole = decode(issuer.token())
    signature = bytearray(whole.signature)
    signature[place] ^= 1

    assert issuer.verdict(rebuilt(whole, signature=bytes(signature))) == BAD


def test_one_half_alone_is_refused(issuer):
    whole = decode(issuer.token())

    for part in (whole.signature[:64], whole.signature[64:], whole.signature[:64] + bytes(3309)):
        assert issuer.verdict(rebuilt(whole, signature=part)) == BAD


def test_algorithm_comes_from_the_key_never_from_the_token(issuer):
    classical = Issuer()

    assert issuer.verdict(classical.token()) == BAD


@pytest.mark.parametrize(
    ("mode", "caveats", "verdict"),
    [
        ("off", (), "ok"),
        ("mirror", (), "ok"),
        ("require", (), "forbidden:caveat:pq.fallback"),
        ("require", ("pq.fallback=true",), "ok"),
        ("enforce", ("pq.fallback=true",), "forbidden:caveat:pq.fallback"),
    ],
)
def test_classical_token_under_each_mode(mode, caveats, verdict):
    assert Issuer(VerifierOptions(pq_mode=mode)).verdict(Issuer().token(*caveats)) == verdict


def test_a_holder_cannot_add_the_exemption_himself():
    issuer = Issuer(VerifierOptions(pq_mode="require"))

    assert issuer.verdict(narrowed(issuer.token(), ("pq.fallback=true",))) == "forbidden:caveat:pq.fallback"


def test_enforce_takes_the_whole_grant_and_refuses_classical_narrowing():
    issuer = Issuer(VerifierOptions(pq_mode="enforce"), alg=HYBRID)

    assert issuer.verdict(seal(issuer.token())) == "ok"
    assert issuer.verdict(narrowed(issuer.token(), ("op=send",))) == "forbidden:caveat:classical_attenuation"


def test_published_key_is_read_back_and_its_halves_are_not_published_alone(issuer):
    key = issuer.record().jwk()

    assert record_of(key) == issuer.record()
    assert (key.kty, key.x, key.crv) == ("AKP", "", "")
    with pytest.raises(Malformed):
        record_of(type(key)(key.kty, key.kid, key.alg, 0, 0, pub=key.pub[:-8]))
