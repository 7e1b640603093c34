"""A refusal by a caveat says what was needed, what the token has, and what to do."""

from __future__ import annotations

import pytest

from penstock.capability.caveats import parse
from penstock.contracts.capability import RequestContext
from penstock.kernel.errors import Forbidden, Malformed
from tests.capability.kit import Issuer

HERE = RequestContext(aud="svc-mailbox", op="send", topic="orders")


@pytest.mark.parametrize(
    ("aud", "caveats", "context", "needed", "has"),
    [
        (("*",), ("op=recv,ack",), HERE, "op=send", "op=recv,ack"),
        (("*",), ("topic=images/",), HERE, "topic=orders", "topic=images/"),
        (("svc-storage",), (), HERE, "aud=svc-mailbox", "aud=svc-storage"),
        (("*",), (), RequestContext(aud="svc-mailbox", op="admin"), "op=admin", "every op but admin, issue, revoke"),
    ],
)
async def test_a_403_says_what_was_needed_and_what_the_token_has(aud, caveats, context, needed: str, has: str) -> None:
    issuer = Issuer()

    with pytest.raises(Forbidden) as refused:
        issuer.verifier.verify(issuer.token(*caveats, aud=aud), context)

    facts = refused.value.facts
    assert (facts["needed"], facts["has"]) == (needed, has)
    assert refused.value.detail == f"This needs {needed}; the token allows {has}."
    assert facts["hint"] == f"Ask its issuer for one with {needed}."


async def test_an_attribute_the_request_does_not_have_is_explained() -> None:
    issuer = Issuer()

    with pytest.raises(Forbidden, match="has no topic") as refused:
        issuer.verifier.verify(issuer.token("topic=images/", aud=("*",)), RequestContext(aud="svc-storage", op="get"))
    assert "svc-mailbox:topic=" in refused.value.facts["hint"]


@pytest.mark.parametrize(("text", "hint"), [("topc=a", "Did you mean topic?"), ("zzz=a", "There are aud, svc, route,")])
def test_an_unknown_caveat_names_what_is_near_or_what_there_is(text: str, hint: str) -> None:
    with pytest.raises(Malformed) as refused:
        parse(text)

    assert refused.value.facts["hint"].startswith(hint)
