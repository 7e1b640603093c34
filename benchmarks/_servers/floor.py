"""The floor: a protocol that parses nothing and always answers the same, to show what the loop and the kernel cost."""

from __future__ import annotations

import asyncio
import sys

import uvloop

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 44\r\n\r\n" + b"x" * 44


class Floor(asyncio.BufferedProtocol):
    """Answer every read."""

    buffer = bytearray(16384)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the write method."""
        self._write = transport.write  # type: ignore[attr-defined]

    def get_buffer(self, sizehint: int) -> bytearray:
        """Lend the one buffer."""
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Answer."""
        self._write(ANSWER)


async def serve(port: int) -> None:
    """Run until the process is ended."""
    server = await asyncio.get_running_loop().create_server(Floor, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
