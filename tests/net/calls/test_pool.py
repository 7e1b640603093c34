"""The pool: bounded places, a bounded and fair line for them, nothing kept too long, nothing lost to a cancel."""

from __future__ import annotations

import asyncio

import pytest

from penstock.kernel.errors import Busy, Canceled, DownstreamUnavailable
from penstock.testing.line import Weather
from tests.net.calls.peers import (
    URL,
    Peer,
    PeerConnection,
    Seen,
    answer,
    make_client,
    metric,
    pass_time,
    says,
    silent,
    turns,
)

OK = b"HTTP/1.1 200 OK\r\n"


class Held:
    """A script that answers only when told, in the order of the requests."""

    def __init__(self) -> None:
        self.waiting: list[PeerConnection] = []
        self.targets: list[str] = []

    def __call__(self, connection: PeerConnection, seen: Seen) -> None:
        self.waiting.append(connection)
        self.targets.append(seen.target)

    async def answer_next(self) -> None:
        self.waiting.pop(0).send(answer())
        await turns()


def start(client, target: str = "") -> asyncio.Task:
    return asyncio.get_running_loop().create_task(client.request("GET", URL + target))


async def test_no_more_connections_than_allowed_and_the_line_is_first_come_first_served() -> None:
    held = Held()
    peer = Peer(held)
    async with make_client(peer, connections_max=2) as client:
        calls = [start(client, f"/{n}") for n in range(6)]
        await turns()
        assert (peer.accepted, client.connections) == (2, 2)
        for _ in range(6):
            await held.answer_next()

        assert [(await call).status for call in calls] == [200] * 6
        assert (peer.accepted, held.targets) == (2, [f"/things/{n}" for n in range(6)])


async def test_full_line_refuses_and_counts() -> None:
    held = Held()
    async with make_client(Peer(held), connections_max=1, waiters_max=1) as client:
        calls = [start(client) for _ in range(2)]
        await turns()
        with pytest.raises(Busy):
            await client.request("GET", URL)

        assert metric(client, "queue_dropped_total", queue="client_waiters") == 1
        for call in calls:
            await held.answer_next()
            assert (await call).status == 200


async def test_a_caller_that_gives_up_while_being_served_passes_the_connection_on() -> None:
    held = Held()
    peer = Peer(held)
    async with make_client(peer, connections_max=1) as client:
        first, second, third = (start(client, f"/{n}") for n in range(3))
        await turns()
        held.waiting.pop(0).send(answer())
        while not first.done():
            await turns(1)
        second.cancel()
        await turns()
        await held.answer_next()

        assert (await third).status == 200
        assert second.cancelled()
        assert (peer.accepted, held.targets) == (1, ["/things/0", "/things/2"])


async def test_a_failed_dial_gives_its_place_to_the_next_in_line() -> None:
    peer = Peer(dial_s=1, refuses=ConnectionRefusedError(111, "no"))
    async with make_client(peer, connections_max=1, tries_max=1) as client:
        calls = [start(client) for _ in range(3)]
        for call in calls:
            with pytest.raises(DownstreamUnavailable):
                await call

        assert client.connections == 0


async def test_a_broken_connection_gives_its_place_to_the_next_in_line() -> None:
    held = Held()
    peer = Peer(held)
    async with make_client(peer, connections_max=1, tries_max=1) as client:
        first, second = start(client), start(client)
        await turns()
        held.waiting.pop(0).reset()
        with pytest.raises(DownstreamUnavailable):
            await first
        await turns()
        await held.answer_next()

        assert (await second).status == 200
        assert peer.accepted == 2


async def test_idle_connections_are_closed_when_their_time_is_up_and_not_before() -> None:
    held = Held()
    peer = Peer(held)
    async with make_client(peer, idle_s=30, timeout_s=60) as client:
        calls = [start(client), start(client)]
        await turns()
        await held.answer_next()
        await pass_time(20)
        await held.answer_next()
        assert [call.done() for call in calls] == [True, True]
        assert (client.connections, len(peer.open)) == (2, 2)

        await pass_time(11)
        assert (client.connections, len(peer.open)) == (1, 1)
        await pass_time(20)
        assert (client.connections, len(peer.open)) == (0, 0)


async def test_a_connection_the_peer_closed_while_idle_is_forgotten_at_once() -> None:
    peer = Peer()
    async with make_client(peer) as client:
        await client.request("GET", URL)
        peer.open[0].hang_up()
        await turns()

        assert client.connections == 0
        assert (await client.request("POST", URL)).status == 200


async def test_origins_are_bounded_and_an_unused_one_makes_room() -> None:
    peer = Peer()
    async with make_client(peer, origins_max=2) as client:
        for name in ("a", "b", "c", "d"):
            assert (await client.request("GET", f"http://{name}/")).status == 200
        await turns()

        assert (client.connections, len(peer.open)) == (2, 2)


