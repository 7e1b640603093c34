"""Payloads that people can read over HTTP, and what a consumer tells when it gives a message back."""

from __future__ import annotations

import base64
import json

import pytest
from jsonschema import Draft202012Validator

from penstock.contracts.handler_error import HandlerError, join_cause, split_cause
from penstock.contracts.mailbox import Nack, Recv, Send
from penstock.contracts.plain_payloads import read_plain_send
from penstock.kernel.errors import Malformed
from penstock.wire.ids import address_of
from tests.acceptance.node_process import NodeProcess
from tests.services.mailbox.worlds import mailbox_world

NEITHER = "There is no payload: give payload, a text or any JSON value, or payload_b64, bytes as Base64."


def ask(node: NodeProcess, path: str, **body: object):
    return node.ask("mailbox", "POST", path, body, token=True)


def take(node: NodeProcess, topic: str, **more: object) -> dict:
    [message] = ask(node, "/v1/recv", topic=topic, wait_ms=20_000, **more).json()["messages"]
    return message


@pytest.mark.parametrize(
    ("payload", "stored", "kind"),
    [
        ("two pizzas ü", "two pizzas ü".encode(), "text/plain"),
        ({"a": [1, None, "ü"]}, '{"a":[1,null,"ü"]}'.encode(), "application/json"),
        ([], b"[]", "application/json"),
        (None, b"null", "application/json"),
        (3.5, b"3.5", "application/json"),
    ],
)
def test_a_text_or_a_json_value_is_stored_as_bytes_and_comes_back_as_it_was(
    node: NodeProcess, payload: object, stored: bytes, kind: str
) -> None:
    topic = f"plain/{kind}/{len(stored)}"
    assert ask(node, "/v1/send", topic=topic, payload=payload).status == 200

    got = take(node, topic)

    assert (got["payload"], base64.b64decode(got["payload_b64"])) == (payload, stored)
    assert (got["attrs"], got["payload_hash"]) == ({"content-type": kind}, address_of(stored))


@pytest.mark.parametrize("payload", [{"payload": "x"}, {"payload": [1]}, {"payload_b64": "eA=="}])
def test_meta_goes_with_either_payload(node: NodeProcess, payload: dict) -> None:
    topic = f"meta/{len(str(payload))}"
    assert ask(node, "/v1/send", topic=topic, meta_b64="aGk=", **payload).status == 200

    assert take(node, topic)["meta_b64"] == "aGk="


def test_what_cannot_be_shown_plainly_is_base64_alone(node: NodeProcess) -> None:
    odd = base64.b64encode(b"{\xff").decode()
    for number, attrs in enumerate([{}, {"content-type": "application/json"}, {"content-type": "text/plain"}]):
        assert ask(node, "/v1/send", topic=f"odd/{number}", payload_b64=odd, attrs=attrs).status == 200
        assert "payload" not in take(node, f"odd/{number}")
    ask(node, "/v1/send", topic="odd/quiet", payload="x")
    assert "payload" not in take(node, "odd/quiet", text=False)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"topic": "t", "payload": "x", "payload_b64": "eA=="}, "Give payload or payload_b64, not both."),
        ({"topic": "a b", "payload": "x"}, "topic holds letters"),
        ({"topic": "t"}, NEITHER),
        ({"topic": "t", "attrs": {"payload": "x", "payload_b64": "x"}}, NEITHER),
        ({"payload": "x"}, "The field topic is missing."),
        ({"payload_b64": "eA=="}, "The field topic is missing."),
        ({"topic": "t", "payload": "x", "meta": "eA=="}, "There is no field meta. Did you mean meta_b64?"),
        ({"topic": "t", "payload_b64": 5}, "payload_b64 must be Base64 text, not a whole number."),
        ({"topic": "t", "payload_b64": 5, "attrs": {"payload": "x"}}, "payload_b64 must be Base64 text"),
        ({"topic": "t", "payload": "x", "colour": 1}, "There is no field colour."),
        ({"topik": "t", "payload": "x"}, "There is no field topik. Did you mean topic?"),
        ({"topic": "t", "payload": "x", "idemkey": "a"}, "There is no field idemkey. Did you mean idem_key?"),
        ({"topic": "t", "payload_b64": "eA==", "delayms": 1}, "There is no field delayms. Did you mean delay_ms?"),
        ({"topic": "t", "payloud": "x"}, "There is no field payloud. Did you mean payload?"),
        ({"topic": "t", "payload": "x", "key": "k", "delay_ms": 5}, "delay_ms cannot be given together with key"),
        ({"topic": "t", "payload": "x", "payload_hash": "b3:" + "0" * 64}, "does not match its payload_hash"),
    ],
)
def test_bad_plain_messages_are_refused_in_words_and_nothing_is_stored(
    node: NodeProcess, body: dict, said: str
) -> None:
    answer = node.ask("mailbox", "POST", "/v1/send", body, token=True)

    assert answer.status in {400, 422}
    assert said in answer.json()["detail"]


@pytest.mark.parametrize("number", [float("nan"), -float("inf")])
def test_a_number_that_json_lacks_is_refused_and_not_stored_as_null(node: NodeProcess, number: float) -> None:
    """Python writes it as the bare word NaN or Infinity, which no JSON reader has to take."""
    message = {"topic": "t/nan", "payload": {"a": number}}
    for answer in (ask(node, "/v1/send", **message), ask(node, "/v1/send/batch", messages=[message])):
        assert answer.status == 400
        assert answer.json()["detail"].startswith("The body is no JSON: invalid character (byte ")
    assert node.ask("mailbox", "GET", "/v1/topics/t%2Fnan", token=True).status == 404


