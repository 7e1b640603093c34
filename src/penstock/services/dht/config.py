"""The `[dht]` table and the options read from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config import (
    Apply,
    Derived,
    HostPort,
    Key,
    Kind,
    channel_key,
    listener_settings,
    oap_key,
    service_drain,
    service_table,
)

if TYPE_CHECKING:
    from penstock.config import ListenerSettings, Settings

HTTP_PORT_OFFSET = 12
PEER_PORT_OFFSET = 2


def _count(  # noqa: PLR0913 - the columns of a key
    name: str, default: int, text: str, *, low: int = 1, high: int = 1 << 16, unit: str
) -> Key:
    return Key(name, Kind.INT, default, low=low, high=high, unit=unit, apply=Apply.RESTART, help=text)


def _time(name: str, default: str, low: str, high: str, text: str) -> Key:
    return Key(name, Kind.DURATION, default, low=low, high=high, apply=Apply.RESTART, help=text)


def _peer_address(base: int, ephemeral: bool) -> HostPort:  # noqa: FBT001 computed from keys by position
    return HostPort("127.0.0.1", 0 if ephemeral else base + PEER_PORT_OFFSET)


def _peer_keys() -> tuple[Key, ...]:
    return (
        Key(
            "peer_addr",
            Kind.ADDRESS,
            Derived(("node.port_base", "node.ephemeral_ports"), _peer_address, "127.0.0.1:5302"),
            apply=Apply.RESTART,
            help="Where other nodes reach this one.",
        ),
        Key(
            "seeds",
            Kind.LIST,
            (),
            apply=Apply.RESTART,
            help="Nodes to join through, as `host:port`. Empty: this node is alone until others come.",
        ),
        Key(
            "group_private",
            Kind.BOOL,
            default=False,
            apply=Apply.RESTART,
            help="Limit private and loopback addresses by network like global ones.",
        ),
        Key(
            "post_quantum",
            Kind.BOOL,
            default=False,
            apply=Apply.RESTART,
            help="Sign own records with ML-DSA-65 beside Ed25519.",
        ),
        _count("peer_conns", 512, "Connections to other nodes that are kept.", low=8, unit="connections"),
        _count("peer_max_conns", 2048, "Open peer connections at most, proven or not.", low=8, unit="connections"),
    )


def _lookup_keys() -> tuple[Key, ...]:
    return (
        _count("k", 20, "Contacts a bucket holds, and nodes that keep a record.", low=16, high=32, unit="contacts"),
        _count("alpha", 3, "Probes of a background walk at a time.", high=8, unit="probes"),
        _count("find_alpha", 5, "Probes of a find or provide at a time.", high=10, unit="probes"),
        _count("beta", 2, "Extra probes for one that turns slow.", low=0, high=4, unit="probes"),
        _count("hop_budget", 5, "How deep a lookup goes.", high=32, unit="hops"),
        _time("rpc_timeout", "1500ms", "100ms", "10s", "A peer's answer is waited for so long."),
        _time("hedge_after", "250ms", "5ms", "2s", "A probe counts as slow after this at the latest."),
        _count("lookup_workers", 16, "Lookups at a time.", low=4, high=256, unit="workers"),
        _count("verify_threads", 1, "Threads that verify signatures.", high=16, unit="threads"),
        _count("inflight", 512, "Requests of peers that are unanswered. Full: `Busy`.", low=8, unit="requests"),
        Key(
            "rps",
            Kind.INT,
            5000,
            low=150,
            high=1_000_000,
            unit="requests/s",
            zero_off=True,
            apply=Apply.RESTART,
            help="Requests a second of all peers together. Over it: `Busy`.",
        ),
        Key(
            "peer_rps",
            Kind.INT,
            100,
            low=1,
            high=1_000_000,
            unit="requests/s",
            zero_off=True,
            apply=Apply.RESTART,
            help="Requests a second of one peer; twice as many in a burst. Over it: `Busy`.",
        ),
        Key(
            "bytes_per_second",
            Kind.SIZE,
            "16MiB",
            low="64KiB",
            high="10GiB",
            zero_off=True,
            apply=Apply.RESTART,
            help="Bytes of requests a second of all peers together. Over it: `Busy`.",
        ),
    )


TABLE = service_table(
    "dht",
    port_offset=HTTP_PORT_OFFSET,
    keys=(
        oap_key(),
        *_peer_keys(),
        *_lookup_keys(),
        _count("bootstrap.required", 3, "Seeds that must answer before the node is ready.", high=64, unit="seeds"),
        Key(
            "provider.ttl",
            Kind.DURATION,
            "24h",
            low="60s",
            high="48h",
            apply=Apply.RESTART,
            help="How long a record counts when nobody says.",
        ),
        _count("provider.own_max", 100_000, "Records of its own the node publishes.", high=1_000_000, unit="records"),
        _count("provider.kept_max", 50_000, "Records the node keeps for others.", high=1_000_000, unit="records"),
        channel_key("work", 512, "lookups on their way to a worker. Full: 429 `busy`."),
        channel_key("route", 1024, "changes on their way to one bucket's writer. Full for 100 ms: dropped."),
        channel_key("records", 512, "records on their way to their keeper. Full: `Busy`."),
        channel_key("own", 256, "changes of own records. Full: 429 `busy`."),
        channel_key("ping", 256, "contacts to be pinged. Full: dropped."),
        service_drain("5s", "30s"),
    ),
    help="Provider discovery.",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class DhtOptions:
    """What can be tuned."""

    listener: ListenerSettings | None = None
    # None keeps the identity and all records in memory.
    directory: Path | None = None
    host: str = "127.0.0.1"
    port: int = 0
    seeds: tuple[tuple[str, int], ...] = ()
    group_private: bool = False
    post_quantum: bool = False
    peer_conns: int = 512
    peer_max_conns: int = 2048
    k: int = 20
    alpha: int = 3
    find_alpha: int = 5
    beta: int = 2
    hop_budget: int = 5
    rpc_timeout_s: float = 1.5
    hedge_after_s: float = 0.25
    lookup_workers: int = 16
    verify_threads: int = 1
    inflight: int = 512
    rps: int = 5000
    peer_rps: int = 100
    bytes_per_s: int = 16 << 20
    required: int = 3
    ttl_s: int = 86_400
    own_max: int = 100_000
    kept_max: int = 50_000
    work_capacity: int = 512
    route_capacity: int = 1024
    records_capacity: int = 512
    own_capacity: int = 256
    ping_capacity: int = 256
    drain_deadline_s: float = 5.0

    @classmethod
    def from_settings(cls, settings: Settings, listener: ListenerSettings | None = None) -> DhtOptions:
        """Read the `[dht]` table; the node may hand in listener settings it has fitted to the machine."""
        number, seconds = settings.integer, settings.seconds
        address = settings.address("dht.peer_addr")
        return cls(
            listener=listener or listener_settings(settings, "dht"),
            directory=_directory(settings),
            host=address.host,
            port=address.port,
            seeds=tuple(parse_seed(text) for text in settings.texts("dht.seeds")),
            group_private=settings.flag("dht.group_private"),
            post_quantum=settings.flag("dht.post_quantum"),
            rpc_timeout_s=seconds("dht.rpc_timeout"),
            hedge_after_s=seconds("dht.hedge_after"),
            bytes_per_s=settings.size("dht.bytes_per_second"),
            required=number("dht.bootstrap.required"),
            ttl_s=int(seconds("dht.provider.ttl")),
            own_max=number("dht.provider.own_max"),
            kept_max=number("dht.provider.kept_max"),
            drain_deadline_s=seconds("dht.drain_deadline"),
            **{name: number(f"dht.{name}") for name in _SAME_NAMES},
            **{f"{name}_capacity": number(f"dht.channels.{name}") for name in _CHANNELS},
        )


_SAME_NAMES = (
    "peer_conns",
    "peer_max_conns",
    "k",
    "alpha",
    "find_alpha",
    "beta",
    "hop_budget",
    "lookup_workers",
    "verify_threads",
    "inflight",
    "rps",
    "peer_rps",
)
_CHANNELS = ("work", "route", "records", "own", "ping")


def parse_seed(text: str) -> tuple[str, int]:
    """Read `host:port`; an IPv6 host stands in brackets."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) <= 65535:
        raise ValueError(f"{text!r} is not a seed: it must be host:port")
    return host.strip("[]"), int(port)


def _directory(settings: Settings) -> Path | None:
    data_dir = settings.path("node.data_dir")
    return None if settings.flag("node.amnesia") or data_dir is None else data_dir / "dht"
