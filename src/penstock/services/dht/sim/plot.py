"""The optional picture of a simulation: hops, latencies, and success over time. Needs matplotlib."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from penstock.kernel.errors import Unsupported
from penstock.services.dht.sim.gates import WINDOW_S, success

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.services.dht.sim.scenario import SimResult


def draw(result: SimResult, path: Path) -> None:
    """Draw three panels into a PNG."""
    try:
        figures = import_module("matplotlib.figure")
    except ImportError as exc:
        raise Unsupported(
            "--plot needs matplotlib: pip install matplotlib.", status=501, reason="no_matplotlib"
        ) from exc
    figure = figures.Figure(figsize=(12, 3.5), layout="constrained")
    hops, latency, over_time = figure.subplots(1, 3)
    deepest = max(each.hops for each in result.looked)
    hops.hist([each.hops for each in result.looked], bins=[n + 0.5 for n in range(deepest + 1)])
    hops.set(title="hops", xlabel="depth of the answer", ylabel="lookups")
    latency.hist([each.took_s * 1000 for each in result.looked], bins=60, log=True)
    latency.set(title="latency", xlabel="ms")
    starts = [WINDOW_S * i for i in range(int(result.options.span_s // WINDOW_S))]
    shares = [success([each for each in result.looked if start <= each.at_s < start + WINDOW_S]) for start in starts]
    over_time.plot(starts, shares)
    over_time.set(title="success, minute by minute", xlabel="s", ylim=(min(0.95, *shares) - 0.01, 1.005))
    figure.savefig(path, dpi=120)
