"""Checks capabilities: every data route needs one for its op and its topic."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.capability.judged_token import JudgedToken
from penstock.capability.relayed import judge_relayed, was_charged
from penstock.capability.verifier import CapabilityVerifier
from penstock.contracts.call import Call, origin_of
from penstock.contracts.capability import Grant, RequestContext
from penstock.kernel.errors import Forbidden, PenstockError, Unauthenticated
from penstock.kernel.memo import Memo
from penstock.net.bearer import admit_bearers, bearer, token_in
from penstock.net.caller import call_of

if TYPE_CHECKING:
    from penstock.contracts.capability import Verifier
    from penstock.net.message import Request
    from penstock.wire.http1.head import StartLine

AUDIENCE: Final = "svc-mailbox"
# No topic has this name. It stands for "everything but the topic is checked": for a list, which is filtered afterwards,
# and for a message that is gone.
ANY_TOPIC: Final = "*"
_BY_TOPIC: Final = frozenset({"topic"})
Verify = Callable[..., Grant | Awaitable[Grant]]
# What a judgement depends on: method and path, the field with the token, the address, the op and the topic.
Asking = tuple["StartLine", bytes, str, str, str | None]
_KEPT_MAX: Final = 1024
Rejudge = Callable[[], PenstockError | None]


class MailboxAuthority:
    """Asks the verifier, and counts its refusals for the CapCacheRefresher."""

    def __init__(self, verifier: Verifier | None) -> None:
        """Without a verifier everything is open: only for a node that was told so."""
        self._verifier = verifier
        self.failures = 0
        # The same few fields and request lines come over and over, as the same objects: the listener remembers heads.
        self._allowed: Memo[Asking, JudgedToken] = Memo(_KEPT_MAX)
        # Of calls inside the process: token, op and topic.
        self._allowed_calls: Memo[tuple[str, str, str | None], JudgedToken] = Memo(_KEPT_MAX)
        # Whose each token is that was found good lately.
        self._tenants: Memo[str, str] = Memo(_KEPT_MAX)
        # Only this verifier can tell later whether what it said still holds.
        self._lasting = verifier if isinstance(verifier, CapabilityVerifier) else None

    @property
    def open(self) -> bool:
        """Tell whether nothing is checked."""
        return self._verifier is None

    def tenant_of(self, token: str) -> str | None:
        """Say whose a token is that was found good; None for one that nobody remembers."""
        return self._tenants.get(token)

    def admit_head(self, request: Request) -> None:
        """Refuse a request without a token, or with one that is known to be bad, before a byte of its body is read."""
        admit_bearers(request)
        if self._lasting is not None and not request.route.open:
            try:
                self._lasting.peek(self._lasting.digest(bearer(request)))
            except PenstockError:
                self.failures += 1
                raise

    async def authenticate(self, call: Call, op: str) -> None:
        """Refuse a token that is no good for anything here, before any item of a batch is looked at. Not charged."""
        if self._verifier is None:
            return
        verify = partial(self._verifier.verify, call.capability, charged=True, waived=_BY_TOPIC)
        context = RequestContext(aud=AUDIENCE, op=op, **origin_of(call))
        try:
            if not call.capability:
                raise Unauthenticated(reason="missing")
            verdict = judge_relayed(verify, context) if was_charged(call) else verify(context)
            if not isinstance(verdict, Grant):
                await verdict
        except Forbidden:
            # It may still be allowed for one topic or other; each item is judged by itself.
            return
        except PenstockError:
            self.failures += 1
            raise

    def allow(self, call: Call, op: str, topic: str | None, cost_bytes: int = 0) -> Awaitable[None] | None:
        """Check a call.

        Returns None when it is allowed, raises when it is not, or returns what has to be awaited to know.
        """
        if self._verifier is None:
            return None
        if call.origin is None and topic != ANY_TOPIC:
            return self._allow_inside(call.capability, op, topic, cost_bytes)
        verify: Verify = self._verifier.verify
        if topic == ANY_TOPIC:
            verify, topic = partial(verify, waived=_BY_TOPIC), None
        context = RequestContext(aud=AUDIENCE, op=op, topic=topic, **origin_of(call))
        return self._judge(verify, call.capability, context, cost_bytes, relayed=was_charged(call))

    def _allow_inside(self, token: str, op: str, topic: str | None, cost_bytes: int) -> Awaitable[None] | None:
        """Check a call of another service of this process, unless one just like it was allowed."""
        asking, lasting = (token, op, topic), self._lasting
        standing = self._allowed_calls.get(asking)
        if standing is not None and lasting is not None and lasting.holds(standing):
            return None
        assert self._verifier is not None
        context = RequestContext(aud=AUDIENCE, op=op, topic=topic)
        waiting = self._judge(self._verifier.verify, token, context, cost_bytes)
        if waiting is None and lasting is not None:
            found = lasting.open(token)
            if isinstance(found, JudgedToken) and not found.counted:
                self._allowed_calls.put(asking, found)
        return waiting

    def watch(self, call: Call, op: str, topic: str) -> Rejudge | None:
        """Return what says later whether a call that was let in may go on: None, or why not. It never waits."""
        if self._verifier is None:
            return None
        verify = partial(self._verifier.verify, call.capability, charged=True)
        return partial(
            _refusal, verify, RequestContext(aud=AUDIENCE, op=op, topic=topic, **origin_of(call)), was_charged(call)
        )

    async def covers(self, call: Call, op: str, topic: str) -> bool:
        """Tell whether a call that was allowed without a topic may see this one.

        It is not charged, and not counted as refused.
        """
        if self._verifier is None:
            return True
        verify = partial(self._verifier.verify, call.capability, charged=True)
        context = RequestContext(aud=AUDIENCE, op=op, topic=topic, **origin_of(call))
        try:
            verdict = judge_relayed(verify, context) if was_charged(call) else verify(context)
            if not isinstance(verdict, Grant):
                await verdict
        except Forbidden:
            return False
        return True

    def admit(self, request: Request, op: str, topic: str | None, cost_bytes: int = 0) -> Awaitable[None] | None:
        """Check a request of this service's own listener, as `allow` does, unless one just like it was allowed."""
        if self._verifier is None:
            return None
        if request.ticket.relayed or topic == ANY_TOPIC:
            return self.allow(call_of(request), op, topic, cost_bytes)
        field, host = request.headers.get(b"authorization", b""), request.peer.host
        asking = (request.head.start, field, host, op, topic)
        standing = self._allowed.get(asking)
        if standing is not None and self._lasting is not None and self._lasting.holds(standing):
            return None
        token = token_in(field)
        context = RequestContext(AUDIENCE, op, topic, request.method, "/" + "/".join(request.segments), host or None)
        waiting = self._judge(self._verifier.verify, token, context, cost_bytes)
        if waiting is None and self._lasting is not None:
            self._keep(asking, self._lasting.open(token))
        return waiting

    def stands(self, request: Request, op: str, topics: Iterable[str | None]) -> bool:
        """Tell whether requests just like this one were allowed for all these topics, and still are.

        Nothing is judged or charged: what has to be counted never stands.
        """
        if self._verifier is None:
            return True
        if self._lasting is None or request.ticket.relayed:
            return False
        start, field, host = request.head.start, request.headers.get(b"authorization", b""), request.peer.host
        standing = [self._allowed.get((start, field, host, op, topic)) for topic in topics]
        return all(each is not None and self._lasting.holds(each) for each in standing)

    def _keep(self, asking: Asking, standing: object) -> None:
        """Remember what was allowed, unless every request has to be counted."""
        if isinstance(standing, JudgedToken) and not standing.counted:
            self._allowed.put(asking, standing)

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
        if isinstance(verdict, Grant):
            if self._tenants.get(token) is None:
                self._tenants.put(token, verdict.tenant)
            return None
        return self._wait(verdict, token)

    async def _wait(self, verdict: Awaitable[Grant], token: str) -> None:
        try:
            self._tenants.put(token, (await verdict).tenant)
        except PenstockError:
            self.failures += 1
            raise


def _refusal(verify: Verify, context: RequestContext, relayed: bool) -> PenstockError | None:  # noqa: FBT001
    """Judge once more; a verdict that would have to be waited for is left to the next time."""
    try:
        verdict = judge_relayed(verify, context) if relayed else verify(context)
    except PenstockError as error:
        return error
    if not isinstance(verdict, Grant) and isinstance(verdict, Coroutine):
        verdict.close()
    return None
