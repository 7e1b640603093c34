"""What may be issued, and what a revocation changes: decisions over values, with `now` as an argument. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import msgspec

from penstock.capability.caveats import Caveat, check_scopes, parse, parse_all
from penstock.capability.covers import HeldAuthority, RequestedAuthority, uncovered
from penstock.capability.floors import name_digest, within
from penstock.capability.judged_token import JudgedToken
from penstock.capability.token import (
    ED25519,
    HYBRID,
    ID_BYTES,
    IssuingLevel,
    TokenRoot,
    check_via,
    read_audience,
    read_name,
    read_tenant,
)
from penstock.contracts import passport as p
from penstock.contracts.capability import Grant
from penstock.kernel.errors import Conflict, Forbidden, Malformed, NotFound, NotReady, OverLimit
from penstock.services.passport.policy import OFFERED, IssuePolicy
from penstock.services.passport.recovery import LONG_MS, SHORT_MS
from penstock.services.passport.state import IssuerState

SERVICE: Final = "svc-passport"
ISSUER: Final = "penstock"
OPERATOR: Final = "operator"
OPERATOR_TTL_S: Final = 365 * 24 * 3600
ATTESTED_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class IssuerView:
    """Everything an issue needs, read in one step: policy, keys and epoch belong together."""

    policy: IssuePolicy | None
    # The kid that signs, by algorithm.
    signing: dict[str, str]
    epoch: int


def root_of(request: p.Issue, held: JudgedToken, view: IssuerView, now_s: int, tid: bytes) -> TokenRoot:
    """Decide what the new token says, or why there will be none. Nothing is signed without a policy."""
    policy = view.policy
    if policy is None:
        raise NotReady("There is no policy to issue by.", reason="no_policy")
    if request.ttl_s > policy.limits.max_ttl_s:
        hint = "Ask for less, or raise passport.issuer_policy.max_ttl, which may be 24h at most."
        raise Malformed(f"A token lives at most {policy.limits.max_ttl_s} s.", reason="ttl_too_long", hint=hint)
    alg, caveats = chosen(request.caveats, request.accept_algs, policy)
    if alg not in view.signing:
        raise NotReady(f"There is no {alg} key yet.", reason="no_key")
    exp = now_s + request.ttl_s
    tenant = request.tenant if request.tenant is not None or held.is_operator else held.root.tenant
    check_scopes(audience(request), caveats)
    asked = RequestedAuthority(
        aud=audience(request),
        caveats=caveats,
        tenant=None if tenant is None else read_tenant(_named("tenant", tenant)),
        class_=request.class_,
        nbf=now_s,
        exp=exp,
    )
    _check_covered(request, held, asked)
    return TokenRoot(
        alg=alg,
        kid=view.signing[alg],
        epoch=view.epoch,
        iss=ISSUER,
        aud=asked.aud,
        sub=_named("subject_ref", request.subject_ref),
        tenant=asked.tenant,
        class_=request.class_,
        via=lineage(held),
        iat=now_s,
        nbf=now_s,
        exp=exp,
        tid=tid,
        caveats=caveats,
        epk=b"",
    )


def _named(field: str, value: str) -> str:
    """Take a name, or say which one cannot be taken: whoever asks holds no token yet that could be none."""
    try:
        return read_name(value)
    except Malformed as exc:
        raise Malformed(f"{field} is 1 to 256 printable characters.", reason="bad_name") from exc


# The same few requests come over and over; a refusal is never kept.
@lru_cache(maxsize=1024)
def chosen(asked: tuple[str, ...], accepted: tuple[str, ...], policy: IssuePolicy) -> tuple[str, tuple[Caveat, ...]]:
    """Choose the algorithm and read the caveats; a classical token where a hybrid was offered is marked as such."""
    offered = [alg for alg in OFFERED[policy.limits.pq_mode] if alg in policy.limits.algs]
    acceptable = [alg for alg in accepted or offered if alg in offered]
    if not acceptable:
        raise Malformed("No acceptable algorithm.", reason="no_acceptable_alg")
    alg = HYBRID if HYBRID in acceptable else acceptable[0]
    caveats = parse_all(asked)
    for caveat in caveats:
        policy.check(caveat)
    if any(caveat.name == "pq.fallback" for caveat in caveats):
        raise Malformed("Only the issuer adds pq.fallback.", reason="unknown_caveat")
    if alg == ED25519 and HYBRID in offered:
        caveats = (*caveats, parse("pq.fallback=true"))
    return alg, caveats


def audience(request: p.Issue) -> tuple[str, ...]:
    """Return who the token is for."""
    return read_audience((request.audience,) if isinstance(request.audience, str) else request.audience)


def _check_covered(request: p.Issue, held: JudgedToken, asked: RequestedAuthority) -> None:
    root = held.root
    if request.subject_ref == OPERATOR and not held.is_operator:
        raise Forbidden("Only the operator issues for the operator.", reason="caveat:sub")
    holding = HeldAuthority(
        aud=root.aud,
        caveats=held.token.caveats,
        tenant=root.tenant,
        class_=root.class_,
        exp=held.exp,
        operator=held.is_operator,
        shut=held.scoped.shut,
    )
    missing = uncovered(holding, asked)
    if missing is not None:
        raise Forbidden(f"The capability's {missing} does not cover what is asked.", reason=f"caveat:{missing}")


def lineage(held: JudgedToken) -> tuple[IssuingLevel, ...]:
    """Return what the new token descends from: revoking an id, the subject, tenant, key or epoch of any revokes it."""
    root = held.root
    issuer = IssuingLevel((root.tid, *held.rids), root.sub, root.owner, root.kid, root.epoch)
    via = (*root.via, issuer)
    check_via(via)
    return via


def operator_root(view: IssuerView, pq_mode: str, now_s: int, tid: bytes) -> TokenRoot:
    """Say what the operator's token says: every op, every audience, for a year."""
    alg = ED25519 if pq_mode == "off" else HYBRID
    return TokenRoot(
        alg=alg,
        kid=view.signing[alg],
        epoch=view.epoch,
        iss=ISSUER,
        aud=("*",),
        sub=OPERATOR,
        tenant=None,
        class_="internal",
        via=(),
        iat=now_s,
        nbf=now_s,
        exp=now_s + OPERATOR_TTL_S,
        tid=tid,
        caveats=(parse("op=*"),),
        epk=b"",
    )


