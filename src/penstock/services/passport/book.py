"""The issuer's state while it runs: trust, policy, keys and operator.

One writer changes it; readers see whole states.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from penstock.capability.attesting import attest_input, signature_text
from penstock.capability.following import PublishedTrust
from penstock.capability.judged_token import VerifierPolicy, stands
from penstock.capability.making import draft
from penstock.capability.proving import UnprovenToken
from penstock.capability.token import (
    ED25519,
    HYBRID,
    ID_BYTES,
    Token,
    TokenRoot,
    decode,
    encode,
)
from penstock.capability.trust import Trust, ring_of
from penstock.contracts import passport as p
from penstock.kernel.errors import DownstreamUnavailable, Integrity, NotReady, PenstockError, Timeout
from penstock.kernel.log import Log
from penstock.kernel.snapshot import Snapshot
from penstock.services.passport import core
from penstock.services.passport.audit import LAST_BYTES, Evidence
from penstock.services.passport.policy import Descriptor, Limits, in_force
from penstock.services.passport.recovery import check_floors, with_all_revoked
from penstock.services.passport.state import IssuerState

if TYPE_CHECKING:
    from penstock.kernel.broadcast import Broadcast
    from penstock.kernel.inventory import Inventory
    from penstock.services.passport.audit_writer import AuditTrail
    from penstock.services.passport.kms import KmsGate
    from penstock.services.passport.store import PassportStore

STORE_S: Final = 5.0
# An audit without a mark is walked whole; four microseconds a record.
OPEN_S: Final = 60.0
OPERATOR_IDS_MAX: Final = 64
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PolicyEvent:
    """Something that issuers and verifiers go by has changed; telemetry, the truth is in the book."""

    kind: str  # policy, revoked, rotated
    version: int


class Book:
    """What the issuer knows. `open` loads it once; `revoke`, `rotate` and `adopt` are its only writers."""

    def __init__(self, inventory: Inventory, store: PassportStore, kms: KmsGate, limits: Limits) -> None:
        """Declare the pool for the store; nothing is read yet."""
        self.trust = Trust()
        self.view: Snapshot[core.IssuerView] = Snapshot(core.IssuerView(None, {}, 0))
        self.state = IssuerState()
        self.limits = limits
        # The operator's token is no longer good, or not of the kind the policy asks for, and is to be issued anew.
        self.owes_operator = False
        self.operator_token = ""
        # That token, the version of the trust it was judged on, and until when it is good.
        self._operator_judged: tuple[str, int, float] | None = None
        self.is_open = False
        # The audit, once the book is open: how much of it is signed for is kept with the state.
        self._trail: AuditTrail | None = None
        self._descriptor: Descriptor | None = None
        self._store = store
        self._kms = kms
        self._wall = inventory.clock.wall
        self._log = Log(inventory.service)
        self._pool = inventory.pool("passport_store", threads=1, capacity=64)
        inventory.timeout("passport_store", STORE_S, "503")
        self.events: Broadcast[PolicyEvent] = inventory.broadcast(
            "policy",
            PolicyEvent,
            producers="revocation_worker, registry_sync, config_watcher",
            consumers="bus_subscriber",
        )
        metrics = inventory.metrics
        metrics.gauge("passport_epoch_current", "The revocation counter.", read=lambda: float(self.state.current))
        metrics.gauge("passport_policy_version", "Version of the policy.", read=lambda: float(self._policy_version))

    @property
    def _policy_version(self) -> int:
        return 0 if self._descriptor is None else self._descriptor.version

    @property
    def algs(self) -> tuple[str, ...]:
        """Return the algorithms that keys are needed for."""
        return (ED25519,) if self.limits.pq_mode == "off" else (ED25519, HYBRID)

    # --- the beginning
    # -------------------------------------------------------------------------------------------------

    async def open(self, trail: AuditTrail) -> None:
        """Load the last run's state, the keys and the operator's token; refuse a state older than the audit."""
        if self.is_open:
            return
        loaded = await self._on_disk(self._store.load)
        if loaded is None:
            # Before there is any key: keys without a state are refused at the next start.
            await self._on_disk(self._store.save, IssuerState())
        state = loaded or IssuerState()
        self._trail = trail
        await self._check(state, trail, first=loaded is None)
        self.state = self._with_keys(state, retire_at=int(self._wall() + self.limits.grace_s))
        place = await self._on_disk(self._store.place)
        restored = (bool(state.place) and state.place != place) or await self._on_disk(self._store.was_restored)
        self.state = msgspec.structs.replace(self.state, place=place)
        if restored:
            await self._revoke_all(trail)
        elif self.state != loaded:
            await self._on_disk(self._store.save, self.state)
        self._swap()
        await self._publish_or_warn()
        await self._find_operator()
        self.is_open = True

    async def _check(self, state: IssuerState, trail: AuditTrail, *, first: bool) -> None:
        """Hold the state to the audit, and the audit to its signature; open the key store on the way."""
        walked = await self._on_disk(self._store.audited, seconds=OPEN_S)
        if state.current < walked.epoch:
            raise Integrity("The state is older than the audit: tokens would come back to life.", reason="rollback")
        noted = await self._on_disk(self._store.noted_revocations, seconds=OPEN_S)
        check_floors(state, noted, int(self._wall() * 1000))
        last = await self._on_disk(self._store.audit_part, None, LAST_BYTES)
        trail.begin(walked, last.data)
        now_s = int(self._wall())
        await self._kms.open(self.algs, now_s)
        if first:
            self._check_new_keys(now_s)
        keys = {**ring_of(p.KeySet(state.keys)), **{record.kid: record for record in self._kms.public_keys}}
        head = await self._on_disk(self._store.head)
        known = Evidence(state.audited, head, keys)
        await self._on_disk(self._store.check_head, walked, known, seconds=OPEN_S)

    def _check_new_keys(self, now_s: int) -> None:
        """Refuse keys of another life at a first start: a hardware module outlives the data directory."""
        old = [record.kid for record in self._kms.public_keys if record.nbf < now_s]
        if old and self._store.place():
            raise Integrity(
                f"There is no state and the key store holds keys from before, {', '.join(old)}: tokens that were "
                "revoked "
                "would come back to life. Put the state back, or give the module a token without keys.",
                reason="lost_state",
            )

    async def _revoke_all(self, trail: AuditTrail) -> None:
        """Revoke whatever was issued before the data directory was put back: what was revoked since is not known."""
        self.state = with_all_revoked(self.state, int(self._wall() * 1000))
        await self._on_disk(self._store.save, self.state)
        await trail.note_durably("restore", epoch=self.state.current)
        await self._on_disk(self._store.settle_restored)
        self._log.warning("passport.restored", epoch=self.state.current)

    async def _find_operator(self) -> None:
        """Keep the operator's token if it is good and less than half spent, else issue it anew."""
        token = await self._on_disk(self._store.operator_token)
        if self._is_good(token):
            self.operator_token = token
        else:
            await self.mint_operator()

    def _is_good(self, token: str) -> bool:
        """Tell whether a token verifies, may be used under this policy, and has more than half of its life left."""
        judging = VerifierPolicy(self.trust.keys, self.trust.floors, 0, self.limits.pq_mode, amnesia=False)
        try:
            standing = stands(decode(token), judging, self._wall())
        except PenstockError:
            return False
        lasts = standing.exp - self._wall() >= core.OPERATOR_TTL_S / 2
        return lasts and standing.is_operator and standing.refused is None and UnprovenToken(standing, b"", -1).run()

    def operator_stands(self) -> bool:
        """Tell whether the operator's token is good now.

        Its signature is ours; keys, floors and time may have changed.
        """
        now, judged = self._wall(), self._operator_judged
        if judged is None or judged[:2] != (self.operator_token, self.trust.version) or now >= judged[2]:
            until = self._operator_until(now)
            judged = self._operator_judged = (self.operator_token, self.trust.version, until)
        return now < judged[2]

    def _operator_until(self, now: float) -> float:
        """Judge the operator's token; returns until when the judgement holds, or a time that has passed."""
        judging = VerifierPolicy(self.trust.keys, self.trust.floors, 0, self.limits.pq_mode, amnesia=False)
        try:
            standing = stands(decode(self.operator_token), judging, now)
        except PenstockError:
            return 0.0
        return standing.until if standing.is_operator and standing.refused is None else 0.0

    async def renew_operator(self) -> None:
        """Issue the operator's token anew if that is owed and the keys for it are there."""
        if self.owes_operator and not self.lacks_keys:
            await self.mint_operator()

    async def mint_operator(self) -> None:
        """Make a new operator token and keep it where the operator finds it."""
        tid = os.urandom(ID_BYTES)
        root = core.operator_root(self.view.value, self.limits.pq_mode, int(self._wall()), tid)
        token = encode(await self.sign(root))
        ids = (tid.hex(), *(value[:ID_BYTES].hex() for value in decode(token).chain()))
        await self._keep(
            msgspec.structs.replace(self.state, operator_ids=(*self.state.operator_ids, *ids)[-OPERATOR_IDS_MAX:])
        )
        await self._on_disk(self._store.keep_operator_token, token)
        self.operator_token = token
        self.owes_operator = False

    async def sign(self, root: TokenRoot) -> Token:
        """Have the engine sign a root; its kid says which key, so a rotation cannot mislabel it."""
        prepared = draft(root)
        return prepared.signed(await self._kms.sign(root.kid, prepared.message))

    # --- changes: durable first, then in force, then told
    # --------------------------------------------------------------

    async def revoke(self, request: p.Revoke, bound: str | None = None) -> p.Revoked:
        """Revoke; when this returns it is durable and every verifier of this process refuses. May owe the operator."""
        now_ms = int(self._wall() * 1000)
        state = core.revoked(self.state, request, now_ms, bound)
        if state is None:
            return p.Revoked(self.state.current)
        if request.kid is not None:
            state = await self._without_key(state, request.kid)
        await self._commit(state, "revoked")
        self.owes_operator |= not self._is_good(self.operator_token)
        return p.Revoked(self.state.current)

    async def _without_key(self, state: IssuerState, kid: str) -> IssuerState:
        """Retire a key at once; if it signs, a new one takes its place in the same step, or none until there is one."""
        if kid in state.signing.values():
            try:
                await self._kms.rotate(self.algs, int(self._wall()))
            except (DownstreamUnavailable, Timeout) as error:
                # Better no key than this one: nothing is issued until the sampler's next try succeeds.
                self._log.error("revoke.no_new_key", reason=error.code)
            state = self._with_keys(state, retire_at=int(self._wall() + self.limits.grace_s))
        keys = tuple(key for key in state.keys if key.kid != kid)
        return msgspec.structs.replace(state, keys=keys)

    async def rotate(self) -> p.Rotated:
        """Sign with new keys; the old ones verify for their grace, and the epoch stays. Owes the operator a token."""
        await self._kms.rotate(self.algs, int(self._wall()))
        await self._commit(self._with_keys(self.state, retire_at=int(self._wall() + self.limits.grace_s)), "rotated")
        self.owes_operator = True
        return p.Rotated(
            self.view.value.signing[self.algs[-1] if self.limits.pq_mode == "enforce" else ED25519], self.state.current
        )

    async def attest(self, request: p.Attest) -> p.Attested:
        """Vouch for the head of another service's chain, and remember it: the chain never goes back."""
        state = core.attested(self.state, request)
        vouched = await self._vouch(request.service, request.n, request.head)
        await self._keep(state)
        return vouched

    async def vouch_audit(self, n: int, head: str) -> p.Attested:
        """Vouch for the head of this service's own audit."""
        return await self._vouch(core.SERVICE, n, head)

    async def _vouch(self, service: str, n: int, head: str) -> p.Attested:
        kid = self.view.value.signing.get(ED25519)
        if kid is None:
            raise NotReady("There is no key to sign with yet.", reason="no_key")
        at_ms = int(self._wall() * 1000)
        signature = await self._kms.sign(kid, attest_input(service, n, head, at_ms))
        return p.Attested(service, n, head, at_ms, kid, signature_text(signature))

    @property
    def lacks_keys(self) -> bool:
        """Tell whether the policy asks for an algorithm that no key signs with yet."""
        return not set(self.algs) <= self.state.signing.keys()

    def adopt(self, descriptor: Descriptor | None = None, limits: Limits | None = None) -> None:
        """Go by another policy from now on: a new descriptor, new local limits, or both."""
        self._descriptor = self._descriptor if descriptor is None else descriptor
        if limits is not None:
            self.owes_operator |= limits.pq_mode != self.limits.pq_mode
            self.limits = limits
        self._swap()
        self.events.publish(PolicyEvent("policy", self._policy_version))

    async def remember_policy(self, version: int) -> None:
        """Keep the newest version seen, so that a registry cannot roll back across a restart."""
        if version > self.state.policy_version:
            await self._keep(msgspec.structs.replace(self.state, policy_version=version))

    async def remember_audited(self, records: int) -> None:
        """Keep how long the audit is, so that one that is taken away is missed."""
        if records > self.state.audited:
            await self._keep(msgspec.structs.replace(self.state, audited=records))

    async def beat(self) -> None:
        """Tell those who read the published file that the issuer lives."""
        await self._on_disk(self._store.beat, int(self._wall() * 1000))

    def _with_keys(self, state: IssuerState, *, retire_at: int) -> IssuerState:
        """Return a state whose ring has the engine's keys but no revoked one; what no longer signs is given an end."""
        revoked = {kept.entry.value for kept in state.kept if kept.entry.kind == "kid"}
        records = [record for record in self._kms.public_keys if record.kid not in revoked]
        signing: dict[str, str] = {}
        for record in records:
            signing.setdefault(record.alg, record.kid)
        known = {key.kid: key for key in state.keys}
        fresh = [record.jwk() for record in records if record.kid in signing.values() and record.kid not in known]
        kept = [_ended(key, retire_at) if key.kid not in signing.values() else key for key in state.keys]
        alive = [key for key in kept if key.exp > self._wall()]
        return msgspec.structs.replace(state, keys=(*fresh, *alive), signing=signing)

    async def _commit(self, state: IssuerState, kind: str) -> None:
        """Make a state durable, then put it in force, then tell everybody."""
        state = self._with_audited(state)
        await self._on_disk(self._store.save, state)
        self.state = state
        self._swap()
        await self._publish()
        self.events.publish(PolicyEvent(kind, state.seq))

    async def _keep(self, state: IssuerState) -> None:
        """Keep a state that changes nothing for verifiers of this process."""
        state = self._with_audited(state)
        await self._on_disk(self._store.save, state)
        self.state = state
        await self._publish()

    def _with_audited(self, state: IssuerState) -> IssuerState:
        signed = 0 if self._trail is None else self._trail.signed
        return msgspec.structs.replace(state, audited=max(state.audited, signed))

    async def _publish(self) -> None:
        now = self._wall()
        published = PublishedTrust(int(now * 1000), self.state.key_set(now), self.state.snapshot())
        await self._on_disk(self._store.publish, published)

    async def _publish_or_warn(self) -> None:
        """Publish at the start.

        A disk without room leaves the file of the last run, which the heartbeat keeps alive.
        """
        try:
            await self._publish()
        except DownstreamUnavailable as error:
            self._log.warning("passport.not_published", reason=str(error))

    def _swap(self) -> None:
        """Put keys, floors, policy and epoch in force in one step."""
        state = self.state
        ring = ring_of(state.key_set(self._wall()))
        self.trust.swap(ring, state.floors())
        policy = None if self._descriptor is None else in_force(self._descriptor, self.limits)
        self.view.swap(core.IssuerView(policy, dict(state.signing), state.current))

    async def _on_disk(self, call: Callable[..., T], *args: Any, seconds: float = STORE_S) -> T:  # noqa: ANN401
        try:
            return await self._pool.run("passport_store", seconds, call, *args)
        except OSError as exc:
            raise DownstreamUnavailable("The store failed.", reason="store", outcome="unknown") from exc

    async def close(self) -> None:
        """Let the threads and the store go."""
        await self._pool.close()
        self._store.close()


def _ended(key: p.Jwk, retire_at: int) -> p.Jwk:
    return msgspec.structs.replace(key, exp=min(key.exp, retire_at))
