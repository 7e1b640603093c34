"""The tables every node has: node, http and admin; each service brings its own."""

from __future__ import annotations

from penstock.config.kinds import HostPort, Kind
from penstock.config.listener import HTTP, PORT_BASE, listener_table
from penstock.config.schema import (
    RAM_BYTES,
    Apply,
    Derived,
    Key,
    KeyRule,
    Schema,
    Table,
)

_BODY_BYTES = 128 << 20
_RAM_SHARE = 16
CHANNEL_MAX = 1 << 20

NODE = Table(
    "node",
    (
        Key(
            "profile",
            Kind.CHOICE,
            "micro",
            choices=("micro", "macro"),
            apply=Apply.RESTART,
            help="`micro` runs all services in one process. `macro`, a process for each service, is not built.",
        ),
        Key(
            "data_dir",
            Kind.PATH,
            ".penstock",
            apply=Apply.RESTART,
            help="Where everything that must survive a restart lies. One node at a time may use it.",
        ),
        Key(
            "amnesia",
            Kind.BOOL,
            default=False,
            apply=Apply.RESTART,
            help="Keep everything in RAM: no file is written and no Unix socket is used.",
        ),
        Key(
            "port_base",
            Kind.INT,
            PORT_BASE,
            low=1,
            high=60_000,
            unit="port",
            apply=Apply.REBIND,
            help="The admin port; every other default port keeps its distance from it.",
        ),
        Key(
            "ephemeral_ports",
            Kind.BOOL,
            default=False,
            apply=Apply.RESTART,
            help="Let the system choose every default port; the real ones are printed and in `run/ports.json`.",
        ),
        Key(
            "echo",
            Kind.BOOL,
            default=False,
            apply=Apply.RESTART,
            help="Run the echo service, a small example of a complete service.",
        ),
        Key("mailbox", Kind.BOOL, default=True, apply=Apply.RESTART, help="Run svc-mailbox, the durable queue."),
        Key(
            "passport",
            Kind.BOOL,
            default=True,
            apply=Apply.RESTART,
            help="Run svc-passport, the issuer of capability tokens.",
        ),
        Key("omnigate", Kind.BOOL, default=True, apply=Apply.RESTART, help="Run omnigate, the gateway."),
        Key("storage", Kind.BOOL, default=True, apply=Apply.RESTART, help="Run svc-storage, the content store."),
        Key("interop", Kind.BOOL, default=True, apply=Apply.RESTART, help="Run svc-interop, the bridge for webhooks."),
        Key("dht", Kind.BOOL, default=True, apply=Apply.RESTART, help="Run svc-dht, the provider discovery."),
        Key(
            "chaos",
            Kind.BOOL,
            default=False,
            help="Let the operator kill tasks through the admin listener, to see them come back.",
        ),
        Key(
            "exit_on_fatal",
            Kind.BOOL,
            Derived(("node.profile",), lambda profile: profile == "macro", "true in macro, false in micro"),
            help="End the process when a service has failed for good (`on_crash_loop` is `fatal`).",
        ),
        Key(
            "body_bytes",
            Kind.SIZE,
            Derived(
                (RAM_BYTES,),
                lambda ram: min(_BODY_BYTES, max(1 << 20, ram // _RAM_SHARE)),
                "128MiB, a sixteenth of RAM if less",
            ),
            low="1MiB",
            apply=Apply.RESTART,
            help="Bounds all request bodies, decoded payloads and queued answers of the process together.",
        ),
        Key(
            "insecure_dev",
            Kind.BOOL,
            default=False,
            apply=Apply.RESTART,
            help="Turn capability checks off. Refused unless every address is loopback.",
        ),
        Key(
            "drain_deadline",
            Kind.DURATION,
            "10s",
            low="1s",
            high="60s",
            help="The longest a whole node may take to drain; each service has its own deadline within it.",
        ),
        Key(
            "log.format",
            Kind.CHOICE,
            "auto",
            choices=("auto", "json", "text"),
            help="`auto` is readable text on a terminal and JSON otherwise.",
        ),
        Key(
            "log.level",
            Kind.CHOICE,
            "info",
            choices=("debug", "info", "warn", "error"),
            help="The least severe event that is logged.",
        ),
    ),
    help="The process as a whole.",
)


def service_drain(default: str, high: str) -> Key:
    """Make a service's `drain_deadline`, with the default and range its service allows."""
    return Key(
        "drain_deadline",
        Kind.DURATION,
        default,
        low="1s",
        high=high,
        help="How long admitted work may take to finish at shutdown before it is aborted.",
    )


def channel_key(name: str, capacity: int, purpose: str) -> Key:
    """Make the capacity key of one of a service's channels."""
    return Key(
        f"channels.{name}",
        Kind.INT,
        capacity,
        low=1,
        high=CHANNEL_MAX,
        unit="items",
        apply=Apply.RESTART,
        help=f"Capacity of the `{name}` channel: {purpose}",
    )


def oap_key() -> Key:
    """Make the address on which a service answers its contract to other processes."""
    return Key(
        "oap_addr",
        Kind.ADDRESS,
        None,
        apply=Apply.RESTART,
        help="Answer other services here by OAP/1 over TCP. Alone, a service also does so on `run/<service>.sock` "
        "in the data directory.",
    )


ADMIN = listener_table(
    "admin",
    port_offset=0,
    keys=(
        Key(
            "open_metrics",
            Kind.BOOL,
            Derived(("admin.bind_addr",), lambda addr: addr.is_loopback, "true on loopback, else false"),
            help="Serve `/metrics` without a token.",
        ),
        service_drain("3s", "5s"),
    ),
    help="The dashboard, `/metrics`, `/inventory` and node health.",
)

CORE = (NODE, HTTP, ADMIN)


def node_schema(*services: Table) -> Schema:
    """Put the core tables and the services' tables together, with the rules that span all of them."""
    tables = (*CORE, *services)
    return Schema(tables, _spanning_rules(tables))


def _spanning_rules(tables: tuple[Table, ...]) -> list[KeyRule]:
    names = [f"{table.name}.{key.name}" for table in tables for key in table.keys]
    addresses = [name for name in names if name.endswith(("bind_addr", "metrics_addr", "oap_addr"))]
    sockets = [name for name in names if name.endswith(".uds.path")]
    return [
        *(
            KeyRule((name, "node.insecure_dev"), _safe, "must be loopback under node.insecure_dev")
            for name in addresses
        ),
        *(KeyRule((name, "node.amnesia"), _no_file, "must be empty under node.amnesia") for name in sockets),
    ]


def _safe(address: HostPort | None, insecure: bool) -> bool:  # noqa: FBT001 a rule's values come by position
    return address is None or not insecure or address.is_loopback


def _no_file(path: object, amnesia: bool) -> bool:  # noqa: FBT001 a rule's values come by position
    return path is None or not amnesia
