"""The keys every listener has: defaults in `[http]`, and the same key in a service's table wins."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from penstock.config.kinds import PORT_MAX, HostPort, Kind
from penstock.config.schema import (
    Apply,
    Derived,
    Key,
    KeyRule,
    Table,
)
from penstock.config.settings import Settings

LOOPBACK = "127.0.0.1"
PORT_BASE = 5300
_METRICS_OFFSET = 1_000


_COMMON = (
    Key("max_conns", Kind.INT, 1024, low=1, high=1_000_000, unit="connections", help="Open connections at most."),
    Key(
        "max_conns_per_ip",
        Kind.INT,
        None,
        low=1,
        high=1_000_000,
        unit="connections",
        zero_off=True,
        help="Open connections of one peer (IPv6: one /64) at most. Unix sockets are not counted.",
    ),
    Key(
        "read_timeout",
        Kind.DURATION,
        "5s",
        low="10ms",
        high="10m",
        help="Headers must be complete this long after their first byte, and each read of a body.",
    ),
    Key("write_timeout", Kind.DURATION, "5s", low="10ms", high="10m", help="Each write must be taken within this."),
    Key(
        "idle_timeout",
        Kind.DURATION,
        "60s",
        low="100ms",
        high="1h",
        help="A kept connection without a request is closed after this.",
    ),
    Key(
        "request_deadline",
        Kind.DURATION,
        "30s",
        low="100ms",
        high="1h",
        help="A request is answered within this, unless its route has its own deadline.",
    ),
    Key(
        "limits.max_body_bytes",
        Kind.SIZE,
        "1MiB",
        low="1KiB",
        high="1GiB",
        help="The largest body, on the wire and inflated.",
    ),
    Key(
        "limits.decompress_ratio_cap",
        Kind.INT,
        10,
        low=1,
        high=1000,
        unit="times",
        help="A compressed body may grow this many times at most.",
    ),
    Key("tls.cert_path", Kind.PATH, None, apply=Apply.REBIND, help="Certificate chain (PEM). With it: TLS 1.3."),
    Key(
        "tls.key_path",
        Kind.PATH,
        None,
        apply=Apply.REBIND,
        help="Private key (PEM). The file must not be readable by group or world.",
    ),
    Key(
        "uds.allow_uids",
        Kind.LIST,
        (),
        item=Kind.INT,
        low=0,
        help="User ids that may connect to the Unix socket. Empty: only the node's own.",
    ),
    Key(
        "allowed_hosts",
        Kind.LIST,
        (),
        help="Host names a loopback listener answers to, besides localhost and loopback literals.",
    ),
)


def _listener_keys(table: str) -> tuple[Key, ...]:
    """Give the common keys for one table: the per-peer cap follows the table's own `max_conns`."""
    quarter = Derived((f"{table}.max_conns",), lambda conns: max(1, conns // 4), "a quarter of `max_conns`")
    return tuple(replace(key, default=quarter) if key.name == "max_conns_per_ip" else key for key in _COMMON)


def _tls_rule(table: str) -> KeyRule:
    names = (f"{table}.tls.cert_path", f"{table}.tls.key_path")
    return KeyRule(
        names, lambda cert, key: (cert is None) == (key is None), "needs both tls.cert_path and tls.key_path"
    )


HTTP = Table(
    "http", _listener_keys("http"), (_tls_rule("http"),), help="Defaults of every listener; a service's own table wins."
)


def listener_table(name: str, *, port_offset: int, keys: tuple[Key, ...], help: str = "") -> Table:
    """Make a table with a listener: its own keys, and the common ones inheriting from `[http]`.

    A key of its own with a common name replaces the common one, with its own default and range, and still inherits.
    """
    own = {key.name: key for key in keys}
    common = [replace(own.pop(key.name, key), inherits=f"http.{key.name}") for key in _listener_keys(name)]
    places = (_bind_key(port_offset), _UDS_PATH)
    return Table(name, (*places, *own.values(), *common), (_tls_rule(name),), help)


def service_table(name: str, *, port_offset: int, keys: tuple[Key, ...], help: str = "") -> Table:
    """Make the table of a service: a listener that may have a second address for its metrics."""
    return listener_table(name, port_offset=port_offset, keys=(_metrics_key(name), *keys), help=help)


# Like the address, one socket cannot be a default for all.
_UDS_PATH = Key(
    "uds.path", Kind.PATH, None, apply=Apply.REBIND, help="Listen on this Unix socket too (0600 in a 0700 directory)."
)


def _bind_key(offset: int) -> Key:
    def address(base: int, ephemeral: bool) -> HostPort:  # noqa: FBT001 computed from keys by position
        return HostPort(LOOPBACK, 0 if ephemeral else base + offset)

    default = Derived(("node.port_base", "node.ephemeral_ports"), address, f"{LOOPBACK}:{PORT_BASE + offset}")
    return Key("bind_addr", Kind.ADDRESS, default, apply=Apply.REBIND, help="Where the listener binds.")


def _metrics_key(table: str) -> Key:
    def address(profile: str, bind: HostPort) -> HostPort | None:
        if profile != "macro":
            return None
        # A service on a port the system chose, or too high for a neighbour, has the system choose this one too.
        port = bind.port + _METRICS_OFFSET if 0 < bind.port <= PORT_MAX - _METRICS_OFFSET else 0
        return bind._replace(port=port)

    return Key(
        "metrics_addr",
        Kind.ADDRESS,
        Derived(("node.profile", f"{table}.bind_addr"), address, "none; in macro the service's port + 1000"),
        optional=True,
        apply=Apply.REBIND,
        help="Serve this service's `/metrics`, `/healthz` and `/readyz` apart.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """The effective listener keys of one table, with units in their names."""

    host: str
    port: int
    uds_path: Path | None
    uds_allow_uids: tuple[int, ...]
    max_conns: int
    max_conns_per_ip: int
    read_timeout_s: float
    write_timeout_s: float
    idle_timeout_s: float
    request_deadline_s: float
    body_bytes_max: int
    decompress_ratio_cap: int
    tls_cert_path: Path | None
    tls_key_path: Path | None
    allowed_hosts: tuple[str, ...]


def _public_host(settings: Settings, key: str) -> tuple[str, ...]:
    """Return the host of a service's public URL, where it has one: those outside send it as Host."""
    url = settings.get(key)
    host = urlsplit(url).hostname if isinstance(url, str) else None
    return () if host is None else (host,)


def listener_settings(settings: Settings, table: str) -> ListenerSettings:
    """Read the effective listener keys of a table."""
    address = settings.address(f"{table}.bind_addr")
    return ListenerSettings(
        host=address.host,
        port=address.port,
        uds_path=settings.path(f"{table}.uds.path"),
        uds_allow_uids=settings.integers(f"{table}.uds.allow_uids"),
        max_conns=settings.integer(f"{table}.max_conns"),
        max_conns_per_ip=settings.integer(f"{table}.max_conns_per_ip"),
        read_timeout_s=settings.seconds(f"{table}.read_timeout"),
        write_timeout_s=settings.seconds(f"{table}.write_timeout"),
        idle_timeout_s=settings.seconds(f"{table}.idle_timeout"),
        request_deadline_s=settings.seconds(f"{table}.request_deadline"),
        body_bytes_max=settings.size(f"{table}.limits.max_body_bytes"),
        decompress_ratio_cap=settings.integer(f"{table}.limits.decompress_ratio_cap"),
        tls_cert_path=settings.path(f"{table}.tls.cert_path"),
        tls_key_path=settings.path(f"{table}.tls.key_path"),
        allowed_hosts=(
            *settings.texts(f"{table}.allowed_hosts"),
            *_public_host(settings, f"{table}.public_url"),
            *_public_host(settings, f"{table}.sqs.url"),
        ),
    )
