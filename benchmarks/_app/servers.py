"""The servers of the programs, each durable: every accepted message is synced."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks._mailbox.peers import PEERS, start
from benchmarks.mailbox import free_port

# The Python packages that each client needs.
_PACKAGES = {
    "redis": ("redis",),
    "nats": ("nats",),
    "postgres": ("psycopg", "psycopg_pool"),
    "rabbitmq": ("aio_pika",),
}
_RABBIT = "/usr/lib/rabbitmq/bin/rabbitmq-server"


def missing(client: str) -> str:
    """Say what a peer lacks; empty when it is all there."""
    lacking = [name for name in _PACKAGES[client] if importlib.util.find_spec(name) is None]
    if lacking:
        return f"the Python package {lacking[0]} is not installed (scripts/environment bench)"
    there = Path(_RABBIT).exists() if client == "rabbitmq" else PEERS[client].found()
    return "" if there else f"its server is not installed (apt-get install {client}-server)"


@contextmanager
def peer_server(client: str) -> Iterator[tuple[int, int]]:
    """Start the server of a peer; yield its process id and port."""
    with tempfile.TemporaryDirectory() as directory:
        port = free_port()
        process = _rabbit(port, directory) if client == "rabbitmq" else _peer(client, port, directory)
        try:
            yield process.pid, port
        finally:
            process.terminate()
            process.wait(30)


def _peer(client: str, port: int, directory: str) -> subprocess.Popen[bytes]:
    process = start(PEERS[client], port, directory, durable=True)
    if client == "postgres":
        PEERS[client].prepare(port)
    return process


def _rabbit(port: int, directory: str) -> subprocess.Popen[bytes]:
    """Start RabbitMQ with everything it writes in one directory, under the user that Debian made for it."""
    shutil.chown(directory, "rabbitmq")
    env = {
        **os.environ, "HOME": directory, "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_NODE_PORT": str(port), "RABBITMQ_DIST_PORT": str(free_port()), "ERL_EPMD_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": f"{directory}/mnesia", "RABBITMQ_LOG_BASE": f"{directory}/log",
        "RABBITMQ_PID_FILE": f"{directory}/pid", "RABBITMQ_ENABLED_PLUGINS_FILE": f"{directory}/plugins",
    }  # fmt: skip
    process = subprocess.Popen(
        [_RABBIT], env=env, cwd=directory, user="rabbitmq", group="rabbitmq",
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process
        time.sleep(0.1)
    process.kill()
    raise SystemExit("RabbitMQ does not listen")
