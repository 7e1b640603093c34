"""The optional picture of a simulation: hops, latencies, and success over time. Needs matplotlib."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from penstock.kernel.errors import Unsupported
from penstock.services.dht.sim.gates import WINDOW_S, quantile, success

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.services.dht.sim.scenario import SimResult

# Sorted behind every depth.
NOT_FOUND: Final = 1000


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
    _draw_hops(hops, result)
    _draw_latency(latency, result)
    _draw_success(over_time, result)
    figure.suptitle(_title(result))
    figure.savefig(path, dpi=120)


def _title(result: SimResult) -> str:
    options = result.options
    return (
        f"{options.nodes:,} nodes, {len(result.looked):,} lookups, {options.churn:.0%} churn an hour, "
        f"{options.dead:.0%} killed, seed {options.seed}"
    )


def _draw_hops(axes: Any, result: SimResult) -> None:  # noqa: ANN401 - matplotlib is optional and has no types here
    """Draw one bar a depth; what was not found stands apart, beyond the hop budget."""
    counts = Counter(each.hops if each.found else NOT_FOUND for each in result.looked)
    names = [str(depth) for depth in sorted(counts)]
    bars = axes.bar(["none" if name == str(NOT_FOUND) else name for name in names], [counts[int(n)] for n in names])
    axes.bar_label(bars, fmt="{:,.0f}")
    axes.margins(y=0.12)
    axes.set(title="hops", xlabel="depth at which the record was found", ylabel="lookups")


def _draw_latency(axes: Any, result: SimResult) -> None:  # noqa: ANN401 - as above
    took_ms = [each.took_s * 1000 for each in result.looked]
    axes.hist(took_ms, bins=60, log=True)
    for share, style in ((0.5, "--"), (0.99, ":")):
        value = quantile(took_ms, share)
        axes.axvline(value, color="black", linestyle=style, label=f"p{share * 100:.0f} {value:.0f} ms")
    axes.legend()
    axes.set(title="latency", xlabel="virtual ms", ylabel="lookups")


def _draw_success(axes: Any, result: SimResult) -> None:  # noqa: ANN401 - as above
    options = result.options
    starts = [WINDOW_S * i for i in range(int(options.span_s // WINDOW_S))]
    windows = [[each for each in result.looked if start <= each.at_s < start + WINDOW_S] for start in starts]
    shown = [(start / 60, success(window)) for start, window in zip(starts, windows, strict=True) if window]
    axes.plot([minute for minute, _ in shown], [100 * share for _, share in shown], drawstyle="steps-post")
    if options.dead:
        axes.axvline(options.dead_at_s / 60, color="black", linestyle=":", label=f"{options.dead:.0%} die")
        axes.legend(loc="lower right")
    lowest = min((100 * share for _, share in shown), default=100.0)
    axes.set(title="success, minute by minute", xlabel="virtual minutes", ylabel="%", ylim=(min(95, lowest) - 1, 100.5))
