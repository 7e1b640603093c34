"""The one verifier of the code base: every service asks it, and it asks nobody.

The order is fixed: length, prefix and alphabet; the cache; the envelope; the key; the strict decoder; what the claims
say of time and revocation; signatures that are not known yet; the proof, always; then the caveats against this request,
every time. Nothing inside a token is read whose key is not known: that costs as much as checking several signatures.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeVar, cast

from blake3 import blake3

from penstock.capability.families import NAMED_OPS, READ_OPS
from penstock.capability.judged_token import JudgedToken, VerifierPolicy, record_of, stands
from penstock.capability.judging import judge, judge_given, make_ready_texts, not_covered
from penstock.capability.metering import ACCOUNTS_MAX, Meter
from penstock.capability.proving import UnprovenToken
from penstock.capability.token import TEXT_CHARS_MAX, Token, open_envelope
from penstock.capability.trust import STALE_GRACE_S, Trust
from penstock.contracts.capability import Grant, RequestContext
from penstock.kernel.clock import Clock
from penstock.kernel.errors import Malformed, NotReady, PenstockError, Unauthenticated
from penstock.kernel.memo import Memo
from penstock.kernel.pool import Pool

PqMode = Literal["off", "mirror", "require", "enforce"]
T = TypeVar("T")

TTL_S: Final = 60.0
_NAMED_MAX: Final = 256
_SWEPT_EVERY: Final = 256
REFUSED_TTL_S: Final = 10.0
SOON_TTL_S: Final = 1.0
INLINE_SIGNATURES_MAX: Final = 2
SLICE: Final = 8
POOL_S: Final = 2.0
"""How long a slice of signatures may take on the crypto pool."""


class LazyAwaitable(Awaitable[T]):
    """Work that begins when it is awaited: whoever is refused a place before that leaves nothing behind."""

    __slots__ = ("_begin",)

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> None:
        """Hold what is to be begun."""
        self._begin = begin

    def __await__(self) -> Generator[Any, Any, T]:
        """Begin."""
        return self._begin().__await__()


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifierOptions:
    """What can be tuned."""

    tokens_max: int = 8192
    prefixes_max: int = 16_384
    refused_max: int = 1024
    accounts_max: int = ACCOUNTS_MAX
    stale_grace_s: float = STALE_GRACE_S
    amnesia: bool = False
    pq_mode: PqMode = "off"


class RememberedRefusal(NamedTuple):
    """A token that was refused before a request was looked at.

    The answer is the same for a while, and costs a lookup.
    """

    until: float
    # The state of keys and floors it was judged on: another state may judge otherwise.
    version: int
    error: PenstockError

    def again(self) -> PenstockError:
        """Make the same refusal once more."""
        return _copied(self.error)


class CapabilityVerifier:
    """Judges tokens against the keys and floors of a `Trust`; the Verifier of the capability contract."""

    def __init__(
        self,
        trust: Trust,
        clock: Clock,
        options: VerifierOptions | None = None,
        *,
        pool: Pool | None = None,
        meter: Meter | None = None,
    ) -> None:
        """Believe `trust`; with a pool, what needs more than two signatures leaves the loop.

        `meter` counts budgets and rates together with the other verifiers that have it.
        """
        self.trust = trust
        self.options = options or VerifierOptions()
        self.meter = Meter(self.options.accounts_max) if meter is None else meter
        self.hits = self.misses = self.refusals = 0
        self._wall = clock.wall
        self._monotonic = clock.monotonic
        self._pool = pool
        # The lease whose end was noticed last: each loss of the feed drops the judgements once.
        self._lost_at = 0.0
        # A key of this process: nobody outside can aim at a place in the cache, and no token lies in it.
        self._copy = blake3(key=os.urandom(32)).copy
        # The texts of a moment ago, which the listener's memory of heads holds anyway; never more than a few.
        self._named: Memo[str, bytes] = Memo(_NAMED_MAX)
        self._tokens: Memo[bytes, JudgedToken] = Memo(self.options.tokens_max)
        self._prefixes: Memo[bytes, tuple[str, str, bytes, bytes]] = Memo(self.options.prefixes_max)
        self._refused: Memo[bytes, RememberedRefusal] = Memo(self.options.refused_max)
        # How many tokens were proven; every so many, those whose time is over are forgotten.
        self._accepted = 0

    # --- the contract
    # --------------------------------------------------------------------------------------------------

    def verify(
        self,
        token: str,
        context: RequestContext,
        *,
        cost_bytes: int = 0,
        charged: bool = False,
        waived: frozenset[str] = frozenset(),
    ) -> Grant | Awaitable[Grant]:
        """Check signatures, times, revocation and every caveat; charge budgets and rates unless that was done.

        `waived` names families that the caller judges in another way, as issuing does by `covers`.
        """
        standing = self.open(token)
        if type(standing) is not JudgedToken:
            later = cast("Awaitable[JudgedToken]", standing)
            return LazyAwaitable(
                partial(self._granted_later, later, context, cost_bytes, charged=charged, waived=waived)
            )
        self.judge(standing, context, waived)
        if standing.counted and not charged:
            self.meter.charge(
                standing.counted, cost_bytes, wall=self._wall(), now=self._monotonic(), floors=self.trust.floors
            )
        return standing.grant

    def check(self, grant: Grant, context: RequestContext) -> None:
        """Judge a further attribute of a request already verified: only what this context has is looked at."""
        judge_given(make_ready_texts(grant.caveats, context.at), context)

    # --- for those who need more than a grant
    # ---------------------------------------------------------------------------

    def open(self, token: str) -> JudgedToken | Awaitable[JudgedToken]:
        """Check everything that does not depend on the request; an awaitable only for crypto that leaves the loop."""
        digest = self._digest(token)
        standing = self._tokens.get(digest)
        now = self._wall()
        if standing is not None:
            if standing.version == self.trust.version and now < standing.until:
                self.hits += 1
                return standing
            if now < standing.proven_until:
                self.hits += 1
                return self._judged_again(digest, standing, now)
        return self._prove(token, digest, now)

    def holds(self, standing: JudgedToken) -> bool:
        """Tell whether what was judged of a token would be judged again.

        The keys, floors, times and feed are the same.
        """
        trust, now = self.trust, self._wall()
        if standing.version != trust.version or now >= standing.until or self._monotonic() >= trust.lease_until:
            return False
        self.hits += 1
        return True

    def digest(self, token: str) -> bytes:
        """Name a token where the token itself must not lie; what is too long to be one is refused."""
        return self._digest(token)

    def peek(self, digest: bytes) -> JudgedToken | None:
        """Look a token up without any crypto: its standing if that is known and still holds; refuse a known bad one."""
        standing, now = self._tokens.get(digest), self._wall()
        if standing is None:
            refused = self._refused_before(digest, now)
            if refused is not None:
                self.refusals += 1
                raise refused
            return None
        if standing.version != self.trust.version or now >= standing.until:
            if now >= standing.proven_until:
                return None
            standing = self._judged_again(digest, standing, now)
        self.hits += 1
        return standing

    def remembers(self, digest: bytes) -> bool:
        """Tell whether a token was proven good once and is not expired, though its proof may have lapsed."""
        standing = self._tokens.get(digest)
        return standing is not None and self._wall() < standing.exp

    def allow(
        self,
        standing: JudgedToken,
        context: RequestContext,
        *,
        cost_bytes: int = 0,
        waived: frozenset[str] = frozenset(),
    ) -> Grant:
        """Judge a request on a token that was looked up, and charge it, as `verify` does."""
        self.judge(standing, context, waived)
        if standing.counted:
            self.meter.charge(
                standing.counted, cost_bytes, wall=self._wall(), now=self._monotonic(), floors=self.trust.floors
            )
        return standing.grant

    def judge(self, standing: JudgedToken, context: RequestContext, waived: frozenset[str] = frozenset()) -> None:
        """Judge a request strictly; nothing is charged."""
        if self._monotonic() >= self.trust.lease_until:
            self._judge_without_feed(context)
        # As `judge` does, without the call: this stands on every request's path.
        for name, attribute, allows, written in standing.checks:
            value = getattr(context, attribute)
            if (value is None or not allows(value)) and name not in waived:
                raise not_covered(name, value, written)
        if standing.scoped:
            judge([check for check in standing.scoped.at(context.at) if check.name not in waived], context)
        if standing.refused is not None or context.op in NAMED_OPS or context.tenant is not None:
            _judge_root(standing, context)

    def judge_given(self, standing: JudgedToken, context: RequestContext) -> list[str]:
        """Judge what the context gives, and name the caveats it says nothing about."""
        # The first check is the root's own audience, which restricts nothing when it is everybody.
        checks = standing.checks[1:] if "*" in standing.root.aud else standing.checks
        unjudged = judge_given(checks, context)
        if standing.scoped and context.at is not None:
            unjudged += judge_given(standing.scoped.at(context.at), context)
        elif standing.scoped:
            unjudged.append("aud")
        _judge_root(standing, context)
        return list(dict.fromkeys(unjudged))

    async def open_many(self, tokens: Iterable[str]) -> list[JudgedToken | PenstockError]:
        """Open many tokens, in slices whose crypto leaves the loop; one bad token is its own error."""
        found: list[JudgedToken | PenstockError] = []
        batch = list(tokens)
        for start in range(0, len(batch), SLICE):
            found += await self._open_slice(batch[start : start + SLICE])
        return found

    def forget(self) -> None:
        """Drop the judgements, keep the proofs: what a lost feed vouched for is gone, the signatures still hold."""
        self._tokens.clear()

    def forget_expired(self) -> int:
        """Drop the tokens whose time is over, so that short-lived ones do not fill the cache; returns how many."""
        now = self._wall()
        gone = [digest for digest, each in self._tokens.items.items() if each.exp <= now]
        for digest in gone:
            # Its own proof goes too; those of the tokens it was made of may still be wanted.
            self._prefixes.drop(self._tokens.items[digest].chain[-1])
            self._tokens.drop(digest)
        return len(gone)

    def lapsing(self, within_s: float) -> list[bytes]:
        """Name the known tokens that would have to be proven anew so soon, though they themselves last longer."""
        soon = self._wall() + within_s
        known = self._tokens.items.items()
        return [digest for digest, each in known if each.proven_until < min(soon, each.exp)]

    def renew(self, digest: bytes) -> JudgedToken | Awaitable[JudgedToken] | None:
        """Prove a known token once more before it has to be; None when it is not known any more."""
        known, now = self._tokens.get(digest), self._wall()
        return None if known is None else self._settle(self._pending(known.token, digest, now), now)

    # --- caches
    # --------------------------------------------------------------------------------------------------------

    def _digest(self, token: str) -> bytes:
        """Name a token's place in the caches; what is too long to be one is not even hashed."""
        named = self._named.get(token)
        if named is not None:
            return named
        if len(token) > TEXT_CHARS_MAX:
            self.refusals += 1
            raise _refusal("malformed")
        hasher = self._copy()
        hasher.update(token.encode("utf-8", "surrogatepass"))
        return self._named.put(token, hasher.digest())

    def _judged_again(self, digest: bytes, standing: JudgedToken, now: float) -> JudgedToken:
        """Judge a proven token on the present keys, floors and time; no crypto."""
        try:
            fresh = stands(standing.token, self._policy(), now)
        except PenstockError as error:
            self._tokens.drop(digest)
            self._remember_refusal(digest, error, now)
            self.refusals += 1
            raise
        if fresh.record.identity != standing.record.identity:
            self._tokens.drop(digest)
            raise _refusal("bad_signature")
        fresh.proven_until = standing.proven_until
        fresh.until = min(fresh.until, fresh.proven_until)
        self._tokens.put(digest, fresh)
        return fresh

    def _policy(self) -> VerifierPolicy:
        options, trust = self.options, self.trust
        return VerifierPolicy(trust.keys, trust.floors, trust.version, options.pq_mode, amnesia=options.amnesia)

    def _prepare(self, token: str, digest: bytes, now: float) -> UnprovenToken:
        """Do all that is cheap; what comes back says which signatures are left to check."""
        self.misses += 1
        if not token:
            raise _refusal("missing")
        refused = self._refused_before(digest, now)
        if refused is not None:
            raise refused
        try:
            envelope = open_envelope(token)
            record_of(envelope.kid, envelope.alg, self._policy(), now)
            return self._pending(envelope.read(), digest, now)
        except Malformed as exc:
            refusal = _refusal("malformed")
            self._remember_refusal(digest, refusal, now)
            raise refusal from exc
        except PenstockError as error:
            self._remember_refusal(digest, error, now)
            raise

    def _refused_before(self, digest: bytes, now: float) -> PenstockError | None:
        """Return the refusal of a moment ago, if keys and floors are still the same."""
        refused = self._refused.get(digest)
        if refused is None or refused.until <= now or refused.version != self.trust.version:
            return None
        return refused.again()

    def _remember_refusal(self, digest: bytes, error: PenstockError, now: float) -> None:
        # One that is not valid yet may be so soon.
        ttl_s = SOON_TTL_S if error.facts.get("reason") == "not_yet_valid" else REFUSED_TTL_S
        self._refused.put(digest, RememberedRefusal(now + ttl_s, self.trust.version, _copied(error)))

    def _pending(self, read: Token, digest: bytes, now: float) -> UnprovenToken:
        standing = stands(read, self._policy(), now)
        chain, key = standing.chain, standing.record.identity
        known = next((i for i in range(len(chain) - 1, -1, -1) if self._prefixes.get(chain[i]) == key), -1)
        return UnprovenToken(standing, digest, known)

    def _prove(self, token: str, digest: bytes, now: float) -> JudgedToken | Awaitable[JudgedToken]:
        try:
            pending = self._prepare(token, digest, now)
        except PenstockError:
            self.refusals += 1
            raise
        return self._settle(pending, now)

    def _settle(self, pending: UnprovenToken, now: float) -> JudgedToken | Awaitable[JudgedToken]:
        if self._pool is None or pending.signatures <= INLINE_SIGNATURES_MAX:
            return self._accept(pending, pending.run(), now)
        return LazyAwaitable(partial(self._prove_on, self._pool, pending))

    async def _prove_on(self, pool: Pool, pending: UnprovenToken) -> JudgedToken:
        proven = await pool.run("capability_verify", POOL_S, pending.run)
        return self._accept(pending, proven, self._wall())

    def _accept(self, pending: UnprovenToken, proven: bool, now: float) -> JudgedToken:  # noqa: FBT001
        if not proven:
            self.refusals += 1
            refusal = _refusal("bad_signature")
            self._remember_refusal(pending.digest, refusal, now)
            raise refusal
        standing = pending.standing
        for value in standing.chain[pending.known + 1 :]:
            self._prefixes.put(value, standing.record.identity)
        standing.proven_until = min(now + TTL_S, standing.exp)
        if standing.version != self.trust.version:
            # Something was revoked or rotated while the signatures were checked: what was judged is judged again.
            return self._judged_again(pending.digest, standing, now)
        standing.until = min(standing.until, standing.proven_until)
        self._tokens.put(pending.digest, standing)
        self._accepted += 1
        if self._accepted % _SWEPT_EVERY == 0:
            self.forget_expired()
        return standing

    async def _open_slice(self, tokens: list[str]) -> list[JudgedToken | PenstockError]:
        found: list[JudgedToken | PenstockError | UnprovenToken] = [self._open_or_prepare(token) for token in tokens]
        pending = [each for each in found if isinstance(each, UnprovenToken)]
        if pending:
            outcomes = dict(zip(map(id, pending), await self._run_all(pending), strict=True))
            return [self._settled(each, outcomes) for each in found]
        return [each for each in found if not isinstance(each, UnprovenToken)]

    def _open_or_prepare(self, token: str) -> JudgedToken | PenstockError | UnprovenToken:
        try:
            digest = self._digest(token)
            if self._tokens.get(digest) is None:
                return self._prepare(token, digest, self._wall())
            standing = self.open(token)
        except PenstockError as error:
            return error
        assert isinstance(standing, JudgedToken), "a remembered token needs no crypto"
        return standing

    async def _run_all(self, pending: list[UnprovenToken]) -> list[bool]:
        def run() -> list[bool]:
            return [each.run() for each in pending]

        return run() if self._pool is None else await self._pool.run("capability_verify", POOL_S, run)

    def _settled(
        self, each: JudgedToken | PenstockError | UnprovenToken, outcomes: dict[int, bool]
    ) -> JudgedToken | PenstockError:
        if not isinstance(each, UnprovenToken):
            return each
        try:
            return self._accept(each, outcomes[id(each)], self._wall())
        except PenstockError as error:
            return error

    # --- the end of a verification
    # -------------------------------------------------------------------------------------

    async def _granted_later(
        self,
        standing: Awaitable[JudgedToken],
        context: RequestContext,
        cost_bytes: int,
        *,
        charged: bool,
        waived: frozenset[str],
    ) -> Grant:
        proven = await standing
        self.judge(proven, context, waived)
        if proven.counted and not charged:
            self.meter.charge(
                proven.counted, cost_bytes, wall=self._wall(), now=self._monotonic(), floors=self.trust.floors
            )
        return proven.grant

    def _judge_without_feed(self, context: RequestContext) -> None:
        """Without the feed nothing is made any more, and what is there may be taken for a while."""
        if self._lost_at != self.trust.lease_until:
            self._lost_at = self.trust.lease_until
            self.forget()
        lost_s = self._monotonic() - self.trust.lease_until
        if context.op not in READ_OPS or lost_s >= self.options.stale_grace_s:
            raise NotReady("The revocation feed is lost.", reason="revocation_feed")


def _judge_root(standing: JudgedToken, context: RequestContext) -> None:
    """Judge what the root decides.

    Its own restrictions, the ops only an issuer can give, and whose things are touched.
    """
    if standing.refused is not None:
        raise not_covered(standing.refused)
    granted = standing.granted_at(context.at) if context.op in NAMED_OPS else standing.granted
    if context.op in NAMED_OPS and context.op not in granted and "*" not in granted:
        raise not_covered("op", context.op, f"op={','.join(sorted(granted))}" if granted else _UNNAMED)
    if context.tenant is not None and not standing.may_act_for(context.tenant):
        raise not_covered("tenant")


def _copied(error: PenstockError) -> PenstockError:
    """Make an equal error: one that is kept and raised again would hold the stacks of all who raised it."""
    equal = type(error)(error.detail, status=error.status)
    equal.facts = error.facts
    return equal


def _refusal(reason: str) -> Unauthenticated:
    return Unauthenticated(_WHY[reason], reason=reason)


_UNNAMED: Final = f"every op but {', '.join(sorted(NAMED_OPS))}"
_WHY: Final = {
    "missing": "No capability was given.",
    "malformed": "The capability cannot be read.",
    "bad_signature": "The capability's signatures or proof do not hold.",
}