def test_a_number_beyond_the_range_is_told_with_its_field() -> None:
    with pytest.raises(Malformed, match=r"^A number in payload is too large for JSON readers\.$"):
        read_plain_send(b'{"topic":"t","payload":{"a":1e999}}')


def test_a_batch_takes_both_forms_and_refuses_each_on_its_own(node: NodeProcess) -> None:
    batch = [
        {"topic": "mix", "payload": {"n": 1}},
        {"topic": "mix", "payload_b64": "eA=="},
        {"topic": "mix", "payload": 1, "payload_b64": "eA=="},
        {"topic": "m i x", "payload": 1},
        {"topik": "mix", "payload": 1},
        {"topic": "mix", "payloud": 1},
        {"topic": "mix"},
    ]
    results = ask(node, "/v1/send/batch", messages=batch).json()["results"]
    ack = ask(node, "/v1/ack", acks=[{"msgid": "x", "receipt": "x"}]).json()["results"]

    assert ["msg_id" in result for result in results] == [True, True, *[False] * 5]
    assert results[4]["detail"] == "There is no field topik. Did you mean topic?"
    assert results[5]["detail"] == "There is no field payloud. Did you mean payload?"
    assert ack[0]["detail"] == "There is no field msgid. Did you mean msg_id?"
    assert results[2]["detail"] == "Give payload or payload_b64, not both."
    assert results[3]["detail"].startswith("topic holds letters")
    assert results[6]["detail"] == NEITHER


MESSAGES = [
    ({"payload": "x"}, 200),
    ({"payload": None}, 200),
    ({"payload": {"payload_b64": "x"}, "meta_b64": "aGk="}, 200),
    ({"payload_b64": "eA==", "meta_b64": "aGk=", "attrs": {"payload": "x"}}, 200),
    ({"payload": "x", "payload_b64": "eA=="}, 400),
    ({"payload": None, "payload_b64": "eA=="}, 400),
    ({}, 400),
    ({"payload": "x", "meta": "aGk="}, 400),
    ({"payload_b64": "eA==", "meta": "aGk="}, 400),
    ({"payload": "x", "colour": 1}, 400),
    ({"payload_b64": None}, 400),
]


def valid(described: dict, where: str, value: object) -> bool:
    """Tell whether a value is what the description of a node says."""
    operation = described["paths"][where]["post"]
    content = operation["requestBody"] if isinstance(value, dict) else operation["responses"]["2XX"]
    schema = content["content"]["application/json"]["schema"]
    value = value if isinstance(value, dict) else json.loads(value)
    return Draft202012Validator({**schema, "components": described["components"]}).is_valid(value)


def test_what_the_description_allows_is_what_the_node_takes(node: NodeProcess) -> None:
    described = node.ask("mailbox", "GET", "/openapi.json").json()
    for fields, status in MESSAGES:
        message = {"topic": "described", **fields}
        one = ask(node, "/v1/send", **message)
        [in_batch] = ask(node, "/v1/send/batch", messages=[message]).json()["results"]

        assert (message, one.status, "msg_id" in in_batch) == (message, status, status == 200)
        assert valid(described, "/v1/send", message) is (status == 200), message
        assert valid(described, "/v1/send/batch", {"messages": [message]}) is (status == 200), message


def test_the_description_allows_what_recv_answers_and_knows_its_plain_payload(node: NodeProcess) -> None:
    described = node.ask("mailbox", "GET", "/openapi.json").json()
    ask(
        node,
        "/v1/send/batch",
        messages=[{"topic": "told/recv", **fields} for fields, status in MESSAGES if status == 200],
    )
    answer = ask(node, "/v1/recv", topic="told/recv", max_messages=10)
    received = described["components"]["schemas"]["PlainEnvelope"]

    assert valid(described, "/v1/recv", answer.body)
    assert ["payload" in message for message in answer.json()["messages"]] == [True, True, True, False]
    assert set().union(*answer.json()["messages"]) <= set(received["properties"])
    assert "payload" not in received["required"]


@pytest.mark.parametrize("engine", ["sqlite", "memory"])
async def test_the_last_error_is_kept_with_the_attempt_and_an_uncounted_end_uses_none(engine: str) -> None:
    error = HandlerError("KeyError", "'size'", "Traceback\n" + "  line\n" * 2000)
    async with mailbox_world(engine, max_attempts=2) as world:
        api = world.api
        await api.send(Send("t", b"x"))
        for _ in range(3):
            [got] = (await api.recv(Recv("t", visibility_ms=60_000))).messages
            answer = await api.nack(Nack(got.msg_id, got.receipt, delay_ms=0, uncounted=True))
            assert (got.attempt, answer.dead_lettered, answer.visible_in_ms) == (1, False, 0)
        for reason in ("first\0", "second"):
            [got] = (await api.recv(Recv("t", visibility_ms=60_000))).messages
            answer = await api.nack(Nack(got.msg_id, got.receipt, reason=reason, delay_ms=0, error=error))
        from penstock.contracts.mailbox import GetDlq

        [letter] = (await api.dlq(GetDlq("t"))).entries

    assert (answer.dead_lettered, letter.reason, letter.attempts) == (True, "rejected:second", 2)
    assert [(end.cause, end.error is None) for end in letter.history] == [
        ("rejected:first", True), ("rejected:second", False)
    ]  # fmt: skip
    kept = letter.history[-1].error
    assert (kept.class_, kept.message, kept.traceback.endswith("  line\n")) == ("KeyError", "'size'", True)
    assert len(kept.class_ + kept.message + kept.traceback) == 4096


def test_an_error_that_cannot_be_read_harms_nothing() -> None:
    assert split_cause("nack\0{broken") == ("nack", None)
    assert split_cause(join_cause("a\0b", None)) == ("ab", None)
    assert json.loads(join_cause("a", HandlerError("E")).partition("\0")[2]) == {"class": "E"}
