"""A process out of descriptors: newcomers wait in the queue, nobody is hung up on, and it is counted."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

import pytest

from penstock.kernel.deadline import Deadline, current_deadline, use_deadline
from penstock.net.message import Request
from penstock.net.server.accept import ACCEPT_PAUSE_S, Acceptor
from tests.net.server.listener_kit import (
    BOTH_LOOPS,
    Site,
    get,
    route,
    serving,
    settle,
)
from tests.net.server.test_tls_accept import descriptors, until, until_empty

COUNT = 12
ROOM = 4


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """Make a directory fit for a Unix socket."""
    (tmp_path / "run").mkdir(mode=0o700)
    return tmp_path / "run"


@contextmanager
def few_descriptors(room: int) -> Iterator[None]:
    """Leave this process about so many descriptors; what is open stays."""
    taken = {int(each.name) for each in Path("/proc/self/fd").iterdir()}
    free = (number for number in count() if number not in taken)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next(islice(free, room, None)), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def sockets(family: socket.AddressFamily) -> Iterator[list[socket.socket]]:
    """Make clients that are not connected yet, because there will be no descriptor for them later."""
    clients = [socket.socket(family) for _ in range(COUNT)]
    for client in clients:
        client.setblocking(False)
    try:
        yield clients
    finally:
        for client in clients:
            client.close()


async def asked(site: Site, clients: list[socket.socket]) -> None:
    """Connect everybody and ask; the system takes them in, whether anybody accepts or not."""
    loop = asyncio.get_running_loop()
    place = site.listener.addresses[0]
    for client in clients:
        await loop.sock_connect(client, place)
        await loop.sock_sendall(client, get())


async def statuses(clients: list[socket.socket]) -> list[bytes]:
    """Read the first line of everybody's answer."""
    loop = asyncio.get_running_loop()
    return [(await loop.sock_recv(client, 4096)).split(b"\r\n")[0] for client in clients]


@BOTH_LOOPS
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_UNIX])
async def test_without_descriptors_newcomers_wait_in_the_queue_and_all_are_served_later(
    loop_name: str, family: socket.AddressFamily, private: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "penstock")
    place = {"host": "127.0.0.1"} if family == socket.AF_INET else {"uds_path": private / "socket"}
    with sockets(family) as clients:
        async with serving(options=place) as site:
            began = asyncio.get_running_loop().time()
            with few_descriptors(ROOM):
                await asked(site, clients)
                await until(lambda: site.count("accept_pauses_total") >= 3)
                held, elapsed = site.count("open_connections"), asyncio.get_running_loop().time() - began
            answers = await statuses(clients)

    assert held < COUNT
    assert elapsed > 1.5 * ACCEPT_PAUSE_S, "between three tries lie two pauses"
    assert answers == [b"HTTP/1.1 200 OK"] * COUNT
    assert [record.message for record in caplog.records].count("listener.accept_failed") == 1, "said once"
    assert [record.message for record in caplog.records].count("listener.accepts_again") == 1


@BOTH_LOOPS
async def test_an_accepted_connection_sends_small_answers_at_once(loop_name: str) -> None:
    async with serving(options={"host": "127.0.0.1"}) as site:
        client = await site.dial()
        client.send(get())
        await client.answer()
        assert site.listener._core is not None
        (connection,) = site.listener._core.caps.held
        sock = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined]

        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


@BOTH_LOOPS
async def test_who_is_accepted_while_the_listener_closes_is_turned_away(loop_name: str) -> None:
    with sockets(socket.AF_INET) as clients:
        async with serving(options={"host": "127.0.0.1"}) as site:
            server, core = site.listener._servers[0], site.listener._core
            assert core is not None
            for client in clients[:3]:
                await asyncio.get_running_loop().sock_connect(client, site.listener.addresses[0])
            server._accept(server.sockets[0])
            await site.listener.close()
            await settle()
            left = len(core.caps.held) + len(core.caps.refused) + len(core.accepting)
            ends = [await _end(client) for client in clients[:3]]

    assert left == 0
    assert ends == [b""] * 3


async def _end(client: socket.socket) -> bytes:
    try:
        return await asyncio.get_running_loop().sock_recv(client, 1)
    except ConnectionResetError:
        return b""


@BOTH_LOOPS
async def test_no_descriptor_is_left_behind_by_clients_that_come_and_go(loop_name: str) -> None:
    async def come_and_go(site: Site) -> int:
        for _ in range(20):
            client = socket.socket()
            client.setblocking(False)
            await asyncio.get_running_loop().sock_connect(client, site.listener.addresses[0])
            client.close()
        last = await site.dial()
        last.send(get())
        await last.answer()
        last.transport.abort()
        await until_empty(site)
        await settle(50)
        return descriptors()

    async with serving(options={"host": "127.0.0.1"}) as site:
        before = await come_and_go(site)
        after = await come_and_go(site)

    assert after <= before


class Queue:
    """A listening socket with so many newcomers in its queue, as far as an accept loop sees it."""

    def __init__(self, waiting: int) -> None:
        self.waiting = waiting

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        if not self.waiting:
            raise BlockingIOError
        self.waiting -= 1
        return socket.socket(), ("127.0.0.1", 1)


class Counting(Acceptor):
    """Hangs up on everybody, and counts."""

    def _admit(self, sock: socket.socket, address: tuple[str, int] | str) -> None:
        sock.close()


async def test_a_long_queue_is_taken_many_at_a_time_and_one_newcomer_without_a_second_look() -> None:
    async with serving() as site:
        assert site.listener._core is not None
        server, queue, taken = Counting(site.listener._core, []), Queue(500), []
        while queue.waiting:
            before = queue.waiting
            server._accept(queue)  # type: ignore[arg-type]
            taken.append(before - queue.waiting)
        server._accept(queue)  # type: ignore[arg-type]
        queue.waiting = 2
        server._accept(queue)  # type: ignore[arg-type]
        server.close()

    assert taken[:14] == [1] * 9 + [2, 4, 8, 16, 32]
    assert max(taken) == 32
    assert queue.waiting == 1, "after a short queue one is taken at a time again"


@BOTH_LOOPS
@pytest.mark.parametrize("moment", ["bound", "resumed"])
async def test_a_connection_has_no_deadline_of_whoever_bound_or_resumed_the_listener(
    loop_name: str, moment: str, private: Path
) -> None:
    def deadline(_request: Request) -> dict[str, str]:
        return {"deadline": repr(current_deadline())}

    async with serving([route(deadline)], {"host": "127.0.0.1"}) as site:
        with use_deadline(Deadline.after(5.0, site.inventory.clock.monotonic())):
            if moment == "bound":
                await site.listener.reconfigure(replace(site.listener.options, uds_path=private / "socket"))
            else:
                site.listener._servers[0]._pause(OSError("planted"))
        client = await site.dial()
        client.send(get("/it"))
        answer = await client.answer()

    assert answer.json() == {"deadline": "None"}
