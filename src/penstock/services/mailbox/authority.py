"""May this call do that: every data route needs a capability for its op and its topic."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.capability.relayed import judge_relayed, was_charged
from penstock.contracts.call import Call, Origin
from penstock.contracts.capability import Grant, RequestContext
from penstock.kernel.errors import Forbidden, PenstockError, Unauthenticated
from penstock.net.bearer import bearer, token_in

if TYPE_CHECKING:
    from penstock.contracts.capability import Verifier
    from penstock.net.message import Request
    from penstock.wire.http1_head import StartLine

AUDIENCE: Final = "svc-mailbox"
# No topic has this name. Everything but the topic is judged: for a list, which is filtered, and for a message that is gone.
ANY_TOPIC: Final = "*"
_BY_TOPIC: Final = frozenset({"topic"})
Verify = Callable[..., Grant | Awaitable[Grant]]
_KEPT_MAX: Final = 1024


class Authority:
    """Asks the verifier; counts what it refused, so that a spike can be seen."""

    def __init__(self, verifier: Verifier | None) -> None:
        """Without a verifier everything is open: only for a node that was told so."""
        self._verifier = verifier
        self.failures = 0
        # The same few fields and request lines come over and over, as the same objects: the listener remembers heads.
        self._tokens: dict[bytes, str] = {}
        self._contexts: dict[tuple[StartLine, str, str, str | None], RequestContext] = {}

    @property
    def open(self) -> bool:
        """Tell whether nothing is checked."""
        return self._verifier is None

    def allow(self, call: Call, op: str, topic: str | None, cost_bytes: int = 0) -> Awaitable[None] | None:
        """Return at once when the verifier can tell at once; raise when it says no. Payload bytes cost their number."""
        if self._verifier is None:
            return None
        verify: Verify = self._verifier.verify
        if topic == ANY_TOPIC:
            verify, topic = partial(verify, waived=_BY_TOPIC), None
        context = RequestContext(aud=AUDIENCE, op=op, topic=topic, **_origin(call))
        return self._judge(verify, call.capability, context, cost_bytes, relayed=was_charged(call))

    async def covers(self, call: Call, op: str, topic: str) -> bool:
        """Tell whether a call that was let in with any topic may see this one: that costs nothing, and no is no failure."""
        if self._verifier is None:
            return True
        verify = partial(self._verifier.verify, call.capability, charged=True)
        context = RequestContext(aud=AUDIENCE, op=op, topic=topic, **_origin(call))
        try:
            verdict = judge_relayed(verify, context) if was_charged(call) else verify(context)
            if not isinstance(verdict, Grant):
                await verdict
        except Forbidden:
            return False
        return True

    def admit(self, request: Request, op: str, topic: str | None, cost_bytes: int = 0) -> Awaitable[None] | None:
        """Do the same for a request of this service's own listener."""
        if self._verifier is None:
            return None
        context = self._contexts.get((request.head.start, request.peer.host, op, topic))
        if context is None:
            context = self._keep_context(request, op, topic)
        field = request.headers.get(b"authorization", b"")
        token = self._tokens.get(field)
        if token is None:
            token = self._keep_token(field)
        return self._judge(self._verifier.verify, token, context, cost_bytes)

    def _keep_context(self, request: Request, op: str, topic: str | None) -> RequestContext:
        path, host = "/" + "/".join(request.segments), request.peer.host
        context = RequestContext(AUDIENCE, op, topic, request.method, path, host or None)
        if len(self._contexts) >= _KEPT_MAX:
            self._contexts.clear()
        self._contexts[request.head.start, host, op, topic] = context
        return context

    def _keep_token(self, field: bytes) -> str:
        token = token_in(field)
        if len(self._tokens) >= _KEPT_MAX:
            self._tokens.clear()
        self._tokens[field] = token
        return token

    def _judge(
        self, verify: Verify, token: str, context: RequestContext, cost_bytes: int, *, relayed: bool = False
    ) -> Awaitable[None] | None:
        if not token:
            self.failures += 1
            raise Unauthenticated(reason="missing")
        try:
            if relayed:
                verdict = judge_relayed(partial(verify, token, charged=True), context)
            else:
                verdict = verify(token, context, cost_bytes=cost_bytes)
        except PenstockError:
            self.failures += 1
            raise
        return None if isinstance(verdict, Grant) else self._wait(verdict)

    async def _wait(self, verdict: Awaitable[Grant]) -> None:
        try:
            await verdict
        except PenstockError:
            self.failures += 1
            raise


def call_of(request: Request) -> Call:
    """Write down who asks, for what goes through the contract."""
    origin = Origin(request.method, "/" + "/".join(request.segments), request.peer.host)
    return Call(bearer(request), request.corr_id, request.traceparent or "", origin=origin)


def _origin(call: Call) -> dict[str, str]:
    origin = call.origin
    if origin is None:
        return {}
    named = {"method": origin.method, "route": origin.route, "ip": origin.ip}
    return {name: value for name, value in named.items() if value}
