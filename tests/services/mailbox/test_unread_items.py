"""An item of a batch that cannot be read is refused alone, in its place; the others are done."""

from __future__ import annotations

import json

import msgspec
import pytest

from penstock.contracts.call import Call
from penstock.contracts.mailbox import Ack, AckBatch, Recv, Send, SendBatch
from penstock.contracts.mailbox_batches import _COMMAS_MAX
from penstock.contracts.mailbox_rules import METHODS
from penstock.kernel.clock import LoopClock
from penstock.kernel.errors import Malformed, OverLimit
from penstock.testing.contracts.memory_mailbox import MemoryMailbox
from tests.services.mailbox.process import Http
from tests.services.mailbox.test_narrow_tokens import LISTENER, guarded, token
from tests.services.mailbox.worlds import WALL

GOOD = {"topic": "orders", "payload_b64": "aGk="}
BAD_SENDS = [
    {**GOOD, "topic": 7},
    {**GOOD, "surprise": 1},
    {**GOOD, "payload_b64": "not base64!"},
    {**GOOD, "delay_ms": 5, "key": "k"},
    {"topic": "orders"},
    17,
    None,
]


def codes(results: list[dict]) -> list[str]:
    return [each.get("code", "ok") for each in results]


@pytest.mark.real_loop
async def test_items_that_cannot_be_read_are_refused_alone_over_http() -> None:
    async with guarded(LISTENER) as (service, book):
        bearer = f"Authorization: Bearer {token(book, 'topic=orders')}\r\n"
        http = Http(service.listener.port)

        async def post(path: str, body: object) -> tuple[int, dict]:
            return await http.request("POST", path, json.dumps(body).encode(), bearer)

        foreign = {**GOOD, "topic": "other"}
        status, sent = await post("/v1/send/batch", {"messages": [GOOD, *BAD_SENDS, foreign, GOOD]})
        assert status == 200
        assert codes(sent["results"]) == ["ok", *["malformed"] * len(BAD_SENDS), "forbidden", "ok"]
        assert "surprise" in sent["results"][2]["detail"]

        _, got = await post("/v1/recv", {"topic": "orders", "max_messages": 3, "visibility_ms": 60_000})
        first, second = ({"msg_id": each["msg_id"], "receipt": each["receipt"]} for each in got["messages"])
        bad = {**first, "receipt": 5}
        _, extended = await post("/v1/extend", {"extends": [{**first, "visibility_ms": 60_000}, bad, first]})
        _, nacked = await post("/v1/nack", {"nacks": [{**second, "reason": 5}, {**second, "delay_ms": 0}]})
        _, acked = await post("/v1/ack", {"acks": [bad, first, {**first, "x": 1}]})
        assert codes(extended["results"]) == ["ok", "malformed", "malformed"]
        assert codes(nacked["results"]) == ["malformed", "ok"]
        assert codes(acked["results"]) == ["malformed", "ok", "malformed"]
        assert service.state.ledger.messages == 1
        http.close()


@pytest.mark.real_loop
async def test_broken_outer_object_is_refused_whole_over_http() -> None:
    many = {"messages": [GOOD] * 256 + [5]}
    async with guarded(LISTENER) as (service, book):
        bearer = f"Authorization: Bearer {token(book)}\r\n"
        http = Http(service.listener.port)
        for path, body, status in (
            ("/v1/send/batch", b'{"messages":[5', 400),
            ("/v1/send/batch", b'{"messages":5}', 400),
            ("/v1/send/batch", b'{"messages":[5],"more":1}', 400),
            ("/v1/send/batch", b"[5]", 400),
            ("/v1/send/batch", json.dumps(many).encode(), 413),
            ("/v1/send/batch", b'{"messages":[' + b"5," * _COMMAS_MAX + b"5,5]}", 400),
            ("/v1/ack", b'{"acks":[5],"msg_id":"m"}', 400),
            ("/v1/ack/some", b'{"acks":[5]}', 400),
            ("/v1/ack", b'{"msg_id":5}', 400),
        ):
            answered, problem = await http.request("POST", path, body, bearer)
            assert (answered, problem["code"]) == (status, "over_limit" if status == 413 else "malformed"), body
        assert not service.state.ledger.messages
        http.close()


def test_the_framed_protocol_reads_what_can_be_read() -> None:
    method = METHODS.by_name["send_batch"]
    raw = msgspec.msgpack.encode({"messages": [{"topic": "orders", "payload_b64": b"hi"}, {"topic": "orders"}, 7]})
    batch = METHODS.decode_request(method, msgspec.Raw(raw))

    assert batch.messages[0] == Send("orders", b"hi")
    assert sorted(batch.unread) == [1, 2]
    for broken in ({"messages": 7}, {"acks": []}, 7):
        with pytest.raises(Malformed):
            METHODS.decode_request(method, msgspec.msgpack.encode(broken))
    with pytest.raises(OverLimit):
        METHODS.decode_request(method, msgspec.msgpack.encode({"messages": [7] * 257}))
    whole = SendBatch((Send("orders", b"hi"),))
    assert METHODS.decode_request(method, msgspec.msgpack.encode(whole)) == whole


@pytest.mark.parametrize("kind", ["service", "fake"])
async def test_contract_refuses_what_could_not_be_read(kind: str) -> None:
    async with guarded() as (service, book):
        api = service.api if kind == "service" else MemoryMailbox(LoopClock(WALL))
        call = Call(token(book, "budget.reqs=40"))
        raw = {"messages": [7, {"topic": "orders", "payload_b64": b"hi"}]}
        batch = METHODS.decode_request(METHODS.by_name["send_batch"], msgspec.msgpack.encode(raw))
        sent = (await api.send_batch(batch, call)).results
        (message,) = (await api.recv(Recv("orders"), call)).messages
        acks = msgspec.to_builtins(AckBatch((Ack(message.msg_id, message.receipt),)))
        raw = msgspec.msgpack.encode({"acks": [*acks["acks"], {"msg_id": 7}]})
        acked = (await api.ack_batch(METHODS.decode_request(METHODS.by_name["ack_batch"], raw), call)).results

        assert [result.code for result in sent] == ["malformed", msgspec.UNSET]
        assert [result.code for result in acked] == [msgspec.UNSET, "malformed"]
