"""Other queues, each with the same work: send, receive and settle one message of 256 bytes, as often as they can."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlencode

PAYLOAD = "x" * 256


@dataclass(frozen=True)
class Peer:
    """How a peer is found, started and gone round with once."""

    name: str
    found: Callable[[], bool]
    command: Callable[[int, str], list[str]]
    cycle: Callable[[socket.socket], None]
    connections: int = 16


def _line(sock: socket.socket, data: bytes) -> bytes:
    sock.sendall(data)
    got = sock.recv(65536)
    while not got.endswith(b"\r\n"):
        got += sock.recv(65536)
    return got


def _beanstalk(sock: socket.socket) -> None:
    _line(sock, b"put 0 0 60 %d\r\n%b\r\n" % (len(PAYLOAD), PAYLOAD.encode()))
    job = _line(sock, b"reserve\r\n").split(b" ", 2)[1]
    _line(sock, b"delete %b\r\n" % job)


def _redis(sock: socket.socket) -> None:
    _line(sock, _resp("XADD", "s", "*", "p", PAYLOAD))
    name = _line(sock, _resp("XREADGROUP", "GROUP", "g", "c", "COUNT", "1", "STREAMS", "s", ">"))
    number = next(part for part in name.split(b"\r\n") if b"-" in part and part[:1].isdigit())
    _line(sock, _resp("XACK", "s", "g", number.decode()))


def _resp(*words: str) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word.encode()) for word in words)


def _sqs(sock: socket.socket, **form: str) -> bytes:
    body = urlencode({"Version": "2012-11-05", **form}).encode()
    head = "POST /123456789012/q HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    auth = "Authorization: AWS4-HMAC-SHA256 Credential=a/20200101/us-east-1/sqs/aws4_request\r\n"
    # This server closes after every answer, so every request has its own connection.
    with socket.create_connection(sock.getpeername()) as own:
        own.sendall(f"{head}{auth}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        got = b""
        while piece := own.recv(65536):
            got += piece
    return got.partition(b"\r\n\r\n")[2]


def _moto(sock: socket.socket) -> None:
    _sqs(sock, Action="SendMessage", MessageBody=PAYLOAD)
    answer = _sqs(sock, Action="ReceiveMessage", MaxNumberOfMessages="1")
    handle = answer.split(b"<ReceiptHandle>")[1].split(b"</ReceiptHandle>")[0].decode()
    _sqs(sock, Action="DeleteMessage", ReceiptHandle=handle)


def _has(program: str) -> Callable[[], bool]:
    return lambda: shutil.which(program) is not None


PEERS = {
    "beanstalkd": Peer(
        "beanstalkd, fsync each", _has("beanstalkd"), lambda port, path: ["beanstalkd", "-l", "127.0.0.1", "-p", str(port), "-b", path, "-f", "0"], _beanstalk
    ),
    "redis": Peer(
        "redis streams, AOF always",
        _has("redis-server"),
        lambda port, path: ["redis-server", "--port", str(port), "--dir", path, "--appendonly", "yes", "--appendfsync", "always"],
        _redis,
    ),
    "moto": Peer(
        "moto (SQS over HTTP, RAM)",
        lambda: importlib.util.find_spec("moto") is not None,
        lambda port, _: [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        _moto,
        4,
    ),
}  # fmt: skip


def prepare(name: str, port: int) -> None:
    """Make the queue or group that a peer needs before the first message."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        if name == "redis":
            _line(sock, _resp("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"))
        elif name == "moto":
            _sqs(sock, Action="CreateQueue", QueueName="q")


def drive(peer: Peer, port: int, seconds: float) -> float:
    """Go round on so many connections; return cycles a second."""
    counts = [0] * peer.connections
    until = time.perf_counter() + seconds

    def loop(place: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as sock:
            while time.perf_counter() < until:
                peer.cycle(sock)
                counts[place] += 1

    threads = [threading.Thread(target=loop, args=(place,)) for place in range(peer.connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


def start(peer: Peer, port: int, path: str) -> subprocess.Popen[bytes]:
    """Start a peer and wait until it accepts."""
    process = subprocess.Popen(peer.command(port, path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process
        time.sleep(0.05)
    process.kill()
    raise SystemExit(f"{peer.name} does not listen")
