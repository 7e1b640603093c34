"""Builds a node from its settings: every service under one root supervisor; nothing runs yet."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from penstock import __version__
from penstock.admin.authority import OperatorOnly
from penstock.admin.metrics_listener import metrics_child
from penstock.admin.service import SERVICE as NODE
from penstock.admin.service import AdminService, Shown
from penstock.admin.view import NodeHealth, NodeView
from penstock.config import Reloader, listener_settings
from penstock.kernel.bus import HealthChanged, KernelEvent
from penstock.kernel.child import ChildSpec, Drain
from penstock.kernel.clock import SYSTEM, Clock
from penstock.kernel.errors import Malformed
from penstock.kernel.inventory import Inventory
from penstock.kernel.limiter import ByteBudget
from penstock.kernel.log import Log, configure
from penstock.kernel.log_writer import declare_log
from penstock.kernel.root import Root, Staged
from penstock.kernel.runtime import GcPauses, raise_fd_limit
from penstock.kernel.snapshot import Snapshot
from penstock.kernel.supervisor import Supervisor, SupervisorOptions
from penstock.net.server.caps import fit_caps
from penstock.net.server.listener import CannotBind
from penstock.net.server.listener_config import listener_options
from penstock.net.server.openapi import openapi
from penstock.net.server.route import Route
from penstock.net.server.tls import CertificateRefused
from penstock.node.bus_subscriber import BusSubscriber
from penstock.node.config_watcher import ConfigWatcher
from penstock.node.data_dir_guard import DataDirGuard
from penstock.node.frames import frame_children
from penstock.node.part import STAGE_NODE, ServicePart
from penstock.node.remote_admin import NO_ADMIN
from penstock.node.services import SERVICE_NAMES, SERVICES, schema
from penstock.node.trust_source import TrustSource

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence

    from penstock.capability.verifier import CapabilityVerifier
    from penstock.config import ListenerSettings, Settings, Sources
    from penstock.contracts.dht import Dht
    from penstock.contracts.interop import Interop
    from penstock.contracts.mailbox import Mailbox
    from penstock.contracts.passport import Passport
    from penstock.contracts.storage import Storage
    from penstock.kernel.broadcast import Broadcast
    from penstock.kernel.health import Gate
    from penstock.kernel.pool import Pool
    from penstock.net.message import Request
    from penstock.net.server.admission import Refusal
    from penstock.node.config_watcher import ReloadOutcome
    from penstock.node.frames import Framed


class NodeService(Protocol):
    """What the node needs of a service to run it."""

    def children(self) -> list[ChildSpec]:
        """List what it runs, in start order."""
        ...

    def supervision(self) -> SupervisorOptions:
        """Return how its children are restarted and how long its drain may take."""
        ...


class Node:
    """All parts of a node, connected."""

    def __init__(
        self,
        settings: Settings,
        sources: Sources,
        *,
        token: str = "",
        only: str | None = None,
        caps: Mapping[str, int] | None = None,
    ) -> None:
        """Build the services the settings ask for, or `only` one of them without the admin listener.

        `caps` are the connections each listener may hold, where that is fewer than the settings say. `token` is the
        operator's where no svc-passport runs to issue one.
        """
        self._clock: Clock = SYSTEM
        self._caps = caps or {}
        # The operator's token; svc-passport, when it runs, replaces it by a capability of its own making.
        self.operator_token: Callable[[], str] = lambda: token
        # Whether that token is good by the keys and floors of the moment; svc-passport can tell.
        self.operator_stands: Callable[[], bool] = lambda: True
        # Keys and revocations that the services trust: of svc-passport in this process, or of a followed issuer.
        self.trust_source = TrustSource()
        # The services by their contracts, for those in the same process; None where one does not run here.
        self.storage: Storage | None = None
        self.mailbox: Mailbox | None = None
        self.passport: Passport | None = None
        self.dht: Dht | None = None
        self.interop: Interop | None = None
        # The routes of the SQS face for a gateway; empty where it is not served.
        self.sqs_routes: Sequence[Route] = ()
        # The operator's routes for its access keys, for a gateway.
        self.sqs_key_routes: Sequence[Route] = ()
        self.serves_alone = only is not None  # one service, without the admin listener and its token
        self.settings = Snapshot(settings)
        self.own = Inventory(NODE, self._clock)
        self.bus: Broadcast[KernelEvent] = self.own.broadcast(
            "events", KernelEvent, producers="supervisor", consumers="anyone"
        )
        self.budget = ByteBudget(settings.size("node.body_bytes"))
        self._declare_limits()
        reloader = Reloader(schema(), sources, self.settings, self.own)
        self.watcher = ConfigWatcher(self.own, reloader, self.settings, self.bus, self._apply)
        self.data_dir_guard = DataDirGuard()
        self._gc_pauses = GcPauses(self.own.metrics)
        # Told after a reload, because a listener may have moved.
        self.on_moved: Callable[[Node], None] | None = None
        self._authority: OperatorOnly | None = None
        self._described: dict[str, dict[str, Any]] = {}
        self.parts: list[ServicePart] = []
        for name, build in SERVICES.items():
            if _wanted(settings, name, only):
                self.parts.append(build(self))
        self.root = self._make_root(with_admin=only is None)

    def _declare_limits(self) -> None:
        declare_log(self.own)
        budget = self.budget
        policy = "request bodies, payloads and queued answers together; empty: 429 busy"
        self.own.limit(
            "node_bytes", budget.capacity, policy, lambda: {"in_use": budget.in_use, "refused": budget.refused}
        )
        self.own.metrics.gauge("node_bytes_in_use", "Bytes taken from node.body_bytes.", read=lambda: budget.in_use)

    def listener_settings(self, table: str) -> ListenerSettings:
        """Return a table's listener settings, with the cap the machine allows."""
        wanted = listener_settings(self.settings.value, table)
        places = min(wanted.max_conns, self._caps.get(table, wanted.max_conns))
        return replace(wanted, max_conns=places, max_conns_per_ip=min(wanted.max_conns_per_ip, places))

    def verifier(self, pool: Pool) -> CapabilityVerifier | None:
        """Make a service's verifier over the issuer of this node; None, and no checks, only under `insecure_dev`."""
        settings = self.settings.value
        if settings.flag("node.insecure_dev"):
            return None
        return self.trust_source.verifier(settings, self._clock, pool)

    def supervise(
        self, table: str, inventory: Inventory, service: NodeService, *, framed: Framed | None = None
    ) -> Supervisor:
        """Put a service's children under a supervisor.

        Its contract, where it is `framed`, and its metrics are served apart where that is asked for.
        """
        inventory.health.on_flip(self._on_flip)
        children = service.children()
        follower = self.trust_source.follower(self.settings.value, inventory)
        if follower is not None:
            children.insert(0, follower)
        address = self.settings.value.address_or_none(f"{table}.metrics_addr")
        if address is not None:
            # Before the listener: it starts earlier and closes later, so that the end can be watched.
            children.insert(-1, metrics_child(inventory, address.host, address.port))
        if framed is not None:
            children[-1:-1] = frame_children(self, table, inventory, framed)
        return Supervisor(inventory, children, service.supervision(), bus=self.bus)

    def _on_flip(self, service: str, gate: Gate) -> None:
        self.bus.publish(HealthChanged(service, ok=gate.open, gate=gate.name))

    def _make_root(self, *, with_admin: bool) -> Root:
        settings = self.settings.value
        health = NodeHealth(self.own)
        health.join(part.supervisor.inventory for part in self.parts)
        admin = AdminService(self.own, health, self.bus, debug=settings.text("node.log.level") == "debug")
        services = [Staged(part.supervisor, part.stage) for part in self.parts]
        root = Root(services, self.own.metrics, exit_on_fatal=settings.flag("node.exit_on_fatal") or not with_admin)
        if with_admin:
            view = NodeView(root, self.settings, health, self._reload_for_admin, lambda: self.watcher.state)
            authority = OperatorOnly(
                self.operator_token,
                open_metrics=lambda: self.settings.value.flag("admin.open_metrics"),
                now=self._clock.monotonic,
                stands=self.operator_stands,
                anyone=settings.flag("node.insecure_dev"),
            )
            shown = Shown(
                [panel for part in self.parts for panel in part.panels],
                self._describe,
                [part.page for part in self.parts if part.page is not None],
                doors=self._named_doors,
                token=self.operator_token,
                data_dir=None if settings.flag("node.amnesia") else settings.path("node.data_dir"),
            )
            admin.extra = [
                *(route for part in self.parts for route in part.admin_routes),
                Route(
                    method="POST",
                    path="/v1/node/link",
                    handler=lambda _request: {"link": self.page_link()},
                    summary="Make a link that opens the operator's page once.",
                ),
            ]
            admin.listen(self.listener_settings("admin"), view, authority, shown, self.budget)
            self._authority = authority
        options = admin.supervision(settings.seconds("admin.drain_deadline"))
        subscriber = BusSubscriber(
            self.bus,
            stop=root.stop_requested.set,
            reload=self.watcher.ask,
            version=lambda: self.settings.version,
        )
        children = [
            ChildSpec("bus_subscriber", subscriber.run),
            ChildSpec("data_dir_guard", self.data_dir_guard.run),
            ChildSpec("config_watcher", self.watcher.run, drain=Drain.FINISH, consumes=(self.watcher.requests,)),
            *admin.children(),
        ]
        supervisor = Supervisor(self.own, children, options, bus=self.bus)
        root.adopt(Staged(supervisor, STAGE_NODE))
        for staged in root.services:
            admin.tail.follow(staged.supervisor)
        self.parts.append(ServicePart("admin", supervisor, admin.listener, admin.routes, close=admin.close))
        self._log_tail = admin.log_tail
        self._event_tail = admin.tail
        self._event_tail.await_start()
        self.health = health
        return root

    def _reload_for_admin(self) -> asyncio.Future[ReloadOutcome]:
        return self.watcher.request("admin")

    async def _apply(self, settings: Settings) -> list[str]:
        """Apply new settings to the services. A listener that cannot move keeps its address, which is reported."""
        configure(settings.text("node.log.format"), settings.text("node.log.level"))
        self._log_tail.attach()
        self.trust_source.apply(settings)
        failed: list[str] = []
        for part in self.parts:
            part.supervisor.retime(settings.seconds(f"{part.name}.drain_deadline"))
            try:
                if part.apply is not None:
                    part.apply(settings)
                if part.listener is None:
                    continue
                await part.listener.reconfigure(listener_options(self.listener_settings(part.name)))
            except (CannotBind, CertificateRefused, Malformed) as refused:
                failed.append(f"{part.name}: {refused}")
        if self.on_moved is not None:
            self.on_moved(self)
        return failed

    def started(self) -> None:
        """Note that every service has started: what its gates do from now on is told."""
        healths = ((part.supervisor.service, part.supervisor.inventory.health) for part in self.parts)
        self._event_tail.end_start(
            (service, gate.name) for service, health in healths for gate in health.gates() if not gate.open
        )

    def ports(self) -> dict[str, int]:
        """Return where each part listens, once started."""
        return {name: port for part in self.parts for name, port in part.ports().items()}

    def told(self) -> dict[str, dict[str, str]]:
        """Return what the parts say in the ready line, once started."""
        return {name: facts for part in self.parts if part.told is not None for name, facts in part.told().items()}

    def doors(self) -> dict[str, dict[str, str | None]]:
        """Return each service's URL and certificate, once started."""
        return {part.name: part.door() for part in self.parts if part.listener is not None}

    def _named_doors(self) -> dict[str, dict[str, str | None]]:
        """Return the doors under both names of a service: that of its table and that of its supervisor."""
        return {
            name: part.door()
            for part in self.parts
            if part.listener is not None
            for name in (part.name, part.supervisor.service)
        }

    def admin_door(self) -> dict[str, object]:
        """Return the addresses for the command line and the SDK: the admin listener's, and one for each service."""
        doors = self.doors()
        return {**doors["admin"], "services": doors}

    def judge_operator(self, request: Request) -> Refusal | None:
        """Tell whether a request at another listener than the admin's comes from the operator: None, or what to say."""
        return NO_ADMIN if self._authority is None else self._authority.judge(request)

    def page_url(self) -> str | None:
        """Return where the operator's page is; None where there is no admin listener to open it on."""
        url = next((part.door()["url"] for part in self.parts if part.name == "admin"), None)
        if self._authority is None or url is None:
            return None
        return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:") + "/"

    def page_link(self) -> str | None:
        """Make a link that opens the operator's page once, for a person who asks for it."""
        url = self.page_url()
        # The secret stands behind the `#`: no server, log or preview of the link ever sees it.
        return None if url is None or self._authority is None else f"{url}#once={self._authority.make_link()}"

    def _describe(self) -> dict[str, dict[str, Any]]:
        """Return the OpenAPI description of each service; made once, because routes do not change."""
        for part in self.parts if not self._described else ():
            if part.listener is not None:
                routes = (*part.routes, *part.listener.own_routes)
                self._described[part.supervisor.service] = openapi(part.supervisor.service, __version__, routes)
        return self._described

    async def close(self) -> None:
        """Close what the services hold beyond their tasks; called after the drain."""
        for part in self.parts:
            if part.close is not None:
                await part.close()
        await self.trust_source.close()

    def forget(self) -> None:
        """Remove the process-wide hooks."""
        self._gc_pauses.remove()


def _wanted(settings: Settings, name: str, only: str | None) -> bool:
    return name == only if only is not None else settings.flag(f"node.{name}")


def fit_connections(settings: Settings) -> dict[str, int]:
    """Raise the descriptor limit, and lower the listeners' caps if they do not fit below it, which is logged."""
    wanted = {table: settings.integer(f"{table}.max_conns") for table in ("admin", *SERVICE_NAMES)}
    fitted = fit_caps(wanted, raise_fd_limit(sum(wanted.values())))
    if fitted != wanted:
        Log(NODE).warning("max_conns.lowered", why="the descriptor limit (ulimit -n) leaves no more", caps=fitted)
    return fitted
