"""The scenarios: a flood beside light callers, all classes at twice the capacity, and a flood alone at rising rates."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from benchmarks._overload.gateways import TENANTS, Gateway
from benchmarks._overload.upstream import CAPACITY_RPS

LIGHT_SHARE = 0.05
WEIGHTS = {"anon": 1, "authed": 5, "internal": 10}
SWEEP = (0.5, 1.0, 2.0, 4.0, 10.0)
WINDOW_S = 10.0
Row = dict[str, Any]


def offer(gateway: Gateway, rates: dict[str, float], seconds: float, *, lines_max: int = 1500) -> tuple[Row, float]:
    """Load a gateway from a process of its own; gives the outcome of each caller and the gateway's CPU seconds."""
    plan = {
        "port": gateway.port,
        "seconds": seconds,
        "callers": [
            {"name": name, "rps": rps, "request": gateway.request(name).hex(), "lines_max": lines_max}
            for name, rps in rates.items()
        ],
    }
    before = gateway.cpu_s()
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks._overload.open_loop"],
        input=json.dumps(plan),
        capture_output=True,
        text=True,
        check=True,
        timeout=seconds + 60,
    )
    outcome: Row = json.loads(done.stdout)
    return outcome, gateway.cpu_s() - before


def unloaded(gateway: Gateway, seconds: float) -> Row:
    """Measure the light callers alone: what they would get if nobody flooded."""
    light = CAPACITY_RPS * LIGHT_SHARE
    outcome, _ = offer(gateway, {"authed": light, "internal": light}, seconds)
    return {name: _brief(found) for name, found in outcome.items()}


def flood(gateway: Gateway, seconds: float) -> Row:
    """Offer (a): anon ten times the capacity, the two others a twentieth of it each."""
    light = CAPACITY_RPS * LIGHT_SHARE
    outcome, _ = offer(gateway, {"anon": CAPACITY_RPS * 10, "authed": light, "internal": light}, seconds)
    return {name: _brief(found) for name, found in outcome.items()}


def forged(gateway: Gateway, seconds: float) -> Row:
    """Offer tokens nobody signed, each another one, five times the capacity, beside the light callers.

    More would measure who is short of cores: each is a new head to read, on both sides of the socket.
    """
    light = CAPACITY_RPS * LIGHT_SHARE
    outcome, _ = offer(gateway, {"forger": CAPACITY_RPS * 5, "authed": light, "internal": light}, seconds)
    return {name: _brief(found) for name, found in outcome.items()}


def tenants(gateway: Gateway, seconds: float) -> Row:
    """Offer what three tenants of one class do: one ten times the capacity, the two others a twentieth of it each."""
    rates = dict.fromkeys(TENANTS, CAPACITY_RPS * LIGHT_SHARE)
    alone, _ = offer(gateway, rates, min(seconds, 5.0))
    outcome, _ = offer(gateway, {**rates, TENANTS[0]: CAPACITY_RPS * 10}, seconds)
    served = sum(found["served"] for found in outcome.values()) or 1
    return {
        name: {**_brief(found), "share": round(found["served"] / served, 3), "alone_p99_ms": alone[name]["p99_ms"]}
        for name, found in outcome.items()
    }


def shares(gateway: Gateway, seconds: float) -> Row:
    """Offer (b): each class twice the capacity; completions should follow the weights in every 10 s."""
    outcome, _ = offer(gateway, dict.fromkeys(WEIGHTS, CAPACITY_RPS * 2), seconds)
    windows = []
    whole = int(seconds // WINDOW_S)
    for n in range(max(1, whole)):
        low, high = (n * WINDOW_S, (n + 1) * WINDOW_S) if whole else (0.0, seconds)
        counts = {name: sum(low <= at < high for at in found["served_at"]) for name, found in outcome.items()}
        windows.append({"served": counts, "error": share_error(counts)})
    return {"callers": {name: _brief(found) for name, found in outcome.items()}, "windows": windows}


def share_error(counts: dict[str, int]) -> float:
    """Return how far the furthest class is from its weight's share, as a part of that share."""
    total, weights = sum(counts.values()) or 1, sum(WEIGHTS.values())
    return round(max(abs(counts[name] / total / (weight / weights) - 1) for name, weight in WEIGHTS.items()), 3)


def sweep(gateway: Gateway, seconds: float) -> list[Row]:
    """Offer (c): anon alone from half the capacity to ten times it; goodput, p99 of what was admitted, CPU."""
    rows = []
    for times in SWEEP:
        outcome, cpu_s = offer(gateway, {"anon": CAPACITY_RPS * times}, seconds)
        found = _brief(outcome["anon"])
        answered = found["served"] + found["refused"] or 1
        goodput = sum(at < seconds for at in outcome["anon"]["served_at"]) / seconds / CAPACITY_RPS
        rows.append({"times": times, "goodput": round(goodput, 3), "cpu_us": round(cpu_s / answered * 1e6, 1), **found})
    return rows


def _brief(found: Row) -> Row:
    return {name: value for name, value in found.items() if name != "served_at"}


def run(gateway: Gateway, seconds: float) -> Row:
    """Run every scenario on one gateway."""
    return {
        "unloaded": unloaded(gateway, min(seconds, 5.0)),
        "flood": flood(gateway, seconds),
        **({"forged": forged(gateway, seconds)} if "forger" in gateway.fields else {}),
        **({"tenants": tenants(gateway, seconds)} if TENANTS[0] in gateway.fields else {}),
        "shares": shares(gateway, seconds),
        "sweep": sweep(gateway, min(seconds, 5.0)),
    }
