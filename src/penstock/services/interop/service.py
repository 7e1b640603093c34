"""The wiring of svc-interop: what it is made of, as child specs in start order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from penstock.capability.verifier import CapabilityVerifier
from penstock.kernel.backoff import FullJitter
from penstock.kernel.channel import Full
from penstock.kernel.child import ChildSpec, Drain
from penstock.kernel.restart import Escalation, RestartPolicy
from penstock.kernel.snapshot import Snapshot
from penstock.kernel.supervisor import SupervisorOptions
from penstock.kernel.worker import Job
from penstock.net.caller import call_of
from penstock.net.server.listener import Listener
from penstock.net.server.listener_config import listener_options
from penstock.net.server.stranger_quota import known_by
from penstock.services.interop.api import InteropApi
from penstock.services.interop.audit_writer import Attest, AuditWriter
from penstock.services.interop.authority import BridgeAuthority
from penstock.services.interop.brownout import Brownout
from penstock.services.interop.callers import BridgeCallers
from penstock.services.interop.calls import BridgeCalls
from penstock.services.interop.endpoint_topics import EndpointTopics
from penstock.services.interop.inbox_routes import InboxRoutes
from penstock.services.interop.intake import BridgeIntake
from penstock.services.interop.reads import BridgeReads
from penstock.services.interop.records import BridgeRecords
from penstock.services.interop.replays import EventReplays
from penstock.services.interop.routes import BridgeRoutes
from penstock.services.interop.sentinel import BrownoutSentinel
from penstock.services.interop.sqs.face.wiring import SqsFace
from penstock.services.interop.webhooks import Behind
from penstock.services.interop.worker import BridgeWorker

if TYPE_CHECKING:
    from penstock.contracts.capability import Verifier
    from penstock.contracts.mailbox import Mailbox
    from penstock.contracts.passport import Issued, Passport
    from penstock.contracts.storage import Storage
    from penstock.kernel.channel import Channel
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.limiter import ByteBudget
    from penstock.services.interop.config import InteropOptions
    from penstock.services.interop.endpoints import Endpoints
    from penstock.services.interop.work import BridgeJob

SERVICE: Final = "svc-interop"
MAILBOX_S: Final = 1.0
STORAGE_S: Final = 2.0
PASSPORT_S: Final = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class BridgeAround:
    """What the node lends: the services behind by their contracts, the byte budget, and how tokens are verified.

    `mint` gets the bridge's own issuer token from svc-passport. Without a passport nothing is checked or issued: only
    for a node that was told so.
    """

    mailbox: Mailbox | None = None
    storage: Storage | None = None
    passport: Passport | None = None
    mint: Callable[[], Awaitable[Issued]] | None = None
    # Gets one of another tenant; None where the bridge has no way to one.
    mint_for: Callable[[str], Awaitable[Issued]] | None = None
    verifier: Verifier | None = None
    budget: ByteBudget | None = None
    # Has svc-passport vouch for the head of the bridge's audit. The bridge's own token is bound to its tenant and may
    # not: whoever wires the bridge asks for it.
    attest: Attest | None = None


class InteropService:
    """One bounded work queue, a pool of workers, the sentinel, the audit's writer, and a listener in front."""

    def __init__(self, inventory: Inventory, options: InteropOptions, around: BridgeAround) -> None:
        """Declare everything; nothing runs yet."""
        self._options = options
        self._inventory = inventory
        self.endpoints: Snapshot[Endpoints] = Snapshot(options.endpoints)
        self.brownout = Brownout(options.brownout)
        self.records = BridgeRecords(inventory, options)
        self.work: Channel[BridgeJob] = inventory.channel(
            "work", Job, capacity=options.work_capacity, full=Full.REFUSE, producers="listener", consumers="worker"
        )
        self._make_inside(around)
        self._make_edge(around)

    def _make_inside(self, around: BridgeAround) -> None:
        inventory, options, brownout = self._inventory, self._options, self.brownout
        passport_calls = BridgeCalls(inventory, "svc-passport", PASSPORT_S, brownout)
        self.authority = BridgeAuthority(inventory, around.passport, around.mint, passport_calls, around.mint_for)
        mailbox_calls = BridgeCalls(inventory, "svc-mailbox", MAILBOX_S, brownout)
        self.topics = EndpointTopics(inventory, around.mailbox, mailbox_calls, self.authority)
        behind = Behind(
            self.topics,
            around.storage,
            BridgeCalls(inventory, "svc-storage", STORAGE_S, brownout),
            self.authority,
        )
        self._behind = behind
        self._worker = BridgeWorker(inventory, behind, self.records, max(1, options.workers // 2))
        self.audit = AuditWriter(inventory, options, self.records, around.attest)
        self.sentinel = BrownoutSentinel(inventory, brownout, self.work, self.records)
        self.sqs = SqsFace(inventory, options.sqs, around.mailbox, self.authority) if options.sqs.enabled else None

    def _make_edge(self, around: BridgeAround) -> None:
        inventory, options = self._inventory, self._options
        callers, reads = BridgeCallers(around.verifier), BridgeReads(self._behind)
        self._intake = BridgeIntake(
            inventory, options, self.endpoints, self.work, records=self.records, brownout=self.brownout
        )
        self.api = InteropApi(
            inventory, self.endpoints, self.records, callers, intake=self._intake, reads=reads,
            replays=EventReplays(self._behind, self.records),
        )  # fmt: skip
        edge = BridgeRoutes(options, self._intake, reads, callers)
        self.routes = [*edge.routes(), *InboxRoutes(self.api).routes()]
        listening = listener_options(options.listener)
        if self.sqs is not None:
            self.routes += self.sqs.routes(lambda request, op: callers.allow(call_of(request), op), self._url)
            # A receiver that waits is a task of the listener.
            listening = replace(listening, tasks_max=listening.tasks_max + options.sqs.waiters_max)
        self.listener = Listener(
            inventory, listening, self.routes, budget=around.budget, admission=edge.admit,
            problem_words=None if self.sqs is None else self.sqs.endpoint.words,
            known=known_by(around.verifier) if isinstance(around.verifier, CapabilityVerifier) else None,
        )  # fmt: skip

    def _url(self) -> str:
        """Return where clients on this machine reach the listener."""
        options, host = self.listener.options, self.listener.options.host or "127.0.0.1"
        named = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "::1": "[::1]"}.get(host, host)  # noqa: S104 - only compared
        return f"{'http' if options.tls_cert_path is None else 'https'}://{named}:{self.listener.port}"

    def told(self) -> dict[str, dict[str, str]]:
        """Return what the node's ready line says about this service."""
        return {} if self.sqs is None else self.sqs.told()

    def apply(self, options: InteropOptions) -> None:
        """Take new settings: endpoints and their secrets are swapped in one step, and so is the rate."""
        self.endpoints.swap(options.endpoints)
        self._intake.rate.rate = options.rps
        self._intake.rate.depth = options.burst
        if self.sqs is not None:
            self.sqs.keys.configure(options.sqs.keys)

    def children(self) -> list[ChildSpec]:
        """List what this service runs, in start order; it stops in reverse."""
        return [
            # First to start and last to stop: what the others decide is still written.
            ChildSpec("audit_writer", self.audit.run, drain=Drain.FINISH, consumes=(self.records.acts,)),
            ChildSpec("authority", self.authority.run),
            ChildSpec("sentinel", self.sentinel.run),
            ChildSpec("topic_keeper", lambda child: self.topics.run(child, self.endpoints)),
            ChildSpec(
                "worker",
                lambda child: self._worker.run(child, self.work),
                instances=self._options.workers,
                critical=True,
                drain=Drain.FINISH,
                consumes=(self.work,),
            ),
            *(() if self.sqs is None else self.sqs.children()),
            # Last: it starts when everything behind it runs, and stops taking work first.
            ChildSpec("listener", self.listener.run, critical=True, drain=Drain.STOP_INTAKE, announces=True),
        ]

    def supervision(self) -> SupervisorOptions:
        """Say how long the drain may take; more than five crashes of a task in a minute end the service."""
        backoff = FullJitter(base_s=0.1, cap_s=5.0)
        policy = RestartPolicy(escalation=Escalation.FATAL, backoff=backoff)
        return SupervisorOptions(drain_deadline_s=self._options.drain_deadline_s, policy=policy)

    async def close(self) -> None:
        """Let the threads go, after the supervisor ended everything else; safe to call twice."""
        await self.audit.close()
        if self.sqs is not None:
            await self.sqs.close()
