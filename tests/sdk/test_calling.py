"""Calls over HTTP: what is repeated and what never is, whose word counts, and which error comes out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contracts import mailbox as m
from penstock.contracts.call import NOBODY, Call
from penstock.kernel.errors import (
    Busy,
    Canceled,
    Conflict,
    DownstreamUnavailable,
    Internal,
    NotFound,
    NotReady,
    OverLimit,
    PenstockError,
    Timeout,
    Unauthenticated,
    taxonomy,
)
from penstock.kernel.inventory import Inventory
from penstock.net.problem import problem
from penstock.sdk.calling import (
    Caller,
    PreparedCall,
    SdkOptions,
    post,
)
from penstock.sdk.connecting import Client
from penstock.sdk.discovery import Discovery
from penstock.sdk.errors import ClientClosed, NoNode, NoService
from penstock.sdk.http_mailbox import HttpMailbox
from penstock.sdk.problems import raised
from penstock.testing import Run, Weather, sweep
from tests.net.calls.peers import (
    Peer,
    Script,
    answer,
    hangs_up,
    in_turn,
    says,
    silent,
)

SENT = says(answer(b'{"msg_id":"1","duplicate":false,"shard":0}'))
SERVICES = ("mailbox", "passport", "storage")
EMPTY = says(answer(b'{"messages":[]}'))


def refuses(error: PenstockError) -> Script:
    """Answer with a problem, as our listeners write it."""
    made = problem(error, "corr-1")
    fields = [f"{name.decode()}: {value.decode()}" for name, value in made.headers]
    return says(answer(made.body, f"{made.status} No", "X-Corr-ID: corr-1", *fields))


def caller(peer: Peer, place: Discovery | None = None, **options) -> Caller:
    return Caller(
        "mailbox", place or Discovery(ports={"mailbox": 9}, token="psp1_me"), Inventory("client"),
        SdkOptions(**options), peer.dial,
    )  # fmt: skip


def body_of(peer: Peer) -> list[dict]:
    return [json.loads(seen.body) for seen in peer.seen]


@pytest.mark.parametrize("trouble", [hangs_up, refuses(NotReady()), refuses(Busy(retry_after=1))])
async def test_a_send_is_repeated_as_the_same_message(trouble) -> None:
    peer = Peer(in_turn(trouble, trouble, SENT))
    async with caller(peer) as calls:
        sent = await HttpMailbox(calls).send(m.Send("t", b"x", idem_key="i"))

    assert sent.msg_id == "1"
    assert body_of(peer) == [{"topic": "t", "payload_b64": "eA==", "idem_key": "i"}] * 3


async def test_a_send_without_an_idem_key_is_not_repeated_when_its_fate_is_unknown() -> None:
    peer = Peer(in_turn(hangs_up, SENT))
    async with caller(peer) as calls:
        with pytest.raises(DownstreamUnavailable):
            await HttpMailbox(calls).send(m.Send("t", b"x"))

    assert len(peer.seen) == 1


async def test_a_refusal_did_nothing_so_anything_is_asked_again_after_it() -> None:
    peer, loop = Peer(in_turn(refuses(Busy(retry_after=3)), EMPTY)), asyncio.get_running_loop()
    async with caller(peer) as calls:
        began_at = loop.time()
        assert await HttpMailbox(calls).recv(m.Recv("t")) == m.Received(())

        assert 3 <= loop.time() - began_at <= 7, "Retry-After is the least that was waited"


async def test_a_nack_whose_fate_is_unknown_is_not_repeated() -> None:
    peer = Peer(in_turn(hangs_up, EMPTY))
    async with caller(peer) as calls:
        with pytest.raises(DownstreamUnavailable):
            await HttpMailbox(calls).nack(m.Nack("1", "r"))

    assert len(peer.seen) == 1


@pytest.mark.parametrize("ask", [post("/v1/recv", {}, NOBODY), post("/v1/ack", {}, NOBODY, idempotent=True)])
async def test_whoever_is_told_to_come_back_too_late_hears_why_at_once(ask: PreparedCall) -> None:
    peer, loop = Peer(refuses(Busy(retry_after=60))), asyncio.get_running_loop()
    async with caller(peer, timeout_s=5.0) as calls:
        began_at = loop.time()
        with pytest.raises(Busy) as busy:
            await calls.ask(ask)

        assert loop.time() == began_at
        assert busy.value.facts["retry_after"] >= 60


async def test_all_tries_together_end_with_the_deadline() -> None:
    peer, loop = Peer(silent), asyncio.get_running_loop()
    async with caller(peer, timeout_s=5.0, read_timeout_s=2.0) as calls:
        began_at = loop.time()
        with pytest.raises(Timeout):
            await HttpMailbox(calls).ack(m.Ack("1", "r"))

        assert loop.time() - began_at <= 5.0


async def test_a_poll_has_its_wait_on_top_of_the_deadline() -> None:
    peer, loop = Peer(silent), asyncio.get_running_loop()
    async with caller(peer, timeout_s=5.0) as calls:
        began_at = loop.time()
        with pytest.raises(Timeout):
            await HttpMailbox(calls).recv(m.Recv("t", wait_ms=20_000))

        assert loop.time() - began_at == 25.0


async def test_the_capability_of_the_call_goes_before_the_clients_own() -> None:
    peer = Peer(EMPTY)
    async with caller(peer) as calls:
        await HttpMailbox(calls).recv(m.Recv("t"))
        await HttpMailbox(calls).recv(m.Recv("t"), Call("psp1_other", "my-corr-id"))

    assert [seen.headers[b"authorization"] for seen in peer.seen] == [b"Bearer psp1_me", b"Bearer psp1_other"]
    assert peer.seen[1].headers[b"x-corr-id"] == b"my-corr-id"


async def test_what_is_no_answer_of_ours_is_the_nodes_fault() -> None:
    peer = Peer(in_turn(says(answer(b"<html>")), says(answer(b"nope", "418 Tea"))))
    async with caller(peer, tries_max=1) as calls:
        for _ in range(2):
            with pytest.raises(DownstreamUnavailable) as fault:
                await HttpMailbox(calls).recv(m.Recv("t"))
            assert fault.value.status == 502


# --- problems


@pytest.mark.parametrize("kind", [kind for kind in taxonomy()[1:] if kind.__name__ not in ("Lagging", "Internal")])
def test_every_error_comes_back_as_what_it_was(kind: type[PenstockError]) -> None:
    made = {
        Timeout: lambda: Timeout("recv", budget_s=2.0, reason="r"),
        OverLimit: lambda: OverLimit("too big", limit="payload_bytes", reason="r"),
    }.get(kind, lambda: kind("what happened", reason="r"))()
    sent = problem(made, "corr-1")
    back = raised(sent.status, sent.body, {})

    assert (back.code, back.status, back.detail) == (made.code, made.status, made.detail)
    assert (back.facts["reason"], back.facts["corr_id"]) == ("r", "corr-1")
    assert back.retryable == made.retryable


@given(st.binary(max_size=200) | st.recursive(st.none() | st.text(), st.lists).map(lambda v: json.dumps(v).encode()))
def test_no_body_can_make_reading_a_problem_fail(body: bytes) -> None:
    assert isinstance(raised(500, body, {}), DownstreamUnavailable if body else Internal)


@pytest.mark.parametrize(
    ("status", "kind"), [(401, Unauthenticated), (404, NotFound), (409, Conflict), (416, DownstreamUnavailable)]
)
def test_a_refusal_without_a_body_is_told_by_its_status(status: int, kind: type[PenstockError]) -> None:
    assert type(raised(status, b"", {b"x-corr-id": b"c"})) is kind


# --- where the node is


def put_node(directory: Path, port: int, token: str) -> Discovery:
    run = directory / "run"
    run.mkdir(exist_ok=True)
    (run / "ports.json").write_text(json.dumps({"mailbox": port}))
    (directory / "operator.token").write_text(token + "\n")
    return Discovery(directory)


async def test_a_token_that_was_minted_anew_is_read_again(tmp_path: Path) -> None:
    def script(connection, seen) -> None:
        good = seen.headers[b"authorization"] == b"Bearer psp1_new"
        (EMPTY if good else refuses(Unauthenticated(reason="revoked")))(connection, seen)

    peer, place = Peer(script), put_node(tmp_path, 1, "psp1_old")
    async with caller(peer, place) as calls:
        with pytest.raises(Unauthenticated):
            await HttpMailbox(calls).recv(m.Recv("t"))
        assert len(peer.seen) == 1
        (tmp_path / "operator.token").write_text("psp1_new")

        assert await HttpMailbox(calls).recv(m.Recv("t")) == m.Received(())
        with pytest.raises(Unauthenticated):
            await HttpMailbox(calls).recv(m.Recv("t"), Call("psp1_other"))


async def test_a_node_that_came_back_elsewhere_is_found(tmp_path: Path) -> None:
    place, dialled = put_node(tmp_path, 1, "psp1_old"), []

    class Moved(Peer):
        async def dial(self, origin, connection) -> None:
            dialled.append(origin.port)
            if origin.port == 1:
                raise ConnectionRefusedError(111, "refused")
            await super().dial(origin, connection)

    peer = Moved(SENT)
    async with caller(peer, place) as calls:
        with pytest.raises(DownstreamUnavailable):
            await HttpMailbox(calls).send(m.Send("t", b"x", idem_key="i"))
        put_node(tmp_path, 2, "psp1_old")
        assert (await HttpMailbox(calls).send(m.Send("t", b"x", idem_key="i"))).msg_id == "1"

    assert dialled[-1] == 2


async def test_a_node_that_is_not_there_is_said_in_one_sentence(tmp_path: Path) -> None:
    async with caller(Peer(), Discovery(tmp_path)) as calls:
        with pytest.raises(NoNode, match="penstock up"):
            await calls.ask(post("/v1/recv", {}, NOBODY))
        place = put_node(tmp_path, 1, "psp1_x")
        with pytest.raises(NoService, match="it has mailbox"):
            place.url("storage")


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"services": 3}', "\xff"])
def test_a_broken_file_is_no_node(tmp_path: Path, content: str) -> None:
    (tmp_path / "run").mkdir()
    for name in ("admin.json", "ports.json"):
        (tmp_path / "run" / name).write_text(content, encoding="latin-1")
    place = Discovery(tmp_path)
    if content == '{"services": 3}':
        (tmp_path / "run" / "ports.json").unlink()

    with pytest.raises(NoNode):
        place.url("mailbox")


def test_the_environment_says_where_and_as_whom(tmp_path: Path) -> None:
    put_node(tmp_path, 7, "psp1_operator")
    found = Discovery.from_env({"PENSTOCK_DATA_DIR": str(tmp_path)})
    named = Discovery.from_env({"PENSTOCK_DATA_DIR": str(tmp_path), "PENSTOCK_TOKEN": "psp1_mine"})

    assert (found.url("mailbox"), found.token(), found.services()) == (
        "http://127.0.0.1:7", "psp1_operator", ("mailbox",)
    )  # fmt: skip
    assert named.token() == "psp1_mine"


# --- closing


async def test_a_closed_caller_refuses_whether_it_was_used_or_not() -> None:
    used, unused = Peer(SENT), Peer(SENT)
    first, second = caller(used), caller(unused)
    await HttpMailbox(first).send(m.Send("t", b"x"))
    await first.close()
    await second.close()

    for closed in (first, second):
        with pytest.raises(ClientClosed):
            await HttpMailbox(closed).send(m.Send("t", b"x"))
    assert (len(used.seen), len(unused.seen)) == (1, 0)


async def test_a_client_that_was_used_on_another_loop_says_so() -> None:
    async with caller(Peer(SENT)) as calls:
        await HttpMailbox(calls).send(m.Send("t", b"x"))
        calls._loop = None  # as every other loop looks to it

        with pytest.raises(RuntimeError, match=r"make one in each asyncio\.run"):
            await HttpMailbox(calls).send(m.Send("t", b"x"))


async def test_a_client_whose_loop_has_ended_says_so_when_it_is_closed() -> None:
    ended = asyncio.new_event_loop()
    ended.close()
    async with caller(Peer(SENT)) as calls:
        await HttpMailbox(calls).send(m.Send("t", b"x"))
        calls._loop, loop = ended, calls._loop
        with pytest.raises(RuntimeError, match=r"make one in each asyncio\.run"):
            await calls._release()
        calls._loop = loop


async def test_a_call_under_way_at_the_close_hears_of_it() -> None:
    calls = caller(Peer(silent))
    asking = asyncio.get_running_loop().create_task(HttpMailbox(calls).recv(m.Recv("t")))
    await asyncio.sleep(1)
    await calls.close()
    await asyncio.wait({asking})

    assert isinstance(asking.exception(), ClientClosed)


def test_a_close_cancelled_at_any_step_leaves_no_connection_open() -> None:
    async def scenario(run: Run) -> int:
        peers = {name: Peer(says(answer(b'{"messages":[]}')), back=Weather(latency_s=0.01)) for name in SERVICES}
        client = Client(Discovery(ports=dict.fromkeys(SERVICES, 9), token="psp1_me"))
        for name, peer in peers.items():
            client._callers[name]._dial = peer.dial
            await client._callers[name].ask(PreparedCall(path="/"))
        run.start(client.close())
        await run.ended()
        await client.close()  # for a cancel before it began; otherwise it changes nothing
        await asyncio.sleep(1)
        return sum(len(peer.open) for peer in peers.values())

    def none_is_open(still_open: int) -> bool:
        return still_open == 0

    sweep(scenario, check=none_is_open)


async def test_a_conflict_keeps_its_facts() -> None:
    peer = Peer(refuses(Conflict("stale", reason="stale_receipt")))
    async with caller(peer) as calls:
        with pytest.raises(Conflict) as stale:
            await HttpMailbox(calls).ack(m.Ack("1", "r"))

    assert stale.value.facts.items() >= {"reason": "stale_receipt", "corr_id": "corr-1"}.items()


async def test_a_streamed_answer_under_way_at_the_close_hears_of_it_too() -> None:
    calls = caller(Peer(says(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")))
    read: list[bytes] = []

    async def reading() -> None:
        async with calls.stream(PreparedCall(method="GET", path="/o/1")) as streamed:
            async for piece in streamed:
                read.append(piece)  # noqa: PERF401 - what came before the cut is looked at

    task = asyncio.get_running_loop().create_task(reading())
    await asyncio.sleep(1)
    await calls.close()
    await asyncio.wait({task})

    assert read == [b"half"]
    assert isinstance(task.exception(), ClientClosed)


async def test_a_body_whose_own_source_was_cut_is_no_closed_client() -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"half"
        raise Canceled("The uploader left.")

    async with caller(Peer(silent)) as calls:
        with pytest.raises(Canceled, match="The uploader left") as cut:
            await calls.ask(PreparedCall(method="PUT", path="/o", body=body()))

    assert not isinstance(cut.value, ClientClosed)
