"""How many nodes a swarm has, and what each may hold of the process's descriptors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

RESERVED: Final = 512
CONNS_MIN: Final = 16
CONNS_MAX: Final = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class SwarmOptions:
    """A swarm."""

    nodes: int = 200
    seed: int = 1


def peer_conns(nodes: int, descriptors: int) -> int:
    """Return how many connections each node may keep; raise when there are too few descriptors for a swarm."""
    conns = min(CONNS_MAX, (descriptors - RESERVED - 2 * nodes) // (2 * nodes))
    if conns < CONNS_MIN:
        needed = RESERVED + 2 * nodes + 2 * nodes * CONNS_MIN
        raise ValueError(
            f"{nodes} nodes need {needed} descriptors and {descriptors} are allowed: raise ulimit -n, or start fewer"
        )
    return conns
