"""The listener against its peers: requests a second and server CPU microseconds a request, in one run.

    python benchmarks/listener.py [--json] [--seconds N] [--rounds N] [--only penstock,uvicorn] [--slow] [--idle]

Every server is a process of its own and so is the load. CPU is user and system time of the server process over
the counted interval. The cases are gone through in rounds and the least disturbed round of each counts, because a
neighbour on the machine only ever adds. `--slow` measures a client beside 1,000 connections that drip their headers,
`--idle` the memory of 10,000 connections that say nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
SERVERS = HERE / "_servers"
RESULTS = HERE / "results" / "listener.json"
TICKS = os.sysconf("SC_CLK_TCK")
SLOW_CONNECTIONS = 1000
IDLE_CONNECTIONS = 10_000
console = Console(stderr=True)


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    name: str
    server: str
    path: str = "/echo"
    tls: bool = False
    vary: bool = False


CASES = (
    Case("penstock", "penstock_server.py"),
    Case("penstock, every head new", "penstock_server.py", vary=True),
    Case("penstock, refused", "penstock_server.py", "/refused"),
    Case("penstock TLS", "penstock_server.py", tls=True),
    Case("penstock TLS, refused", "penstock_server.py", "/refused", tls=True),
    Case("floor: no parsing, fixed answer", "floor.py"),
    Case("uvicorn raw ASGI", "uvicorn_raw.py"),
    Case("Starlette on uvicorn", "starlette_app.py"),
    Case("aiohttp", "aiohttp_app.py"),
)


def free_port() -> int:
    """Return a port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def certificate(directory: Path) -> None:
    """Make a throwaway certificate for loopback."""
    import datetime as dt

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    start = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(start).not_valid_after(start.replace(year=2100))
    cert = builder.sign(key, hashes.SHA256())
    (directory / "cert.pem").write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    key_path = directory / "key.pem"
    key_path.touch(0o600)
    key_path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


@contextmanager
def server(script: str, tls_dir: str) -> Iterator[tuple[int, int]]:
    """Start a server, wait until it accepts; yield its pid and port."""
    port = free_port()
    command = [sys.executable, str(SERVERS / script), str(port), *([tls_dir] if tls_dir else [])]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        wait_until_up(port)
        yield process.pid, port
    finally:
        process.terminate()
        process.wait(5)


def wait_until_up(port: int) -> None:
    """Try to connect for ten seconds."""
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"nothing listens on {port}")


def cpu_s(pid: int) -> float:
    """Return user and system seconds a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def measure(case: Case, seconds: float, tls_dir: str) -> dict[str, Any]:
    """Run one case."""
    with server(case.server, tls_dir if case.tls else "") as (pid, port):
        load = {"port": port, "path": case.path, "seconds": seconds, "tls": case.tls, "vary": case.vary}
        return {"name": case.name, **drive(pid, load)}


def drive(pid: int, load: dict[str, Any]) -> dict[str, Any]:
    """Run the load generator against a server and read what it cost the server."""
    command = [sys.executable, str(SERVERS / "load.py"), json.dumps(load)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as generator:
        assert generator.stdout is not None
        generator.stdout.readline()
        before = cpu_s(pid)
        result = json.loads(generator.stdout.readline())
        used = cpu_s(pid) - before
    answers = max(1, result["answers"])
    return {
        "requests_per_s": round(answers / result["elapsed_s"]),
        "cpu_us": round(used / answers * 1e6, 2),
        "statuses": result["statuses"],
    }


def table(rows: list[dict[str, Any]]) -> Table:
    """Lay the results out, with ratios to the first row."""
    out = Table(title="listener")
    for column in ("server", "requests/s", "CPU us/request", "CPU ratio to penstock", "status"):
        out.add_column(column, justify="left" if column == "server" else "right")
    base = rows[0]["cpu_us"]
    for row in rows:
        ratio = f"{row['cpu_us'] / base:.2f}"
        out.add_row(row["name"], f"{row['requests_per_s']:,}", f"{row['cpu_us']:.1f}", ratio, ",".join(row["statuses"]))
    return out


def beside_slow(seconds: float) -> dict[str, Any]:
    """Measure a client alone, and beside 1,000 connections that send a header byte a second."""
    with server("penstock_server.py", "") as (pid, port):
        alone = drive(pid, {"port": port, "seconds": seconds})
        crowd = [socket.create_connection(("127.0.0.1", port)) for _ in range(SLOW_CONNECTIONS)]
        dripper = subprocess.Popen(
            [sys.executable, str(SERVERS / "drip.py"), *(str(sock.fileno()) for sock in crowd)],
            pass_fds=[sock.fileno() for sock in crowd],
        )
        beside = drive(pid, {"port": port, "seconds": seconds})
        dripper.terminate()
        dripper.wait(5)
        for sock in crowd:
            sock.close()
    ratio = alone["requests_per_s"] / max(1, beside["requests_per_s"])
    return {"name": "slow", "alone": alone, "beside_slow": beside, "slowdown": round(ratio, 2)}


def idle_memory() -> dict[str, Any]:
    """Measure what 10,000 idle connections cost."""
    with server("penstock_server.py", "") as (pid, port):
        before = rss_kib(pid)
        crowd = [socket.create_connection(("127.0.0.1", port)) for _ in range(IDLE_CONNECTIONS)]
        for sock in crowd[:100]:
            sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            sock.recv(4096)
        after = rss_kib(pid)
        for sock in crowd:
            sock.close()
    grown_kib = after - before
    return {
        "name": "idle",
        "connections": IDLE_CONNECTIONS,
        "rss_mib": round(after / 1024, 1),
        "grown_mib": round(grown_kib / 1024, 1),
        "bytes_each": round(grown_kib * 1024 / IDLE_CONNECTIONS),
    }


def rss_kib(pid: int) -> int:
    """Return the resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def raise_fd_limit() -> None:
    """Allow this process, and those it starts, as many files as the system lets it."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def compare(chosen: list[Case], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Go through the cases in rounds; keep the least disturbed round of each."""
    best: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as directory:
        certificate(Path(directory))
        for turn in range(args.rounds):
            for number, case in enumerate(chosen, 1):
                row = measure(case, args.seconds, directory)
                told = f"{row['requests_per_s']:,}/s, {row['cpu_us']:.1f} us CPU"
                console.print(f"round {turn + 1}/{args.rounds} [{number}/{len(chosen)}] {case.name}: {told}")
                if case.name not in best or row["cpu_us"] < best[case.name]["cpu_us"]:
                    best[case.name] = row
    return [best[case.name] for case in chosen]


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--seconds", type=float, default=2.0, help="counted seconds per case and round")
    parser.add_argument("--rounds", type=int, default=3, help="how often each case is measured")
    parser.add_argument("--only", default="", help="comma-separated beginnings of case names")
    parser.add_argument("--slow", action="store_true", help="a client beside 1,000 slow connections")
    parser.add_argument("--idle", action="store_true", help="memory of 10,000 idle connections")
    return parser.parse_args()


def main() -> None:
    """Measure, print, write down."""
    args = options()
    raise_fd_limit()
    extra = [measured for asked, measured in ((args.slow, beside_slow), (args.idle, idle_memory)) if asked]
    if extra:
        results = [beside_slow(args.seconds) if probe is beside_slow else idle_memory() for probe in extra]
        print(json.dumps(results, indent=2))
        return
    chosen = [case for case in CASES if not args.only or case.name.startswith(tuple(args.only.split(",")))]
    rows = compare(chosen, args)
    if args.json:
        print(json.dumps(rows, indent=2))
    else:
        Console().print(table(rows))
    if not args.only:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