def revoked(state: IssuerState, request: p.Revoke, now_ms: int, bound: str | None = None) -> IssuerState | None:
    """Return the state after a revocation, or None when nothing changes.

    `bound` is the tenant a revoker is bound to.
    """
    kind, value = next((kind, value) for kind, value in request.targets().items() if value is not None)
    if bound is not None and (kind in ("epoch", "kid") or (kind == "tenant" and value != bound)):
        raise Forbidden("This token revokes within its own tenant only.", reason="caveat:tenant")
    if kind == "epoch":
        epoch = int(value or 0)
        if epoch > state.current + 1:
            most = state.current + 1
            raise Malformed(f"An epoch is at most {most}, which revokes everything up to now.", reason="epoch_too_high")
        if epoch <= state.issuer:
            return None
        entry = p.Revocation(state.seq + 1, "epoch", str(epoch), epoch, now_ms)
        return state.with_revocation(entry, now_ms + LONG_MS, now_ms)
    name = _target(state, kind, str(value))
    operators = bound is None and hits_operator(state, kind, name)
    if operators and kind != "kid" and not request.force:
        raise Conflict(
            "This revokes the operator's own token: only by `force`, which issues another in its place.",
            reason="needs_force",
        )
    # A block may be a narrowing of the operator's token, which nobody can tell from its id.
    until_ms = now_ms + (LONG_MS if kind in ("kid", "rid") or operators else SHORT_MS)
    entry = p.Revocation(state.seq + 1, kind, _published(kind, name, bound), state.current + 1, now_ms)
    return state.with_revocation(entry, until_ms, now_ms)


def _published(kind: p.RevocationKind, name: str, bound: str | None) -> str:
    """Write what is revoked as the feed says it: names by their digest, and bound to the revoker's tenant."""
    value = name_digest(name) if kind in ("tenant", "subject_ref") else name
    return value if bound is None or kind == "tenant" else within(value, name_digest(bound))


def bound_tenant(by: Grant | None) -> str | None:
    """Return the tenant that a revoker is bound to; None for one that is bound to none."""
    return None if by is None or by.tenant.startswith("sub:") else by.tenant


def attested(state: IssuerState, request: p.Attest) -> IssuerState:
    """Return the state after a head was attested; a chain that is shorter or other than it was is refused."""
    if request.service == SERVICE:
        raise Conflict("svc-passport attests its own audit.", reason="own_audit")
    n, head = state.attested.get(request.service, (0, ""))
    if request.n < n or (request.n == n and request.head != head):
        raise Conflict(f"Line {n} of {request.service} was attested with another hash.", reason="rollback", n=n)
    known = {**state.attested, request.service: (request.n, request.head)}
    if len(known) > ATTESTED_MAX:
        raise OverLimit(f"At most {ATTESTED_MAX} services have their chains attested.", limit="attested")
    return msgspec.structs.replace(state, attested=known)


def _target(state: IssuerState, kind: p.RevocationKind, value: str) -> str:
    """Check the name of what is revoked: an id that cannot exist would be a revocation that does nothing."""
    if not 1 <= len(value) <= 256:
        raise Malformed("A name has 1 to 256 characters.", reason="bad_target")
    if kind in ("tid", "rid") and not (len(value) == 2 * ID_BYTES and set(value) <= set("0123456789abcdef")):
        raise Malformed(f"A {kind} is {2 * ID_BYTES} lower-case hex digits.", reason="bad_target")
    if kind == "kid" and not _knows_key(state, value):
        raise NotFound("No key of this name verifies here; GET /v1/keys lists those that do.", reason="no_such_key")
    return value


def _knows_key(state: IssuerState, kid: str) -> bool:
    """Tell whether a key is in the ring, or was revoked before.

    Who asks twice, because an answer got lost, is told the same.
    """
    revoked = (kept.entry for kept in state.kept if kept.entry.kind == "kid")
    return kid in {key.kid for key in state.keys} or kid in {entry.value for entry in revoked}


def hits_operator(state: IssuerState, kind: p.RevocationKind, value: str) -> bool:
    """Tell whether a revocation takes the operator's own token away."""
    if kind in ("tid", "rid"):
        return value in state.operator_ids
    return (kind, value) in (("subject_ref", OPERATOR), ("tenant", f"sub:{OPERATOR}"))
