"""svc-passport: issue, verify, revoke, rotate, keys and the revocation feed. Pure."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Protocol

import msgspec

from penstock.contracts.call import NOBODY, Call
from penstock.contracts.capability import RequestContext, TrafficClass
from penstock.contracts.method import Method, Methods

VERIFY_BATCH_MAX: Final = 512
TTL_S_DEFAULT: Final = 900
TTL_S_MAX: Final = 3600
ISSUED_MAX: Final = 256

RevocationKind = Literal["epoch", "kid", "tenant", "subject_ref", "tid", "rid"]
TokenState = Literal["good", "expired", "revoked"]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class Issue(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename={"class_": "class"}):
    """Ask for a token; the capability of the call has to cover what is asked."""

    subject_ref: Text
    audience: Text | tuple[Text, ...]
    tenant: Text | None = None
    class_: TrafficClass = "authed"
    ttl_s: Annotated[int, msgspec.Meta(ge=1)] = TTL_S_DEFAULT
    caveats: tuple[str, ...] = ()
    accept_algs: tuple[str, ...] = ()


class Issued(msgspec.Struct, frozen=True):
    """A new token and what it says."""

    token: str
    kid: str
    alg: str
    epoch: int
    exp: int
    caveats: tuple[str, ...]
    # What revokes it, and finds it in the audit.
    tid: str = ""

    def __repr__(self) -> str:
        """Show which it is, and nothing that could be used."""
        return f"Issued(tid={self.tid!r}, kid={self.kid!r}, exp={self.exp}, caveats={self.caveats!r})"


class Verify(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Ask whether a token is good; what the context does not give is not checked and named in the warnings."""

    token: str
    context: RequestContext = RequestContext()


class Claims(msgspec.Struct, frozen=True, omit_defaults=True, rename={"class_": "class"}):
    """What a good token says."""

    iss: str
    aud: tuple[str, ...]
    sub: str
    tenant: str
    class_: TrafficClass
    iat: int
    nbf: int
    exp: int
    tid: str
    epoch: int
    kid: str
    alg: str
    caveats: tuple[str, ...] = ()
    rids: tuple[str, ...] = ()


class Verified(msgspec.Struct, frozen=True, omit_defaults=True):
    """The verdict; a bad token is an answer, not an error. Never authoritative: the verifying service decides."""

    ok: bool
    claims: Claims | None = None
    reason: str = ""
    warnings: tuple[str, ...] = ()
    authoritative: bool = False


class VerifyBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Many tokens at once, each judged on its own."""

    items: tuple[Verify, ...]


class VerifiedBatch(msgspec.Struct, frozen=True):
    """The verdicts, in order."""

    results: tuple[Verified, ...]


class Revoke(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Revoke exactly one of these; `force` lets the operator revoke himself."""

    epoch: Annotated[int, msgspec.Meta(ge=0)] | None = None
    kid: str | None = None
    tenant: str | None = None
    subject_ref: str | None = None
    tid: str | None = None
    rid: str | None = None
    reason: str = ""
    force: bool = False

    def __post_init__(self) -> None:
        """Refuse none and several: msgspec turns this into a validation error."""
        if sum(value is not None for value in self.targets().values()) != 1:
            raise ValueError("exactly one of epoch, kid, tenant, subject_ref, tid and rid is revoked")

    def targets(self) -> dict[RevocationKind, str | int | None]:
        """Return the six kinds of target, one of them set."""
        return {
            "epoch": self.epoch,
            "kid": self.kid,
            "tenant": self.tenant,
            "subject_ref": self.subject_ref,
            "tid": self.tid,
            "rid": self.rid,
        }


class Revoked(msgspec.Struct, frozen=True):
    """It took effect."""

    current_epoch: int


class Rotate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sign with a new key from now on; the old one verifies for its grace."""


class Rotated(msgspec.Struct, frozen=True):
    """The new key; the epoch stays."""

    kid: str
    epoch: int


class Attest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask the issuer's key to vouch for the head of a service's hash chain: line `n` has this hash."""

    service: Text
    n: Annotated[int, msgspec.Meta(ge=1)]
    head: Text


class Attested(msgspec.Struct, frozen=True):
    """The issuer's word for it. `capability.attesting` says what is signed and checks it."""

    service: str
    n: int
    head: str
    at_ms: int
    kid: str
    # Base64url, without padding.
    signature: str


