"""What a token is worth before a request is looked at.

Its key, its time, what was revoked, and what it restricts. Pure.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.capability.caveats import Caveat
from penstock.capability.families import COUNTED
from penstock.capability.floors import Floors
from penstock.capability.judging import SKEW_S, AttributeCheck, ScopedChecks, make_ready, meant_for
from penstock.capability.metering import CountedCaveat
from penstock.capability.token import (
    ED25519,
    ID_BYTES,
    Token,
    TokenRoot,
)
from penstock.capability.trust import KeyRecord, Ring
from penstock.contracts.capability import Grant
from penstock.contracts.passport import Claims
from penstock.kernel.errors import Expired, Unauthenticated

CLASSICAL_ATTENUATION: Final = "classical_attenuation"


class VerifierPolicy(NamedTuple):
    """What a verifier believes and demands at one moment."""

    keys: Ring
    floors: Floors
    version: int
    pq_mode: str
    amnesia: bool


class JudgedToken:
    """A token judged on keys, floors and time, with its caveats ready to run. Not proven by itself."""

    __slots__ = (
        "_operator", "chain", "checks", "counted", "exp", "grant", "granted", "nbf", "proven_until", "record",
        "refused", "rids", "root", "scoped",
        "token", "until", "version",
    )  # fmt: skip

    def __init__(self, token: Token, record: KeyRecord, policy: VerifierPolicy) -> None:
        """Make everything ready that a request will ask for."""
        root = token.root
        caveats = token.caveats
        self.token = token
        self.root = root
        self.record = record
        self.version = policy.version
        self.chain = token.chain()
        self.rids = tuple(value[:ID_BYTES] for value in self.chain)
        self.exp = min([root.exp, *(caveat.number for caveat in caveats if caveat.name == "exp")])
        self.nbf = max([root.nbf, root.iat, *(caveat.number for caveat in caveats if caveat.name == "nbf")])
        # The root's own audience comes first; `judge_given` knows that.
        allows = meant_for(root.aud) if "*" not in root.aud else _anybody
        self.checks = (AttributeCheck("aud", "aud", allows, f"aud={','.join(root.aud)}"), *make_ready(caveats))
        # Those that count at one service each; most tokens have none.
        self.scoped = ScopedChecks((root.caveats, *(block.caveats for block in token.blocks)))
        # A caveat that no request can satisfy here; told only once the signatures hold, so that a forgery is a 401.
        self.refused = _refused_caveat(token, policy)
        # Without those of a scope: they give nothing elsewhere.
        self.granted = granted_ops(root)
        self.counted = _counted(token, self.rids)
        # Found out when somebody asks: few do.
        self._operator: bool | None = None
        # Set when signatures and proof were checked: until when that needs no repeating.
        self.proven_until = 0.0
        self.until = float(min(self.exp, record.exp))
        self.grant = self._grant(caveats)

    def _grant(self, caveats: tuple[Caveat, ...]) -> Grant:
        root = self.root
        return Grant(
            sub=root.sub,
            tenant=root.owner,
            class_=root.class_,
            tid=root.tid.hex(),
            aud=root.aud,
            exp=self.exp,
            epoch=root.epoch,
            kid=root.kid,
            rids=tuple(rid.hex() for rid in self.rids),
            caveats=tuple(map(str, caveats)),
        )

    @property
    def is_operator(self) -> bool:
        """Tell whether it is the operator's own.

        Issued by nobody's leave, granting `*`, and no block took that away.
        """
        if self._operator is None:
            ops = [caveat for caveat in self.token.caveats if caveat.name == "op" or caveat.scope]
            self._operator = not self.root.via and "*" in self.granted and all(caveat.is_star for caveat in ops)
        return self._operator

    def granted_at(self, service: str | None) -> frozenset[str]:
        """Return the ops that the issuer wrote into the root for this service."""
        return granted_ops(self.root, service) if self.scoped else self.granted

    def may_act_for(self, tenant: str) -> bool:
        """Tell whether a request may touch what belongs to this tenant."""
        return tenant == self.root.owner or (self.root.tenant is None and self.is_operator)

    def claims(self) -> Claims:
        """Write down what the token says."""
        root = self.root
        return Claims(
            iss=root.iss,
            aud=root.aud,
            sub=root.sub,
            tenant=root.owner,
            class_=root.class_,
            iat=root.iat,
            nbf=root.nbf,
            exp=self.exp,
            tid=root.tid.hex(),
            epoch=root.epoch,
            kid=root.kid,
            alg=root.alg,
            caveats=self.grant.caveats,
            rids=self.grant.rids,
        )


def _anybody(_audience: str) -> bool:
    return True


def granted_ops(root: TokenRoot, service: str | None = None) -> frozenset[str]:
    """Return the ops the issuer wrote into the root, for all services or for this one.

    What a holder adds can only take away.
    """
    ops = [frozenset(caveat.words) for caveat in root.caveats if caveat.name == "op" and caveat.counts_at(service)]
    return frozenset().union(*ops) if ops else frozenset()


def _counted(token: Token, rids: tuple[bytes, ...]) -> tuple[CountedCaveat, ...]:
    """List what is counted, block by block; of two counts of a kind in one block the narrower is the one."""
    counted: list[CountedCaveat] = []
    exp = token.root.exp
    for place, caveats in enumerate((token.root.caveats, *(block.caveats for block in token.blocks)), 1):
        chain = rids[:place]
        # A block's account lives as long as the block may, not as long as the child that happens to use it first.
        exp = min([exp, *(caveat.number for caveat in caveats if caveat.name == "exp")])
        limits: dict[str, int] = {}
        for caveat in caveats:
            if caveat.name in COUNTED:
                limits[caveat.name] = min(caveat.number, limits.get(caveat.name, caveat.number))
        counted += (CountedCaveat(name, limit, exp, token.root, chain) for name, limit in limits.items())
    return tuple(counted)


def record_of(kid: str, alg: str, policy: VerifierPolicy, now: float) -> KeyRecord:
    """Return the key that a token names; refuse one that is not known, or of another algorithm."""
    record = policy.keys.get(kid)
    if record is None or now >= record.exp:
        # A key that was revoked is gone from the ring; its tokens are told so, like all that were revoked.
        reason = "revoked" if ("kid", kid) in policy.floors.in_force else "unknown_kid"
        raise Unauthenticated("The key of the capability is not known.", reason=reason)
    if record.alg != alg:
        raise Unauthenticated("The capability names another algorithm than its key.", reason="bad_signature")
    return record


def stands(token: Token, policy: VerifierPolicy, now: float) -> JudgedToken:
    """Judge a decoded token on keys, time and revocation, cheapest first; signatures are somebody else's business."""
    root = token.root
    record = record_of(root.kid, root.alg, policy, now)
    standing = JudgedToken(token, record, policy)
    if policy.floors.hits(root, standing.rids):
        raise Unauthenticated("The capability was revoked.", reason="revoked")
    if now >= standing.exp:
        raise Expired("The capability has expired.", reason="expired")
    if now + SKEW_S < standing.nbf:
        raise Expired("The capability is not valid yet.", reason="not_yet_valid")
    return standing


def _refused_caveat(token: Token, policy: VerifierPolicy) -> str | None:
    """Judge what only the root and the verifier decide: these caveats restrict, and are never read to choose."""
    root = token.root
    for caveat in token.caveats:
        name = caveat.name
        if (
            (name == "tenant" and root.owner not in caveat.words)
            or (name == "scope" and root.class_ not in caveat.words)
            or (name == "amnesia" and bool(caveat.number) != policy.amnesia)
        ):
            return name
    return _refused_algorithm(token, policy.pq_mode)


def _refused_algorithm(token: Token, pq_mode: str) -> str | None:
    """Hold a token to the post-quantum mode; the exemption is read from the root alone, where the issuer wrote it."""
    if token.root.alg == ED25519:
        exempt = any(caveat.name == "pq.fallback" and caveat.number for caveat in token.root.caveats)
        return "pq.fallback" if pq_mode == "enforce" or (pq_mode == "require" and not exempt) else None
    # Attenuation keys are classical: who breaks them could drop every narrowing.
    return CLASSICAL_ATTENUATION if pq_mode == "enforce" and token.blocks else None
