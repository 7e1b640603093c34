"""The SQS face beside other emulators: send, receive and delete in requests as boto3 writes them, in the same run.

    python -m benchmarks.sqs [--against moto,local-aws-sqs] [--json] [--seconds N] [--connections N] [--rounds N]
                             [--backlog N]

Server and load are processes of their own on one machine. Ours is a whole node on a disk: every send and delete is
durable before it is answered, and every signature is checked. moto_server (Python) and local-aws-sqs (Node.js, from
npm; installed in a directory of this run) keep their messages in memory and check no signature.
A cycle is one message sent, received and deleted: three requests. Each connection has a queue of its own, so that a
receive always finds a message. The figures are ratios of the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import hmac
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import uvloop
from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results" / "sqs.json"
TICKS = os.sysconf("SC_CLK_TCK")
REGION = "us-east-1"
BODY = "x" * 1024
LOCAL_AWS_SQS = "2.0.2"
console = Console(stderr=True)


class Place(NamedTuple):
    """A server that runs: where it is, and whom it believes."""

    port: int
    key_id: str
    secret: str
    pid: int

    def cpu_s(self) -> float:
        """Return user and system seconds so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS


# --- the servers


@contextmanager
def penstock() -> Iterator[Place]:
    """Run a node with everything on a disk."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "penstock.cli", "up", "--json", "--ephemeral-ports", "--data-dir", directory]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        try:
            sqs = told["sqs"]
            yield Place(told["ports"]["interop"], sqs["access_key_id"], sqs["secret_access_key"], process.pid)
        finally:
            process.terminate()
            process.wait(30)


@contextmanager
def moto(python: str) -> Iterator[Place]:
    """Run moto's server; it has to be installed for `python`."""
    port = _free_port()
    with _listening([python, "-m", "moto.server", "-p", str(port)], port) as place:
        yield place


@contextmanager
def local_aws_sqs() -> Iterator[Place]:
    """Run local-aws-sqs, the fastest emulator that we know of besides; it needs Node.js and npm."""
    port = _free_port()
    with tempfile.TemporaryDirectory() as directory:
        package = f"local-aws-sqs@{LOCAL_AWS_SQS}"
        npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", directory, package]
        subprocess.run(npm, check=True, timeout=300, stdout=subprocess.DEVNULL)
        program = f'require("local-aws-sqs").createSqsServer({{ port: {port}, hostname: "127.0.0.1" }})'
        with _listening(["node", "-e", program], port, directory) as place:
            yield place


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _listening(command: list[str], port: int, directory: str | None = None) -> Iterator[Place]:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, cwd=directory, **quiet)
    try:
        for _ in range(300):
            if process.poll() is not None:
                raise SystemExit(f"{command[0]} did not start a server: {' '.join(command)}")
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield Place(port, "AKIAEXAMPLE", "example", process.pid)
    finally:
        process.terminate()
        process.wait(30)


# --- the load


