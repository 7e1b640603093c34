"""Where our reading and h11's part on purpose; each with its reason and an input that shows it.

The rule under test: what we accept, h11 accepts too, with the same method, target, fields and body. h11 accepts more
than we do (both lengths, bare LF, folded fields, control characters); that is no difference in this sense.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """One excuse: the inputs it covers, why, and the smallest of them."""

    applies: Callable[[bytes], bool]
    why: str
    example: bytes


DIFFERENCES = {
    "leading CRLF": Difference(
        lambda data: re.search(rb"(?:^|\r\n\r\n|[^\n])\r\n[A-Z]+ [^ ]+ HTTP/", data) is not None,
        "RFC 9112, 2.2 asks a server to ignore at least one empty line before a request line; h11 refuses it.",
        b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ),
    "upgrade fields": Difference(
        lambda data: b"upgrade" in data.lower(),
        "We take Upgrade, HTTP2-Settings and their Connection options out of the head, so that nobody obeys them.",
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
    ),
    "transfer coding in capitals": Difference(
        lambda data: re.search(rb"(?i:transfer-encoding:)[ \t]*(?!chunked)(?i:chunked)", data) is not None,
        "A coding's name is the same in any case; h11 hands its value on in lower case, we hand it on as it came.",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chuNked\r\n\r\n0\r\n\r\n",
    ),
}


def excused(data: bytes) -> str | None:
    """Return the name of the difference that covers this input."""
    return next((name for name, difference in DIFFERENCES.items() if difference.applies(data)), None)
