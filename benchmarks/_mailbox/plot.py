"""Curves over a logarithmic axis as SVG, one panel each; without a library."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 380, 240, 64, 34, 16, 36


@dataclass(frozen=True)
class Panel:
    """One curve: its title, its points, and the value it should stay below or above, if any."""

    title: str
    points: list[tuple[float, float]]
    aim: float | None = None


def draw(path: Path, title: str, panels: list[Panel]) -> None:
    """Write the panels side by side."""
    body = "".join(f'<g transform="translate({place * WIDTH},24)">{_panel(p)}</g>' for place, p in enumerate(panels))
    style = "text{font:11px sans-serif;fill:#334}.t{font-weight:600}.a{stroke:#99a}.g{stroke:#dde}"
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH * len(panels)} {HEIGHT + 24}">'
        f'<style>{style}</style><rect width="100%" height="100%" fill="#fff"/>'
        f'<text class="t" x="12" y="18">{title}</text>{body}</svg>\n'
    )


def _panel(panel: Panel) -> str:
    xs = [math.log10(max(1.0, x)) for x, _ in panel.points]
    top = max([y for _, y in panel.points] + [panel.aim or 0.0]) * 1.15 or 1.0
    low, span = min(xs), max(max(xs) - min(xs), 1e-9)

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            LEFT + (x - low) / span * (WIDTH - LEFT - RIGHT),
            TOP + (1 - y / top) * (HEIGHT - TOP - BOTTOM),
        )

    places = [at(x, y) for x, (_, y) in zip(xs, panel.points, strict=True)]
    curve = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#0b6"/>' for x, y in places)
    return (
        f'<text class="t" x="{LEFT}" y="{TOP - 12}">{panel.title}</text>{_grid(top, at, low)}'
        + "".join(
            f'<text x="{x:.1f}" y="{HEIGHT - 14}" text-anchor="middle">{_short(size)}</text>'
            for (x, _), (size, _) in zip(places, panel.points, strict=True)
        )
        + (_aim(panel.aim, at, low) if panel.aim is not None else "")
        + f'<polyline points="{curve}" fill="none" stroke="#0b6" stroke-width="2"/>{dots}'
    )


def _grid(top: float, at: object, low: float) -> str:
    out = ""
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        _, y = at(low, top * part)  # type: ignore[operator]
        out += f'<line class="g" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        out += f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_short(top * part)}</text>'
    return out


def _aim(aim: float, at: object, low: float) -> str:
    _, y = at(low, aim)  # type: ignore[operator]
    return f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#c40" stroke-dasharray="5 4"/>'


def _short(value: float) -> str:
    for limit, letter in ((1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:g}{letter}" if value % limit == 0 else f"{value / limit:.1f}{letter}"
    return f"{value:g}" if value == int(value) else f"{value:.2g}"
