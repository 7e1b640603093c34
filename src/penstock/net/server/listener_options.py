"""What can be set about a listener."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class ListenerOptions:
    """Where to listen, and within which bounds."""

    # Tells this listener's rows in the inventory from those of another one of the same service.
    name: str = "listener"
    # None listens on no TCP address.
    host: str | None = "127.0.0.1"
    port: int = 0
    reuse_port: bool = False
    uds_path: Path | None = None
    # None admits the node's own user; an empty set admits nobody.
    uds_allow_uids: frozenset[int] | None = None
    backlog: int = 1024
    max_conns: int = 1024
    # None is a quarter of max_conns, 0 no cap of its own; not for Unix sockets.
    max_conns_per_ip: int | None = None
    # Places that only Unix-socket peers may take, so that a flood cannot lock the operator out.
    reserved_conns: int = 16
    read_timeout_s: float = 5.0
    write_timeout_s: float = 5.0
    idle_timeout_s: float = 60.0
    request_deadline_s: float = 30.0
    body_bytes_max: int = 1 << 20
    decompress_ratio_cap: int = 10
    tasks_max: int = 1024
    # True: a client that shuts its side still gets its answers. False: it is taken for gone and its work is ended.
    half_close: bool = True
    tls_cert_path: Path | None = None
    tls_key_path: Path | None = None
    # Names a loopback listener answers to besides localhost and loopback literals; origins that may post to us.
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    server_version: str = ""

    @property
    def per_ip(self) -> int:
        """Return how many connections one address may hold; 0: as many as there are."""
        return max(1, self.max_conns // 4) if self.max_conns_per_ip is None else self.max_conns_per_ip
