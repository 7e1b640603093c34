"""A child process that obeys lines and answers each with a JSON line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Process:
    """A child that answers each line with a JSON line."""

    def __init__(self, command: list[str], cwd: Path | None = None) -> None:
        """Start it and wait until it is ready."""
        self._child = subprocess.Popen(
            command, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.pid = self._child.pid
        self.ready = self._read()

    def _read(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError("the swarm ended")
        return dict(json.loads(line))

    def ask(self, line: str) -> dict[str, Any]:
        """Say a line and read the answer."""
        assert self._child.stdin is not None
        self._child.stdin.write(line + "\n")
        self._child.stdin.flush()
        return self._read()

    def end(self) -> None:
        """End it."""
        self._child.kill()
        self._child.wait()


@contextmanager
def running(command: list[str], cwd: Path | None = None) -> Iterator[Process]:
    """Run a child for a block."""
    process = Process(command, cwd)
    try:
        yield process
    finally:
        process.end()
