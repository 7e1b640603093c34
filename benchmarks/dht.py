"""Provider discovery: gets in a swarm of 200 real nodes with 0, 20 and 40 % of them dead, beside hyperdht and kademlia.

    python -m benchmarks.dht [--json] [--nodes N] [--gets N] [--seeds N] [--only NAME ...]
    python -m benchmarks.dht --cost          what a FIND costs, and what svc-dht adds to an idle node
    python -m benchmarks.dht --acceptance    withdraw, kill half, cut a node off: what was seen

Each system runs all its nodes in one process of its own, on loopback, one system after the other in the same run. A get
asks a random live node for one of 50 values and is timed inside that process, by the clock and by the processor. All
nodes share one core, so the processor's time is what a get takes on a quiet machine; it hardly moves with the
neighbours. `kill` resets connections, `blackhole` leaves them open and silent; the peers know only a node that is gone.
npm `hyperdht` and PyPI `kademlia` are installed into a scratch folder; where that is not possible they are left out,
with a sentence.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks._dht import acceptance, cost
from benchmarks._dht.process import Process, running

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "dht.json"
SCRATCH = Path(tempfile.gettempdir()) / "penstock-bench-dht"
VALUES = 50
NODES = 200
DEAD = (0.0, 0.2, 0.4)
INSTALL_S = 180
console = Console(stderr=True)


@dataclass
class Measured:
    """The gets of one system at one share of dead nodes, all seeds together."""

    took_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)
    found: int = 0

    def quantile(self, share: float, values: list[float] | None = None) -> float:
        """Return a quantile of the times."""
        ordered = sorted(self.took_ms if values is None else values)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    def row(self) -> dict[str, float]:
        """Return what is reported."""
        row = {f"p{share * 100:g}_ms": round(self.quantile(share), 2) for share in (0.5, 0.9, 0.99)}
        row |= {f"p{share * 100:g}_cpu_ms": round(self.quantile(share, self.cpu_ms), 2) for share in (0.5, 0.99)}
        row["success"] = round(self.found / max(1, len(self.took_ms)), 4)
        if self.messages:
            row["messages"] = round(sum(self.messages) / len(self.messages), 1)
        return row

    def add(self, answer: dict[str, Any]) -> None:
        """Take in what a swarm says of its gets."""
        self.took_ms += answer["took"]
        self.cpu_ms += answer["cpu"]
        self.messages += answer.get("messages", [])
        self.found += answer["found"]


# --- penstock


class OurSwarm:
    """The swarm over its nodes' HTTP listeners."""

    def __init__(self, process: Process, seed: int) -> None:
        """Know the nodes."""
        self._process = process
        self._token = process.ready["token"]
        self._doors = [node["http"] for node in process.ready["nodes"]]
        self._open: dict[str, http.client.HTTPConnection] = {}
        self._rng = random.Random(seed)
        self._live = list(range(len(self._doors)))
        self.keys = [f"{self._rng.getrandbits(256):064x}" for _ in range(VALUES)]

    def _call(self, node: int, method: str, path: str, body: str | None = None) -> dict[str, Any]:
        door = self._doors[node]
        if door not in self._open:
            self._open[door] = http.client.HTTPConnection(door, timeout=15)
        head = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        self._open[door].request(method, path, body, head)
        answer = self._open[door].getresponse()
        return {"status": answer.status, **json.loads(answer.read())}

    def provide(self) -> None:
        """Announce every key from a random node."""
        for key in self.keys:
            answer = self._call(self._rng.choice(self._live), "POST", "/v1/dht/provide", json.dumps({"key": key}))
            if answer["status"] != 200:
                raise RuntimeError(f"a provide was refused: {answer}")

    def die(self, how: str, count: int) -> None:
        """Kill or silence so many random nodes."""
        chosen = self._rng.sample(self._live, count)
        self._live = [node for node in self._live if node not in chosen]
        if chosen:
            self._process.ask(f"{how} {' '.join(map(str, chosen))}")

    def gets(self, count: int, measured: Measured) -> None:
        """Have random live nodes asked."""
        measured.add(self._process.ask(f"gets {count} {' '.join(self.keys)}"))


def measure_ours(how: str, args: argparse.Namespace) -> dict[float, Measured]:
    """Measure penstock for every share of dead nodes; each share dies on top of the one before."""
    found = {share: Measured() for share in DEAD}
    for seed in range(1, args.seeds + 1):
        command = [
            sys.executable,
            "-m",
            "penstock",
            "dht",
            "swarm",
            "--nodes",
            str(args.nodes),
            "--seed",
            str(seed),
            "--json",
        ]
        with running(command) as process:
            swarm = OurSwarm(process, seed)
            swarm.provide()
            dead = 0
            for share in DEAD:
                swarm.die(how, int(share * args.nodes) - dead)
                dead = int(share * args.nodes)
                swarm.gets(args.gets, found[share])
    return found


# --- the others


