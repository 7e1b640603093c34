"""Memory transports keep asyncio's contract, as real sockets do, and break where they are told to."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from penstock.testing.leaks import Leaks
from penstock.testing.line import Weather
from penstock.testing.session import Session, new_real_loop, run, run_with
from penstock.testing.transport import memory_pair


class Recorder(asyncio.Protocol):
    """Writes down what happens to it."""

    def __init__(self, *, keep_open: bool = False) -> None:
        self.log: list[str] = []
        self.pieces: list[bytes] = []
        self.times: list[float] = []
        self.error: Exception | None = None
        self.made = asyncio.Event()
        self.lost = asyncio.Event()
        self.ended = asyncio.Event()
        self.keep_open = keep_open
        self.transport: asyncio.Transport

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)

    def connection_made(self, transport) -> None:
        self.transport = transport
        self.log.append("made")
        self.made.set()

    def data_received(self, data: bytes) -> None:
        self.pieces.append(data)
        self.times.append(asyncio.get_running_loop().time())

    def eof_received(self) -> bool:
        self.log.append("eof")
        self.ended.set()
        return self.keep_open

    def pause_writing(self) -> None:
        self.log.append("pause")

    def resume_writing(self) -> None:
        self.log.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self.log.append("lost" if exc is None else type(exc).__name__)
        self.lost.set()


class BufferedRecorder(asyncio.BufferedProtocol):
    """Takes its data into a small buffer of its own."""

    def __init__(self) -> None:
        self.room = bytearray(7)
        self.data = b""

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.room

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self.room[:nbytes]


async def in_memory(a: Recorder, b: Recorder):
    memory_pair(a, b)


async def by_sockets(a: Recorder, b: Recorder):
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: b, "127.0.0.1", 0)
    await loop.create_connection(lambda: a, *server.sockets[0].getsockname())
    await b.made.wait()
    server.close()


async def half_close(a: Recorder, b: Recorder) -> None:
    b.keep_open = True
    a.transport.write(b"question")
    a.transport.write_eof()
    await b.ended.wait()
    b.transport.write(b"answer")
    b.transport.close()
    await a.lost.wait()
    await b.lost.wait()


async def close_after_write(a: Recorder, b: Recorder) -> None:
    a.transport.write(b"x" * 300_000)
    a.transport.close()
    a.transport.write(b"ignored after close")
    await b.lost.wait()
    await a.lost.wait()


async def abort(a: Recorder, b: Recorder) -> None:
    a.transport.abort()
    await a.lost.wait()
    await b.lost.wait()


async def close_twice(a: Recorder, b: Recorder) -> None:
    a.transport.close()
    a.transport.close()
    a.transport.abort()
    await a.lost.wait()
    await b.lost.wait()


STORIES = [half_close, close_after_write, close_twice]


async def events(connect, story) -> list[object]:
    a, b = Recorder(), Recorder()
    await connect(a, b)
    await story(a, b)
    # How much a socket takes before it pushes back is the system's business.
    flow = {"pause", "resume"}
    return [(side.data, [event for event in side.log if event not in flow]) for side in (a, b)]


@pytest.mark.parametrize("story", STORIES)
def test_a_memory_connection_tells_the_same_story_as_a_socket(story) -> None:
    memory = run(events(in_memory, story))
    socket = run_with(lambda: events(by_sockets, story), Session(new_real_loop("asyncio")))

    assert memory == socket


async def test_an_abort_ends_both_sides_and_resets_the_peer() -> None:
    a, b = Recorder(), Recorder()
    memory_pair(a, b)
    await abort(a, b)

    assert a.log == ["made", "lost"]
    assert b.log == ["made", "ConnectionResetError"]


async def test_bytes_arrive_in_order_after_the_latency() -> None:
    a, b = Recorder(), Recorder()
    memory_pair(a, b, 0.25)
    began = asyncio.get_running_loop().time()
    a.transport.write(b"one")
    a.transport.writelines([b"two", b"three"])
    a.transport.close()
    await b.lost.wait()

    assert b.pieces == [b"one", b"twothree"]
    assert b.times == [began + 0.25] * 2


@pytest.mark.parametrize("size", [1, 2, 3, 100])
async def test_writes_are_cut_into_pieces_and_nothing_is_lost(size) -> None:
    a, b = Recorder(), Recorder()
    memory_pair(a, b, a_to_b=Weather(chunk_bytes=size))
    a.transport.write(b"GET / HTTP/1.1\r\n\r\n")
    a.transport.close()
    await b.lost.wait()

    assert b.data == b"GET / HTTP/1.1\r\n\r\n"
    assert max(map(len, b.pieces)) == min(size, 18)


async def test_a_split_is_where_it_was_asked_for_across_writes() -> None:
    a, b = Recorder(), Recorder()
    memory_pair(a, b, a_to_b=Weather(split_at=frozenset({2, 5, 99})))
    a.transport.write(b"abc")
    a.transport.write(b"defg")
    a.transport.close()
    await b.lost.wait()

    assert b.pieces == [b"ab", b"c", b"de", b"fg"]


async def test_a_slow_drip_takes_its_time() -> None:
    a, b = Recorder(), Recorder()
    memory_pair(a, b, a_to_b=Weather(chunk_bytes=1, gap_s=4.9))
    began = asyncio.get_running_loop().time()
    a.transport.write(b"x" * 735)
    a.transport.close()
    await b.lost.wait()

    assert b.times[-1] - began == pytest.approx(4.9 * 734)
    assert len(b.pieces) == 735


async def test_a_stalled_line_keeps_its_bytes_until_released() -> None:
    a, b = Recorder(), Recorder()
    near, _ = memory_pair(a, b, a_to_b=Weather(stall_at_byte=3))
    a.transport.write(b"abcdef")
    await asyncio.sleep(3600)

    assert b.data == b"abc"
    near.line.release()
    await asyncio.sleep(0)
    assert b.data == b"abcdef"
    near.line.stall()
    a.transport.write(b"g")
    a.transport.close()
    await asyncio.sleep(60)
    assert b.data == b"abcdef"
    near.line.release()
    await b.lost.wait()
    assert b.data == b"abcdefg"


@pytest.mark.parametrize("byte", range(7))
async def test_a_connection_lost_at_a_byte_delivers_exactly_that_many(byte) -> None:
    a, b = Recorder(), Recorder()
    memory_pair(a, b, a_to_b=Weather(reset_at_byte=byte))
    a.transport.write(b"abcd")
    a.transport.write(b"efgh")
    await a.lost.wait()
    await b.lost.wait()

    assert b.data == b"abcdefgh"[:byte]
    assert isinstance(a.error, ConnectionResetError)
    assert isinstance(b.error, ConnectionResetError)


async def test_a_reader_that_pauses_pushes_back_on_the_writer() -> None:
    a, b = Recorder(), Recorder()
    near, far = memory_pair(a, b, a_to_b=Weather(window_bytes=1000))
    near.set_write_buffer_limits(high=500)
    far.pause_reading()
    near.write(b"x" * 1400)
    await asyncio.sleep(1)

    assert near.get_write_buffer_size() == 400
    assert a.log == ["made"]
    near.write(b"x" * 200)
    assert a.log == ["made", "pause"]
    assert near.get_write_buffer_limits() == (125, 500)
    assert b.data == b""
    far.resume_reading()
    await asyncio.sleep(1)
    assert len(b.data) == 1600
    assert a.log == ["made", "pause", "resume"]
    near.close()
    await b.lost.wait()


async def test_close_waits_for_a_slow_reader_before_the_connection_is_lost() -> None:
    a, b = Recorder(), Recorder()
    near, far = memory_pair(a, b, a_to_b=Weather(window_bytes=10))
    far.pause_reading()
    near.write(b"x" * 25)
    near.close()
    await asyncio.sleep(60)

    assert not a.lost.is_set()
    far.resume_reading()
    await b.lost.wait()
    assert len(b.data) == 25
    assert a.lost.is_set()


async def test_closing_with_unread_input_resets_the_peer_and_its_answer_is_lost() -> None:
    a, b = Recorder(), Recorder()
    _, far = memory_pair(a, b)
    far.pause_reading()
    a.transport.write(b"a body nobody reads")
    await asyncio.sleep(1)
    far.write(b"413")
    far.close()
    await a.lost.wait()

    assert isinstance(a.error, ConnectionResetError)
    assert a.data == b""


async def test_input_after_a_close_resets_the_sender() -> None:
    a, b = Recorder(keep_open=True), Recorder()
    memory_pair(a, b)
    b.transport.write(b"bye")
    b.transport.close()
    await a.ended.wait()
    a.transport.write(b"more")
    await a.lost.wait()

    assert a.data == b"bye"
    assert isinstance(a.error, ConnectionResetError)


async def test_a_buffered_protocol_is_fed_through_its_own_buffer() -> None:
    a, b = Recorder(), BufferedRecorder()
    memory_pair(a, b)
    a.transport.write(b"0123456789" * 3)
    await asyncio.sleep(0)

    assert b.data == b"0123456789" * 3
    a.transport.close()


async def test_streams_work_on_a_memory_connection() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    peer = Recorder()
    near, _ = memory_pair(protocol, peer)
    writer = asyncio.StreamWriter(near, protocol, reader, loop)
    writer.write(b"hello")
    await writer.drain()
    await asyncio.sleep(0)
    peer.transport.write(b"line\n")

    assert await reader.readline() == b"line\n"
    assert peer.data == b"hello"
    writer.close()
    await writer.wait_closed()


async def test_the_transport_describes_itself() -> None:
    a, b = Recorder(), Recorder()
    near, far = memory_pair(a, b)

    assert near.get_extra_info("peername") == far.get_extra_info("sockname")
    assert near.get_extra_info("ssl_object", "none") == "none"
    assert near.can_write_eof()
    assert near.get_protocol() is a
    assert near.is_reading()
    other = Recorder()
    near.set_protocol(other)
    far.write(b"x")
    far.close()
    await other.lost.wait()
    assert other.data == b"x"
    assert a.data == b""


async def test_misuse_is_refused_as_asyncio_does() -> None:
    a, b = Recorder(), Recorder(keep_open=True)
    near, far = memory_pair(a, b)
    with pytest.raises(TypeError, match="bytes-like"):
        near.write("text")
    with pytest.raises(ValueError, match="must be >="):
        near.set_write_buffer_limits(high=1, low=2)
    near.write_eof()
    with pytest.raises(RuntimeError, match="write_eof"):
        near.write(b"late")
    far.close()
    near.close()


def test_an_error_in_a_protocol_ends_its_connection_and_fails_the_test() -> None:
    class Faulty(Recorder):
        def data_received(self, data: bytes) -> None:
            raise KeyError("planted")

    async def scenario() -> None:
        a, b = Recorder(), Faulty()
        memory_pair(a, b)
        a.transport.write(b"x")
        await b.lost.wait()
        a.transport.close()

    with pytest.raises(Leaks, match=r"exception in the loop.*KeyError\('planted'\)"):
        run(scenario())


def test_a_connection_left_open_fails_the_test() -> None:
    async def scenario() -> None:
        memory_pair(Recorder(), Recorder())

    with pytest.raises(Leaks, match="unclosed resource: memory connection"):
        run(scenario())


async def test_both_sides_may_write_without_end() -> None:
    class Echo(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.write(data)

    a, b = Echo(), Echo()
    memory_pair(a, b, 0.5)
    a.transport.write(b"ball")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(59.75):
            await a.lost.wait()

    assert len(a.pieces) == 59
    a.transport.abort()
    await b.lost.wait()
