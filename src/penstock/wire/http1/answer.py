"""HTTP/1.1 answers: bytes in, events out. Only this module decides where an answer ends.

`httptools` checks each head, but it cannot be told which method was asked and has no end of input: it would wait for
the body of an answer to HEAD and never finish one that ends with the connection. So it sees heads only, one at a
time, and what follows a head is cut by the rules of RFC 9112 section 6.3 below.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

import httptools
import msgspec

from penstock.kernel.errors import DownstreamUnavailable
from penstock.wire.http1.answer_chunks import AnswerChunks, bad_answer

HEAD_BYTES_MAX: Final = 32 * 1024
FIELD_BYTES_MAX: Final = 12 * 1024
FIELDS_MAX: Final = 100
INFORMATIONAL_MAX: Final = 8
LENGTH_DIGITS_MAX: Final = 20
MEMO_BYTES_MAX: Final = 1024

_TEXT: Final = rb"[\t\x20-\x7e\x80-\xff]*"
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: " + _TEXT + rb")?\r\n")
_VERSION: Final = b"HTTP/1."


class Framing(Enum):
    """How the end of a body is known."""

    NONE = auto()
    LENGTH = auto()
    CHUNKED = auto()
    EOF = auto()


class AnswerHead(msgspec.Struct):
    """A final status with its fields; names are lower-case, repeats stay apart in `fields` and are joined in `headers`.

    It may be shared by equal answers of a connection: treat it as read-only, but for `relay_start`.
    """

    status: int
    fields: tuple[tuple[bytes, bytes], ...]
    headers: dict[bytes, bytes]
    framing: Framing
    # The declared length: under LENGTH what will come, for HEAD and 304 what a GET would have brought.
    length: int | None
    # A proxy keeps here the head that it passes on for this one, up to the length; equal answers then share it.
    relay_start: bytes = b""


class AnswerEnd(msgspec.Struct, frozen=True):
    """The answer is over; `complete` is false when the connection ended before the answer did."""

    complete: bool


# A fault is an error value, always the last event of its answer: what was parsed before it is not lost.
Event = AnswerHead | bytes | AnswerEnd | DownstreamUnavailable


class _State(Enum):
    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    DONE = auto()


class _Fields:
    """What httptools calls for each field of a head; it asks for the other callbacks too, and finds them unset."""

    __slots__ = ("on_header",)

    on_body = on_chunk_complete = on_chunk_header = on_headers_complete = None
    on_message_begin = on_message_complete = on_status = None

    def __init__(self, on_header: Callable[[bytes, bytes], None]) -> None:
        self.on_header = on_header


class AnswerParser:
    """The answers of one connection, one after another: `begin(method)`, then `feed` until `AnswerEnd`.

    Bytes that nobody asked for, before `begin` or beyond the answer, are dropped and make `reusable` false for good.
    """

    __slots__ = (
        "_chunks",
        "_framing",
        "_held",
        "_informational",
        "_keep_alive",
        "_left",
        "_memo",
        "_memo_head",
        "_method",
        "_state",
        "fed_bytes",
    )

    def __init__(self) -> None:
        self._state = _State.IDLE
        self._keep_alive = True
        # The last head and what it meant; most servers send the same one again until the date moves on.
        self._memo = b""
        self._memo_head: AnswerHead | None = None
        self._reset("")

    def _reset(self, method: str) -> None:
        self._method = method
        self._held = b""
        self._informational = 0
        self._framing = Framing.NONE
        self._left = 0
        self._chunks: AnswerChunks | None = None
        # Bytes received since `begin`: zero means that the peer has not begun to answer.
        self.fed_bytes = 0

    @property
    def reusable(self) -> bool:
        """Tell whether the connection may carry another request: nothing is owed and nothing came unasked."""
        return self._keep_alive and (self._state is _State.DONE or self._state is _State.IDLE)

    @property
    def ended(self) -> bool:
        """Tell whether no more bytes are expected."""
        return self._state is _State.DONE or self._state is _State.IDLE

    def begin(self, method: str) -> None:
        """Expect the answer to a request with this method."""
        if not self.reusable:
            message = "the last answer on this connection is not over, or was its last"
            raise RuntimeError(message)
        self._reset(method)
        self._state = _State.HEAD

    def take_whole(self, data: bytes) -> tuple[AnswerHead, bytes] | None:
        """Return head and body if `data` is one whole answer under a head that came before; else take nothing of it."""
        head, memo = self._memo_head, self._memo
        size = len(memo)
        if head is None or self.fed_bytes or not data.startswith(memo) or self._method == "HEAD":
            return None
        if len(data) - size != head.length:
            return None
        self.fed_bytes = len(data)
        self._state = _State.DONE
        return head, data[size:]

    def feed(self, data: bytes) -> list[Event]:
        """Take what the peer sent and return what it means, in order."""
        self.fed_bytes += len(data)
        events: list[Event] = []
        try:
            while data and self._state is _State.HEAD:
                data = self._feed_head(data, events)
            if data and self._state is _State.BODY:
                data = self._feed_body(data, events)
        except DownstreamUnavailable as fault:
            self._close()
            events.append(fault)
        if data and self.ended:
            self._keep_alive = False
        return events

    def eof(self) -> list[Event]:
        """Take the orderly end of the peer's bytes."""
        complete = self._framing is Framing.EOF
        return self._over(complete=complete)

    def cut(self) -> list[Event]:
        """Take the loss of the connection: whatever was not over is incomplete."""
        return self._over(complete=False)

    def _over(self, *, complete: bool) -> list[Event]:
        before = self._state
        self._close()
        if before is _State.BODY:
            return [AnswerEnd(complete)]
        if before is _State.HEAD:
            return [bad_answer("The connection ended before the answer's head did.")]
        return []

    def _close(self) -> None:
        self._keep_alive = False
        self._state = _State.DONE

    def _feed_head(self, data: bytes, events: list[Event]) -> bytes:
        held = len(self._held)
        # Joining again and again is quadratic, but only within 32 KiB, and one read mostly brings the whole head.
        data = self._held + data if held else data
        end = data.find(b"\r\n\r\n", max(held - 3, 0)) + 4
        if end > HEAD_BYTES_MAX or (end == 3 and len(data) >= HEAD_BYTES_MAX):
            raise bad_answer("The answer's head is too long.")
        if end == 3:
            _check_unfinished(data, held)
            self._held = data
            return b""
        self._held = b""
        self._take_head(data[:end], events)
        return data[end:]

    def _take_head(self, raw: bytes, events: list[Event]) -> None:
        match = _STATUS_LINE.match(raw)
        if match is None:
            raise bad_answer("The answer is not HTTP/1.")
        status, minor = int(match[2]), match[1]
        fields = _parse_fields(raw)
        if status < 200:
            self._skip(status)
            return
        headers = _join(fields)
        framing, length = self._tell_framing(status, minor, headers)
        self._begin_body(framing, length or 0)
        self._keep_alive = self._keep_alive and framing is not Framing.EOF and _keeps_alive(minor, headers)
        head = AnswerHead(status, tuple(fields), headers, framing, length)
        events.append(head)
        if framing is Framing.LENGTH and self._keep_alive and len(raw) <= MEMO_BYTES_MAX:
            self._memo, self._memo_head = raw, head
        if self._state is _State.DONE:
            events.append(AnswerEnd(complete=True))

    def _skip(self, status: int) -> None:
        """Pass over an informational answer; 101 was never asked for and would change the protocol."""
        self._informational += 1
        if status == 101 or self._informational > INFORMATIONAL_MAX:
            raise bad_answer("The answer switches protocols, or never becomes final.")

    def _tell_framing(self, status: int, minor: bytes, headers: dict[bytes, bytes]) -> tuple[Framing, int | None]:
        coding, declared = headers.get(b"transfer-encoding"), headers.get(b"content-length")
        if declared is not None and len(declared) > LENGTH_DIGITS_MAX:
            raise bad_answer("The answer's length has too many digits.")
        length = None if declared is None else int(declared)
        if self._method == "HEAD" or status in {204, 304}:
            return Framing.NONE, length
        if coding is not None:
            if minor != b"1" or coding.lower() != b"chunked":
                raise bad_answer("The answer's transfer coding is not `chunked`.")
            return Framing.CHUNKED, None
        return (Framing.EOF, None) if length is None else (Framing.LENGTH, length)

    def _begin_body(self, framing: Framing, length: int) -> None:
        self._framing, self._left = framing, length
        empty = framing is Framing.NONE or (framing is Framing.LENGTH and not length)
        self._state = _State.DONE if empty else _State.BODY
        self._chunks = AnswerChunks() if framing is Framing.CHUNKED else None

    def _feed_body(self, data: bytes, events: list[Event]) -> bytes:
        """Take the body's share of `data` and return what lies beyond the answer."""
        if self._chunks is not None:
            return self._feed_chunks(self._chunks, data, events)
        if self._framing is Framing.EOF:
            events.append(data)
            return b""
        piece, beyond = data[: self._left], data[self._left :]
        events.append(piece)
        self._left -= len(piece)
        if not self._left:
            self._end(events)
        return beyond

    def _feed_chunks(self, chunks: AnswerChunks, data: bytes, events: list[Event]) -> bytes:
        pieces: list[bytes] = []
        try:
            taken = chunks.feed(data, pieces)
        finally:
            # One event a feed, however small the peer's chunks are.
            if pieces:
                events.append(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if chunks.done:
            self._end(events)
        return data[taken:]

    def _end(self, events: list[Event]) -> None:
        self._state = _State.DONE
        events.append(AnswerEnd(complete=True))


def _check_unfinished(data: bytes, held: int) -> None:
    """Refuse at once what cannot become a head, instead of waiting for the deadline."""
    if data[:7] != _VERSION[: len(data)]:
        raise bad_answer("The answer is not HTTP/1.")
    if data.count(b"\n", held) != data.count(b"\r\n", max(held - 1, 0)):
        raise bad_answer("The answer's head has a line feed of its own.")


def _parse_fields(raw: bytes) -> list[tuple[bytes, bytes]]:
    count = raw.count(b"\r\n") - 2
    if count > FIELDS_MAX or (len(raw) > FIELD_BYTES_MAX and max(map(len, raw.split(b"\r\n"))) > FIELD_BYTES_MAX):
        raise bad_answer("The answer has too many fields, or one too long.")
    # Most heads repeat no name, and filling a dict costs no Python call a field.
    found: dict[bytes, bytes] = {}
    _check_head(raw, found.__setitem__)
    pairs = list(found.items())
    if len(pairs) != count:
        pairs.clear()
        _check_head(raw, lambda name, value: pairs.append((name, value)))
    return [(name.lower(), value.strip(b" \t")) for name, value in pairs]


def _check_head(raw: bytes, on_header: Callable[[bytes, bytes], None]) -> None:
    try:
        httptools.HttpResponseParser(_Fields(on_header)).feed_data(raw)
    except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
        raise bad_answer("The answer's head is malformed.") from exc


def _join(fields: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    headers = dict(fields)
    if len(headers) == len(fields):
        return headers
    headers.clear()
    for name, value in fields:
        headers[name] = headers[name] + b", " + value if name in headers else value
    return headers


def _keeps_alive(minor: bytes, headers: dict[bytes, bytes]) -> bool:
    named = headers.get(b"connection")
    if named is None:
        return minor == b"1"
    options = {option.strip(b" \t") for option in named.lower().split(b",")}
    return b"close" not in options and (minor == b"1" or b"keep-alive" in options)