def measure_peer(
    command: Callable[[int], list[str]], args: argparse.Namespace, cwd: Path | None = None
) -> dict[float, Measured]:
    """Measure a peer's swarm in the same way."""
    found = {share: Measured() for share in DEAD}
    for seed in range(1, args.seeds + 1):
        with running(command(seed), cwd) as process:
            dead = 0
            for share in DEAD:
                process.ask(f"dead {int(share * args.nodes) - dead}")
                dead = int(share * args.nodes)
                gets = args.gets if "kademlia" not in str(command(seed)) else min(args.gets, args.kademlia_gets)
                found[share].add(process.ask(f"gets {gets}"))
    return found


def install_hyperdht() -> Path | None:
    """Install npm `hyperdht` into the scratch folder; None, with a sentence, where that is not possible."""
    folder = SCRATCH / "node"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "node_modules" / "hyperdht").exists() and not _ran(
        ["npm", "install", "hyperdht", "--no-audit", "--no-fund"], folder
    ):
        console.print("hyperdht cannot be installed here, so it is left out.")
        return None
    (folder / "swarm.js").write_text((HERE / "_dht" / "hyperdht.js").read_text())
    return folder


def install_kademlia() -> Path | None:
    """Install PyPI `kademlia` into an environment of its own."""
    folder = SCRATCH / "python"
    python = folder / "bin" / "python"
    if not python.exists() and not _ran([sys.executable, "-m", "venv", str(folder)]):
        return None
    if not _ran([str(python), "-c", "import kademlia"]) and not _ran(
        [str(python), "-m", "pip", "install", "-q", "kademlia"]
    ):
        console.print("kademlia cannot be installed here, so it is left out.")
        return None
    return python


def _ran(command: list[str], cwd: Path | None = None) -> bool:
    try:
        return subprocess.run(command, cwd=cwd, capture_output=True, timeout=INSTALL_S, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


# --- the run


def wanted(args: argparse.Namespace, *names: str) -> bool:
    """Tell whether a system is to be measured."""
    return not args.only or any(name in args.only for name in names)


def measure(args: argparse.Namespace) -> dict[str, dict[float, Measured]]:
    """Measure every system that can be had."""
    found: dict[str, dict[float, Measured]] = {}
    for how in ("blackhole", "kill"):
        if wanted(args, "penstock", how):
            console.print(f"penstock, {how}")
            found[f"penstock ({how})"] = measure_ours(how, args)
    size = [str(args.nodes)]
    if wanted(args, "hyperdht") and (folder := install_hyperdht()) is not None:
        console.print("hyperdht")
        found["hyperdht"] = measure_peer(lambda seed: ["node", "swarm.js", *size, str(seed), str(VALUES)], args, folder)
    if wanted(args, "kademlia") and (python := install_kademlia()) is not None:
        console.print("kademlia")
        script = str(HERE / "_dht" / "kademlia_swarm.py")
        found["kademlia"] = measure_peer(lambda seed: [str(python), script, *size, str(seed), str(VALUES)], args)
    return found


def show(found: dict[str, dict[float, Measured]]) -> None:
    """Print the table."""
    table = Table("system", "dead", "p50 ms", "p90 ms", "p99 ms", "p50 cpu", "p99 cpu", "success", "messages")
    for name, shares in found.items():
        for share, measured in shares.items():
            row = measured.row()
            cells = [
                row["p50_ms"],
                row["p90_ms"],
                row["p99_ms"],
                row["p50_cpu_ms"],
                row["p99_cpu_ms"],
                row["success"],
                row.get("messages", "-"),
            ]
            table.add_row(name, f"{share:.0%}", *map(str, cells))
    Console().print(table)


def main() -> None:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--gets", type=int, default=500)
    parser.add_argument("--kademlia-gets", type=int, default=50, help="its gets among dead nodes take seconds each")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=("penstock", "blackhole", "kill", "hyperdht", "kademlia"))
    parser.add_argument("--cost", action="store_true", help="measure a FIND, and an idle node with and without svc-dht")
    parser.add_argument("--idle", type=int, default=60, metavar="SECONDS", help="how long the idle node is watched")
    parser.add_argument("--acceptance", action="store_true", help="withdraw, kill half, cut a node off")
    args = parser.parse_args()
    if args.acceptance:
        raise SystemExit(acceptance.run(args.nodes if args.nodes != NODES else acceptance.NODES))
    if args.cost:
        data = {"cost": cost.measure(args.idle)}
        sys.stdout.write(json.dumps(data) + "\n")
        _keep(data)
        return
    found = measure(args)
    data = {
        name: {f"{share:.0%}": measured.row() for share, measured in shares.items()} for name, shares in found.items()
    }
    if args.json:
        sys.stdout.write(json.dumps(data) + "\n")
    else:
        show(found)
    _keep(data)


def _keep(data: dict[str, Any]) -> None:
    """Write the figures beside those of the systems that were not measured now."""
    before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps({**before, **data}, indent=2) + "\n")


if __name__ == "__main__":
    main()
