"""Where a node is reached: its id, host and port, with the wire form made once and concatenated ever after. Pure."""

from __future__ import annotations

from functools import cached_property
from typing import Final

from penstock.kernel.errors import Malformed
from penstock.services.dht.core.diversity import AddressGroup, group_of
from penstock.services.dht.core.ids import from_bytes, to_bytes, to_text
from penstock.wire import cbor

HOST_CHARS_MAX: Final = 253
PORT_MAX: Final = 65535


class Contact:
    """One node as others know it. Compared by id and address; never changed."""

    def __init__(self, node_id: int, host: str, port: int, group: AddressGroup | None = None) -> None:
        """Name the node; `group` is None where the address belongs to no limited network."""
        self.id = node_id
        self.host = host
        self.port = port
        self.group = group

    @cached_property
    def wire(self) -> bytes:
        """Return the contact as CBOR: `[id, host, port]`."""
        return cbor.encode([to_bytes(self.id), self.host, self.port])

    @property
    def address(self) -> tuple[str, int]:
        """Return where to dial."""
        return self.host, self.port

    def __eq__(self, other: object) -> bool:
        """Compare id and address."""
        return isinstance(other, Contact) and self.id == other.id and self.address == other.address

    def __hash__(self) -> int:
        """Hash what is compared."""
        return hash((self.id, self.host, self.port))

    def __repr__(self) -> str:
        """Show the beginning of the id, which is enough to tell nodes apart in a log."""
        return f"Contact({to_text(self.id)[:8]} {self.host}:{self.port})"


def read_contact(value: object, *, group_private: bool = False) -> Contact:
    """Read a contact that a peer named; anything but `[id, host, port]` is Malformed."""
    if type(value) is not list or len(value) != 3:
        raise Malformed("A contact is an id, a host and a port.", reason="bad_contact")
    raw_id, host, port = value
    if type(host) is not str or not 0 < len(host) <= HOST_CHARS_MAX or not host.isascii():
        raise Malformed("A contact's host is a short ASCII text.", reason="bad_contact")
    if type(port) is not int or not 0 < port <= PORT_MAX:
        raise Malformed("A contact's port is 1-65535.", reason="bad_contact")
    return Contact(from_bytes(raw_id), host, port, group_of(host, group_private=group_private))
