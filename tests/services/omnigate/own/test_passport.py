"""svc-passport through the gateway: the same answers as at its own door, and the same toll for large batches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest

from penstock.contracts import passport as p
from penstock.contracts.call import NOBODY, Call
from penstock.contracts.passport_bodies import VerifiedOut
from penstock.kernel.clock import LoopClock
from penstock.kernel.inventory import Inventory
from penstock.net.server.route import Route
from penstock.services.omnigate.gate.rules import own_rules, proxy_rules
from penstock.services.omnigate.own.downstream import Downstream, DownstreamOptions
from penstock.services.omnigate.own.passport import OPEN_BATCH_MAX, GatewayPassportRoutes
from penstock.services.omnigate.proxy.config import ProxyRoute
from tests.net.server.listener_kit import post, serving
from tests.services.omnigate.gate.kit import GateSite, gated, json_answer

GOOD = "for-the-gateway"


class Issuer:
    """An issuer that knows one token, whose audience is the gateway alone."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def verify(self, request: p.Verify, call: Call = NOBODY) -> p.Verified:
        """Judge the token, and its audience where one is asked about."""
        self.told.append(call.capability)
        if request.token != GOOD:
            return p.Verified(ok=False, reason="malformed" if request.token else "missing")
        elsewhere = request.context.aud not in {None, "omnigate"}
        return p.Verified(ok=not elsewhere, reason="caveat:aud" if elsewhere else "")

    async def verify_batch(self, request: p.VerifyBatch, call: Call = NOBODY) -> p.VerifiedBatch:
        """Judge each."""
        return p.VerifiedBatch(tuple([await self.verify(item, call) for item in request.items]))


async def ask(path: str, body: object, token: str = "", issuer: Issuer | None = None) -> tuple[int, Any]:
    """Ask the routes in front of the issuer."""
    downstream = Downstream(Inventory("omnigate", LoopClock()), DownstreamOptions(service="svc-passport"))
    behind = cast("p.Passport", issuer or Issuer())
    async with serving(GatewayPassportRoutes(behind, downstream).routes()) as site:
        client = site.connect()
        client.send(post(path, msgspec.json.encode(body), *([f"Authorization: Bearer {token}"] if token else [])))
        answer = await client.answer()
    await downstream.close()
    return answer.status, answer.json()


@pytest.mark.parametrize("token", [GOOD, "bad"])
async def test_a_verdict_has_all_the_members_it_has_at_svc_passport(token: str) -> None:
    status, verdict = await ask("/v1/passport/verify", {"token": token})
    batch_status, batch = await ask("/v1/passport/verify_batch", {"items": [{"token": token}]})

    assert (status, batch_status) == (200, 200)
    assert list(verdict) == list(VerifiedOut.__struct_fields__)
    assert batch == {"results": [verdict]}


@pytest.mark.parametrize(
    ("items", "token", "status"),
    [
        (OPEN_BATCH_MAX, "", 200),
        (OPEN_BATCH_MAX + 1, "", 401),
        (OPEN_BATCH_MAX + 1, "bad", 401),
        (OPEN_BATCH_MAX + 1, GOOD, 200),
    ],
)
async def test_a_large_batch_needs_a_good_token_whomever_it_is_meant_for(items: int, token: str, status: int) -> None:
    got, _ = await ask("/v1/passport/verify_batch", {"items": [{"token": "x"}] * items}, token)

    assert got == status


async def test_the_callers_own_token_is_not_passed_on_to_the_issuer() -> None:
    issuer = Issuer()
    await ask("/v1/passport/verify", {"token": "x"}, GOOD, issuer)
    await ask("/v1/passport/verify_batch", {"items": [{"token": "x"}] * (OPEN_BATCH_MAX + 1)}, GOOD, issuer)

    assert set(issuer.told) == {""}


# --- whom the gate lets in


@asynccontextmanager
async def guarded() -> AsyncIterator[GateSite]:
    """Run the routes behind the gate, by the rules that the gateway makes for them."""
    downstream = Downstream(Inventory("omnigate", LoopClock()), DownstreamOptions(service="svc-passport"))
    made = GatewayPassportRoutes(cast("p.Passport", Issuer()), downstream).routes()
    async with gated(more=own_rules(made)) as site:
        yield site
    await downstream.close()


async def asked(site: GateSite, path: str, body: object, *fields: str) -> tuple[int, Any]:
    client = site.connect()
    client.send(post(path, msgspec.json.encode(body), *fields))
    answer = await client.answer()
    return answer.status, answer.json()


VERIFY = {"token": GOOD}
WORKERS = (
    ("svc-mailbox",),
    ("svc-mailbox", "svc-mailbox:op=recv,ack,nack", "svc-mailbox:topic=texts"),
    ("svc-storage", "op=get"),
    ("omnigate", "route=/shop", "method=GET", "svc=svc-storage"),
)


@pytest.mark.parametrize("said", WORKERS)
@pytest.mark.parametrize("known", [True, False])
async def test_a_token_that_is_good_for_something_else_may_ask_what_anybody_may_ask(
    said: tuple[str, ...], known: bool
) -> None:
    async with guarded() as site:
        token = site.issuer.token(*said[1:], aud=(said[0],))
        if known:
            site.issuer.verifier.open(token)
        field = f"Authorization: Bearer {token}"

        assert (await asked(site, "/v1/passport/verify", VERIFY, field))[1]["ok"] is True
        issue = {"subject_ref": "a", "audience": "omnigate"}
        assert (await asked(site, "/v1/passport/issue", issue, field))[0] == 403


async def test_the_class_the_tenant_and_the_budgets_of_such_a_token_count() -> None:
    async with guarded() as site:
        field = f"Authorization: Bearer {site.issuer.token('budget.reqs=2', aud=('svc-mailbox',))}"
        elsewhere = f"Authorization: Bearer {site.issuer.token('ip=192.0.2.0/24', aud=('svc-mailbox',))}"
        answers = [(await asked(site, "/v1/passport/verify", VERIFY, field))[0] for _ in range(3)]

        assert answers == [200, 200, 429]
        assert (await asked(site, "/v1/passport/verify", VERIFY, elsewhere))[0] == 403
        assert (await asked(site, "/v1/passport/verify", VERIFY, "Authorization: Bearer psp1_forged"))[0] == 401


def test_a_configured_route_takes_only_what_is_meant_for_the_gateway() -> None:
    """It may pass the caller's identity on, so a token for the mailbox is none there, open or not."""
    shop = Route(method="GET", path="/shop/{rest*}", handler=json_answer)
    [rule] = proxy_rules({shop: ProxyRoute(prefix=("shop",), upstreams=("http://127.0.0.1:1",))}).values()

    assert rule.open
    assert not rule.waived & {"aud", "svc", "route", "method", "ip"}
