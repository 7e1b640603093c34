"""The load generator: keep-alive connections, one request in flight on each, counted by answers read whole."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from dataclasses import asdict, dataclass

import uvloop

BODY = b'{"text":"the quick brown fox","n":41}'
HEAD = (
    b"POST %b HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUser-Agent: penstock-bench\r\nAccept: */*\r\n"
    b"Content-Type: application/json\r\n%bContent-Length: %d\r\n\r\n"
)


@dataclass(frozen=True, kw_only=True)
class Load:
    """What to send, where, and for how long."""

    port: int
    path: str = "/echo"
    connections: int = 32
    seconds: float = 3.0
    tls: bool = False
    # Vary a field, so that no two heads of a connection are equal.
    vary: bool = False


class Client(asyncio.Protocol):
    """One connection that asks again as soon as it was answered."""

    def __init__(self, load: Load, number: int) -> None:
        """Prepare the request."""
        self.answers = 0
        self.statuses: set[bytes] = set()
        self._load = load
        self._number = number
        self._buffer = b""
        self._request = self._make(b"")

    def _make(self, extra: bytes) -> bytes:
        return HEAD % (self._load.path.encode(), self._load.port, extra, len(BODY)) + BODY

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask the first time."""
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        if self._load.vary:
            self._request = self._make(b"X-Corr-ID: %08d-%012d\r\n" % (self._number, self.answers))
        self._transport.write(self._request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        """Count an answer once it is whole."""
        data = self._buffer + data if self._buffer else data
        end = data.find(b"\r\n\r\n")
        at = data.lower().find(b"content-length: ", 0, end) + 16 if end >= 0 else -1
        if end < 0 or len(data) < end + 4 + int(data[at : data.find(b"\r\n", at)]):
            self._buffer = data
            return
        self._buffer = b""
        self.answers += 1
        self.statuses.add(data[9:12])
        self._ask()


async def run(load: Load) -> dict[str, object]:
    """Warm up for half a second, tell the parent, then count."""
    loop = asyncio.get_running_loop()
    context = None
    if load.tls:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    clients = []
    for number in range(load.connections):
        client = Client(load, number)
        await loop.create_connection(lambda c=client: c, "127.0.0.1", load.port, ssl=context)  # type: ignore[misc]
        clients.append(client)
    await asyncio.sleep(0.5)
    before, began = sum(client.answers for client in clients), loop.time()
    print("started", flush=True)
    await asyncio.sleep(load.seconds)
    answers, elapsed = sum(client.answers for client in clients) - before, loop.time() - began
    statuses = sorted({status.decode() for client in clients for status in client.statuses})
    return {**asdict(load), "answers": answers, "elapsed_s": elapsed, "statuses": statuses}


if __name__ == "__main__":
    print(json.dumps(uvloop.run(run(Load(**json.loads(sys.argv[1]))))), flush=True)
