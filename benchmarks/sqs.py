"""The SQS face beside other emulators: send, receive and delete in requests as boto3 writes them, in the same run.

    python -m benchmarks.sqs [--against moto,local-aws-sqs] [--json] [--seconds N] [--rounds N]
                             [--rows single,batch,backlog] [--connections 1,4,8,16,32,64] [--many 32]

Server and load are processes of their own on one machine. Ours is a whole node on a disk: every send and delete is
durable before it is answered, and every signature is checked. moto_server (Python) and local-aws-sqs (Node.js, from
npm; installed in a directory of this run) keep their messages in memory and check no signature.

Three rows. `single`: one message sent, received and deleted, three requests; each connection has a queue of its own,
so that a receive always finds a message. It is measured with few and with many connections, because the servers differ
in what they wait for: ours for its disk, local-aws-sqs for some 4 ms a cycle of its own. `batch`: the same with ten
messages a request, as programs do that have many. `backlog`: as `single`, but all connections share one queue, in which
10,000 messages wait already. Both are measured with `--many` connections. The figures are ratios of the same run:
requests a second, where server and load have a core each, and the server's CPU time a request.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import hmac
import itertools
import json
import os
import re
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

from benchmarks._report import report

TICKS = os.sysconf("SC_CLK_TCK")
REGION = "us-east-1"
BODY_BYTES = 1024
BATCH = 10
BACKLOG = 10_000
LOCAL_AWS_SQS = "2.0.2"
# moto looks at every message that waits for each receive: with a backlog a round takes minutes.
UNMEASURED = frozenset({("moto", "backlog")})
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


def install_local_aws_sqs(directory: Path) -> None:
    """Get local-aws-sqs, the fastest emulator that we know of besides; it needs Node.js and npm."""
    package = f"local-aws-sqs@{LOCAL_AWS_SQS}"
    npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(directory), package]
    subprocess.run(npm, check=True, timeout=300, stdout=subprocess.DEVNULL)


@contextmanager
def local_aws_sqs(directory: Path) -> Iterator[Place]:
    """Run local-aws-sqs from the directory that it was installed in."""
    port = _free_port()
    program = f'require("local-aws-sqs").createSqsServer({{ port: {port}, hostname: "127.0.0.1" }})'
    with _listening(["node", "-e", program], port, directory) as place:
        yield place


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _listening(command: list[str], port: int, directory: Path | None = None) -> Iterator[Place]:
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


AGENT = "Boto3/1.43.1 md/Botocore#1.43.1 ua/2.1 os/linux#6.18 md/arch#x86_64 lang/python#3.11.7 md/pyimpl#CPython"
NAMES = "content-type;host;x-amz-date;x-amz-target;x-amzn-query-mode"
KIND = "application/x-amz-json-1.0"
LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)
CLOSE = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)


class Signer:
    """Writes and signs requests as botocore does, cheaply: the load must not be what is measured."""

    def __init__(self, place: Place) -> None:
        """Derive the key of the day."""
        self._place = place
        self._host = f"127.0.0.1:{place.port}"
        self._second = 0
        self._date = ""
        self._scope = ""
        self._key = b""
        # Every request of boto3 has an id of its own, which is not signed.
        self._ids = itertools.count()

    def request(self, operation: str, body: bytes) -> bytes:
        """Return a whole signed request."""
        if int(time.time()) != self._second:
            self._tick()
        date = self._date
        fields = (
            f"content-type:{KIND}\nhost:{self._host}\nx-amz-date:{date}\nx-amz-target:AmazonSQS.{operation}\n"
            "x-amzn-query-mode:true\n"
        )
        form = f"POST\n/\n\n{fields}\n{NAMES}\n{hashlib.sha256(body).hexdigest()}"
        text = f"AWS4-HMAC-SHA256\n{date}\n{self._scope}\n{hashlib.sha256(form.encode()).hexdigest()}"
        signature = hmac.digest(self._key, text.encode(), "sha256").hex()
        return (
            f"POST / HTTP/1.1\r\nHost: {self._host}\r\nAccept-Encoding: identity\r\n"
            f"X-Amz-Target: AmazonSQS.{operation}\r\nContent-Type: {KIND}\r\nx-amzn-query-mode: true\r\n"
            f"User-Agent: {AGENT}\r\nX-Amz-Date: {date}\r\nAuthorization: AWS4-HMAC-SHA256 Credential="
            f"{self._place.key_id}/{self._scope}, SignedHeaders={NAMES}, Signature={signature}\r\n"
            f"amz-sdk-invocation-id: 00000000-0000-4000-8000-{next(self._ids):012x}\r\n"
            f"amz-sdk-request: attempt=1\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body

    def _tick(self) -> None:
        self._second = int(time.time())
        self._date = datetime.fromtimestamp(self._second, UTC).strftime("%Y%m%dT%H%M%SZ")
        day = self._date[:8]
        self._scope = f"{day}/{REGION}/sqs/aws4_request"
        key = b"AWS4" + self._place.secret.encode()
        for part in (day, REGION, "sqs", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        self._key = key


class Connection(asyncio.Protocol):
    """One client: asks and waits, one request after the other, on a connection that stays open."""

    def __init__(self, place: Place, signer: Signer) -> None:
        """Take where and as whom."""
        self._place = place
        self._signer = signer
        self._data = b""
        self._answered: asyncio.Future[tuple[bytes, bytes]] | None = None
        self._numbers = itertools.count()
        self.requests = 0

    async def open(self) -> None:
        """Connect, or connect again."""
        self._data = b""
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_connection(lambda: self, "127.0.0.1", self._place.port)

    def data_received(self, data: bytes) -> None:
        """Collect an answer; the first place where it is whole answers who asked."""
        self._data += data
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._data[:end]
        length = LENGTH.search(head)
        assert length is not None, head
        whole = end + 4 + int(length[1])
        if len(self._data) >= whole and self._answered is not None:
            body, self._data = self._data[end + 4 : whole], b""
            self._answered.set_result((head, body))

    async def ask(self, operation: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Ask for one operation; a server that closes after each answer is connected to again."""
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(self._signer.request(operation, json.dumps(fields).encode()))
        head, body = await self._answered
        self.requests += 1
        if CLOSE.search(head):
            self._transport.close()
            await self.open()
        if head[9:12] != b"200":
            raise SystemExit(f"{operation}: {head[9:12]!r} {body[:300]!r}")
        return json.loads(body) if body else {}

    async def begin(self, name: str, row: str) -> None:
        """Find the queue, and use it once: what is done only once is not measured."""
        await self.open()
        self._queue = (await self.ask("CreateQueue", {"QueueName": name}))["QueueUrl"]
        self._cycle = self._batch if row == "batch" else self._single
        await self._cycle()

    async def fill(self, count: int) -> None:
        """Put so many messages into the queue."""
        for _ in range(0, count, BATCH):
            await self.ask("SendMessageBatch", {"QueueUrl": self._queue, "Entries": self._entries()})

    async def run(self, until: float) -> None:
        """Send, receive and delete until the time is over."""
        self.requests = 0
        while time.monotonic() < until:
            await self._cycle()
        self._transport.close()

    def _body(self) -> str:
        return f"{next(self._numbers):08d}".ljust(BODY_BYTES, "x")

    def _entries(self) -> list[dict[str, str]]:
        return [{"Id": str(number), "MessageBody": self._body()} for number in range(BATCH)]

    async def _single(self) -> None:
        await self.ask("SendMessage", {"QueueUrl": self._queue, "MessageBody": self._body()})
        got = await self.ask("ReceiveMessage", {"QueueUrl": self._queue, "WaitTimeSeconds": 5})
        for message in got["Messages"]:
            handle = message["ReceiptHandle"]
            await self.ask("DeleteMessage", {"QueueUrl": self._queue, "ReceiptHandle": handle})

    async def _batch(self) -> None:
        queue = self._queue
        await self.ask("SendMessageBatch", {"QueueUrl": queue, "Entries": self._entries()})
        left = BATCH
        while left:
            asked = {"QueueUrl": queue, "WaitTimeSeconds": 5, "MaxNumberOfMessages": BATCH}
            got = (await self.ask("ReceiveMessage", asked))["Messages"]
            handles = [{"Id": str(n), "ReceiptHandle": each["ReceiptHandle"]} for n, each in enumerate(got)]
            await self.ask("DeleteMessageBatch", {"QueueUrl": queue, "Entries": handles})
            left -= len(got)


