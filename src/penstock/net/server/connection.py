"""The reading side of a connection: bytes to requests to handlers, under deadlines, without a task of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from penstock.kernel.errors import Canceled, PenstockError, Timeout, forget_where
from penstock.net.peer import peer_of
from penstock.net.server import answer
from penstock.net.server.admission import Refusal
from penstock.net.server.admission_hold import AdmissionHold
from penstock.net.server.body import (
    BodySink,
    BodyStream,
    CollectedBody,
    DiscardedBody,
    InflatingBody,
    UnreadBody,
)
from penstock.net.server.core import UNANSWERED_MAX
from penstock.net.server.wheel import NEVER, TICK_S

if TYPE_CHECKING:
    from penstock.net.server.caps import CappedConnection
    from penstock.net.server.core import Core

REQUESTS_A_TURN: Final = 32
# However few they were: handlers and answers cost what they cost.
TURN_S: Final = 0.001
LINGER_S: Final = 1.0
# Measured with clients that send 8 MB before they read: at 1 MiB they lose the answer, at 16 MiB none does.
LINGER_BYTES_MAX: Final = 16 << 20


class Connection(AdmissionHold, asyncio.BufferedProtocol):
    """One client. Everything happens in loop callbacks; a bug in one of them ends this connection only."""

    __slots__ = (
        "_eof", "_linger_bytes", "_lingering", "_read_op", "_reading", "_unsent_bytes", "_usher", "_write_due", "due", "idle_since", "slot",
    )  # fmt: skip

    def __init__(self, core: Core, usher: CappedConnection | None = None) -> None:
        """Belong to a listener; the transport comes with `connection_made`, and so does the place `usher` kept."""
        super().__init__(core)
        self._usher = usher
        self._reading = True
        self._eof = False
        self._lingering = False
        self._linger_bytes = 0
        self._read_op = "idle"
        self._write_due = NEVER
        self._unsent_bytes = 0
        self.idle_since = 0.0
        self.due = NEVER
        self.slot = 0

    # --- transport events ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a place under the caps, or say no and leave."""
        # Not an isinstance check: uvloop's transports are no subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
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
        elif self.peer.secure or caps.crowded:
            self._transport.abort()
        else:
            self._core.heads.tick(now)
            self.refuse(None, self._core.corr_ids.make(), self._core.unmatched, refusal, close=True)
            self._settle(now)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give everything back."""
        self._closing = self._lingering = True
        self.due = NEVER
        self._core.caps.leave(self)
        self._core.wheel.forget(self)
        self._drop_intake()
        self.abandon_all()
        self._give_unsent()
        self._reader.drop_pending()

    def get_buffer(self, sizehint: int) -> bytearray:
        """Lend the listener's buffer: it is read again before the loop does anything else."""
        return self._core.buffer if self._intake is None or type(self._intake) is UnreadBody else self._core.body_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take what arrived."""
        if self._lingering:
            self._discard(nbytes)
            return
        core = self._core
        view = core.buffer_view if self._intake is None or type(self._intake) is UnreadBody else core.body_view
        self._reader.receive(bytes(view[:nbytes]))
        if not self._again:
            self.advance()

    def eof_received(self) -> bool:
        """Answer what was asked, then end; a client may close its side first, but not while it waits for long."""
        self._eof = True
        if self._lingering or not self._waiting or not self._has_all_it_reads() or self._polls():
            self._transport.close()
            return False
        return not self.peer.secure

    def _polls(self) -> bool:
        whole_close = not self._core.options.half_close
        return whole_close or any(each.data is None and each.request.route.long_poll for each in self._waiting)

    def pause_writing(self) -> None:
        """Stop reading from a client that does not take its answers, and give it `write_timeout`.

        What waits in the transport counts against the byte budget; when that is used up, a client that does not
        read is the one to go.
        """
        self._write_paused = True
        budget, waiting_bytes = self._core.budget, self._transport.get_write_buffer_size()
        if budget is not None:
            if not budget.try_take(waiting_bytes):
                self._transport.abort()
                return
            self._unsent_bytes += waiting_bytes
        self._write_due = self._core.monotonic() + self._core.options.write_timeout_s
        self._watch()

    def resume_writing(self) -> None:
        """Go on: the client caught up."""
        self._write_paused = False
        self._write_due = NEVER
        self._give_unsent()
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._schedule()

    def _give_unsent(self) -> None:
        if self._unsent_bytes and self._core.budget is not None:
            self._core.budget.give(self._unsent_bytes)
        self._unsent_bytes = 0

    # --- the turn --------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Handle what is there, then write, then decide what to wait for. Every event ends up here."""
        now = self._core.monotonic()
        try:
            # With the next turn asked for already, answers that come meanwhile do not make this one longer.
            if not self._again:
                self._read_requests(now)
        except PenstockError as fault:
            self.fault(fault)
        except Exception as error:  # noqa: BLE001 - the connection's boundary: it dies, the listener does not
            self._core.log.error("connection.failed", error=error)
            self._transport.abort()
            return
        self._settle(now)

    def _read_requests(self, now: float) -> None:
        left, reader = REQUESTS_A_TURN, self._reader
        # A closing connection still reads the body its last handler is working on.
        while not self._closing or isinstance(self._intake, BodyStream):
            if self._intake is not None:
                if not self._read_body(self._intake, now):
                    return
            elif self._last:
                self._linger_bytes += reader.drop_pending()
                return
            elif self._write_paused or len(self._waiting) >= UNANSWERED_MAX:
                return
            elif left < REQUESTS_A_TURN and (not left or self._core.monotonic() - now > TURN_S):
                self._schedule()
                return
            else:
                head = reader.next_head()
                if head is None:
                    return
                left -= 1
                self._begin(head, now)
                if reader.pos == len(reader.data) and self._intake is None:
                    return

    def _settle(self, now: float) -> None:
        out, reader = self._out, self._reader
        if len(out) == 1:
            self._transport.write(out.pop())
        elif out:
            self.flush()
        if self._closing or self._write_paused or self._intake is not None or reader.pos < len(reader.data):
            self._settle_busy(now)
        elif not self._waiting:
            self._rest(now)
        elif len(self._waiting) == 1 and self._reading and not (self._again or self._last):
            self._await_answer(self._waiting[0].due)
        else:
            self._settle_busy(now)

    def _await_answer(self, due: float) -> None:
        """One answer is owed and nothing else is going on: the common way to wait."""
        self.idle_since = self._read_due = NEVER
        self.due = due
        if due < NEVER and (not self.slot or due < (self.slot - 1) * TICK_S):
            self._core.wheel.watch(self)

    def _rest(self, now: float) -> None:
        """Nothing is owed either way: wait for the next request."""
        self.idle_since = now
        self._read_op = "idle"
        self._read_due = self.due = now + self._core.idle_timeout_s
        if self._eof:
            self._transport.close()
            return
        if not self._reading:
            self._read_on(on=True)
        if not self.slot:
            self._core.wheel.watch(self)

    def _settle_busy(self, now: float) -> None:
        self.idle_since = NEVER
        if self._lingering:
            return
        if self._closing and not self._waiting:
            self._linger(now)
            return
        intake = self._intake
        if intake is not None and intake.awaits_continue and not self._waiting_before(intake):
            self._tell_continue(intake, now)
        blocked = self._blocked()
        self._read_on(on=not blocked)
        if isinstance(intake, UnreadBody):
            self._read_due = self._next_look(now, blocked=blocked)
        elif blocked or (intake.awaits_continue if intake is not None else not self._reader.pending_bytes):
            self._read_due = NEVER
        elif self._read_op == "idle" or self._read_due == NEVER:
            self._read_op = "read"
            due = now + self._core.options.read_timeout_s
            self._read_due = due if intake is None else min(due, intake.due)
        self._watch()

    def _tell_continue(self, intake: BodySink, now: float) -> None:
        """Ask for the body; its time starts now, because the client was kept waiting until now."""
        intake.awaits_continue = False
        self._transport.write(answer.CONTINUE)
        self._read_due = NEVER
        if isinstance(intake, CollectedBody):
            intake.begin(now)

    def _waiting_before(self, intake: BodySink) -> bool:
        """Tell whether an answer has to leave before this request's 100 Continue."""
        return len(self._waiting) > (1 if isinstance(intake, BodyStream) else 0)

    def _blocked(self) -> bool:
        """Tell whether reading on would only pile up bytes."""
        if isinstance(self._intake, UnreadBody):
            return self._unread_enough()
        if self._intake is not None:
            return self._again or self._intake.blocked
        if self._again or self._write_paused or self._closing or len(self._waiting) >= UNANSWERED_MAX:
            return True
        return self._linger_bytes > LINGER_BYTES_MAX

    def _read_on(self, *, on: bool) -> None:
        if on is self._reading or self._transport.is_closing():
            return
        self._reading = on
        if on:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # --- faults and deadlines --------------------------------------------------------------------------

    def fault(self, fault: PenstockError) -> None:
        """After a fault in the framing nothing more is read; its answer takes its turn behind earlier ones."""
        core = self._core
        forget_where(fault)
        core.heads.tick(core.monotonic())
        intake, self._intake = self._intake, None
        self._reader.drop_pending()
        if isinstance(intake, BodyStream):
            self._closing = True
            intake.end(fault)
        elif isinstance(intake, DiscardedBody):
            self._closing = True
        elif isinstance(intake, CollectedBody | InflatingBody):
            request = intake.request
            core.release(request)
            self.refuse(request.head, request.corr, intake.endpoint, Refusal(fault), close=True)
        elif not self._closing:
            self.refuse(None, core.corr_ids.make(), core.unmatched, Refusal(fault), close=True)

    def expire(self, now: float) -> None:
        """Act on what is due."""
        if self._lingering:
            self._linger_over(now)
        elif self._write_due <= now:
            self._core.timeouts["write"].value += 1
            self._write_due = self.due = NEVER
            self._transport.abort()
        else:
            self._expire_answers(now)
            self._expire_reading(now)
            self._settle(now)

    def _expire_answers(self, now: float) -> None:
        for exchange in [exchange for exchange in self._waiting if exchange.due <= now]:
            late = exchange.give_up()
            self._core.timeouts[late.op].value += 1
            self._place(exchange, late)

    def _expire_reading(self, now: float) -> None:
        if self._read_due > now:
            return
        self._read_due = NEVER
        if isinstance(self._intake, UnreadBody):
            self._look_for_client()
            return
        self._core.timeouts[self._read_op].value += 1
        if self._read_op == "idle":
            self._transport.close()
        else:
            self.fault(Timeout("read", budget_s=self._read_budget_s(now), status=408))

    def _read_budget_s(self, now: float) -> float:
        """Return the time there was: for one read, or for the whole of a body."""
        intake = self._intake
        if isinstance(intake, CollectedBody) and intake.due <= now:
            return intake.due - intake.began
        return self._core.options.read_timeout_s

    def _watch(self) -> None:
        """Bring the next deadline to the wheel's notice if it comes before the slot we lie in."""
        due = min(self._read_due, self._write_due)
        for exchange in self._waiting:
            due = min(due, exchange.due)
        self.due = due
        if due < NEVER and (not self.slot or due < (self.slot - 1) * TICK_S):
            self._core.wheel.watch(self)

    # --- the end ---------------------------------------------------------------------------------------

    def close_if_idle(self) -> None:
        """End a connection that owes nothing and was asked nothing."""
        if self.idle_since < NEVER and not self._lingering:
            self._transport.close()

    def abort(self) -> None:
        """End now. Who is owed an answer hears that shutdown cut the work, if that takes no waiting."""
        transport = self._transport
        owing = self._waiting or isinstance(self._intake, CollectedBody | InflatingBody)
        if not owing or self._lingering or self._streams() or transport.get_write_buffer_size():
            transport.abort()
            return
        self._cancel_owed()
        self.flush()
        transport.close()
        self._core.loop.call_later(LINGER_S, transport.abort)

    def _streams(self) -> bool:
        """Tell whether an answer is being streamed, or will be: there is no other answer in its place then."""
        return any(exchange.stream is not None or exchange.sending is not None for exchange in self._waiting)

    def _cancel_owed(self) -> None:
        for exchange in [exchange for exchange in self._waiting if exchange.data is None]:
            exchange.abandon()
            self._place(exchange, Canceled())
        if isinstance(self._intake, CollectedBody | InflatingBody):
            self.fault(Canceled())

    def _linger(self, now: float) -> None:
        """Say that nothing follows, then read on for a while: close() with unread input destroys the answer."""
        self._lingering = True
        # An answer before it ended the connection: nobody reads that body any more.
        self._drop_intake()
        self._linger_bytes += self._reader.drop_pending()
        if self._transport.is_closing():
            return
        if self._eof:
            self._transport.close()
            return
        self._read_on(on=True)
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self.due = now + LINGER_S
        self._core.wheel.watch(self)

    def _discard(self, count: int) -> None:
        self._linger_bytes += count
        if self._linger_bytes > LINGER_BYTES_MAX:
            self._transport.close()

    def _linger_over(self, now: float) -> None:
        """Close; what the client did not take by now gets one more write deadline, then it is cut."""
        self.due = NEVER
        if self._transport.is_closing():
            self._transport.abort()
            return
        self._transport.close()
        self.due = now + self._core.options.write_timeout_s
