"""Every wait of the client ends by a deadline, with its name, its count, and no connection left behind."""

from __future__ import annotations

import asyncio

import pytest

from penstock.kernel.deadline import Deadline, use_deadline
from penstock.kernel.errors import Timeout
from penstock.testing.line import Weather
from tests.net.calls.peers import (
    URL,
    Peer,
    answer,
    make_client,
    metric,
    pass_time,
    says,
    silent,
    turns,
)

OK = b"HTTP/1.1 200 OK\r\n"


def now() -> float:
    return asyncio.get_running_loop().time()


async def assert_times_out(client, op: str, after_s: float, **said) -> None:
    began_at = now()
    with pytest.raises(Timeout) as caught:
        await client.request(said.pop("method", "POST"), URL, **said)
    await turns()
    assert (caught.value.op, caught.value.status) == (op, 504)
    assert now() - began_at == pytest.approx(after_s, abs=0.01)
    assert client.connections == 0


async def test_dialling_ends_at_the_connect_timeout() -> None:
    async with make_client(Peer(dial_s=60), connect_timeout_s=2) as client:
        await assert_times_out(client, "connect", 2)

        assert metric(client, "io_timeouts_total", op="connect") == 1


async def test_waiting_for_the_answer_ends_with_the_calls_own_time() -> None:
    async with make_client(Peer(silent), read_timeout_s=1) as client:
        await assert_times_out(client, "read", 7, timeout_s=7)

        assert metric(client, "io_timeouts_total", op="read") == 1


async def test_a_head_that_drips_ends_with_the_calls_own_time() -> None:
    peer = Peer(says(answer()), back=Weather(chunk_bytes=1, gap_s=1))
    async with make_client(peer) as client:
        await assert_times_out(client, "read", 10)


async def test_a_body_that_falls_silent_ends_at_the_read_timeout() -> None:
    peer = Peer(says(OK, b"Content-Length: 9\r\n\r\nhello"))
    async with make_client(peer, read_timeout_s=3) as client:
        await assert_times_out(client, "read", 3)


async def test_a_body_that_drips_ends_with_the_calls_own_time() -> None:
    peer = Peer(says(OK, b"Content-Length: 9000\r\n\r\n", b"x" * 9000), back=Weather(chunk_bytes=1000, gap_s=2))
    async with make_client(peer, read_timeout_s=3) as client:
        await assert_times_out(client, "read", 10)


async def test_a_peer_that_takes_nothing_ends_at_the_write_timeout() -> None:
    peer = Peer(silent, there=Weather(stall_at_byte=10))
    async with make_client(peer, write_timeout_s=4) as client:
        await assert_times_out(client, "write", 4, body=b"x" * 1_000_000)

        assert metric(client, "io_timeouts_total", op="write") == 1


async def test_a_body_source_that_stops_ends_with_the_calls_own_time() -> None:
    async def source():
        yield b"one"
        await pass_time(3600)

    async with make_client(Peer()) as client:
        await assert_times_out(client, "request_body", 10, body=source())


async def test_waiting_in_line_ends_with_the_calls_own_time() -> None:
    peer = Peer(says(OK, b"\r\n"))
    async with make_client(peer, connections_max=1) as client, client.stream("GET", URL):
        began_at = now()
        with pytest.raises(Timeout) as caught:
            await client.request("GET", URL, timeout_s=3)

        assert (caught.value.op, now() - began_at) == ("acquire", pytest.approx(3, abs=0.01))
        assert metric(client, "io_timeouts_total", op="acquire") == 1


@pytest.mark.parametrize("peer", [Peer(silent), Peer(dial_s=60), Peer(silent, there=Weather(stall_at_byte=10))])
async def test_the_callers_deadline_clips_every_wait(peer: Peer) -> None:
    began_at = now()
    async with make_client(peer) as client:
        with use_deadline(Deadline.after(0.5, began_at)), pytest.raises(Timeout):
            await client.request("POST", URL, body=b"x" * 1_000_000)

        assert now() - began_at == pytest.approx(0.5, abs=0.01)


async def test_a_call_whose_time_is_over_is_not_sent() -> None:
    peer = Peer()
    async with make_client(peer) as client:
        await client.request("GET", URL)
        with use_deadline(Deadline.after(0, now())), pytest.raises(Timeout):
            await client.request("GET", URL)

        assert (len(peer.seen), client.connections) == (1, 1)


async def test_streamed_answer_is_bound_by_each_read_not_by_the_call() -> None:
    peer = Peer(says(OK, b"Content-Length: 20000\r\n\r\n", b"x" * 20000), back=Weather(chunk_bytes=1000, gap_s=2))
    began_at = now()
    async with make_client(peer, read_timeout_s=3) as client:
        async with client.stream("GET", URL) as got:
            body = b"".join([piece async for piece in got])

        assert (len(body), got.complete) == (20000, True)
        assert now() - began_at > 30
