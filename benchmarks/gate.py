"""What the gateway's decision costs: microseconds from the end of the headers to the verdict, in one process.

    python -m benchmarks.gate [--json] [--rounds N]

Each case decides many requests, one after the other. All figures are CPU time of the thread, which neighbours can only
blur: median and 99th percentile of a decision, and the mean of a decision with its settlement. The growth case fills a
class with waiting tenants and dispatches them all: the cost of a turn must not grow with their number.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from penstock.kernel.inventory import Inventory
from penstock.net.message import Peer, Request
from penstock.net.server.core import RouteMatch
from penstock.net.server.endpoint import Endpoint
from penstock.net.server.route import Route
from penstock.services.omnigate.config import FairOptions, QuotaOptions
from penstock.services.omnigate.fair.entry import QueueEntry
from penstock.services.omnigate.fair.queue import FairMeasures, FairQueue
from penstock.services.omnigate.gate.classes import AdmissionRule
from penstock.services.omnigate.gate.gate import AdmissionGate, GateOptions
from penstock.wire.http1.request import RequestReader
from tests.capability.kit import Issuer

RESULTS = Path(__file__).parent / "results" / "gate.json"
DECISIONS = 5_000
AIM_P99_US = 20.0
PEER = Peer("127.0.0.1", 40_000, None, secure=False)
console = Console(stderr=True)


def answer(_request: Request) -> dict[str, int]:
    """Stand where a handler would be."""
    return {}


class Bench:
    """A gate with two routes, and requests for it."""

    def __init__(self, quotas: QuotaOptions, **fair: Any) -> None:
        """Make everything; quotas are counted but not felt unless a case says otherwise."""
        inventory = Inventory("omnigate")
        self.issuer = Issuer()
        self.strict = Route(method="GET", path="/strict", handler=answer)
        self.open = Route(method="GET", path="/open", handler=answer)
        rules = {self.strict: AdmissionRule(op="get"), self.open: AdmissionRule(open=True)}
        options = GateOptions(fair=FairOptions(**fair), quotas=quotas)
        self.gate = AdmissionGate(inventory, rules, options, verifier=self.issuer.verifier)
        self._metrics = inventory.metrics

    def head(self, route: Route, *fields: str) -> Callable[[], Request]:
        """Read a head once, as a connection does with equal heads; return what makes requests of it."""
        reader = RequestReader()
        reader.receive("\r\n".join([f"GET {route.path} HTTP/1.1", "Host: localhost", *fields, "", ""]).encode())
        head = reader.next_head()
        assert head is not None
        endpoint = Endpoint(route, self._metrics, body_bytes_max=1 << 20, timeout_s=2.0)
        found = RouteMatch(route, {}, endpoint, always_open=False)
        return lambda: Request(head, found, PEER, b"c" * 36, time.monotonic())


FREE = QuotaOptions(default_rps=10_000_000, burst_rps=10_000_000, per_ip_rps=10_000_000, per_cap_rps=10_000_000)


def known_token() -> tuple[AdmissionGate, Callable[[], Request]]:
    """Return requests of one tenant whose token is known."""
    bench = Bench(FREE)
    token = bench.issuer.token("op=get,put", aud=("omnigate",))
    bench.issuer.verifier.open(token)
    return bench.gate, bench.head(bench.strict, f"Authorization: Bearer {token}")


def anonymous() -> tuple[AdmissionGate, Callable[[], Request]]:
    """Return requests without a token on an open route."""
    bench = Bench(FREE)
    return bench.gate, bench.head(bench.open)


def over_quota() -> tuple[AdmissionGate, Callable[[], Request]]:
    """Return requests whose quota is used up."""
    bench = Bench(QuotaOptions(default_rps=1, burst_rps=1, per_ip_rps=0, per_cap_rps=0))
    return bench.gate, bench.head(bench.open)


def no_place() -> tuple[AdmissionGate, Callable[[], Request]]:
    """Return requests that find their class full."""
    bench = Bench(FREE, max_inflight=1, adaptive=False)
    make = bench.head(bench.open)
    for _ in range(64):
        bench.gate.admit(make())
    return bench.gate, make


def without_token() -> tuple[AdmissionGate, Callable[[], Request]]:
    """Return requests that lack the token they need."""
    bench = Bench(FREE)
    return bench.gate, bench.head(bench.strict)


CASES = {
    "admitted, known token": known_token,
    "admitted, anonymous": anonymous,
    "refused, quota": over_quota,
    "refused, class full": no_place,
    "refused, no token": without_token,
}


def measure(gate: AdmissionGate, make: Callable[[], Request]) -> dict[str, float]:
    """Decide many requests; those that were admitted end at once."""
    took: list[int] = []
    # As every process of a node does once it has started.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    requests = [make() for _ in range(DECISIONS)]
    now = time.thread_time_ns
    before = time.thread_time_ns()
    for request in requests:
        began = now()
        gate.admit(request)
        took.append(now() - began)
        if request.ticket is not None:
            request.ticket.ended(200, answered=True)
    cpu_ns = time.thread_time_ns() - before
    took.sort()
    return {
        "p50_us": took[DECISIONS // 2] / 1000,
        "p99_us": took[DECISIONS * 99 // 100] / 1000,
        "cpu_us": cpu_ns / DECISIONS / 1000,
    }


def growth(tenants: int) -> float:
    """Let so many tenants wait with 1 MiB each; return CPU microseconds to line up and dispatch one."""
    measures = FairMeasures(weights={"authed": 1}, capacity=2 * tenants + 16, tenants_max=tenants + 16)
    queue = FairQueue(measures, 1)
    class_ = queue.classes["authed"]
    entries = [QueueEntry() for _ in range(tenants + 1)]
    before = time.thread_time_ns()
    for number, entry in enumerate(entries):
        entry.cost, entry.due = 1 << 20, 1e9
        queue.arrive(entry, class_, number, 0.0)
    current: QueueEntry | None = entries[0]
    while current is not None:
        queue.end(current, 1 << 20)
        current = queue.next()
    return (time.thread_time_ns() - before) / tenants / 1000


async def run(rounds: int) -> dict[str, Any]:
    """Go through the cases in rounds; the least disturbed figure of each counts, because neighbours only ever add."""
    best: dict[str, dict[str, float]] = {}
    for _ in range(rounds):
        for name, case in CASES.items():
            gate, make = case()
            figures = measure(gate, make)
            best[name] = {unit: min(best.get(name, figures)[unit], figures[unit]) for unit in figures}
            await gate.close()
    turns = {str(count): min(growth(count) for _ in range(rounds)) for count in (100, 1000, 10_000)}
    return {"decision": best, "turn_cpu_us_by_waiting_tenants": turns}


def table(told: dict[str, Any]) -> Table:
    """Lay the figures out."""
    out = Table(title="gate")
    for column in ("case", "p50 us", "p99 us", "with settlement"):
        out.add_column(column, justify="left" if column == "case" else "right")
    for name, figures in told["decision"].items():
        missed = "" if figures["p99_us"] <= AIM_P99_US else " (aim 20)"
        out.add_row(name, f"{figures['p50_us']:.1f}", f"{figures['p99_us']:.1f}{missed}", f"{figures['cpu_us']:.1f}")
    for count, turn_us in told["turn_cpu_us_by_waiting_tenants"].items():
        out.add_row(f"a turn, {count} tenants waiting", "", "", f"{turn_us:.1f}")
    return out


def main() -> None:
    """Measure, write the results, print the table."""
    parser = argparse.ArgumentParser(description="What the gateway's decision costs.")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON instead of a table")
    parser.add_argument("--rounds", type=int, default=5)
    options, _ = parser.parse_known_args()
    told = asyncio.run(run(options.rounds))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(told, indent=2) + "\n")
    if options.json:
        print(json.dumps(told, indent=2))
    else:
        console.print(table(told))


if __name__ == "__main__":
    main()
