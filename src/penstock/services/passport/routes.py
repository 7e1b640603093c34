"""HTTP to contract and back; no decisions."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final

import msgspec
from blake3 import blake3

from penstock.contracts import passport as p
from penstock.contracts.capability import Grant, RequestContext
from penstock.contracts.passport_bodies import VerifiedBatchOut, VerifiedOut, batch_out, verified_out
from penstock.kernel.errors import Malformed, NotReady
from penstock.net.bearer import bearer
from penstock.net.message import Request, Response
from penstock.net.server.route import Route
from penstock.services.passport.api import AUDIENCE, PassportApi
from penstock.services.passport.issuance import COVERED, IssueWork
from penstock.services.passport.revocation import Asked, AskedChange
from penstock.wire.conditions import has_it
from penstock.wire.plain_words import fault_facts, plain_fault

if TYPE_CHECKING:
    from penstock.services.passport.book import Book

_ISSUE_ERRORS: Final = (
    "malformed", "unauthenticated", "expired", "forbidden", "over_limit", "busy", "rate_limited", "not_ready",
    "timeout",
    "downstream_unavailable", "canceled", "internal",
)  # fmt: skip
_CHANGE_ERRORS: Final = (*_ISSUE_ERRORS, "conflict", "not_found")
_OPEN_ERRORS: Final = ("malformed", "over_limit", "busy", "unauthenticated")
# These go on while the service drains, with `/readyz/verify`.
VERIFYING: Final = frozenset(
    {"/v1/passport/verify", "/v1/passport/verify_batch", "/v1/keys", "/v1/passport/revocations", "/readyz/verify"}
)
encode_json: Final = msgspec.json.Encoder().encode


class PassportRoutes:
    """The routes of the service."""

    def __init__(self, api: PassportApi, book: Book) -> None:
        """Take the contract's implementation, and the book for what is read as it is."""
        self._api = api
        self._book = book

    def routes(self) -> list[Route]:
        """Describe the routes; OpenAPI and the router read the same description."""
        return [
            Route(
                method="POST",
                path="/v1/passport/issue",
                handler=self._issue,
                body=p.Issue,
                answer=p.Issued,
                op="issue",
                summary="Issue a token that the caller's capability covers.",
                errors=_ISSUE_ERRORS,
            ),
            Route(
                method="POST",
                path="/v1/passport/verify",
                handler=self._verify,
                body=p.Verify,
                answer=VerifiedOut,
                op="verify",
                summary="Judge a token; a bad one is an answer, not an error.",
                open=True,
                errors=_OPEN_ERRORS,
            ),
            Route(
                method="POST",
                path="/v1/passport/verify_batch",
                handler=self._verify_batch,
                body=p.VerifyBatch,
                answer=VerifiedBatchOut,
                op="verify",
                summary="Judge up to 512 tokens, each on its own.",
                open=True,
                errors=_OPEN_ERRORS,
            ),
            Route(
                method="POST",
                path="/v1/passport/revoke",
                handler=self._revoke,
                body=p.Revoke,
                answer=p.Revoked,
                op="revoke",
                summary="Revoke exactly one of epoch, kid, tenant, subject_ref, tid and rid.",
                errors=_CHANGE_ERRORS,
            ),
            Route(
                method="POST",
                path="/v1/passport/rotate",
                handler=self._rotate,
                answer=p.Rotated,
                op="revoke",
                summary="Sign with new keys; the old ones verify for their grace.",
                errors=_CHANGE_ERRORS,
            ),
            Route(
                method="POST",
                path="/v1/passport/attest",
                handler=self._attest,
                body=p.Attest,
                answer=p.Attested,
                op="admin",
                summary="Sign the head of a service's hash chain with the issuer's key.",
                errors=_CHANGE_ERRORS,
            ),
            *self._reading_routes(),
        ]

    def _reading_routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/v1/passport/issued",
                handler=self._issued,
                query=p.ListIssued,
                answer=p.IssuedList,
                op="admin",
                summary="What was issued, newest first, and whether it is still good.",
                errors=_ISSUE_ERRORS,
            ),
            Route(
                method="GET",
                path="/v1/keys",
                handler=self._keys,
                answer=p.KeySet,
                op="keys",
                summary="The public keys as a JWKS.",
                open=True,
            ),
            Route(
                method="GET",
                path="/v1/passport/revocations",
                handler=self._revocations,
                answer=p.Revocations,
                op="revocations",
                summary="What was revoked after `since`, numbered; a gap is answered with everything in force.",
                open=True,
                errors=("malformed",),
            ),
            Route(
                method="GET",
                path="/readyz/verify",
                handler=self._verify_ready,
                op="readyz",
                summary="Tell whether tokens can be verified.",
                open=True,
                errors=("not_ready",),
            ),
        ]

    # --- what needs a capability
    # ---------------------------------------------------------------------------------------

    def _issue(self, request: Request, asked: p.Issue) -> Any:  # noqa: ANN401
        work = IssueWork(asked, bearer(request), context_of(request, "issue"))
        judged = self._api.may(work.capability, work.context, COVERED)
        if not isinstance(judged, Grant):
            return self._issue_later(judged, request, work)
        return self._api.queue_issue(work, request.deadline, request.corr_id)

    async def _issue_later(self, judged: Awaitable[Grant], request: Request, work: IssueWork) -> p.Issued:
        await judged
        return await self._api.queue_issue(work, request.deadline, request.corr_id)

    def _revoke(self, request: Request, asked: p.Revoke) -> Any:  # noqa: ANN401
        return self._change(request, asked)

    def _rotate(self, request: Request) -> Any:  # noqa: ANN401 - a future, or a coroutine that leads to one
        return self._change(request, p.Rotate())

    def _attest(self, request: Request, asked: p.Attest) -> Any:  # noqa: ANN401
        return self._change(request, asked, op="admin")

    def _change(self, request: Request, change: Asked, op: str = "revoke") -> Any:  # noqa: ANN401
        judged = self._api.may(bearer(request), context_of(request, op))
        if not isinstance(judged, Grant):
            return self._change_later(judged, request, change)
        return self._api.queue_change(AskedChange(change, judged), request.deadline, request.corr_id)

    async def _change_later(self, judged: Awaitable[Grant], request: Request, change: Asked) -> object:
        asked = AskedChange(change, await judged)
        return await self._api.queue_change(asked, request.deadline, request.corr_id)

    async def _issued(self, request: Request) -> p.IssuedList:
        judged = self._api.may(bearer(request), context_of(request, "admin"))
        by = judged if isinstance(judged, Grant) else await judged
        try:
            asked = msgspec.convert(request.query_params(), p.ListIssued, strict=False)
        except msgspec.ValidationError as exc:
            said = str(exc)
            raise Malformed(plain_fault(said, p.ListIssued), reason="bad_query", **fault_facts(said)) from exc
        return await self._api.list_issued(asked, by)

    # --- what is open
    # --------------------------------------------------------------------------------------------------

    def _verify(self, _request: Request, asked: p.Verify) -> Any:  # noqa: ANN401
        verdict = self._api.judge(asked)
        return verified_out(verdict) if isinstance(verdict, p.Verified) else _out_later(verdict)

    async def _verify_batch(self, request: Request, asked: p.VerifyBatch) -> VerifiedBatchOut:
        await self._api.check_batch_allowed(len(asked.items), bearer(request))
        found = await self._api.verify_batch(asked)
        return batch_out(found)

    def _keys(self, request: Request) -> Response:
        body = encode_json(self._api.key_set())
        etag = b'"%b"' % blake3(body).hexdigest(16).encode("ascii")
        headers = [(b"ETag", etag), (b"Cache-Control", b"public, max-age=60")]
        if has_it(request.headers.get(b"if-none-match"), etag):
            return Response(304, content_type=b"", headers=headers)
        return Response(200, body, headers=headers)

    def _revocations(self, request: Request) -> p.Revocations:
        params = request.query_params()
        since = params.pop("since", "0")
        if params or not (since.isascii() and since.isdecimal() and len(since) <= 16):
            raise Malformed("Only `since` is taken, a whole number.", reason="bad_query")
        return self._book.state.revocations(int(since))

    def _verify_ready(self, _request: Request) -> dict[str, object]:
        if not self._book.trust.known:
            raise NotReady("No keys are known yet.", missing=["keys"])
        return {"ready": True, "gates": {"keys": True, "floors": True}}


async def _out_later(verdict: Awaitable[p.Verified]) -> VerifiedOut:
    return verified_out(await verdict)


def context_of(request: Request, op: str) -> RequestContext:
    """Say what the caveats are judged on: what the client sent to this listener."""
    peer = request.peer
    return RequestContext(
        aud=AUDIENCE, op=op, method=request.method, route="/" + "/".join(request.segments), ip=peer.host or None
    )