class Signer:
    """Signs as botocore does, cheaply: the load must not be what is measured."""

    def __init__(self, place: Place) -> None:
        """Derive the key of the day."""
        self._place = place
        self._host = f"127.0.0.1:{place.port}"
        self._day = ""
        self._key = b""

    def request(self, operation: str, body: bytes) -> bytes:
        """Return a whole signed request."""
        date = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        target = f"AmazonSQS.{operation}"
        names = "content-type;host;x-amz-date;x-amz-target"
        kind = "application/x-amz-json-1.0"
        fields = f"content-type:{kind}\nhost:{self._host}\nx-amz-date:{date}\nx-amz-target:{target}\n"
        form = f"POST\n/\n\n{fields}\n{names}\n{hashlib.sha256(body).hexdigest()}"
        scope = f"{date[:8]}/{REGION}/sqs/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashlib.sha256(form.encode()).hexdigest()}"
        signature = hmac.digest(self._day_key(date[:8]), text.encode(), "sha256").hex()
        credential = f"{self._place.key_id}/{scope}"
        return (
            f"POST / HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: {kind}\r\nX-Amz-Date: {date}\r\n"
            f"X-Amz-Target: {target}\r\nAuthorization: AWS4-HMAC-SHA256 Credential={credential}, "
            f"SignedHeaders={names}, Signature={signature}\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body

    def _day_key(self, day: str) -> bytes:
        if day != self._day:
            key = b"AWS4" + self._place.secret.encode()
            for part in (day, REGION, "sqs", "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._day, self._key = day, key
        return self._key


class Connection:
    """One client: asks and waits, one request after the other, on a connection that stays open."""

    def __init__(self, place: Place, signer: Signer) -> None:
        """Take where and as whom."""
        self._place = place
        self._signer = signer
        self.cycles = 0

    async def open(self) -> None:
        """Connect, or connect again."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._place.port, limit=1 << 20)

    async def ask(self, operation: str, **fields: Any) -> dict[str, Any]:
        """Ask for one operation; a server that closes after each answer is connected to again."""
        self._writer.write(self._signer.request(operation, json.dumps(fields).encode()))
        head = await self._reader.readuntil(b"\r\n\r\n")
        status = int(head[9:12])
        lines = head.lower().split(b"\r\n")
        length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:"))
        body = await self._reader.readexactly(length)
        if b"connection: close" in lines:
            self._writer.close()
            await self.open()
        if status != 200:
            raise SystemExit(f"{operation}: {status} {body[:300]!r}")
        return json.loads(body) if body else {}

    async def begin(self, name: str, backlog: int) -> None:
        """Make a queue with some messages in it, and use it once: what is done only once is not measured."""
        await self.open()
        self._queue = (await self.ask("CreateQueue", QueueName=name))["QueueUrl"]
        for _ in range(0, backlog, 10):
            entries = [{"Id": str(number), "MessageBody": BODY} for number in range(10)]
            await self.ask("SendMessageBatch", QueueUrl=self._queue, Entries=entries)
        await self._cycle()

    async def run(self, until: float) -> None:
        """Send, receive and delete until the time is over."""
        while time.monotonic() < until:
            await self._cycle()
            self.cycles += 1
        self._writer.close()

    async def _cycle(self) -> None:
        await self.ask("SendMessage", QueueUrl=self._queue, MessageBody=BODY)
        got = await self.ask("ReceiveMessage", QueueUrl=self._queue, WaitTimeSeconds=5)
        for message in got["Messages"]:
            await self.ask("DeleteMessage", QueueUrl=self._queue, ReceiptHandle=message["ReceiptHandle"])


async def load(place: Place, connections: int, seconds: float, backlog: int = 0) -> dict[str, float]:
    """Drive a server from so many connections, each with a queue in which so many messages wait already."""
    signer = Signer(place)
    clients = [Connection(place, signer) for _ in range(connections)]
    await asyncio.gather(*(client.begin(f"bench-{number}", backlog) for number, client in enumerate(clients)))
    before, began = place.cpu_s(), time.monotonic()
    await asyncio.gather(*(client.run(began + seconds) for client in clients))
    took, used = time.monotonic() - began, place.cpu_s() - before
    cycles = sum(client.cycles for client in clients)
    return {"requests_s": 3 * cycles / took, "cpu_us": used / (3 * cycles) * 1e6}


def measure(options: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """Run the servers in turn, so that a slow moment of the machine meets all."""
    peers = {"moto": lambda: moto(options.moto_python), "local-aws-sqs": local_aws_sqs}
    makers = {"penstock": penstock, **{name: peers[name] for name in options.against.split(",")}}
    results: dict[str, list[dict[str, float]]] = {name: [] for name in makers}
    for _ in range(options.rounds):
        for name, make in makers.items():
            with make() as place:
                found = uvloop.run(load(place, options.connections, options.seconds, options.backlog))
            console.print(f"{name}: {found['requests_s']:.0f} requests/s, {found['cpu_us']:.0f} us CPU each")
            results[name].append(found)
    return results


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--against", default="moto,local-aws-sqs")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--backlog", type=int, default=0, help="messages that wait in every queue beforehand")
    parser.add_argument("--moto-python", default=sys.executable, help="an interpreter that has moto[server]")
    options = parser.parse_args()
    results = measure(options)
    best = {name: max(rows, key=lambda row: row["requests_s"]) for name, rows in results.items()}
    if options.json:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    table = Table("server", "requests/s", "CPU us each", "ours / theirs")
    for name, row in best.items():
        ratio = best["penstock"]["requests_s"] / row["requests_s"]
        table.add_row(name, f"{row['requests_s']:.0f}", f"{row['cpu_us']:.0f}", f"{ratio:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
