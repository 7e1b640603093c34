"""What a request head may look like: limits in bytes, the request line, fields, and what they say about framing.

Every check here is a function of the head's bytes alone. A fault seen in a prefix is the fault seen in the whole:
splitting the input differently never changes the answer.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.kernel.errors import Malformed, OverLimit, PenstockError, Unsupported
from penstock.wire.plain_words import size_text
from penstock.wire.target import Target, parse_target

REQUEST_LINE_BYTES_MAX: Final = 8 * 1024
FIELD_BYTES_MAX: Final = 12 * 1024
HEAD_BYTES_MAX: Final = 32 * 1024
FIELDS_MAX: Final = 100
CHUNKED: Final = -1
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

_MINOR: Final = {b"HTTP/1.1": 1, b"HTTP/1.0": 0}
_VERSION: Final = re.compile(rb"HTTP/[0-9]\.[0-9]")
_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HOST: Final = re.compile(rb"(?:[A-Za-z0-9\-._~!$&'()*+,;=]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_CONTENT_LENGTH_DIGITS_MAX: Final = 20
# Repeats of these are never a list: two of them mean that two readers could disagree.
_SINGLE: Final = frozenset(
    {b"host", b"content-length", b"transfer-encoding", b"content-type", b"authorization", b"expect", b"origin"}
)
# Fields this listener acts on: bytes above 0x7f have no one meaning there.
_READ: Final = _SINGLE | {
    b"connection", b"content-encoding", b"x-corr-id", b"traceparent", b"upgrade", b"idempotency-key",
    b"x-deadline-ms", b"range", b"if-none-match", b"cookie", b"sec-fetch-site",
}  # fmt: skip
_FRAMING_LOOKALIKES: Final = frozenset({b"transfer_encoding", b"content_length"})
# Most heads have none of these, and then there is little to work out.
_UNUSUAL: Final = frozenset({b"transfer-encoding", b"connection", b"expect"})
# Host values that are well formed; bounded, because clients choose them.
_hosts: set[bytes | None] = set()
_HOSTS_KEPT: Final = 256
_UPGRADE_FIELDS: Final = frozenset({b"upgrade", b"http2-settings"})


class StartLine:
    """A request line that passed every check."""

    __slots__ = ("method", "minor", "target")

    def __init__(self, method: str, target: Target, minor: int) -> None:
        """Hold method, target and the minor version (1.0 or 1.1)."""
        self.method = method
        self.target = target
        self.minor = minor


class HeadMemo:
    """What the owner of a reader has found out about a head. Owners derive from it; equal heads then share it."""

    __slots__ = ()


class HttpHead:
    """A complete request head. Equal requests of a listener may share it: treat it as read-only, but for `memo`."""

    __slots__ = (
        "corr_id", "encoded", "expects_continue", "headers", "keep_alive", "length", "memo", "method", "minor", "plain",
        "repeats", "start", "target",
    )  # fmt: skip

    def __init__(
        self, start: StartLine, headers: dict[bytes, bytes], repeats: list[tuple[bytes, bytes]] | None = None
    ) -> None:
        """Read from the fields how the message is framed and what happens to the connection.

        `repeats` are the fields one by one, where a name came more than once.
        """
        self.start = start
        self.repeats = repeats
        self.method = start.method
        self.target = start.target
        self.minor = start.minor
        self.headers = headers
        self.memo: HeadMemo | None = None
        self.keep_alive = start.minor == 1
        self.expects_continue = False
        self.encoded = b"content-encoding" in headers
        self.corr_id = headers.get(b"x-corr-id")
        if _UNUSUAL.isdisjoint(headers):
            length = headers.get(b"content-length")
            self.length = 0 if length is None else content_length(length)
        else:
            self.length = body_length(headers, start.minor)
            self.keep_alive = start.minor == 1 and not wants_close(headers)
            self.expects_continue = expects_continue(headers, start.minor)
        # Its answer has a body and leaves the connection open: what nearly all requests ask for.
        self.plain = self.keep_alive and start.method != "HEAD"
        if headers.get(b"host") not in _hosts or start.target.authority is not None:
            check_host(headers, start)

    @property
    def fields(self) -> list[tuple[bytes, bytes]]:
        """Return the fields as they were sent, repeated ones not joined."""
        return list(self.headers.items()) if self.repeats is None else self.repeats


class HeadScan:
    """How far a head that is still arriving was checked, so that bytes are not checked twice."""

    __slots__ = ("_number", "_start", "seen_bytes")

    def __init__(self) -> None:
        """Start before the request line."""
        # How much of the head holds no end of it for certain.
        self.seen_bytes = 0
        self._number = 0
        self._start = 0

    def check(self, data: bytes, at: int) -> None:
        """Raise at the first place where the bytes from `at` cannot become a head; later bytes never change that."""
        if at < len(data) and not 65 <= data[at] <= 90:
            raise Malformed("A request starts with a method in capitals.")
        while (end := data.find(b"\r\n", at + self._start)) >= 0:
            _check_line(data, at, self._number, (at + self._start, end))
            self._start, self._number = end + 2 - at, self._number + 1
        # A final CR may yet be followed by its LF.
        _check_line(data, at, self._number, (at + self._start, len(data) - data.endswith(b"\r")))
        self.seen_bytes = max(0, len(data) - at - 3)

    def restart(self) -> None:
        """Start over with the next head."""
        self.seen_bytes = self._number = self._start = 0


def _check_line(data: bytes, at: int, number: int, line: tuple[int, int]) -> None:
    """Raise the fault of one line that comes first by position, in a head that starts at `at`."""
    start, stop = line
    cr, lf = data.find(b"\r", start, stop), data.find(b"\n", start, stop)
    line_bytes_max, name = (FIELD_BYTES_MAX, "field") if number else (REQUEST_LINE_BYTES_MAX, "request_line")
    found: list[tuple[int, PenstockError]] = [
        (bare, Malformed("The head has a CR or LF that is not part of a CRLF.")) for bare in (cr, lf) if bare >= 0
    ]
    if stop - start > line_bytes_max:
        found.append((start + line_bytes_max, _too_large(name, line_bytes_max)))
    if stop - at > HEAD_BYTES_MAX:
        found.append((at + HEAD_BYTES_MAX, _too_large("head", HEAD_BYTES_MAX)))
    if number > FIELDS_MAX and stop > start:
        said = f"The request head has more than {FIELDS_MAX} fields."
        found.append((start, OverLimit(said, limit="fields", limit_value=FIELDS_MAX, status=431)))
    if found:
        raise min(found, key=lambda item: item[0])[1]


_WHAT: Final = {"field": "A field", "request_line": "The request line", "head": "The request head"}


def _too_large(what: str, bytes_max: int) -> OverLimit:
    said = f"{_WHAT[what]} is over the limit of {size_text(bytes_max)}."
    return OverLimit(said, limit=what, limit_value=bytes_max, status=431)


def parse_start_line(line: bytes) -> StartLine:
    """Read `METHOD SP target SP HTTP/1.x`: single spaces, our methods, our versions."""
    parts = line.split(b" ")
    if len(parts) != 3:
        raise Malformed("A request line is method, target and version with single spaces between them.")
    minor = _MINOR.get(parts[2])
    if minor is None:
        raise _bad_version(parts[2])
    method = _method(parts[0])
    return StartLine(method, parse_target(parts[1], method), minor)


def _bad_version(version: bytes) -> PenstockError:
    if _VERSION.fullmatch(version):
        return Unsupported("This listener speaks HTTP/1.0 and HTTP/1.1.", status=505)
    return Malformed("The request line does not end in an HTTP version.")


def _method(raw: bytes) -> str:
    if _TOKEN.fullmatch(raw) is None:
        raise Malformed("The method is not a token.")
    method = raw.decode("ascii")
    # No route takes TRACE: it is read like the others so that its refusal can name the methods of its target.
    if method in METHODS or method == "TRACE":
        return method
    if method == "CONNECT":
        raise Unsupported("This method is not supported.", status=405, allow=sorted(METHODS))
    raise Unsupported("This method is not supported.", status=501)


def fields_of(head: bytes) -> list[tuple[bytes, bytes]]:
    """Split a head the parser accepted into names (lower case) and values (without blanks around them)."""
    pairs = []
    for line in head.split(b"\r\n")[1:-2]:
        name, _, value = line.partition(b":")
        pairs.append((name.lower(), value.strip(b" \t")))
    return pairs


def join_repeats(pairs: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Join repeated fields with a comma (cookies with a semicolon); refuse repeats that are not lists."""
    headers: dict[bytes, bytes] = {}
    for name, value in pairs:
        if name not in headers:
            headers[name] = value
        elif name in _SINGLE:
            raise Malformed("A field that may come once came twice.", field=name.decode("ascii"))
        else:
            headers[name] += (b"; " if name == b"cookie" else b", ") + value
    return headers


