"""The receiving half of a connection: bytes become requests, each is admitted or refused, and its body goes somewhere.

The inbox reads one request at a time, in order. When the head of one is complete it is checked, its route is found,
and the listener's admission decides. There are three outcomes:

- *Admitted.* A body that is already here is handed over with the request. Otherwise an `intake` is opened for it: the
  body is collected, or streamed to the handler, and nothing behind it is looked at before it is whole.
- *Refused.* The answer is written at once. A small body is discarded and the connection kept; a large one ends it.
- *Held.* The request waits at a gate. Its place in the order of answers is taken, its body stays with the client, and
  nothing behind it is looked at, so the order of a connection needs no further care. Reading goes on just far enough
  to notice that the client has left; then the client's own window fills. There is at most one such request, the last.

`intake` is the state of this machine: None between requests, else what happens to the body being read (see `body`).
"""

from __future__ import annotations

import socket
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.kernel.errors import Canceled, PenstockError, Timeout, forget_where
from penstock.net.message import Request
from penstock.net.server import answer
from penstock.net.server.admission import HELD, Refusal
from penstock.net.server.body import (
    DISCARD_BYTES_MAX,
    HELD_BYTES_MAX,
    BodySink,
    BodyStream,
    CollectedBody,
    DiscardedBody,
    InflatingBody,
    UnreadBody,
    gone,
    too_large,
    with_setting,
)
from penstock.net.server.core import UNANSWERED_MAX, RouteMatch
from penstock.net.server.exchange import Exchange
from penstock.net.server.wheel import NEVER
from penstock.wire.http1.head import CHUNKED, HttpHead
from penstock.wire.http1.request import RequestReader
from penstock.wire.inflate import Inflater

if TYPE_CHECKING:
    from penstock.net.server.connection import Connection
    from penstock.net.server.core import Core
    from penstock.net.server.endpoint import Endpoint
    from penstock.net.server.outbox import Outbox

HEALTH_PATHS: Final = frozenset({"/healthz", "/readyz"})
REQUESTS_A_TURN: Final = 32
# A turn ends after this time even if it handled fewer requests: some handlers and answers are expensive.
TURN_S: Final = 0.001
# Measured with clients that send 8 MB before they read: at 1 MiB they lose the answer, at 16 MiB none does.
LINGER_BYTES_MAX: Final = 16 << 20
UNREAD_BYTES_MAX: Final = 16 * 1024
"""How much is taken from a client whose request is held; one more buffer may have been on its way."""
LOOK_S: Final = 0.25
_SLOW: Final = "Send a request without long pauses; the setting bounds each read of it."
# Linux tells the state of a connection; where nobody does, the deadline ends the wait.
_TCP_INFO: Final[int | None] = getattr(socket, "TCP_INFO", None)
_TCP_CLOSE: Final = 7
_INTERNET: Final = (socket.AF_INET, socket.AF_INET6)


