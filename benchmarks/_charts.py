"""Curves and bars as SVG, one chart beside the other; without a library."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 400, 270, 58, 52, 62
COLOURS = ("#0b6bcb", "#c2410c", "#15803d", "#7c3aed", "#64748b", "#b45309", "#0f766e", "#9f1239")
Points = list[tuple[float, float]]
Place = Callable[[float], float]


@dataclass(frozen=True)
class Chart:
    """Curves over one axis. `aim` is drawn as a dashed line; `log` makes the upright axis logarithmic."""

    title: str
    below: str
    curves: dict[str, Points]
    aim: float | None = None
    log: bool = False


@dataclass(frozen=True)
class BarChart:
    """Bars, each with its name and the parts that stand on each other."""

    title: str
    bars: dict[str, tuple[float, ...]]
    parts: tuple[str, ...] = ()


def draw(path: Path, title: str, charts: list[Chart | BarChart]) -> None:
    """Write the charts side by side into one file."""
    made = [_curves(chart) if isinstance(chart, Chart) else _bars(chart) for chart in charts]
    body = "".join(f'<g transform="translate({n * (WIDTH + 30)},20)">{each}</g>' for n, each in enumerate(made))
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {len(charts) * (WIDTH + 30)} {HEIGHT + 30}" '
        'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="#ffffff"/>'
        f"{_text(12, 18, title, font_weight='600')}{body}</svg>\n"
    )


def _text(x: float, y: float, text: str, **style: str) -> str:
    said = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in {"fill": "#1f2937", **style}.items())
    return f'<text x="{x:.1f}" y="{y:.1f}"{said}>{escape(text)}</text>'


def _line(left: tuple[float, float], right: tuple[float, float], style: str) -> str:
    return f'<line x1="{left[0]:.1f}" y1="{left[1]:.1f}" x2="{right[0]:.1f}" y2="{right[1]:.1f}" {style}/>'


def _short(value: float) -> str:
    return f"{value / 1000:.3g}k" if value >= 1000 else f"{value:.3g}"


def _scale(low: float, high: float, *, log: bool) -> tuple[Place, list[float]]:
    """Return where a value stands on the upright axis, and which values are written there."""
    height = HEIGHT - TOP - BOTTOM
    if not log:
        return (lambda y: HEIGHT - BOTTOM - y / high * height), [high * part for part in (0, 0.25, 0.5, 0.75, 1)]
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    span = max(1, last - first)
    ticks = [10.0**power for power in range(first, last + 1)]
    return (lambda y: HEIGHT - BOTTOM - (math.log10(max(y, ticks[0])) - first) / span * height), ticks


def _axis(place: Place, ticks: list[float]) -> str:
    lines = [_line((LEFT, place(tick)), (WIDTH, place(tick)), 'stroke="#e5e7eb"') for tick in ticks]
    return "".join(lines + [_text(LEFT - 6, place(tick) + 4, _short(tick), text_anchor="end") for tick in ticks])


def _curves(chart: Chart) -> str:
    values = [y for points in chart.curves.values() for _, y in points if y > 0] + ([chart.aim] if chart.aim else [])
    up, ticks = _scale(min(values), max(values) * 1.1, log=chart.log)
    xs = sorted({x for points in chart.curves.values() for x, _ in points})
    step = (WIDTH - LEFT - 20) / max(1, len(xs) - 1)
    across = {x: LEFT + 10 + n * step for n, x in enumerate(xs)}
    out = [_text(LEFT, TOP - 14, chart.title, font_weight="600"), _axis(up, ticks)]
    out += [_text(at, HEIGHT - BOTTOM + 16, _short(x), text_anchor="middle") for x, at in across.items()]
    out.append(_text((LEFT + WIDTH) / 2, HEIGHT - BOTTOM + 31, chart.below, text_anchor="middle"))
    if chart.aim:
        out.append(_line((LEFT, up(chart.aim)), (WIDTH, up(chart.aim)), 'stroke="#c00" stroke-dasharray="5 4"'))
    for n, (name, points) in enumerate(chart.curves.items()):
        colour, places = COLOURS[n % len(COLOURS)], [(across[x], up(y)) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in places]
        out.append(_text(LEFT + n % 3 * 115, HEIGHT - 16 + n // 3 * 13, name, fill=colour))
    return "".join(out)


def _bars(chart: BarChart) -> str:
    most = max(sum(parts) for parts in chart.bars.values()) or 1.0
    tall, wide = (HEIGHT - TOP - 30) / len(chart.bars), WIDTH - LEFT - 130
    out = [_text(LEFT, TOP - 14, chart.title, font_weight="600")]
    for n, (name, parts) in enumerate(chart.bars.items()):
        y, x = TOP + n * tall, LEFT + 66.0
        out.append(_text(x - 6, y + tall / 2 + 4, name, text_anchor="end"))
        for part, value in enumerate(parts):
            width, place = value / most * wide, f'x="{x:.1f}" y="{y + 2:.1f}" height="{tall - 4:.1f}"'
            out.append(f'<rect {place} width="{width:.1f}" fill="{COLOURS[part]}"/>')
            x += width
        out.append(_text(x + 5, y + tall / 2 + 4, " + ".join(map(_short, parts))))
    out += [_text(LEFT + n * 115, HEIGHT - 16, name, fill=COLOURS[n]) for n, name in enumerate(chart.parts)]
    return "".join(out)
