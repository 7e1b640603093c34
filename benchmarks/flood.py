"""What a stranger can do to others: an anonymous flood of costly requests against each port of a node.

    python -m benchmarks.flood [--seconds N] [--rps N] [--json]

Each port is asked by a light caller with a good token, alone and then beside a flood of the costliest request that we
know for it: tokens that decode and that nobody signed, each another one, with large bodies behind them, or what is open
to all. Told: the light caller's p99 beside the flood over its p99 alone, in the same run, and the CPU time of the node
for each request of the flood, which a busy machine changes less.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.acceptance.node_process import NodeProcess
from tests.capability.kit import Issuer, narrowed

RESULTS = Path(__file__).parent / "results" / "flood.json"
LIGHT_RPS = 50
RATIO_MAX = 2.0
LINES = {"light": 4, "flood": 48}


def forged() -> str:
    """Make a long token of an issuer nobody knows; NUMBER makes each another one."""
    words = ",".join(f"t{number:03}" for number in range(32))
    text = narrowed(Issuer().token(kid="nobody"), *((f"topic={words}",) for _ in range(6)))
    # Somewhere in a signature: the token still decodes.
    return text[:-20] + "NUMBER" + text[-14:]


def request(method: str, path: str, token: str, body: bytes = b"") -> bytes:
    """Write a request."""
    bearer = f"Authorization: Bearer {token}\r\n" if token else ""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{bearer}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def attacks() -> dict[str, tuple[str, bytes]]:
    """For each port: what the light caller asks for, and the flood."""
    token = forged()
    messages = [{"topic": f"topic/{number}", "payload_b64": ""} for number in range(256)]
    batch = json.dumps({"messages": messages}).encode()
    tokens = json.dumps({"items": [{"token": token}] * 32}).encode()
    return {
        "mailbox": ("/healthz", request("POST", "/v1/send/batch", token, batch)),
        "omnigate": ("/healthz", request("POST", "/v1/send/batch", token, batch)),
        "passport": ("/healthz", request("POST", "/v1/passport/verify_batch", token, tokens)),
        "storage": ("/healthz", request("PUT", "/o", token, bytes(60_000))),
        "dht_http": ("/healthz", request("GET", "/v1/dht/providers/b3:" + "0" * 64, token)),
        "interop": ("/healthz", request("POST", "/webhooks/github", token, bytes(60_000))),
        "admin": ("/healthz", request("GET", "/metrics", "")),
    }


def begin(port: int, name: str, what: bytes, rps: float, seconds: float) -> subprocess.Popen[str]:
    """Let one caller load a port, from a process of its own: what floods must not delay who measures."""
    caller = {"name": name, "rps": rps, "request": what.hex(), "lines_max": LINES[name]}
    command = [sys.executable, "-m", "benchmarks._overload.open_loop"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    process.stdin.write(json.dumps({"port": port, "seconds": seconds, "callers": [caller]}))
    process.stdin.close()
    return process


def ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for a caller, and read what it saw."""
    assert process.stdout is not None
    ((_, found),) = json.loads(process.stdout.read()).items()
    process.stdout.close()
    process.wait(60)
    return dict(found)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(seconds: float, rps: float) -> list[dict[str, Any]]:
    """Flood one port after the other."""
    rows = []
    with NodeProcess() as node:
        for service, (path, flood) in attacks().items():
            light, port = request("GET", path, node.ready["token"]), node.port(service)
            alone = ended(begin(port, "light", light, LIGHT_RPS, seconds))
            cpu_s = _cpu_s(node.process.pid)
            flooding = begin(port, "flood", flood, rps, seconds + 2)
            beside = {"light": ended(begin(port, "light", light, LIGHT_RPS, seconds)), "flood": ended(flooding)}
            spent_ms = (_cpu_s(node.process.pid) - cpu_s) * 1000 / max(1, beside["flood"]["offered"])
            rows.append(
                {
                    "port": service,
                    "alone_p99_ms": alone["p99_ms"],
                    "beside_p99_ms": beside["light"]["p99_ms"],
                    "ratio": round((beside["light"]["p99_ms"] or 1e9) / (alone["p99_ms"] or 1e-9), 2),
                    "light_lost": beside["light"]["offered"] - beside["light"]["served"],
                    "cpu_ms_a_request": round(spent_ms, 2),
                    "flood": {name: beside["flood"][name] for name in ("offered", "served", "refused", "failed")},
                }
            )
    return rows


def main() -> int:
    """Measure, print, and say whether every light caller was served nearly as well as alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rps", type=float, default=500.0)
    parser.add_argument("--json", action="store_true")
    given, _ = parser.parse_known_args()
    rows = measure(given.seconds, given.rps)
    RESULTS.write_text(json.dumps({"rps": given.rps, "rows": rows}, indent=1) + "\n")
    if given.json:
        print(json.dumps(rows))
    else:
        table = Table("port", "alone p99 ms", "flooded p99 ms", "ratio", "light lost", "CPU ms a request", "flood")
        for row in rows:
            table.add_row(*(str(value) for value in row.values()))
        Console(width=150).print(table)
    return int(any(row["ratio"] > RATIO_MAX or row["light_lost"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
