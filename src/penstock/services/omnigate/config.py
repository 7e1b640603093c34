"""The `[omnigate]` table and the options read from it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.config import Apply, Key, Kind, channel_key, listener_settings, service_drain, service_table
from penstock.config.schema import KeyRule
from penstock.kernel.errors import Malformed
from penstock.rpc.remote import oap_place
from penstock.services.omnigate.own.views import (
    FALLBACKS,
    PARTS_MAX,
    SOURCES,
    ViewRefused,
    ViewSpec,
    read_views,
)
from penstock.services.omnigate.proxy.config import ProxyRoute, RouteRefused, read_routes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from penstock.config import ListenerSettings, Settings

PORT_OFFSET = 6
BEHIND = ("mailbox", "passport", "storage", "dht", "interop")
"""The services the gateway leads to."""
WEIGHTS = {"anon": 1, "authed": 5, "internal": 10}
_RATE_MAX = 10_000_000


def _rate(name: str, default: int, text: str) -> Key:
    return Key(name, Kind.INT, default, low=0, high=_RATE_MAX, unit="requests/s", zero_off=True, help=text)


def _places(name: str, default: int, text: str, *, unit: str = "calls") -> Key:
    return Key(name, Kind.INT, default, low=1, high=1 << 16, unit=unit, apply=Apply.RESTART, help=text)


def _time(name: str, default: str, text: str) -> Key:
    return Key(name, Kind.DURATION, default, low="10ms", high="10m", apply=Apply.RESTART, help=text)


def _place(service: str) -> Key:
    text = (
        f"Where svc-{service} is, if in another process: oap:/socket or oap://host:port. "
        "Empty: alone, its socket in the data directory."
    )
    return Key(f"downstream.{service}", Kind.STR, None, apply=Apply.RESTART, help=text)


_ROUTE_FIELDS = (
    Key("prefix", Kind.STR, help="Path prefix, whole segments."),
    Key("upstream", Kind.LIST, help="One or several `http://host:port` bases, tried in turn."),
    Key("methods", Kind.LIST, ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"), help="Methods passed on."),
    Key("class", Kind.STR, "", help="Traffic class of verified callers on this route; empty: their token's."),
    Key("require", Kind.LIST, (), help="What a capability must cover, such as `op=get`. Empty: open to anyone."),
    Key("timeout", Kind.DURATION, "5s", low="1ms", high="10m", help="To the first byte of the answer."),
    Key("retry", Kind.BOOL, default=True, help="Try idempotent requests again, within the budget."),
    Key("hedge", Kind.BOOL, default=False, help="Ask a second time after the observed p95; idempotent GETs only."),
    Key("strip_prefix", Kind.BOOL, default=False, help="Pass the path on without the prefix."),
    Key("forward", Kind.CHOICE, "none", choices=("none", "identity", "token"), help="What the upstream is told."),
    Key("tags", Kind.LIST, (), help="Words that policy rules may match."),
    Key("allow_headers", Kind.LIST, (), help="Fields about who asks that pass all the same, such as `X-Tenant-Id`."),
)
_PART_FIELDS = (
    Key("name", Kind.STR, help="Its name in the answer."),
    Key("source", Kind.CHOICE, "http", choices=SOURCES, help="What kind of call brings it."),
    Key("target", Kind.STR, help="URL, address or topic; `{param}` is a query parameter."),
    Key("required", Kind.BOOL, default=True, help="Without it the view fails."),
    Key("timeout", Kind.DURATION, "1s", low="1ms", high="1m", help="The longest it may take."),
    Key("fallback", Kind.CHOICE, "omit", choices=FALLBACKS, help="What stands in for an optional part."),
    Key("default", Kind.STR, "null", help='JSON that stands in under `fallback = "default"`.'),
)
_KEYS = (
    _rate("quotas.default_rps", 500, "All requests together."),
    Key("quotas.burst_rps", Kind.INT, 1000, low=1, high=_RATE_MAX, unit="requests", help="Depth of the global bucket."),
    _rate("quotas.per_ip_rps", 50, "Unverified requests of one address (IPv6: one /64)."),
    _rate("quotas.per_cap_rps", 200, "Requests of one capability."),
    Key(
        "fair_queue.quantum_bytes",
        Kind.SIZE,
        "64KiB",
        low="4KiB",
        high="1MiB",
        apply=Apply.RESTART,
        help="What a class of weight 1 may spend in a round.",
    ),
    Key(
        "fair_queue.weights",
        Kind.MAP,
        WEIGHTS,
        item=Kind.INT,
        low=1,
        high=1000,
        apply=Apply.RESTART,
        help="Share of each traffic class; more classes may be named here.",
    ),
    _places("fair_queue.max_inflight", 512, "Requests worked on at once.", unit="requests"),
    Key("fair_queue.adaptive", Kind.BOOL, default=True, help="Follow latency with a lower limit than max_inflight."),
    _places("fair_queue.max_parked", 4096, "Long polls and streams that wait; a quarter a tenant.", unit="requests"),
    _places("fair_queue.verify_inflight", 16, "Unknown tokens judged at once.", unit="requests"),
    channel_key("work", 512, "requests waiting in the fair queue, all classes together. Full: 429 `busy`."),
    channel_key(
        "events",
        1024,
        "Gates that flipped, for readiness. Full: the oldest are lost, and readiness looks itself.",
    ),
    Key(
        "pool_size",
        Kind.INT,
        None,
        low=1,
        high=1 << 16,
        unit="requests",
        apply=Apply.RESTART,
        help="Worker tasks, and so requests at once if fewer than `fair_queue.max_inflight`; empty: as many as that.",
    ),
    _time("default_deadline", "2s", "How long a request may take when the client sends no `X-Deadline-Ms`."),
    _time("downstream.request_timeout", "5s", "The longest downstream call."),
    *map(_place, BEHIND),
    _places("downstream.storage_calls", 128, "Calls to svc-storage at once."),
    _places("downstream.mailbox_calls", 128, "Calls to svc-mailbox at once."),
    _places("downstream.passport_calls", 64, "Calls to svc-passport at once."),
    _places("downstream.dht_calls", 64, "Calls to svc-dht at once."),
    _places("downstream.interop_calls", 128, "Calls to svc-interop at once."),
    _places("downstream.upstream_calls", 128, "Calls to one configured upstream at once."),
    Key("policy", Kind.PATH, None, help="Policy bundle (TOML or JSON). Empty: what the node's own routes need."),
    Key(
        "region", Kind.STR, "", apply=Apply.RESTART, help="Where this gateway stands, for policy and `region` caveats."
    ),
    Key("strict_boot", Kind.BOOL, default=False, apply=Apply.RESTART, help="An unhealthy downstream fails the start."),
    Key(
        "view_parts", Kind.INT, 3, low=1, high=PARTS_MAX, unit="parts", apply=Apply.RESTART,
        help="Parts a view may have.",
    ),
    Key("routes", Kind.TABLES, (), fields=_ROUTE_FIELDS, help="Reverse-proxy routes."),
    Key(
        "views",
        Kind.TABLES,
        (),
        fields=(
            Key("name", Kind.STR, help="Its name in the path."),
            Key("parts", Kind.TABLES, fields=_PART_FIELDS, help="What it is made of."),
        ),
        apply=Apply.RESTART,
        help="Answers made of several downstream calls.",
    ),
    Key(
        "put_max_bytes", Kind.SIZE, "64MiB", low="1KiB", high="1TiB", apply=Apply.RESTART,
        help="The largest object that is passed on to svc-storage, in pieces.",
    ),
    # The seeds' bounds for a gateway; what is larger goes to svc-storage.
    Key(
        "limits.max_body_bytes", Kind.SIZE, "1MiB", low="1KiB", high="1MiB",
        help="The largest body, on the wire and inflated.",
    ),
    Key(
        "limits.decompress_ratio_cap", Kind.INT, 10, low=1, high=10, unit="times",
        help="A compressed body may grow this many times at most.",
    ),
    service_drain("3s", "5s"),
)  # fmt: skip


def _holds(read: Callable[..., object]) -> Callable[..., bool | str]:
    def holds(*values: Any) -> bool | str:  # noqa: ANN401 - the values of a rule's keys
        try:
            read(*values)
        except Malformed:
            return False
        except (RouteRefused, ViewRefused) as refused:
            return str(refused)
        return True

    return holds


def _known_classes(rows: tuple[Mapping[str, Any], ...], weights: Mapping[str, int]) -> bool | str:
    for row in rows:
        if row["class"] and row["class"] not in weights:
            return f"the class {row['class']!r} of {row['prefix']} is none that fair_queue.weights has"
    return True


def _place_rules(service: str) -> tuple[KeyRule, ...]:
    key = f"omnigate.downstream.{service}"
    return (
        KeyRule(
            (key,), _holds(lambda place: place is None or oap_place(place)), "must be oap:/socket or oap://host:port"
        ),
        KeyRule(
            (key, "node.amnesia"),
            lambda place, amnesia: place is None or not amnesia or place.startswith("oap://"),
            "must be no Unix socket under node.amnesia",
        ),
    )


_RULES = (
    *(rule for service in BEHIND for rule in _place_rules(service)),
    KeyRule(
        ("omnigate.routes",), _holds(read_routes), "must be routes with a prefix, http:// upstreams and known words"
    ),
    KeyRule(
        ("omnigate.views", "omnigate.view_parts"),
        _holds(lambda rows, most: read_views(rows, parts_max=most)),
        "must be views with differently named parts, not more than view_parts, and fixed hosts",
    ),
    KeyRule(
        ("omnigate.routes", "omnigate.fair_queue.weights"),
        _known_classes,
        "must name classes that fair_queue.weights has",
    ),
    KeyRule(
        ("omnigate.fair_queue.weights",),
        lambda weights: set(WEIGHTS) <= set(weights) and "verify" not in weights,
        "must have anon, authed and internal, and not the gateway's own class verify",
    ),
)

_TABLE = service_table("omnigate", port_offset=PORT_OFFSET, keys=_KEYS, help="The gateway with fair admission.")
TABLE = replace(_TABLE, rules=(*_TABLE.rules, *_RULES))


@dataclass(frozen=True, kw_only=True, slots=True)
class QuotaOptions:
    """Requests a second; 0 is off."""

    default_rps: int = 500
    burst_rps: int = 1000
    per_ip_rps: int = 50
    per_cap_rps: int = 200

    @classmethod
    def from_settings(cls, settings: Settings) -> QuotaOptions:
        """Read the quotas; they follow a reload."""
        names = ("default_rps", "burst_rps", "per_ip_rps", "per_cap_rps")
        return cls(**{name: settings.integer(f"omnigate.quotas.{name}") for name in names})


@dataclass(frozen=True, kw_only=True, slots=True)
class FairOptions:
    """The sizes and weights of the fair queue."""

    quantum_bytes: int = 64 << 10
    weights: Mapping[str, int] = field(default_factory=lambda: dict(WEIGHTS))
    max_inflight: int = 512
    adaptive: bool = True
    max_parked: int = 4096
    verify_inflight: int = 16
    work_capacity: int = 512

    @classmethod
    def from_settings(cls, settings: Settings) -> FairOptions:
        """Read the sizes and weights of the fair queue."""
        own = "omnigate.fair_queue."
        return cls(
            quantum_bytes=settings.size(own + "quantum_bytes"),
            weights=dict(settings.mapping(own + "weights")),
            max_inflight=settings.integer(own + "max_inflight"),
            adaptive=settings.flag(own + "adaptive"),
            max_parked=settings.integer(own + "max_parked"),
            verify_inflight=settings.integer(own + "verify_inflight"),
            work_capacity=settings.integer("omnigate.channels.work"),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class OmnigateOptions:
    """What can be tuned."""

    listener: ListenerSettings | None = None
    events_capacity: int = 1024
    quotas: QuotaOptions = field(default_factory=QuotaOptions)
    fair: FairOptions = field(default_factory=FairOptions)
    pool_size: int = 512
    default_deadline_s: float = 2.0
    request_timeout_s: float = 5.0
    storage_calls: int = 128
    mailbox_calls: int = 128
    passport_calls: int = 64
    dht_calls: int = 64
    interop_calls: int = 128
    upstream_calls: int = 128
    policy: Path | None = None
    region: str = ""
    strict_boot: bool = False
    put_bytes_max: int = 64 << 20
    routes: tuple[ProxyRoute, ...] = ()
    # Where routes are kept that an operator adds; None: in RAM.
    routes_file: Path | None = None
    views: Mapping[str, ViewSpec] = field(default_factory=dict)
    drain_deadline_s: float = 3.0

    @classmethod
    def from_settings(cls, settings: Settings, listener: ListenerSettings | None = None) -> OmnigateOptions:
        """Read the `[omnigate]` table; the node may hand in listener settings it has fitted to the machine."""
        number, seconds = settings.integer, settings.seconds
        fair = FairOptions.from_settings(settings)
        directory = settings.path("node.data_dir")
        return cls(
            listener=listener or listener_settings(settings, "omnigate"),
            events_capacity=number("omnigate.channels.events"),
            quotas=QuotaOptions.from_settings(settings),
            fair=fair,
            pool_size=fair.max_inflight if settings["omnigate.pool_size"] is None else number("omnigate.pool_size"),
            default_deadline_s=seconds("omnigate.default_deadline"),
            request_timeout_s=seconds("omnigate.downstream.request_timeout"),
            storage_calls=number("omnigate.downstream.storage_calls"),
            mailbox_calls=number("omnigate.downstream.mailbox_calls"),
            passport_calls=number("omnigate.downstream.passport_calls"),
            dht_calls=number("omnigate.downstream.dht_calls"),
            interop_calls=number("omnigate.downstream.interop_calls"),
            upstream_calls=number("omnigate.downstream.upstream_calls"),
            policy=settings.path("omnigate.policy"),
            region=settings.text("omnigate.region"),
            strict_boot=settings.flag("omnigate.strict_boot"),
            put_bytes_max=settings.size("omnigate.put_max_bytes"),
            routes=read_routes(settings.tables("omnigate.routes")),
            routes_file=None
            if settings.flag("node.amnesia") or directory is None
            else directory / "omnigate/routes.toml",
            views=read_views(settings.tables("omnigate.views"), parts_max=number("omnigate.view_parts")),
            drain_deadline_s=seconds("omnigate.drain_deadline"),
        )
