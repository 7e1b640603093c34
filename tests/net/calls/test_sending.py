"""Bodies that never make the client wait: source and peer are always ready, and what happens meanwhile is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from penstock.kernel.deadline import timeout
from penstock.kernel.errors import DownstreamUnavailable, Timeout
from penstock.kernel.inventory import Inventory
from penstock.net.calls.client import ClientOptions, HttpClient
from penstock.net.calls.connection import ClientConnection
from penstock.net.calls.origin import HttpOrigin
from tests.net.calls.peers import URL, answer

PIECES_MAX = 200
PIECE = bytes(100_000)
TURNED_AWAY = answer(b"no", "413 Content Too Large")


class Swallowing(asyncio.Transport):
    """A transport as the stock loop's: it never says stop, and tells of an event only when the loop has its next turn.

    What is written after the connection was lost is dropped without a word.
    """

    def __init__(self, connection: ClientConnection, event: Callable[[Swallowing], None] | None) -> None:
        super().__init__()
        self.connection = connection
        self.written_bytes = 0
        self._event = event
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written_bytes += len(data)
        if self._event is not None and self.written_bytes > 2 * len(PIECE):
            asyncio.get_running_loop().call_soon(self._event, self)
            self._event = None

    def is_closing(self) -> bool:
        return self._closing

    def abort(self) -> None:
        if not self._closing:
            self._closing = True
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    def pause_reading(self) -> None:
        raise AssertionError("nothing here is worth a pause")

    def says(self, data: bytes) -> None:
        self.connection.get_buffer(-1)[: len(data)] = data
        self.connection.buffer_updated(len(data))


def client_of(event: Callable[[Swallowing], None] | None) -> HttpClient:
    async def dial(_origin: HttpOrigin, connection: ClientConnection) -> None:
        connection.connection_made(Swallowing(connection, event))

    return HttpClient(Inventory("test"), ClientOptions(service="peer", tries_max=1), dial=dial)


async def ready(step: Callable[[], None] = lambda: None) -> AsyncIterator[bytes]:
    """Give piece after piece without ever waiting."""
    for _ in range(PIECES_MAX):
        step()
        yield PIECE
    raise AssertionError("nobody stopped it")


LENGTHS = pytest.mark.parametrize("declared", [None, PIECES_MAX * len(PIECE) * 2], ids=["chunked", "of known length"])


@LENGTHS
async def test_the_loss_of_the_connection_ends_a_body_that_never_waits(declared: int | None) -> None:
    async with client_of(Swallowing.abort) as client:
        with pytest.raises(DownstreamUnavailable):
            await client.request("PUT", URL, body=ready(), body_bytes=declared)


@LENGTHS
async def test_an_early_answer_ends_a_body_that_never_waits(declared: int | None) -> None:
    async with client_of(lambda transport: transport.says(TURNED_AWAY)) as client:
        got = await client.request("PUT", URL, body=ready(), body_bytes=declared)

    assert (got.status, got.body) == (413, b"no")


async def test_an_early_answer_ends_a_long_body_in_one_piece() -> None:
    written: list[int] = []

    def refuse(transport: Swallowing) -> None:
        transport.says(TURNED_AWAY)
        written.append(transport.written_bytes)

    async with client_of(refuse) as client:
        got = await client.request("PUT", URL, body=PIECE * PIECES_MAX)

    assert got.status == 413
    assert written[0] < len(PIECE) * 5


async def test_the_callers_deadline_ends_a_body_that_never_waits() -> None:
    def a_second_passes() -> None:
        asyncio.get_running_loop().advance(1.0)

    async with client_of(None) as client:
        with pytest.raises(Timeout, match="upload"):
            async with timeout("upload", 5.0):
                await client.request("PUT", URL, body=ready(a_second_passes))
