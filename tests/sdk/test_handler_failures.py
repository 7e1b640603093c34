"""A failing handler is told in words a person can use; a refused token stops the consumer and uses no message up."""

from __future__ import annotations

import asyncio
import logging
import re
import sys

import pytest

from penstock.client import ConsumerStopped, new_message
from penstock.contracts.mailbox import Nack
from penstock.kernel.errors import Expired, Forbidden, Malformed
from penstock.testing import until
from tests.sdk.kit import GONE, TOPIC, started, world


async def fails(_delivery) -> None:
    raise ValueError("no such\nsize")


async def test_one_line_says_which_message_failed_how_and_when_it_comes_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a program that configured no logging."""
    monkeypatch.setattr(logging.getLogger("penstock.client"), "propagate", False)
    async with world(max_attempts=2) as here:
        [msg_id] = await here.send(1)
        async with started(here.mailbox.run(TOPIC, fails)):
            await until(lambda: _dead(here))
        said = capsys.readouterr().err.splitlines()

    lines = [line for line in said if line.startswith("penstock:")]
    head = f"penstock: the handler of orders failed on message {msg_id}, attempt"
    assert lines[0].startswith(f"{head} 1: ValueError: no such size; it comes again ")
    assert (
        lines[1] == f"{head} 2: ValueError: no such size; it is a dead letter now (penstock dlq show orders {msg_id})"
    )
    assert said[1] == "Traceback (most recent call last):"
    assert any('raise ValueError("no such\\nsize")' in line for line in said)


async def test_a_lost_lease_is_told_in_one_line_and_is_no_failure_of_the_handler(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("penstock.client"), "propagate", False)

    async def handle(delivery) -> None:
        if delivery.attempt == 1:
            await here.server.nack(Nack(delivery.msg_id, delivery.receipt))

    async def gone() -> bool:
        return await here.left() == GONE

    async with world() as here:
        [msg_id] = await here.send(1)
        async with started(here.mailbox.run(TOPIC, handle)):
            await until(gone)
    said = capsys.readouterr().err.splitlines()

    assert said == [
        (
            f"penstock: the lease of message {msg_id} of orders ended before its handler did, attempt 1: the mailbox "
            "has given the message to another, or it was settled elsewhere; "
            "it is delivered again, so it may be handled twice"
        )
    ]


async def _dead(here) -> bool:
    return (await here.left())["dlq"] == 1


async def test_the_log_gets_the_same_line_and_the_fields(caplog: pytest.LogCaptureFixture) -> None:
    async with world(max_attempts=1) as here:
        [msg_id] = await here.send(1)
        async with started(here.mailbox.run(TOPIC, fails)):
            await until(lambda: _dead(here))

    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.message.startswith("the handler of orders failed")
    assert (record.fields["event"], record.fields["msg_id"], record.fields["attempt"]) == ("handler.failed", msg_id, 1)
    assert "ValueError" in record.fields["stack"]


@pytest.mark.parametrize("refusal", [Forbidden, Expired])
async def test_a_refused_call_of_the_sdk_stops_the_consumer_and_uses_no_message_up(refusal) -> None:
    """A first application put 40 of 40 messages into the dead letters by one missing right."""
    refused = refusal("This needs op=get.", reason="caveat:op", url="GET http://h/v1/o/b3", hint="Ask its issuer.")

    async def handle(_delivery) -> None:
        raise refused

    async with world(max_attempts=1) as here:
        await here.send(40)
        with pytest.raises(ConsumerStopped, match=r"orders stopped: This needs op=get\. Ask its issuer\.") as stopped:
            await here.mailbox.run(TOPIC, handle, concurrency=4)
        await asyncio.sleep(60)

        assert stopped.value.__cause__ is refused
        assert refused.__traceback__ is None, "one line says all of it"
        assert (await here.left())["dlq"] == 0


async def test_a_refusal_that_is_the_handlers_own_is_a_failure_like_any_other() -> None:
    async def handle(_delivery) -> None:
        raise Forbidden("Not you.")

    async with world(max_attempts=1) as here:
        await here.send(1)
        async with started(here.mailbox.run(TOPIC, handle)) as task:
            await until(lambda: _dead(here))
            assert not task.done()


async def test_the_error_is_kept_with_the_dead_letter_and_bounded() -> None:
    async def handle(_delivery) -> None:
        raise ValueError("x" * 10_000)

    async with world(max_attempts=2) as here:
        await here.send(1)
        async with started(here.mailbox.run(TOPIC, handle)):
            await until(lambda: _dead(here))
        [letter] = [letter async for letter in here.mailbox.dead_letters(TOPIC)]

    first, last = letter.history
    assert (letter.reason, last.cause, last.error.class_) == (
        "rejected:ValueError",
        "rejected:ValueError",
        "ValueError",
    )
    assert first.error is None, "of many attempts the last one's error is kept"
    assert "raise ValueError" in last.error.traceback or "xxxx" in last.error.traceback
    assert len(last.error.class_ + last.error.message + last.error.traceback) <= 4096


async def test_json_goes_round_as_what_it_is() -> None:
    order = {"size": 3, "what": ["pizza", "ü"], "paid": None}
    async with world() as here:
        await here.mailbox.send(TOPIC, order)
        [got] = await here.mailbox.recv(TOPIC)

        assert (got.json(), got.attrs["content-type"]) == (order, "application/json")
        assert got.payload == '{"size":3,"what":["pizza","ü"],"paid":null}'.encode()
        assert got.text() == got.payload.decode()
        with pytest.raises(Malformed, match="a JSON value"):
            await here.mailbox.send(TOPIC, {"when": object()})


@pytest.mark.parametrize(
    ("payload", "where"),
    [
        ({"a": 1.5, "b": float("nan")}, "b is nan"),
        (float("inf"), "the value is inf"),
        ([None, {"sizes": (1, {"w": -float("inf")})}], "[1].sizes[1].w is -inf"),
        ({"large": 2**70, "b": [float("nan")]}, "b[0] is nan"),
    ],
)
async def test_a_number_that_json_lacks_is_refused_with_its_place_and_not_sent_as_null(
    payload: object, where: str
) -> None:
    async with world() as here:
        with pytest.raises(Malformed, match=re.escape(f"{where}, and JSON has no such number; send None")):
            await here.mailbox.send(TOPIC, payload)
        with pytest.raises(Malformed, match="JSON has no such number"):
            new_message(TOPIC, payload)

        assert await here.left() == GONE


@pytest.mark.parametrize("payload", [None, {"a": None, "b": 2**70}, ["\x7f\uf8ff", None, 1.5, -1e308], "nan"])
async def test_null_and_finite_numbers_are_sent_as_they_are(payload: object) -> None:
    async with world() as here:
        await here.mailbox.send(TOPIC, payload)
        [got] = await here.mailbox.recv(TOPIC)

        assert (got.text() if isinstance(payload, str) else got.json()) == payload


async def test_an_argument_of_the_wrong_kind_is_a_sentence() -> None:
    async with world() as here:
        for call, said in (
            (here.mailbox.ack("x"), "ack takes a message that recv returned, or a delivery, not a text."),
            (here.mailbox.nack(None), "nack takes a message that recv returned, or a delivery, not None."),
            (here.mailbox.extend({}, 5), "extend takes a message that recv returned, or a delivery, not an object."),
            (here.mailbox.ack_batch([3]), "ack takes a message that recv returned, or a delivery, not a whole number."),
            (here.mailbox.send(TOPIC, {}, attrs=["a"]), "attrs is an object of texts, such as"),
            (here.mailbox.send(TOPIC, "x", attrs=5), "attrs is an object of texts, such as"),
        ):
            with pytest.raises(Malformed) as refused:
                await call
            assert refused.value.detail.startswith(said)


class Speechless(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


async def test_an_error_whose_text_fails_is_told_and_its_message_given_back_all_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def handle(_delivery) -> None:
        raise Speechless

    monkeypatch.setattr(logging.getLogger("penstock.client"), "propagate", False)
    async with world(max_attempts=1) as here:
        [msg_id] = await here.send(1)
        async with started(here.mailbox.run(TOPIC, handle)):
            await until(lambda: _dead(here))
        [nack] = here.server.nacks
        said = capsys.readouterr().err.splitlines()

    assert nack.msg_id == msg_id
    assert nack.error is not None
    assert nack.error.class_.endswith("Speechless")
    assert nack.error.message == "<exception str() failed>"
    assert "attempt 1: Speechless: <exception str() failed>; it is a dead letter now" in said[0]


async def test_a_program_without_standard_error_goes_on_when_a_handler_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("penstock.client"), "propagate", False)
    monkeypatch.setattr(sys, "stderr", None)
    async with world(max_attempts=2) as here:
        await here.send(1)
        async with started(here.mailbox.run(TOPIC, fails)):
            await until(lambda: _dead(here))
        attempts = [nack.error is not None for nack in here.server.nacks]

    assert attempts == [True, True]
