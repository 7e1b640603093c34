"""An admitted request whose answer is not there yet, or has to wait for those before it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.kernel.errors import Canceled, PenstockError, forget_where
from penstock.net.wheel import NEVER

if TYPE_CHECKING:
    from penstock.net.answers import Answers
    from penstock.net.endpoint import Endpoint
    from penstock.net.message import Request, StreamResponse


class Exchange:
    """One place in a connection's answer order."""

    __slots__ = ("close", "connection", "data", "due", "endpoint", "request", "source", "stream")

    def __init__(self, connection: Answers, request: Request, endpoint: Endpoint) -> None:
        """Take a place; `data` is the answer once it is there."""
        self.connection: Answers | None = connection
        self.request = request
        self.endpoint = endpoint
        self.close = False
        self.data: list[bytes] | None = None
        self.stream: StreamResponse | None = None
        self.source: asyncio.Future[Any] | None = None
        self.due = request.received_at + request.timeout_s

    @classmethod
    def settled(cls, connection: Answers, data: list[bytes]) -> Exchange:
        """Make a place for an answer that is there already, behind others that are not."""
        exchange = cls.__new__(cls)
        exchange.connection = connection
        exchange.data, exchange.stream, exchange.source = data, None, None
        exchange.due, exchange.close = NEVER, False
        return exchange

    def follow(self, source: asyncio.Future[Any]) -> None:
        """Answer with what a future will hold."""
        self.source = source
        source.add_done_callback(self._resolved)

    def _resolved(self, source: asyncio.Future[Any]) -> None:
        connection = self.connection
        if source.cancelled():
            result: Any = Canceled()
        else:
            result = source.exception() or source.result()
        if isinstance(result, PenstockError):
            forget_where(result)
        if connection is None or self.source is None:
            return
        self.source = None
        self.due = NEVER
        connection.resolve(self, result)

    def abandon(self) -> None:
        """Stop following: the deadline passed or the client went away. Taken work goes on, its answer is dropped."""
        source, self.source = self.source, None
        self.due = NEVER
        if source is not None:
            source.cancel()

    def leave(self) -> None:
        """Drop everything, because the connection is gone."""
        self.abandon()
        self.connection = None