def check_fields(headers: dict[bytes, bytes]) -> None:
    """Refuse bytes above 0x7f in fields we act on, and names an upstream could read as framing."""
    for name, value in headers.items():
        if name in _READ and not value.isascii():
            raise Malformed("A field holds bytes outside ASCII.", field=name.decode("ascii"))
        if name in _FRAMING_LOOKALIKES:
            raise Malformed("A field name imitates a framing field.")


def body_length(headers: dict[bytes, bytes], minor: int) -> int:
    """Return the body's length, `CHUNKED`, or 0 without a body."""
    encoding = headers.get(b"transfer-encoding")
    if encoding is not None:
        if encoding.lower() != b"chunked" or minor == 0 or b"content-length" in headers:
            raise Malformed("Transfer-Encoding must be chunked, alone, and on HTTP/1.1.")
        return CHUNKED
    length = headers.get(b"content-length")
    return 0 if length is None else content_length(length)


def content_length(length: bytes) -> int:
    """Read a Content-Length of at most 20 digits."""
    if len(length) > _CONTENT_LENGTH_DIGITS_MAX or not length.isdigit():
        raise Malformed("Content-Length is not a number.")
    return int(length)


def wants_close(headers: dict[bytes, bytes]) -> bool:
    """Tell whether the client asked for the connection to end after this request."""
    options = headers.get(b"connection")
    return options is not None and b"close" in [option.strip() for option in options.lower().split(b",")]


