"""svc-passport through the gateway: the same answers as at its own door, and the same toll for large batches."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from penstock.contracts import passport as p
from penstock.contracts.call import NOBODY, Call
from penstock.contracts.passport_bodies import VerifiedOut
from penstock.kernel.clock import LoopClock
from penstock.kernel.inventory import Inventory
from penstock.services.omnigate.own.downstream import Downstream, DownstreamOptions
from penstock.services.omnigate.own.passport import OPEN_BATCH_MAX, GatewayPassportRoutes
from tests.net.server.listener_kit import post, serving

GOOD = "for-the-gateway"


class Issuer:
    """An issuer that knows one token, whose audience is the gateway alone."""

    async def verify(self, request: p.Verify, _call: Call = NOBODY) -> p.Verified:
        """Judge the token, and its audience where one is asked about."""
        if request.token != GOOD:
            return p.Verified(ok=False, reason="malformed" if request.token else "missing")
        elsewhere = request.context.aud not in {None, "omnigate"}
        return p.Verified(ok=not elsewhere, reason="caveat:aud" if elsewhere else "")

    async def verify_batch(self, request: p.VerifyBatch, _call: Call = NOBODY) -> p.VerifiedBatch:
        """Judge each."""
        return p.VerifiedBatch(tuple([await self.verify(item) for item in request.items]))


async def ask(path: str, body: object, token: str = "") -> tuple[int, Any]:
    """Ask the routes in front of the issuer."""
    downstream = Downstream(Inventory("omnigate", LoopClock()), DownstreamOptions(service="svc-passport"))
    async with serving(GatewayPassportRoutes(cast("p.Passport", Issuer()), downstream).routes()) as site:
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
