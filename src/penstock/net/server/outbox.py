"""The answering half of a connection: handlers are called here, and answers leave in the order of their requests.

A handler's value is either the answer or something that will bring it: a promise, a future or a coroutine. An answer
that is there at once, with none owed before it, goes to `out`, the bytes of this turn; that is the common case and
makes no object. Everything else becomes an `Exchange`, a place in `waiting`. An exchange is settled when its bytes
are there (`data`) or its stream may start (`stream`). Settled exchanges leave from the front of `waiting`, never past
one that is not: so the order holds whatever the order in which handlers finish.

A stream has a task, which sends the next piece when the client has taken the last. While it runs nothing behind it is
written. If its source fails the connection is cut, because a client must be able to see that the answer is not whole.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from functools import partial
from socket import SO_LINGER, SOL_SOCKET
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec

from penstock.kernel.deadline import no_deadline, use_deadline
from penstock.kernel.errors import Canceled, PenstockError, Timeout, forget_where
from penstock.net.message import (
    AcceptedJson,
    RelayedResponse,
    Response,
    StreamResponse,
    WrittenJson,
)
from penstock.net.problem import problem
from penstock.net.promise import Promise
from penstock.net.server import answer, source
from penstock.net.server.admission import Refusal, labels_of
from penstock.net.server.body import gone
from penstock.net.server.core import UNANSWERED_MAX, Core, encode_json
from penstock.net.server.exchange import Exchange
from penstock.net.server.pausing import paused
from penstock.net.server.ticket import NO_TICKET
from penstock.net.server.wheel import NEVER

if TYPE_CHECKING:
    from penstock.net.message import Request
    from penstock.net.server.connection import Connection
    from penstock.net.server.endpoint import Endpoint
    from penstock.net.server.inbox import Inbox
    from penstock.wire.http1.head import HttpHead

# A body above this is not copied behind its head but handed over beside it.
COPY_BYTES_MAX: Final = 16 * 1024
_AT_ONCE: Final = struct.pack("ii", 1, 0)
_JSON: Final = (msgspec.Struct, dict)
# What of a `HandlerResult` will bring an answer later, in the order of how often it is met: each is asked in turn.
_PENDING: Final = (Promise, CoroutineType, asyncio.Future)
_AS_IT_IS: Final = (
    WrittenJson, AcceptedJson, *_PENDING, Response, RelayedResponse, StreamResponse, Refusal, PenstockError,
)  # fmt: skip
# A handler's value once it is ready to be written: bytes are the body of a JSON 200, AcceptedJson that of a 202.
Ready = bytes | Response | RelayedResponse | StreamResponse | Refusal | PenstockError
Pending: TypeAlias = "asyncio.Future[Any] | CoroutineType[Any, Any, Any] | Promise"


class Outbox:
    """What a connection owes its client."""

    __slots__ = (
        "_core", "_room", "_unsent_bytes", "closing", "connection", "inbox", "out", "transport", "waiting",
        "write_paused",
    )  # fmt: skip

    transport: asyncio.Transport
    # These two are taken away when the connection is lost; nothing here needs them after that.
    connection: Connection
    inbox: Inbox

    def __init__(self, core: Core, connection: Connection) -> None:
        """Owe nothing yet. The connection adds its transport and its inbox."""
        self._core = core
        self.connection = connection
        # Bytes of this turn's answers; they leave in one write at its end.
        self.out: list[bytes] = []
        # Requests in order whose answers are not written yet; bounded by UNANSWERED_MAX.
        self.waiting: list[Exchange] = []
        # Set with the last answer of the connection: nothing after it is read.
        self.closing = False
        # True while the transport holds as much as it may.
        self.write_paused = False
        # What the transport held when it said so, as far as it counts against the byte budget.
        self._unsent_bytes = 0
        # A stream that waits for the client to read.
        self._room: asyncio.Future[None] | None = None

    # --- calling the handler ---------------------------------------------------------------------------

    def serve(self, request: Request, endpoint: Endpoint) -> None:
        """Call the handler of an admitted request. No task is made unless the handler is a coroutine."""
        core = self._core
        result: object
        try:
            decode = endpoint.decode
            if decode is None:
                result = endpoint.handler(request)
            else:
                try:
                    value = decode(request.body)
                except (msgspec.DecodeError, UnicodeDecodeError) as exc:
                    value = endpoint.read_again(request.body, exc)
                result = endpoint.handler(request, value)
            if not isinstance(result, Promise | Refusal):
                result = encode_json(result) if isinstance(result, _JSON) else self._ready_or_pending(result)
        except PenstockError as error:
            result = forget_where(error)
        except Exception as error:  # noqa: BLE001 - the request's boundary: a bug is one 500, not a dead connection
            result = core.failed(error, request.corr)
        head = request.head
        if type(result) is bytes and not self.waiting and head.plain and not core.draining:
            # The common case: an answer that is there at once, on a connection that stays open.
            endpoint.latency.observe(core.monotonic() - request.received_at)
            endpoint.ok.value += 1
            if request.held_bytes:
                core.let_go(request)
            if request.ticket is not NO_TICKET:
                request.ticket.ended(len(request.body) + len(result), answered=True)
            self.out.append(core.heads.json(request.corr, result))
            if len(result) > COPY_BYTES_MAX:
                self.flush()
        else:
            self._serve_uncommon(request, endpoint, result)

    def _serve_uncommon(self, request: Request, endpoint: Endpoint, result: object) -> None:
        """Place an answer that has to wait, or is not a JSON 200 on a connection that stays open."""
        core = self._core
        if type(result) is Refusal and not self.waiting and self.inbox.intake is None:
            self._refuse_at_once(request, endpoint, result)
            return
        core.inflight += 1
        if isinstance(result, _PENDING):
            self._wait(request, endpoint, result)
        else:
            endpoint.latency.observe(core.monotonic() - request.received_at)
            exchange = Exchange(self.connection, request, endpoint)
            self.queue(exchange)
            self._place(exchange, cast("Ready", result))

    def _refuse_at_once(self, request: Request, endpoint: Endpoint, refusal: Refusal) -> None:
        """Write a handler's refusal, which is prebuilt; nothing is owed before it, and the request's body is read."""
        core, head = self._core, request.head
        endpoint.latency.observe(core.monotonic() - request.received_at)
        if request.held_bytes:
            core.let_go(request)
        if request.ticket is not NO_TICKET:
            request.ticket.ended(len(request.body), answered=True)
        close = self.closing or not head.keep_alive or core.draining
        self.refuse(head, request.corr, endpoint, refusal, close=close)

    @staticmethod
    def _ready_or_pending(result: object) -> Ready | Pending:
        """Turn a handler's value into the bytes of a JSON 200, unless it is an answer or a promise of one."""
        if isinstance(result, _JSON):
            return encode_json(result)
        if isinstance(result, _AS_IT_IS):
            return result
        if result is None:
            return Response(204, content_type=b"")
        raise TypeError(f"a handler returned a {type(result).__name__}, which is no HandlerResult")

    def _wait(self, request: Request, endpoint: Endpoint, pending: Pending) -> None:
        """Take a place for an answer that comes later."""
        exchange = Exchange(self.connection, request, endpoint)
        self.queue(exchange)
        core = self._core
        try:
            core.hold(request, len(request.body))
            if isinstance(pending, CoroutineType):
                with no_deadline():  # whoever's step this is: the request before, or the work that answered it
                    work = core.scope.start(self._under_deadline(request, pending))
                # One that is cancelled before its first step would leave its coroutine behind.
                work.add_done_callback(partial(_close_unbegun, pending))
                pending = work
        except PenstockError as busy:
            # No place for what it would hold, or for its task: the work is withdrawn before anybody took it.
            _withdraw(pending)
            self._place(exchange, busy)
            return
        exchange.follow(pending)

    async def _under_deadline(self, request: Request, work: CoroutineType[Any, Any, Any]) -> object:
        """Run a coroutine handler; whatever it raises is its answer, so the scope sees no failure."""
        try:
            with use_deadline(request.deadline):
                return await work
        except PenstockError as error:
            return forget_where(error)
        except Exception as error:  # noqa: BLE001 - the request's boundary
            return self._core.failed(error, request.corr)

    # --- placing the answer ----------------------------------------------------------------------------

    def queue(self, exchange: Exchange) -> None:
        """Take the next place in the order. The inbox stops reading before there are more than so many."""
        if len(self.waiting) >= UNANSWERED_MAX:
            raise RuntimeError("a request was read past the bound on unanswered ones")
        self.waiting.append(exchange)

    def place_late(self, exchange: Exchange, result: object) -> None:
        """Take what a handler's promise came to, and write whatever is next in order."""
        core = self._core
        ready: Ready
        try:
            if isinstance(result, Exception) and not isinstance(result, PenstockError):
                raise result
            late = self._ready_or_pending(result)
            if isinstance(late, _PENDING):
                raise TypeError("a handler's promise held another promise")
            ready = late
        except Exception as error:  # noqa: BLE001 - the request's boundary
            ready = core.failed(error, exchange.request.corr)
        exchange.endpoint.latency.observe(core.monotonic() - exchange.request.received_at)
        self._place(exchange, ready)

    def _place(self, exchange: Exchange, ready: Ready) -> None:
        """Turn a value into the exchange's bytes, and write whatever is next in order."""
        request, core = exchange.request, self._core
        core.heads.tick(request.received_at)
        # The deadline runs to here, whenever its turn to be written comes; each piece of a stream has its own.
        exchange.due = NEVER
        streamed = isinstance(ready, StreamResponse)
        keeps = request.head.keep_alive and not core.draining
        # A streamed answer may still be reading its request; that is settled when it ends.
        exchange.close = not keeps or (not streamed and self.inbox.leaves_body(request))
        # What ended the connection, a body that stopped coming, is said by the last answer on it.
        exchange.close = exchange.close or (self.closing and self.waiting[-1] is exchange)
        self.closing = self.closing or exchange.close
        if isinstance(ready, StreamResponse):
            exchange.stream = ready
            request.ticket.answering()
        else:
            exchange.data = data = self._render(exchange, ready)
            core.release(request, sum(map(len, data)))
        self._write_in_order()

    def _render(
        self, exchange: Exchange, ready: bytes | Response | RelayedResponse | Refusal | PenstockError
    ) -> list[bytes]:
        """Make and count the bytes of an answer: its head, and its body beside it."""
        request, endpoint = exchange.request, exchange.endpoint
        if isinstance(ready, Refusal):
            ready = ready.error
        if isinstance(ready, RelayedResponse):
            endpoint.count(request.method, ready.status)
            head = self._core.heads.relayed(ready, request.corr, close=exchange.close)
            return [head, ready.body] if ready.body else [head]
        if isinstance(ready, PenstockError):
            labels = labels_of(ready)
            endpoint.count_refusal(request.method, labels)
            self._core.note_refusal(endpoint.path, labels, request.corr)
            self._core.count_stranger(ready.status, request.peer)
            ready = self._in_words(request.head, ready, request.corr) or problem(ready, request.corr_id)
        else:
            if isinstance(ready, bytes):
                ready = Response(202 if isinstance(ready, AcceptedJson) else 200, ready)
            endpoint.count(request.method, ready.status)
        head = self._core.heads.whole(ready, request.corr, close=exchange.close)
        return [head] if request.method == "HEAD" or not ready.body else [head, ready.body]

    def refuse(self, head: HttpHead | None, corr: bytes, endpoint: Endpoint, refusal: Refusal, *, close: bool) -> None:
        """Answer a request that never reached its handler."""
        core = self._core
        method = "none" if head is None else head.method
        endpoint.count_refusal(method, refusal.labels)
        core.note_refusal(endpoint.path, refusal.labels, corr)
        core.count_stranger(refusal.status, self.connection.peer)
        own = None if head is None else self._in_words(head, refusal.error, corr)
        if own is not None:
            data = core.heads.whole(own, corr, close=close) + (b"" if method == "HEAD" else own.body)
        elif head is not None and head.plain and head.corr_id is None and not close:
            data = refusal.common(corr, core.heads.date_line)
        else:
            data = refusal.render(corr, core.heads.date_line, close=close, head_only=method == "HEAD")
        self.closing = self.closing or close
        if self.waiting:
            self.queue(Exchange.settled(self.connection, [data]))
        else:
            self.out.append(data)

    def _in_words(self, head: HttpHead, error: PenstockError, corr: bytes) -> Response | None:
        """Write a refusal as the request's own protocol has it, if that is another than ours."""
        words = self._core.problem_words
        return None if words is None else words(head, error, corr.decode("ascii"))

    # --- writing ---------------------------------------------------------------------------------------

    def _write_in_order(self) -> None:
        """Take what is settled from the front of the line; start a stream when its turn has come."""
        waiting = self.waiting
        while waiting and waiting[0].data is not None:
            data = waiting.pop(0).data or ()
            self.out += data
            if len(data) > 1 and len(data[1]) > COPY_BYTES_MAX:
                # At once, so that the transport can say stop before the next large answer is made.
                self.flush()
        if waiting and waiting[0].stream is not None:
            self._start_stream(waiting[0], waiting[0].stream)

    def flush(self) -> None:
        """Hand this turn's answers to the transport in one call."""
        out = self.out
        if len(out) == 1:
            self.transport.write(out[0])
        elif not out:
            return
        elif max(map(len, out)) > COPY_BYTES_MAX:
            self.transport.writelines(out)
            self.out = []
            return
        else:
            self.transport.write(b"".join(out))
        out.clear()

    def pause(self) -> bool:
        """Write no more for now. False when the client has to go: nobody may hold the bytes it does not read.

        What waits in the transport counts against the byte budget; when that is used up, a client that does not
        read is the one to go.
        """
        self.write_paused = True
        budget, waiting_bytes = self._core.budget, self.transport.get_write_buffer_size()
        if budget is None:
            return True
        if not budget.try_take(waiting_bytes):
            return False
        self._unsent_bytes += waiting_bytes
        return True

    def resume(self) -> None:
        """Write again: the client has read what it was sent."""
        self.write_paused = False
        self._give_unsent()
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _give_unsent(self) -> None:
        if self._unsent_bytes and self._core.budget is not None:
            self._core.budget.give(self._unsent_bytes)
        self._unsent_bytes = 0

    # --- streams ---------------------------------------------------------------------------------------

    def _start_stream(self, exchange: Exchange, stream: StreamResponse) -> None:
        request, exchange.stream = exchange.request, None
        chunked = stream.length is None and request.head.minor == 1
        try:
            with no_deadline():
                self._core.scope.start(self._pump(exchange, stream, chunked=chunked))
        except PenstockError as busy:
            # Nothing of it was written: a refusal takes its place.
            self._close_unsent(stream)
            self._place(exchange, busy)
            return
        exchange.sending = stream
        exchange.endpoint.count(request.method, stream.status)
        if stream.length is None and not chunked:
            exchange.close = self.closing = True
        self.out.append(self._core.heads.streamed(stream, request.corr, chunked=chunked, close=exchange.close))

    async def _pump(self, exchange: Exchange, stream: StreamResponse, *, chunked: bool) -> None:
        """Send a streamed body at the client's pace; a failure ends the connection, so that the cut is seen."""
        try:
            self.flush()
            if exchange.request.method != "HEAD":
                await self._send_chunks(exchange.request, stream, chunked=chunked)
        except Exception as error:  # noqa: BLE001 - the request's boundary
            if exchange.connection is not None:
                self._count_cut(error, exchange.request.corr)
            self._cut(to_the_end=stream.length is None and not chunked)
        finally:
            self._stream_ended(exchange)
            await source.close(stream)

    async def _send_chunks(self, request: Request, stream: StreamResponse, *, chunked: bool) -> None:
        sent_bytes = 0
        limit_s = self._core.options.read_timeout_s if stream.chunk_s is None else stream.chunk_s
        while (piece := await paused(request.ticket, source.next_piece(stream, limit_s))) is not None:
            if not piece:
                continue
            sent_bytes += len(piece)
            request.ticket.bytes_seen += len(piece)
            if self.transport.is_closing():
                raise gone()
            if stream.length is not None and sent_bytes > stream.length:
                break
            self.transport.writelines(answer.chunk(piece) if chunked else [piece])
            if self.write_paused:
                await paused(request.ticket, self._until_room())
        if stream.length is not None and sent_bytes != stream.length:
            raise RuntimeError(f"a stream of {stream.length} bytes gave {sent_bytes}")
        if chunked:
            self.transport.write(answer.LAST_CHUNK)

    async def _until_room(self) -> None:
        """Wait until the client took what it was sent; the write deadline ends the connection otherwise."""
        self._room = asyncio.get_running_loop().create_future()
        try:
            await self._room
        finally:
            self._room = None

    def _count_cut(self, error: Exception, corr: bytes) -> None:
        """Count why a stream ended short; a condition is no bug."""
        if not isinstance(error, PenstockError):
            self._core.failed(error, corr)
        elif isinstance(error, Timeout) and error.op == "stream":
            self._core.timeouts["stream"].value += 1

    def _cut(self, *, to_the_end: bool) -> None:
        """End the connection short. A body that lasts to the end of the connection can only be cut by a reset."""
        sock = self.transport.get_extra_info("socket") if to_the_end else None
        if sock is not None and not self.transport.is_closing():
            sock.setsockopt(SOL_SOCKET, SO_LINGER, _AT_ONCE)
        self.transport.abort()

    def _stream_ended(self, exchange: Exchange) -> None:
        connection = exchange.connection
        if connection is None:
            # The client went first, and everything was given back then.
            return
        self._core.release(exchange.request, 0)
        if not self.waiting or self.waiting[0] is not exchange:
            return
        self.waiting.pop(0)
        # Its head may have been written before the drain began, and promised to keep the connection.
        self.closing = self.inbox.leaves_body(exchange.request) or self.closing or self._core.draining
        self._write_in_order()
        connection.advance()

    def _close_unsent(self, stream: StreamResponse) -> None:
        """Close the iterator of an answer that was never begun; what it holds open must not stay so."""
        with suppress(PenstockError):
            self._core.closings.start(source.close(stream))

    # --- deadlines and the end -------------------------------------------------------------------------

    def expire(self, now: float) -> None:
        """Answer 504 to whoever waited as long as its request may take."""
        for exchange in [exchange for exchange in self.waiting if exchange.due <= now]:
            late = exchange.give_up()
            self._core.timeouts[late.op].value += 1
            self._place(exchange, late)

    def polls(self) -> bool:
        """Tell whether a long poll is owed its answer."""
        return any(each.data is None and each.request.route.long_poll for each in self.waiting)

    def streams(self) -> bool:
        """Tell whether an answer is being streamed, or will be: there is no other answer in its place then."""
        return any(exchange.stream is not None or exchange.sending is not None for exchange in self.waiting)

    def cancel_owed(self) -> None:
        """Answer that shutdown cut the work, to whoever still waits for its end."""
        for exchange in [exchange for exchange in self.waiting if exchange.data is None]:
            exchange.abandon()
            self._place(exchange, Canceled())

    def drop(self) -> None:
        """Give up every unanswered request, because the client is gone."""
        for exchange in self.waiting:
            if exchange.data is None:
                self._core.release(exchange.request)
            if exchange.stream is not None:
                self._close_unsent(exchange.stream)
            elif exchange.sending is not None:
                source.stop(exchange.sending)
            exchange.leave()
        self.waiting.clear()
        if self._room is not None and not self._room.done():
            self._room.set_exception(gone())
        self._give_unsent()


def _close_unbegun(work: CoroutineType[Any, Any, Any], _task: asyncio.Task[Any]) -> None:
    work.close()


def _withdraw(pending: Pending) -> None:
    if isinstance(pending, CoroutineType):
        pending.close()
    else:
        pending.cancel()