async def load(place: Place, row: str, connections: int, seconds: float) -> dict[str, float]:
    """Drive a server from so many connections; what is in its queues beforehand depends on the row."""
    signer = Signer(place)
    clients = [Connection(place, signer) for _ in range(connections)]
    shared = row == "backlog"
    for number, client in enumerate(clients):
        await client.begin("bench" if shared else f"bench-{number}", row)
        # Before the others connect: a server may close connections that are idle meanwhile.
        if shared and not number:
            await client.fill(BACKLOG)
    before, began, mine = place.cpu_s(), time.monotonic(), time.process_time()
    await asyncio.gather(*(client.run(began + seconds) for client in clients))
    took, used = time.monotonic() - began, place.cpu_s() - before
    count = sum(client.requests for client in clients)
    return {
        "requests_s": count / took,
        "cpu_us": used / count * 1e6,
        "load_cpu_us": (time.process_time() - mine) / count * 1e6,
    }


Row = dict[str, Any]


def measure(options: argparse.Namespace, npm: Path) -> list[Row]:
    """Run the servers in turn, so that a slow moment of the machine meets all."""
    peers = {"moto": lambda: moto(options.moto_python), "local-aws-sqs": lambda: local_aws_sqs(npm)}
    makers = {"penstock": penstock, **{name: peers[name] for name in options.against.split(",") if name}}
    if "local-aws-sqs" in makers:
        install_local_aws_sqs(npm)
    cases = [
        (row, int(connections))
        for row in options.rows.split(",")
        for connections in (options.connections if row == "single" else options.many).split(",")
    ]
    rows: list[Row] = []
    for (row, connections), _ in itertools.product(cases, range(options.rounds)):
        for name, make in makers.items():
            if (name, row) in UNMEASURED:
                continue
            with make() as place:
                found = uvloop.run(load(place, row, connections, options.seconds))
            rows.append({"row": row, "connections": connections, "server": name, **found})
            said = f"{row} by {connections}, {name}: {found['requests_s']:.0f} requests/s, {found['cpu_us']:.0f} us CPU"
            console.print(said)
    return rows


