"""The audit of dead letters that retention removes: one JSON object a line, synced before they go."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from penstock.services.mailbox.engines.engine import EngineFailed

_encode: Final = msgspec.json.Encoder().encode


def append_lines(path: Path, records: list[dict[str, object]]) -> None:
    """Append and sync. The caller removes nothing when this raises."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(_encode(record) + b"\n" for record in records)
            file.flush()
            os.fsync(file.fileno())
    except OSError as exc:
        raise EngineFailed("The audit cannot be written.", reason="audit") from exc
