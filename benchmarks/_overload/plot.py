"""Draws the sweep and the light callers' latency as one SVG, without a library."""

from __future__ import annotations

from html import escape
from typing import Any

WIDTH, HEIGHT, MARGIN, TOP = 420, 260, 56, 44
COLOURS = ("#0b6bcb", "#c2410c", "#15803d", "#7c3aed")


def draw(results: dict[str, Any]) -> str:
    """Draw goodput over offered load, and p99 of the light callers beside the flood."""
    panels = [_goodput(results), _light(results)]
    body = "".join(f'<g transform="translate({n * (WIDTH + 40)},0)">{panel}</g>' for n, panel in enumerate(panels))
    width, height = len(panels) * (WIDTH + 40), HEIGHT + TOP + 70
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>{body}</svg>\n'
    )


def _text(x: float, y: float, text: str, **more: str) -> str:
    extra = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="#1f2937"{extra}>{escape(text)}</text>'


def _goodput(results: dict[str, Any]) -> str:
    x0, y0, wide, high = MARGIN, TOP + HEIGHT, WIDTH - MARGIN, HEIGHT
    lines = [_text(x0, 22, "Goodput, anon alone (share of the upstream's capacity)", font_weight="bold")]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = y0 - share * high
        lines.append(f'<line x1="{x0}" x2="{x0 + wide}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e5e7eb"/>')
        lines.append(_text(x0 - 8, y + 4, f"{share:.0%}", text_anchor="end"))
    for n, (name, found) in enumerate(results.items()):
        points = [(x0 + row["times"] / 10 * wide, y0 - min(1.1, row["goodput"]) * high) for row in found["sweep"]]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        lines.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[n % 4]}" stroke-width="2"/>')
        lines += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{COLOURS[n % 4]}"/>' for x, y in points]
        lines.append(_text(x0 + 10 + n * 96, y0 + 52, name, fill=COLOURS[n % 4]))
    lines += [_text(x0 + times / 10 * wide, y0 + 18, f"{times:g}x", text_anchor="middle") for times in (1, 2, 4, 10)]
    lines.append(_text(x0 + wide / 2, y0 + 34, "offered load", text_anchor="middle"))
    return "".join(lines)


def _light(results: dict[str, Any]) -> str:
    x0, y0, wide, high = MARGIN, TOP + HEIGHT, WIDTH - MARGIN, HEIGHT
    bars = [
        (name, case, found[scenario].get(case, {}).get("p99_ms") or 0.0, n, scenario)
        for n, (name, found) in enumerate(results.items())
        for case in ("authed", "internal")
        for scenario in ("unloaded", "flood")
    ]
    most = max((value for *_, value, _, _ in bars), default=1.0) or 1.0
    lines = [_text(x0, 22, "p99 of light callers, ms: alone (pale) and beside a 10x flood", font_weight="bold")]
    step = wide / max(1, len(bars))
    for n, (name, case, value, colour, scenario) in enumerate(bars):
        tall = value / most * high
        x, opacity = x0 + n * step, "0.35" if scenario == "unloaded" else "1"
        lines.append(
            f'<rect x="{x + 2:.1f}" y="{y0 - tall:.1f}" width="{step - 4:.1f}" height="{tall:.1f}" '
            f'fill="{COLOURS[colour % 4]}" fill-opacity="{opacity}"/>'
        )
        lines.append(_text(x + step / 2, y0 - tall - 4, f"{value:.0f}", text_anchor="middle", font_size="9"))
        if scenario == "flood":
            lines.append(_text(x, y0 + 16, case, text_anchor="middle", font_size="9"))
            if case == "internal":
                lines.append(_text(x - step, y0 + 32, name, text_anchor="middle", fill=COLOURS[colour % 4]))
    return "".join(lines)
