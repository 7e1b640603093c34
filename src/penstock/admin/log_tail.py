"""The log tail: the last lines of this node's log, for the page. Lines are kept as fields, redacted like the log."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.kernel.errors import Malformed
from penstock.kernel.log import ROOT
from penstock.net.server.route import Route

if TYPE_CHECKING:
    from penstock.kernel.inventory import Inventory
    from penstock.net.message import Request

LINES_KEPT: Final = 1000
_ANSWER_MAX: Final = 500
_TEXT_CHARS_MAX: Final = 2000
_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class LogLine(msgspec.Struct, frozen=True):
    """One line: its number since the start, Unix milliseconds, and what was said by whom."""

    n: int
    at: int
    level: str
    service: str
    event: str
    fields: dict[str, str]


class LogQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lines after a number, of a level or worse, that contain a text anywhere."""

    after: int = 0
    level: str = "debug"
    text: str = ""


class LogOut(msgspec.Struct, frozen=True):
    """The newest lines that fit, oldest first; `last` is where the next question goes on."""

    lines: list[LogLine]
    last: int


class LogTail(logging.Handler):
    """A handler beside the one that writes; `logging` calls it under its lock, from any thread."""

    def __init__(self, inventory: Inventory) -> None:
        """List its bound; `attach` makes it hear."""
        super().__init__()
        self._lines: deque[LogLine] = deque(maxlen=LINES_KEPT)
        self._number = 0
        inventory.limit(
            "page_log_lines", LINES_KEPT, "more: the oldest are forgotten", lambda: {"in_use": len(self._lines)}
        )

    def attach(self) -> None:
        """Hear every line from now on; doing it again is harmless."""
        logger = logging.getLogger(ROOT)
        if self not in logger.handlers:
            logger.addHandler(self)

    def detach(self) -> None:
        """Hear nothing any more."""
        logging.getLogger(ROOT).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line."""
        fields: dict[str, Any] = dict(getattr(record, "fields", None) or {"event": record.getMessage()})
        service, event = str(fields.pop("service", record.name)), str(fields.pop("event", ""))
        kept = {str(name): str(value)[:_TEXT_CHARS_MAX] for name, value in fields.items()}
        self._number += 1
        line = LogLine(self._number, int(record.created * 1000), record.levelname.lower(), service, event, kept)
        self._lines.append(line)

    def lines(self, asked: LogQuery) -> LogOut:
        """Return what was asked for."""
        least, text = _LEVELS[asked.level], asked.text.lower()
        found = [
            line
            for line in list(self._lines)
            if line.n > asked.after and _LEVELS.get(line.level, 40) >= least and (not text or text in _said(line))
        ]
        return LogOut(found[-_ANSWER_MAX:], self._number)

    # --- the route

    def routes(self) -> list[Route]:
        """List the one route."""
        return [
            Route(
                method="GET",
                path="/logs",
                handler=self._tell,
                answer=LogOut,
                summary="The last lines of the node's log, by level and text.",
                errors=("malformed",),
            )
        ]

    def _tell(self, request: Request) -> LogOut:
        # The handlers are replaced when the configuration is read again.
        self.attach()
        try:
            asked = msgspec.convert(request.query_params(), LogQuery, strict=False)
        except msgspec.ValidationError as exc:
            raise Malformed(str(exc)) from exc
        if asked.level not in _LEVELS:
            raise Malformed(f"A level is one of {', '.join(_LEVELS)}.")
        return self.lines(asked)


def _said(line: LogLine) -> str:
    return " ".join((line.service, line.event, *(f"{name}={value}" for name, value in line.fields.items()))).lower()
