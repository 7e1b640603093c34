"""What is simulated, as data."""

from __future__ import annotations

from dataclasses import dataclass

HOUR_S = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SimOptions:
    """One scenario. Shares are 0-1; `churn` is the share of nodes that leave, and of nodes that join, in an hour."""

    nodes: int = 10_000
    lookups: int = 100_000
    seed: int = 1
    churn: float = 0.1
    dead: float = 0.2
    dead_at_s: float = 1800.0
    span_s: float = HOUR_S
    loss: float = 0.001
    natted: float = 0.05
    hostile: float = 0.0
    one_group: float = 0.0  # the share of nodes whose addresses lie in one /16
    partition: float = 0.0  # the share that is cut off from the rest for a while in the middle
    keys: int = 1000
    k: int = 20
    paths: int = 1
    find_alpha: int = 5
    deadline_s: float = 2.0
    rpc_timeout_s: float = 1.5
    walks_instead: bool = False  # look for nodes, not for values: for the gate on groups
