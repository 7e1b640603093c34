"""Load on an HTTP mailbox: `load.py PORT MODE CONNECTIONS SECONDS BATCH [TOPIC] [RATE]`; prints one JSON line.

MODE is `send`, `cycle` (send, recv, ack), `recv` (recv, ack) or `fill` (send BATCH messages a request until SECONDS
messages are there). Every connection is a closed loop unless RATE (requests a second over all) paces it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from collections.abc import Generator

import uvloop

PAYLOAD = base64.b64encode(bytes(range(256))).decode()
Steps = Generator[bytes, bytes, None]


def request(path: str, body: str) -> bytes:
    """Write one request."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


def send_request(topic: str, batch: int) -> bytes:
    """Send one message or a batch."""
    message = f'{{"topic":"{topic}","payload_b64":"{PAYLOAD}"}}'
    if batch == 1:
        return request("/v1/send", message)
    return request("/v1/send/batch", f'{{"messages":[{",".join([message] * batch)}]}}')


def ack_request(found: list[dict[str, str]]) -> bytes:
    """Ack what was received."""
    acks = [f'{{"msg_id":"{each["msg_id"]}","receipt":"{each["receipt"]}"}}' for each in found]
    return request("/v1/ack", acks[0] if len(acks) == 1 else f'{{"acks":[{",".join(acks)}]}}')


class Run:
    """What all connections share."""

    def __init__(self, mode: str, batch: int, topic: str) -> None:
        """Prepare the bytes that repeat."""
        self.mode, self.batch = mode, batch
        self.send = send_request(topic, batch)
        self.recv = request("/v1/recv", json.dumps({"topic": topic, "max_messages": batch, "visibility_ms": 60000}))
        self.times: list[float] = []
        self.count = 0
        self.refused = 0
        self.stopped = False

    def steps(self) -> Steps:
        """Go round once: requests out, bodies in."""
        if self.mode in ("send", "cycle", "fill"):
            yield self.send
        if self.mode in ("cycle", "recv"):
            found = json.loads((yield self.recv))["messages"]
            if found:
                yield ack_request(found)
                self.count += len(found)
        else:
            self.count += self.batch


class Client(asyncio.Protocol):
    """One connection that goes round and round."""

    def __init__(self, run: Run) -> None:
        """Take part in a run."""
        self._run = run
        self._buffer = b""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = transport
        self._steps = self._run.steps()
        self._write(next(self._steps))

    def _write(self, data: bytes) -> None:
        self._sent = time.perf_counter()
        self._transport.write(data)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        """Read an answer, go on with the next step."""
        self._buffer = buffer = self._buffer + data if self._buffer else data
        end = buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        at = buffer.find(b"Content-Length: ")
        size = int(buffer[at + 16 : buffer.find(b"\r", at)])
        if len(buffer) < end + 4 + size:
            return
        self._buffer = b""
        self._run.times.append(time.perf_counter() - self._sent)
        if buffer[9:12] != b"200":
            self._run.refused += 1
        self._next(buffer[end + 4 :])

    def _next(self, body: bytes) -> None:
        try:
            self._write(self._steps.send(body))
        except StopIteration:
            if self._run.stopped:
                self._transport.close()
                if not self.done.done():
                    self.done.set_result(None)
                return
            self._steps = self._run.steps()
            self._write(next(self._steps))


async def main() -> None:
    """Run for so many seconds, or until so many messages are there."""
    port, mode, connections, seconds, batch = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
    run = Run(mode, batch, sys.argv[6] if len(sys.argv) > 6 else "bench")
    loop = asyncio.get_running_loop()
    before = time.perf_counter()
    clients = [
        (await loop.create_connection(lambda: Client(run), "127.0.0.1", int(port)))[1] for _ in range(connections)
    ]
    if mode == "fill":
        while run.count < seconds:  # noqa: ASYNC110 - nothing tells us
            await asyncio.sleep(0.02)
    else:
        await asyncio.sleep(seconds)
    run.stopped = True
    elapsed = time.perf_counter() - before
    count = run.count
    await asyncio.wait([client.done for client in clients], timeout=5)
    times = sorted(run.times) or [0.0]
    marks = {
        f"p{name}_ms": 1000 * times[min(len(times) - 1, int(len(times) * part))]
        for name, part in (("50", 0.5), ("99", 0.99))
    }
    print(json.dumps({"per_s": count / elapsed, "count": count, "seconds": elapsed, "refused": run.refused, **marks}))


if __name__ == "__main__":
    uvloop.run(main())
