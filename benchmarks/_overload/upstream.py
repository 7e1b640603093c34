"""An upstream of 32 slots of 20 ms: 1,600 answers a second whatever comes, first come first served."""

from __future__ import annotations

import asyncio
from collections import deque

SLOTS = 32
SERVICE_S = 0.020
CAPACITY_RPS = SLOTS / SERVICE_S
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nok\n"


class Slots:
    """Serves 32 at a time and lets the others wait in line."""

    def __init__(self) -> None:
        self.free = SLOTS
        self.line: deque[Peer] = deque()

    def ask(self, peer: Peer) -> None:
        """Begin at once, or stand in line."""
        if self.free:
            self.free -= 1
            self.begin(peer)
        else:
            self.line.append(peer)

    def begin(self, peer: Peer) -> None:
        """Hold a slot for as long as the work takes."""
        asyncio.get_running_loop().call_later(SERVICE_S, self.end, peer)

    def end(self, peer: Peer) -> None:
        """Answer, and take the next who is still there."""
        peer.answer()
        while self.line:
            waiting = self.line.popleft()
            if not waiting.gone:
                self.begin(waiting)
                return
        self.free += 1


class Peer(asyncio.Protocol):
    """One connection; requests have no body."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.gone = False
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            self.buffer = self.buffer[end + 4 :]
            self.slots.ask(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True

    def answer(self) -> None:
        """Say ok, if somebody is there to hear it."""
        if not self.gone:
            self.transport.write(_ANSWER)  # type: ignore[attr-defined]


async def main() -> None:
    """Serve until the process is ended; print the port."""
    slots = Slots()
    server = await asyncio.get_running_loop().create_server(lambda: Peer(slots), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
