"""Provider discovery: gets in a swarm of 200 real nodes with 0, 20 and 40 % of them dead, beside hyperdht and kademlia.

    python -m benchmarks.dht [--json] [--nodes N] [--gets N] [--seeds N] [--only NAME ...]
    python -m benchmarks.dht --cost          what a FIND costs, and what svc-dht adds to an idle node
    python -m benchmarks.dht --acceptance    withdraw, kill half, cut a node off: what was seen

Each system runs all its nodes in one process of its own, on loopback, one system after the other in the same run, seed
by seed. A get asks a random live node for one of 50 values and is timed inside that process, by the clock and by the
processor. All nodes share one core, so the processor's time is what a get takes on a quiet machine; it hardly moves
with the neighbours.

In every system the same nodes die for a seed, chosen here, each share on top of the one before, and the gets begin one
second after the last of them is gone. `kill` resets connections, `blackhole` leaves them open and silent; the peers
know only a node whose sockets are closed. kademlia waits seconds for each dead node, so its gets at one share end after
20 seconds; the table says how many there were. Each row is printed and kept as soon as it is measured.

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
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
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
# Between the last death and the first get, in every system.
SETTLE_S = 1.0
HYPERDHT_S = 120
console = Console(stderr=True)


@dataclass
class Measured:
    """The gets of one system at one share of dead nodes, of one seed or of all."""

    took_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)
    found: int = 0

    def row(self) -> dict[str, float]:
        """Return what is reported."""
        row = {f"p{share * 100:g}_ms": round(_quantile(self.took_ms, share), 2) for share in (0.5, 0.9, 0.99)}
        row |= {f"p{share * 100:g}_cpu_ms": round(_quantile(self.cpu_ms, share), 2) for share in (0.5, 0.99)}
        row["gets"] = len(self.took_ms)
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

    def join(self, other: Measured) -> None:
        """Take in the gets of another seed."""
        self.add({"took": other.took_ms, "cpu": other.cpu_ms, "messages": other.messages, "found": other.found})


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def dying(seed: int, nodes: int) -> Iterator[tuple[float, list[int]]]:
    """Say for each share which nodes die now, on top of those that died before: the same ones in every system."""
    order = random.Random(seed).sample(range(nodes), nodes)
    before = 0
    for share in DEAD:
        dead = int(share * nodes)
        yield share, order[before:dead]
        before = dead


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

    def die(self, how: str, doomed: list[int]) -> None:
        """Kill or silence nodes."""
        self._process.ask(f"{how} {' '.join(map(str, doomed))}")

    def gets(self, count: int) -> dict[str, Any]:
        """Have random live nodes asked."""
        return self._process.ask(f"gets {count} {' '.join(self.keys)}")


def ours(how: str, args: argparse.Namespace, seed: int) -> Iterator[tuple[float, Measured]]:
    """Measure penstock with one seed."""
    words = ["dht", "swarm", "--nodes", str(args.nodes), "--seed", str(seed), "--json"]
    with running([sys.executable, "-m", "penstock", *words]) as process:
        swarm = OurSwarm(process, seed)
        swarm.provide()
        for share, doomed in dying(seed, args.nodes):
            if doomed:
                swarm.die(how, doomed)
            time.sleep(SETTLE_S)
            measured = Measured()
            measured.add(swarm.gets(args.gets))
            yield share, measured


# --- the others


def peer(
    command: list[str], args: argparse.Namespace, seed: int, *, seconds: int, cwd: Path | None = None
) -> Iterator[tuple[float, Measured]]:
    """Measure a peer's swarm in the same way; its gets at one share end after so many seconds."""
    with running([*command, str(args.nodes), str(seed), str(VALUES)], cwd) as process:
        for share, doomed in dying(seed, args.nodes):
            if doomed:
                process.ask(f"dead {' '.join(map(str, doomed))}")
            time.sleep(SETTLE_S)
            measured = Measured()
            measured.add(process.ask(f"gets {args.gets} {seconds}"))
            yield share, measured


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


Runs = Callable[[int], Iterator[tuple[float, Measured]]]


def systems(args: argparse.Namespace) -> Iterator[tuple[str, Runs]]:
    """Name every system that is wanted and can be had, with what measures it for a seed."""
    for how in ("blackhole", "kill"):
        if wanted(args, "penstock", how):
            yield f"penstock ({how})", partial(ours, how, args)
    if wanted(args, "hyperdht") and (folder := install_hyperdht()) is not None:
        yield "hyperdht", partial(peer, ["node", "swarm.js"], args, seconds=HYPERDHT_S, cwd=folder)
    if wanted(args, "kademlia") and (python := install_kademlia()) is not None:
        script = str(HERE / "_dht" / "kademlia_swarm.py")
        yield "kademlia", partial(peer, [str(python), script], args, seconds=args.kademlia_s)


def measure(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Measure seed by seed, every system with each: neighbours that come and go disturb all of them alike."""
    joined: dict[str, dict[float, Measured]] = {}
    rows: dict[str, dict[str, Any]] = {}
    chosen = list(systems(args))
    for seed in range(1, args.seeds + 1):
        for name, run in chosen:
            console.print(f"{name}, seed {seed}")
            for share, measured in run(seed):
                everything = joined.setdefault(name, {}).setdefault(share, Measured())
                everything.join(measured)
                row = rows.setdefault(name, {}).setdefault(f"{share:.0%}", {"seeds": {}})
                row |= everything.row()
                row["seeds"][str(seed)] = measured.row()
                console.print(f"  {share:.0%} dead: {json.dumps(measured.row())}", soft_wrap=True)
            _keep(rows)
    return rows


def show(found: dict[str, dict[str, Any]]) -> None:
    """Print the table: all seeds together, then each."""
    names = ("gets", "p50_ms", "p90_ms", "p99_ms", "p50_cpu_ms", "p99_cpu_ms", "success", "messages")
    table = Table("system", "dead", "seed", *(name.replace("_", " ") for name in names))
    for name, shares in found.items():
        for share, joined in shares.items():
            for seed, row in {"all": joined, **joined["seeds"]}.items():
                table.add_row(name, share, seed, *(str(row.get(each, "-")) for each in names))
    Console(width=120).print(table)


def main() -> None:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--gets", type=int, default=500)
    parser.add_argument("--kademlia-s", type=int, default=20, help="its gets at one share end after so many seconds")
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
    if args.json:
        sys.stdout.write(json.dumps(found) + "\n")
    else:
        show(found)


def _keep(data: dict[str, Any]) -> None:
    """Write the figures beside those of the systems that were not measured now."""
    before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps({**before, **data}, indent=2) + "\n")


if __name__ == "__main__":
    main()
