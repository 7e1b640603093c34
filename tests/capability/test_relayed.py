"""What came through the gateway.

A token for either of the two, everything else as always, and nothing charged twice.
"""

from __future__ import annotations

from functools import partial

import pytest

from penstock.capability.relayed import judge_relayed, was_charged
from penstock.contracts.call import NOBODY, Call, Origin
from penstock.contracts.capability import Grant, RequestContext
from penstock.kernel.errors import Forbidden, RateLimited
from tests.capability.kit import Issuer

HERE = RequestContext(aud="svc-mailbox", op="send", topic="orders")


async def judge(issuer: Issuer, token: str, *, charged: bool = True) -> Grant:
    """Judge a call at the service behind."""
    verdict = judge_relayed(partial(issuer.verifier.verify, token, charged=charged), HERE)
    return verdict if isinstance(verdict, Grant) else await verdict


@pytest.mark.parametrize("aud", [("omnigate",), ("svc-mailbox",), ("omnigate", "svc-mailbox"), ("*",)])
async def test_a_token_for_the_gateway_or_for_the_service_will_do(aud: tuple[str, ...]) -> None:
    issuer = Issuer()

    assert (await judge(issuer, issuer.token(aud=aud))).aud == aud


async def test_a_token_for_somebody_else_will_not() -> None:
    issuer = Issuer()

    with pytest.raises(Forbidden) as refused:
        await judge(issuer, issuer.token(aud=("svc-storage",)))
    assert refused.value.facts["reason"] == "caveat:aud"


async def test_any_other_caveat_is_judged_as_at_the_services_own_door() -> None:
    issuer = Issuer()

    with pytest.raises(Forbidden) as refused:
        await judge(issuer, issuer.token("op=recv", aud=("omnigate",)))
    assert refused.value.facts["reason"] == "caveat:op"


async def test_a_budget_is_not_charged_again() -> None:
    issuer = Issuer()
    token = issuer.token("budget.reqs=1", aud=("omnigate",))

    for _ in range(3):
        await judge(issuer, token)
    await judge(issuer, token, charged=False)
    with pytest.raises(RateLimited):
        await judge(issuer, token, charged=False)


def test_only_an_origin_that_says_so_was_charged() -> None:
    assert not was_charged(NOBODY)
    assert not was_charged(Call(origin=Origin("GET", "/x", "127.0.0.1")))
    assert was_charged(Call(origin=Origin("GET", "/x", "127.0.0.1", charged=True)))
