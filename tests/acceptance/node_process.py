"""A real node in a process of its own, driven as a user would: command line, signals, sockets."""

from __future__ import annotations

import http.client
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

# Both end a test that hangs; they do not say how fast a node is: a busy machine may take many times as long.
START_S = 60.0
STOP_S = 60.0
# How soon a key is opened is not tested here: a machine that freezes for a moment must not keep a node from starting.
PATIENCE = {"PENSTOCK_PASSPORT__KMS__TIMEOUT": "30s"}


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """Decode the body."""
        return json.loads(self.body)


# A socket of another kind holds each port given out here until the process ends, so that no other test gets it.
_HELD: list[socket.socket] = []


def free_port() -> int:
    """Find a free port below those that the system hands out by itself, so that nobody takes it a moment later."""
    while True:
        port = random.randrange(20_000, 32_768)
        with ExitStack() as undo:
            claim = undo.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            try:
                claim.bind(("127.0.0.1", port))
                socket.create_server(("127.0.0.1", port)).close()
            except OSError:
                continue
            undo.pop_all()
            _HELD.append(claim)
            return port


def penstock(
    *arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    command = [sys.executable, "-m", "penstock.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False, env=env, cwd=cwd)


class NodeProcess:
    """`penstock up --json --ephemeral-ports`, ready when entered, ended when left."""

    def __init__(
        self,
        *arguments: str,
        data_dir: Path | None = None,
        command: tuple[str, ...] = ("up",),
        env: dict[str, str] | None = None,
    ) -> None:
        """Collect the command; nothing runs yet."""
        where = ["--amnesia"] if data_dir is None else ["--data-dir", str(data_dir)]
        self._command = [
            sys.executable, "-m", "penstock.cli", *command, "--json", "--ephemeral-ports", *where, *arguments
        ]  # fmt: skip
        self._env = {**PATIENCE, **(os.environ if env is None else env)}
        # A file: a pipe that no test reads would fill up.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed when left
        self.ready: dict[str, Any] = {}

    def __enter__(self) -> Self:
        """Start and wait for the ready line."""
        self.process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=self._log, text=True, env=self._env
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line or '"error"' in line:
            said = self.wait()[2]
            self._log.close()
            raise AssertionError(f"the node did not start: {said}")
        self.ready = json.loads(line)
        return self

    def __exit__(self, *_exc: object) -> None:
        """End it, whatever happened."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=STOP_S)
        self._log.close()

    def log(self) -> str:
        """Return what it has written to standard error so far, and leave the place where it writes alone."""
        return os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size, 0).decode()

    def port(self, service: str) -> int:
        """Return where a service listens."""
        return int(self.ready["ports"][service])

    def connect(self, service: str) -> http.client.HTTPConnection:
        """Open a connection to a service."""
        return http.client.HTTPConnection("127.0.0.1", self.port(service), timeout=STOP_S)

    def ask(self, service: str, method: str, path: str, body: Any = None, *, token: bool = False) -> Answer:
        """Send one request on a connection of its own."""
        connection = self.connect(service)
        try:
            return ask(connection, method, path, body, self.ready["token"] if token else None)
        finally:
            connection.close()

    def echo(self, **fields: Any) -> Answer:
        """Ask svc-echo."""
        return self.ask("echo", "POST", "/v1/echo", fields)

    def begin_echo(self, text: str, delay_ms: int) -> http.client.HTTPConnection:
        """Have svc-echo work on a job, and return its connection when the job is seen to run; repeated until one is."""
        connection = self.connect("echo")
        while True:
            connection.request("POST", "/v1/echo", json.dumps({"text": text, "delay_ms": delay_ms}))
            while not select.select([connection.sock], [], [], 0)[0]:
                if self.metric('inflight_requests{service="svc-echo"}') == 1:
                    return connection
            connection.getresponse().read()

    def kill_task(self, name: str) -> Answer:
        """Crash a task through the admin listener."""
        return self.ask("admin", "POST", f"/tasks/{name}/kill", token=True)

    def page_link(self) -> str:
        """Ask for a link that opens the operator's page once."""
        return str(self.ask("admin", "POST", "/v1/node/link", token=True).json()["link"])

    def metric(self, start: str) -> float:
        """Return the value of the one series whose line starts like this."""
        lines = self.ask("admin", "GET", "/metrics", token=True).body.decode().splitlines()
        values = [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(start)]
        assert len(values) == 1, (start, values)
        return values[0]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.process.pid, number)

    def wait(self) -> tuple[int, str, str]:
        """Wait for the end; returns exit code, rest of standard output, standard error."""
        out, _ = self.process.communicate(timeout=STOP_S)
        return self.process.returncode, out, self.log()


def ask(
    connection: http.client.HTTPConnection, method: str, path: str, body: Any = None, token: str | None = None
) -> Answer:
    """Send one request on a given connection."""
    headers = {"Content-Type": "application/json"} if body is not None else {}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
