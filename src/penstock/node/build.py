"""Builds a node from its settings: every service under one root supervisor; nothing runs yet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from penstock.admin.authority import OperatorOnly
from penstock.admin.metrics_listener import metrics_child
from penstock.admin.service import SERVICE as NODE
from penstock.admin.service import AdminService
from penstock.admin.view import NodeHealth, NodeView
from penstock.capability import config as capability_config
from penstock.capability.verifier import CapabilityVerifier
from penstock.config import Reloader, listener_settings, node_schema
from penstock.kernel.bus import Health as HealthEvent
from penstock.kernel.bus import KernelEvent
from penstock.kernel.child import ChildSpec, Drain
from penstock.kernel.clock import SYSTEM, Clock
from penstock.kernel.inventory import Inventory
from penstock.kernel.limiter import ByteBudget
from penstock.kernel.log import Log, configure
from penstock.kernel.root import Root, Staged
from penstock.kernel.runtime import GcPauses, raise_fd_limit
from penstock.kernel.snapshot import Snapshot
from penstock.kernel.supervisor import Supervisor, SupervisorOptions
from penstock.net.caps import fit_caps
from penstock.net.listener import CannotBind
from penstock.net.listener_config import listener_options
from penstock.net.tls import CertificateRefused
from penstock.node.bus_subscriber import BusSubscriber
from penstock.node.config_watcher import ConfigWatcher
from penstock.services.echo import config as echo_config
from penstock.services.echo.service import SERVICE as ECHO
from penstock.services.echo.service import EchoService
from penstock.services.mailbox import config as mailbox_config
from penstock.services.mailbox.service import SERVICE as MAILBOX
from penstock.services.mailbox.service import MailboxService
from penstock.services.passport import config as passport_config
from penstock.services.passport.service import SERVICE as PASSPORT
from penstock.services.passport.service import Around, PassportService

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Mapping

    from penstock.capability.trust import Trust
    from penstock.config import ListenerSettings, Schema, Settings, Sources
    from penstock.kernel.broadcast import Broadcast
    from penstock.kernel.health import Gate
    from penstock.kernel.pool import Pool
    from penstock.net.listener import Listener
    from penstock.net.route import Route
    from penstock.node.config_watcher import Outcome

STAGE_EDGE = 1
STAGE_INNER = 2
STAGE_NODE = 3


def schema() -> Schema:
    """Put together the schema of everything this build knows."""
    return node_schema(echo_config.TABLE, passport_config.TABLE, mailbox_config.TABLE, capability_config.TABLE)


@dataclass(frozen=True, slots=True)
class Part:
    """A built service: how it is supervised, where it listens, what it answers."""

    name: str
    supervisor: Supervisor
    listener: Listener | None
    routes: list[Route]
    # What else follows a reload, and what is let go when everything has ended.
    apply: Callable[[Settings], None] | None = None
    close: Callable[[], Awaitable[None]] | None = None

    def urls(self) -> list[str]:
        """Return where it can be reached, once started."""
        if self.listener is None:
            return []
        scheme = "http" if self.listener.options.tls_cert_path is None else "https"
        return [
            f"unix:{address}" if isinstance(address, str) else f"{scheme}://{_host(address[0])}:{address[1]}"
            for address in self.listener.addresses
        ]


class Service(Protocol):
    """As much of a service as the node needs to run it."""

    def children(self) -> list[ChildSpec]:
        """List what it runs, in start order."""
        ...

    def supervision(self) -> SupervisorOptions:
        """Say how its children are restarted and how long its drain may take."""
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
        operator's where no svc-passport runs to mint one.
        """
        self._clock: Clock = SYSTEM
        self._caps = caps or {}
        # The operator's token; svc-passport, when it runs, replaces it by a capability of its own making.
        self.operator_token: Callable[[], str] = lambda: token
        # What the services believe about keys and revocations; svc-passport brings it.
        self.trust: Trust | None = None
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
        self._gc_pauses = GcPauses(self.own.metrics)
        # Told after a reload, because a listener may have moved.
        self.on_moved: Callable[[Node], None] | None = None
        self.parts = [build(self) for name, build in _SERVICES.items() if _wanted(settings, name, only)]
        self.root = self._make_root(with_admin=only is None)

    def _declare_limits(self) -> None:
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
        if self.trust is None:
            raise NeedsPassport("svc-mailbox needs svc-passport in the same node, or --insecure-dev")
        return CapabilityVerifier(self.trust, self._clock, capability_config.verifier_options(settings), pool=pool)

    def supervise(self, table: str, inventory: Inventory, service: Service) -> Supervisor:
        """Hang a service's children under a supervisor of their own, with its metrics apart where that is asked for."""
        inventory.health.on_flip(self._on_flip)
        children = service.children()
        address = self.settings.value.address_or_none(f"{table}.metrics_addr")
        if address is not None:
            # Before the listener: it starts earlier and closes later, so that the end can be watched.
            children.insert(-1, metrics_child(inventory, address.host, address.port))
        return Supervisor(inventory, children, service.supervision(), bus=self.bus)

    def _on_flip(self, service: str, gate: Gate) -> None:
        self.bus.publish(HealthEvent(service, ok=gate.open, gate=gate.name))

    def _make_root(self, *, with_admin: bool) -> Root:
        settings = self.settings.value
        health = NodeHealth(self.own)
        health.join(part.supervisor.inventory for part in self.parts)
        admin = AdminService(self.own, health, debug=settings.text("node.log.level") == "debug")
        services = [Staged(part.supervisor, STAGE_INNER) for part in self.parts]
        root = Root(services, self.own.metrics, exit_on_fatal=settings.flag("node.exit_on_fatal") or not with_admin)
        if with_admin:
            view = NodeView(root, self.settings, health, self._reload_for_admin)
            authority = OperatorOnly(
                self.operator_token,
                open_metrics=lambda: self.settings.value.flag("admin.open_metrics"),
                anyone=settings.flag("node.insecure_dev"),
            )
            admin.listen(self.listener_settings("admin"), view, authority, self.budget)
        options = admin.supervision(settings.seconds("admin.drain_deadline"))
        subscriber = BusSubscriber(
            self.bus,
            stop=root.stop_requested.set,
            reload=self.watcher.ask,
            version=lambda: self.settings.version,
        )
        children = [
            ChildSpec("bus_subscriber", subscriber.run),
            ChildSpec("config_watcher", self.watcher.run, drain=Drain.FINISH, consumes=(self.watcher.requests,)),
            *admin.children(),
        ]
        supervisor = Supervisor(self.own, children, options, bus=self.bus)
        root.adopt(Staged(supervisor, STAGE_NODE))
        self.parts.append(Part("admin", supervisor, admin.listener, admin.routes))
        self.health = health
        return root

    def _reload_for_admin(self) -> asyncio.Future[Outcome]:
        return self.watcher.request("admin")

    async def _apply(self, settings: Settings) -> list[str]:
        """Bring settings to whom they concern; a listener that cannot move stays where it is and is told of."""
        configure(settings.text("node.log.format"), settings.text("node.log.level"))
        failed: list[str] = []
        for part in self.parts:
            part.supervisor.retime(settings.seconds(f"{part.name}.drain_deadline"))
            if part.apply is not None:
                part.apply(settings)
            if part.listener is None:
                continue
            try:
                await part.listener.reconfigure(listener_options(self.listener_settings(part.name)))
            except (CannotBind, CertificateRefused) as refused:
                failed.append(f"{part.name}: {refused}")
        if self.on_moved is not None:
            self.on_moved(self)
        return failed

    def ports(self) -> dict[str, int]:
        """Return where each part listens, once started."""
        return {part.name: part.listener.port for part in self.parts if part.listener is not None}

    def admin_door(self) -> dict[str, str | None]:
        """Return how the command line reaches the admin listener: its URL, and the certificate to expect there."""
        admin = next(part for part in self.parts if part.name == "admin")
        url = next((url for url in admin.urls() if url.startswith("http")), None)
        certificate = None if admin.listener is None else admin.listener.options.tls_cert_path
        return {"url": url, "certificate": None if certificate is None else str(certificate.absolute())}

    async def close(self) -> None:
        """Let go what the services hold beyond their tasks; after the drain."""
        for part in self.parts:
            if part.close is not None:
                await part.close()

    def forget(self) -> None:
        """Take the process-wide hooks off again."""
        self._gc_pauses.remove()


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _wanted(settings: Settings, name: str, only: str | None) -> bool:
    return name == only if only is not None else settings.flag(f"node.{name}")


