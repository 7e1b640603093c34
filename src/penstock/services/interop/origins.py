"""Where a webhook may come from: the peer's address and the Host it asked for; pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
# More hops than this are no honest chain of proxies.
_HOPS_MAX: Final = 16
_FORWARDED_FOR: Final = b"x-forwarded-for"


def read_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Read addresses and CIDRs; raises ValueError with a sentence for what is neither."""
    found = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text))
        except ValueError as exc:
            raise ValueError(f"{text!r} is not an address or a network such as 192.0.2.0/24.") from exc
    return tuple(found)


def _read(text: str) -> IpAddress | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    # An IPv4 client on a socket for both is the IPv4 address that the settings name.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _is_in(address: IpAddress, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)


def real_peer(peer: str, fields: Iterable[tuple[bytes, bytes]], proxies: Sequence[Network]) -> IpAddress | None:
    """Return who sent the request: the peer, or behind trusted proxies the rightmost address that is none of them.

    What stands left of it was written by the sender and proves nothing. None when it cannot be told.
    """
    address = _read(peer)
    if address is None or not _is_in(address, proxies):
        return address
    hops = [
        hop for name, value in fields if name.lower() == _FORWARDED_FOR for hop in value.rsplit(b",", _HOPS_MAX + 1)
    ]
    for hop in hops[: -_HOPS_MAX - 1 : -1]:
        address = _read(hop.strip().decode("ascii", "replace"))
        if address is None or not _is_in(address, proxies):
            return address
    return address


class OriginPin:
    """An endpoint's `allow_ips` and `allow_hosts`; empty lists allow everybody."""

    __slots__ = ("_hosts", "_networks", "_proxies", "is_open")

    def __init__(
        self, *, ips: Sequence[Network] = (), hosts: Sequence[str] = (), proxies: Sequence[Network] = ()
    ) -> None:
        """Take the lists; `proxies` are those whose X-Forwarded-For is believed."""
        self._networks = tuple(ips)
        self._hosts = frozenset(host.lower().rstrip(".") for host in hosts)
        self._proxies = tuple(proxies)
        # Whoever it is may send.
        self.is_open = not self._networks and not self._hosts

    def refuses(self, peer: str, fields: Sequence[tuple[bytes, bytes]]) -> str:
        """Say which list does not have this sender; empty when it may go on."""
        if self._hosts and not self._has_host(fields):
            return "host"
        if not self._networks:
            return ""
        address = real_peer(peer, fields, self._proxies)
        return "" if address is not None and _is_in(address, self._networks) else "ip"

    def _has_host(self, fields: Sequence[tuple[bytes, bytes]]) -> bool:
        hosts = [value for name, value in fields if name.lower() == b"host"]
        return len(hosts) == 1 and _host_name(hosts[0]) in self._hosts


def _host_name(host: bytes) -> str:
    """Return the name in a Host field, without its port."""
    text = host.decode("ascii", "replace").lower()
    name = text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]
    return name.rstrip(".")
