"""Which addresses are dialled that a peer has named: a node must not be turned against others or its own network."""

from __future__ import annotations

import ipaddress
from typing import Final

PORT_MIN: Final = 1024


def address_class(host: str) -> str:
    """Say what kind of address it is: global, loopback, private, or one that is never dialled."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "name"
    if address.is_multicast or address.is_link_local or address.is_unspecified or address.is_reserved:
        return "never"
    if address.is_loopback:
        return "loopback"
    return "global" if address.is_global else "private"


def may_dial(host: str, port: int, own_host: str) -> bool:
    """Tell whether an address named by a peer may be dialled: a global one, or one of our own listener's class."""
    if port < PORT_MIN:
        return False
    kind = address_class(host)
    return kind == "global" or (kind in {"loopback", "private"} and kind == address_class(own_host))
