"""OAP/1 on real sockets: who may connect, who may listen, and what raw bytes get for an answer."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from pathlib import Path
from typing import Self

import pytest

from penstock.contracts.call import Call, Origin
from penstock.kernel.child import ChildSpec, Drain
from penstock.kernel.errors import (
    Busy,
    DownstreamUnavailable,
    Forbidden,
    Malformed,
    NotReady,
    OverLimit,
    PenstockError,
    Timeout,
)
from penstock.kernel.supervisor import Supervisor
from penstock.net.oap.client import OapClient, OapClientOptions
from penstock.net.oap.connection import FrameTimeouts
from penstock.net.oap.service import OapServerOptions
from penstock.net.server.unix import listen_unix, remove_socket
from penstock.testing import until
from penstock.wire.oap import frame as oap
from penstock.wire.oap.frame import (
    END,
    REQ,
    RESP,
    START,
    Frame,
    FrameDecoder,
    encode,
)
from penstock.wire.oap.hello import Hello, hello_frame
from penstock.wire.oap.problem import decode_problem
from tests.net.oap.kit import (
    ECHO,
    Ask,
    Kit,
    Told,
    unix_options,
)

real = pytest.mark.real_loop
both = pytest.mark.parametrize(
    "loop_name",
    [
        pytest.param("uvloop", marks=pytest.mark.real_loop(loop="uvloop")),
        pytest.param("asyncio", marks=pytest.mark.real_loop(loop="asyncio")),
    ],
)


class Raw:
    """A peer that speaks bytes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._decoder = FrameDecoder()

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_unix_connection(str(self._path))
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self.writer.close()
        await self.writer.wait_closed()

    async def frame(self) -> Frame | None:
        """Return the next frame, or None at the end."""
        while True:
            data = await self.reader.read(65536)
            if frames := self._decoder.feed(data):
                assert len(frames) == 1
                return frames[0]
            if not data:
                return None

    async def problem(self) -> PenstockError:
        frame = await self.frame()
        assert frame is not None
        assert frame.flags == RESP | END
        return decode_problem(frame.code, frame.payload)


@both
async def test_call_over_a_unix_socket(loop_name: str, tmp_path: Path) -> None:
    async with Kit(unix_options(tmp_path)) as kit:
        big = os.urandom(900_000)

        assert await kit.echo_call(data=big) == Told(data=big)
        assert (await kit.echo_call(size=3_000_000)).data == bytes(3_000_000)


@both
async def test_call_over_tcp(loop_name: str) -> None:
    async with Kit(OapServerOptions(host="127.0.0.1")) as kit:
        client = OapClient(kit.client_inventory, OapClientOptions(host="127.0.0.1", port=kit.server.port))

        assert await client.call(ECHO, "echo", Ask("tcp")) == Told("tcp")
        await client.close()


@real
async def test_socket_is_0600_in_a_0700_directory_and_goes_with_the_server(tmp_path: Path) -> None:
    options = unix_options(tmp_path)
    path = options.uds_path
    async with Kit(options):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700

    assert not path.exists()


@real
async def test_origin_is_believed_from_our_own_user_on_the_unix_socket(tmp_path: Path) -> None:
    origin = Origin("GET", "/v1/o", "10.0.0.1", charged=True)
    async with Kit(unix_options(tmp_path)) as kit:
        await kit.echo_call("call", Call(origin=origin))

        assert kit.echo.calls[0].origin == origin


@real
async def test_peer_of_another_user_is_refused_before_a_byte_is_read(tmp_path: Path) -> None:
    async with Kit(unix_options(tmp_path)) as kit:
        kit.server.allowed_uids = frozenset({os.geteuid() + 1})
        async with Raw(kit.server.options.uds_path) as raw:
            raw.writer.write(encode(Frame(REQ | START | END, 1, code=1, app_proto_id=100)))

            assert isinstance(await raw.problem(), Forbidden)
            assert await raw.frame() is None
        assert kit.echo.seen == []


def test_directory_open_to_others_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)

    with pytest.raises(PermissionError, match="0700"):
        listen_unix(tmp_path / "x.sock")


def test_second_listener_is_refused_and_a_dead_ones_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "run" / "x.sock"
    first = listen_unix(path)
    with pytest.raises(OSError, match="already listens"):
        listen_unix(path)
    first.close()
    assert path.exists()

    listen_unix(path).close()


def test_file_in_the_place_of_the_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "run" / "x.sock"
    path.parent.mkdir(mode=0o700)
    path.write_text("precious")

    with pytest.raises(FileExistsError, match="not a socket"):
        listen_unix(path)
    assert path.read_text() == "precious"


def test_only_our_own_socket_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "run" / "x.sock"
    ours = listen_unix(path)
    inode = path.lstat().st_ino
    remove_socket(path, inode + 1)
    assert path.exists()

    remove_socket(path, inode)
    remove_socket(path, inode)
    assert not path.exists()
    ours.close()


