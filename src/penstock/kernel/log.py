"""One structured event a line, on standard `logging`; what must never be written is cut out here.

`Log("svc-mailbox").info("send.accepted", corr_id=..., shard=3)`: the event is the message, the fields are
data. A host application that configures logging itself gets ordinary records with `record.fields`.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TextIO

from penstock.kernel.log_writer import WRITER, file_under

if TYPE_CHECKING:
    import io

ROOT: Final = "penstock"
REDACTED: Final = "[redacted]"
_SECRET_WORDS: Final = ("token", "authorization", "payload", "secret", "signature", "password", "cookie", "private")
_SECRET_NAMES: Final = frozenset({"body", "address", "seed", "receipt", "cap", "capability"})
_KEY: Final = re.compile(r"(?:^|[^a-z]|api)keys?(?:$|[^a-z])")
_LEVEL_COLOURS: Final = {"DEBUG": "2", "INFO": "36", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}


class Log:
    """The log of one service: every event carries its name."""

    __slots__ = ("_logger", "service")

    def __init__(self, service: str) -> None:
        """Speak through the logger `penstock.<service>`."""
        self.service = service
        self._logger = logging.getLogger(f"{ROOT}.{service}")

    def debug(self, event: str, **fields: object) -> None:
        """Say something only a developer wants to hear."""
        self._say(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        """Say that something worth knowing happened."""
        self._say(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Say that something is off but handled."""
        self._say(logging.WARNING, event, fields)

    def error(self, event: str, *, error: BaseException | None = None, **fields: object) -> None:
        """Say that something failed; the error's type and stack go along, its arguments only as its message."""
        if error is not None:
            fields["error"] = type(error).__name__
            fields["reason"] = str(error)
            fields["stack"] = "".join(traceback.format_exception(error))
        self._say(logging.ERROR, event, fields)

    def _say(self, level: int, event: str, fields: dict[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            record = {"service": self.service, "event": event, **redact(fields)}
            if self._logger.hasHandlers():
                self._logger.log(level, event, extra={"fields": record})
            elif level >= logging.WARNING:
                # Nobody configured logging; Python's last resort would show the event and none of its fields.
                _say_plainly(level, record)


def _say_plainly(level: int, record: dict[str, object]) -> None:
    line = logging.makeLogRecord({"levelname": logging.getLevelName(level), "fields": record})
    with suppress(OSError, ValueError):
        sys.stderr.write(TextFormatter(colour=False).format(line) + "\n")


def redact(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the fields with everything secret cut out, by name, at every depth."""
    return {str(name): REDACTED if _is_secret(str(name)) else _redact_value(value) for name, value in fields.items()}


def _redact_value(value: object) -> object:
    if isinstance(value, Mapping):
        return redact(value)
    return [_redact_value(part) for part in value] if isinstance(value, list | tuple) else value


def _is_secret(name: str) -> bool:
    lowered = name.lower()
    if lowered in _SECRET_NAMES or _KEY.search(lowered):
        return True
    return any(word in lowered for word in _SECRET_WORDS)


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Turn a record into a line; records of other libraries get their message as the event."""
        fields = getattr(record, "fields", None) or {"service": record.name, "event": record.getMessage()}
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"ts": moment, "level": record.levelname.lower(), **fields}
        if record.exc_info and "stack" not in line:
            line["stack"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """A line a person reads: time, level, service, event, then the fields."""

    def __init__(self, *, colour: bool) -> None:
        """Use colour only on a terminal."""
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        """Turn a record into a line, with a stack below it where there is one."""
        fields = dict(getattr(record, "fields", None) or {"service": record.name, "event": record.getMessage()})
        stack = fields.pop("stack", "")
        moment = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S.%f")[:-3]
        head = f"{moment} {self._level(record.levelname)} {fields.pop('service')} {fields.pop('event')}"
        tail = " ".join(f"{name}={value}" for name, value in fields.items())
        return f"{head} {tail}".rstrip() + (f"\n{stack}".rstrip() if stack else "")

    def _level(self, name: str) -> str:
        word = f"{name.lower():<7}"
        return f"\x1b[{_LEVEL_COLOURS.get(name, '0')}m{word}\x1b[0m" if self._colour else word


def configure(style: str = "auto", level: str = "info") -> None:
    """Send events to standard error as `json`, `text` or whichever fits (`auto`); never done by an import.

    The loop's own complaints go the same way: a line that nobody reads must not stop it, whoever wrote the line.
    """
    tty = sys.stderr.isatty()
    as_text = style == "text" or (style == "auto" and tty)
    formatter = TextFormatter(colour=tty) if as_text else JsonFormatter()
    handler = _handler_to(sys.stderr)
    handler.setFormatter(formatter)
    WRITER.say_lost = lambda lost: f"{formatter.format(_lost(lost))}\n"
    least = logging.getLevelName("WARNING" if level == "warn" else level.upper())
    for name, quietest in ((ROOT, logging.DEBUG), ("asyncio", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(max(least, quietest))
        logger.propagate = False


def _handler_to(stream: TextIO) -> logging.Handler:
    """Write through the thread what goes to a file; a stream that is no file never stands still."""
    file = file_under(stream)
    if file is None:
        return logging.StreamHandler(stream)
    WRITER.point_to(file, stream.encoding)
    return _through_the_thread


# One for the process, because its lock is what parts those who write.
_through_the_thread: Final = logging.StreamHandler(WRITER)


def _lost(lines: int) -> logging.LogRecord:
    fields = {"service": "kernel", "event": "log.lost", "lines": lines}
    return logging.makeLogRecord({"levelname": "WARNING", "fields": fields})


def goes_to(file: io.RawIOBase) -> bool:
    """Tell whether the log is written to this file too, by its thread."""
    return _through_the_thread in logging.getLogger(ROOT).handlers and WRITER.goes_to(file)


def say_beside(text: str) -> None:
    """Write text that is no event to where the log goes, in order with it."""
    _through_the_thread.acquire()
    try:
        WRITER.write(text)
    finally:
        _through_the_thread.release()


def settle() -> bool:
    """Have what was said written, before a process says its last words or ends; tell whether it was in time."""
    return WRITER.close()
