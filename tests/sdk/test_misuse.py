"""A wrong argument is refused in a sentence, before any call is made; a wrong `with` says the right one."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.client import (
    Client,
    Malformed,
    Reject,
    SdkOptions,
    TopicSettings,
    Unauthenticated,
    connect,
    connect_sync,
    narrow,
    new_message,
    sync,
)
from penstock.contracts.mailbox import Ack
from tests.acceptance.node_process import NodeProcess
from tests.sdk.kit import TOPIC, no_logging, world

NOWHERE = "http://127.0.0.1:9"
TOKEN = "psp1_x"


LEASE = Ack("a message", "a receipt")


def itself() -> list[object]:
    held: list[object] = []
    held.append(held)
    return held


async def texts():
    yield "text"


WRONG: list[tuple[str, Callable[[Client], object]]] = [
    ("topic must be a text, not null", lambda c: c.mailbox.send(None, "x")),
    ("the value is nan", lambda c: c.mailbox.send("a", float("nan"))),
    ("this one holds itself", lambda c: c.mailbox.send("a", itself())),
    ("The payload has a character that UTF-8 lacks, at place 1", lambda c: c.mailbox.send("a", "x\ud800")),
    (r"'\ud800' is not UTF-8 text", lambda c: c.mailbox.send("a", "x", attrs={"b": "\ud800"})),
    (r"'\ud800' is not UTF-8 text", lambda c: c.mailbox.send("a", "x", idem_key="\ud800")),
    ("meta are bytes, not a text", lambda c: c.mailbox.send("a", "x", meta="x")),
    ("send_batch takes a list of messages by new_message, not a text", lambda c: c.mailbox.send_batch("abc")),
    ("send_batch takes a list of messages by new_message, not None", lambda c: c.mailbox.send_batch(None)),
    ("not an object of Send", lambda c: c.mailbox.send_batch(new_message("a", "x"))),
    ("send_batch takes messages that new_message made, not an object", lambda c: c.mailbox.send_batch([{}])),
    ("final makes a dead letter at once: it", lambda c: c.mailbox.nack(LEASE, delay_ms=1, final=True)),
    ("final must be true or false, not a text", lambda c: c.mailbox.nack(LEASE, final="yes")),
    ("ack_batch takes a list of messages, not a whole number", lambda c: c.mailbox.ack_batch(5)),
    ("state is not 'done'; it is one of ", lambda c: c.mailbox.peek("a", "done")),
    ("put_settings takes TopicSettings", lambda c: c.mailbox.put_settings("a", {"max_attempts": 3})),
    ("audience takes a list of services, not None", lambda c: c.passport.issue("ada", None)),
    ("caveats takes a list of texts, not an object", lambda c: c.passport.issue("ada", "*", caveats={"op": "send"})),
    ("store takes get, put, not 'read'.", lambda c: c.passport.worker_token("w", "a", store=["read"])),
    ("topic is a text, not a list", lambda c: c.passport.worker_token("w", ["a", "b"])),
    ("topic is a topic, or the beginning of several", lambda c: c.passport.worker_token("w", "a b")),
    ("token is a text, not None", lambda c: c.passport.verify(None)),
    ("verify_batch takes a list of tokens, not a text", lambda c: c.passport.verify_batch("psp1_x")),
    ("put takes bytes, not None", lambda c: c.storage.put(None)),
    ("not bytes; for these, call put", lambda c: c.storage.put_stream(b"x")),
    ("put_stream takes an async iterator of bytes, not a list", lambda c: c.storage.put_stream([b"x"])),
    ("An address is a text such as b3:..., not None", lambda c: c.storage.get(None)),
    ("offset is a whole number from 0 on, not 'a'", lambda c: c.storage.get("b3:" + "0" * 64, offset="a")),
    ("length is a whole number from 1 on, not 0", lambda c: c.storage.get("b3:" + "0" * 64, length=0)),
    ("put takes bytes, or an async iterator of bytes, not a text", lambda c: c.interop.put("text")),
    ("An address is a text, not None", lambda c: c.interop.get(None)),
]


@pytest.mark.parametrize(("said", "call"), WRONG, ids=range(len(WRONG)))
async def test_a_wrong_argument_is_a_sentence_and_no_call_is_made(said: str, call) -> None:
    async with connect(NOWHERE, token=TOKEN) as client:
        with pytest.raises(Malformed, match=re.escape(said)) as refused:
            await call(client)

        assert "url" not in refused.value.facts


@pytest.mark.parametrize("limit", [0, -1, "a"])
async def test_peek_all_names_a_wrong_limit(limit) -> None:
    async with connect(NOWHERE, token=TOKEN) as client:
        with pytest.raises(Malformed, match="limit is a whole number from 1 on"):
            _ = [each async for each in client.mailbox.peek_all("a", limit=limit)]


@pytest.mark.parametrize("drain_s", ["a", -1, None])
async def test_a_wrong_drain_is_refused_when_the_consumer_is_made(drain_s) -> None:
    async with connect(NOWHERE, token=TOKEN) as client:
        with pytest.raises(Malformed, match="drain_s is a number of seconds from 0 on"):
            client.mailbox.consume("a", drain_s=drain_s)


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout_s": "3"},
        {"timeout_s": 0},
        {"timeout_s": None},
        {"read_timeout_s": -1},
        {"tries_max": 0},
        {"connections_max": 0},
        {"connections_max": "a"},
        {"answer_bytes_max": -1},
        {"tls": True},
    ],
    ids=str,
)
def test_an_option_that_cannot_be_is_refused_by_its_name(wrong: dict) -> None:
    with pytest.raises(Malformed, match=f"SdkOptions: {next(iter(wrong))} is "):
        SdkOptions(**wrong)


def test_options_are_sdk_options_and_a_narrowing_is_of_texts() -> None:
    with pytest.raises(Malformed, match=r"options is SdkOptions\(timeout_s=3\), not an object"):
        connect(NOWHERE, token=TOKEN, options={"timeout_s": 3})  # type: ignore[arg-type]
    with pytest.raises(Malformed, match="token is a text, not None"):
        narrow(None, "op=send")  # type: ignore[arg-type]


async def test_a_wrong_with_says_the_right_one() -> None:
    async with world() as w:
        await w.send(1)
        consumer = w.mailbox.consume(TOPIC)
        with pytest.raises(TypeError, match="write `async for delivery in consumer`"):
            for _ in consumer:
                pass
        delivery = await anext(consumer)
        with pytest.raises(TypeError, match="write `async with delivery`"), delivery:
            pass


@pytest.mark.real_loop
async def test_a_wrong_async_with_says_the_right_one(node: NodeProcess) -> None:
    with connect_sync(node.ready["data_dir"]) as client:
        client.mailbox.send("misuse/with", "x")
        consumer = client.mailbox.consume("misuse/with")
        with pytest.raises(TypeError, match="write `for delivery in consumer`"):
            async for _ in consumer:
                pass
        delivery = next(iter(consumer))
        with pytest.raises(TypeError, match="write `with delivery`"):
            async with delivery:
                pass
        delivery.__enter__()
        delivery.ack()
        with pytest.raises(TypeError, match=r"write `with connect_sync\(...\)`"):
            async with client:
                pass


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        (5, "Pieces are an iterable of bytes, such as a list of them, not a whole number"),
        ("text", "Pieces are an iterable of bytes, such as a list of them, not a text"),
        (["text"], "The pieces of put_stream are bytes, not a text"),
    ],
    ids=str,
)
def test_wrong_pieces_of_the_blocking_client_are_a_sentence(node: NodeProcess, pieces, said: str) -> None:
    with sync.connect(node.ready["data_dir"]) as client, pytest.raises(Malformed, match=said):
        client.storage.put_stream(pieces)


def test_an_error_that_the_blocking_client_raises_is_not_told_by_its_thread_too(
    node: NodeProcess, caplog: pytest.LogCaptureFixture
) -> None:
    with sync.connect(node.ready["data_dir"]) as client:
        client.mailbox.send("misuse/twice", "x")
        with next(iter(client.mailbox.consume("misuse/twice"))) as delivery:
            delivery.ack()
            with pytest.raises(RuntimeError, match="settled already"):
                delivery.ack()

    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_no_handler_that_exits_is_told_as_a_task_that_failed(
    node: NodeProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    async def leave(_delivery) -> None:
        raise SystemExit(3)

    async def main() -> None:
        async with connect(Path(node.ready["data_dir"])) as client:
            await client.mailbox.send("misuse/exit", "x")
            await client.mailbox.run("misuse/exit", leave)

    with no_logging(), pytest.raises(SystemExit, match="3"):
        asyncio.run(main())

    assert "task.failed" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"visibility_ms": 100}, "visibility_ms must be 0 or at least 250."),
        ({"tags": {str(number): "x" for number in range(65)}}, "A topic has at most 64 tags."),
        ({"tags": {"a": "x" * 70_000}}, "The tags are above 65536 bytes."),
    ],
    ids=["visibility", "tags", "bytes"],
)
def test_settings_that_cannot_be_are_malformed_when_they_are_made(wrong: dict, said: str) -> None:
    with pytest.raises(Malformed, match=said):
        TopicSettings(**wrong)


@pytest.mark.real_loop
async def test_without_a_token_a_call_says_where_the_sdk_takes_one_from(node: NodeProcess) -> None:
    async with connect(f"http://127.0.0.1:{node.port('mailbox')}") as client:
        with pytest.raises(Unauthenticated, match="Give connect token= or token_file=, or set PENSTOCK_TOKEN_FILE"):
            await client.mailbox.topics()


def test_reject_is_made_with_what_the_mailbox_takes() -> None:
    with pytest.raises(Malformed, match="delay_ms must be at least 0"):
        Reject(delay_ms=-1)
    with pytest.raises(
        Malformed, match=r"final makes a dead letter at once: it cannot be given together with delay_ms"
    ):
        Reject("never", delay_ms=0, final=True)
