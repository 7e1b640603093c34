"""The passport contract as this service keeps it: issue and revoke by their channels, verify inline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.capability.judged_token import CLASSICAL_ATTENUATION, JudgedToken
from penstock.capability.relayed import Verify, judge_relayed, was_charged
from penstock.capability.token import HYBRID
from penstock.contracts import passport as p
from penstock.contracts.call import NOBODY, Call
from penstock.contracts.capability import Grant, RequestContext
from penstock.kernel.deadline import Deadline, current_deadline
from penstock.kernel.errors import Busy, OverLimit, PenstockError, RateLimited, Timeout
from penstock.kernel.worker import Job
from penstock.services.passport.core import bound_tenant
from penstock.services.passport.issuance import COVERED, IssueJob, IssueWork
from penstock.services.passport.issued import IssuedQuery
from penstock.services.passport.revocation import Asked, AskedChange

if TYPE_CHECKING:
    from penstock.capability.verifier import CapabilityVerifier
    from penstock.kernel.channel import Channel
    from penstock.kernel.inventory import Inventory
    from penstock.services.passport.audit_writer import AuditTrail
    from penstock.services.passport.book import Book
    from penstock.services.passport.revocation import Changed, RevokeJob

AUDIENCE: Final = "svc-passport"
SMALL_BATCH: Final = 16
LONG_CHAIN: Final = 8
VERIFY_PLACES: Final = 2048


class Ingress:
    """What is let in: a rate and a number of unanswered requests, for what changes something."""

    def __init__(self, inventory: Inventory, *, rps: int, inflight: int) -> None:
        self._clock = inventory.clock.monotonic
        self._rate = inventory.bucket("rps", rate=rps, depth=max(1, rps))
        self._places = inventory.limiter("inflight", inflight)

    def arrive(self) -> None:
        """Refuse what comes faster than the rate, before anything is spent on it."""
        if not self._rate.try_take(self._clock()):
            raise RateLimited("More requests than this service takes.", scope="rps")

    def admit(self, reply: asyncio.Future[Any]) -> None:
        """Count a request in until it is answered, or refuse it."""
        self._places.acquire_or_busy()
        reply.add_done_callback(self._answered)

    def _answered(self, _reply: asyncio.Future[Any]) -> None:
        self._places.release()


@dataclass(frozen=True, slots=True)
class PassportChannels:
    """Where admitted work goes."""

    issue: Channel[IssueJob]
    revoke: Channel[RevokeJob]
    ingress: Ingress
    # What was issued is read from it.
    trail: AuditTrail


class PassportApi:
    """Answers the contract; also what the routes call."""

    def __init__(
        self, inventory: Inventory, book: Book, verifier: CapabilityVerifier, intake: PassportChannels
    ) -> None:
        """Take the two channels and what is judged inline."""
        self._book = book
        self._verifier = verifier
        self._intake = intake
        self._wall = inventory.clock.wall
        # Verify has a limit of its own, counted in signatures: it stays up while issuance sheds.
        self._places = inventory.limiter("verify", VERIFY_PLACES)

    # --- issue, revoke, rotate
    # -----------------------------------------------------------------------------------------

    async def issue(self, request: p.Issue, call: Call = NOBODY) -> p.Issued:
        """Issue a token that the call's capability covers."""
        work = IssueWork(request, call.capability, context_of(call, "issue"), was_charged(call))
        await self._granted(self.may(work.capability, work.context, COVERED, charged=was_charged(call)))
        return await self.queue_issue(work, current_deadline(), call.corr_id)

    async def revoke(self, request: p.Revoke, call: Call = NOBODY) -> p.Revoked:
        """Revoke; answers after it took effect."""
        changed = await self._change(request, call)
        assert isinstance(changed, p.Revoked)
        return changed

    async def rotate(self, request: p.Rotate, call: Call = NOBODY) -> p.Rotated:
        """Change the signing keys."""
        changed = await self._change(request, call)
        assert isinstance(changed, p.Rotated)
        return changed

    async def attest(self, request: p.Attest, call: Call = NOBODY) -> p.Attested:
        """Have the issuer's key vouch for the head of a service's chain."""
        changed = await self._change(request, call, op="admin")
        assert isinstance(changed, p.Attested)
        return changed

    async def _change(self, request: Asked, call: Call, op: str = "revoke") -> Changed:
        judged = self.may(call.capability, context_of(call, op), charged=was_charged(call))
        by = await self._granted(judged)
        return await self.queue_change(AskedChange(request, by), current_deadline(), call.corr_id)

    @staticmethod
    async def _granted(judged: Grant | Awaitable[Grant]) -> Grant:
        return judged if isinstance(judged, Grant) else await judged

    def may(
        self, capability: str, context: RequestContext, waived: frozenset[str] = frozenset(), *, charged: bool = False
    ) -> Grant | Awaitable[Grant]:
        """Judge a capability before it takes a place in a queue; at once when no crypto leaves the loop."""
        self._intake.ingress.arrive()
        verify: Verify = partial(self._verifier.verify, capability, waived=waived, charged=charged)
        return judge_relayed(verify, context) if charged else verify(context)

    def queue_issue(self, work: IssueWork, deadline: Deadline | None, corr_id: str) -> asyncio.Future[p.Issued]:
        """Put judged work into the channel."""
        job: IssueJob = Job(work, deadline=deadline, corr_id=corr_id)
        self._send(self._intake.issue, job)
        return job.reply

    def queue_change(self, change: AskedChange, deadline: Deadline | None, corr_id: str) -> asyncio.Future[Changed]:
        """Put a judged change into the channel of the one writer."""
        job: RevokeJob = Job(change, deadline=deadline, corr_id=corr_id)
        self._send(self._intake.revoke, job)
        return job.reply

    def _send(self, channel: Channel[Any], job: Job[Any, Any]) -> None:
        self._intake.ingress.admit(job.reply)
        try:
            channel.try_send(job)
        except PenstockError:
            job.reply.cancel()
            raise

    async def issued(self, request: p.ListIssued, call: Call = NOBODY) -> p.IssuedList:
        """List what was issued; whoever is bound to a tenant sees its tokens alone."""
        judged = self.may(call.capability, context_of(call, "admin"), charged=was_charged(call))
        return await self.list_issued(request, await self._granted(judged))

    async def list_issued(self, request: p.ListIssued, by: Grant) -> p.IssuedList:
        """List what was issued for somebody who was judged."""
        keys = {key.kid: key.exp for key in self._book.state.keys}
        query = IssuedQuery(request, self._book.trust.floors, keys, self._wall(), bound_tenant(by))
        return await self._intake.trail.issued(query)

    # --- verify
    # --------------------------------------------------------------------------------------------------------

    async def verify(self, request: p.Verify, call: Call = NOBODY) -> p.Verified:
        """Judge one token."""
        verdict = self.judge(request)
        return verdict if isinstance(verdict, p.Verified) else await verdict

    def judge(self, request: p.Verify) -> p.Verified | Awaitable[p.Verified]:
        """Judge one token at once when its signatures are known or few."""
        try:
            opened = self._verifier.open(request.token)
        except PenstockError as error:
            return _refused(error)
        return self._verdict(opened, request) if isinstance(opened, JudgedToken) else self._judge_later(opened, request)

    async def _judge_later(self, opened: Awaitable[JudgedToken], request: p.Verify) -> p.Verified:
        self._places.acquire_or_busy(LONG_CHAIN)
        try:
            return self._verdict(await opened, request)
        except (Busy, Timeout):
            # The pool's, not the token's.
            raise
        except PenstockError as error:
            return _refused(error)
        finally:
            self._places.release(LONG_CHAIN)

    def _verdict(self, standing: JudgedToken, request: p.Verify) -> p.Verified:
        try:
            warnings = self._verifier.judge_given(standing, request.context)
        except PenstockError as error:
            return _refused(error)
        if standing.root.alg == HYBRID and standing.token.blocks:
            warnings.append(CLASSICAL_ATTENUATION)
        return p.Verified(ok=True, claims=standing.claims(), warnings=tuple(warnings))

    async def verify_batch(self, request: p.VerifyBatch, call: Call = NOBODY) -> p.VerifiedBatch:
        """Judge many, in slices off the loop; one bad item never fails the batch."""
        count = len(request.items)
        if count > p.VERIFY_BATCH_MAX:
            raise OverLimit(f"A batch has at most {p.VERIFY_BATCH_MAX} items.", limit="verify_batch")
        self._places.acquire_or_busy(max(1, count))
        try:
            found = await self._verifier.open_many(item.token for item in request.items)
        finally:
            self._places.release(max(1, count))
        verdicts = [
            self._verdict(each, item) if isinstance(each, JudgedToken) else _refused(each)
            for each, item in zip(found, request.items, strict=True)
        ]
        return p.VerifiedBatch(tuple(verdicts))

    async def check_batch_allowed(self, count: int, capability: str) -> None:
        """Ask for a token above a small batch, of everybody: verifying costs more than asking."""
        if count <= SMALL_BATCH:
            return
        opened = self._verifier.open(capability)
        if not isinstance(opened, JudgedToken):
            await opened

    # --- what everybody may read
    # ---------------------------------------------------------------------------------------

    def key_set(self) -> p.KeySet:
        """Return the keys that verify now."""
        return self._book.state.key_set(self._wall())

    async def keys(self, request: p.GetKeys, call: Call = NOBODY) -> p.KeySet:
        """List the public keys."""
        return self.key_set()

    async def revocations(self, request: p.GetRevocations, call: Call = NOBODY) -> p.Revocations:
        """Read the feed."""
        return self._book.state.revocations(request.since)


def _refused(error: PenstockError) -> p.Verified:
    return p.Verified(ok=False, reason=str(error.facts.get("reason", error.code)))


def context_of(call: Call, op: str) -> RequestContext:
    """Say what a contract call is judged on; the origin comes only over the Unix socket."""
    origin = call.origin
    if origin is None:
        return RequestContext(aud=AUDIENCE, op=op)
    return RequestContext(
        aud=AUDIENCE, op=op, method=origin.method or None, route=origin.route or None, ip=origin.ip or None
    )
