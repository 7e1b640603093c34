"""Requests that wait at a gate: their place in the answer order is taken, their body stays with the client.

While one waits nothing behind it is looked at, so the order of a connection needs no further care. Reading goes on just
far enough to notice that the client has left; then the client's own window fills.
"""

from __future__ import annotations

import socket
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.kernel.errors import PenstockError, forget_where
from penstock.net.server.admission import Refusal
from penstock.net.server.body import (
    DISCARD_BYTES_MAX,
    BodyStream,
    CollectedBody,
    DiscardedBody,
    InflatingBody,
    UnreadBody,
    gone,
)
from penstock.net.server.exchange import Exchange
from penstock.net.server.requests import Requests
from penstock.net.server.wheel import NEVER
from penstock.wire.http1.head import CHUNKED

if TYPE_CHECKING:
    from penstock.net.message import Request
    from penstock.net.server.endpoint import Endpoint

UNREAD_BYTES_MAX: Final = 16 * 1024
"""How much is taken from a client whose request waits; one more buffer may have been on its way."""
LOOK_S: Final = 0.25
# Linux tells the state of a connection; where nobody does, the deadline ends the wait.
_TCP_INFO: Final[int | None] = getattr(socket, "TCP_INFO", None)
_TCP_CLOSE: Final = 7
_INTERNET: Final = (socket.AF_INET, socket.AF_INET6)


class AdmissionHold(Requests):
    """A connection's request that waits for a slot; there is at most one, the last."""

    __slots__ = ()

    def _hold(self, request: Request, endpoint: Endpoint) -> None:
        """Wait: before the body was read, or, when the slot was given back meanwhile, after."""
        exchange = Exchange(self, request, endpoint)
        self._queue(exchange)
        self._intake = UnreadBody(exchange)
        # A drain waits for it: it was taken in.
        self._core.inflight += 1
        assert request.ticket is not None, "who holds a request has put a ticket on it"
        request.ticket.waiter = partial(self._decided, exchange)

    def _decided(self, exchange: Exchange, refusal: Refusal | None) -> None:
        """Go on with a request that waited, or answer it; the gate calls this from a turn of its own."""
        if exchange.connection is None or exchange.data is not None:
            return
        self._waiting.remove(exchange)
        self._intake = None
        self._read_due = NEVER
        self._core.heads.tick(self._core.monotonic())
        request, endpoint = exchange.request, exchange.endpoint
        try:
            if refusal is None:
                self._go_on(request, endpoint)
        except PenstockError as error:
            refusal = Refusal(forget_where(error))
        if refusal is not None:
            self._core.let_go(request)
            if request.ticket is not None:
                request.ticket.ended(0, answered=False)
            self._refuse_request(request.head, request.corr, endpoint, refusal)
        self._core.arrived()
        self.advance()

    def _go_on(self, request: Request, endpoint: Endpoint) -> None:
        """Read the body, or call the handler if there is none or it is here already."""
        reader, head = self._reader, request.head
        if reader.body_done:
            self.serve(request, endpoint)
            return
        if 0 < head.length <= min(endpoint.whole_bytes_max, reader.pending_bytes) and not head.encoded:
            request.body = reader.take_body()
            self.serve(request, endpoint)
            return
        self._open_body(request, endpoint)
        if isinstance(self._intake, CollectedBody):
            # The client was kept waiting; the time for its body starts now.
            self._intake.begin(self._core.monotonic())

    def _drop_intake(self) -> None:
        """Give up the body being read, and the request that waits for it alone."""
        intake, self._intake = self._intake, None
        if isinstance(intake, BodyStream):
            intake.end(gone())
        elif isinstance(intake, CollectedBody | InflatingBody):
            self._core.release(intake.request)

    def _unread_enough(self) -> bool:
        """Tell whether reading may stop until the gate decides."""
        return self._again or self._reader.pending_bytes >= UNREAD_BYTES_MAX

    def _next_look(self, now: float, *, blocked: bool) -> float:
        """Say when to look whether the client is still there; a connection that is read notices by itself."""
        return now + LOOK_S if blocked else NEVER

    def _look_for_client(self) -> None:
        """End a connection that was reset while it was not read: the system knows, but tells only who asks."""
        sock = self._transport.get_extra_info("socket")
        if sock is not None and sock.family in _INTERNET and _TCP_INFO is not None:
            state = sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0]
            if state == _TCP_CLOSE:
                self._transport.abort()

    def _has_all_it_reads(self) -> bool:
        """Tell whether a client that closed its side has sent everything its requests need."""
        intake, reader = self._intake, self._reader
        if not isinstance(intake, UnreadBody):
            return intake is None
        length = intake.exchange.request.head.length
        return reader.body_done or (length != CHUNKED and length <= reader.pending_bytes)

    def _leaves_body(self, request: Request) -> bool:
        """Discard what a request that waited in vain leaves unread, if that is cheap."""
        if not isinstance(self._intake, UnreadBody) or self._intake.exchange.request is not request:
            return super()._leaves_body(request)
        done = self._reader.body_done
        self._intake = None if done else DiscardedBody()
        self._read_due = NEVER
        # What was received behind it waited too.
        self._schedule()
        left = 0 if done else self._reader.body_left
        return left is None or left > DISCARD_BYTES_MAX
