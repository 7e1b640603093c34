"""PostgreSQL as a queue: pgmq where the extension is installed, and the plain table that many use instead."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks._mailbox.asking import PAYLOAD, Round, Whole, ask, program


def postgres_ready(data: bytes) -> int:
    """Count how often the server said that it is ready for the next query."""
    at = ready = 0
    while at + 5 <= len(data):
        ready += data[at : at + 1] == b"Z"
        at += 1 + int.from_bytes(data[at + 1 : at + 5], "big")
    return ready if at <= len(data) else 0


def postgres_whole(data: bytes) -> bool:
    """Tell that a query was answered."""
    return postgres_ready(data) > 0


def query(text: str) -> tuple[bytes, Whole]:
    """Write a simple query."""
    raw = text.encode() + b"\0"
    return b"Q" + (len(raw) + 4).to_bytes(4, "big") + raw, postgres_whole


def first_columns(data: bytes) -> list[str]:
    """Return the first column of every row."""
    found, at = [], 0
    while at + 5 <= len(data):
        size = int.from_bytes(data[at + 1 : at + 5], "big")
        if data[at : at + 1] == b"D":
            width = int.from_bytes(data[at + 7 : at + 11], "big")
            found.append(data[at + 11 : at + 11 + width].decode())
        elif data[at : at + 1] == b"E":
            raise SystemExit(f"PostgreSQL refused: {data[at : at + 200]!r}")
        at += 1 + size
    return found


def postgres_hello(_line: int) -> bytes:
    """Begin a connection."""
    words = b"user\0postgres\0database\0postgres\0\0"
    return (len(words) + 8).to_bytes(4, "big") + (196608).to_bytes(4, "big") + words


def table_round(batch: int, _line: int) -> Round:
    """Insert; take with SKIP LOCKED and a deadline; delete."""
    yield query(f"INSERT INTO q(p) SELECT '{PAYLOAD}' FROM generate_series(1,{batch})")
    got = yield query(
        "UPDATE q SET vt = now() + interval '60s' WHERE id IN (SELECT id FROM q WHERE vt <= now() ORDER BY id "
        f"LIMIT {batch} FOR UPDATE SKIP LOCKED) RETURNING id, p"
    )
    names = first_columns(got)
    if names:
        yield query(f"DELETE FROM q WHERE id IN ({','.join(names)})")
    return len(names)


def pgmq_round(batch: int, _line: int) -> Round:
    """Send, read with a visibility timeout, delete."""
    many = f"ARRAY(SELECT '\"{PAYLOAD}\"'::jsonb FROM generate_series(1,{batch}))"
    yield query(f"SELECT pgmq.send_batch('q', {many})")
    names = first_columns((yield query(f"SELECT msg_id FROM pgmq.read('q', 60, {batch})")))
    if names:
        yield query(f"SELECT pgmq.delete('q', ARRAY[{','.join(names)}]::bigint[])")
    return len(names)


def ask_postgres(port: int, statement: str) -> bytes:
    """Run one statement on a connection of its own."""
    data, _ = query(statement)
    # Two answers: the greeting, and the result.
    return ask(port, postgres_hello(0) + data, lambda got: postgres_ready(got) >= 2)


def postgres_prepare(*statements: str) -> Callable[[int], None]:
    """Make the tables."""

    def prepare(port: int) -> None:
        for _ in range(100):
            # It accepts connections before it is ready, and says so.
            if ask(port, postgres_hello(0), lambda data: data[:1] == b"E" or postgres_whole(data))[:1] != b"E":
                break
            time.sleep(0.1)
        for statement in statements:
            first_columns(ask_postgres(port, statement))

    return prepare


def postgres_program(name: str) -> str | None:
    """Find a program of PostgreSQL; Debian keeps them apart."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(found[-1]) if found else program(name)


def postgres_setup(path: str) -> dict[str, Any]:
    """Make a cluster; the server refuses to run as root, so it gets the user that Debian made for it."""
    who: dict[str, Any] = {"user": "postgres"} if os.geteuid() == 0 else {}
    if who:
        shutil.chown(path, "postgres")
    made = [postgres_program("initdb") or "initdb", "-D", f"{path}/data", "-A", "trust", "-U", "postgres", "--no-sync"]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", **who)
    return {"cwd": "/", **who}


def postgres_command(port: int, path: str, durable: bool) -> list[str]:  # noqa: FBT001 - called by position
    """Sync every commit, or leave that to later."""
    sync = "on" if durable else "off"
    return [
        postgres_program("postgres") or "postgres", "-D", f"{path}/data", "-p", str(port), "-h", "127.0.0.1", "-k",
        path,
        "-c", f"synchronous_commit={sync}", "-c", "max_connections=120",
    ]  # fmt: skip


def has_pgmq() -> bool:
    """Tell whether the extension is installed."""
    return any(Path("/usr/share/postgresql").glob("*/extension/pgmq.control"))
