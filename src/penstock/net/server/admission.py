"""The hook at the end of the headers, and refusals. A refusal is prebuilt bytes, so that it costs less than serving."""

from __future__ import annotations

import enum
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Literal

from penstock.kernel.errors import Busy, NotReady
from penstock.net.message import Response
from penstock.net.problem import problem, retry_after_s

if TYPE_CHECKING:
    from penstock.kernel.errors import PenstockError
    from penstock.net.message import Request
    from penstock.wire.http1.head import HttpHead

_MARK: Final = "corr-id-goes-here"
_VARIANTS: Final = 8
_CORR_BYTES: Final = 36
# The phases that are counted by name; a peer's own word for one is not, because labels are finite.
_PHASES: Final = frozenset({"absent", "draining", "opening", "reopening", "restarting"})
# Status line, fields of an answer that keeps the connection, of one that ends it, body before and after the corr_id.
Template = tuple[bytes, bytes, bytes, bytes, bytes]


class Refusal:
    """An error and the bytes of its answer: made once, sent often, with the date and the corr_id patched in."""

    __slots__ = ("_date_line", "_ready", "_turn", "_variants", "error", "labels", "status")

    def __init__(self, error: PenstockError) -> None:
        """Render nothing yet: a 429 or 503 gets a few variants with different Retry-After as it is used."""
        self.error = error
        self.status = error.status
        # What its counters are found by: status, reason, and which queue was full or which phase it is.
        self.labels = labels_of(error)
        self._variants: list[Template | None] = [None] * (1 if retry_after_s(error) is None else _VARIANTS)
        self._turn = 0
        # The answers of this second, cut where the corr_id goes.
        self._date_line = b""
        self._ready: list[tuple[bytes, bytes, bytes] | None] = [None] * len(self._variants)

    def common(self, corr: bytes, date_line: bytes) -> bytes:
        """Return the answer for a connection that stays open and a corr_id of our own: the common case of overload."""
        if date_line is not self._date_line:
            self._new_second(date_line)
        self._turn = turn = (self._turn + 1) % len(self._ready)
        start, middle, end = self._ready[turn] or self._prepare(turn)
        return start + corr + middle + corr + end

    def render(self, corr: bytes, date_line: bytes, *, close: bool, head_only: bool) -> bytes:
        """Return the answer for any corr_id, on a connection that stays open or is closed."""
        if date_line is not self._date_line:
            self._new_second(date_line)
        self._turn = turn = (self._turn + 1) % len(self._ready)
        return self._render(turn, corr, close=close, head_only=head_only)

    def _new_second(self, date_line: bytes) -> None:
        self._date_line = date_line
        self._ready = [None] * len(self._variants)

    def _prepare(self, turn: int) -> tuple[bytes, bytes, bytes]:
        """Prepare the answer that `common` returns for the rest of this second, cut where the corr_id goes."""
        mark = b"\0" * _CORR_BYTES
        start, middle, end = self._render(turn, mark, close=False, head_only=False).split(mark)
        self._ready[turn] = start, middle, end
        return start, middle, end

    def _render(self, turn: int, corr: bytes, *, close: bool, head_only: bool) -> bytes:
        made = self._variants[turn]
        if made is None:
            made = self._variants[turn] = _template(problem(self.error, _MARK))
        status_line, kept, closing, before, after = made
        quoted = corr.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
        fields, length = closing if close else kept, len(before) + len(quoted) + len(after)
        head = b"%b%b%b%b\r\nContent-Length: %d\r\n\r\n" % (status_line, self._date_line, fields, corr, length)
        return head if head_only else head + before + quoted + after


def _template(response: Response) -> Template:
    before, _, after = response.body.partition(_MARK.encode("ascii"))
    status_line = f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}\r\n".encode("ascii")
    lines = [(b"Content-Type", response.content_type), *response.headers]
    fields = b"".join(b"%b: %b\r\n" % line for line in lines) + b"X-Corr-ID: "
    return status_line, fields, b"Connection: close\r\n" + fields, before, after


def labels_of(error: PenstockError) -> tuple[int, str, str | None]:
    """Return what the counters of an error are found by: which place was full, or in which phase nobody was ready."""
    which: str | None = None
    if isinstance(error, Busy):
        which = str(error.facts.get("queue") or error.facts.get("limit") or "")
    elif isinstance(error, NotReady):
        phase = error.facts.get("phase")
        which = str(phase) if phase in _PHASES else "running"
    return error.status, error.reason, which


class AdmissionWait(enum.Enum):
    """What admission returns, beside None and a refusal."""

    HELD = "held"


HELD: Final = AdmissionWait.HELD
"""The request waits at a gate with its body unread. The gate decides later, by its ticket's `waiter`."""

Outcome = Refusal | Literal[AdmissionWait.HELD] | None
Admission = Callable[["Request"], Outcome]
"""The hook at the end of the headers: None admits, a Refusal is sent and the body never processed, HELD waits."""

ProblemWords = Callable[["HttpHead", "PenstockError", str], "Response | None"]
"""Writes a refusal in the words of the protocol that a request speaks; None: it is ours, with problem details."""
