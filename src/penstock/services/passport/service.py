"""The wiring of svc-passport: what it is made of, as child specs in start order."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from penstock.capability.trust import KeyRecord
from penstock.capability.verifier import CapabilityVerifier, VerifierOptions
from penstock.kernel.channel import Full
from penstock.kernel.child import Child, ChildSpec, Drain
from penstock.kernel.deadline import current_deadline, timeout
from penstock.kernel.errors import Timeout
from penstock.kernel.supervisor import SupervisorOptions
from penstock.kernel.worker import Job
from penstock.net.bearer import admit_bearers
from penstock.net.calls.client import ClientOptions, HttpClient
from penstock.net.server.core import Core
from penstock.net.server.listener import Listener
from penstock.net.server.listener_config import listener_options
from penstock.net.server.stranger_quota import known_by
from penstock.services.passport import core
from penstock.services.passport.api import Ingress, PassportApi, PassportChannels
from penstock.services.passport.audit_signer import AuditSigner
from penstock.services.passport.audit_writer import AuditTrail
from penstock.services.passport.background import (
    PassportBusSubscriber,
    PassportConfigWatcher,
    ReadySampler,
    Seen,
    TrustHeartbeat,
)
from penstock.services.passport.book import OPEN_S, Book
from penstock.services.passport.issuance import Issuance, IssueJob
from penstock.services.passport.kms import Kms, KmsGate
from penstock.services.passport.kms_local import LocalKms, Seal, sealing_secret
from penstock.services.passport.registry import (
    FETCH_BYTES_MAX,
    Fetch,
    PolicySource,
    RegistrySync,
    anchor_of,
    from_data_dir,
    from_file,
    from_ram,
    from_url,
)
from penstock.services.passport.revocation import PolicySeen, RevocationWorker, RevokeJob
from penstock.services.passport.routes import VERIFYING, PassportRoutes
from penstock.services.passport.store import FileStore, MemoryStore, PassportStore

if TYPE_CHECKING:
    from penstock.capability.verifier import PqMode
    from penstock.kernel.bus import Bus
    from penstock.kernel.channel import Channel
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.limiter import ByteBudget
    from penstock.services.passport.config import KmsOptions, PassportOptions
    from penstock.services.passport.policy import Limits


SERVICE = core.SERVICE
# The last signature of the audit is waited for so long at the end; the next start signs what is missing.
LAST_SIGN_S = 2.0


class VerifyingListener(Listener):
    """A listener that goes on verifying while it drains: readers outlive writers."""

    def _make_core(self) -> Core:
        core = super()._make_core()
        core.always_open |= {core.endpoints[route] for route in core.router.routes if route.path in VERIFYING}
        return core


@dataclass(frozen=True, kw_only=True, slots=True)
class Around:
    """What the node lends: its byte budget, its bus, a reader of the live settings, and how all its services verify."""

    budget: ByteBudget | None = None
    bus: Bus | None = None
    limits: Callable[[], Limits] | None = None
    verifying: VerifierOptions = field(default_factory=VerifierOptions)


class PassportService:
    """Two bounded channels, an issuance pool, one revocation worker, and the agents that keep policy and readiness."""

    def __init__(
        self, inventory: Inventory, options: PassportOptions, around: Around | None = None, *, kms: Kms | None = None
    ) -> None:
        """Declare everything; nothing is read or written yet."""
        around = around or Around()
        self._inventory = inventory
        self._options = options
        self._kms = KmsGate(inventory, kms or LazyKms(options), options.kms.limits)
        self._store: PassportStore = MemoryStore() if options.data_dir is None else FileStore(options.data_dir)
        self.book = Book(inventory, self._store, self._kms, options.limits)
        self._crypto = inventory.pool("crypto", threads=options.crypto_threads, capacity=256)
        pq_mode = cast("PqMode", options.limits.pq_mode)
        judged = replace(around.verifying, amnesia=options.data_dir is None, pq_mode=pq_mode)
        self.verifier = CapabilityVerifier(self.book.trust, inventory.clock, judged, pool=self._crypto)
        self.trail = AuditTrail(inventory, self._store)
        self._declare_channels()
        self._make_agents(around.bus, around.limits or (lambda: options.limits))
        self._make_edge(around.budget)

    def _declare_channels(self) -> None:
        options = self._options
        self._issue: Channel[IssueJob] = self._inventory.channel(
            "issue", Job, capacity=options.issue_capacity, full=Full.REFUSE, producers="listener", consumers="issuance"
        )
        self._revoke: Channel[RevokeJob] = self._inventory.channel(
            "revoke", Job, capacity=options.revoke_capacity, full=Full.REFUSE, producers="listener",
            consumers="revocation_worker",
        )  # fmt: skip

    def _make_agents(self, bus: Bus | None, limits: Callable[[], Limits]) -> None:
        inventory, options = self._inventory, self._options
        self._issuance = Issuance(inventory, self.book, self.verifier, self.trail)
        self._revocation = RevocationWorker(inventory, self.book, self.trail)
        self._registry_pool = inventory.pool("registry", threads=1, capacity=2)
        self._client: HttpClient | None = None
        self.registry = RegistrySync(
            inventory,
            self.book,
            PolicySource(self._fetch, self._remember_policy),
            poll_s=options.registry.poll_s,
            timeout_s=options.registry.timeout_s,
        )
        self._source: Fetch | None = None
        self._subscriber = PassportBusSubscriber(inventory, self.book, self.verifier)
        self._watcher = PassportConfigWatcher(self.book, bus, limits, self._revoke)
        self._heartbeat = TrustHeartbeat(inventory, self.book)
        self._signer = AuditSigner(inventory, self.book, self.trail, self._revoke)
        seen = Seen(self._kms, self.registry, self._issue, self._revoke)
        self.sampler = ReadySampler(inventory, self.book, seen, rotation_days=options.rotation_days)

    def _make_edge(self, budget: ByteBudget | None) -> None:
        inventory, options = self._inventory, self._options
        ingress = Ingress(inventory, rps=options.rps, inflight=options.inflight)
        self.api = PassportApi(
            inventory, self.book, self.verifier, PassportChannels(self._issue, self._revoke, ingress, self.trail)
        )
        self.routes = PassportRoutes(self.api, self.book).routes()
        self.listener = VerifyingListener(
            inventory,
            listener_options(options.listener),
            self.routes,
            budget=budget,
            admission=admit_bearers,
            known=known_by(self.verifier),
        )
        metrics, verifier = inventory.metrics, self.verifier
        # The founding document's name for what the listener counts among all its refusals.
        over_limit = metrics.counter("rejected_total", "Requests refused, by reason.", reason="over_limit")
        rejects = metrics.watched(
            "rejects_total", "Requests over a limit of size, count or ratio.", reason="over_limit"
        )
        rejects.append(lambda: over_limit.value)
        reads = {"hit": lambda: verifier.hits, "miss": lambda: verifier.misses, "refused": lambda: verifier.refusals}
        for result, read in reads.items():
            metrics.watched("capability_verify_total", "Tokens by how they were judged.", result=result).append(read)

    # --- children
    # ------------------------------------------------------------------------------------------------------

    def children(self) -> list[ChildSpec]:
        """List what this service runs, in start order; it stops in reverse."""
        return [
            # First to start and last to stop: the audit is written to its end.
            ChildSpec("audit_writer", self._run_audit, drain=Drain.FINISH, consumes=(self.trail.lines,)),
            ChildSpec(
                "revocation_worker",
                lambda child: self._revocation.run(child, self._revoke),
                critical=True,
                announces=True,
                drain=Drain.FINISH,
                consumes=(self._revoke,),
            ),
            ChildSpec("audit_signer", self._signer.run),
            ChildSpec("heartbeat", self._heartbeat.run),
            ChildSpec("registry_sync", self.registry.run, announces=True),
            ChildSpec("bus_subscriber", self._subscriber.run),
            ChildSpec("config_watcher", self._watcher.run),
            ChildSpec(
                "issuance",
                lambda child: self._issuance.run(child, self._issue),
                instances=self._options.workers,
                critical=True,
                drain=Drain.FINISH,
                consumes=(self._issue,),
            ),
            ChildSpec("ready_sampler", self.sampler.run),
            ChildSpec("listener", self.listener.run, critical=True, drain=Drain.STOP_INTAKE, announces=True),
        ]

    def supervision(self) -> SupervisorOptions:
        """Say how long the drain may take; crash loops are quarantined."""
        return SupervisorOptions(drain_deadline_s=self._options.drain_deadline_s, start_deadline_s=OPEN_S)

    async def _run_audit(self, child: Child) -> None:
        try:
            await self.trail.run(child)
        finally:
            # The last child to end: what the others used is let go here.
            if child.shutdown.draining:
                with suppress(Timeout):
                    async with timeout("audit_sign", LAST_SIGN_S):
                        await self._signer.sign()
                await self.close()

    async def close(self) -> None:
        """Let threads and connections go; safe to call twice."""
        for pool in (self._crypto, self._registry_pool):
            await pool.close()
        if self._client is not None:
            await self._client.close()
        await self._kms.close()
        await self.trail.close()
        await self.book.close()

    # --- the registry
    # --------------------------------------------------------------------------------------------------

    async def _remember_policy(self, version: int) -> None:
        """Have the one writer of the state keep the version; this task only waits for it."""
        job: RevokeJob = Job(PolicySeen(version), deadline=current_deadline())
        self._revoke.try_send(job)
        await job.reply

    async def _fetch(self) -> tuple[bytes, bytes]:
        if self._source is None:
            self._source = self._registry_source()
        return await self._source()

    def _registry_source(self) -> Fetch:
        options, pool = self._options.registry, self._registry_pool
        if not options.endpoint:
            if self._options.data_dir is None:
                return from_ram()
            return from_data_dir(self._options.data_dir / "passport", pool, options.timeout_s)
        anchor = anchor_of(options.public_key)
        if options.endpoint.startswith(("http://", "https://")):
            self._client = HttpClient(
                self._inventory,
                ClientOptions(
                    service="registry", op="registry_http", timeout_s=options.timeout_s, body_bytes_max=FETCH_BYTES_MAX
                ),
            )
            return from_url(options.endpoint, anchor, self._client, options.timeout_s)
        return from_file(Path(options.endpoint), anchor, pool, options.timeout_s)


class LazyKms:
    """The engine the options name, made when it is opened: declaring a service touches no file and no module."""

    def __init__(self, options: PassportOptions) -> None:
        self._data_dir = options.data_dir
        self._options: KmsOptions = options.kms
        self._engine: Kms | None = None

    @property
    def inline(self) -> bool:
        """Ask the engine."""
        return self._made.inline

    @property
    def _made(self) -> Kms:
        if self._engine is None:
            raise RuntimeError("the key store is not open")
        return self._engine

    def open(self, algs: tuple[str, ...], now_s: int) -> None:
        """Make the engine and open it."""
        self._engine = self._make()
        self._engine.open(algs, now_s)

    def _make(self) -> Kms:
        options = self._options
        if options.engine == "pkcs11":
            from penstock.services.passport.kms_pkcs11 import Pkcs11Kms  # noqa: PLC0415 - needs a library only it uses

            return Pkcs11Kms(options.module, options.token_label, options.pin)
        if self._data_dir is None:
            return LocalKms()
        folder = self._data_dir / "passport"
        secret = options.sealing_secret or sealing_secret(folder)
        return LocalKms(Seal(folder / "keys.sealed", secret))

    def sign(self, kid: str, message: bytes) -> bytes:
        """Sign by the engine."""
        return self._made.sign(kid, message)

    def rotate(self, algs: tuple[str, ...], now_s: int) -> None:
        """Rotate by the engine."""
        self._made.rotate(algs, now_s)

    def public_keys(self) -> tuple[KeyRecord, ...]:
        """Return the engine's public keys."""
        return self._made.public_keys()

    def close(self) -> None:
        """Close the engine, if it was ever opened."""
        if self._engine is not None:
            self._engine.close()
