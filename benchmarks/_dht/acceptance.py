"""Promises of svc-dht, tried on a small swarm of real nodes: says what was seen and whether that was promised."""

from __future__ import annotations

import http.client
import json
import sys
import time
from typing import Any, Final

from benchmarks._dht.process import Process, running

NODES: Final = 24
KEY: Final = "5a" * 32
CUT_OFF_S: Final = 90.0
LOOK_S: Final = 1.0


class Nodes:
    """The nodes of a swarm by HTTP, as a user asks them."""

    def __init__(self, process: Process) -> None:
        self._doors = [node["http"] for node in process.ready["nodes"]]
        self._head = {"Authorization": f"Bearer {process.ready['token']}", "Content-Type": "application/json"}
        self.process = process

    def ask(self, node: int, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Ask one node."""
        connection = http.client.HTTPConnection(self._doors[node], timeout=15)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), self._head)
            return dict(json.loads(connection.getresponse().read()))
        finally:
            connection.close()

    def providers(self, node: int) -> list[Any]:
        """Find who provides the key."""
        return list(self.ask(node, "GET", f"/v1/dht/providers/{KEY}?limit=5&wait_ms=5000")["providers"])


def run(count: int) -> int:
    """Try everything; 0 if all is as promised."""
    with running([sys.executable, "-m", "penstock", "dht", "swarm", "--nodes", str(count), "--json"]) as process:
        nodes = Nodes(process)
        held = [_withdraw(nodes, count), _kill_half(nodes, count), _cut_off(nodes, count)]
    return 0 if all(held) else 1


def _say(what: str, seen: str, *, ok: bool) -> bool:
    sys.stdout.write(f"{'ok  ' if ok else 'FAIL'} {what}: {seen}\n")
    sys.stdout.flush()
    return ok


def _withdraw(nodes: Nodes, count: int) -> bool:
    made = nodes.ask(1, "POST", "/v1/dht/provide", {"key": KEY})
    before = len(nodes.providers(count - 1))
    nodes.ask(1, "DELETE", f"/v1/dht/provide/{KEY}")
    after = [len(nodes.providers(node)) for node in range(count)]
    seen = f"kept by {made['stored']} nodes, {before} found; after it {sum(after)} found by {count} nodes"
    return _say("withdraw and see it gone", seen, ok=before == 1 and not any(after))


def _kill_half(nodes: Nodes, count: int) -> bool:
    nodes.ask(1, "POST", "/v1/dht/provide", {"key": KEY})
    doomed = range(2, 2 + count // 2)
    nodes.process.ask("kill " + " ".join(map(str, doomed)))
    live = [node for node in range(count) if node not in doomed and node != 1]
    found = sum(bool(nodes.providers(node)) for node in live)
    seen = f"{len(doomed)} of {count} killed, {found} of {len(live)} others find it"
    return _say("kill half, find from another", seen, ok=found == len(live))


def _cut_off(nodes: Nodes, count: int) -> bool:
    lonely = count - 1
    before = nodes.ask(lonely, "GET", "/v1/dht/status")
    nodes.process.ask("blackhole " + " ".join(str(node) for node in range(lonely)))
    began = time.monotonic()
    status = before
    while status["ready"] and time.monotonic() - began < 2 * CUT_OFF_S:
        time.sleep(LOOK_S)
        status = nodes.ask(lonely, "GET", "/v1/dht/status")
    took = time.monotonic() - began
    seen = f"ready before: {before['ready']}; after {took:.0f} s ready: {status['ready']}, because: {status['reason']}"
    ok = before["ready"] and not status["ready"] and took <= CUT_OFF_S
    return _say(f"cut off from all peers loses readiness within {CUT_OFF_S:.0f} s", seen, ok=ok)
