"""A contract's methods as data: numbered, typed, and the source of dispatch, stub and documentation. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Any

import msgspec

from penstock.kernel.errors import DownstreamUnavailable, Malformed, NotFound

Check = Callable[[Any], None]
Row = tuple[int, str, Any, Any]


@dataclass(frozen=True, slots=True)
class Method:
    """One method of a contract; `code` is its number on the wire and never changes its meaning."""

    code: int
    name: str
    request: Any
    answer: Any
    _: KW_ONLY
    # May be tried again when the connection breaks before the answer.
    idempotent: bool = False
    # Run by both ends on what crosses: hashes hold on the way in and on the way out.
    check_request: Check | None = None
    check_answer: Check | None = None
    # Reads a request once more that does not fit, as far as it can be read; raises as msgspec does when it cannot.
    reread: Callable[[bytes], Any] | None = None


@dataclass(frozen=True, slots=True)
class EventType:
    """One kind of event a contract may push, with its number on the wire."""

    code: int
    name: str
    value: Any


class Methods:
    """The table of one contract."""

    def __init__(
        self, app_proto_id: int, rows: Iterable[Method | Row], *, service: str = "", events: Sequence[EventType] = ()
    ) -> None:
        """Take the numbered rows; a code or name used twice is a bug."""
        self.app_proto_id = app_proto_id
        self.service = service
        self.rows = [row if isinstance(row, Method) else Method(*row) for row in rows]
        self.events = list(events)
        self.by_code = {method.code: method for method in self.rows}
        self.by_name = {method.name: method for method in self.rows}
        if len(self.by_code) != len(self.rows) or len(self.by_name) != len(self.rows):
            raise ValueError(f"app_proto_id {app_proto_id} uses a code or name twice")
        self._requests = {method.code: msgspec.msgpack.Decoder(method.request) for method in self.rows}
        self._answers = {method.code: msgspec.msgpack.Decoder(method.answer) for method in self.rows}
        self._events = {event.code: msgspec.msgpack.Decoder(event.value) for event in self.events}
        self._event_codes = {event.value: event.code for event in self.events}

    def method(self, code: int) -> Method:
        """Find a method by its number."""
        if (found := self.by_code.get(code)) is None:
            raise NotFound(f"There is no method {code} in protocol {self.app_proto_id}.", reason="unknown_method")
        return found

    def decode_request(self, method: Method, data: bytes | memoryview | msgspec.Raw) -> Any:  # noqa: ANN401
        """Read a request's value and check it; a value that does not fit is the caller's fault."""
        try:
            value = self._requests[method.code].decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
            value = _read_again(method, bytes(data), exc)
        if method.check_request is not None:
            method.check_request(value)
        return value

    def decode_answer(self, method: Method, data: bytes) -> Any:  # noqa: ANN401 - typed by the row
        """Read an answer's value and check it; a value that does not fit is the downstream's fault."""
        try:
            value = self._answers[method.code].decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
            raise DownstreamUnavailable(f"{method.name} answered nonsense: {exc}", status=502) from exc
        if method.check_answer is not None:
            method.check_answer(value)
        return value

    def decode_event(self, code: int, data: bytes) -> Any:  # noqa: ANN401 - typed by the row
        """Read an event; a kind this build does not know is NotFound."""
        if (decoder := self._events.get(code)) is None:
            raise NotFound(f"There is no event {code} in protocol {self.app_proto_id}.", reason="unknown_event")
        try:
            return decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
            raise Malformed(f"event {code}: {exc}", reason="bad_value") from exc

    def event_code(self, value: object) -> int:
        """Return the number of an event's kind."""
        return self._event_codes[type(value)]


def _read_again(method: Method, data: bytes, fault: Exception) -> Any:  # noqa: ANN401 - typed by the row
    if method.reread is not None:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):
            return method.reread(data)
    raise Malformed(f"{method.name}: {fault}", reason="bad_value") from fault


def methods_markdown(tables: Iterable[Methods]) -> str:
    """Write the generated page that numbers every method of every contract."""
    lines = [
        "# OAP/1 methods",
        "",
        "Generated from the contracts; `code` is the number a request carries in its header.",
    ]
    for table in tables:
        lines += ["", f"## {table.app_proto_id}: {table.service}", ""]
        lines += _table(["code", "method", "request", "answer", "retried"], map(_method_row, table.rows))
        if table.events:
            lines += ["", *_table(["code", "event"], ([str(e.code), f"`{e.name}`"] for e in table.events))]
    return "\n".join(lines) + "\n"


def _method_row(method: Method) -> list[str]:
    retried = "yes" if method.idempotent else "no"
    return [str(method.code), f"`{method.name}`", _fields(method.request), _fields(method.answer), retried]


def _table(head: list[str], rows: Iterable[list[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def _fields(kind: Any) -> str:  # noqa: ANN401 - any struct
    """Name a struct and its fields; optional ones carry a question mark."""
    names = [f"{field.encode_name}{'' if field.required else '?'}" for field in msgspec.structs.fields(kind)]
    return f"`{kind.__name__}`" + (f" ({', '.join(names)})" if names else "")
