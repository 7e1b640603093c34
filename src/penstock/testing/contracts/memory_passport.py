"""svc-passport in RAM: the contract over a `TokenBook`. Only the operator issues here; delegation is the real one's."""

from __future__ import annotations

from typing import Final

from penstock.contracts import passport as p
from penstock.contracts.call import NOBODY, Call
from penstock.kernel.clock import Clock
from penstock.kernel.errors import Conflict, Forbidden, Malformed, NotFound, OverLimit, PenstockError
from penstock.testing.contracts.memory_tokens import TokenBook, check_caveat

ISSUER: Final = "penstock"
OPERATOR: Final = "operator"
OPERATOR_TTL_S: Final = 365 * 24 * 3600
LEASE_MS: Final = 5000


class MemoryPassport:
    """The passport contract. Every command is one synchronous step."""

    def __init__(self, clock: Clock, book: TokenBook | None = None) -> None:
        """Open a book and write the operator's token into it."""
        self._clock = clock
        self.book = book or TokenBook(clock)
        self.operator_token = ""
        # The last head of each service.
        self._attested: dict[str, tuple[int, str]] = {}
        self._mint_operator()

    def _mint_operator(self) -> None:
        request = p.Issue(OPERATOR, "*", class_="internal", ttl_s=OPERATOR_TTL_S, caveats=("op=*",))
        self.operator_token, _ = self._mint(request)

    def _mint(self, request: p.Issue) -> tuple[str, p.Claims]:
        book, now_s = self.book, self.book.now_s()
        claims = p.Claims(
            iss=ISSUER,
            aud=(request.audience,) if isinstance(request.audience, str) else request.audience,
            sub=request.subject_ref,
            tenant=request.tenant or "",
            class_=request.class_,
            iat=now_s,
            nbf=now_s,
            exp=now_s + request.ttl_s,
            tid=f"t{book.number()}",
            epoch=book.floors.current,
            kid=book.kid,
            alg="ed25519",
            caveats=request.caveats,
        )
        return book.add(claims), claims

    def _operator(self, call: Call) -> None:
        """Let only the operator pass: a good token whose root is the operator's."""
        entry = self.book.standing(call.capability)
        if entry.claims.sub != OPERATOR or len(entry.blocks) > 1:
            raise Forbidden("The capability does not cover this.", reason="caveat:op")

    # --- issue and verify

    async def issue(self, request: p.Issue, call: Call = NOBODY) -> p.Issued:
        """Issue a token."""
        self._operator(call)
        if request.ttl_s > p.TTL_S_MAX:
            raise Malformed(f"A token lives at most {p.TTL_S_MAX} s.", reason="ttl_too_long")
        if request.accept_algs and "ed25519" not in request.accept_algs:
            raise Malformed("No acceptable algorithm.", reason="no_acceptable_alg")
        for caveat in request.caveats:
            check_caveat(caveat)
        token, claims = self._mint(request)
        return p.Issued(token, claims.kid, claims.alg, claims.epoch, claims.exp, claims.caveats, claims.tid)

    async def verify(self, request: p.Verify, call: Call = NOBODY) -> p.Verified:
        """Judge one token."""
        return self._verify(request)

    def _verify(self, request: p.Verify) -> p.Verified:
        try:
            entry = self.book.standing(request.token)
            warnings = self.book.unjudged(entry, request.context)
        except PenstockError as error:
            return p.Verified(ok=False, reason=str(error.facts.get("reason", error.code)))
        return p.Verified(ok=True, claims=entry.claims, warnings=tuple(warnings))

    async def verify_batch(self, request: p.VerifyBatch, call: Call = NOBODY) -> p.VerifiedBatch:
        """Judge many."""
        if len(request.items) > p.VERIFY_BATCH_MAX:
            raise OverLimit(f"A batch has at most {p.VERIFY_BATCH_MAX} items.", limit="verify_batch")
        return p.VerifiedBatch(tuple(map(self._verify, request.items)))

    # --- revoke and rotate

    async def revoke(self, request: p.Revoke, call: Call = NOBODY) -> p.Revoked:
        """Raise the epoch and note what is revoked below it."""
        self._operator(call)
        kind, value = next((kind, value) for kind, value in request.targets().items() if value is not None)
        if kind == "epoch":
            self._raise_floor(int(value))
        else:
            self._revoke_named(kind, str(value), force=request.force)
        return p.Revoked(self.book.floors.current)

    def _raise_floor(self, epoch: int) -> None:
        floors = self.book.floors
        if epoch > floors.current + 1:
            raise Malformed(f"The current epoch is {floors.current}.", reason="epoch_too_high")
        if epoch > floors.issuer:
            floors.issuer = epoch
            floors.current = max(floors.current, epoch)
            self._publish("epoch", str(epoch), epoch)
            self._mint_operator()

    def _revoke_named(self, kind: p.RevocationKind, value: str, *, force: bool) -> None:
        floors = self.book.floors
        operator = self.book.standing(self.operator_token).claims
        own = value in (operator.sub, operator.tid) and kind in ("subject_ref", "tid")
        if own and not force:
            raise Conflict("This revokes the operator's own token.", reason="needs_force")
        if kind == "kid" and value not in self.book.kids:
            raise NotFound("No key of this name verifies here.", reason="no_such_key")
        floors.current += 1
        if kind in ("tid", "rid"):
            floors.ids.add(value)
        else:
            floors.levels[kind, value] = floors.current
        self._publish(kind, value, floors.current)
        if kind == "kid" or own:
            self._mint_operator()

    def _publish(self, kind: p.RevocationKind, value: str, floor: int) -> None:
        floors = self.book.floors
        floors.seq += 1
        at_ms = int(self._clock.wall() * 1000)
        entry = p.Revocation(floors.seq, kind, value, floor, at_ms)
        floors.feed.append(entry)
        floors.in_force[kind, value] = entry

    async def rotate(self, request: p.Rotate, call: Call = NOBODY) -> p.Rotated:
        """Change the key; the epoch stays."""
        self._operator(call)
        kid = self.book.rotate()
        self._mint_operator()
        return p.Rotated(kid, self.book.floors.current)

    async def attest(self, request: p.Attest, call: Call = NOBODY) -> p.Attested:
        """Vouch for a head that did not go back; the signature is a placeholder."""
        self._operator(call)
        n, head = self._attested.get(request.service, (0, ""))
        if request.n < n or (request.n == n and request.head != head):
            raise Conflict("It was attested with another hash.", reason="rollback", n=n)
        self._attested[request.service] = (request.n, request.head)
        at_ms = int(self._clock.wall() * 1000)
        return p.Attested(request.service, request.n, request.head, at_ms, self.book.kid, "unsigned")

    async def issued(self, request: p.ListIssued, call: Call = NOBODY) -> p.IssuedList:
        """List the tokens of the book; the cursor counts those that were shown."""
        self._operator(call)
        if request.cursor is not None and not request.cursor.isdecimal():
            raise Malformed("This is not a cursor of ours.", reason="bad_cursor")
        begin = int(request.cursor or 0)
        known = [(claims, self.book.state_of(claims)) for claims in self.book.handed_out() if claims.sub != OPERATOR]
        wanted = [each for each in known if request.all or each[1] == "good"]
        end = begin + request.limit
        page = tuple(_issued(claims, state) for claims, state in wanted[begin:end])
        return p.IssuedList(page, str(end) if end < len(wanted) else None)

    # --- what everybody may read

    async def keys(self, request: p.GetKeys, call: Call = NOBODY) -> p.KeySet:
        """List the kids that verify, newest first."""
        now_s, mono_s = self.book.now_s(), self._clock.monotonic()
        good = [(kid, until) for kid, until in self.book.kids.items() if until is None or until > mono_s]
        ends = {kid: now_s + (OPERATOR_TTL_S if until is None else int(until - mono_s)) for kid, until in good}
        keys = [
            p.Jwk("OKP", kid, "ed25519", now_s, ends[kid], crv="Ed25519", x=kid, use="sig") for kid, _ in reversed(good)
        ]
        return p.KeySet(tuple(keys))

    async def revocations(self, request: p.GetRevocations, call: Call = NOBODY) -> p.Revocations:
        """Read the feed; a reader that is too far behind gets all that is in force, and is told."""
        floors = self.book.floors
        oldest = floors.feed[0].seq if floors.feed else floors.seq + 1
        gap = request.since + 1 < oldest or request.since > floors.seq
        entries = tuple(floors.in_force.values() if gap else (e for e in floors.feed if e.seq > request.since))
        return p.Revocations(floors.seq, floors.current, floors.issuer, LEASE_MS, gap, entries)


def _issued(claims: p.Claims, state: p.TokenState) -> p.IssuedToken:
    return p.IssuedToken(
        tid=claims.tid,
        sub=claims.sub,
        tenant=claims.tenant or f"sub:{claims.sub}",
        class_=claims.class_,
        aud=claims.aud,
        caveats=claims.caveats,
        iat=claims.iat,
        exp=claims.exp,
        kid=claims.kid,
        epoch=claims.epoch,
        by=OPERATOR,
        state=state,
    )
