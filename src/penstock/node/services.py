"""How each service is put together from the settings, in build order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.capability import config as capability_config
from penstock.config import node_schema
from penstock.kernel.inventory import Inventory
from penstock.net.tracing import traced_contract
from penstock.node.bridge_neighbours import BridgeNeighbours
from penstock.node.dht_panels import dht_buckets, dht_records, dht_status
from penstock.node.frames import framed_dht, framed_interop, framed_mailbox, framed_passport, framed_storage
from penstock.node.gateway_page import GatewayPage
from penstock.node.interop_panels import interop_page, webhook_endpoints, webhook_inbox
from penstock.node.mailbox_page import MailboxPage
from penstock.node.neighbours import Neighbours
from penstock.node.panels import audit, gateway_brownout, gateway_tenants, issuer, traffic_classes
from penstock.node.part import STAGE_EDGE, ServicePart
from penstock.node.passport_page import passport_page
from penstock.node.remote_admin import RemoteAdmin
from penstock.node.storage_page import storage_page
from penstock.node.topic_lookup import TopicLookup
from penstock.node.webhook_signer import WebhookSigner
from penstock.services.dht import config as dht_config
from penstock.services.dht.service import SERVICE as DHT
from penstock.services.dht.service import DhtService, DhtSurroundings
from penstock.services.echo import config as echo_config
from penstock.services.echo.service import SERVICE as ECHO
from penstock.services.echo.service import EchoService
from penstock.services.interop import config as interop_config
from penstock.services.interop.service import SERVICE as INTEROP
from penstock.services.interop.service import BridgeAround, InteropService
from penstock.services.mailbox import config as mailbox_config
from penstock.services.mailbox.service import SERVICE as MAILBOX
from penstock.services.mailbox.service import MailboxService
from penstock.services.omnigate import config as omnigate_config
from penstock.services.omnigate.own.mounted import MountedService
from penstock.services.omnigate.own.signed import SignedService
from penstock.services.omnigate.service import SERVICE as OMNIGATE
from penstock.services.omnigate.service import OmnigateService
from penstock.services.passport import config as passport_config
from penstock.services.passport.service import SERVICE as PASSPORT
from penstock.services.passport.service import Around, PassportService
from penstock.services.storage import config as storage_config
from penstock.services.storage.service import SERVICE as STORAGE
from penstock.services.storage.service import StorageService

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.config import Schema
    from penstock.node.build import Node


def schema() -> Schema:
    """Put together the schema of everything this build knows."""
    services = (
        echo_config,
        passport_config,
        mailbox_config,
        storage_config,
        interop_config,
        dht_config,
        omnigate_config,
        capability_config,
    )
    return node_schema(*(service.TABLE for service in services))


def _build_echo(node: Node) -> ServicePart:
    inventory = Inventory(ECHO)
    options = echo_config.EchoOptions.from_settings(node.settings.value, node.listener_settings("echo"))
    service = EchoService(inventory, options, node.budget)
    return ServicePart("echo", node.supervise("echo", inventory, service), service.listener, service.routes)


def _build_passport(node: Node) -> ServicePart:
    inventory = Inventory(PASSPORT)
    settings = node.settings.value
    options = passport_config.PassportOptions.from_settings(settings, node.listener_settings("passport"))
    around = Around(
        budget=node.budget,
        bus=node.bus,
        limits=lambda: passport_config.limits_of(node.settings.value),
        verifying=capability_config.verifier_options(settings),
    )
    service = PassportService(inventory, options, around)
    node.operator_token = lambda: service.book.operator_token
    node.operator_stands = service.book.operator_stands
    node.trust_source.adopt(service.book.trust, service.verifier.meter)
    node.passport = traced_contract(PASSPORT, service.api)
    supervisor = node.supervise("passport", inventory, service, framed=framed_passport(service.api))
    panels = (issuer(service), audit(service))
    return ServicePart("passport", supervisor, service.listener, service.routes, panels=panels, page=passport_page())


def _build_mailbox(node: Node) -> ServicePart:
    inventory = Inventory(MAILBOX)
    settings = node.settings.value
    pool = inventory.pool("crypto", threads=settings.integer("passport.crypto_threads"), capacity=256)
    verifier = node.verifier(pool)
    options = mailbox_config.MailboxOptions.from_settings(settings, node.listener_settings("mailbox"))
    trim = (lambda: None) if verifier is None else verifier.forget_expired
    service = MailboxService(inventory, options, node.budget, verifier=verifier, trim_capabilities=trim)
    node.mailbox = traced_contract(MAILBOX, service.api)
    page = MailboxPage(service, inventory.metrics).part()
    lookup = TopicLookup(service, lambda: node.operator_token())  # noqa: PLW0108 - set when svc-passport is built

    async def close() -> None:
        await service.close()
        await pool.close()

    return ServicePart(
        "mailbox",
        node.supervise("mailbox", inventory, service, framed=framed_mailbox(service.api)),
        service.listener,
        service.routes,
        apply=lambda changed: service.apply(mailbox_config.MailboxOptions.from_settings(changed, options.listener)),
        close=close,
        page=replace(page, routes=(*page.routes, *lookup.routes())),
    )


def _build_storage(node: Node) -> ServicePart:
    inventory = Inventory(STORAGE)
    settings = node.settings.value
    pool = inventory.pool("crypto", threads=settings.integer("passport.crypto_threads"), capacity=256)
    options = storage_config.StorageOptions.from_settings(settings, node.listener_settings("storage"))
    service = StorageService(inventory, options, node.budget, verifier=node.verifier(pool))
    node.storage = traced_contract(STORAGE, service.api)

    async def close() -> None:
        await service.close()
        await pool.close()

    supervisor = node.supervise("storage", inventory, service, framed=framed_storage(service.api))
    return ServicePart(
        "storage", supervisor, service.listener, service.routes, close=close, page=storage_page(inventory.metrics)
    )


def _build_dht(node: Node) -> ServicePart:
    inventory = Inventory(DHT)
    settings = node.settings.value
    pool = inventory.pool("crypto", threads=settings.integer("passport.crypto_threads"), capacity=256)
    options = dht_config.DhtOptions.from_settings(settings, node.listener_settings("dht"))
    around = DhtSurroundings(budget=node.budget, verifier=node.verifier(pool))
    service = DhtService(inventory, options, around)
    node.dht = traced_contract(DHT, service.api)

    async def close() -> None:
        await service.close()
        await pool.close()

    return ServicePart(
        "dht",
        node.supervise("dht", inventory, service, framed=framed_dht(service.api)),
        service.listener,
        service.routes,
        close=close,
        panels=(dht_status(service), dht_buckets(service), dht_records(service, node.operator_token)),
        peer_port=lambda: service.state.port,
    )


def _build_interop(node: Node) -> ServicePart:
    inventory = Inventory(INTEROP)
    settings = node.settings.value
    pool = inventory.pool("crypto", threads=settings.integer("passport.crypto_threads"), capacity=256)
    options = interop_config.InteropOptions.from_settings(settings, node.listener_settings("interop"))
    verifier = node.verifier(pool)
    behind = BridgeNeighbours(node, inventory, pool)
    around = BridgeAround(
        mailbox=behind.mailbox,
        storage=behind.storage,
        # Under `insecure_dev` nobody checks, so nothing has to be issued.
        passport=None if verifier is None else behind.passport,
        mint=None if verifier is None else behind.mint,
        mint_for=None if verifier is None or behind.holds_token else behind.mint_for,
        verifier=verifier,
        budget=node.budget,
        attest=None if verifier is None or behind.holds_token else behind.attest,
    )
    service = InteropService(inventory, options, around)
    node.interop = service.api
    if service.sqs is not None:
        node.sqs_routes, node.sqs_key_routes = service.sqs.gateway_routes(), service.sqs.gateway_key_routes()

    async def close() -> None:
        await service.close()
        await behind.close()
        await pool.close()

    return ServicePart(
        "interop",
        node.supervise("interop", inventory, service, framed=framed_interop(service.api)),
        service.listener,
        service.routes,
        apply=lambda changed: service.apply(interop_config.InteropOptions.from_settings(changed, options.listener)),
        close=close,
        # It leads to the others, as the gateway does.
        stage=STAGE_EDGE,
        panels=(webhook_endpoints(service, node.operator_token), webhook_inbox(service, node.operator_token)),
        page=interop_page(inventory.metrics),
        admin_routes=tuple(WebhookSigner(lambda: node.settings.value, inventory.clock).routes()),
        told=service.told,
    )


def _mounted(node: Node) -> tuple[MountedService, ...]:
    """List what the gateway serves under its own path: the services of this process, and the operator's questions."""
    services = (MountedService(name=part.supervisor.service, routes=part.routes) for part in node.parts)
    wanted = [service for service in services if service.name in {PASSPORT, MAILBOX, DHT}]
    if _signed(node) is not None:
        # The access keys are asked for where they can be used.
        wanted.append(MountedService(name=INTEROP, routes=node.sqs_key_routes))
    if not node.serves_alone:
        wanted.append(MountedService(name=OMNIGATE, routes=RemoteAdmin(node).routes()))
    return tuple(wanted)