def compared(rows: list[Row]) -> Table:
    """Put every server beside ours: the best round of each in requests a second, and the best in CPU."""
    table = Table(
        "row", "connections", "server", "requests/s", "ms each", "CPU us each", "requests/s: ours / theirs",
        "CPU: theirs / ours",
    )  # fmt: skip
    best: dict[tuple[str, int], dict[str, tuple[float, float]]] = {}
    for each in rows:
        case = best.setdefault((each["row"], each["connections"]), {})
        speed, cpu_us = case.get(each["server"], (0.0, float("inf")))
        case[each["server"]] = (max(speed, each["requests_s"]), min(cpu_us, each["cpu_us"]))
    for (row, connections), case in best.items():
        ours_s, ours_us = case["penstock"]
        for server, (speed, cpu_us) in case.items():
            ratios = ("", "") if server == "penstock" else (f"{ours_s / speed:.1f}", f"{cpu_us / ours_us:.1f}")
            waited = f"{connections / speed * 1000:.1f}"
            table.add_row(row, str(connections), server, f"{speed:.0f}", waited, f"{cpu_us:.0f}", *ratios)
    return table


def main() -> None:
    """Measure, keep and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--against", default="moto,local-aws-sqs")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", default="1,4,8,16,32,64", help="for the row `single`")
    parser.add_argument("--many", default="32", help="connections for the other rows")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--rows", default="single,batch,backlog")
    parser.add_argument("--moto-python", default=sys.executable, help="an interpreter that has moto[server]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as npm:
        rows = measure(options, Path(npm))
    report("sqs", rows, compared(rows), as_json=options.json)


if __name__ == "__main__":
    main()