class ListIssued(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Ask for a page of what was issued, newest first; the cursor is that of the page before."""

    # Those that have expired or were revoked, too.
    all: bool = False
    cursor: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,16}(?![\s\S])")] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=ISSUED_MAX)] = ISSUED_MAX


class IssuedToken(msgspec.Struct, frozen=True, rename={"class_": "class"}):
    """What the audit tells of a token: everything but the token, which the issuer does not keep."""

    tid: str
    sub: str
    tenant: str
    class_: TrafficClass
    aud: tuple[str, ...]
    caveats: tuple[str, ...]
    iat: int
    exp: int
    kid: str
    epoch: int
    # Whose token it was issued with.
    by: str
    state: TokenState


class IssuedList(msgspec.Struct, frozen=True):
    """Tokens, newest first. A page may be short and still have a cursor; without one it is the last."""

    tokens: tuple[IssuedToken, ...]
    cursor: str | None = None


class GetKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask for the public keys."""


class Jwk(msgspec.Struct, frozen=True, omit_defaults=True):
    """A public key as a JWK: OKP for Ed25519, AKP for the hybrid."""

    kty: str
    kid: str
    alg: str
    nbf: int
    exp: int
    crv: str = ""
    x: str = ""
    pub: str = ""
    # Always `sig`, and said by whoever makes one: what equals its default is left out.
    use: str = ""


class KeySet(msgspec.Struct, frozen=True):
    """Every key that verifies now, newest first."""

    keys: tuple[Jwk, ...]


class GetRevocations(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask for what was revoked after `since`."""

    since: Annotated[int, msgspec.Meta(ge=0)] = 0


class Revocation(msgspec.Struct, frozen=True):
    """One entry of the feed: tokens with an epoch below the floor are revoked at this level; or one revoked id."""

    seq: int
    kind: RevocationKind
    value: str
    floor: int
    at_ms: int


class Revocations(msgspec.Struct, frozen=True):
    """The feed from `since`, or all that is in force when `since` is too old (`snapshot`)."""

    seq: int
    current_epoch: int
    floor: int
    lease_ms: int
    snapshot: bool
    entries: tuple[Revocation, ...]


class Passport(Protocol):
    """What svc-passport does for the others."""

    async def issue(self, request: Issue, call: Call = NOBODY) -> Issued:
        """Issue a token that the call's capability covers."""

    async def verify(self, request: Verify, call: Call = NOBODY) -> Verified:
        """Judge one token."""

    async def verify_batch(self, request: VerifyBatch, call: Call = NOBODY) -> VerifiedBatch:
        """Judge up to 512 tokens; one bad item never fails the batch."""

    async def revoke(self, request: Revoke, call: Call = NOBODY) -> Revoked:
        """Revoke; answers after it took effect."""

    async def rotate(self, request: Rotate, call: Call = NOBODY) -> Rotated:
        """Change the signing key."""

    async def attest(self, request: Attest, call: Call = NOBODY) -> Attested:
        """Sign the head of a service's chain; one that went back is refused. Needs `op=admin`."""

    async def issued(self, request: ListIssued, call: Call = NOBODY) -> IssuedList:
        """List what was issued, as the audit tells, and whether it is still good."""

    async def keys(self, request: GetKeys, call: Call = NOBODY) -> KeySet:
        """List the public keys."""

    async def revocations(self, request: GetRevocations, call: Call = NOBODY) -> Revocations:
        """Read the feed."""


METHODS: Final = Methods(
    2,
    [
        Method(1, "issue", Issue, Issued),
        Method(2, "verify", Verify, Verified, idempotent=True),
        Method(3, "verify_batch", VerifyBatch, VerifiedBatch, idempotent=True),
        Method(4, "revoke", Revoke, Revoked, idempotent=True),
        Method(5, "rotate", Rotate, Rotated),
        Method(6, "keys", GetKeys, KeySet, idempotent=True),
        Method(7, "revocations", GetRevocations, Revocations, idempotent=True),
        Method(8, "attest", Attest, Attested, idempotent=True),
        Method(9, "issued", ListIssued, IssuedList, idempotent=True),
    ],
    service="passport",
)
