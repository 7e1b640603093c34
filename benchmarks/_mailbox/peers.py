"""Other queues: how each is found, started and made ready, and what one round of send, receive and settle is to it.

A round is a generator: it yields what to write and how to tell that the answer is whole, and is sent the answer.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from benchmarks._mailbox.asking import PAYLOAD, Round, Whole, ask, lines, program
from benchmarks._mailbox.postgres import (
    has_pgmq,
    pgmq_round,
    postgres_command,
    postgres_hello,
    postgres_prepare,
    postgres_program,
    postgres_setup,
    postgres_whole,
    table_round,
)


@dataclass(frozen=True)
class Peer:
    """One other queue; `rounds` is None where the client must be its own (see `moto`)."""

    name: str
    found: Callable[[], bool]
    command: Callable[[int, str, bool], list[str]]
    rounds: Callable[[int, int], Round] | None
    prepare: Callable[[int], None] = lambda _port: None
    batches: tuple[int, ...] = (1, 100)
    durable: tuple[bool, ...] = (True, False)
    setup: Callable[[str], dict[str, Any]] = lambda _path: {}


# --- beanstalkd


def beanstalk_round(batch: int, _line: int) -> Round:
    """Put, reserve, delete."""
    put = b"put 0 0 60 %d\r\n%b\r\n" % (len(PAYLOAD), PAYLOAD.encode())
    yield put * batch, lines(batch)
    got = yield b"reserve\r\n" * batch, lines(2 * batch)
    jobs = [line.split(b" ")[1] for line in got.split(b"\r\n") if line.startswith(b"RESERVED")]
    yield b"".join(b"delete %b\r\n" % job for job in jobs), lines(len(jobs))
    return len(jobs)


# --- Redis streams


def resp(*words: str) -> bytes:
    """Write a command of Redis."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word.encode()) for word in words)


def resp_end(data: bytes, at: int) -> int:
    """Find the end of a value that begins here; -1 when some of it is missing."""
    end = data.find(b"\r\n", at)
    if end < 0:
        return -1
    kind, following = data[at : at + 1], end + 2
    if kind == b"$":
        size = int(data[at + 1 : end])
        following += size + 2 if size >= 0 else 0
        return following if following <= len(data) else -1
    for _ in range(max(0, int(data[at + 1 : end])) if kind == b"*" else 0):
        following = resp_end(data, following)
        if following < 0:
            return -1
    return following


def values(count: int) -> Whole:
    """Tell that so many values of Redis are there."""

    def whole(data: bytes) -> bool:
        at = 0
        for _ in range(count):
            at = resp_end(data, at)
            if at < 0:
                return False
        return True

    return whole


def redis_round(batch: int, _line: int) -> Round:
    """XADD, XREADGROUP, XACK and XDEL: what is acked is gone, as in a queue."""
    yield resp("XADD", "s", "*", "p", PAYLOAD) * batch, values(batch)
    read = resp("XREADGROUP", "GROUP", "g", "c", "COUNT", str(batch), "STREAMS", "s", ">")
    got = yield read, values(1)
    names = [part.decode() for part in got.split(b"\r\n") if part[:1].isdigit() and b"-" in part]
    if names:
        yield resp("XACK", "s", "g", *names) + resp("XDEL", "s", *names), values(2)
    return len(names)


def redis_prepare(port: int) -> None:
    """Make the stream and its group."""
    ask(port, resp("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"), lines(1))


def redis_command(port: int, path: str, durable: bool) -> list[str]:  # noqa: FBT001 - called by position
    """Sync every write, or keep nothing on the disk."""
    files = ["--appendonly", "yes", "--appendfsync", "always"] if durable else ["--appendonly", "no"]
    return ["redis-server", "--port", str(port), "--dir", path, "--save", "", *files]


# --- NATS JetStream


