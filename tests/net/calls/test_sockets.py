"""The client on real sockets: TCP, TLS and Unix, on both loops, with peers that refuse, reset and lie."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ipaddress
import socket
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from penstock.kernel.deadline import Deadline, current_deadline, use_deadline
from penstock.kernel.errors import DownstreamUnavailable, Timeout
from penstock.kernel.inventory import Inventory
from penstock.net.calls.client import ClientOptions, HttpClient
from penstock.net.calls.connection import ClientConnection
from penstock.net.calls.origin import parse_url
from penstock.net.calls.pool import ClientShared
from tests.net.calls.peers import (
    Peer,
    PeerConnection,
    answer,
    in_turn,
    says,
)

LOOPS = [pytest.param(name, marks=pytest.mark.real_loop(loop=name)) for name in ("uvloop", "asyncio")]
OK = b"HTTP/1.1 200 OK\r\n"


@contextlib.asynccontextmanager
async def listening(peer: Peer, tls: ssl.SSLContext | None = None):
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: PeerConnection(peer), "127.0.0.1", 0, ssl=tls)
    try:
        port = server.sockets[0].getsockname()[1]
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    finally:
        server.close()
        for connection in tuple(peer.open):
            connection.reset()
        await server.wait_closed()


def new_client(**options) -> HttpClient:
    return HttpClient(Inventory("test"), ClientOptions(service="peer", **options))


def open_files() -> int:
    files = Path("/proc/self/fd")
    return len(list(files.iterdir())) if files.exists() else 0


async def no_more_files_than(before: int) -> None:
    """Wait until what was opened since is closed, by the other side too; the test's watchdog is the bound."""
    while open_files() > before:  # noqa: ASYNC110 - nothing tells us
        await asyncio.sleep(0)


@pytest.mark.parametrize("loop", LOOPS)
async def test_calls_over_tcp_reuse_one_connection_and_leave_no_file_open(loop: str) -> None:
    peer = Peer(in_turn(says(answer(b"x" * 1_000_000)), says(answer())))
    async with listening(peer) as url:
        before = open_files()
        async with new_client() as client:
            assert len((await client.request("GET", url + "/")).body) == 1_000_000
            assert (await client.request("POST", url + "/", body=b"y" * 1_000_000)).body == b"ok"
        await peer.gone()

        assert (peer.accepted, len(peer.seen[1].body)) == (1, 1_000_000)
        await no_more_files_than(before)


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_kept_connection_is_not_under_the_deadline_of_who_dialled_it(loop: str) -> None:
    felt: asyncio.Future[Deadline | None] = asyncio.get_running_loop().create_future()

    class Watching(ClientConnection):
        def buffer_updated(self, nbytes: int) -> None:
            felt.set_result(current_deadline())
            super().buffer_updated(nbytes)

    async with listening(Peer(says(answer()))) as url:
        origin, _ = parse_url(url)
        shared = ClientShared(ClientOptions(service="peer"), Inventory("test").metrics)
        connection = Watching(shared.buffer, shared.timeouts, lambda _: None)
        with use_deadline(Deadline.after(30.0, asyncio.get_running_loop().time())):
            await shared.dial(origin, connection)
        connection._transport.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        found = await felt
        connection.abort()

    assert found is None


@pytest.mark.parametrize("loop", LOOPS)
async def test_streams_over_tcp_hold_the_peer_back(loop: str) -> None:
    size = 20_000_000
    peer = Peer(says(OK, b"Content-Length: %d\r\n\r\n" % size, bytes(size)))
    async with listening(peer) as url, new_client() as client, client.stream("GET", url) as got:
        await anext(got)
        for _ in range(50):
            await asyncio.sleep(0)
        assert peer.open[0].transport.get_write_buffer_size() > 1_000_000

        assert sum([len(piece) async for piece in got]) > size - 300_000
        assert got.complete


@pytest.mark.parametrize("loop", LOOPS)
async def test_calls_over_a_unix_socket(loop: str, tmp_path: Path) -> None:
    peer, path = Peer(), str(tmp_path / "peer.sock")
    server = await asyncio.get_running_loop().create_unix_server(lambda: PeerConnection(peer), path)
    async with new_client() as client:
        got = await client.request("GET", f"unix:{path}:/v1/x?y=1")
    server.close()
    await peer.gone()
    await server.wait_closed()

    assert (got.status, peer.seen[0].target, peer.seen[0].headers[b"host"]) == (200, "/v1/x?y=1", b"localhost")


