"""TLS clients count from the accept on: silence before the handshake takes a place, and only one."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.net.server.listener import CannotBind
from penstock.net.server.tls import server_context
from penstock.net.server.tls_accept import SecureServer
from penstock.testing import until
from tests.net.server.certificates import make_certificate, trusting_context
from tests.net.server.listener_kit import (
    BOTH_LOOPS,
    RawClient,
    Site,
    get,
    serving,
)

TCP = {"host": "127.0.0.1"}


@pytest.fixture
def opened() -> Iterator[list[socket.socket]]:
    """Keep the clients of a test, and close them whatever happens."""
    clients: list[socket.socket] = []
    yield clients
    close_all(clients)


async def silent(site: Site, count: int, clients: list[socket.socket]) -> None:
    """Connect and say nothing; wait until the listener has let in or turned away everybody."""
    for _ in range(count):
        client = socket.socket()
        clients.append(client)
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", site.listener.port))
    await until(lambda: site.count("open_connections") + sum(not is_open(one) for one in clients) == len(clients))


async def until_empty(site: Site) -> None:
    """Wait until nobody holds a place."""
    await until(lambda: not site.count("open_connections"))


def descriptors() -> int:
    """Count what this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def is_open(client: socket.socket) -> bool:
    """Tell whether the other side hung up."""
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def close_all(clients: list[socket.socket]) -> None:
    """Let go."""
    for client in clients:
        client.close()


@BOTH_LOOPS
@pytest.mark.parametrize("limit", ["max_conns", "max_conns_per_ip"])
async def test_silent_clients_of_a_tls_port_are_capped_like_those_of_a_plain_one(
    loop_name: str, limit: str, tmp_path: Path, opened: list[socket.socket]
) -> None:
    options = {**TCP, **make_certificate(tmp_path), "max_conns": 100, "max_conns_per_ip": 100, limit: 5}
    async with serving(options=options) as site:
        before = descriptors()
        await silent(site, 30, opened)
        held = site.count("open_connections")
        theirs = descriptors() - before - len(opened)
        still = sum(map(is_open, opened))
        close_all(opened)
        await until_empty(site)
        client = await site.dial(ssl=trusting_context())
        client.send(get())
        answer = await client.answer()
        after = site.count("open_connections")

    assert (held, still, after) == (5, 5, 1)
    assert theirs <= 5 + 5
    assert answer.status == 200


@BOTH_LOOPS
async def test_a_client_that_never_shakes_hands_is_cut_at_the_read_deadline(
    loop_name: str, tmp_path: Path, opened: list[socket.socket]
) -> None:
    deadline_s, loop = 1.5, asyncio.get_running_loop()
    async with serving(options={**TCP, **make_certificate(tmp_path), "read_timeout_s": deadline_s}) as site:
        began = loop.time()
        await silent(site, 3, opened)
        await until_empty(site)
        elapsed = loop.time() - began
        still = sum(map(is_open, opened))

    assert still == 0
    assert elapsed > 0.9 * deadline_s, "until then they had their places"


@BOTH_LOOPS
async def test_a_silent_client_gives_its_place_to_a_newcomer_after_a_second(
    loop_name: str, tmp_path: Path, opened: list[socket.socket]
) -> None:
    options = {**TCP, **make_certificate(tmp_path), "max_conns": 2, "max_conns_per_ip": 9, "read_timeout_s": 60.0}
    async with serving(options=options) as site:
        await silent(site, 1, opened)
        await asyncio.sleep(1.05)
        await silent(site, 1, opened)
        client = await site.dial(ssl=trusting_context())
        client.send(get())
        answer = await client.answer()
        states = [is_open(one) for one in opened]

    assert answer.status == 200
    assert states == [False, True]


@BOTH_LOOPS
async def test_clients_that_speak_no_tls_or_leave_give_their_places_back(
    loop_name: str, tmp_path: Path, opened: list[socket.socket]
) -> None:
    async with serving(options={**TCP, **make_certificate(tmp_path)}) as site:
        await silent(site, 3, opened)
        for client in opened:
            client.send(get())
        await silent(site, 3, opened)
        close_all(opened[3:])
        await until_empty(site)

    assert site.listener.inflight == 0


@BOTH_LOOPS
async def test_closing_the_listener_ends_handshakes(
    loop_name: str, tmp_path: Path, opened: list[socket.socket]
) -> None:
    async with serving(options={**TCP, **make_certificate(tmp_path)}) as site:
        await silent(site, 3, opened)
        held = site.count("open_connections")
        await site.listener.close()
        await until(lambda: not any(map(is_open, opened)))

    assert held == 3


class Scarce(socket.socket):
    """A listening socket of a process that was out of descriptors for a moment."""

    failures = 1

    def accept(self) -> tuple[socket.socket, Any]:
        """Fail as the system does, then work."""
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


@BOTH_LOOPS
async def test_without_descriptors_newcomers_wait_in_the_queue_and_are_served_later(
    loop_name: str, tmp_path: Path
) -> None:
    files, loop = make_certificate(tmp_path), asyncio.get_running_loop()
    context = server_context(files["tls_cert_path"], files["tls_key_path"])
    listening = Scarce()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    listening.setblocking(False)
    async with serving() as site:
        assert site.listener._core is not None
        server = SecureServer(site.listener._core, [listening], context)
        client = RawClient()
        await loop.create_connection(lambda: client, *listening.getsockname(), ssl=trusting_context())
        site.clients.append(client)
        client.send(get())
        answer = await client.answer()
        server.close()
        server.close()

    assert (answer.status, site.count("accept_pauses_total")) == (200, 1)


@BOTH_LOOPS
async def test_a_busy_port_is_one_clear_sentence_with_tls_too(loop_name: str, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CannotBind, match=f"cannot listen on 127.0.0.1:{port}: "):
            async with serving(options={**TCP, **make_certificate(tmp_path), "port": port}):
                raise AssertionError("it started")