def _signed(node: Node) -> SignedService | None:
    """Return the SQS face for the gateway. By itself it is served on loopback alone, here as at its own port."""
    settings = node.settings.value
    near = settings.address("omnigate.bind_addr").is_loopback or settings.text("interop.sqs.enabled") == "on"
    return SignedService(name=INTEROP, routes=node.sqs_routes) if node.sqs_routes and near else None


def _build_omnigate(node: Node) -> ServicePart:
    inventory = Inventory(OMNIGATE)
    settings = node.settings.value
    pool = inventory.pool("crypto", threads=settings.integer("passport.crypto_threads"), capacity=256)
    options = omnigate_config.OmnigateOptions.from_settings(settings, node.listener_settings("omnigate"))
    neighbours = Neighbours(node, inventory, options)
    behind = replace(neighbours.behind, mounted=_mounted(node), signed=_signed(node))
    service = OmnigateService(inventory, options, node.budget, behind=behind, verifier=node.verifier(pool))

    async def close() -> None:
        await service.close()
        await neighbours.close()
        await pool.close()

    supervisor = node.supervise("omnigate", inventory, service)
    return ServicePart(
        "omnigate",
        supervisor,
        service.listener,
        service.routes,
        apply=service.apply,
        close=close,
        stage=STAGE_EDGE,
        panels=(traffic_classes(service), gateway_tenants(service), gateway_brownout(service)),
        page=GatewayPage(service, inventory.metrics).part(),
        admin_routes=tuple(service.route_admin.routes()),
    )


# In build order: a service that trusts an issuer comes after it.
SERVICES: dict[str, Callable[[Node], ServicePart]] = {
    "passport": _build_passport,
    "mailbox": _build_mailbox,
    "storage": _build_storage,
    "dht": _build_dht,
    "echo": _build_echo,
    # The two that lead to the others come last.
    "interop": _build_interop,
    "omnigate": _build_omnigate,
}
SERVICE_NAMES = tuple(SERVICES)
# Those with files of their own in the data directory: no two processes may run one of them there.
KEEPERS = frozenset({"passport", "mailbox", "storage", "dht", "interop"})
