"""Contacts, ids and keys for the tests of svc-dht."""

from __future__ import annotations

from random import Random

from penstock.services.dht.core.contact import Contact
from penstock.services.dht.core.diversity import group_of
from penstock.services.dht.core.ids import ID_BITS


def contact(node_id: int, host: str = "127.0.0.1", port: int = 5302) -> Contact:
    """Make a contact as a peer would name it."""
    return Contact(node_id, host, port, group_of(host))


def ids(rng: Random, count: int) -> list[int]:
    """Draw ids; two alike do not happen."""
    return [rng.getrandbits(ID_BITS) for _ in range(count)]


def contacts(rng: Random, count: int) -> list[Contact]:
    """Draw contacts on loopback."""
    return [contact(node_id) for node_id in ids(rng, count)]