class Inbox:
    """What one client has sent and nobody has handled yet."""

    __slots__ = (
        "_core",
        "_health_only",
        "_outbox",
        "connection",
        "discarded_bytes",
        "due",
        "intake",
        "last",
        "reader",
        "waits_for",
    )

    # Taken away when the connection is lost; nothing here runs after that.
    connection: Connection

    def __init__(self, core: Core, connection: Connection, outbox: Outbox) -> None:
        """Start before the first request."""
        self._core = core
        self._outbox = outbox
        self.connection = connection
        self.reader = RequestReader(core.known_heads)
        # Where the body being read goes; None between bodies.
        self.intake: BodySink | None = None
        # True after a head that ends the connection: what follows it is no request, whatever it looks like.
        self.last = False
        # When the next bytes have to be here, and which deadline that is: `idle` between requests, `read` within one.
        self.due = NEVER
        self.waits_for = "idle"
        # The answer to everything but health pages, on a connection beyond the cap.
        self._health_only: Refusal | None = None
        # What came behind the last request of the connection and was thrown away.
        self.discarded_bytes = 0

    # --- the turn --------------------------------------------------------------------------------------

    def read_requests(self, now: float) -> None:
        """Handle what was received, within the bounds of a turn."""
        left, reader, outbox = REQUESTS_A_TURN, self.reader, self._outbox
        # A closing connection still reads the body its last handler is working on.
        while not outbox.closing or isinstance(self.intake, BodyStream):
            if self.intake is not None:
                if not self._read_body(self.intake, now):
                    return
            elif self.last:
                self.discarded_bytes += reader.drop_pending()
                return
            elif outbox.write_paused or len(outbox.waiting) >= UNANSWERED_MAX:
                return
            elif left < REQUESTS_A_TURN and (not left or self._core.monotonic() - now > TURN_S):
                self.connection.schedule()
                return
            else:
                head = reader.next_head()
                if head is None:
                    return
                left -= 1
                if self._health_only is None:
                    self._begin(head, now)
                else:
                    self._begin_beyond_cap(head, now, self._health_only)
                if reader.pos == len(reader.data) and self.intake is None:
                    return

    def await_bytes(self, now: float) -> None:
        """Decide whether to read on, and until when the next bytes have to come."""
        intake = self.intake
        if intake is not None and intake.awaits_continue and not self._waiting_before(intake):
            self._tell_continue(intake, now)
        blocked = self._blocked()
        self.connection.read_on(on=not blocked)
        if isinstance(intake, UnreadBody):
            # A connection that is read notices by itself that the client has left; one that is not has to look.
            self.due = now + LOOK_S if blocked else NEVER
        elif blocked or (intake.awaits_continue if intake is not None else not self.reader.pending_bytes):
            self.due = NEVER
        elif self.waits_for == "idle" or self.due == NEVER:
            self.waits_for = "read"
            due = now + self._core.options.read_timeout_s
            self.due = due if intake is None else min(due, intake.due, self._core.bodies_due)

    def _tell_continue(self, intake: BodySink, now: float) -> None:
        """Ask for the body; its time starts now, because the client was kept waiting until now."""
        intake.awaits_continue = False
        self._outbox.transport.write(answer.CONTINUE)
        self.due = NEVER
        if isinstance(intake, CollectedBody):
            intake.begin(now)

    def _waiting_before(self, intake: BodySink) -> bool:
        """Tell whether an answer has to leave before this request's 100 Continue."""
        return len(self._outbox.waiting) > (1 if isinstance(intake, BodyStream) else 0)

    def _blocked(self) -> bool:
        """Tell whether reading on would only pile up bytes."""
        intake, outbox, again = self.intake, self._outbox, self.connection.again
        if isinstance(intake, UnreadBody):
            return again or self.reader.pending_bytes >= UNREAD_BYTES_MAX
        if intake is not None:
            return again or intake.blocked
        if again or outbox.write_paused or outbox.closing or len(outbox.waiting) >= UNANSWERED_MAX:
            return True
        return self.discarded_bytes > LINGER_BYTES_MAX

    # --- head ------------------------------------------------------------------------------------------

    def _begin(self, head: HttpHead, now: float) -> None:
        """Take a request from its complete head to its handler, its refusal, or its place at the gate."""
        core = self._core
        self.due = NEVER
        if now >= core.heads.until:
            core.heads.tick(now)
        if not head.keep_alive:
            self.last = True
        given = head.corr_id
        corr = core.corr_ids.make() if given is None else core.corr_ids.pick(given)
        found = head.memo
        endpoint = core.unmatched
        request: Request | None = None
        try:
            if not isinstance(found, RouteMatch):
                found = self._find(head)
            endpoint = found.endpoint
            request = Request(head, found, self.connection.peer, corr, now)
            refusal = None if core.admission is None or found.always_open else core.admission(request)
            if refusal is None:
                length, reader = head.length, self.reader
                if not length:
                    self._outbox.serve(request, endpoint)
                elif (
                    0 < length <= endpoint.whole_bytes_max
                    and length <= len(reader.data) - reader.pos
                    and (not head.encoded or endpoint.raw_body)
                ):
                    # It is here already, in the one receive buffer; it takes from the budget if its answer has to wait.
                    request.body = reader.take_body()
                    self._outbox.serve(request, endpoint)
                else:
                    self._open_body(request, endpoint)
                return
            if refusal is HELD:
                self._hold(request, endpoint)
                return
            # A 401 takes the long way, where it is counted against its address.
            common = given is None and head.plain and refusal.status != 401 and core.problem_words is None
            if common and not core.draining and not self._outbox.waiting:
                length, reader = head.length, self.reader
                if 0 <= length <= len(reader.data) - reader.pos:
                    # What overload looks like: the answer is ready, the body is here and thrown away.
                    if length:
                        reader.take_body()
                    found.count_refusal(refusal)
                    self._outbox.out.append(refusal.common(corr, core.heads.date_line))
                    return
        except PenstockError as error:
            refusal = Refusal(forget_where(error))
            _end_ticket(request)
        self._refuse(head, corr, endpoint, refusal)

    def _find(self, head: HttpHead) -> RouteMatch:
        """Check Host and Origin, and find the route; an equal head that follows has passed already."""
        core = self._core
        core.hosts.check(head)
        found = core.matches.get(head.start) or core.find(head)
        head.memo = found
        return found

    def _refuse(self, head: HttpHead, corr: bytes, endpoint: Endpoint, refusal: Refusal) -> None:
        """Answer at the end of the headers; a small body is discarded and the connection kept."""
        here = not head.length or self.reader.body_done
        keep = (
            head.keep_alive and not self._core.draining and not self._outbox.closing and (here or self._discards(head))
        )
        self._outbox.refuse(head, corr, endpoint, refusal, close=not keep)
        if keep and not self.reader.body_done:
            self.intake = DiscardedBody()

    def _discards(self, head: HttpHead) -> bool:
        """Tell whether the rest of this request can be thrown away cheaply; a chunked one only if it is here."""
        if head.length > DISCARD_BYTES_MAX:
            return False
        try:
            self.reader.read_body()
        except PenstockError:
            return False
        return head.length != CHUNKED or self.reader.body_done

    # --- beyond the cap --------------------------------------------------------------------------------

    def serve_health_only(self, refusal: Refusal, due: float) -> None:
        """Take one request, until `due`: a health page is served, anything else gets `refusal`; then it ends."""
        self._health_only = refusal
        self.waits_for, self.due = "read", due

    def _begin_beyond_cap(self, head: HttpHead, now: float, refusal: Refusal) -> None:
        """Answer the one request of a connection beyond the cap; the answer ends it."""
        core, self.last = self._core, True
        self._outbox.closing = True
        core.heads.tick(now)
        corr = core.corr_ids.pick(head.corr_id)
        try:
            found = self._find(head)
            if found.route.path in HEALTH_PATHS and not head.length:
                self._outbox.serve(Request(head, found, self.connection.peer, corr, now), found.endpoint)
                return
        except PenstockError as error:
            refusal = Refusal(forget_where(error))
        self._refuse(head, corr, core.unmatched, refusal)

    # --- held at the gate ------------------------------------------------------------------------------

    def _hold(self, request: Request, endpoint: Endpoint) -> None:
        """Wait for a slot: before the body was read, or after, when the slot was given back while the body arrived."""
        exchange = Exchange(self.connection, request, endpoint)
        self._outbox.queue(exchange)
        self.intake = UnreadBody(exchange)
        # A drain waits for it: it was taken in.
        self._core.inflight += 1
        request.ticket.waiter = partial(self._decided, exchange)

    def _decided(self, exchange: Exchange, refusal: Refusal | None) -> None:
        """Go on with a request that was held, or refuse it; the gate calls this from a turn of its own."""
        if exchange.connection is None or exchange.data is not None:
            return
        self._outbox.waiting.remove(exchange)
        self.intake = None
        self.due = NEVER
        self._core.heads.tick(self._core.monotonic())
        request, endpoint = exchange.request, exchange.endpoint
        try:
            if refusal is None:
                self._go_on(request, endpoint)
        except PenstockError as error:
            refusal = Refusal(forget_where(error))
        if refusal is not None:
            self._core.let_go(request)
            request.ticket.ended(0, answered=False)
            self._refuse(request.head, request.corr, endpoint, refusal)
        self._core.arrived()
        self.connection.advance()

    def _go_on(self, request: Request, endpoint: Endpoint) -> None:
        """Read the body, or call the handler if there is none or it is here already."""
        reader, head = self.reader, request.head
        if reader.body_done:
            self._outbox.serve(request, endpoint)
            return
        if 0 < head.length <= min(endpoint.whole_bytes_max, reader.pending_bytes) and not head.encoded:
            request.body = reader.take_body()
            self._outbox.serve(request, endpoint)
            return
        self._open_body(request, endpoint)
        if isinstance(self.intake, CollectedBody):
            # The client was kept waiting; the time for its body starts now.
            self.intake.begin(self._core.monotonic())

    def _look_for_client(self) -> None:
        """End a connection that was reset while it was not read: the system knows, but tells only who asks."""
        transport = self._outbox.transport
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in _INTERNET and _TCP_INFO is not None:
            state = sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0]
            if state == _TCP_CLOSE:
                transport.abort()

    def has_all_it_reads(self) -> bool:
        """Tell whether a client that closed its side has sent everything its requests need."""
        intake, reader = self.intake, self.reader
        if not isinstance(intake, UnreadBody):
            return intake is None
        length = intake.exchange.request.head.length
        return reader.body_done or (length != CHUNKED and length <= reader.pending_bytes)

    # --- body ------------------------------------------------------------------------------------------

    @property
    def collects_body(self) -> bool:
        """Tell whether a request was admitted whose handler waits for its whole body."""
        return isinstance(self.intake, CollectedBody | InflatingBody)

    def _open_body(self, request: Request, endpoint: Endpoint) -> None:
        """Decide what happens to the body, before a byte of it is read."""
        length = request.head.length
        if length > endpoint.body_bytes_max:
            raise too_large(endpoint.body_bytes_max, request.route, self._core.settings_table, length)
        self.reader.bound_body(endpoint.body_bytes_max)
        encoding = b"identity" if endpoint.raw_body else request.headers.get(b"content-encoding", b"identity")
        if encoding != b"identity":
            # Unknown encodings are refused here, at the end of the headers.
            Inflater(encoding, ratio_cap=1, bytes_max=1)
        if endpoint.stream_body:
            self._open_stream(request, endpoint, encoding)
        else:
            self._core.check_room(length)
            request.ticket.step_aside()
            self.intake = CollectedBody(request, endpoint, self._core)
            # Admitted: a drain waits for it from here on. `serve` counts again, until the answer is there.
            self._core.inflight += 1

    def _open_stream(self, request: Request, endpoint: Endpoint, encoding: bytes) -> None:
        ratio_cap = self._core.options.decompress_ratio_cap
        self._core.hold(request, HELD_BYTES_MAX)
        stream = BodyStream(request, endpoint.body_bytes_max, self.connection.schedule, self._core.settings_table)
        if encoding != b"identity":
            stream.inflate(Inflater(encoding, ratio_cap=ratio_cap, bytes_max=endpoint.body_bytes_max))
        request.open_stream(stream)
        self.intake = stream
        self._outbox.serve(request, endpoint)

    def _read_body(self, intake: BodySink, now: float) -> bool:
        """Read what is there; return whether the body is whole and the next request may be looked at."""
        if intake.blocked:
            return False
        reader = self.reader
        had = reader.pending_bytes
        if had:
            piece = reader.read_body()
            if not isinstance(intake, DiscardedBody):
                self.due = now + self._core.options.read_timeout_s
            if piece:
                intake.feed(piece)
            self.due = min(self.due, intake.due, self._core.bodies_due)
        if not reader.body_done:
            if reader.pending_bytes and reader.pending_bytes != had:
                self.connection.schedule()
            return False
        self.intake = None
        self._body_ended(intake)
        return self.intake is None

    def _body_ended(self, intake: BodySink) -> None:
        if isinstance(intake, BodyStream):
            intake.end()
        elif isinstance(intake, CollectedBody):
            encoding = intake.request.headers.get(b"content-encoding", b"identity")
            if encoding == b"identity" or intake.endpoint.raw_body:
                self._serve_whole(intake)
                return
            self.intake = InflatingBody(intake, encoding, self._core.options.decompress_ratio_cap)
            self._inflate(self.intake)

    def _inflate(self, inflating: InflatingBody) -> None:
        """Do a few steps; a larger body goes on in the next turn."""
        if not inflating.turn():
            self._core.loop.call_soon(self._inflate_on, inflating, context=self._core.context)
            return
        self.intake = None
        self._serve_whole(inflating)

    def _inflate_on(self, inflating: InflatingBody) -> None:
        if self.intake is not inflating:
            return
        try:
            self._inflate(inflating)
        except PenstockError as fault:
            self.fault(fault)
        self.connection.advance()

    def _serve_whole(self, intake: CollectedBody | InflatingBody) -> None:
        """Call the handler of a request whose body had to be waited for."""
        try:
            request = intake.request
            request.body = intake.whole()
            if request.ticket.step_back():
                self._outbox.serve(request, intake.endpoint)
            else:
                self._hold(request, intake.endpoint)
        finally:
            self._core.arrived()

    def leaves_body(self, request: Request) -> bool:
        """Discard what an answered request has left unread of its body; tell whether that is too much to read on."""
        intake = self.intake
        if isinstance(intake, BodyStream) and intake.request is request:
            intake.end(Canceled("The request was answered."))
            self.intake = DiscardedBody()
            left = self.reader.body_left
        elif isinstance(intake, UnreadBody) and intake.exchange.request is request:
            # It was held, and its deadline passed before the gate decided.
            done = self.reader.body_done
            self.intake = None if done else DiscardedBody()
            self.due = NEVER
            # What was received behind it waited too.
            self.connection.schedule()
            left = 0 if done else self.reader.body_left
        else:
            return False
        return left is None or left > DISCARD_BYTES_MAX

    # --- faults, deadlines and the end -----------------------------------------------------------------

    def fault(self, fault: PenstockError) -> None:
        """End reading because the framing is broken or too slow; the answer takes its turn behind earlier ones."""
        core, outbox = self._core, self._outbox
        core.heads.tick(core.monotonic())
        intake, self.intake = self.intake, None
        if isinstance(intake, BodyStream | CollectedBody | InflatingBody):
            fault = with_setting(fault, intake.request.route, core.settings_table)
        forget_where(fault)
        self.reader.drop_pending()
        if isinstance(intake, BodyStream):
            outbox.closing = True
            intake.end(fault)
        elif isinstance(intake, DiscardedBody):
            outbox.closing = True
        elif isinstance(intake, CollectedBody | InflatingBody):
            request = intake.request
            core.release(request)
            outbox.refuse(request.head, request.corr, intake.endpoint, Refusal(fault), close=True)
        elif not outbox.closing:
            outbox.refuse(None, core.corr_ids.make(), core.unmatched, Refusal(fault), close=True)

    def expire(self, now: float) -> None:
        """Act on bytes that did not come in time: close an idle connection, answer 408 within a request."""
        self.due = NEVER
        if isinstance(self.intake, UnreadBody):
            self._look_for_client()
            return
        if self._health_only is not None:
            self._core.heads.tick(now)
            self._outbox.refuse(None, self._core.corr_ids.make(), self._core.unmatched, self._health_only, close=True)
            return
        self._core.timeouts[self.waits_for].value += 1
        if self.waits_for == "idle":
            self._outbox.transport.close()
        elif now >= self._core.bodies_due:
            # A copy: the refusal itself is shared by all who are refused.
            self.fault(copy(self._core.draining_refusal.error))
        else:
            setting = f"{self._core.settings_table}.read_timeout"
            self.fault(Timeout("read", budget_s=self._budget_s(now), status=408, setting=setting, hint=_SLOW))

    def hasten(self) -> bool:
        """Wait for the rest of a body no longer than the drain allows; returns whether one is waited for."""
        if self.due == NEVER or self.intake is None or isinstance(self.intake, UnreadBody):
            return False
        self.due = min(self.due, self._core.bodies_due)
        return True

    def _budget_s(self, now: float) -> float:
        """Return the time there was: for one read, or for the whole of a body."""
        intake = self.intake
        if isinstance(intake, CollectedBody) and intake.due <= now:
            return intake.due - intake.began
        return self._core.options.read_timeout_s

    def discard(self, count: int) -> bool:
        """Count bytes that came after the last request; tell whether it is enough to hang up."""
        self.discarded_bytes += count
        return self.discarded_bytes > LINGER_BYTES_MAX

    def drop(self) -> None:
        """Throw everything away: what was received, the body being read, and the request that waits for it alone."""
        intake, self.intake = self.intake, None
        if isinstance(intake, BodyStream):
            intake.end(gone())
        elif isinstance(intake, CollectedBody | InflatingBody):
            self._core.release(intake.request)
        self.discarded_bytes += self.reader.drop_pending()


def _end_ticket(request: Request | None) -> None:
    """Give back what a gate lent to a request that goes no further; one whose head was refused has none yet."""
    if request is not None:
        request.ticket.ended(0, answered=False)
