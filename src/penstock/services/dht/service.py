"""The wiring of svc-dht: what it is made of, as child specs in start order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.capability.verifier import CapabilityVerifier
from penstock.kernel.backoff import FullJitter
from penstock.kernel.channel import Full
from penstock.kernel.child import Child, ChildSpec, Drain
from penstock.kernel.restart import RestartPolicy
from penstock.kernel.supervisor import SupervisorOptions
from penstock.kernel.worker import Job
from penstock.net.server.listener import Listener
from penstock.net.server.listener_config import listener_options
from penstock.net.server.stranger_quota import known_by
from penstock.services.dht.agents.bootstrapper import Bootstrapper
from penstock.services.dht.agents.bucket_writer import BucketWriters
from penstock.services.dht.agents.lookup_worker import LookupJob, LookupWorkers
from penstock.services.dht.agents.own_records import OwnFiles
from penstock.services.dht.agents.pinger import Pinger
from penstock.services.dht.agents.record_keeper import Keeping, RecordKeeper
from penstock.services.dht.agents.record_verifier import RecordVerifier
from penstock.services.dht.agents.refresher import Refresher
from penstock.services.dht.agents.republisher import Republisher
from penstock.services.dht.agents.routes import RouteQueues
from penstock.services.dht.api import DhtApi
from penstock.services.dht.authority import DhtAuthority
from penstock.services.dht.core.ids import BUCKETS
from penstock.services.dht.events import DhtEvents
from penstock.services.dht.peers.listener import PeerListener
from penstock.services.dht.peers.pool import PeerPool
from penstock.services.dht.peers.proving import Prover
from penstock.services.dht.peers.server import PeerServer
from penstock.services.dht.routes import DhtRoutes
from penstock.services.dht.state import DhtState

if TYPE_CHECKING:
    from penstock.contracts.capability import Verifier
    from penstock.kernel.channel import Channel
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.limiter import ByteBudget
    from penstock.kernel.pool import Pool
    from penstock.services.dht.config import DhtOptions

SERVICE: Final = "svc-dht"
VERIFY_CAPACITY: Final = 256
RESTART_S_MAX: Final = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class DhtSurroundings:
    """What a node or a swarm lends: byte budget, verifier, an identity, a pool that nodes of one process share."""

    budget: ByteBudget | None = None
    verifier: Verifier | None = None
    verify_pool: Pool | None = None
    seed: bytes | None = None


class DhtService:
    """Bucket writers, a record keeper, a republisher, a lookup pool, and the two listeners in front."""

    def __init__(self, inventory: Inventory, options: DhtOptions, around: DhtSurroundings | None = None) -> None:
        """Declare everything; nothing is read, written or dialled yet."""
        around = around or DhtSurroundings()
        self._inventory = inventory
        self._options = options
        self._own_verify = around.verify_pool is None
        self.verify = around.verify_pool or inventory.pool(
            "verify", threads=options.verify_threads, capacity=VERIFY_CAPACITY
        )
        self.state = DhtState(inventory, options)
        self.events = DhtEvents(inventory)
        self._declare_channels()
        self._make_peers(around)
        self._make_agents()
        authority = DhtAuthority(around.verifier)
        self.api = DhtApi(
            self.state, authority, work=self.work, republisher=self.republisher, keeper=self.keeper, pool=self.pool
        )
        self.routes = DhtRoutes(self.api, self.workers.touched_at).routes()
        self.listener: Listener | None = None
        if options.listener is not None:
            verifier = around.verifier
            self.listener = Listener(
                inventory,
                listener_options(options.listener),
                self.routes,
                budget=around.budget,
                admission=authority.admit,
                known=known_by(verifier) if isinstance(verifier, CapabilityVerifier) else None,
            )

    def _declare_channels(self) -> None:
        inventory, options = self._inventory, self._options
        self.work: Channel[LookupJob] = inventory.channel(
            "work",
            Job,
            capacity=options.work_capacity,
            full=Full.REFUSE,
            producers="listener, bootstrapper, refresher, republisher",
            consumers="lookup_worker",
        )
        self.records: Channel[Keeping] = inventory.channel(
            "records",
            Keeping,
            capacity=options.records_capacity,
            full=Full.REFUSE,
            producers="peer_listener, lookup_worker, republisher",
            consumers="record_keeper",
        )
        self.route = RouteQueues(inventory, self.state)

    def _make_peers(self, around: DhtSurroundings) -> None:
        inventory, state = self._inventory, self.state
        self._prover = Prover(inventory, state, self.verify)
        self.pool = PeerPool(inventory, state, self._prover)
        self.pinger = Pinger(inventory, state, self.pool, self.route)
        self.verifier = RecordVerifier(inventory, state, self.verify)
        self.keeper = RecordKeeper(inventory, state, self.verifier, self.events, self.records)
        self.server = PeerServer(inventory, state, self.keeper, self.records, self.pinger.doubt_id)
        self.peer_listener = PeerListener(inventory, state, self.pool, self._prover)
        self.republisher = Republisher(inventory, state, OwnFiles(self._options.directory, around.seed))
        self.pool.on_request = self.server.serve
        self.pool.on_failed = self.pinger.doubt
        self.pool.on_verified = self.route.try_seen
        self.pool.on_newcomer = self.pinger.meet

    def _make_agents(self) -> None:
        inventory, state = self._inventory, self.state
        self._writers = BucketWriters(state, self.route.queues, self.events, self.pinger.doubt)
        self.workers = LookupWorkers(
            inventory,
            state,
            self.pool,
            self.verifier,
            work=self.work,
            routes=self.route,
            records=self.records,
            book=self.keeper.book,
            events=self.events,
        )
        republisher = self.republisher
        republisher.workers, republisher.pool, republisher.records = self.workers, self.pool, self.records
        self._bootstrapper = Bootstrapper(
            inventory, state, self.pool, self.workers, routes=self.route, republisher=republisher, events=self.events
        )
        self._refresher = Refresher(state, self.workers)

    def children(self) -> list[ChildSpec]:
        """List what this service runs, in start order; it stops in reverse."""
        queues = self.route.queues
        children = [
            # First to start, because it reads who this node is, and last to end: its files are closed at the end.
            ChildSpec(
                "republisher",
                self.republisher.run,
                critical=True,
                announces=True,
                drain=Drain.FINISH,
                consumes=(self.republisher.queue,),
            ),
            ChildSpec("event_log", self.events.run),
            ChildSpec(
                "bucket_writer",
                self._writers.run,
                instances=BUCKETS,
                drain=Drain.FINISH,
                consumes=lambda index: (queues[index],),
            ),
            ChildSpec("record_keeper", self.keeper.run, critical=True, drain=Drain.FINISH, consumes=(self.records,)),
            ChildSpec("peer_pool", self._run_pool, critical=True),
            ChildSpec("pinger", self.pinger.run, drain=Drain.FINISH, consumes=(self.pinger.queue,)),
            # Each is judged alone: many that die together are no crash loop.
            ChildSpec(
                "lookup_worker",
                self.workers.run,
                instances=self._options.lookup_workers,
                critical=True,
                drain=Drain.FINISH,
                consumes=lambda _index: (self.work,),
            ),
            ChildSpec("peer_listener", self.peer_listener.run, critical=True, drain=Drain.STOP_INTAKE, announces=True),
            ChildSpec("refresher", self._refresher.run),
            ChildSpec("bootstrapper", self._bootstrapper.run),
        ]
        if self.listener is not None:
            # Last: it starts when everything behind it runs, and stops taking work first.
            children.append(
                ChildSpec("listener", self.listener.run, critical=True, drain=Drain.STOP_INTAKE, announces=True)
            )
        return children

    async def _run_pool(self, child: Child) -> None:
        await self.pool.run(child)

    def supervision(self) -> SupervisorOptions:
        """Say how long the drain may take; restarts wait at most a minute."""
        policy = RestartPolicy(backoff=FullJitter(base_s=0.1, cap_s=RESTART_S_MAX))
        return SupervisorOptions(drain_deadline_s=self._options.drain_deadline_s, policy=policy)

    async def close(self) -> None:
        """Let go of threads and connections, after the supervisor ended everything else."""
        self.pool.cut_all()
        await self.republisher.close()
        if self._own_verify:
            await self.verify.close()
