"""A service in another process: found by its address, called under the caller's deadline; long polls hold up nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.contracts import mailbox as m
from penstock.contracts.call import NOBODY, Call
from penstock.contracts.mailbox_rules import METHODS
from penstock.kernel.deadline import Deadline, current_deadline, timeout, use_deadline
from penstock.kernel.errors import Busy, DownstreamUnavailable, Malformed, NotReady
from penstock.kernel.inventory import Inventory
from penstock.net.oap.server import BIND_S, OapServer
from penstock.net.oap.service import OapServerOptions
from penstock.rpc.oap import remote_mailbox, serve
from penstock.rpc.remote import Remote, RemoteOptions, oap_place
from penstock.wire.oap.hello import MAX_INFLIGHT

OPTIONS = RemoteOptions(calls_max=MAX_INFLIGHT, call_timeout_s=60.0, polls_max=2 * MAX_INFLIGHT)
SEND = m.Send("orders", b"x")


class Recording(m.Mailbox):
    """A mailbox that says how long it was given, and keeps everybody waiting who is willing to."""

    def __init__(self) -> None:
        self.given_s: list[float] = []
        self.waiting = 0

    async def send(self, request: m.Send, call: Call = NOBODY) -> m.Sent:
        """Write down what is left of the deadline."""
        deadline = current_deadline()
        assert deadline is not None
        self.given_s.append(deadline.remaining(asyncio.get_running_loop().time()))
        return m.Sent("id", duplicate=False, shard=0)

    async def recv(self, request: m.Recv, call: Call = NOBODY) -> m.Received:
        """Have nothing; wait for ever if there is time to."""
        if request.wait_ms:
            self.waiting += 1
            await asyncio.get_running_loop().create_future()
        return m.Received(())


@asynccontextmanager
async def peer(path: Path, mailbox: Recording) -> AsyncIterator[OapServer]:
    """Answer the contract on a socket."""
    server = OapServer(Inventory("svc-mailbox"), OapServerOptions(uds_path=path), [serve(METHODS, mailbox)])
    await server.start()
    try:
        yield server
    finally:
        await server.close()


@asynccontextmanager
async def reaching(path: Path, options: RemoteOptions = OPTIONS) -> AsyncIterator[m.Mailbox]:
    """Reach the socket."""
    remote = Remote(Inventory("omnigate"), oap_place(f"oap:{path}"), options)
    try:
        yield remote_mailbox(remote)
    finally:
        await remote.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir(mode=0o700)
    return tmp_path / "run" / "m.sock"


@pytest.mark.real_loop
async def test_what_is_left_of_the_callers_deadline_is_the_peers(path: Path) -> None:
    mailbox, left_s = Recording(), 20.0
    async with peer(path, mailbox), reaching(path) as remote:
        with use_deadline(Deadline(asyncio.get_running_loop().time() + left_s, budget_s=25.0)):
            await remote.send(SEND)

    assert 0 < mailbox.given_s[0] <= left_s + 1e-6  # an instant is a float, and what is left is a difference


@pytest.mark.real_loop
async def test_the_time_a_server_had_to_bind_is_no_deadline_of_its_requests(path: Path) -> None:
    mailbox, options = Recording(), replace(OPTIONS, call_timeout_s=4 * BIND_S)
    async with peer(path, mailbox), reaching(path, options) as remote:
        await remote.send(SEND)

    assert mailbox.given_s[0] > BIND_S


@pytest.mark.real_loop
async def test_those_who_wait_have_places_of_their_own_and_no_more_than_that(path: Path) -> None:
    mailbox = Recording()
    async with peer(path, mailbox), reaching(path) as remote:
        polls = [asyncio.ensure_future(remote.recv(m.Recv("orders", wait_ms=20_000))) for _ in range(2 * MAX_INFLIGHT)]
        async with timeout("wait", 25):
            while mailbox.waiting < len(polls):
                await remote.recv(m.Recv("orders"))
        await remote.send(SEND)
        with pytest.raises(Busy):
            await remote.recv(m.Recv("orders", wait_ms=20_000))
        for poll in polls:
            poll.cancel()
        await asyncio.wait(polls)

    assert mailbox.waiting == 2 * MAX_INFLIGHT


@pytest.mark.real_loop
async def test_one_that_comes_back_is_found_by_the_next_call_and_a_call_is_tried_once(path: Path) -> None:
    mailbox = Recording()
    async with reaching(path) as remote:
        async with peer(path, mailbox):
            await remote.send(SEND)
        with pytest.raises(DownstreamUnavailable):
            await remote.topic(m.GetTopic("orders"))
        async with peer(path, mailbox):
            await remote.send(SEND)

    assert len(mailbox.given_s) == 2


@pytest.mark.real_loop
async def test_a_socket_that_is_not_there_is_absence_only_where_nobody_promised_it_or_met_it(path: Path) -> None:
    async with reaching(path, replace(OPTIONS, absent="It does not run here.")) as guessed:
        with pytest.raises(NotReady, match="does not run here"):
            await guessed.send(SEND)
        async with peer(path, Recording()):
            await guessed.send(SEND)
        with pytest.raises(DownstreamUnavailable):
            await guessed.send(SEND)

    async with reaching(path) as promised:
        with pytest.raises(DownstreamUnavailable):
            await promised.send(SEND)


def test_an_address_is_a_socket_or_a_host_with_its_port() -> None:
    assert oap_place("oap:/run/m.sock").uds_path == Path("/run/m.sock")
    assert (oap_place("oap://127.0.0.1:5405").host, oap_place("oap://127.0.0.1:5405").port) == ("127.0.0.1", 5405)
    assert oap_place("oap://[::1]:5405").host == "::1"


@pytest.mark.parametrize(
    "address",
    [
        "",
        "oap:",
        "oap:run/m.sock",
        "oap://",
        "oap://host",
        "oap://host:0",
        "oap://a:1/x",
        "http://a:1",
        "unix:/a",
        "/a",
    ],
)
def test_anything_else_is_refused(address: str) -> None:
    with pytest.raises(Malformed):
        oap_place(address)
