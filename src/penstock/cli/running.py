"""Finding and asking a running node: where it listens, and with which token."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sys
from pathlib import Path
from typing import Any

_TIMEOUT_S = 5.0


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--data-dir", type=Path, default=Path(".penstock"), help="the node's data directory")


def fetch(args: argparse.Namespace, method: str, path: str) -> Any:  # noqa: ANN401 - whatever JSON came back
    """Ask the admin listener; on failure say why in one sentence and return None."""
    port = _admin_port(args.data_dir)
    try:
        if port is None:
            raise ConnectionRefusedError
        return _ask(port, _token(args.data_dir), method, path)
    except ConnectionRefusedError:
        sys.stderr.write("penstock: no node is running here: start one with penstock up (or name its --data-dir)\n")
        return None
    except (OSError, http.client.HTTPException, ValueError) as error:
        sys.stderr.write(f"penstock: the node on port {port} did not answer: {error}\n")
        return None


def _ask(port: int, token: str, method: str, path: str) -> Any:  # noqa: ANN401 - whatever JSON came back
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    try:
        connection.request(method, path, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        body = json.loads(answer.read())
    finally:
        connection.close()
    if answer.status >= http.client.BAD_REQUEST:
        raise ValueError(body.get("detail", answer.reason))
    return body


def _admin_port(data_dir: Path) -> int | None:
    try:
        return int(json.loads((data_dir / "run" / "ports.json").read_text(encoding="ascii"))["admin"])
    except (OSError, ValueError, KeyError):
        return None


def _token(data_dir: Path) -> str:
    given = os.environ.get("PENSTOCK_TOKEN")
    if given:
        return given
    try:
        return (data_dir / "operator.token").read_text(encoding="ascii").strip()
    except OSError:
        return ""
