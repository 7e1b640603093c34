"""Read one answer with the parser under test, and put together what it came to."""

from __future__ import annotations

from penstock.kernel.errors import DownstreamUnavailable
from penstock.wire.http1.answer import AnswerEnd, AnswerHead, AnswerParser

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


class Read:
    """What one answer came to, with the body's pieces joined: pieces may be cut differently, bytes may not."""

    def __init__(self, parser: AnswerParser) -> None:
        self.parser = parser
        self.heads: list[AnswerHead] = []
        self.body = b""
        self.ends: list[bool] = []
        self.faults = 0

    def take(self, events) -> None:
        for event in events:
            if isinstance(event, AnswerHead):
                self.heads.append(event)
            elif isinstance(event, bytes):
                self.body += event
            elif isinstance(event, AnswerEnd):
                self.ends.append(event.complete)
            else:
                assert isinstance(event, DownstreamUnavailable)
                assert event.status == 502
                self.faults += 1

    def result(self):
        return self.heads, self.body, self.ends, self.faults, self.parser.reusable


def read(pieces: list[bytes], method: str = "GET", end: str = "") -> Read:
    parser = AnswerParser()
    parser.begin(method)
    reading = Read(parser)
    for piece in pieces:
        reading.take(parser.feed(piece))
    if end:
        reading.take(parser.eof() if end == "eof" else parser.cut())
    return reading


def every_byte(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]