async def test_origins_in_use_are_not_forgotten() -> None:
    peer = Peer(says(OK, b"\r\n"))
    async with make_client(peer, origins_max=1) as client, client.stream("GET", "http://a/"):
        with pytest.raises(Busy):
            await client.request("GET", "http://b/")


async def test_origin_whose_call_waits_for_its_next_try_is_not_forgotten() -> None:
    peer = Peer(refuses=ConnectionRefusedError(111, "no"))
    async with make_client(peer, origins_max=1) as client:
        call = start(client)
        await turns()
        with pytest.raises(Busy):
            await client.request("GET", "http://b/")
        peer.refuses = None

        assert (await call).status == 200


async def test_close_ends_a_call_that_waits_for_its_next_try() -> None:
    peer = Peer(says(answer(b"", "503 Unavailable", "Retry-After: 5")))
    client = make_client(peer)
    call = start(client)
    await pass_time(1)
    await client.close()
    began_at = asyncio.get_running_loop().time()

    with pytest.raises(Canceled):
        await call
    assert (asyncio.get_running_loop().time() - began_at, len(peer.seen)) == (0, 1)


@pytest.mark.parametrize("script", [silent, says(OK, b"Content-Length: 9\r\n\r\nhello")])
async def test_close_ends_calls_waiters_and_sockets_at_once(script) -> None:
    peer = Peer(script)
    client = make_client(peer, connections_max=2)
    calls = [start(client) for _ in range(4)]
    await turns()
    began_at = asyncio.get_running_loop().time()
    await client.close()

    assert asyncio.get_running_loop().time() == began_at
    for call in calls:
        with pytest.raises(Canceled):
            await call
    await turns()
    assert (client.connections, peer.open) == (0, [])


async def test_close_while_dialling_is_bounded_and_the_dial_comes_to_nothing() -> None:
    peer = Peer(dial_s=1.5)
    client = make_client(peer, close_timeout_s=1)
    call = start(client)
    await turns()
    began_at = asyncio.get_running_loop().time()
    await client.close()

    assert asyncio.get_running_loop().time() - began_at == pytest.approx(1)
    with pytest.raises(Canceled):
        await call
    await turns()
    assert (client.connections, peer.open) == (0, [])


async def test_close_of_a_stream_in_use_tells_its_reader() -> None:
    peer = Peer(says(OK, b"Content-Length: 9\r\n\r\nhello"))
    client = make_client(peer)
    async with client.stream("GET", URL) as got:
        assert await anext(got) == b"hello"
        await client.close()
        with pytest.raises(Canceled):
            await anext(got)


# --- streams


async def test_slow_reader_holds_the_peer_back() -> None:
    size = 5_000_000
    peer = Peer(says(OK, b"Content-Length: %d\r\n\r\n" % size, b"x" * size))
    async with make_client(peer) as client:
        async with client.stream("GET", URL) as got:
            await turns(200)
            unsent = peer.open[0].transport.get_write_buffer_size()
            body_bytes = sum([len(piece) async for piece in got])

        assert unsent > size - 600_000
        assert body_bytes == size
        assert (await client.request("HEAD", URL)).status == 200
        assert peer.accepted == 1


async def test_stream_left_early_costs_the_connection_but_one_fully_received_does_not() -> None:
    peer = Peer(says(OK, b"Content-Length: 9\r\n\r\nhello"))
    async with make_client(peer) as client:
        async with client.stream("GET", URL) as got:
            await anext(got)
        await turns()
        assert (got.complete, client.connections, peer.open) == (False, 0, [])

        peer.script = says(answer())
        async with client.stream("GET", URL):
            pass
        assert client.connections == 1


async def test_streamed_answer_that_is_cut_raises_after_its_last_piece() -> None:
    peer = Peer(says(OK, b"Content-Length: 9\r\n\r\nhello"))
    async with make_client(peer) as client, client.stream("GET", URL) as got:
        peer.open[0].hang_up()

        assert await anext(got) == b"hello"
        with pytest.raises(DownstreamUnavailable) as caught:
            await anext(got)
        assert (caught.value.status, got.complete) == (502, False)


async def test_streamed_answer_is_not_for_use_after_its_block() -> None:
    async with make_client(Peer()) as client:
        async with client.stream("GET", URL) as got:
            assert await got.read(10) == b"ok"

        with pytest.raises(RuntimeError):
            await anext(got)


async def test_upload_and_answer_in_any_cut_of_the_bytes() -> None:
    for size in (1, 2, 3, 7):
        peer = Peer(back=Weather(chunk_bytes=size), there=Weather(chunk_bytes=size))
        async with make_client(peer) as client:
            assert (await client.request("POST", URL, body=b"x" * 100)).body == b"ok"
            assert (await client.request("POST", URL, body=b"y")).body == b"ok"

        assert ([seen.body for seen in peer.seen], peer.accepted) == ([b"x" * 100, b"y"], 1)
