"""An admitted request whose answer is not written yet: it is still to come, or waits for the answers before it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from penstock.kernel.errors import Canceled, PenstockError, Timeout, forget_where
from penstock.net.promise import Promise
from penstock.net.server.wheel import NEVER

if TYPE_CHECKING:
    from penstock.net.message import Request, StreamResponse
    from penstock.net.server.connection import Connection
    from penstock.net.server.endpoint import Endpoint

_LOOKING: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class Exchange:
    """One place in the order of a connection's answers."""

    __slots__ = ("close", "connection", "data", "due", "endpoint", "request", "sending", "source", "stream")

    def __init__(self, connection: Connection, request: Request, endpoint: Endpoint) -> None:
        """Take a place; `data` is the answer once it is there."""
        self.connection: Connection | None = connection
        self.request = request
        self.endpoint = endpoint
        self.close = False
        self.data: list[bytes] | None = None
        self.stream: StreamResponse | None = None
        # The stream again, while it is being sent.
        self.sending: StreamResponse | None = None
        self.source: asyncio.Future[Any] | Promise | None = None
        self.due = request.received_at + request.timeout_s

    @classmethod
    def settled(cls, connection: Connection, data: list[bytes]) -> Exchange:
        """Make a place for an answer that is there already, behind others that are not."""
        exchange = cls.__new__(cls)
        exchange.connection = connection
        exchange.data, exchange.stream, exchange.source, exchange.sending = data, None, None, None
        exchange.due, exchange.close = NEVER, False
        return exchange

    def follow(self, source: asyncio.Future[Any] | Promise) -> None:
        """Answer with what a future or a promise will hold."""
        self.source = source
        if isinstance(source, Promise):
            source.follow(self._kept)
        else:
            source.add_done_callback(self._resolved)

    @property
    def op(self) -> str:
        """Return what the deadline of this exchange bounds."""
        return self.source.op if isinstance(self.source, Promise) else "request"

    def _resolved(self, source: asyncio.Future[Any]) -> None:
        if source.cancelled():
            result: Any = Canceled()
        else:
            result = source.exception() or source.result()
        self._kept(result)

    def _kept(self, result: Any) -> None:  # noqa: ANN401 - whatever the handler's work came to
        connection = self.connection
        if isinstance(result, PenstockError):
            forget_where(result)
        if connection is None or self.source is None:
            return
        self.source = None
        self.due = NEVER
        connection.resolve(self, result)

    def abandon(self) -> None:
        """Stop following: the deadline passed or the client left. The work may go on; its answer is dropped."""
        source, self.source = self.source, None
        self.due = NEVER
        if source is not None:
            source.cancel()

    def give_up(self) -> Timeout:
        """Stop following because the deadline passed; return the answer. It says if a change may have been made."""
        op, budget_s = self.op, self.request.timeout_s
        self.abandon()
        if self.request.method in _LOOKING:
            return Timeout(op, budget_s=budget_s)
        return Timeout(op, budget_s=budget_s, outcome="unknown")

    def leave(self) -> None:
        """Drop everything, because the connection is gone."""
        self.abandon()
        self.connection = None