def _build_echo(node: Node) -> Part:
    inventory = Inventory(ECHO)
    options = echo_config.EchoOptions.from_settings(node.settings.value, node.listener_settings("echo"))
    service = EchoService(inventory, options, node.budget)
    return Part("echo", node.supervise("echo", inventory, service), service.listener, service.routes)


def _build_passport(node: Node) -> Part:
    inventory = Inventory(PASSPORT)
    settings = node.settings.value
    options = passport_config.PassportOptions.from_settings(settings, node.listener_settings("passport"))
    around = Around(budget=node.budget, bus=node.bus, limits=lambda: passport_config.limits_of(node.settings.value))
    service = PassportService(inventory, options, around)
    node.operator_token = lambda: service.book.operator_token
    node.trust = service.book.trust
    return Part("passport", node.supervise("passport", inventory, service), service.listener, service.routes)


class NeedsPassport(Exception):
    """A service that checks capabilities has nobody to believe."""


def _build_mailbox(node: Node) -> Part:
    inventory = Inventory(MAILBOX)
    settings = node.settings.value
    pool = inventory.pool("crypto", threads=settings.integer("passport.crypto_threads"), capacity=256)
    verifier = node.verifier(pool)
    options = mailbox_config.MailboxOptions.from_settings(settings, node.listener_settings("mailbox"))
    trim = (lambda: None) if verifier is None else verifier.forget
    service = MailboxService(inventory, options, node.budget, verifier=verifier, trim_capabilities=trim)

    async def close() -> None:
        await service.close()
        await pool.close()

    return Part(
        "mailbox",
        node.supervise("mailbox", inventory, service),
        service.listener,
        service.routes,
        apply=lambda changed: service.shards.set(changed.integer("mailbox.ready_shards")),
        close=close,
    )


# In build order: who believes an issuer comes after it.
_SERVICES: dict[str, Callable[[Node], Part]] = {
    "passport": _build_passport,
    "mailbox": _build_mailbox,
    "echo": _build_echo,
}
SERVICE_NAMES = tuple(_SERVICES)


def fit_connections(settings: Settings) -> dict[str, int]:
    """Raise the descriptor limit and lower the listeners' caps until they fit below it; says so when it had to."""
    wanted = {table: settings.integer(f"{table}.max_conns") for table in ("admin", *SERVICE_NAMES)}
    fitted = fit_caps(wanted, raise_fd_limit(sum(wanted.values())))
    if fitted != wanted:
        Log(NODE).warning("max_conns.lowered", why="the descriptor limit (ulimit -n) leaves no more", caps=fitted)
    return fitted
