"""From a complete head to the handler: checks, admission, and what happens to the body."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.kernel.errors import Canceled, OverLimit, PenstockError, forget_where
from penstock.net.message import Request, WrittenJson
from penstock.net.server.admission import HELD, Refusal
from penstock.net.server.answers import COPY_BYTES_MAX, Answers
from penstock.net.server.body import (
    DISCARD_BYTES_MAX,
    HELD_BYTES_MAX,
    BodySink,
    BodyStream,
    CollectedBody,
    DiscardedBody,
    InflatingBody,
)
from penstock.net.server.core import RouteMatch
from penstock.net.server.wheel import NEVER
from penstock.wire.http1.head import CHUNKED, HttpHead
from penstock.wire.http1.request import RequestReader
from penstock.wire.inflate import Inflater

if TYPE_CHECKING:
    from penstock.net.server.core import Core
    from penstock.net.server.endpoint import Endpoint
    from penstock.net.server.exchange import Exchange


class Requests(Answers):
    """The requests of a connection, one after the other."""

    __slots__ = ("_again", "_intake", "_last", "_read_due", "_reader")

    def __init__(self, core: Core) -> None:
        """Start before the first request."""
        super().__init__(core)
        self._reader = RequestReader(core.known_heads)
        # Where the body being read goes; None between bodies.
        self._intake: BodySink | None = None
        # True while the next turn is already asked for.
        self._again = False
        # True after a head that ends the connection: what follows it is no request, whatever it looks like.
        self._last = False
        self._read_due = NEVER

    def _schedule(self) -> None:
        """Go on in the next turn: one connection never holds the loop for long."""
        if not self._again:
            self._again = True
            self._core.loop.call_soon(self._next_turn, context=self._core.context)

    def _next_turn(self) -> None:
        self._again = False
        self.advance()

    # --- head ------------------------------------------------------------------------------------------

    def _begin(self, head: HttpHead, now: float) -> None:
        core = self._core
        self._read_due = NEVER
        if now >= core.heads.until:
            core.heads.tick(now)
        if not head.keep_alive:
            self._last = True
        given = head.corr_id
        corr = core.corr_ids.make() if given is None else core.corr_ids.pick(given)
        found = head.note
        endpoint = core.unmatched
        request: Request | None = None
        try:
            if not isinstance(found, RouteMatch):
                found = self._find(head)
            endpoint = found.endpoint
            request = Request(head, found, self.peer, corr, now)
            refusal = None if core.admission is None or found.always_open else core.admission(request)
            if refusal is None:
                length, reader = head.length, self._reader
                if not length:
                    self.serve(request, endpoint)
                elif (
                    0 < length <= endpoint.whole_bytes_max
                    and length <= len(reader.data) - reader.pos
                    and not head.encoded
                ):
                    # It is here already, in the one receive buffer; it takes from the budget if its answer has to wait.
                    request.body = reader.take_body()
                    self.serve(request, endpoint)
                else:
                    self._open_body(request, endpoint)
                return
            if refusal is HELD:
                self._hold(request, endpoint)
                return
            if given is None and head.plain and not core.draining and not self._waiting:
                length, reader = head.length, self._reader
                if 0 <= length <= len(reader.data) - reader.pos:
                    # What overload looks like: the answer is ready, the body is here and thrown away.
                    if length:
                        reader.take_body()
                    found.count_refusal(refusal)
                    self._out.append(refusal.common(corr, core.heads.date_line))
                    return
        except PenstockError as error:
            refusal = Refusal(forget_where(error))
            _end_ticket(request)
        self._refuse_request(head, corr, endpoint, refusal)

    def _find(self, head: HttpHead) -> RouteMatch:
        """Check Host and Origin, and find the route; an equal head that follows has passed already."""
        core = self._core
        core.hosts.check(head)
        found = core.found.get(head.start) or core.find(head)
        head.note = found
        return found

    def _refuse_request(self, head: HttpHead, corr: bytes, endpoint: Endpoint, refusal: Refusal) -> None:
        """Answer at the end of the headers; a small body is discarded and the connection kept."""
        here = not head.length or self._reader.body_done
        keep = head.keep_alive and not self._core.draining and (here or self._discards(head))
        self.refuse(head, corr, endpoint, refusal, close=not keep)
        if keep and not self._reader.body_done:
            self._intake = DiscardedBody()

    def _discards(self, head: HttpHead) -> bool:
        """Tell whether the rest of this request can be thrown away cheaply; a chunked one only if it is here."""
        if head.length > DISCARD_BYTES_MAX:
            return False
        try:
            self._reader.read_body()
        except PenstockError:
            return False
        return head.length != CHUNKED or self._reader.body_done

    # --- body ------------------------------------------------------------------------------------------

    def _open_body(self, request: Request, endpoint: Endpoint) -> None:
        """Decide what happens to the body, before a byte of it is read."""
        length = request.head.length
        if length > endpoint.body_bytes_max:
            raise OverLimit("The body is too large.", limit="body")
        self._reader.bound_body(endpoint.body_bytes_max)
        encoding = request.headers.get(b"content-encoding", b"identity")
        if encoding != b"identity":
            # Unknown encodings are refused here, at the end of the headers.
            Inflater(encoding, ratio_cap=1, bytes_max=1)
        if endpoint.stream_body:
            self._open_stream(request, endpoint, encoding)
        else:
            self._core.check_room(length)
            if request.ticket is not None:
                request.ticket.step_aside()
            self._intake = CollectedBody(request, endpoint, self._core)
            # Admitted: a drain waits for it from here on. `serve` counts again, until the answer is there.
            self._core.inflight += 1

    def _open_stream(self, request: Request, endpoint: Endpoint, encoding: bytes) -> None:
        ratio_cap = self._core.options.decompress_ratio_cap
        self._core.hold(request, HELD_BYTES_MAX)
        stream = BodyStream(request, endpoint.body_bytes_max, self._schedule)
        if encoding != b"identity":
            stream.inflate(Inflater(encoding, ratio_cap=ratio_cap, bytes_max=endpoint.body_bytes_max))
        request.open_stream(stream)
        self._intake = stream
        self.serve(request, endpoint)

    def _read_body(self, intake: BodySink, now: float) -> bool:
        """Read what is there; return whether the body is whole and the next request may be looked at."""
        if intake.blocked:
            return False
        reader = self._reader
        had = reader.pending_bytes
        if had:
            piece = reader.read_body()
            if not isinstance(intake, DiscardedBody):
                self._read_due = now + self._core.options.read_timeout_s
            if piece:
                intake.feed(piece)
            self._read_due = min(self._read_due, intake.due)
        if not reader.body_done:
            if reader.pending_bytes and reader.pending_bytes != had:
                self._schedule()
            return False
        self._intake = None
        self._body_ended(intake)
        return self._intake is None

    def _body_ended(self, intake: BodySink) -> None:
        if isinstance(intake, BodyStream):
            intake.end()
        elif isinstance(intake, CollectedBody):
            encoding = intake.request.headers.get(b"content-encoding", b"identity")
            if encoding == b"identity":
                self._serve_whole(intake)
                return
            self._intake = InflatingBody(intake, encoding, self._core.options.decompress_ratio_cap)
            self._inflate(self._intake)

    def _inflate(self, inflating: InflatingBody) -> None:
        """Do a few steps; a larger body goes on in the next turn."""
        if not inflating.turn():
            self._core.loop.call_soon(self._inflate_on, inflating, context=self._core.context)
            return
        self._intake = None
        self._serve_whole(inflating)

    def _serve_whole(self, intake: CollectedBody | InflatingBody) -> None:
        """Call the handler of a request whose body had to be waited for."""
        try:
            request = intake.request
            request.body = intake.whole()
            if request.ticket is None or request.ticket.step_back():
                self.serve(request, intake.endpoint)
            else:
                self._hold(request, intake.endpoint)
        finally:
            self._core.arrived()

    def _inflate_on(self, inflating: InflatingBody) -> None:
        if self._intake is not inflating:
            return
        try:
            self._inflate(inflating)
        except PenstockError as fault:
            self.fault(fault)
        self.advance()

    # --- late answers ----------------------------------------------------------------------------------

    def resolve(self, exchange: Exchange, result: object) -> None:
        """Take the late result of a handler. When it is all that is owed it leaves at once, without another turn."""
        reader, core, request = self._reader, self._core, exchange.request
        if (
            type(result) is not WrittenJson
            or len(self._waiting) > 1
            or reader.pos < len(reader.data)
            or self._intake is not None
            or not request.head.plain
            or len(result) > COPY_BYTES_MAX
            or self._out
            or self._closing
            or core.draining
        ):
            super().resolve(exchange, result)
            return
        try:
            now = core.monotonic()
            if now >= core.heads.until:
                core.heads.tick(now)
            exchange.endpoint.latency.observe(now - request.received_at)
            exchange.endpoint.ok.value += 1
            self._waiting.clear()
            core.release(request, len(result))
            self._transport.write(core.heads.json(request.corr, result))
            self._settle(now)
        except Exception as error:  # noqa: BLE001 - the connection's boundary: whoever kept the promise goes on
            core.log.error("connection.failed", error=error)
            self._transport.abort()

    def _hold(self, request: Request, endpoint: Endpoint) -> None:
        """Wait for a gate's word; `Holding` implements this."""
        raise RuntimeError("the reading side is missing")

    def _settle(self, now: float) -> None:
        """Decide what to wait for; the connection implements this."""
        raise RuntimeError("the reading side is missing")

    def fault(self, fault: PenstockError) -> None:
        """End reading because of `fault`; the connection implements this."""
        raise RuntimeError("the reading side is missing")

    def _leaves_body(self, request: Request) -> bool:
        """Discard what a handler left unread of its body if that is cheap; tell whether it is too much for that."""
        intake = self._intake
        if not isinstance(intake, BodyStream) or intake.request is not request:
            return False
        intake.end(Canceled("The request was answered."))
        self._intake = DiscardedBody()
        left = self._reader.body_left
        return left is None or left > DISCARD_BYTES_MAX


def _end_ticket(request: Request | None) -> None:
    """Give back what a gate lent to a request that goes no further."""
    if request is not None and request.ticket is not None:
        request.ticket.ended(0, answered=False)
