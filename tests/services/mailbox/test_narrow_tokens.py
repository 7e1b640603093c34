"""What the holder of a token for one topic can do.

Everything that concerns that topic, and see nothing of the others.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.contracts.call import Call
from penstock.contracts.mailbox import Ack, AckBatch, Extend, GetTopics, Nack, Peek, Recv, Send
from penstock.contracts.passport import Claims
from penstock.kernel.clock import LoopClock
from penstock.kernel.errors import Conflict, Forbidden, NotFound, RateLimited, Unauthenticated
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from penstock.services.mailbox.config import MailboxOptions, ShardRules
from penstock.services.mailbox.engines.memory import MemoryEngine
from penstock.services.mailbox.ids import make_msg_id
from penstock.services.mailbox.jobs import RequestMeta
from penstock.services.mailbox.service import SERVICE, MailboxService
from penstock.services.mailbox.stream import RecvStream
from penstock.testing.contracts.memory_tokens import TokenBook
from tests.services.mailbox.test_http import HI, LISTENER, Http, _line
from tests.services.mailbox.worlds import WALL

ORDERS = ("topic=orders",)


def token(book: TokenBook, *caveats: str) -> str:
    now_s = book.now_s()
    return book.add(
        Claims(
            iss="test", aud=("*",), sub="me", iat=now_s, nbf=now_s, exp=now_s + 3600, epoch=0, kid=book.kid,
            tid=f"t{book.number()}", alg="ed25519", tenant="sub:me", class_="authed", caveats=caveats,
        )
    )  # fmt: skip


@asynccontextmanager
async def guarded(listener=None, **more: object) -> AsyncIterator[tuple[MailboxService, TokenBook]]:
    """A mailbox that asks a book of tokens."""
    clock = LoopClock(WALL)
    book = TokenBook(clock)
    inventory = Inventory(SERVICE, clock)
    options = MailboxOptions(engine="memory", listener=listener, **more)
    service = MailboxService(inventory, options, engine=MemoryEngine(bytes(32)), verifier=book)
    supervisor = Supervisor(inventory, service.children(), service.supervision())
    await supervisor.start()
    try:
        yield service, book
    finally:
        await supervisor.drain(60.0)
        await service.close()


async def leased(service: MailboxService, call: Call):
    await service.api.send(Send("orders", b"x"), call)
    (message,) = (await service.api.recv(Recv("orders"), call)).messages
    return message


async def test_ack_may_be_repeated_with_a_token_for_its_topic() -> None:
    async with guarded() as (service, book):
        narrow = Call(token(book, *ORDERS))
        message = await leased(service, narrow)
        ack = Ack(message.msg_id, message.receipt)
        for _ in range(3):
            assert (await service.api.ack(ack, narrow)).ok
        (again,) = (await service.api.ack_batch(AckBatch((ack,)), narrow)).results
        assert again.ok

        for value, settle in (
            (Nack(ack.msg_id, ack.receipt), service.api.nack),
            (Extend(ack.msg_id, ack.receipt, 1000), service.api.extend),
        ):
            with pytest.raises(Conflict) as caught:
                await settle(value, narrow)
            assert caught.value.facts["reason"] == "stale_receipt"


async def test_receipt_of_a_dead_letter_is_stale_and_not_forbidden() -> None:
    async with guarded(rules=ShardRules(max_attempts=1)) as (service, book):
        narrow = Call(token(book, *ORDERS))
        message = await leased(service, narrow)
        nack = Nack(message.msg_id, message.receipt)
        assert (await service.api.nack(nack, narrow)).dead_lettered

        with pytest.raises(Conflict):
            await service.api.nack(nack, narrow)


async def test_message_that_is_gone_is_not_told_of_to_who_was_never_given_it() -> None:
    async with guarded() as (service, book):
        message = await leased(service, Call(token(book)))
        await service.api.ack(Ack(message.msg_id, message.receipt), Call(token(book)))
        stranger = Call(token(book, "topic=other"))
        other = (await leased(service, Call(token(book)))).receipt
        sender = Call(token(book, "op=send", *ORDERS))

        for receipt in ("guessed", message.receipt[:-1] + "A", other):
            with pytest.raises(Forbidden):
                await service.api.ack(Ack(message.msg_id, receipt), stranger)
        with pytest.raises(Forbidden):
            await service.api.ack(Ack(message.msg_id, message.receipt), sender)


@pytest.mark.parametrize("state", ["ready", "inflight", "dlq"])
async def test_no_page_and_no_id_shows_a_message_of_a_topic_that_the_token_does_not_cover(state: str) -> None:
    async with guarded(rules=ShardRules(max_attempts=1)) as (service, book):
        whole = Call(token(book))
        sent = await service.api.send(Send("orders", b"secret"), whole)
        if state != "ready":
            (message,) = (await service.api.recv(Recv("orders"), whole)).messages
        if state == "dlq":
            await service.api.nack(Nack(message.msg_id, message.receipt), whole)
        await service.api.send(Send("other", b"x"), whole)
        stranger = Call(token(book, "topic=other"))

        for asked in (Peek("orders", state), Peek("orders", state, cursor="0"), Peek("orders", msg_id=sent.msg_id)):
            assert len((await service.api.peek(asked, whole)).messages) == 1
            with pytest.raises(Forbidden):
                await service.api.peek(asked, stranger)
            with pytest.raises(Unauthenticated):
                await service.api.peek(asked)
        # Its own topic does not lead to it either, and the answer is that for a message that never was.
        refusals = []
        for msg_id in (sent.msg_id, make_msg_id(1, 999, 0, 0)):
            with pytest.raises(NotFound) as caught:
                await service.api.peek(Peek("other", msg_id=msg_id), stranger)
            refusals.append((caught.value.detail, caught.value.facts))
        assert refusals[0] == refusals[1]


async def test_living_message_is_judged_on_its_own_topic_whoever_has_its_receipt() -> None:
    async with guarded() as (service, book):
        message = await leased(service, Call(token(book)))
        with pytest.raises(Forbidden):
            await service.api.ack(Ack(message.msg_id, message.receipt), Call(token(book, "topic=other")))

        assert service.state.ledger.inflight == 1


async def test_list_of_topics_shows_those_that_the_token_covers_and_costs_one_request() -> None:
    async with guarded() as (service, book):
        for number in range(60):
            await service.api.send(Send(f"other/{number}", b"x"), Call(token(book)))
        narrow = Call(token(book, *ORDERS, "budget.reqs=3"))
        await service.api.send(Send("orders", b"x"), narrow)
        failures = service.api._authority.failures
        for _ in range(2):
            listed = (await service.api.topics(GetTopics(), narrow)).topics
            assert [topic.topic for topic in listed] == ["orders"]
        with pytest.raises(RateLimited):
            await service.api.topics(GetTopics(), narrow)
        assert service.api._authority.failures == failures + 1

        assert (await service.api.topics(GetTopics(), Call(token(book, "topic=nowhere")))).topics == ()
        for refused, error in (
            (token(book, "op=send"), Forbidden),
            ("psp1_other", Unauthenticated),
            ("", Unauthenticated),
        ):
            with pytest.raises(error):
                await service.api.topics(GetTopics(), Call(refused))


@pytest.mark.real_loop
async def test_routes_answer_a_narrow_token_alike() -> None:
    async with guarded(LISTENER) as (service, book):
        http = Http(service.listener.port)
        bearer = f"Authorization: Bearer {token(book, *ORDERS)}\r\n"
        send = json.dumps({"topic": "orders", "payload_b64": HI}).encode()
        assert (await http.request("POST", "/v1/send", send, bearer))[0] == 200
        _, body = await http.request("POST", "/v1/recv", b'{"topic":"orders"}', bearer)
        (message,) = body["messages"]
        settle = {"msg_id": message["msg_id"], "receipt": message["receipt"]}
        _, listed = await http.request("GET", "/v1/topics", b"", bearer)
        assert [topic["topic"] for topic in listed["topics"]] == ["orders"]
        for _ in range(2):
            assert await http.request("POST", "/v1/ack", json.dumps(settle).encode(), bearer) == (200, {"ok": True})
        http.close()


@pytest.mark.real_loop
async def test_stream_ends_with_the_reason_when_its_token_is_revoked() -> None:
    async with guarded(LISTENER) as (service, book):
        http = Http(service.listener.port)
        operator, reader_token = token(book), token(book, *ORDERS)
        reader, writer = await asyncio.open_connection("127.0.0.1", service.listener.port)
        body = b'{"topic":"orders","wait_ms":100,"visibility_ms":60000,"max_inflight":8192}'
        head = f"Host: localhost\r\nAuthorization: Bearer {reader_token}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(b"POST /v1/recv/stream HTTP/1.1\r\n" + head.encode() + body)
        await reader.readuntil(b"\r\n\r\n")
        lines: list[dict] = []
        while not lines or "end" not in lines[-1]:
            await service.api.send(Send("orders", b"x"), Call(operator))
            lines.append(json.loads(await _line(reader)))
            # From here on it is looked for at most a second later; what was leased meanwhile goes back.
            book.floors.ids.add(book._entries[reader_token].claims.tid)

        writer.close()

        assert lines[-1] == {"end": "revoked"}
        assert "msg_id" in lines[0]
        assert service.state.ledger.inflight == len(lines) - 1
        http.close()


def revoke(book: TokenBook, one: str) -> None:
    book.floors.ids.add(book._entries[one].claims.tid)


async def test_long_poll_ends_within_a_second_of_its_revocation() -> None:
    async with guarded() as (service, book):
        reader, loop = token(book, *ORDERS), asyncio.get_running_loop()
        poll = asyncio.ensure_future(service.api.recv(Recv("orders", wait_ms=20_000), Call(reader)))
        await asyncio.sleep(5.0)
        revoke(book, reader)
        began = loop.time()

        with pytest.raises(Unauthenticated) as caught:
            await poll
        assert caught.value.facts["reason"] == "revoked"
        assert loop.time() - began <= 1.0


async def test_message_that_comes_after_a_revocation_goes_to_nobody_who_was_revoked() -> None:
    async with guarded() as (service, book):
        reader, other, operator = token(book, *ORDERS), token(book, *ORDERS), token(book)
        revoked = asyncio.ensure_future(service.api.recv(Recv("orders", wait_ms=20_000), Call(reader)))
        await asyncio.sleep(1.0)
        good = asyncio.ensure_future(service.api.recv(Recv("orders", wait_ms=20_000), Call(other)))
        await asyncio.sleep(1.1)
        revoke(book, reader)
        await service.api.send(Send("orders", b"secret"), Call(operator))

        assert [m.payload for m in (await good).messages] == [b"secret"]
        with pytest.raises(Unauthenticated):
            await revoked


@pytest.mark.parametrize("max_inflight", [1, 64], ids=["out of credit", "idle"])
async def test_silent_stream_ends_within_a_second_of_its_revocation(max_inflight: int) -> None:
    async with guarded() as (service, book):
        operator, reader, loop = token(book), token(book, *ORDERS), asyncio.get_running_loop()
        meta = RequestMeta()
        meta.rejudge = service.authority.watch(Call(reader), "recv", "orders")
        lines = RecvStream(service.parts, Recv("orders", visibility_ms=60_000), max_inflight).lines(meta)
        await service.api.send(Send("orders", b"x"), Call(operator))
        assert b"msg_id" in await anext(lines)
        last = asyncio.ensure_future(anext(lines))
        await asyncio.sleep(3.1)
        revoke(book, reader)
        began = loop.time()

        assert json.loads(await last) == {"end": "revoked"}
        assert loop.time() - began <= 1.0
        await lines.aclose()
