"""A worker with a wrong address, scheme or CA file ends with a sentence; one whose node was there waits for it."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.client import Client, DownstreamUnavailable, Malformed, connect, connect_sync
from penstock.kernel.metrics import Metrics
from penstock.sdk.calling import Caller
from penstock.sdk.http_mailbox import HttpMailbox
from penstock.sdk.lease_keeper import LeaseKeeper
from penstock.sdk.mailbox import MailboxClient
from penstock.testing import until
from tests.net.calls.peers import Peer, PeerConnection, Script, answer, hangs_up, says
from tests.net.server.certificates import make_certificate
from tests.sdk.kit import no_logging, started
from tests.sdk.test_calling import caller

HTML = says(answer(b"<h1>Hello</h1>"))
NO_MESSAGES = says(answer(b'{"messages":[]}'))


async def nothing(_delivery) -> None:
    """Work on no message: none comes."""


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, Path, Path]:
    """Return a server's context, its certificate, and one that is not its own."""
    files, other = (make_certificate(tmp_path_factory.mktemp("tls")) for _ in range(2))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files["tls_cert_path"], files["tls_key_path"])
    return context, files["tls_cert_path"], other["tls_cert_path"]


@asynccontextmanager
async def listening(peer: Peer, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Answer on a port of this machine."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: PeerConnection(peer), "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for connection in tuple(peer.open):
            connection.hang_up()


def greets(connection: PeerConnection, _seen) -> None:
    """Be a server of another kind."""
    connection.send(b"SSH-2.0-OpenSSH_9.2\r\n")


def ends(client: Client):
    return client.mailbox.run("t", nothing), anext(aiter(client.mailbox.consume("t"))), client.mailbox.lease("t")


async def check_ends(url: str, said: str, ca: Path | None = None) -> None:
    """Each way to take messages ends with this sentence."""
    async with connect(url, token="psp1_me", ca=ca) as client:
        for taking in ends(client):
            with pytest.raises(DownstreamUnavailable, match=re.escape(said)):
                await taking


@pytest.mark.real_loop
async def test_a_certificate_that_is_not_trusted_ends_a_worker(tls) -> None:
    async with listening(Peer(NO_MESSAGES), tls[0]) as port:
        await check_ends(f"https://localhost:{port}", "Give its CA file (--ca, PENSTOCK_CA, or ca= of connect)", tls[2])


@pytest.mark.real_loop
async def test_http_to_a_port_with_tls_ends_a_worker(tls) -> None:
    async with listening(Peer(NO_MESSAGES), tls[0]) as port:
        await check_ends(f"http://localhost:{port}", "That port speaks TLS: write https://.")


@pytest.mark.real_loop
@pytest.mark.parametrize(
    ("script", "said"),
    [
        (HTML, "This is not a penstock node, or one of another version: its answer cannot be read."),
        (
            says(answer(b"no", "404 Not Found")),
            "This is not a penstock node: its answer 404 carries no readable problem.",
        ),
        (greets, "The answer is not HTTP/1. Give the URL of the node's gateway"),
    ],
)
async def test_a_server_that_is_no_node_ends_a_worker(script: Script, said: str) -> None:
    async with listening(Peer(script)) as port:
        await check_ends(f"http://localhost:{port}", said)


@pytest.mark.real_loop
async def test_https_to_a_port_without_tls_ends_a_worker(tls) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer(b"no", "400 Bad Request"))
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        await check_ends(f"https://localhost:{port}", "That port does not speak TLS: write http://", tls[1])


@pytest.mark.real_loop
@pytest.mark.parametrize("script", [hangs_up, says(answer(b"no", "502 Bad Gateway"))])
async def test_a_proxy_whose_node_still_starts_is_waited_for(script: Script) -> None:
    peer = Peer(script)
    async with (
        listening(peer) as port,
        connect(f"http://127.0.0.1:{port}", token="psp1_me") as client,
        started(client.mailbox.run("t", nothing)) as worker,
    ):
        await until(lambda: len(peer.seen) >= 3)

        assert not worker.done()


def client_of(calls: Caller) -> MailboxClient:
    metrics = Metrics("client")
    mailbox = HttpMailbox(calls)
    return MailboxClient(mailbox, LeaseKeeper(mailbox, metrics), metrics)


UNTRUSTED = ssl.SSLCertVerificationError("not by an authority that is trusted here")
UNTRUSTED.reason = "CERTIFICATE_VERIFY_FAILED"


async def test_where_nothing_listens_yet_a_worker_waits_and_says_so_once(capsys: pytest.CaptureFixture[str]) -> None:
    peer = Peer(NO_MESSAGES, refuses=ConnectionRefusedError(111, "Connection refused"))
    with no_logging():
        async with caller(peer) as calls, started(client_of(calls).run("t", nothing)) as worker:
            await asyncio.sleep(600)

            assert not worker.done()
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "penstock: the consumer of t waits for the node and asks again: mailbox at http://127.0.0.1:9 "
    )


async def hang_up_and(peer: Peer, **now: object) -> None:
    """End what is open, and be another from now on."""
    for name, value in now.items():
        setattr(peer, name, value)
    for connection in tuple(peer.open):
        connection.hang_up()
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    "now", [{"refuses": UNTRUSTED}, {"script": HTML}, {"script": greets}], ids=["untrusted", "no_node", "no_http"]
)
async def test_a_node_that_was_there_once_is_waited_for_whatever_answers_meanwhile(now: dict[str, object]) -> None:
    """Its certificate is replaced, or another program has its port for a while."""
    peer = Peer(NO_MESSAGES)
    async with caller(peer) as calls, started(client_of(calls).run("t", nothing)) as worker:
        await asyncio.sleep(60)
        await hang_up_and(peer, **now)
        await asyncio.sleep(600)
        assert not worker.done()
        asked = len(peer.seen)
        await hang_up_and(peer, refuses=None, script=NO_MESSAGES)
        await asyncio.sleep(60)

        assert (worker.done(), len(peer.seen) > asked) == (False, True)


@pytest.mark.parametrize(
    "now", [{"refuses": UNTRUSTED}, {"script": HTML}, {"script": greets}], ids=["untrusted", "no_node", "no_http"]
)
async def test_the_same_at_a_node_that_never_was_there_ends_the_worker(now: dict[str, object]) -> None:
    peer = Peer(NO_MESSAGES)
    await hang_up_and(peer, **now)
    async with caller(peer) as calls:
        with pytest.raises(DownstreamUnavailable):
            await client_of(calls).run("t", nothing)


def test_a_ca_file_that_cannot_be_used_is_told_by_connect(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    for make in (connect, connect_sync):
        for where in ("https://localhost:9", tmp_path):
            for name, why in (("nowhere.pem", "No such file or directory"), ("empty.pem", "it holds no certificate")):
                file = tmp_path / name
                with pytest.raises(Malformed, match=f"The CA file {file} cannot be used: {why}. Give a file of PEM"):
                    make(where, token="psp1_me", ca=file)
