"""Requests that wait at the gate: body unread, order kept, deadline running, and gone without a trace when they go."""

from __future__ import annotations

import asyncio

import pytest

from penstock.net.server.admission import Refusal
from penstock.net.server.inbox import UNREAD_BYTES_MAX
from penstock.testing.line import WINDOW_BYTES
from tests.capability.kit import NOW
from tests.net.server.listener_kit import get, post, settle
from tests.services.omnigate.gate.kit import gated


async def test_a_held_body_stays_with_the_client_until_admission() -> None:
    body = b"x" * 500_000
    async with gated(max_inflight=1) as site:
        field = await site.known()
        await site.ask("/later", field)
        client, connection, transport = site.join()
        client.send(post("/later", body, field))
        await settle()
        unread = transport.get_write_buffer_size()
        taken = connection.inbox.reader.pending_bytes
        waiting = site.classes()
        site.work.answer()
        await settle(200)
        site.work.answer()
        answer = await client.answer()

    assert waiting == {"authed": (1, 1)}
    # One window was given to the gate before it could say stop, one lies on the line: the rest never left the client.
    assert unread > len(body) - 2 * WINDOW_BYTES - 2 * UNREAD_BYTES_MAX
    assert UNREAD_BYTES_MAX <= taken <= WINDOW_BYTES
    assert answer.status == 200
    assert site.work.bodies[1] == body


async def test_requests_behind_a_held_one_wait_for_it_and_answers_keep_their_order() -> None:
    async with gated(max_inflight=1) as site:
        field = await site.known()
        blocker = await site.ask("/later", field)
        client = site.connect()
        client.send(post("/later", b"one", field) + get("/now", field) + get("/healthz"))
        await settle()
        early = client.data
        site.work.answer()
        await settle()
        still = client.data
        site.work.answer()
        answers = await client.answers(3)
        await blocker.answer()

    assert early == still == b""
    assert [answer.status for answer in answers] == [200, 200, 200]
    assert b"/now" in answers[1].body
    assert answers[2].json() == {"status": "ok"}


async def test_a_held_request_takes_its_turn_behind_earlier_answers_of_its_connection() -> None:
    async with gated(max_inflight=1) as site:
        field = await site.known()
        client = site.connect()
        client.send(get("/later", field) + get("/now", field))
        await settle()
        waiting = site.classes()
        site.work.answer()
        answers = await client.answers(2)

    assert waiting == {"authed": (1, 1)}
    assert [b"/now" in answer.body for answer in answers] == [False, True]


async def test_a_client_that_leaves_while_held_leaves_the_queue_at_once() -> None:
    async with gated(max_inflight=1) as site:
        field = await site.known()
        await site.ask("/later", field)
        client = await site.ask("/later", field)
        before = site.classes()
        client.transport.abort()
        await settle()
        after = site.classes()

        assert before == {"authed": (1, 1)}
        assert after == {"authed": (0, 1)}
    assert len(site.work.seen) == 1


@pytest.mark.parametrize("sent", [0, 3])
async def test_a_client_that_ends_in_the_middle_of_its_held_body_is_gone(sent: int) -> None:
    async with gated(max_inflight=1) as site:
        field = await site.known()
        await site.ask("/later", field)
        client = site.connect()
        request = post("/later", b"x" * 10, field)
        client.send(request[: len(request) - 10 + sent])
        await settle()
        client.transport.write_eof()
        await settle()
        after = site.classes()

    assert after == {"authed": (0, 1)}


async def test_a_client_that_only_closed_its_side_still_gets_its_answer() -> None:
    async with gated(max_inflight=1) as site:
        field = await site.known()
        await site.ask("/later", field)
        client = site.connect()
        client.send(post("/later", b"whole", field))
        client.transport.write_eof()
        await settle()
        waiting = site.classes()
        site.work.answer()
        await settle()
        site.work.answer()
        answer = await client.answer()

    assert waiting == {"authed": (1, 1)}
    assert answer.status == 200
    assert site.work.bodies[1] == b"whole"


async def test_the_deadline_runs_while_held_and_ends_in_504() -> None:
    loop = asyncio.get_running_loop()
    async with gated(max_inflight=1, options={"request_deadline_s": 0.5}) as site:
        field = await site.known()
        site.gate.queue.arrive(blocking_entry(site), site.gate.queue.classes["internal"], "blocker", loop.time())
        client = site.connect()
        began = loop.time()
        client.send(post("/later", b"x" * 1000, field) + get("/healthz"))
        first, second = await client.answers(2)
        elapsed = loop.time() - began
        after = site.classes()
        release(site)

    assert (first.status, first.json()["code"], first.json()["op"]) == (504, "timeout", "request")
    assert second.status == 200
    assert 0.5 <= elapsed <= 0.65
    assert after == {"internal": (0, 1)}
    assert site.work.seen == []


def blocking_entry(site):  # type: ignore[no-untyped-def]
    """Make an entry that holds a slot until `release`."""
    from penstock.services.omnigate.fair.entry import QueueEntry

    site.blocker = QueueEntry()
    site.blocker.due = 1e9
    return site.blocker