@pytest.mark.parametrize("loop", LOOPS)
async def test_nobody_there_is_unavailable(loop: str, tmp_path: Path) -> None:
    async with new_client(tries_max=1) as client:
        for nowhere in ("http://127.0.0.1:1/", f"unix:{tmp_path}/none.sock"):
            with pytest.raises(DownstreamUnavailable) as caught:
                await client.request("GET", nowhere)
            assert caught.value.status == 503
        # Where nobody answers for names either, it is the connect deadline that ends it.
        with pytest.raises((DownstreamUnavailable, Timeout)) as unnamed:
            await client.request("GET", "http://no-such-host.invalid/")
        assert unnamed.value.status in (503, 504)


@pytest.mark.parametrize("loop", LOOPS)
async def test_reset_in_the_middle_of_an_answer_is_a_bad_gateway(loop: str) -> None:
    peer = Peer(says(OK, b"\r\nhello"))
    async with listening(peer) as url, new_client(tries_max=1) as client:
        async with client.stream("GET", url) as got:
            assert await anext(got) == b"hello"
            peer.open[0].reset()
            with pytest.raises(DownstreamUnavailable) as caught:
                await anext(got)

        assert (caught.value.status, got.complete) == (502, False)


@pytest.mark.parametrize("loop", LOOPS)
async def test_cancelled_dial_and_cancelled_read_leave_no_file_open(loop: str) -> None:
    peer = Peer(lambda *_: None)
    async with listening(peer) as url:
        before = open_files()
        async with new_client() as client:
            for turns in range(12):
                call = asyncio.get_running_loop().create_task(client.request("GET", url))
                for _ in range(turns):
                    await asyncio.sleep(0)
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
        await peer.gone()
        await no_more_files_than(before)


# --- TLS


def certificate(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Make a certificate for 127.0.0.1; return the peer's context and one that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "peer")])
    began = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(began).not_valid_after(began + dt.timedelta(days=36500))
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    signed = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    cert_path, key_path = folder / "cert.pem", folder / "key.pem"
    cert_path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(cert_path, key_path)
    return served, ssl.create_default_context(cafile=str(cert_path))


@pytest.mark.parametrize("loop", LOOPS)
async def test_calls_over_tls_verify_the_peer_and_reuse_the_connection(loop: str, tmp_path: Path) -> None:
    served, trusting = certificate(tmp_path)
    peer = Peer(in_turn(says(answer(b"x" * 500_000)), says(answer())))
    async with listening(peer, served) as url:
        async with new_client(tls=trusting) as client:
            assert len((await client.request("GET", url)).body) == 500_000
            assert (await client.request("POST", url, body=b"y" * 500_000)).body == b"ok"
        await peer.gone()

    assert (peer.accepted, len(peer.seen[1].body)) == (1, 500_000)


@pytest.mark.parametrize("loop", LOOPS)
async def test_peer_whose_certificate_nobody_vouches_for_is_unavailable(loop: str, tmp_path: Path) -> None:
    served, _ = certificate(tmp_path)
    peer = Peer()
    async with listening(peer, served) as url, new_client(tries_max=1) as client:
        with pytest.raises(DownstreamUnavailable) as caught:
            await client.request("GET", url)

        assert (caught.value.status, client.connections, peer.seen) == (503, 0, [])
        assert "TLS failed" in caught.value.detail


@pytest.mark.parametrize("loop", LOOPS)
async def test_plain_peer_behind_https_is_unavailable(loop: str) -> None:
    peer = Peer(greeting=b"220 plain text\r\n")
    async with listening(peer) as url, new_client(tries_max=1) as client:
        with pytest.raises(DownstreamUnavailable):
            await client.request("GET", url.replace("http:", "https:"))

        assert client.connections == 0


class BlockingPeer:
    """A server on blocking sockets: what it sends is in the client's socket before the client's loop turns again."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        # Only for a test that fails: nobody comes then.
        self._listening.settimeout(10)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.accepted: list[socket.socket] = []

    def serve(self) -> None:
        """Accept one connection and answer one request on it."""
        self.accepted.append(self._listening.accept()[0])
        self.answer()

    def answer(self) -> None:
        """Answer one request on the latest connection."""
        self.accepted[-1].recv(65536)
        self.accepted[-1].sendall(answer(b"true"))

    def close(self) -> None:
        for sock in (self._listening, *self.accepted):
            sock.close()


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_kept_connection_with_unread_bytes_is_not_used_again(loop: str) -> None:
    threads = asyncio.get_running_loop().run_in_executor
    with contextlib.closing(BlockingPeer()) as peer:
        async with new_client(tries_max=1) as client:
            served = threads(None, peer.serve)
            assert (await client.request("GET", peer.url)).body == b"true"
            await served
            # Without a turn of the loop before the next call: nobody but the socket knows of these bytes.
            peer.accepted[0].sendall(answer(b"forged"))
            served = threads(None, peer.serve)
            got = await client.request("GET", peer.url)

            assert got.body == b"true"
            await served
        assert len(peer.accepted) == 2
