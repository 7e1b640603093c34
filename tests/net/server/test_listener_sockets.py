"""The listener on real sockets, on both loops: TCP, TLS, Unix sockets, and clients that send before they read."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import ssl
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.kernel.errors import Busy
from penstock.net.message import StreamResponse
from penstock.net.server.admission import Refusal
from penstock.net.server.connection import Connection
from penstock.net.server.inbox import Inbox
from penstock.net.server.listener import CannotBind
from penstock.net.server.outbox import Outbox
from penstock.net.server.tls import CertificateRefused
from tests.net.server.certificates import make_certificate, trusting_context
from tests.net.server.listener_kit import (
    BOTH_LOOPS,
    ROUTES,
    RawClient,
    Site,
    get,
    post,
    route,
    serving,
    settle,
)
from tests.net.server.test_listener_streams import count_body, numbers
from tests.wire.http1.test_request import REFUSED

TCP = {"host": "127.0.0.1"}
MIB = 1 << 20
FULL = Refusal(Busy("full", queue="work"))


@BOTH_LOOPS
async def test_requests_are_served_over_tcp(loop_name: str) -> None:
    routes = [*ROUTES, route(lambda _r: StreamResponse(200, numbers(500, 1000)), path="/stream")]
    async with serving(routes, TCP) as site:
        client = await site.dial()
        client.send(post("/echo", b'{"text":"hi"}') + get("/stream") + get())
        answers = await client.answers(3)

    assert [answer.status for answer in answers] == [200, 200, 200]
    assert len(answers[1].body) == 500_000


@BOTH_LOOPS
async def test_requests_are_served_over_tls_1_3_only(loop_name: str, tmp_path: Path) -> None:
    async with serving(options={**TCP, **make_certificate(tmp_path)}) as site:
        client = await site.dial(ssl=trusting_context())
        client.send(post("/echo", b'{"text":"hi"}') + get())
        answers = await client.answers(2)
        version = client.transport.get_extra_info("ssl_object").version()
        old = trusting_context()
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await site.dial(ssl=old)

    assert [answer.status for answer in answers] == [200, 200]
    assert version == "TLSv1.3"


@BOTH_LOOPS
@pytest.mark.parametrize("secure", [False, True])
async def test_a_client_that_sends_8_mb_before_it_reads_still_reads_its_429(
    loop_name: str, secure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not for how long it reads on, but that it does: the machine may be busy with others.
    monkeypatch.setattr("penstock.net.server.connection.LINGER_S", 60.0)
    options = {**TCP, **(make_certificate(tmp_path) if secure else {})}
    async with serving(options=options, admission=lambda _request: FULL) as site:
        address, loop = ("127.0.0.1", site.listener.port), asyncio.get_running_loop()
        statuses = [await loop.run_in_executor(None, send_all_then_read, address, secure) for _ in range(5)]

    assert statuses == [b"HTTP/1.1 429"] * 5


def send_all_then_read(address: tuple[str, int], secure: bool) -> bytes:
    """Be a plain blocking client: everything out first, then look at the answer; a failing send is a lost answer."""
    with ExitStack() as stack:
        client = stack.enter_context(socket.create_connection(address, timeout=80))
        if secure:
            client = stack.enter_context(trusting_context().wrap_socket(client))
        head = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (8 * MIB)
        client.sendall(head + b"x" * (8 * MIB))
        data = b""
        while b"\r\n\r\n" not in data and (piece := client.recv(4096)):
            data += piece
        return data[:12]


@BOTH_LOOPS
async def test_torture_over_tcp_is_one_answer_and_the_end(loop_name: str) -> None:
    statuses = {}
    routes = [route(lambda _r: {}, method, "/") for method in ("GET", "POST")]
    async with serving(routes, {**TCP, "allowed_hosts": ("a", "b")}) as site:
        for name, (data, _status) in REFUSED.items():
            client = await site.dial()
            client.send(data + get("/smuggled"))
            statuses[name] = [answer.status for answer in await client.gone()]

    assert statuses == {name: [status] for name, (_data, status) in REFUSED.items()}


@BOTH_LOOPS
async def test_a_slow_header_is_cut_on_the_real_clock_too(loop_name: str) -> None:
    async with serving(options={**TCP, "read_timeout_s": 0.15}) as site:
        client = await site.dial()
        client.send(b"GET / HT")
        answers = await client.gone()

    assert [answer.status for answer in answers] == [408]


@BOTH_LOOPS
async def test_a_streamed_upload_arrives_whole(loop_name: str) -> None:
    async with serving([route(count_body, "POST", stream_body=True, body_bytes_max=16 * MIB)], TCP) as site:
        client = await site.dial()
        client.send(post("/it", b"x" * (6 * MIB)))
        answer = await client.answer()

    assert answer.json()["bytes"] == 6 * MIB


@BOTH_LOOPS
async def test_a_unix_socket_is_private_and_its_peer_has_a_uid(loop_name: str, tmp_path: Path) -> None:
    seen = []
    path = tmp_path / "run" / "it.sock"

    def note(request: object) -> None:
        seen.append(request.peer.uid)  # type: ignore[attr-defined]

    async with serving([route(note)], {"uds_path": path}) as site:
        mode = path.stat().st_mode & 0o777
        client = RawClient()
        await asyncio.get_running_loop().create_unix_connection(lambda: client, str(path))
        site.clients.append(client)
        client.send(get("/it"))
        answer = await client.answer()

    assert (mode, answer.status, seen) == (0o600, 204, [os.getuid()])
    assert not path.exists()


@BOTH_LOOPS
async def test_a_unix_socket_peer_with_another_uid_is_turned_away(loop_name: str, tmp_path: Path) -> None:
    path = tmp_path / "it.sock"
    async with serving(options={"uds_path": path, "uds_allow_uids": frozenset({os.getuid() + 1})}):
        client = RawClient()
        await asyncio.get_running_loop().create_unix_connection(lambda: client, str(path))
        answers = await client.gone()

    assert answers == []


@BOTH_LOOPS
async def test_a_busy_port_is_one_clear_sentence(loop_name: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CannotBind, match=f"cannot listen on 127.0.0.1:{port}: "):
            async with serving(options={**TCP, "port": port}):
                raise AssertionError("it started")


async def shown(site: Site) -> bytes:
    """Return the certificate that a new client is shown."""
    client = await site.dial(ssl=trusting_context())
    client.send(get())
    assert (await client.answers(1))[0].status == 200
    found = client.transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
    assert isinstance(found, bytes)
    return found


@BOTH_LOOPS
async def test_a_certificate_that_was_replaced_is_shown_after_a_reload_and_old_connections_go_on(
    loop_name: str, tmp_path: Path
) -> None:
    async with serving(options={**TCP, **make_certificate(tmp_path)}) as site:
        before, kept = await shown(site), await site.dial(ssl=trusting_context())
        make_certificate(tmp_path)
        assert await shown(site) == before
        await site.listener.reconfigure(site.listener.options)
        after = await shown(site)
        kept.send(get())

        assert (await kept.answers(1))[0].status == 200
        assert after != before


@pytest.mark.real_loop
async def test_a_certificate_that_cannot_be_used_is_refused_at_a_reload_and_the_old_one_stays(tmp_path: Path) -> None:
    files = make_certificate(tmp_path)
    async with serving(options={**TCP, **files}) as site:
        before = await shown(site)
        files["tls_cert_path"].write_text("no certificate")
        changed = replace(site.listener.options, max_conns=7)
        with pytest.raises(CertificateRefused, match="are no certificate and its key"):
            await site.listener.reconfigure(changed)

        assert await shown(site) == before
        assert site.listener.options.max_conns != 7


async def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    files = make_certificate(tmp_path)
    files["tls_key_path"].chmod(0o640)

    with pytest.raises(CertificateRefused, match="can be read by others"):
        async with serving(options={**TCP, **files}):
            raise AssertionError("it started")


@BOTH_LOOPS
async def test_ten_thousand_pipelined_requests_hold_no_turn_for_long(loop_name: str) -> None:
    """Counts turns, not time: other connections get their turn between any 32 requests."""
    async with serving(options=TCP) as site:
        flood, other = await site.dial(), await site.dial()
        flood.send(get() * 10_000)
        done = 0
        while flood.data.count(b"HTTP/1.1 200") < 10_000:
            other.send(get())
            await other.answer()
            done += 1

    assert done >= 5


@BOTH_LOOPS
async def test_a_lost_connection_is_freed_without_the_collector(loop_name: str) -> None:
    async with serving([route(lambda _r: {"ok": True})], TCP) as site:
        gc.collect()
        gc.disable()
        try:
            client = await site.dial()
            client.send(get("/it"))
            await client.answer()
            before = parts_of_connections()
            client.transport.close()
            await client.gone()
            while site.count("open_connections"):  # noqa: ASYNC110 - nothing tells us
                await asyncio.sleep(0)
            await settle()
            after = parts_of_connections()
        finally:
            gc.enable()

    assert before == {"Connection": 1, "Inbox": 1, "Outbox": 1}
    assert after == {}


def parts_of_connections() -> Counter[str]:
    return Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, Connection | Inbox | Outbox))
