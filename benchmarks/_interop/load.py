"""The load: kept connections, each sends its next signed webhook when it was answered; `load.py JSON`.

Every body is another one, so that each is an event of its own. With `good` false the signature is that of another body.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import sys
from collections import Counter
from typing import Any

import uvloop

WARM_S = 1.0
PREFIX = b'{"ref":"refs/heads/main","repository":{"id":1296269,"full_name":"octocat/hello"},"n":%012d,"pad":"'


class Connection(asyncio.Protocol):
    """One connection with one request on it."""

    def __init__(self, crowd: Crowd) -> None:
        """Belong to the crowd that counts."""
        self._crowd = crowd
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask the first time."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._ask()

    def _ask(self) -> None:
        self._asked_at = self._crowd.time()
        self._transport.write(self._crowd.next_request())

    def data_received(self, data: bytes) -> None:
        """Count an answer once it is whole."""
        data = self._buffer + data if self._buffer else data
        end = data.find(b"\r\n\r\n")
        at = data.lower().find(b"content-length: ", 0, end) + 16 if end >= 0 else -1
        if end < 0 or len(data) < end + 4 + int(data[at : data.find(b"\r\n", at)]):
            self._buffer = data
            return
        self._buffer = b""
        self._crowd.answered(data[9:12], self._asked_at)
        self._ask()


class Crowd:
    """All connections together."""

    def __init__(self, load: dict[str, Any]) -> None:
        """Prepare the parts of a request that do not change."""
        self.time = asyncio.get_running_loop().time
        self._secret = load["secret"].encode()
        self._good = load.get("good", True)
        self._number = load.get("first", 0)
        self._pad = b"x" * (load["bytes"] - len(PREFIX % 0) - 2) + b'"}'
        self._head = (
            f"POST {load['path']} HTTP/1.1\r\nHost: 127.0.0.1:{load['port']}\r\nUser-Agent: GitHub-Hookshot/bench\r\n"
            "Accept: */*\r\nContent-Type: application/json\r\nX-GitHub-Event: push\r\nX-GitHub-Hook-ID: 292430182\r\n"
            f"Content-Length: {load['bytes']}\r\n"
        ).encode()
        self.restart()

    def next_request(self) -> bytes:
        """Sign the next body."""
        self._number += 1
        body = PREFIX % self._number + self._pad
        tag = hmac.digest(self._secret, body if self._good else b"", "sha256").hex().encode()
        delivery = b"X-GitHub-Delivery: 72d3162e-cc78-11e3-81ab-%012d\r\n" % self._number
        return self._head + delivery + b"X-Hub-Signature-256: sha256=" + tag + b"\r\n\r\n" + body

    def restart(self) -> None:
        """Count from now on."""
        self.statuses: Counter[str] = Counter()
        self.took_s: list[float] = []
        self.began = self.time()

    def answered(self, status: bytes, asked_at: float) -> None:
        """Count one answer."""
        self.statuses[status.decode()] += 1
        self.took_s.append(self.time() - asked_at)


async def run(load: dict[str, Any]) -> dict[str, Any]:
    """Warm up, tell the parent, then count."""
    loop, crowd = asyncio.get_running_loop(), Crowd(load)
    made = [
        (await loop.create_connection(lambda: Connection(crowd), "127.0.0.1", load["port"]))[0]
        for _ in range(load["connections"])
    ]
    await asyncio.sleep(WARM_S)
    crowd.restart()
    print("counting", flush=True)
    await asyncio.sleep(load["seconds"])
    elapsed_s, took = crowd.time() - crowd.began, sorted(crowd.took_s)
    for transport in made:
        transport.abort()
    return {
        "elapsed_s": elapsed_s,
        "statuses": dict(crowd.statuses),
        # A server that answered nothing has no percentiles.
        "p50_ms": round(took[len(took) // 2] * 1000, 2) if took else None,
        "p99_ms": round(took[len(took) * 99 // 100] * 1000, 2) if took else None,
    }


if __name__ == "__main__":
    print(json.dumps(uvloop.run(run(json.loads(sys.argv[1])))), flush=True)