def nats_messages(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return (reply subject, content) of every whole message."""
    found, at = [], 0
    while (end := data.find(b"\r\n", at)) >= 0:
        words = data[at:end].split(b" ")
        at = end + 2
        if words[0] in (b"MSG", b"HMSG"):
            size = int(words[-1])
            if len(data) < at + size + 2:
                break
            named = len(words) == (5 if words[0] == b"MSG" else 6)
            found.append((words[3] if named else b"", data[at : at + size]))
            at += size + 2
    return found


def nats_whole(count: int) -> Whole:
    """Tell that so many messages are there."""
    return lambda data: len(nats_messages(data)) >= count


def publish(subject: bytes, reply: bytes, content: bytes) -> bytes:
    """Publish with a subject for the answer."""
    return b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(content), content)


def nats_round(batch: int, line: int) -> Round:
    """Publish and wait for the stream's ack; pull; ack and wait for the server's answer."""
    inbox = b"_INBOX.%d" % line
    yield publish(b"q", inbox, PAYLOAD.encode()) * batch, nats_whole(batch)
    want = b'{"batch":%d,"expires":5000000000}' % batch
    got = yield publish(b"$JS.API.CONSUMER.MSG.NEXT.S.C", inbox, want), nats_whole(batch)
    replies = [reply for reply, _ in nats_messages(got) if reply.startswith(b"$JS.ACK")]
    yield b"".join(publish(reply, inbox, b"+ACK") for reply in replies), nats_whole(len(replies))
    return len(replies)


def nats_hello(line: int) -> bytes:
    """Begin a connection."""
    return b'CONNECT {"verbose":false,"headers":true}\r\nSUB _INBOX.%d 1\r\nPING\r\n' % line


def nats_prepare(port: int) -> None:
    """Make a work queue and a consumer that all connections share."""
    storage = b"file" if os.environ.get("PEER_DURABLE") == "1" else b"memory"
    for subject, content in (
        (b"$JS.API.STREAM.CREATE.S", b'{"name":"S","subjects":["q"],"retention":"workqueue","storage":"%b"}' % storage),
        (
            b"$JS.API.CONSUMER.DURABLE.CREATE.S.C",
            b'{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit","max_ack_pending":20000}}',
        ),
    ):
        got = ask(port, nats_hello(0) + publish(subject, b"_INBOX.0", content), nats_whole(1))
        if b'"error"' in got:
            raise SystemExit(f"NATS refused: {got!r}")


def nats_command(port: int, path: str, durable: bool) -> list[str]:  # noqa: FBT001 - called by position
    """Sync every write, or keep the stream in RAM."""
    sync = "sync_interval: always" if durable else ""
    config = Path(path) / "nats.conf"
    config.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{\n store_dir: "{path}"\n {sync}\n}}\n')
    return [program("nats-server") or "nats-server", "-c", str(config)]


# --- moto: SQS over HTTP; it closes after every answer, so every request has its own connection


def sqs(port: int, **form: str) -> bytes:
    """Make one request."""
    body = urlencode({"Version": "2012-11-05", **form}).encode()
    head = "POST /123456789012/q HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    auth = "Authorization: AWS4-HMAC-SHA256 Credential=a/20200101/us-east-1/sqs/aws4_request\r\n"
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(f"{head}{auth}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        got = b""
        while piece := sock.recv(65536):
            got += piece
    return got.partition(b"\r\n\r\n")[2]


def moto_cycle(port: int) -> None:
    """Send, receive, delete."""
    sqs(port, Action="SendMessage", MessageBody=PAYLOAD)
    answer = sqs(port, Action="ReceiveMessage", MaxNumberOfMessages="1")
    handle = answer.split(b"<ReceiptHandle>")[1].split(b"</ReceiptHandle>")[0].decode()
    sqs(port, Action="DeleteMessage", ReceiptHandle=handle)


HELLO = {"nats": nats_hello, "postgres": postgres_hello, "pgmq": postgres_hello}
GREETED: dict[str, Whole] = {
    "nats": lambda data: b"PONG\r\n" in data, "postgres": postgres_whole, "pgmq": postgres_whole,
}  # fmt: skip
_TABLE = (
    "CREATE TABLE q(id bigserial PRIMARY KEY, p text, vt timestamptz DEFAULT now())",
    "CREATE INDEX ON q(vt)",
)
PEERS = {
    "beanstalkd": Peer(
        "beanstalkd",
        lambda: program("beanstalkd") is not None,
        lambda port, path, durable: [
            "beanstalkd", "-l", "127.0.0.1", "-p", str(port), *(("-b", path, "-f", "0") if durable else ()),
        ],
        beanstalk_round,
    ),
    "nats": Peer(
        "NATS JetStream", lambda: program("nats-server") is not None, nats_command, nats_round, nats_prepare
    ),
    "redis": Peer(
        "Redis streams", lambda: program("redis-server") is not None, redis_command, redis_round, redis_prepare
    ),
    "postgres": Peer(
        "PostgreSQL table",
        lambda: postgres_program("postgres") is not None,
        postgres_command,
        table_round,
        postgres_prepare(*_TABLE),
        setup=postgres_setup,
    ),
    "pgmq": Peer(
        "pgmq",
        lambda: postgres_program("postgres") is not None and has_pgmq(),
        postgres_command,
        pgmq_round,
        postgres_prepare("CREATE EXTENSION pgmq", "SELECT pgmq.create('q')"),
        setup=postgres_setup,
    ),
    "moto": Peer(
        "moto (SQS over HTTP)",
        lambda: importlib.util.find_spec("moto") is not None,
        lambda port, _path, _durable: [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        None,
        lambda port: sqs(port, Action="CreateQueue", QueueName="q") and None,
        batches=(1,),
        durable=(False,),
    ),
}  # fmt: skip


def start(peer: Peer, port: int, path: str, *, durable: bool) -> subprocess.Popen[bytes]:
    """Start a peer and wait until it accepts."""
    how = peer.setup(path)
    command = peer.command(port, path, durable)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **how)
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process
        time.sleep(0.05)
    process.kill()
    raise SystemExit(f"{peer.name} does not listen")