def release(site) -> None:  # type: ignore[no-untyped-def]
    """End what `blocking_entry` made."""
    site.gate.queue.end(site.blocker)
    site.gate.wake()


async def test_a_drain_waits_for_what_is_held_and_answers_it() -> None:
    async with gated(max_inflight=1) as site:
        field = await site.known()
        first = await site.ask("/later", field)
        second = await site.ask("/later", field)
        site.listener.stop_intake()
        late = await site.ask("/now", field)
        quiet = asyncio.get_running_loop().create_task(site.listener.quiet())
        await settle()
        waited = not quiet.done()
        site.work.answer()
        await settle()
        site.work.answer()
        await quiet
        answers = [await client.answer() for client in (first, second, late)]

    assert waited
    assert [answer.status for answer in answers] == [200, 200, 503]
    assert answers[1].headers[b"connection"] == b"close"


async def test_a_close_tells_the_held_that_shutdown_cut_them() -> None:
    async with gated(max_inflight=1) as site:
        field = await site.known()
        await site.ask("/later", field)
        client = await site.ask("/later", field)
        await site.listener.close()
        answer = await client.answer()

    assert (answer.status, answer.json()["code"]) == (503, "canceled")


async def test_100_continue_comes_with_admission_and_the_time_for_the_body_starts_then() -> None:
    async with gated(max_inflight=1, options={"request_deadline_s": 30.0, "read_timeout_s": 1.0}) as site:
        field = await site.known()
        await site.ask("/later", field)
        client = site.connect()
        client.send(post("/later", b"x" * 10, field, "Expect: 100-continue")[:-10])
        await asyncio.sleep(5.0)
        early = client.data
        site.work.answer()
        told = await client.answer()
        await asyncio.sleep(0.9)
        client.send(b"y" * 10)
        await settle()
        site.work.answer()
        answer = await client.answer()

    assert early == b""
    assert (told.status, answer.status) == (100, 200)
    assert site.work.bodies[1] == b"y" * 10


async def test_the_time_for_a_body_starts_with_admission_without_100_continue_too() -> None:
    async with gated(max_inflight=1, options={"request_deadline_s": 30.0, "read_timeout_s": 1.0}) as site:
        field = await site.known()
        await site.ask("/later", field)
        client = site.connect()
        client.send(post("/later", b"x" * 10, field)[:-5])
        await asyncio.sleep(5.0)
        site.work.answer()
        await asyncio.sleep(0.5)
        client.send(b"x" * 5)
        await settle()
        site.work.answer()
        answer = await client.answer()

    assert answer.status == 200
    assert site.work.bodies[1] == b"x" * 10


async def test_a_held_head_request_is_answered_without_a_body() -> None:
    async with gated(max_inflight=1) as site:
        field = await site.known()
        await site.ask("/later", field)
        client = site.connect()
        client.send(get("/now", field).replace(b"GET", b"HEAD", 1))
        await settle()
        site.work.answer()
        await client.answers(1, heads_only=[0])

        assert client.data == b""
        assert len(site.work.seen) == 2


async def test_a_held_request_that_is_refused_keeps_its_connection_and_its_small_body_is_discarded() -> None:
    from penstock.kernel.errors import PolicyBlocked

    no = Refusal(PolicyBlocked("No."))
    async with gated(policy=lambda request, _t: no if request.method == "POST" else None, max_inflight=1) as site:
        field = await site.known()
        await site.ask("/later", field)
        client = site.connect()
        client.send(post("/later", b"GET /now HTTP/1.1\r\n\r\n", field) + get("/now", field))
        await settle()
        site.work.answer()
        refused, served = await client.answers(2)

    assert (refused.status, served.status) == (403, 200)


async def test_a_revocation_while_it_waits_is_noticed_when_its_turn_comes() -> None:
    async with gated(max_inflight=1) as site:
        field = await site.known()
        await site.ask("/later", field)
        client = await site.ask("/later", field)
        site.issuer.revoke("tenant", "acme", NOW + 1)
        site.work.answer()
        answer = await client.answer()

    assert (answer.status, answer.json()["reason"]) == (401, "revoked")


async def test_a_token_forgotten_while_it_waits_is_verified_once_more() -> None:
    async with gated(max_inflight=1) as site:
        field = await site.known()
        await site.ask("/later", field)
        client = await site.ask("/now", field)
        site.issuer.verifier.forget()
        site.work.answer()

        assert (await client.answer()).status == 200


async def test_predicted_waits_refuse_the_hopeless_that_wait_already() -> None:
    async with gated(max_inflight=1, options={"request_deadline_s": 1.0}) as site:
        field = await site.known()
        clients = [await site.ask("/later", field) for _ in range(20)]
        for _ in range(4):
            await asyncio.sleep(0.2)
            site.work.answer()
            await settle()
            site.gate.tick(asyncio.get_running_loop().time())
        early = [client for client in clients if b" 429 " in client.data]
        answer = await early[0].answer()

        assert (answer.json()["code"], answer.json()["why"]) == ("busy", "deadline")
        assert len(early) >= 10