def expects_continue(headers: dict[bytes, bytes], minor: int) -> bool:
    """Tell whether the client waits for 100; an expectation we do not know is 417."""
    expectation = headers.get(b"expect")
    if expectation is None or minor == 0:
        return False
    if expectation.lower() != b"100-continue":
        raise Unsupported("This expectation is not supported.", status=417)
    return True


def check_host(headers: dict[bytes, bytes], start: StartLine) -> None:
    """Demand one valid Host on HTTP/1.1, equal to the authority of an absolute-form target."""
    host = headers.get(b"host")
    if host is None:
        if start.minor == 1 or start.target.authority is not None:
            raise Malformed("HTTP/1.1 needs a Host field.")
    elif _HOST.fullmatch(host) is None:
        raise Malformed("The Host field is not a host and port.")
    elif start.target.authority is not None and start.target.authority != host.lower():
        raise Malformed("The target's authority is not the Host.")
    elif len(_hosts) < _HOSTS_KEPT:
        _hosts.add(host)


def without_upgrade(head: bytes) -> bytes:
    """Rewrite a head so that it asks for no upgrade; the body's framing stays what it was."""
    start, *lines = head[:-4].split(b"\r\n")
    kept = [line for line in map(_plain_connection, lines) if line and _field_name(line) not in _UPGRADE_FIELDS]
    return b"\r\n".join([start, *kept, b"", b""])


def _field_name(line: bytes) -> bytes:
    return line.partition(b":")[0].lower()


def _plain_connection(line: bytes) -> bytes:
    """Drop `upgrade` and `http2-settings` from a Connection field; drop the field when nothing is left."""
    if _field_name(line) != b"connection":
        return line
    options = [option.strip() for option in line.partition(b":")[2].split(b",")]
    kept = [option for option in options if option and option.lower() not in _UPGRADE_FIELDS]
    return b"Connection: " + b", ".join(kept) if kept else b""
