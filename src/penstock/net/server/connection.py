"""One client connection of the listener: its transport, its turn and its deadlines.

A connection is three objects. `Inbox` turns received bytes into requests and decides what happens to each body.
`Outbox` calls handlers, keeps the answers in the order of their requests and writes them. `Connection` joins the two
to the transport. There is no task of its own: everything happens in callbacks of the loop, and every callback ends in
a *turn*:

1. The inbox handles requests that are complete: at most 32, or as many as fit into 1 ms. The rest get the next turn,
   so that one client cannot hold the loop.
2. The outbox hands the answers that are ready to the transport, in one write.
3. The connection decides what it waits for now: the next request (`idle_timeout`), the rest of one (`read_timeout`),
   a handler (the request's deadline) or a client that does not read (`write_timeout`). The earliest of these lies on
   the listener's timer wheel.

A connection ends in one of three ways. When it is idle it is closed. When it is broken it is aborted. Otherwise it
lingers: the last answer is written, our side is shut, and what the client still sends is read and thrown away for at
most 1 s, because close() with unread input would destroy that answer on its way.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from penstock.kernel.errors import Canceled, PenstockError
from penstock.net.message import AcceptedJson, Response, WrittenJson
from penstock.net.peer import peer_of
from penstock.net.server.body import BodyStream, UnreadBody
from penstock.net.server.caps import HEALTH_HEAD_S
from penstock.net.server.inbox import Inbox
from penstock.net.server.outbox import COPY_BYTES_MAX, Outbox
from penstock.net.server.wheel import NEVER, TICK_S

if TYPE_CHECKING:
    from penstock.net.message import Peer
    from penstock.net.server.caps import CappedConnection
    from penstock.net.server.core import Core
    from penstock.net.server.exchange import Exchange

LINGER_S: Final = 1.0
# Answers that are there as a whole, in the order of how often they come late.
_WHOLE: Final = (WrittenJson, AcceptedJson, Response)


class Connection(asyncio.BufferedProtocol):
    """One client. A bug in one of its callbacks ends this connection only."""

    __slots__ = (
        "_core", "_eof", "_lingering", "_reading", "_transport", "_usher", "_write_due", "again", "due", "idle_since",
        "inbox", "outbox", "peer", "slot",
    )  # fmt: skip

    _transport: asyncio.Transport
    peer: Peer

    def __init__(self, core: Core, usher: CappedConnection | None = None) -> None:
        """Belong to a listener. `usher` holds the place under the caps until `connection_made` takes it over."""
        self._core = core
        self._usher = usher
        self.outbox = Outbox(core, self)
        self.inbox = self.outbox.inbox = Inbox(core, self, self.outbox)
        # True while the next turn is already asked for.
        self.again = False
        self._reading = True
        self._eof = False
        # True from the last answer on, and after the end: what still comes is thrown away.
        self._lingering = False
        self._write_due = NEVER
        # When the connection began to wait for a request; NEVER while something is owed.
        self.idle_since = 0.0
        self.due = NEVER
        self.slot = 0

    # --- transport events ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a place under the caps, or answer that there is none and leave."""
        # Not an isinstance check: uvloop's transports are no subclasses of asyncio's.
        self._transport = self.outbox.transport = cast("asyncio.Transport", transport)
        self.peer = peer_of(transport)
        now, caps = self._core.monotonic(), self._core.caps
        if self._usher is not None:
            caps.leave(self._usher)
            self._usher = None
        refusal = caps.enter(self, now)
        if self._core.ended or not caps.admits_uid(self.peer):
            self._transport.abort()
        elif refusal is None:
            self._rest(now)
        elif caps.enter_for_health(self, refusal):
            self.idle_since = NEVER
            self.inbox.serve_health_only(refusal, now + HEALTH_HEAD_S)
            self._watch()
        elif self.peer.secure or caps.crowded:
            self._transport.abort()
        else:
            self._core.heads.tick(now)
            self.outbox.refuse(None, self._core.corr_ids.make(), self._core.unmatched, refusal, close=True)
            self._settle(now)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give everything back."""
        self.outbox.closing = self._lingering = True
        self.due = NEVER
        self._core.caps.leave(self)
        self._core.wheel.forget(self)
        self.inbox.drop()
        self.outbox.drop()
        # The three refer to each other: taken apart they are freed at once, not when the collector comes by.
        del self.inbox.connection, self.outbox.connection, self.outbox.inbox

    def get_buffer(self, sizehint: int) -> memoryview:
        """Lend the listener's buffer: it is read again before the loop does anything else.

        As a view: asyncio's TLS fills a slice of what it gets, and a slice of a bytearray is a copy.
        """
        intake = self.inbox.intake
        if intake is None or type(intake) is UnreadBody:
            return self._core.buffer_view
        return self._core.body_view if type(intake) is not BodyStream else self._core.body_view[: intake.room_bytes]

    def buffer_updated(self, nbytes: int) -> None:
        """Take what arrived."""
        inbox, core = self.inbox, self._core
        if self._lingering:
            if inbox.discard(nbytes):
                self._transport.close()
            return
        intake = inbox.intake
        view = core.buffer_view if intake is None or type(intake) is UnreadBody else core.body_view
        inbox.reader.receive(bytes(view[:nbytes]))
        if not self.again:
            self.advance()

    def eof_received(self) -> bool:
        """Answer what was asked, then end; a client may close its side first, but not while it waits for long."""
        self._eof = True
        outbox = self.outbox
        if self._lingering or not outbox.waiting or not self.inbox.has_all_it_reads() or self._taken_for_gone():
            self._transport.close()
            return False
        return not self.peer.secure

    def _taken_for_gone(self) -> bool:
        """Tell whether a client that closed its side is believed to have left: it waits for a long poll, say."""
        return not self._core.options.half_close or self.outbox.polls()

    def pause_writing(self) -> None:
        """Stop reading from a client that does not take its answers, and give it `write_timeout`."""
        if not self.outbox.pause():
            self._transport.abort()
            return
        self._write_due = self._core.monotonic() + self._core.options.write_timeout_s
        self._watch()

    def resume_writing(self) -> None:
        """Go on: the client has read what it was sent."""
        self._write_due = NEVER
        self.outbox.resume()
        self.schedule()

    # --- the turn --------------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Ask for the next turn: one connection never holds the loop for long."""
        if not self.again:
            self.again = True
            self._core.loop.call_soon(self._next_turn, context=self._core.context)

    def _next_turn(self) -> None:
        self.again = False
        if not self._lingering:
            self.advance()

    def advance(self) -> None:
        """Take a turn: handle what is there, write, then decide what to wait for. Every event ends up here."""
        now = self._core.monotonic()
        try:
            # With the next turn asked for already, answers that come meanwhile do not make this one longer.
            if not self.again:
                self.inbox.read_requests(now)
        except PenstockError as fault:
            self.inbox.fault(fault)
        except Exception as error:  # noqa: BLE001 - the connection's boundary: it dies, the listener does not
            self._core.log.error("connection.failed", error=error)
            self._transport.abort()
            return
        self._settle(now)

    def resolve(self, exchange: Exchange, result: object) -> None:
        """Take the late result of a handler. When it is all that is owed it leaves at once, without another turn."""
        outbox, core, request = self.outbox, self._core, exchange.request
        inbox, reader = self.inbox, self.inbox.reader
        body = cast("bytes", result.body if isinstance(result, Response) else result)
        if (
            not isinstance(result, _WHOLE)
            or len(outbox.waiting) > 1
            or reader.pos < len(reader.data)
            or inbox.intake is not None
            or not request.head.plain
            or len(body) > COPY_BYTES_MAX
            or outbox.out
            or outbox.closing
            or core.draining
        ):
            outbox.place_late(exchange, result)
            self.advance()
            return
        try:
            now = core.monotonic()
            if now >= core.heads.until:
                core.heads.tick(now)
            exchange.endpoint.latency.observe(now - request.received_at)
            if isinstance(result, Response):
                exchange.endpoint.count(request.method, result.status)
                data = core.heads.whole(result, request.corr, close=False) + body
            elif isinstance(result, AcceptedJson):
                exchange.endpoint.count(request.method, 202)
                data = core.heads.accepted(request.corr, result)
            else:
                exchange.endpoint.ok.value += 1
                data = core.heads.json(request.corr, result)
            outbox.waiting.clear()
            core.release(request, len(body))
            self._transport.write(data)
            self._settle(now)
        except Exception as error:  # noqa: BLE001 - the connection's boundary: whoever kept the promise goes on
            core.log.error("connection.failed", error=error)
            self._transport.abort()

    def _settle(self, now: float) -> None:
        outbox, inbox = self.outbox, self.inbox
        out, waiting, reader = outbox.out, outbox.waiting, inbox.reader
        if len(out) == 1:
            self._transport.write(out.pop())
        elif out:
            outbox.flush()
        if outbox.closing or outbox.write_paused or inbox.intake is not None or reader.pos < len(reader.data):
            self._settle_busy(now)
        elif not waiting:
            self._rest(now)
        elif len(waiting) == 1 and self._reading and not (self.again or inbox.last):
            self._await_answer(waiting[0].due)
        else:
            self._settle_busy(now)

    def _await_answer(self, due: float) -> None:
        """Wait for the one answer that is owed, while nothing else is going on: the common way to wait."""
        self.idle_since = self.inbox.due = NEVER
        self.due = due
        if due < NEVER and (not self.slot or due < (self.slot - 1) * TICK_S):
            self._core.wheel.watch(self)

    def _rest(self, now: float) -> None:
        """Wait for the next request: nothing is owed either way."""
        inbox = self.inbox
        self.idle_since = now
        inbox.waits_for = "idle"
        inbox.due = self.due = now + self._core.idle_timeout_s
        if self._eof:
            self._transport.close()
            return
        if not self._reading:
            self.read_on(on=True)
        if not self.slot:
            self._core.wheel.watch(self)

    def _settle_busy(self, now: float) -> None:
        self.idle_since = NEVER
        if self._lingering:
            return
        if self.outbox.closing and not self.outbox.waiting:
            self._linger(now)
            return
        self.inbox.await_bytes(now)
        self._watch()

    def read_on(self, *, on: bool) -> None:
        """Read from the client, or leave what it sends in its own window."""
        if on is self._reading or self._transport.is_closing():
            return
        self._reading = on
        if on:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # --- deadlines -------------------------------------------------------------------------------------

    def expire(self, now: float) -> None:
        """Act on what is due."""
        if self._lingering:
            self._linger_over(now)
        elif self._write_due <= now:
            self._core.timeouts["write"].value += 1
            self._write_due = self.due = NEVER
            self._transport.abort()
        else:
            self.outbox.expire(now)
            if self.inbox.due <= now:
                self.inbox.expire(now)
            self._settle(now)

    def _watch(self) -> None:
        """Bring the next deadline to the wheel's notice if it comes before the slot we lie in."""
        due = min(self.inbox.due, self._write_due)
        for exchange in self.outbox.waiting:
            due = min(due, exchange.due)
        self.due = due
        if due < NEVER and (not self.slot or due < (self.slot - 1) * TICK_S):
            self._core.wheel.watch(self)

    # --- the end ---------------------------------------------------------------------------------------

    def close_if_idle(self) -> None:
        """End a connection that owes nothing and was asked nothing."""
        if self.idle_since < NEVER and not self._lingering:
            self._transport.close()

    def hear_drain(self) -> None:
        """End if nothing is owed; otherwise wait no longer than the drain allows for a client that does not move."""
        self.close_if_idle()
        if self._write_due < NEVER:
            self._write_due = min(self._write_due, self._core.bodies_due)
        if self.inbox.hasten() or self._write_due < NEVER:
            self._watch()

    def abort(self) -> None:
        """End now. A client that is owed an answer hears that shutdown cut the work, if that takes no waiting."""
        transport, outbox = self._transport, self.outbox
        owing = outbox.waiting or self.inbox.collects_body
        if not owing or self._lingering or outbox.streams() or transport.get_write_buffer_size():
            transport.abort()
            return
        outbox.cancel_owed()
        if self.inbox.collects_body:
            self.inbox.fault(Canceled())
        outbox.flush()
        transport.close()
        self._core.loop.call_later(LINGER_S, transport.abort)

    def _linger(self, now: float) -> None:
        """Say that nothing follows, then read on for a while: close() with unread input destroys the answer."""
        self._lingering = True
        self._core.caps.answered_health(self)
        # An answer before it ended the connection: nobody reads that body any more.
        self.inbox.drop()
        if self._transport.is_closing():
            return
        if self._eof:
            self._transport.close()
            return
        self.read_on(on=True)
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self.due = now + LINGER_S
        self._core.wheel.watch(self)

    def _linger_over(self, now: float) -> None:
        """Close; what the client did not take by now gets one more write deadline, then it is cut."""
        self.due = NEVER
        if self._transport.is_closing():
            self._transport.abort()
            return
        self._transport.close()
        self.due = now + self._core.options.write_timeout_s
