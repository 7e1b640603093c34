"""The wiring of omnigate: what it is made of, as child specs in start order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from penstock.kernel.bus import HealthChanged, KernelEvent
from penstock.kernel.child import Child, ChildSpec, Drain
from penstock.kernel.supervisor import SupervisorOptions
from penstock.net.calls.client import ClientOptions, HttpClient
from penstock.net.server.listener import Listener
from penstock.net.server.listener_config import listener_options
from penstock.services.omnigate.agents.housekeeping import Housekeeping
from penstock.services.omnigate.agents.passport_cache_refresher import PassportCacheRefresher
from penstock.services.omnigate.agents.prober import Prober
from penstock.services.omnigate.agents.readiness import Readiness
from penstock.services.omnigate.agents.workers import WorkerPool
from penstock.services.omnigate.config import QuotaOptions
from penstock.services.omnigate.gate.gate import AdmissionGate, GateOptions
from penstock.services.omnigate.gate.policy import (
    DEFAULT,
    AccessPolicy,
    Bundle,
    BundleRefused,
    ProvenCaller,
    read_bundle,
)
from penstock.services.omnigate.gate.rules import mounted_rules, own_rules, proxy_rules, signed_rules
from penstock.services.omnigate.own.boot import check_all, service_probes
from penstock.services.omnigate.own.dht import GatewayDhtRoutes
from penstock.services.omnigate.own.downstream import Downstream, DownstreamOptions
from penstock.services.omnigate.own.hydration import Hydrator
from penstock.services.omnigate.own.interop import GatewayInteropRoutes
from penstock.services.omnigate.own.mailbox import GatewayMailboxRoutes
from penstock.services.omnigate.own.mounted import MountedService, mount
from penstock.services.omnigate.own.objects import ObjectRoutes
from penstock.services.omnigate.own.passport import GatewayPassportRoutes
from penstock.services.omnigate.own.signed import SIGNED_TAGS, SignedService, mount_signed
from penstock.services.omnigate.own.view_routes import ViewRoutes, ViewSources
from penstock.services.omnigate.proxy.caller_headers import SignedCallerHeaders
from penstock.services.omnigate.proxy.config import read_routes
from penstock.services.omnigate.proxy.live_routes import LiveRoutes, RouteTables
from penstock.services.omnigate.proxy.route_admin import RouteAdmin
from penstock.services.omnigate.proxy.routes import Proxies, ProxyDeps, ProxyOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from penstock.capability.verifier import CapabilityVerifier
    from penstock.config import Settings
    from penstock.contracts.dht import Dht
    from penstock.contracts.interop import Interop
    from penstock.contracts.mailbox import Mailbox
    from penstock.contracts.passport import Passport
    from penstock.contracts.storage import Storage
    from penstock.kernel.broadcast import Broadcast
    from penstock.kernel.health import Gate as HealthGate
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.limiter import ByteBudget
    from penstock.kernel.watch import Watch
    from penstock.net.message import Request
    from penstock.net.server.admission import Refusal
    from penstock.net.server.route import Route
    from penstock.services.omnigate.config import FairOptions, OmnigateOptions
    from penstock.services.omnigate.gate.ticket import GateTicket
    from penstock.services.omnigate.proxy.config import ProxyRoute

SERVICE: Final = "omnigate"


@dataclass(frozen=True, kw_only=True, slots=True)
class GatewayBackends:
    """The services the gateway leads to, by their contracts; None for one that does not run here."""

    mailbox: Mailbox | None = None
    passport: Passport | None = None
    storage: Storage | None = None
    dht: Dht | None = None
    interop: Interop | None = None
    # Services of this process, served under their own paths too.
    mounted: tuple[MountedService, ...] = ()
    # The one of this process whose requests are signed; None where there is none, or it is not to be reached here.
    signed: SignedService | None = None
    # Those that were set up in another process: dialled at the start, like upstreams.
    distant: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveSettings:
    """What may change while the service runs: the value of the `cfg` watch."""

    quotas: QuotaOptions
    adaptive: bool
    read_timeout_s: float
    write_timeout_s: float
    bundle: Bundle


class OmnigateService:
    """A listener with the fair gate in it, the worker pool behind, and what they lead to."""

    def __init__(
        self,
        inventory: Inventory,
        options: OmnigateOptions,
        budget: ByteBudget | None = None,
        *,
        behind: GatewayBackends,
        verifier: CapabilityVerifier | None = None,
    ) -> None:
        """Declare everything; nothing runs yet. Without a verifier nothing is checked: for `insecure_dev` alone."""
        self._inventory = inventory
        self._options = options
        self.workers = WorkerPool(inventory, options.pool_size + options.fair.max_parked)
        self._teller = SignedCallerHeaders(inventory.clock)
        passing = _proxy_options(options)
        self.live_routes = LiveRoutes(options.routes_file, options.routes)
        self.proxies = Proxies(
            inventory,
            self.live_routes.tables.served,
            passing,
            ProxyDeps(
                shedding=self._is_shedding, teller=self._teller, budget=None if budget is None else budget.share()
            ),
        )
        self.downstreams = self._make_downstreams()
        self._booted = False
        self._probes = service_probes(behind.mailbox, behind.passport, behind.storage, behind.dht, behind.interop)
        self._client = HttpClient(inventory, ClientOptions(service="view", timeout_s=options.request_timeout_s))
        self._objects, self._bridge = self._object_routes(behind, passing.read_timeout_s)
        own, proxied = self._own_routes(behind), self.proxies.routes()
        mounted = mount(behind.mounted, own)
        self._signed = behind.signed
        signed = mount_signed(self._signed, _prefixes(proxied))
        self.routes: list[Route] = [*own, *mounted, *signed, *proxied]
        self._kept_rules = {**own_rules(own), **mounted_rules(mounted)}
        self._kept_routes = (*own, *mounted)
        self._tags = _tags(proxied, signed)
        self.live_routes.on_change = self._serve_routes
        self.route_admin = RouteAdmin(self.live_routes, self._client, self.proxies, lambda: self.readiness.unreached)
        bundle = _bundle(options.policy)
        self._policy = self._make_policy(bundle)
        self.gate = AdmissionGate(
            inventory,
            {**self._kept_rules, **signed_rules(signed), **proxy_rules(proxied)},
            GateOptions(fair=_for_pool(options), quotas=options.quotas, region=options.region),
            verifier=verifier,
            policy=self._decide,
        )
        self.events = self._declare_events()
        self.readiness = Readiness(inventory, self.gate, self._wellness(), self.proxies.healthy, events=self.events)
        asked = {name: (self.downstreams[name], probe) for name, probe in self._probes.items()}
        self._prober = Prober(asked, self.readiness)
        self._distant = {name: self._probes[name] for name in behind.distant}
        self._housekeeping = Housekeeping(inventory, self.gate)
        self._refresher = PassportCacheRefresher(inventory, verifier)
        self.settings = self._declare_settings(
            LiveSettings(
                quotas=options.quotas,
                adaptive=options.fair.adaptive,
                read_timeout_s=passing.read_timeout_s,
                write_timeout_s=passing.write_timeout_s,
                bundle=bundle,
            )
        )
        self.listener: Listener | None = None
        if options.listener is not None:
            # Who closes its side is gone: nobody is kept waiting for an answer that nobody reads.
            settings = replace(listener_options(options.listener), half_close=False)
            self.listener = Listener(inventory, settings, self.routes, budget=budget, admission=self.gate.admit)

    def _object_routes(self, behind: GatewayBackends, chunk_s: float) -> tuple[ObjectRoutes, GatewayInteropRoutes]:
        """Make the routes that pass objects on in pieces."""
        downs, most = self.downstreams, self._options.put_bytes_max
        objects = ObjectRoutes(behind.storage, downs["svc-storage"], chunk_s=chunk_s, put_bytes_max=most)
        return objects, GatewayInteropRoutes(behind.interop, downs["svc-interop"], chunk_s=chunk_s)

    def _make_downstreams(self) -> dict[str, Downstream]:
        options = self._options
        calls = {
            "svc-storage": options.storage_calls,
            "svc-mailbox": options.mailbox_calls,
            "svc-passport": options.passport_calls,
            "svc-dht": options.dht_calls,
            "svc-interop": options.interop_calls,
        }
        return {
            name: Downstream(
                self._inventory,
                DownstreamOptions(
                    service=name,
                    calls_max=most,
                    # As many as may be let in at all: whoever has a slot is not refused a place.
                    waiters_max=max(options.pool_size, options.fair.max_inflight),
                    timeout_s=options.request_timeout_s,
                    patience_s=options.default_deadline_s,
                ),
                shedding=self._is_shedding,
            )
            for name, most in calls.items()
        }

    def _own_routes(self, behind: GatewayBackends) -> list[Route]:
        options, downs = self._options, self.downstreams
        sources = ViewSources(self._client, behind.storage, behind.mailbox)
        hydrator = Hydrator(
            sources.table(downs["svc-storage"], downs["svc-mailbox"]),
            lambda: self.workers.scope,
            self._inventory.clock,
        )
        made = [
            *self._objects.routes(),
            *GatewayMailboxRoutes(behind.mailbox, downs["svc-mailbox"]).routes(),
            *GatewayPassportRoutes(behind.passport, downs["svc-passport"]).routes(),
            *GatewayDhtRoutes(behind.dht, downs["svc-dht"]).routes(),
            *self._bridge.routes(),
            *ViewRoutes(options.views, hydrator).routes(),
        ]
        return [
            *(self.workers.serve(route, options.default_deadline_s, options.request_timeout_s) for route in made),
            *self._teller.routes(),
        ]

    def _declare_events(self) -> Broadcast[KernelEvent]:
        """Tell of every flip of a gate.

        The supervisor flips them when a child dies, and so do the children themselves.
        """
        events: Broadcast[KernelEvent] = self._inventory.broadcast(
            "events",
            KernelEvent,
            capacity=self._options.events_capacity,
            producers="supervisor",
            consumers="readiness",
        )

        def told(service: str, gate: HealthGate) -> None:
            events.publish(HealthChanged(service, ok=gate.open, gate=gate.name))

        self._inventory.health.on_flip(told)
        return events

    def _declare_settings(self, now: LiveSettings) -> Watch[LiveSettings]:
        """Hold what may change while the service runs; whoever goes by it is called at each change."""
        settings = self._inventory.watch("cfg", now, producers="config_watcher", consumers="listener")
        settings.on_change(self._follow)
        return settings

    def _is_shedding(self) -> bool:
        return self.gate.shedding

    def _decide(self, request: Request, ticket: GateTicket) -> Refusal | None:
        """Ask the policy in force; a reload swaps it in one step."""
        sender = ProvenCaller(ticket.class_name, ticket.tenant)
        return self._policy.decide(request, sender, self._tags.get(request.route, _NO_TAGS))

    def _make_policy(self, bundle: Bundle) -> AccessPolicy:
        """Judge by a bundle. What an operator configured is allowed unless a rule denies it.

        So is what is signed, by the bundle that ships; another one has to allow it, by its tag.
        """
        shipped = bundle is DEFAULT
        allowed = [route for route, tags in self._tags.items() if shipped or tags is not SIGNED_TAGS]
        return AccessPolicy(bundle, region=self._options.region, allowed=allowed)

    def _wellness(self) -> dict[str, Callable[[], bool]]:
        return {name: _well(downstream) for name, downstream in self.downstreams.items()}

    # --- life ----------------------------------------------------------------------------------------------

    def children(self) -> list[ChildSpec]:
        """List what this service runs, in start order; it stops in reverse."""
        children = [
            ChildSpec(
                "worker_pool", self.workers.run, kind="worker", critical=True, drain=Drain.FINISH, announces=True
            ),
            ChildSpec("housekeeping", self._housekeeping.run),
            ChildSpec("passport_cache_refresher", self._refresher.run),
            ChildSpec("readiness", self.readiness.run),
            ChildSpec("upstream_prober", self._probe),
        ]
        if self.listener is not None:
            # Last: it starts when everything behind it runs, and stops taking work first.
            children.append(
                ChildSpec("listener", self._run_listener, critical=True, drain=Drain.STOP_INTAKE, announces=True)
            )
        return children

    def supervision(self) -> SupervisorOptions:
        """Say how long the drain may take."""
        return SupervisorOptions(drain_deadline_s=self._options.drain_deadline_s)

    async def _probe(self, child: Child) -> None:
        distant = {**self.proxies.probes(), **self._distant}
        await self._prober.run(child, distant, lambda: {**self.proxies.probes(), **self._distant})

    async def _run_listener(self, child: Child) -> None:
        if self._options.strict_boot and not self._booted:
            probes = {**self._probes, **self.proxies.probes()}
            await check_all(probes, child.scope("probe", max(1, len(probes))))
        # One that comes back after a crash is no start: what is behind may be ill by then.
        self._booted = True
        listener = self.listener
        assert listener is not None
        await listener.run(child)

    def apply(self, settings: Settings) -> None:
        """Follow a reload: quotas, limit, waits and the policy bundle.

        One that does not load leaves the old in force.
        """
        changed = LiveSettings(
            quotas=QuotaOptions.from_settings(settings),
            adaptive=settings.flag("omnigate.fair_queue.adaptive"),
            read_timeout_s=settings.seconds("omnigate.read_timeout"),
            write_timeout_s=settings.seconds("omnigate.write_timeout"),
            bundle=self.settings.value.bundle,
        )
        try:
            changed = replace(changed, bundle=_bundle(settings.path("omnigate.policy")))
        except BundleRefused as refused:
            self.readiness.reload.set(is_open=True, degraded=True, why=str(refused))
            self.settings.set(changed)
            raise
        self.settings.set(changed)
        self.live_routes.configure(read_routes(settings.tables("omnigate.routes")))
        self.readiness.reload.set(is_open=True)

    def _follow(self) -> None:
        """Go by the settings of the watch, in one step."""
        now = self.settings.value
        self.gate.apply(now.quotas, adaptive=now.adaptive)
        self.proxies.retime(now.read_timeout_s, now.write_timeout_s)
        self._objects.reads.chunk_s = self._bridge.reads.chunk_s = now.read_timeout_s
        self._policy = self._make_policy(now.bundle)

    def _serve_routes(self, tables: RouteTables) -> None:
        """Serve another table of configured routes, in one step of the loop."""
        proxied = self.proxies.serve(tables.served)
        signed = mount_signed(self._signed, _prefixes(proxied))
        self._tags = _tags(proxied, signed)
        self.gate.follow_routes({**self._kept_rules, **signed_rules(signed), **proxy_rules(proxied)})
        self._policy = self._make_policy(self.settings.value.bundle)
        self.routes[:] = (*self._kept_routes, *signed, *proxied)
        if self.listener is not None:
            self.listener.serve(self.routes)

    async def close(self) -> None:
        """Let go the connections to what is behind, after the supervisor ended everything else."""
        await self.gate.close()
        for downstream in self.downstreams.values():
            await downstream.close()
        await self._client.close()
        await self.proxies.close()


_NO_TAGS: Final[frozenset[str]] = frozenset()


def _prefixes(proxied: Mapping[Route, ProxyRoute]) -> set[tuple[str, ...]]:
    return {said.prefix for said in proxied.values()}


def _tags(proxied: Mapping[Route, ProxyRoute], signed: Iterable[Route]) -> dict[Route, frozenset[str]]:
    """Return the routes that rules of a policy may name by a tag."""
    return {**{route: said.tags for route, said in proxied.items()}, **dict.fromkeys(signed, SIGNED_TAGS)}


def _for_pool(options: OmnigateOptions) -> FairOptions:
    """Let nobody through for whom there is no worker: who has to wait waits in the fair queue."""
    return replace(options.fair, max_inflight=min(options.fair.max_inflight, options.pool_size))


def _proxy_options(options: OmnigateOptions) -> ProxyOptions:
    chosen = ProxyOptions(calls_max=options.upstream_calls, default_deadline_s=options.default_deadline_s)
    listener = options.listener
    if listener is None:
        return chosen
    # A piece of a body may take as long on the way to an upstream as on the way to a client.
    return replace(chosen, read_timeout_s=listener.read_timeout_s, write_timeout_s=listener.write_timeout_s)


def _bundle(path: Path | None) -> Bundle:
    return DEFAULT if path is None else read_bundle(path)


def _well(downstream: Downstream) -> Callable[[], bool]:
    return lambda: downstream.healthy
