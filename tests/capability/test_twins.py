"""Wrong twins of the verifier: each leaves out one rule, and the check that guards the rule sees it."""

from __future__ import annotations

import pytest

from penstock.capability import token as token_module
from penstock.capability import verifier as verifier_module
from penstock.capability.floors import Floors
from penstock.capability.proving import UnprovenToken
from penstock.capability.token import BEARER, decode
from penstock.contracts.capability import RequestContext
from tests.capability.kit import Issuer, narrowed, rebuilt, seed


def truncated_is_taken() -> bool:
    issuer = Issuer()
    whole = decode(narrowed(issuer.token(), ("op=recv",)))
    return issuer.verdict(rebuilt(whole, blocks=())) == "ok"


def swapped_blocks_are_taken() -> bool:
    issuer = Issuer()
    token = issuer.token()
    for caveat in ("op=send", "topic=orders/"):
        whole = decode(token)
        token = narrowed(rebuilt(whole, proof=(BEARER, seed(100))) if not whole.blocks else token, (caveat,))
    whole = decode(token)
    return issuer.verdict(rebuilt(whole, blocks=(whole.blocks[1],), proof=(BEARER, seed(2)))) == "ok"


def revoked_stays_cached() -> bool:
    issuer = Issuer()
    token = issuer.token()
    issuer.verdict(token)
    issuer.revoke("tid", decode(token).root.tid.hex(), 1)
    return issuer.verdict(token) == "ok"


def holder_makes_himself_issuer() -> bool:
    issuer = Issuer()
    ask = RequestContext(aud="svc-mailbox", op="issue")
    return issuer.verdict(narrowed(issuer.token(), ("op=issue",)), ask) == "ok"


def padded_text_is_taken() -> bool:
    issuer = Issuer()
    return issuer.verdict(issuer.token() + "\n") == "ok"


class Forgetful(Floors):
    """Knows nothing of what was revoked."""

    def hits(self, root, rids) -> bool:
        return False


def lax_bytes(text: str) -> bytes:
    import base64

    body = text.strip().removeprefix("psp1_")
    return base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))


TWINS = {
    "no proof is asked for": (truncated_is_taken, UnprovenToken, "_proof_holds", lambda self: True),
    "blocks are not bound to their chain": (swapped_blocks_are_taken, UnprovenToken, "run", lambda self: True),
    "a hit is not judged again": (revoked_stays_cached, Floors, "hits", Forgetful.hits),
    "what a holder adds may grant": (holder_makes_himself_issuer, verifier_module, "NAMED_OPS", frozenset()),
    "text is read as the library reads it": (padded_text_is_taken, token_module, "_bytes_of", lax_bytes),
}


@pytest.mark.parametrize("name", TWINS)
def test_the_check_sees_its_twin_and_passes_the_real_one(name, monkeypatch):
    broken, where, attribute, wrong = TWINS[name]
    assert not broken()
    monkeypatch.setattr(where, attribute, wrong)

    assert broken()
