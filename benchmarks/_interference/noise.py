"""One neighbour: `noise.py PORT KIND CONNECTIONS RATE SECONDS`; prints what it did as one JSON line.

Kinds: `sends` (send, recv, ack), `batches` (the same, 100 a request), `big` (the same, 256 KiB each), `dead` (messages
that become dead letters after a millisecond), `scans` (lists of topics and of dead letters, peeks).
"""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Callable

from benchmarks._mailbox.load import ALLOWED, Line, Load, Steps, request

TOPIC = "noisy"
BIG_BYTES = 256 << 10
BATCH = 100


def get(path: str) -> bytes:
    """Write a request without a body."""
    return b"GET %b HTTP/1.1\r\nHost: localhost\r\n%b\r\n" % (path.encode(), ALLOWED)


class Big(Load):
    """Large payloads there and back."""

    def __init__(self, rate: float) -> None:
        super().__init__("cycle", 1, TOPIC, rate)
        body = {"topic": TOPIC, "payload_b64": b64encode(bytes(BIG_BYTES)).decode()}
        self.send = request("/v1/send", json.dumps(body).encode())


class Dead(Load):
    """Messages that nobody receives in time."""

    def __init__(self, rate: float) -> None:
        super().__init__("send", 1, TOPIC, rate)
        body = {"topic": TOPIC, "payload_b64": b64encode(bytes(256)).decode(), "ttl_ms": 1}
        self.send = request("/v1/send", json.dumps(body).encode())


class Scans(Load):
    """Lists, one after the other."""

    def __init__(self, rate: float) -> None:
        super().__init__("send", 1, TOPIC, rate)
        self.lists = [get("/v1/topics?limit=100"), get(f"/v1/topics/{TOPIC}/peek?limit=100"), get("/v1/dlq?limit=100")]

    def steps(self) -> Steps:
        """Ask for each list once."""
        # Not `yield from`: the answers are sent into this generator.
        for each in self.lists:  # noqa: UP028
            yield each
        self.count += len(self.lists)


KINDS: dict[str, Callable[[float], Load]] = {
    "sends": lambda rate: Load("cycle", 1, TOPIC, rate),
    "batches": lambda rate: Load("cycle", BATCH, TOPIC, rate),
    "big": Big,
    "dead": Dead,
    "scans": Scans,
}


def main() -> None:
    """Be the neighbour for so long."""
    port, kind, connections, rate, seconds = *sys.argv[1:3], *map(int, sys.argv[3:6])
    load = KINDS[kind](float(rate))
    took_s = load.run([Line(port) for _ in range(connections)], seconds)
    print(json.dumps({"per_s": load.count / took_s, "refused": load.refused}))


if __name__ == "__main__":
    main()
