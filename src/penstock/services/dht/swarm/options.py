"""How many nodes a swarm has, and what each may hold of the process's descriptors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

RESERVED: Final = 512
CONNS_MIN: Final = 16
CONNS_MAX: Final = 512
DESCRIPTORS_A_NODE: Final = 4
KEPT_SHARE: Final = 0.8


@dataclass(frozen=True, kw_only=True, slots=True)
class SwarmOptions:
    """A swarm."""

    nodes: int = 200
    seed: int = 1


def peer_conns(nodes: int, descriptors: int) -> int:
    """Return how many connections each node may keep; raise when there are too few descriptors for a swarm.

    Each end of a connection is a descriptor and counts for its own node. A node has two listeners and some HTTP
    clients, and part of its share is left for connections that are being proved, or about to be closed.
    """
    conns = min(CONNS_MAX, int(KEPT_SHARE * (descriptors - RESERVED - DESCRIPTORS_A_NODE * nodes) / nodes))
    if conns < CONNS_MIN:
        needed = RESERVED + nodes * (DESCRIPTORS_A_NODE + int(CONNS_MIN / KEPT_SHARE) + 1)
        raise ValueError(
            f"{nodes} nodes need {needed} descriptors and {descriptors} are allowed: raise ulimit -n, or start fewer"
        )
    return conns
