"""One plain line for a person, with the event and its fields for a log.

It goes through `logging`, as a record of `penstock.client` whose message is the line. A program that has configured no
logging gets the line on standard error, behind `penstock: `.
"""

from __future__ import annotations

import logging
import sys
import traceback
from contextlib import suppress
from typing import Final, TextIO

from penstock.kernel.log import redact

_logger: Final = logging.getLogger("penstock.client")


def tell(event: str, line: str, /, **fields: object) -> None:
    """Tell what is off and handled; no traceback explains it."""
    _tell(logging.WARNING, as_utf8(line), {"service": "client", "event": event, **redact(fields)}, None)


def tell_error(event: str, line: str, error: BaseException, /, **fields: object) -> None:
    """Tell what failed, and show the traceback below it."""
    stack = as_utf8("".join(traceback.format_exception(error)))
    record = {"service": "client", "event": event, **redact(fields), "reason": as_utf8(text_of(error)), "stack": stack}
    _tell(logging.ERROR, as_utf8(line), record, error)


def text_of(error: BaseException) -> str:
    """Return what an error says; of one that fails to say it, as a traceback does, that it failed."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # lint: allow PK015 its text is the handler's own code, and may raise anything
        return "<exception str() failed>"


def as_utf8(text: str) -> str:
    """Return a text with a mark for each character that UTF-8 lacks: the name of a file may hold such."""
    return text.encode("utf-8", "replace").decode()


def _tell(level: int, line: str, record: dict[str, object], error: BaseException | None) -> None:
    if not _logger.isEnabledFor(level):
        return
    if _logger.hasHandlers():
        _logger.log(level, line, exc_info=error, extra={"fields": record})
        return
    # A program without a console, such as a Windows service, has no standard error.
    stderr: TextIO | None = sys.stderr
    if stderr is None:
        return
    with suppress(OSError, ValueError):
        stderr.write(f"penstock: {line}\n{record.get('stack', '')}")
        stderr.flush()
