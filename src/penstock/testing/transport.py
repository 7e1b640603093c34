"""In-memory transports: two asyncio protocols joined on one loop, in virtual time, byte by byte if need be.

They keep asyncio's contract (pause and resume, write limits, half-close, `connection_lost` once) and TCP's harsh
side: closing with unread input, or receiving after a close, resets the peer, which then loses what it had not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from penstock.testing import leaks
from penstock.testing.line import CLEAR, Line, Weather

Handler = asyncio.Protocol | asyncio.BufferedProtocol

_HIGH_BYTES = 64 * 1024
_READ_BYTES = 256 * 1024


class MemoryTransport(asyncio.Transport):
    """One end of a connection that exists only in memory."""

    def __init__(self, loop: asyncio.AbstractEventLoop, line: Line, extra: Mapping[str, Any]) -> None:
        """Write to `line`; `memory_pair` joins the ends."""
        super().__init__(dict(extra))
        self.line = line
        """The line this end writes to: stall, release or lose it to disturb the connection."""
        self._loop = loop
        self._protocol: Handler
        self._incoming: Line
        self._out = bytearray()
        self._inbox = bytearray()
        self._peer_ended = False
        self._eof_told = False
        self._eof_asked = False
        self._fin_sent = False
        self._closing = False
        self._finished = False
        self._lost = False
        self._reading = True
        self._writing_paused = False
        self._low_bytes, self._high_bytes = _HIGH_BYTES // 4, _HIGH_BYTES

    def join(self, protocol: Handler, incoming: Line) -> None:
        """Take the protocol and the line to read from, and introduce the protocol to this transport."""
        self._protocol = protocol
        self._incoming = incoming
        protocol.connection_made(self)

    # -- writing -----------------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send these bytes; what the line does not take now waits here."""
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"data must be bytes-like, not {type(data).__name__}")
        if self._eof_asked:
            raise RuntimeError("cannot write after write_eof")
        if self._closing or not data:
            return
        self._out += data
        self._push()
        self._watch_level()

    def writelines(self, list_of_data: Any) -> None:  # noqa: ANN401 any iterable of buffers, as asyncio has it
        """Send all of these at once."""
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        """Close this direction behind what was written."""
        if self._closing or self._eof_asked:
            return
        self._eof_asked = True
        self._push()

    def can_write_eof(self) -> bool:
        """Tell that half-close works."""
        return True

    def get_write_buffer_size(self) -> int:
        """Tell how many bytes wait for the line."""
        return len(self._out)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Tell the low and the high mark."""
        return self._low_bytes, self._high_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the marks at which the protocol is told to pause and to go on."""
        if high is None:
            high = _HIGH_BYTES if low is None else 4 * low
        low = high // 4 if low is None else low
        if not 0 <= low <= high:
            raise ValueError(f"high ({high}) must be >= low ({low}) must be >= 0")
        self._low_bytes, self._high_bytes = low, high
        self._watch_level()

    def _push(self) -> None:
        """Move what fits onto the line, then the end of the stream if it is due."""
        if self._out and (room := self.line.room_bytes):
            del self._out[: self.line.offer(bytes(self._out[:room]))]
        if self._out:
            return
        if self._closing:
            self._finish()
        elif self._eof_asked:
            self._send_fin()

    def _send_fin(self) -> None:
        if not self._fin_sent:
            self._fin_sent = True
            self.line.offer_eof()

    def _watch_level(self) -> None:
        """Tell the protocol when the buffer crosses a mark."""
        if not self._writing_paused and len(self._out) > self._high_bytes:
            self._writing_paused = True
            self._protocol.pause_writing()
        elif self._writing_paused and len(self._out) <= self._low_bytes:
            self._writing_paused = False
            self._protocol.resume_writing()

    def drained(self) -> None:
        """Learn that the line has room again."""
        if not self._lost:
            self._push()
            self._watch_level()

    # -- reading -----------------------------------------------------------------------------------------------

    def arrive(self, data: bytes) -> None:
        """Take bytes off the line."""
        if self._finished:
            self._refuse_input()
            return
        self._inbox += data
        self._read()

    def arrive_eof(self) -> None:
        """Take the end of the stream off the line."""
        self._peer_ended = True
        self._read()

    def is_reading(self) -> bool:
        """Tell whether the protocol is given data."""
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        """Give the protocol no data for now."""
        self._reading = False

    def resume_reading(self) -> None:
        """Go on giving data, from the next step."""
        if not self._reading and not self._closing:
            self._reading = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        """Give the protocol what it may have, and the end of the stream after the last byte."""
        while self._inbox and self.is_reading():
            data = bytes(self._inbox[:_READ_BYTES])
            del self._inbox[: len(data)]
            self._guarded(self._give, data)
            self._incoming.consumed(len(data))
        if self._peer_ended and not self._inbox and not self._eof_told and self.is_reading():
            self._eof_told = True
            self._guarded(self._give_eof, b"")

    def _give(self, data: bytes) -> None:
        protocol = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            protocol.data_received(data)
            return
        while data:
            room = memoryview(cast("bytearray", protocol.get_buffer(len(data))))
            if not room:
                raise RuntimeError("get_buffer() returned an empty buffer")
            part, data = data[: len(room)], data[len(room) :]
            room[: len(part)] = part
            protocol.buffer_updated(len(part))

    def _give_eof(self, _: bytes) -> None:
        if not self._protocol.eof_received():
            self.close()

    def _guarded(self, give: Any, data: bytes) -> None:  # noqa: ANN401 one of the two above
        """Call the protocol; as in asyncio, an error of its own ends the connection and is reported to the loop."""
        try:
            give(data)
        except Exception as error:  # noqa: BLE001 the boundary between a transport and a foreign protocol
            message = f"protocol.{give.__name__.strip('_')} failed"
            context = {"message": message, "exception": error, "transport": self, "protocol": self._protocol}
            self._loop.call_exception_handler(context)
            self._send_fin()
            self.reset(error)

    # -- ending ------------------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        """Tell whether the end has begun."""
        return self._closing

    def close(self) -> None:
        """Send what was written, then end; unread input resets the peer, as TCP does."""
        if self._closing:
            return
        self._closing = True
        self._push()

    def abort(self) -> None:
        """End at once; the peer sees a reset. After a close that is already on the line it changes nothing."""
        if not self._finished:
            self._refuse_input()
            self.reset(None)

    def reset(self, error: Exception | None) -> None:
        """Learn that the connection is gone; what was not yet read or sent is lost."""
        self._closing = self._finished = True
        self._out.clear()
        self._inbox.clear()
        self._loop.call_soon(self._lose, error)

    def _finish(self) -> None:
        """Everything written is on the line: give the socket back, as the last act of a close."""
        if self._finished:
            return
        self._finished = True
        if self._inbox:
            self._refuse_input()
        else:
            self._send_fin()
        self._loop.call_soon(self._lose, None)

    def _refuse_input(self) -> None:
        """Reset the peer, which may not even have read our last bytes: they are gone with it."""
        self._inbox.clear()
        self.line.drop()
        self._incoming.refuse()

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._protocol.connection_lost(error)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand the connection to another protocol."""
        self._protocol = cast("Handler", protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Tell who has the connection."""
        return self._protocol


def memory_pair(
    protocol_a: Handler,
    protocol_b: Handler,
    latency_s: float = 0.0,
    *,
    a_to_b: Weather | None = None,
    b_to_a: Weather | None = None,
) -> tuple[MemoryTransport, MemoryTransport]:
    """Join two protocols on the running loop; each direction has its own weather, else only the latency."""
    loop = asyncio.get_running_loop()
    weather = Weather(latency_s=latency_s) if latency_s else CLEAR
    there, back = Line(loop, a_to_b or weather), Line(loop, b_to_a or weather)
    a = MemoryTransport(loop, there, _addresses(1, 2))
    b = MemoryTransport(loop, back, _addresses(2, 1))
    there.attach(a, b)
    back.attach(b, a)
    b.join(protocol_b, there)
    a.join(protocol_a, back)
    leaks.track(
        f"memory connection of {protocol_a!r} and {protocol_b!r}", lambda: not (a.is_closing() or b.is_closing())
    )
    return a, b


def _addresses(own: int, peer: int) -> dict[str, Any]:
    return {"sockname": (f"127.0.0.{own}", 40_000 + own), "peername": (f"127.0.0.{peer}", 40_000 + peer)}
