"""What a node tells its operator of itself as a whole: whether it is ready, and how much is sent and acknowledged."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

from penstock.cli import running

# As far back as the rates of single topics go.
_LATELY_S = 60


class NodeTold(NamedTuple):
    """Rates are messages a second over the last minute, of all topics; None where the node has not measured them."""

    ready: bool
    send_rate: float | None
    ack_rate: float | None


def ask(args: argparse.Namespace) -> NodeTold:
    """Ask the node; `NodeSilent` where it does not say whether it is ready."""
    ready = bool(running.ask_node(args, "GET", "/v1/node/status")["ready"])
    try:
        lines = running.ask_node(args, "GET", "/v1/node/history?span=5m&series=sent,acked")["series"]
    except running.NodeSilent:
        # A node of an earlier version.
        lines = {}
    return NodeTold(ready, lately(lines.get("sent", ())), lately(lines.get("acked", ())))


def lately(line: Sequence[float | None]) -> float | None:
    """Return the mean of the last minute of a line of seconds; None without any value."""
    known = [value for value in line[-_LATELY_S:] if value is not None]
    return round(sum(known) / len(known), 3) if known else None
