"""Whether this node knows enough of the network to be trusted with writes. Pure.

A node without seeds is alone: ready, but degraded. A node with seeds is ready once enough of them answered and two
walks to its own id ended with the same nodes. In a network of k nodes or more it must also hold contacts in most of the
buckets that a network of that size fills. PeerReadiness can be lost: no good contact for a minute shuts the gate again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.services.dht.core.ids import BUCKETS

FILL_SHARE: Final = 0.6
EXPECTED_MIN: Final = 2.0
LONELY_S: Final = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class PeerSituation:
    """What is known at one moment."""

    seeds: int  # distinct configured seeds
    seeds_answered: int
    required: int
    walks_equal: bool  # the last two walks to the own id ended alike
    contacts: int
    nodes: float  # the estimated size of the network
    k: int
    filled: tuple[bool, ...]  # whether each bucket holds anybody
    lonely_s: float  # since when no contact has answered


@dataclass(frozen=True, slots=True)
class PeerReadiness:
    """The verdict and its reason, as a sentence."""

    ready: bool
    alone: bool
    reason: str


def judge(situation: PeerSituation) -> PeerReadiness:
    """Say whether the node is ready, and why."""
    lonely = not situation.contacts or situation.lonely_s >= LONELY_S
    if not situation.seeds:
        return _without_seeds(situation, lonely=lonely)
    if situation.lonely_s >= LONELY_S:
        return _no(f"No peer has answered for {LONELY_S:.0f} s or more.")
    wanted = min(situation.required, situation.seeds)
    if situation.seeds_answered < wanted:
        return _no(f"{situation.seeds_answered} of {wanted} seeds have answered.")
    if not situation.walks_equal:
        return _no("Two walks to this node's own id have not ended alike yet.")
    if situation.contacts < situation.k:
        return _yes(f"{situation.contacts} contacts; the network is smaller than a bucket.")
    share = fill_share(situation.filled, situation.nodes)
    if share < FILL_SHARE:
        return _no(f"{share:.0%} of the expected buckets hold contacts; {FILL_SHARE:.0%} are needed.")
    return _yes(f"{situation.contacts} contacts in a network of about {situation.nodes:.0f}.")


def _without_seeds(situation: PeerSituation, *, lonely: bool) -> PeerReadiness:
    """Judge a node that others join through: it is always ready, and alone while nobody is there."""
    if lonely:
        return PeerReadiness(ready=True, alone=True, reason="Alone: no seeds are configured and no peer answers.")
    return _yes(f"{situation.contacts} contacts; no seeds are configured.")


def fill_share(filled: tuple[bool, ...], nodes: float) -> float:
    """Return the share of buckets with contacts among those that should have at least two: N / 2^(i+1) >= 2."""
    expected = [i for i in range(BUCKETS) if nodes / 2 ** (i + 1) >= EXPECTED_MIN]
    return sum(filled[i] for i in expected) / len(expected) if expected else 1.0


def _yes(reason: str) -> PeerReadiness:
    return PeerReadiness(ready=True, alone=False, reason=reason)


def _no(reason: str) -> PeerReadiness:
    return PeerReadiness(ready=False, alone=False, reason=reason)
