"""The tour's own node, in another process: in RAM, or in a directory if it is started again."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from types import TracebackType
from typing import Any, Final, Self

from penstock.sdk.discovery import Discovery

_START_S: Final = 60.0
_STOP_S: Final = 30.0
_COMMAND: Final = ("-m", "penstock.cli", "up", "--json", "--ephemeral-ports")


class NodeFailed(Exception):
    """The tour's own node did not start."""


class TourNode:
    """Ready when entered, gone when left."""

    def __init__(self, data_dir: str | None = None, arguments: tuple[str, ...] = ()) -> None:
        self._where = (*arguments, *(("--amnesia",) if data_dir is None else ("--data-dir", data_dir)))
        self.place = Discovery(ports={})
        self._process: subprocess.Popen[bytes] | None = None
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed on leaving

    def __enter__(self) -> Self:
        """Start it and wait for its ready line."""
        environment = {name: value for name, value in os.environ.items() if name != "PENSTOCK_DATA_DIR"}
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, *_COMMAND, *self._where], stdout=subprocess.PIPE, stderr=self._complaints, env=environment
        )
        try:
            ready = self._ready_line(self._process)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self.place = Discovery(ports=ready["ports"], token=ready["token"])
        return self

    def _ready_line(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        assert process.stdout is not None
        waiting, _, _ = select.select([process.stdout], [], [], _START_S)
        line = process.stdout.readline() if waiting else b""
        if not line:
            self._complaints.seek(0)
            why = self._complaints.read(2000).decode("utf-8", "replace").strip() or f"not ready within {_START_S:g} s"
            raise NodeFailed(f"the tour's own node did not start: {why}")
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise NodeFailed(f"the tour's own node did not start: {found['error']['detail']}")
        return found

    def drain(self) -> None:
        """Ask it to stop as an operator would; returns at once."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def last_words(self) -> tuple[int, dict[str, Any]]:
        """Return its exit code and its `stopped` line, once it is gone."""
        assert self._process is not None
        assert self._process.stdout is not None
        code = self._process.wait(_STOP_S)
        lines = self._process.stdout.read().splitlines()
        return code, json.loads(lines[-1]) if lines else {}

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        """End it, whatever happened."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait(_STOP_S)
            if self._process.stdout is not None:
                self._process.stdout.close()
        self._complaints.close()
