"""A node that goes away for a moment: calls that may be repeated wait for it, within their own time and no longer."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from penstock.client import (
    Canceled,
    ClientClosed,
    DownstreamUnavailable,
    Forbidden,
    NotReady,
    OverLimit,
    SdkOptions,
    Unauthenticated,
    connect,
)
from penstock.contracts import mailbox as m
from penstock.sdk.http_mailbox import HttpMailbox
from penstock.sdk.storage import StorageClient
from penstock.wire.ids import address_of
from tests.acceptance.node_process import NodeProcess
from tests.net.calls.peers import Peer, answer, hangs_up, in_turn, says
from tests.sdk.kit import started
from tests.sdk.test_calling import EMPTY, SENT, body_of, caller, refuses

SEND = m.Send("t", b"x", idem_key="i")


class Restarting(Peer):
    """A node that nobody can reach while it is away."""

    def __init__(self, script=SENT) -> None:
        super().__init__(script)
        self.away = False
        self.dialled = 0

    async def dial(self, origin, connection) -> None:
        self.dialled += 1
        if self.away:
            raise ConnectionRefusedError(111, "Connection refused")
        await super().dial(origin, connection)

    async def leave(self, seconds: float) -> None:
        """Go away for so long; connections that were open end."""
        self.away = True
        for connection in tuple(self.open):
            connection.hang_up()
        asyncio.get_running_loop().call_later(seconds, setattr, self, "away", False)
        await asyncio.sleep(0.01)


async def met(calls) -> HttpMailbox:
    """Speak to the node once."""
    mailbox = HttpMailbox(calls)
    await mailbox.send(SEND)
    return mailbox


@pytest.mark.parametrize("away_s", [0.5, 3.0, 6.0])
async def test_a_send_waits_for_a_node_that_restarts(away_s: float) -> None:
    peer, loop = Restarting(), asyncio.get_running_loop()
    async with caller(peer) as calls:
        mailbox = await met(calls)
        await peer.leave(away_s)
        began_at, dialled = loop.time(), peer.dialled
        sent = await mailbox.send(SEND)

        assert sent.msg_id == "1"
        assert away_s - 0.1 <= loop.time() - began_at <= away_s + 3, "it is found again soon after it is back"
        assert peer.dialled - dialled < 60, "and is not flooded meanwhile"
    assert len({str(body) for body in body_of(peer)}) == 1, "a repeat is the same message"


async def test_a_node_that_stays_away_is_named_within_the_time_of_the_call() -> None:
    peer, loop = Restarting(), asyncio.get_running_loop()
    async with caller(peer, timeout_s=4.0) as calls:
        mailbox = await met(calls)
        await peer.leave(600)
        began_at = loop.time()
        with pytest.raises(DownstreamUnavailable, match=r"out of reach|left alone"):
            await mailbox.send(SEND)

        assert 2.0 <= loop.time() - began_at <= 4.0


async def test_a_node_that_never_answered_is_given_up_at_once() -> None:
    """A wrong address, or a node that was not started: whoever waits should hear of it."""
    peer, loop = Restarting(), asyncio.get_running_loop()
    peer.away = True
    async with caller(peer) as calls:
        began_at = loop.time()
        with pytest.raises(DownstreamUnavailable):
            await HttpMailbox(calls).send(SEND)

        assert (peer.dialled, loop.time() - began_at < 1.0) == (3, True)


@pytest.mark.parametrize("tries", [1, 2])
async def test_whoever_sets_a_number_of_tries_gets_that_number(tries: int) -> None:
    peer = Restarting()
    async with caller(peer, tries_max=tries) as calls:
        mailbox = await met(calls)
        await peer.leave(600)
        before = peer.dialled
        with pytest.raises(DownstreamUnavailable):
            await mailbox.send(SEND)

        assert peer.dialled - before == tries


@pytest.mark.parametrize("kind", [NotReady, Canceled])
async def test_a_node_that_says_it_is_stopping_is_waited_for(kind) -> None:
    loop = asyncio.get_running_loop()

    def script(connection, seen) -> None:
        (SENT if loop.time() < began_at or loop.time() >= began_at + 5 else refuses(kind()))(connection, seen)

    began_at = loop.time() + 1
    async with caller(Peer(script)) as calls:
        mailbox = await met(calls)
        await asyncio.sleep(2)

        assert (await mailbox.send(SEND)).msg_id == "1"


@pytest.mark.parametrize("refusal", [Forbidden(), Unauthenticated(), OverLimit("too big", limit="body")])
async def test_a_refusal_that_waiting_does_not_mend_comes_at_once(refusal) -> None:
    peer, loop = Peer(in_turn(SENT, refuses(refusal))), asyncio.get_running_loop()
    async with caller(peer) as calls:
        mailbox = await met(calls)
        began_at = loop.time()
        with pytest.raises(type(refusal)):
            await mailbox.send(SEND)

        assert (loop.time(), len(peer.seen)) == (began_at, 2)


async def test_what_must_not_be_done_twice_is_not_repeated_however_long_there_is() -> None:
    peer = Peer(in_turn(EMPTY, hangs_up))
    async with caller(peer) as calls:
        mailbox = HttpMailbox(calls)
        await mailbox.recv(m.Recv("t"))
        for attempt in (mailbox.recv(m.Recv("t")), mailbox.nack(m.Nack("1", "r")), mailbox.send(m.Send("t", b"x"))):
            with pytest.raises(DownstreamUnavailable):
                await attempt

    assert len(peer.seen) == 4


async def test_an_object_is_read_when_the_node_is_back() -> None:
    peer = Restarting(says(answer(b"body")))
    async with caller(peer) as calls:
        storage = StorageClient(calls)
        await storage.get(address_of(b"body"))
        await peer.leave(3)

        assert await storage.get(address_of(b"body")) == b"body"


async def test_closing_the_client_ends_the_waiting() -> None:
    peer, loop = Restarting(), asyncio.get_running_loop()
    calls = caller(peer)
    mailbox = await met(calls)
    await peer.leave(600)
    async with started(mailbox.send(SEND)) as sending:
        await asyncio.sleep(2)
        began_at = loop.time()
        await calls.close()
        await asyncio.wait({sending})

        assert isinstance(sending.exception(), ClientClosed)
        assert loop.time() - began_at < 0.1


async def test_the_services_of_a_client_share_that_the_node_is_there(tmp_path: Path) -> None:
    """A producer stores, then sends: the first send after a store that worked waits too."""
    async with connect(tmp_path) as client:
        known = {id(caller._met) for caller in client._callers.values()}

    assert len(known) == 1


@pytest.mark.real_loop(watchdog_s=170)
async def test_a_producer_does_not_notice_that_its_node_was_killed_and_started_again(tmp_path: Path) -> None:
    options = SdkOptions(timeout_s=120)  # how fast a node starts on a busy machine is not the matter
    async with connect(tmp_path, options=options) as client:
        with NodeProcess(data_dir=tmp_path) as first:
            sent = [await client.mailbox.send("restart", "0")]
            first.signal(signal.SIGKILL)
            first.wait()
        async with started(client.mailbox.send("restart", "1")) as sending:
            await asyncio.sleep(0)
            with NodeProcess(data_dir=tmp_path):
                sent.append(await sending)
                kept = await client.mailbox.recv("restart", max_messages=9, wait_ms=20_000)

    assert [message.msg_id for message in kept] == [each.msg_id for each in sent]


async def test_a_call_that_a_long_outage_ended_says_what_the_node_failed_by() -> None:
    """After some failures the node is left alone for a moment, which is no reason that anybody could mend."""
    peer = Restarting()
    async with caller(peer) as calls:
        mailbox = await met(calls)
        await peer.leave(3600)
        said = set()
        for _ in range(4):
            with pytest.raises(DownstreamUnavailable) as away:
                await mailbox.send(SEND)
            said.add(away.value.detail)

        assert said == {"mailbox at http://127.0.0.1:9 is out of reach: Connection refused."}
