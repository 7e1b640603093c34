"""The passport contract over HTTP."""

from __future__ import annotations

from urllib.parse import urlencode

from penstock.contracts import passport as p
from penstock.contracts.call import NOBODY, Call
from penstock.sdk.calling import Caller, PreparedCall, post


class HttpPassport:
    """Implements `penstock.contracts.passport.Passport` by the routes of svc-passport."""

    def __init__(self, caller: Caller) -> None:
        """Call through this; it is not owned."""
        self._caller = caller

    async def issue(self, request: p.Issue, call: Call = NOBODY) -> p.Issued:
        """Issue a token. A repeat is harmless: a token whose answer was lost is held by nobody."""
        return await self._caller.json(post("/v1/passport/issue", request, call, idempotent=True), p.Issued)

    async def verify(self, request: p.Verify, call: Call = NOBODY) -> p.Verified:
        """Judge one token."""
        return await self._caller.json(post("/v1/passport/verify", request, call, idempotent=True), p.Verified)

    async def verify_batch(self, request: p.VerifyBatch, call: Call = NOBODY) -> p.VerifiedBatch:
        """Judge up to 512 tokens."""
        ask = post("/v1/passport/verify_batch", request, call, idempotent=True)
        return await self._caller.json(ask, p.VerifiedBatch)

    async def revoke(self, request: p.Revoke, call: Call = NOBODY) -> p.Revoked:
        """Revoke; answers after it took effect."""
        return await self._caller.json(post("/v1/passport/revoke", request, call, idempotent=True), p.Revoked)

    async def rotate(self, request: p.Rotate, call: Call = NOBODY) -> p.Rotated:
        """Change the signing key."""
        return await self._caller.json(PreparedCall(path="/v1/passport/rotate", call=call), p.Rotated)

    async def attest(self, request: p.Attest, call: Call = NOBODY) -> p.Attested:
        """Sign the head of a service's chain."""
        return await self._caller.json(post("/v1/passport/attest", request, call, idempotent=True), p.Attested)

    async def issued(self, request: p.ListIssued, call: Call = NOBODY) -> p.IssuedList:
        """List what was issued."""
        asked = {"limit": request.limit, **({"all": "true"} if request.all else {})}
        path = f"/v1/passport/issued?{urlencode({**asked, **({'cursor': request.cursor} if request.cursor else {})})}"
        return await self._caller.json(PreparedCall(method="GET", path=path, idempotent=True, call=call), p.IssuedList)

    async def keys(self, request: p.GetKeys, call: Call = NOBODY) -> p.KeySet:
        """List the public keys."""
        return await self._caller.json(
            PreparedCall(method="GET", path="/v1/keys", idempotent=True, call=call), p.KeySet
        )

    async def revocations(self, request: p.GetRevocations, call: Call = NOBODY) -> p.Revocations:
        """Read the feed."""
        path = f"/v1/passport/revocations?since={request.since}"
        return await self._caller.json(PreparedCall(method="GET", path=path, idempotent=True, call=call), p.Revocations)