@real
@pytest.mark.parametrize(
    ("junk", "status"),
    [
        (b"\0\0\0\0", 400),
        (b"\0\0\0\x25", 400),
        (b"\0\x10\0\x01", 413),
        (b"GET / HTTP/1.1\r\n\r\n", 413),
        (encode(Frame(REQ, 1))[:5] + b"\x02" + encode(Frame(REQ, 1))[6:], 400),
    ],
)
async def test_bytes_that_are_no_frame_get_one_answer_and_the_connection_is_closed(
    junk: bytes, status: int, tmp_path: Path
) -> None:
    async with Kit(unix_options(tmp_path)) as kit, Raw(kit.server.options.uds_path) as raw:
        raw.writer.write(junk + bytes(100_000))

        problem = await raw.problem()
        assert problem.status == status
        assert isinstance(problem, OverLimit if status == 413 else Malformed)
        assert await raw.frame() is None


@real
async def test_good_frames_before_the_fault_are_answered_first(tmp_path: Path) -> None:
    async with Kit(unix_options(tmp_path)) as kit, Raw(kit.server.options.uds_path) as raw:
        raw.writer.write(encode(hello_frame(Hello("raw"), 42)) + b"\0\0\0\0")

        data = await raw.reader.read()
        hello, fault = oap.decode_all(data)
        assert (hello.corr_id, hello.code) == (42, 200)
        assert fault.code == 400


@real
@pytest.mark.parametrize(
    "frames",
    [
        [Frame(REQ | START, 7, code=1, app_proto_id=100), Frame(REQ | START, 7, code=1, app_proto_id=100)],
        [Frame(REQ | END, 7, code=1, app_proto_id=100)],
        [Frame(RESP | END, 7, code=200, app_proto_id=100)],
        [Frame(0, 7)],
    ],
)
async def test_breach_of_the_stream_rules_is_400_and_the_connection_goes_on(
    frames: list[Frame], tmp_path: Path
) -> None:
    async with Kit(unix_options(tmp_path)) as kit, Raw(kit.server.options.uds_path) as raw:
        raw.writer.write(b"".join(map(encode, frames)))
        if frames[-1].flags:
            problem = await raw.problem()
            assert (problem.status, problem.code) == (400, "malformed")
        raw.writer.write(encode(hello_frame(Hello(), 8)))

        answer = await raw.frame()
        assert answer is not None
        assert (answer.corr_id, answer.code) == (8, 200)


@real
async def test_request_number_65_is_busy(tmp_path: Path) -> None:
    async with Kit(unix_options(tmp_path)) as kit, Raw(kit.server.options.uds_path) as raw:
        request = Frame(REQ | START, 0, code=2, app_proto_id=100)
        for corr_id in range(65):
            raw.writer.write(encode(Frame(request.flags, corr_id, 2, 100)))

        frame = await raw.frame()
        assert frame is not None
        assert frame.corr_id == 64
        assert isinstance(decode_problem(frame.code, frame.payload), Busy)


@real
async def test_peer_that_stops_in_the_middle_of_a_frame_is_cut_at_the_read_deadline(tmp_path: Path) -> None:
    options = unix_options(tmp_path, waits=FrameTimeouts(read_s=0.1))
    async with Kit(options) as kit, Raw(options.uds_path) as raw:
        raw.writer.write(encode(Frame(REQ | START, 1))[:-1])

        assert isinstance(await raw.problem(), Timeout)
        assert await raw.frame() is None
        assert kit.inventory.metrics.value("io_timeouts_total", op="oap_read") == 1


@real
async def test_peer_that_never_ends_its_request_is_cut_at_the_read_deadline(tmp_path: Path) -> None:
    options = unix_options(tmp_path, waits=FrameTimeouts(read_s=0.1))
    async with Kit(options), Raw(options.uds_path) as raw:
        raw.writer.write(encode(Frame(REQ | START, 1, code=1, app_proto_id=100)))

        assert isinstance(await raw.problem(), Timeout)


@real
async def test_client_hangs_up_on_a_server_that_talks_nonsense(tmp_path: Path) -> None:
    options = unix_options(tmp_path)

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" * 10)
        await reader.read()
        writer.close()

    kit = Kit(options)
    sock = listen_unix(options.uds_path)
    server = await asyncio.start_unix_server(babble, sock=sock)
    with pytest.raises(DownstreamUnavailable):
        await kit.echo_call()
    await kit.client.close()
    server.close()
    await server.wait_closed()


@real
async def test_server_as_a_supervised_child_drains_in_order(tmp_path: Path) -> None:
    kit = Kit(unix_options(tmp_path))
    spec = ChildSpec("oap", kit.server.run, critical=True, drain=Drain.STOP_INTAKE, announces=True)
    supervisor = Supervisor(kit.inventory, [spec])
    await supervisor.start()
    loop = asyncio.get_running_loop()
    open_call = loop.create_task(kit.echo_call("later"))
    await until(lambda: bool(kit.echo.replies))

    draining = loop.create_task(supervisor.drain(60.0))
    await until(lambda: kit.server.draining)
    with pytest.raises(NotReady):
        await kit.echo_call()
    kit.echo.replies[0].set_result(Told("finished"))
    assert await open_call == Told("finished")
    await draining
    assert not kit.server.options.uds_path.exists()
    await kit.client.close()


@real
async def test_unix_and_tcp_peers_are_told_apart(tmp_path: Path) -> None:
    left, right = socket.socketpair()
    from penstock.net.server.unix import peer_uid

    assert peer_uid(left) == os.geteuid()
    with socket.socket(socket.AF_INET) as tcp:
        assert peer_uid(tcp) is None
    left.close()
    right.close()
