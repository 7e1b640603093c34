"""Capabilities at the gate: which token came, whether it is known, and whether it covers this request."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from penstock.capability.judged_token import JudgedToken
from penstock.contracts.capability import RequestContext
from penstock.kernel.errors import Forbidden, Unauthenticated
from penstock.kernel.memo import Memo
from penstock.net.bearer import token_in
from penstock.wire.http1.head import CHUNKED

if TYPE_CHECKING:
    from penstock.capability.verifier import CapabilityVerifier
    from penstock.net.message import Request
    from penstock.services.omnigate.gate.classes import RouteProfile
    from penstock.wire.http1.head import StartLine

# As many as heads are remembered: a flood of forged tokens turns them over and costs no more than before.
_NAMED_MAX: Final = 1024
_CONTEXTS_KEPT: Final = 1024
# A token may be meant for the gateway or for the service behind: what fails on these is asked once more.
_OF_AUDIENCE: Final = frozenset({"caveat:aud", "caveat:svc"})


class CapabilityCheck:
    """Asks the one verifier."""

    __slots__ = ("_contexts", "_named", "_region", "_verifier")

    def __init__(self, verifier: CapabilityVerifier, region: str) -> None:
        """Name the region this gateway stands in, if it has one."""
        self._verifier = verifier
        self._region = region or None
        # By request line, address and audience: the same few come over and over.
        self._contexts: Memo[tuple[StartLine, str, str], RequestContext] = Memo(_CONTEXTS_KEPT)
        self._named: Memo[bytes, tuple[str, bytes]] = Memo(_NAMED_MAX)

    def name(self, request: Request) -> tuple[str, bytes]:
        """Return the token of a request and its digest; the listener remembers heads, so the same fields come again."""
        field = request.headers[b"authorization"]
        named = self._named.get(field)
        if named is None:
            token = token_in(field)
            if not token:
                raise Unauthenticated("Authorization is not a bearer capability.", reason="malformed")
            named = self._named.put(field, (token, self._verifier.digest(token)))
        return named

    def peek(self, digest: bytes) -> JudgedToken | None:
        """Return a token's standing if no crypto is needed for that; raise when it is known to be bad."""
        return self._verifier.peek(digest)

    def open(self, token: str) -> JudgedToken | Awaitable[JudgedToken]:
        """Check a token that is not known; an awaitable when that leaves the loop."""
        return self._verifier.open(token)

    def allow(self, standing: JudgedToken, request: Request, lane: RouteProfile) -> None:
        """Judge the request on every caveat and charge its budgets, or raise."""
        rule, cost_bytes = lane.rule, _cost_bytes(request)
        for audience in rule.audiences:
            context = self._contexts.get((request.head.start, request.peer.host, audience))
            if context is None:
                context = self._keep_context(request, lane, audience)
            try:
                self._verifier.allow(standing, context, cost_bytes=cost_bytes, waived=rule.waived)
            except Forbidden as error:
                if rule.operator:
                    raise operator_only() from error
                # The last audience's refusal is the answer.
                if audience is rule.audiences[-1] or error.facts.get("reason") not in _OF_AUDIENCE:
                    raise
            else:
                return

    def _keep_context(self, request: Request, lane: RouteProfile, audience: str) -> RequestContext:
        key = (request.head.start, request.peer.host, audience)
        return self._contexts.put(key, self._context(request, lane, audience))

    def _context(self, request: Request, lane: RouteProfile, audience: str) -> RequestContext:
        rule = lane.rule
        return RequestContext(
            aud=audience,
            op=rule.op,
            topic=lane.topic(request),
            method=request.method,
            route="/" + "/".join(request.segments),
            ip=request.peer.host if request.peer.uid is None else None,
            tenant=rule.tenant,
            region=self._region,
            # Whichever audience the token has, the work is done by the service behind.
            service=rule.audiences[-1],
        )


def operator_only() -> Forbidden:
    """Refuse a good token that is not the operator's: no caveat would make it so."""
    return Forbidden(
        "Here only the operator's token will do.",
        reason="not_operator",
        hint="Use the one in operator.token, in the node's data directory.",
    )


def _cost_bytes(request: Request) -> int:
    """Say what a byte budget is charged, here for the services behind too: the length, or the most it can be."""
    head = request.head
    packed = head.encoded and request.headers[b"content-encoding"] != b"identity"
    if head.length == CHUNKED or (packed and head.length):
        return request.body_bytes_max
    return head.length
