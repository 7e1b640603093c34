"""Finds a running node and asks its admin listener; reports failures."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import ssl
import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

NO_NODE: Final = "no node is running here: start one with penstock up (or name its --data-dir)"
_TIMEOUT_S = 5.0


class _Refused(Exception):
    """The node refused; the message is its own."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    where = Path(os.environ.get("PENSTOCK_DATA_DIR") or ".penstock")
    parser.add_argument("--data-dir", type=Path, default=where, help="the node's data directory")


def refuse(args: argparse.Namespace, sentence: str, *, code: str, exit_code: int = 1) -> int:
    """Report a failure in a sentence, with --json also as an object with a `code`; returns the exit code."""
    if getattr(args, "json", False):
        sys.stdout.write(json.dumps({"error": {"code": code, "detail": sentence}}) + "\n")
        sys.stdout.flush()
    sys.stderr.write(f"penstock: {sentence}\n")
    return exit_code


def fetch(args: argparse.Namespace, method: str, path: str) -> Any:  # noqa: ANN401 - whatever JSON came back
    """Ask the admin listener; on failure say why in one sentence and return None."""
    door = _door(args.data_dir)
    try:
        if door is None:
            raise ConnectionRefusedError
        return _ask(_connect(door), _token(args.data_dir), method, path)
    except ConnectionRefusedError:
        refuse(args, NO_NODE, code="downstream_unavailable")
    except _Refused as refused:
        said, code = refused.args
        refuse(args, f"the node refused: {said}", code=code)
    except (OSError, http.client.HTTPException, ValueError) as error:
        refuse(
            args, f"the node at {door['url'] if door else '?'} did not answer: {error}", code="downstream_unavailable"
        )
    return None


def _connect(door: dict[str, Any]) -> http.client.HTTPConnection:
    url = urlsplit(door["url"])
    if url.scheme == "http":
        return http.client.HTTPConnection(url.hostname or "", url.port, timeout=_TIMEOUT_S)
    # The node's own certificate and no other: its name need not be that of a loopback address.
    context = ssl.create_default_context(cafile=door["certificate"])
    context.check_hostname = False
    return http.client.HTTPSConnection(url.hostname or "", url.port, timeout=_TIMEOUT_S, context=context)


def _ask(connection: http.client.HTTPConnection, token: str, method: str, path: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        connection.request(method, path, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        body = json.loads(answer.read())
    finally:
        connection.close()
    if answer.status >= http.client.BAD_REQUEST:
        raise _Refused(body.get("detail", answer.reason), body.get("code", "internal"))
    return body


def _door(data_dir: Path) -> dict[str, Any] | None:
    try:
        door = json.loads((data_dir / "run" / "admin.json").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return door if isinstance(door, dict) and door.get("url") else None


def _token(data_dir: Path) -> str:
    given = os.environ.get("PENSTOCK_TOKEN")
    try:
        token = given or (data_dir / "operator.token").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
    # What no header can carry is no token; the node shall say so, not the codec.
    return "".join(char if char.isascii() and char.isprintable() else "?" for char in token)
