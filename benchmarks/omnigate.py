"""The gateway against its peers in front of the same upstream: proxied GETs a second, and CPU microseconds a request.

    python -m benchmarks.omnigate [--json] [--seconds N] [--rounds N] [--against nginx,haproxy]

Gateway, upstream and load are processes of their own; the gateway has a core for itself, the other two share one. CPU
is user and system time of the gateway over the run. A peer that is not installed is skipped with a line. What overload
does is the business of `benchmarks.overload`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks._omnigate import peers
from benchmarks._omnigate.running import drive, gateway, upstream

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "omnigate.json"
CONNECTIONS = 64
PEERS = "nginx,haproxy"
console = Console(stderr=True)


def proxied(name: str, seconds: float, directory: Path, *, authed: bool = False) -> dict[str, Any]:
    """Measure proxied GETs in a closed loop."""
    with upstream() as behind, gateway(name, behind, directory) as (pid, port, tokens):
        token = tokens["authed"] if authed else None
        result = drive({"port": port, "seconds": seconds, "connections": CONNECTIONS, "token": token}, pid)
    served = max(1, result["served"])
    return {
        "name": f"{name}, with a token" if authed else name,
        "requests_per_s": round(served / result["elapsed_s"]),
        "cpu_us": round(result["cpu_s"] / served * 1e6, 1),
        "p50_ms": result["p50_ms"],
        "p99_ms": result["p99_ms"],
        "refused": result["refused"],
    }


def table(rows: list[dict[str, Any]]) -> Table:
    """Lay the results out, with ratios to the first row."""
    out = Table(title=f"proxied GET, {CONNECTIONS} connections")
    for column in ("gateway", "requests/s", "CPU us/request", "ratio", "p50 ms", "p99 ms", "refused"):
        out.add_column(column, justify="left" if column == "gateway" else "right")
    for row in rows:
        ratio = f"{row['cpu_us'] / rows[0]['cpu_us']:.2f}"
        out.add_row(
            row["name"], f"{row['requests_per_s']:,}", f"{row['cpu_us']:.1f}", ratio, str(row["p50_ms"]),
            str(row["p99_ms"]), str(row["refused"]),
        )  # fmt: skip
    return out


def compare(names: list[str], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Go through the gateways in rounds; keep the least disturbed round of each."""
    best: dict[str, dict[str, Any]] = {}
    cases = [(name, False) for name in names]
    cases.insert(1, ("penstock", True))
    with tempfile.TemporaryDirectory() as directory:
        for turn in range(args.rounds):
            for name, authed in cases:
                row = proxied(name, args.seconds, Path(directory), authed=authed)
                told = f"{row['requests_per_s']:,}/s, {row['cpu_us']:.1f} us CPU"
                console.print(f"round {turn + 1}/{args.rounds} {row['name']}: {told}")
                if row["name"] not in best or row["cpu_us"] < best[row["name"]]["cpu_us"]:
                    best[row["name"]] = row
    return list(best.values())


def chosen(against: str) -> list[str]:
    """List penstock and the peers that are there; say which are not."""
    names = ["penstock"]
    for name in filter(None, against.split(",")):
        if peers.installed(name):
            names.append(name)
        else:
            console.print(f"{name} is not installed: skipped")
    return names


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--seconds", type=float, default=3.0, help="counted seconds per case and round")
    parser.add_argument("--rounds", type=int, default=3, help="how often each case is measured")
    parser.add_argument("--against", default=PEERS, help="peers, comma-separated")
    return parser.parse_args()


def main() -> None:
    """Measure, print, write down."""
    args = options()
    rows = compare(chosen(args.against), args)
    if args.json:
        print(json.dumps(rows, indent=2))
    else:
        Console().print(table(rows))
    if args.against == PEERS:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
