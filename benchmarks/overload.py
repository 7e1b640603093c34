"""Fairness and goodput under overload: penstock's gateway, nginx and HAProxy in front of the same upstream.

    python -m benchmarks.overload [--against nginx,haproxy,haproxy-priority] [--json] [--seconds N]

The upstream has 32 slots of 20 ms, so its capacity is 1,600 requests a second, and it is what is short, not the
gateways' CPU. Light callers offer 5 % of the capacity each; a flood offers ten times the capacity, open loop.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks._overload import gateways, proof
from benchmarks._overload.plot import draw

RESULTS = Path(__file__).parent / "results"
console = Console(stderr=True)


def measure(names: list[str], seconds: float) -> dict[str, Any]:
    """Run every scenario on every gateway that is there."""
    results: dict[str, Any] = {}
    makers = {"penstock": gateways.penstock, **gateways.PEERS}
    for name in ["penstock", *names]:
        if name != "penstock" and not gateways.available(name):
            console.print(f"{name}: skipped, it is not installed")
            continue
        console.print(f"{name}: about {seconds * 2 + 35:.0f} s")
        with (
            tempfile.TemporaryDirectory() as directory,
            gateways.upstream() as port,
            makers[name](Path(directory), port) as gateway,
        ):
            results[name] = proof.run(gateway, seconds)
    return results


def show(results: dict[str, Any]) -> None:
    """Print the tables."""
    table = Table("gateway", "caller", "alone p99 ms", "flooded p99 ms", "ratio", "offered", "refused or failed")
    for name, found in results.items():
        for caller in ("authed", "internal"):
            alone, beside = found["unloaded"][caller], found["flood"][caller]
            ratio = "-" if not beside["p99_ms"] else f"{beside['p99_ms'] / alone['p99_ms']:.2f}"
            lost = beside["refused"] + beside["failed"]
            table.add_row(name, caller, *map(str, (alone["p99_ms"], beside["p99_ms"], ratio, beside["offered"], lost)))
    console.print("(a) light callers beside a 10x flood", table)
    for name, found in results.items():
        for caller in ("authed", "internal") if "forged" in found else ():
            alone, beside = found["unloaded"][caller], found["forged"][caller]
            console.print(f"{name}: {caller} beside forged tokens: p99 {beside['p99_ms']} ms, alone {alone['p99_ms']}")
    table = Table("gateway", "tenant of one class", "share", "alone p99 ms", "p99 ms", "offered", "lost")
    for name, found in results.items():
        for tenant, row in found.get("tenants", {}).items():
            lost = row["refused"] + row["failed"]
            table.add_row(
                name,
                tenant,
                f"{row['share']:.1%}",
                *map(str, (row["alone_p99_ms"], row["p99_ms"], row["offered"], lost)),
            )
    console.print("one tenant at ten times the capacity beside two light ones of its class", table)
    table = Table("gateway", "served anon : authed : internal", "furthest from 1 : 5 : 10")
    for name, found in results.items():
        for window in found["shares"]["windows"]:
            table.add_row(name, " : ".join(str(n) for n in window["served"].values()), f"{window['error']:.0%}")
    console.print("(b) every class at twice the capacity, each 10 s", table)
    table = Table("gateway", "offered", "goodput", "p99 ms", "refused", "CPU us a request")
    for name, found in results.items():
        for row in found["sweep"]:
            cells = (
                f"{row['times']:g}x",
                f"{row['goodput']:.0%}",
                row["p99_ms"],
                row["refused"] + row["failed"],
                row["cpu_us"],
            )
            table.add_row(name, *map(str, cells))
    console.print("(c) anon alone", table)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and keep the figures and the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", default=",".join(gateways.PEERS), help="peers, separated by commas")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of the longer scenarios")
    said = parser.parse_args(arguments)
    names = [name for name in said.against.split(",") if name]
    unknown = set(names) - set(gateways.PEERS)
    if unknown:
        parser.error(f"no such peer: {', '.join(sorted(unknown))}")
    results = measure(names, said.seconds)
    show(results)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "overload.json").write_text(json.dumps(results, indent=1) + "\n", encoding="ascii")
    (RESULTS / "overload.svg").write_text(draw(results), encoding="ascii")
    if said.json:
        print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
