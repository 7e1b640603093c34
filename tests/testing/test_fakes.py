"""The fakes keep the contracts they stand for."""

from __future__ import annotations

import asyncio

import pytest

from penstock.kernel.clock import Clock
from penstock.testing.fakes import (
    Close,
    Expect,
    ExpectUntil,
    HalfClose,
    Pause,
    Reset,
    ScriptedDownstream,
    ScriptedRandom,
    SendBytes,
    VirtualClock,
)
from penstock.testing.leaks import Leaks
from penstock.testing.line import Weather
from penstock.testing.session import run
from penstock.testing.transport import memory_pair


def test_the_clock_moves_both_hands_and_only_the_wall_may_jump() -> None:
    clock: Clock = (virtual := VirtualClock(monotonic_s=5, wall_s=100))
    virtual.advance(2.5)
    virtual.set_wall(10)

    assert (clock.monotonic(), clock.wall()) == (7.5, 10)
    virtual.advance(1)
    assert (clock.monotonic(), clock.wall()) == (8.5, 11)
    with pytest.raises(ValueError, match="forward"):
        virtual.advance(-1)


def test_scripted_numbers_come_in_turn_and_steer_every_draw() -> None:
    rng = ScriptedRandom(0.0, 0.5, 0.999)

    assert [rng.random() for _ in range(4)] == [0.0, 0.5, 0.999, 0.0]
    assert rng.uniform(10, 20) == 15
    assert ScriptedRandom(0.0).choice("abcd") == "a"
    assert ScriptedRandom(0.999).choice("abcd") == "d"
    assert ScriptedRandom(0.5).randrange(8) == 4


@pytest.mark.parametrize("numbers", [(), (1.0,), (-0.1,)])
def test_numbers_a_generator_could_not_draw_are_refused(numbers) -> None:
    with pytest.raises(ValueError, match="from 0"):
        ScriptedRandom(*numbers)


class Caller(asyncio.Protocol):
    """The peer of a downstream."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.times: list[float] = []
        self.error: Exception | None = None
        self.lost = asyncio.Event()
        self.transport: asyncio.Transport

    def connection_made(self, transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.times.append(asyncio.get_running_loop().time())

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self.lost.set()


async def test_a_downstream_follows_its_script_in_virtual_time() -> None:
    script = [ExpectUntil(b"\r\n\r\n"), Expect(b"body"), SendBytes(b"200"), Pause(30), SendBytes(b" OK"), Close()]
    caller, server = Caller(), ScriptedDownstream(script)
    memory_pair(caller, server)
    began = asyncio.get_running_loop().time()
    caller.transport.write(b"POST / HTTP/1.1\r\n\r\nbody")
    await caller.lost.wait()

    assert caller.data == b"200 OK"
    assert caller.times == [began, began + 30]
    assert server.finished
    assert server.received.endswith(b"body")


async def test_a_script_does_not_care_how_its_input_is_cut() -> None:
    script = [
        Expect(b"ab"),
        SendBytes(b"1"),
        ExpectUntil(b"\n"),
        SendBytes(b"2"),
        HalfClose(),
        ExpectUntil(b"."),
        Close(),
    ]
    caller, server = Caller(), ScriptedDownstream(script)
    caller.eof_received = lambda: True
    memory_pair(caller, server, a_to_b=Weather(chunk_bytes=1))
    caller.transport.write(b"abc\n.")
    await asyncio.sleep(1)

    assert caller.data == b"12"
    assert server.finished
    caller.transport.close()
    await caller.lost.wait()


async def test_a_finished_script_is_a_server_that_stalls() -> None:
    caller, server = Caller(), ScriptedDownstream([Expect(b"a")])
    memory_pair(caller, server)
    caller.transport.write(b"a")
    await asyncio.sleep(3600)

    assert server.finished
    assert not caller.lost.is_set()
    caller.transport.close()
    await caller.lost.wait()


async def test_a_script_can_cut_the_connection() -> None:
    caller, server = Caller(), ScriptedDownstream([Pause(1), SendBytes(b"half"), Pause(1), Reset()])
    memory_pair(caller, server)
    await caller.lost.wait()

    assert caller.data == b"half"
    assert isinstance(caller.error, ConnectionResetError)


async def test_a_script_stops_when_its_peer_leaves() -> None:
    caller, server = Caller(), ScriptedDownstream([Pause(10), SendBytes(b"late")])
    memory_pair(caller, server)
    caller.transport.abort()
    await asyncio.sleep(60)

    assert server.lost
    assert not server.finished


def test_input_that_breaks_the_script_fails_the_test() -> None:
    async def scenario() -> None:
        caller, server = Caller(), ScriptedDownstream([Expect(b"GET")])
        memory_pair(caller, server)
        caller.transport.write(b"PUT")
        await caller.lost.wait()

    with pytest.raises(Leaks, match=r"expected b'GET', got b'PUT'"):
        run(scenario())


@pytest.mark.real_loop
async def test_a_script_plays_on_real_sockets_too() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: ScriptedDownstream([Expect(b"hi"), SendBytes(b"ho"), Close()]), "127.0.0.1", 0
    )
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"hi")

    assert await reader.read() == b"ho"
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()
