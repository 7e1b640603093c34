"""svc-passport through the gateway: the same paths, bodies and answers as at its own port."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.contracts import passport as p
from penstock.contracts.call import Call
from penstock.contracts.passport_bodies import VerifiedBatchOut, VerifiedOut, batch_out, verified_out
from penstock.kernel.errors import Unauthenticated
from penstock.net.bearer import bearer
from penstock.net.server.route import Route
from penstock.services.omnigate.own.calling import call_of, convert, present

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from penstock.net.message import Request
    from penstock.services.omnigate.own.calling import DownstreamCalls

# Above this many a batch needs a good capability: each item may cost a signature.
OPEN_BATCH_MAX: Final = 16
_OPEN_ERRORS: Final = ("malformed", "busy", "rate_limited", "timeout", "not_ready", "downstream_unavailable")
_ERRORS: Final = (*_OPEN_ERRORS, "unauthenticated", "expired", "forbidden", "policy_blocked")


# Path, body, answer, op, open to anyone, safe to repeat, what it does.
_ROWS: Final[tuple[tuple[str, type | None, type, str, bool, bool, str], ...]] = (
    ("issue", p.Issue, p.Issued, "issue", False, False, "Issue a token that the caller's capability covers."),
    ("verify", p.Verify, VerifiedOut, "", True, True, "Judge a token; a bad one is an answer, not an error."),
    ("verify_batch", p.VerifyBatch, VerifiedBatchOut, "", True, True, "Judge up to 512 tokens, each on its own."),
    ("revoke", p.Revoke, p.Revoked, "revoke", False, True, "Revoke exactly one of six kinds of target."),
    ("rotate", None, p.Rotated, "revoke", False, False, "Sign with new keys; the old ones verify for their grace."),
)


class GatewayPassportRoutes:
    """`/v1/passport/*` and the public keys."""

    def __init__(self, passport: p.Passport | None, downstream: DownstreamCalls) -> None:
        """Take the contract; without one, every route answers that it is not set up."""
        self._passport = passport
        self._downstream = downstream

    def routes(self) -> list[Route]:
        """Describe the routes."""
        return [
            *(
                Route(
                    method="POST",
                    path=f"/v1/passport/{name}",
                    handler=self._open_caller(name) if is_open else self._caller(name, repeatable=repeatable),
                    body=body,
                    answer=answer,
                    op=op,
                    open=is_open,
                    summary=text,
                    errors=_OPEN_ERRORS if is_open else _ERRORS,
                )
                for name, body, answer, op, is_open, repeatable, text in _ROWS
            ),
            Route(
                method="GET",
                path="/v1/passport/revocations",
                handler=self._revocations,
                answer=p.Revocations,
                open=True,
                summary="What was revoked after `since`, numbered.",
                errors=_OPEN_ERRORS,
            ),
            Route(
                method="GET",
                path="/v1/passport/issued",
                handler=self._issued,
                query=p.ListIssued,
                answer=p.IssuedList,
                op="admin",
                summary="What was issued, newest first, and whether it is still good.",
                errors=_ERRORS,
            ),
            Route(
                method="GET",
                path="/v1/passport/keys",
                handler=self._keys,
                answer=p.KeySet,
                open=True,
                summary="The public keys as a JWKS.",
                errors=_OPEN_ERRORS,
            ),
        ]

    def _caller(self, name: str, *, repeatable: bool) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def handle(request: Request, body: Any = None) -> Any:  # noqa: ANN401 - the route says which
            passport, call = present(self._passport, "svc-passport"), call_of(request)
            value, method = p.Rotate() if body is None else body, getattr(passport, name)
            return await self._downstream.call(name, lambda: method(value, call), idempotent=repeatable)

        return handle

    def _open_caller(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        """Ask what anybody may ask. The caller's own token stays here: the answer does not depend on it."""

        async def handle(request: Request, body: Any) -> Any:  # noqa: ANN401 - the route says which
            passport = present(self._passport, "svc-passport")
            if isinstance(body, p.VerifyBatch) and len(body.items) > OPEN_BATCH_MAX:
                await self._check_known(passport, bearer(request))
            call, method = Call("", request.corr_id, request.traceparent or ""), getattr(passport, name)
            return _whole(await self._downstream.call(name, lambda: method(body, call), idempotent=True))

        return handle

    async def _check_known(self, passport: p.Passport, token: str) -> None:
        """Require a valid token for any audience, as svc-passport itself does."""
        asked = p.Verify(token)
        verdict = await self._downstream.call("verify", lambda: passport.verify(asked), idempotent=True)
        if not verdict.ok:
            raise Unauthenticated(
                f"More than {OPEN_BATCH_MAX} items need a capability.", reason=verdict.reason or "missing"
            )

    async def _revocations(self, request: Request) -> p.Revocations:
        passport = present(self._passport, "svc-passport")
        asked = convert(dict(request.query_params()), p.GetRevocations)
        return await self._downstream.call("revocations", lambda: passport.revocations(asked), idempotent=True)

    async def _issued(self, request: Request) -> p.IssuedList:
        passport, call = present(self._passport, "svc-passport"), call_of(request)
        asked = convert(dict(request.query_params()), p.ListIssued)
        return await self._downstream.call("issued", lambda: passport.issued(asked, call), idempotent=True)

    async def _keys(self, _request: Request) -> p.KeySet:
        passport = present(self._passport, "svc-passport")
        return await self._downstream.call("keys", lambda: passport.keys(p.GetKeys()), idempotent=True)


def _whole(answer: object) -> object:
    """Return a verdict with all its members, also those that the contract leaves out by default."""
    if isinstance(answer, p.Verified):
        return verified_out(answer)
    return batch_out(answer) if isinstance(answer, p.VerifiedBatch) else answer
