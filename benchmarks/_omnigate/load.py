"""The load: kept connections that ask again as soon as they were answered; `load.py JSON`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from typing import Any

import uvloop

WARM_S = 0.5


class Connection(asyncio.Protocol):
    """One connection with one request on it."""

    def __init__(self, crowd: Crowd) -> None:
        """Belong to the crowd that counts."""
        self._crowd = crowd
        self._buffer = b""
        self._asked_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask the first time."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._ask()

    def _ask(self) -> None:
        self._asked_at = self._crowd.time()
        self._transport.write(self._crowd.request)

    def data_received(self, data: bytes) -> None:
        """Count an answer once it is whole; one as long as the last whole one of its status is not looked at again."""
        crowd = self._crowd
        if self._buffer or crowd.whole_bytes.get(data[9:12]) != len(data):
            data = self._buffer + data
            end = data.find(b"\r\n\r\n")
            at = data.lower().find(b"content-length: ", 0, end) + 16 if end >= 0 else -1
            if end < 0 or len(data) < end + 4 + int(data[at : data.find(b"\r\n", at)]):
                self._buffer = data
                return
            self._buffer = b""
            crowd.whole_bytes[data[9:12]] = len(data)
        crowd.answered(data[9:12], self._asked_at)
        self._ask()


class Crowd:
    """All connections together."""

    def __init__(self, load: dict[str, Any]) -> None:
        """Prepare the request."""
        auth = f"Authorization: Bearer {load['token']}\r\n" if load.get("token") else ""
        self.request = f"GET /api/x HTTP/1.1\r\nHost: 127.0.0.1:{load['port']}\r\nAccept: */*\r\n{auth}\r\n".encode()
        self.time = asyncio.get_running_loop().time
        self.whole_bytes: dict[bytes, int] = {}
        self.restart()

    def restart(self) -> None:
        """Start to count anew."""
        self.statuses: Counter[str] = Counter()
        self.latencies_s: list[float] = []

    def answered(self, status: bytes, asked_at: float) -> None:
        """Count an answer; latency only of those served."""
        self.statuses[status.decode()] += 1
        if status == b"200":
            self.latencies_s.append(self.time() - asked_at)

    def report(self) -> dict[str, Any]:
        """Sum up."""
        ranked, served = sorted(self.latencies_s) or [0.0], self.statuses["200"]
        return {
            "served": served,
            "refused": sum(self.statuses.values()) - served,
            "p50_ms": round(ranked[len(ranked) // 2] * 1000, 2),
            "p99_ms": round(ranked[len(ranked) * 99 // 100] * 1000, 2),
        }


async def run(load: dict[str, Any]) -> dict[str, Any]:
    """Warm up, tell the parent, then count."""
    loop, crowd = asyncio.get_running_loop(), Crowd(load)
    for _ in range(load["connections"]):
        await loop.create_connection(lambda: Connection(crowd), "127.0.0.1", load["port"])
    await asyncio.sleep(WARM_S)
    crowd.restart()
    began = loop.time()
    print("started", flush=True)
    await asyncio.sleep(load["seconds"])
    return {"elapsed_s": loop.time() - began, **crowd.report()}


if __name__ == "__main__":
    print(json.dumps(uvloop.run(run(json.loads(sys.argv[1])))), flush=True)
