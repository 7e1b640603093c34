"""One call as a value: what is asked, of whom, for how long; and the bytes of its request head."""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Final, TypedDict

import msgspec

from penstock.kernel.backoff import CALLS, MAX_TRIES, Backoff
from penstock.kernel.breaker import BreakerPolicy
from penstock.kernel.errors import Malformed
from penstock.net.calls.origin import HttpOrigin, parse_url

Body = bytes | AsyncIterator[bytes]

SHORT_BYTES_MAX: Final = 4 * 1024

_IDEMPOTENT: Final = frozenset(("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"))
_WITH_BODY: Final = frozenset(("POST", "PUT", "PATCH"))
_METHOD: Final = re.compile(r"[A-Z]+")
_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
# The client produces the framing itself; a caller who sets it would make the peer see another message than we sent.
# A proxy drops these before it passes fields on.
OWN_FIELDS: Final = frozenset(
    (
        b"connection",
        b"content-length",
        b"expect",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"x-corr-id",
    )
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientOptions:
    """The bounds of one client. Connections, waiters, breaker and retry budget are counted for each origin."""

    # The downstream's name in metrics and errors: a word from a finite set, never an address.
    service: str = "downstream"
    op: str = "http"
    origins_max: int = 64
    connections_max: int = 64
    waiters_max: int = 256
    # Shorter than the idle timeout of a listener, so that mostly the client is the one to close.
    idle_s: float = 30.0
    connect_timeout_s: float = 2.0
    write_timeout_s: float = 5.0
    read_timeout_s: float = 5.0
    # From the call to the last byte of a buffered answer, or to the head of a streamed one.
    timeout_s: float = 10.0
    close_timeout_s: float = 1.0
    body_bytes_max: int = 8 << 20
    tries_max: int = MAX_TRIES
    retry_statuses: frozenset[int] = frozenset((502, 503, 504))
    backoff: Backoff = CALLS
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)
    # None: the system's certificate authorities, and the host name must match.
    tls: ssl.SSLContext | None = None


class CallOptions(TypedDict, total=False):
    """What a caller may say about one call beyond its method and URL."""

    headers: Iterable[tuple[bytes, bytes]]
    body: Body
    # The exact length of a streamed body; without it the body goes out chunked.
    body_bytes: int | None
    timeout_s: float
    # None: the method decides.
    idempotent: bool | None
    corr_id: str | None


class ClientCall(msgspec.Struct, frozen=True, kw_only=True):
    """A checked call, ready to be written as often as retries allow."""

    origin: HttpOrigin
    method: str
    head: bytes
    body: Body
    body_bytes: int | None
    timeout_s: float
    # A streamed body can be sent once only, so such a call is never repeated.
    repeatable: bool
    # The request fits into one write and the answer is wanted whole: the call has a single wait.
    at_once: bool


def make_call(method: str, url: str, said: CallOptions, defaults: ClientOptions, *, whole: bool) -> ClientCall:
    """Check everything that will stand in the request, so that no argument can change its framing."""
    if not _METHOD.fullmatch(method) or method == "CONNECT":
        raise Malformed("A method is upper-case letters, and this client makes no tunnels.")
    origin, target = parse_url(url)
    body = said.get("body", b"")
    idempotent = said.get("idempotent")
    repeatable = (method in _IDEMPOTENT) if idempotent is None else idempotent
    body_bytes = said.get("body_bytes")
    lines = [f"{method} {target} HTTP/1.1\r\n".encode("ascii"), *_field_lines(origin, said)]
    lines.append(_framing_line(method, body, body_bytes))
    return ClientCall(
        origin=origin,
        method=method,
        head=b"".join(lines),
        body=body,
        body_bytes=body_bytes,
        timeout_s=said.get("timeout_s", defaults.timeout_s),
        repeatable=repeatable and isinstance(body, bytes),
        at_once=whole and isinstance(body, bytes) and len(body) <= SHORT_BYTES_MAX,
    )


def _field_lines(origin: HttpOrigin, said: CallOptions) -> list[bytes]:
    lines = [b"Host: %b\r\n" % origin.authority]
    for name, value in said.get("headers", ()):
        _check_field(name, value)
        line = b"%b: %b\r\n" % (name, value)
        if name.lower() == b"host":
            lines[0] = line
        else:
            lines.append(line)
    corr_id = said.get("corr_id")
    if corr_id is not None:
        lines.append(b"X-Corr-ID: %b\r\n" % _checked_corr_id(corr_id))
    return lines


def _check_field(name: bytes, value: bytes) -> None:
    if name.lower() in OWN_FIELDS:
        message = f"the client sets {name.decode('latin-1')} itself"
        raise ValueError(message)
    if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
        raise Malformed("A field holds a control character, or its name is not a token.")


def _checked_corr_id(corr_id: str) -> bytes:
    if not (0 < len(corr_id) <= 64 and corr_id.isascii() and corr_id.isprintable()):
        raise Malformed("A corr_id is 1-64 printable ASCII characters.")
    return corr_id.encode("ascii")


def _framing_line(method: str, body: Body, body_bytes: int | None) -> bytes:
    """End the head with the one line that says where the body ends."""
    if isinstance(body, bytes):
        return b"Content-Length: %d\r\n\r\n" % len(body) if body or method in _WITH_BODY else b"\r\n"
    if body_bytes is None:
        return b"Transfer-Encoding: chunked\r\n\r\n"
    return b"Content-Length: %d\r\n\r\n" % body_bytes
