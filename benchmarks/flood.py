"""What a stranger can do to others: an anonymous flood of costly requests against each port of a node.

    python -m benchmarks.flood [--only WORD] [--seconds N] [--rounds N] [--rps N] [--json]

A light caller with a good token or signature asks a port, alone and beside a flood of the costliest anonymous request
that we know for it, in turns, several times. Told: the light caller's p99 over all windows beside the flood, over its
p99 in all windows alone, in the same run; what it lost; and the node's CPU time for each request of the flood beyond
what the light caller costs, which a busy machine changes less.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks._flood.attacks import ENV, Attack, attacks, configuration
from tests.acceptance.node_process import NodeProcess

RESULTS = Path(__file__).parent / "results" / "flood.json"
LIGHT_RPS = 100
RATIO_MAX = 2.0
LIGHT_LINES, FLOOD_LINES = 8, 48
# The flood begins before the light caller, and ends after it.
LEAD_S = 0.5


def begin(module: str, plan: dict[str, Any]) -> subprocess.Popen[str]:
    """Let one caller load a port, from a process of its own: what floods must not delay who measures."""
    process = subprocess.Popen([sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    process.stdin.write(json.dumps(plan))
    process.stdin.close()
    return process


def ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for a caller, and read what it saw."""
    assert process.stdout is not None
    ((_, found),) = json.loads(process.stdout.read()).items()
    process.stdout.close()
    process.wait(60)
    return dict(found)


def light_caller(attack: Attack, seconds: float) -> subprocess.Popen[str]:
    """Ask as a client at work does."""
    requests = [each.hex() for each in attack.light]
    caller = {"name": "light", "rps": LIGHT_RPS, "requests": requests, "lines_max": LIGHT_LINES}
    plan = {"port": attack.light_port, "seconds": seconds, "callers": [caller]}
    return begin("benchmarks._overload.open_loop", plan)


def flooder(attack: Attack, rps: float, seconds: float) -> subprocess.Popen[str]:
    """Ask as a stranger does who means harm."""
    where: dict[str, Any] = {"port": attack.flood_port, "seconds": seconds}
    if attack.dialled:
        plan = {**where, "rps": rps / attack.dialled, "bytes": attack.flood.hex()}
        return begin("benchmarks._flood.dialling", plan)
    caller = {"name": "flood", "rps": rps, "request": attack.flood.hex(), "lines_max": FLOOD_LINES}
    return begin("benchmarks._overload.open_loop", {**where, "callers": [caller]})


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Windows:
    """What the light caller saw, over several windows."""

    def __init__(self) -> None:
        self._took_ms: list[float] = []
        self._offered = 0
        self.cpu_s = 0.0

    def add(self, found: dict[str, Any], spent_s: float) -> None:
        """Add one window and the node's CPU time in it."""
        self._took_ms += found["took_ms"]
        self._offered += found["offered"]
        self.cpu_s += spent_s

    @property
    def lost(self) -> int:
        """Count what was not served."""
        return self._offered - len(self._took_ms)

    def quantile_ms(self, share: float) -> float:
        """Return a quantile of what was served."""
        took = sorted(self._took_ms)
        return round(took[min(len(took) - 1, int(len(took) * share))], 2) if took else 1e9


def measure(node: NodeProcess, attack: Attack, rps: float, seconds: float, rounds: int) -> dict[str, Any]:
    """Attack one port in turns."""
    pid, alone, beside = node.process.pid, Windows(), Windows()
    flooded = dict.fromkeys(("offered", "served", "refused", "failed"), 0)
    ended(light_caller(attack, 0.3))
    for _ in range(rounds):
        before = cpu_s(pid)
        alone.add(ended(light_caller(attack, seconds)), cpu_s(pid) - before)
        before = cpu_s(pid)
        flooding = flooder(attack, rps, seconds + 2 * LEAD_S)
        light = ended(light_caller(attack, seconds))
        told = ended(flooding)
        beside.add(light, cpu_s(pid) - before)
        for name in flooded:
            flooded[name] += told[name]
    asked = max(1, flooded["offered"]) * max(1, attack.dialled)
    return {
        "port": attack.name,
        "alone_p99_ms": alone.quantile_ms(0.99),
        "beside_p99_ms": beside.quantile_ms(0.99),
        "ratio": round(beside.quantile_ms(0.99) / max(0.01, alone.quantile_ms(0.99)), 2),
        "p50_ratio": round(beside.quantile_ms(0.5) / max(0.01, alone.quantile_ms(0.5)), 2),
        "light_lost": beside.lost,
        "cpu_us_a_request": round((beside.cpu_s - alone.cpu_s) * 1e6 / asked),
        "flood": flooded,
    }


def run(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Attack one port of a node after the other."""
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        arguments, frames = configuration(Path(directory))
        with NodeProcess(*arguments, env=ENV) as node:
            for attack in attacks(node, frames):
                if given.only in attack.name:
                    rows.append(measure(node, attack, given.rps, given.seconds, given.rounds))
                    Console(stderr=True, width=170).print(rows[-1])
    return rows


def main() -> int:
    """Measure, print, and say whether every light caller was served nearly as well as alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="attack the ports whose name has this in it")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long a window lasts")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rps", type=float, default=500.0)
    parser.add_argument("--json", action="store_true")
    given, _ = parser.parse_known_args()
    rows = run(given)
    if not given.only:
        RESULTS.write_text(json.dumps({"rps": given.rps, "rows": rows}, indent=1) + "\n")
    if given.json:
        print(json.dumps(rows))
    else:
        table = Table(
            "port", "alone p99 ms", "flooded p99 ms", "ratio", "p50 ratio", "light lost", "CPU us a request", "flood"
        )
        for row in rows:
            table.add_row(*(str(value) for value in row.values()))
        Console(width=170).print(table)
    return int(any(row["ratio"] > RATIO_MAX or row["light_lost"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
