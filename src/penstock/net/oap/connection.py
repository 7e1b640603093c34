"""One OAP/1 connection, either end: framing, stream rules, deadlines and backpressure around the pure codec.

There is no task and no lock here: bytes come in by callback, one synchronous step decides, bytes go out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final, cast

from penstock.kernel.errors import DownstreamUnavailable, PenstockError, Timeout
from penstock.kernel.log import Log
from penstock.kernel.metrics import Counter
from penstock.net.server.unix import peer_uid
from penstock.wire.oap.frame import (
    END,
    EVENT,
    FRAME_BYTES_MAX,
    RESP,
    Frame,
    FrameDecoder,
    encode,
    split,
)
from penstock.wire.oap.hello import (
    Welcome,
    lowered,
    read_hello,
    welcome_frame,
)
from penstock.wire.oap.problem import encode_problem
from penstock.wire.oap.stream import Decision, StreamTable

# Frames handled in one turn of the loop: a flood on one connection must not hold up the others.
FRAMES_A_TURN: Final = 64
WRITE_BYTES: Final = 256 << 10
# How long a refused peer may take to read why, and how much of what it still sends is thrown away.
LINGER_S: Final = 1.0
LINGER_BYTES: Final = 1 << 20
# Control events (app_proto_id 0): the opener of stream corr_id no longer waits for its answer.
CANCEL: Final = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameTimeouts:
    """How long a connection may keep us waiting."""

    read_s: float = 5.0
    write_s: float = 5.0
    idle_s: float = 60.0


class FrameConnection(asyncio.Protocol):
    """What client and server have in common. Owned by its transport from `connection_made` to `connection_lost`."""

    def __init__(self, table: StreamTable, waits: FrameTimeouts, timeouts: dict[str, Counter], log: Log) -> None:
        self.table = table
        self._log = log
        self.frame_bytes_max = FRAME_BYTES_MAX
        self._waits = waits
        self._timeouts = timeouts
        self._decoder = FrameDecoder()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        # Bounded by one read: reading stops while frames are left over from the last one.
        self._inbox: deque[Frame] = deque()
        # Bounded by the window: reading stops while the peer does not take our answers.
        self._outbox: deque[bytes] = deque()
        self._turn: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writing_paused = self._reading_paused = self._lingering = self._flushing = False
        self._lingered_bytes = 0
        now = self._loop.time()
        self._active_at = now
        self._owed_since: float | None = None
        self._stuck_since: float | None = None
        self._linger_until = 0.0
        # Who is at the other end of a Unix socket; None for any other transport.
        self.peer_uid: int | None = None

    # --- what the two ends say

    def handle(self, decision: Decision) -> None:
        """Act on one decision of the stream table."""
        raise RuntimeError(f"{type(self).__name__} does not say what a decision means")

    def lost(self, error: PenstockError | None) -> None:
        """Clean up: the connection is gone, for the reason given when we know one."""
        raise RuntimeError(f"{type(self).__name__} does not say how it ends")

    def refuse(self, fault: PenstockError) -> None:
        """Tell the peer why nothing more is read from it, and close."""
        stream = fault.facts.get("stream", 0)
        corr_id = stream if isinstance(stream, int) else 0
        self.send(split(Frame(RESP, corr_id, code=fault.status, payload=encode_problem(fault))))
        self.linger()

    # --- state

    @property
    def must_read(self) -> bool:
        """Tell whether to go on reading while the peer takes nothing from us.

        An answerer stops, so that a peer that does not read gets no new work done. An asker must not: if both
        stopped, neither would ever start again. What an asker reads is bounded by its own open calls.
        """
        return False

    @property
    def busy(self) -> bool:
        """Tell whether a request is open, so that silence is not idleness."""
        return self.table.inbound > 0

    @property
    def is_open(self) -> bool:
        """Tell whether frames may still be sent."""
        return self._transport is not None and not self._lingering and not self._transport.is_closing()

    def abort(self) -> None:
        """Close at once; nothing happens when it is closed already."""
        if self._transport is not None:
            self._transport.abort()

    def lower(self, max_frame: int) -> None:
        """Take a negotiated frame limit for both directions; it only goes down."""
        self.frame_bytes_max = min(self.frame_bytes_max, max_frame)
        self._decoder.lower(self.frame_bytes_max)

    def welcome(self, frame: Frame) -> None:
        """Answer a HELLO with our limits; max_frame is the smaller of both from here on."""
        try:
            self.lower(lowered(self.frame_bytes_max, read_hello(frame)))
            answer = welcome_frame(Welcome(self.frame_bytes_max, self.table.max_inflight), frame.corr_id)
        except PenstockError as error:
            answer = Frame(RESP | END, frame.corr_id, code=error.status, payload=encode_problem(error))
        self.send([encode(answer)])

    # --- bytes in

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; deadlines run from here."""
        # uvloop's transports keep the contract without being asyncio.Transport.
        self._transport = cast("asyncio.Transport", transport)
        sock = transport.get_extra_info("socket")
        self.peer_uid = None if sock is None else peer_uid(sock)
        self._active_at = self._loop.time()
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Decode what came; a framing fault ends the connection, because the next frame cannot be found."""
        if self._lingering:
            self._lingered_bytes += len(data)
            if self._lingered_bytes > LINGER_BYTES:
                self.abort()
            return
        try:
            frames = self._decoder.feed(data)
        except PenstockError as fault:
            self.refuse(fault)
            return
        self._active_at = self._loop.time()
        if frames:
            # A whole frame is progress; single bytes are not, or a drip could hold a place for ever.
            self._owed_since = None
            self._inbox.extend(frames)
        self._work()

    def _work(self) -> None:
        """Handle some frames; go on in the next turn of the loop when more are waiting."""
        self._turn = None
        inbox = self._inbox
        self._flushing = True
        try:
            for _ in range(min(FRAMES_A_TURN, len(inbox))):
                self.handle(self.table.receive(inbox.popleft()))
        except PenstockError as fault:
            self.refuse(fault)
        except Exception as bug:  # noqa: BLE001 - the connection's boundary: it dies, the listener lives on
            self._log.error("oap.connection_failed", error=bug)
            self.abort()
            inbox.clear()
        finally:
            self._flushing = False
        self._flush()
        if inbox:
            self._turn = self._loop.call_soon(self._work)
        else:
            self._after_frames()
        self._judge_reading()

    def _after_frames(self) -> None:
        """Act on a fault behind the last good frame, and note whether the peer still has to send the rest of one."""
        if self._lingering:
            return
        try:
            self._decoder.feed(b"")
        except PenstockError as fault:
            self.refuse(fault)
            return
        if not (self._decoder.pending_bytes or self.table.unfinished):
            self._owed_since = None
        elif self._owed_since is None:
            self._owed_since = self._active_at
            self._watch()

    def eof_received(self) -> bool:
        """Close when the peer does: a half-open peer can ask nothing more."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End: give back what streams held and let the owner clean up."""
        for handle in (self._timer, self._turn):
            if handle is not None:
                handle.cancel()
        self._inbox.clear()
        self._outbox.clear()
        self.table.clear()
        self._transport = None
        self.lost(None if exc is None else DownstreamUnavailable(f"The connection broke: {exc}"))

    # --- bytes out

    def send(self, frames: list[bytes]) -> None:
        """Queue encoded frames; those of one turn leave in one write."""
        if not self.is_open:
            return
        if not self._outbox and not self._flushing:
            self._loop.call_soon(self._flush)
        self._outbox.extend(frames)

    def send_event(self, frame: Frame) -> bool:
        """Send an event unless the peer is behind: a slow receiver loses events, never holds up the sender."""
        if self._writing_paused or not self.is_open:
            return False
        self.send([encode(frame, frame_bytes_max=self.frame_bytes_max)])
        return True

    def send_cancel(self, corr_id: int) -> None:
        """Tell the peer that nobody waits for this stream's answer any more."""
        self.send([encode(Frame(EVENT, corr_id, code=CANCEL))])

    def _flush(self) -> None:
        outbox, transport = self._outbox, self._transport
        if transport is None:
            return
        while outbox and not self._writing_paused:
            parts, size = [], 0
            while outbox and size < WRITE_BYTES:
                parts.append(outbox.popleft())
                size += len(parts[-1])
            self._active_at = self._loop.time()
            transport.write(parts[0] if len(parts) == 1 else b"".join(parts))
        self._judge_reading()
        if self._lingering and not outbox and transport.can_write_eof():
            transport.write_eof()

    def pause_writing(self) -> None:
        """Stop writing: the peer does not read. Until it does, no new work of it is taken."""
        self._writing_paused = True
        self._stuck_since = self._loop.time()
        self._watch()
        self._judge_reading()

    def resume_writing(self) -> None:
        """Go on where we stopped."""
        self._writing_paused = False
        self._stuck_since = None
        self._flush()

    def _judge_reading(self) -> None:
        """Read only while the last read is handled and the peer takes what we send."""
        transport = self._transport
        stuck = self._writing_paused and not self.must_read
        pause = (stuck or bool(self._inbox)) and not self._lingering
        if transport is None or pause == self._reading_paused or transport.is_closing():
            return
        self._reading_paused = pause
        if pause:
            transport.pause_reading()
        else:
            # What the peer owes could not arrive meanwhile: its time starts anew.
            self._owed_since = None if self._owed_since is None else self._loop.time()
            transport.resume_reading()

    # --- the end and the deadlines

    def linger(self) -> None:
        """Send what is queued, shut our side, drop what still comes, then close: a close() now could destroy it."""
        if self._transport is None or self._lingering:
            return
        self._linger_until = self._loop.time() + LINGER_S
        self._inbox.clear()
        self._lingering = True
        self._watch()
        if not self._flushing:
            self._flush()

    def _due(self) -> tuple[float, str]:
        """Return the nearest deadline of this connection and what it is about."""
        if self._lingering:
            return self._linger_until, "linger"
        waits = self._waits
        dues = [(self._active_at + waits.idle_s, "idle")]
        if self._owed_since is not None and not self._reading_paused:
            dues.append((self._owed_since + waits.read_s, "read"))
        if self._stuck_since is not None:
            dues.append((self._stuck_since + waits.write_s, "write"))
        return min(dues)

    def _watch(self) -> None:
        """Keep one timer armed, no later than the nearest deadline; one that moved is found when the timer fires."""
        due, _ = self._due()
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._ring)

    def _ring(self) -> None:
        self._timer = None
        due, op = self._due()
        if due > self._loop.time():
            self._watch()
        elif op == "idle" and self.busy:
            # Somebody is being worked for; idle time starts when the last answer left.
            self._active_at = self._loop.time()
            self._watch()
        else:
            self._expire(op)

    def _expire(self, op: str) -> None:
        if op in self._timeouts:
            self._timeouts[op].value += 1
        if op == "read":
            self.refuse(Timeout("oap_read", budget_s=self._waits.read_s, status=408))
        elif op == "idle":
            self.linger()
        else:
            self.abort()
