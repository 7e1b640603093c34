"""Each way in which a message ends badly is told in one plain line, once, also where no logging is configured."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable

import pytest

from penstock.client import Delivery, Malformed, Reject, sync
from tests.acceptance.node_process import NodeProcess
from tests.sdk.kit import AWAY, GONE, TOPIC, World, no_logging, started, world

Handle = Callable[[Delivery], Awaitable[object]]


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return what a person reads, without tracebacks."""
    return [line for line in capsys.readouterr().err.splitlines() if not line.startswith((" ", "Traceback"))]


async def work_once(w: World, handle: Handle, **said) -> str:
    """Have one message handled once; returns its id."""
    [msg_id] = await w.send(1)
    ended = asyncio.Event()
    consumer = w.mailbox.consume(TOPIC, **said)

    async def once(delivery: Delivery) -> None:
        consumer.stop()
        try:
            await handle(delivery)
        finally:
            ended.set()

    with no_logging():
        await consumer.run(once)
    assert ended.is_set()
    return msg_id


async def reject(_delivery: Delivery) -> None:
    raise Reject("too\nhot", delay_ms=90_000)


async def reject_at_once(_delivery: Delivery) -> None:
    raise Reject(delay_ms=0)


async def reject_by_an_error(_delivery: Delivery) -> None:
    raise Reject(KeyError("size"), delay_ms=300)


async def fail_after_ack(delivery: Delivery) -> None:
    await delivery.ack()
    raise ValueError("after")


async def fail_after_nack(delivery: Delivery) -> None:
    await delivery.nack("mine", delay_ms=2000)
    raise ValueError("after")


async def fail_at_length(_delivery: Delivery) -> None:
    raise ValueError("x" * 5000)


async def nack(delivery: Delivery) -> None:
    await delivery.nack("mine", delay_ms=2000)


REJECTED = "penstock: the handler of orders rejected message ID, attempt 1"
FAILED = "penstock: the handler of orders failed on message ID, attempt 1"


@pytest.mark.parametrize(
    ("handle", "said"),
    [
        (reject, [f"{REJECTED}: too hot; it comes again in 1m 30s"]),
        (reject_at_once, [f"{REJECTED}; it comes again at once"]),
        (reject_by_an_error, [f"{REJECTED}: 'size'; it comes again in 0.3s"]),
        (fail_after_ack, [f"{FAILED}: ValueError: after; it was acked before, so it does not come again"]),
        (fail_after_nack, [f"{FAILED}: ValueError: after; it comes again in 2.0s"]),
        (nack, []),
    ],
)
async def test_an_end_is_told_once(handle: Handle, said: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    async with world() as w:
        msg_id = await work_once(w, handle)

    told = [line.replace(msg_id, "ID") for line in lines(capsys)]
    assert [line for line in told if line.startswith("penstock:")] == said


async def test_a_line_is_bounded_also_when_the_error_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    async with world() as w:
        await work_once(w, fail_at_length)

    [line] = [line for line in lines(capsys) if line.startswith("penstock:")]
    assert len(line) < 1500
    assert "xxx...; it comes again" in line


@pytest.mark.parametrize("handle", [reject, nack])
async def test_the_last_attempt_that_is_given_back_is_told_as_a_dead_letter(
    handle: Handle, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world(max_attempts=1) as w:
        msg_id = await work_once(w, handle)

        [line] = lines(capsys)
        assert line.startswith(f"penstock: the handler of orders rejected message {msg_id}, attempt 1: ")
        assert line.endswith(f"; it is a dead letter now (penstock dlq show orders {msg_id})")


async def test_an_interrupted_handler_is_told_once_and_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    async def lose(delivery: Delivery) -> None:
        await w.mailbox.nack(delivery, delay_ms=60_000)
        await asyncio.sleep(3600)

    async with world() as w:
        msg_id = await work_once(w, lose, visibility_ms=1000)

    assert capsys.readouterr().err.splitlines() == [
        (
            f"penstock: the lease of message {msg_id} of orders ended before its handler did, attempt 1: "
            "the mailbox has given the message to another, or it was settled elsewhere; the handler is interrupted; "
            "it is delivered again, so it may be handled twice"
        )
    ]


@pytest.mark.parametrize("away_s", [0.0, 60.0], ids=["refused", "no answer"])
async def test_a_message_that_failed_while_the_node_was_away_is_said_to_come_again(
    away_s: float, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fail_while_it_is_away(_delivery: Delivery) -> None:
        w.server.down, w.server.lag_s = AWAY, away_s
        raise ValueError("plain")

    async with world() as w:
        msg_id = await work_once(w, fail_while_it_is_away, visibility_ms=6000)
        w.server.lag_s = 0.0

    (line,) = [line for line in lines(capsys) if msg_id in line]
    assert line.endswith("attempt 1: ValueError: plain; it comes again when its lease ends")


async def test_a_message_that_was_handled_and_could_not_be_acked_is_no_failure_of_its_handler(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def lose_the_node(_delivery: Delivery) -> None:
        w.server.down = AWAY

    async with world() as w:
        msg_id = await work_once(w, lose_the_node, visibility_ms=1000)

    assert lines(capsys) == [
        (
            f"penstock: message {msg_id} of orders, attempt 1, was handled and could not be settled: "
            "DownstreamUnavailable: mailbox is out of reach: Connection refused.; it comes again when its lease ends"
        )
    ]


async def test_handlers_that_are_cut_at_the_stop_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    async with world() as w:
        await w.send(2)
        work = w.mailbox.run(TOPIC, lambda _: asyncio.sleep(3600), concurrency=2, drain_s=2.0)
        with no_logging():
            async with started(work) as task:
                await asyncio.sleep(1)
                task.cancel()
                await asyncio.wait({task})

    assert lines(capsys) == [
        (
            "penstock: the consumer of orders stops while 2 handlers did not end within 2.0s: "
            "it cancels what runs and gives the messages back"
        )
    ]


async def test_an_outage_is_told_when_it_begins_and_when_it_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    async with world() as w:
        w.server.down = AWAY
        with no_logging():
            async with started(w.mailbox.run(TOPIC, nack)):
                await asyncio.sleep(60)
                w.server.down = None
                # A pause of at most five seconds, then an answer that waits for no message: not the 20 s of a poll.
                await asyncio.sleep(6)

    assert lines(capsys) == [
        (
            "penstock: the consumer of orders waits for the node and asks again: mailbox is out of reach: "
            "Connection refused."
        ),
        "penstock: the consumer of orders goes on: the node answers",
    ]


async def test_renewals_that_fail_are_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    async def away_for_a_while(_delivery: Delivery) -> None:
        w.server.down = AWAY
        await asyncio.sleep(20)
        w.server.down = None
        await asyncio.sleep(30)

    async with world() as w:
        await work_once(w, away_for_a_while, visibility_ms=30_000, drain_s=100.0)
        assert await w.left() == GONE

    assert lines(capsys) == [
        (
            "penstock: a lease was not renewed: mailbox is out of reach: Connection refused; "
            "renewing is tried again until it ends"
        )
    ]


# --- what a handler gives back with


@pytest.mark.parametrize("delay", [-1, "5", 1.5, 10**15])
async def test_a_wrong_delay_fails_the_handler_by_its_name_and_leaves_no_lease_behind(
    delay, capsys: pytest.CaptureFixture[str]
) -> None:
    async def by_reject(_delivery: Delivery) -> None:
        raise Reject("x", delay_ms=delay)

    async def by_nack(delivery: Delivery) -> None:
        await delivery.nack("x", delay_ms=delay)

    for handle in (by_reject, by_nack):
        async with world(max_attempts=1) as w:
            await work_once(w, handle)

            assert (len(w.keeper), await w.left()) == (0, {**GONE, "dlq": 1})
        assert "Malformed: delay_ms must be " in lines(capsys)[0]


@pytest.mark.parametrize("reason", [5, ValueError("x"), "\ud800"])
async def test_whatever_a_message_is_rejected_with_it_is_given_back(reason) -> None:
    """A reason that is no text kept the message leased for as long as the program ran."""

    async def handle(_delivery: Delivery) -> None:
        raise Reject(reason)

    async with world(max_attempts=1) as w:
        await work_once(w, handle)

        assert (len(w.keeper), await w.left()) == (0, {**GONE, "dlq": 1})


async def test_an_error_that_is_no_utf8_is_given_back_and_shown() -> None:
    async def handle(_delivery: Delivery) -> None:
        raise FileNotFoundError("caf\udce9.txt")

    async with world(max_attempts=1) as w:
        await work_once(w, handle)
        [letter] = [letter async for letter in w.mailbox.dead_letters(TOPIC)]

    assert letter.history[-1].error.message == "caf?.txt"


async def test_a_reason_of_nack_is_a_text() -> None:
    async with world() as w:
        await w.send(1)
        async with await anext(w.mailbox.consume(TOPIC)) as delivery:
            with pytest.raises(Malformed, match="reason must be a text or null"):
                await delivery.nack(5)  # type: ignore[arg-type]


# --- without asyncio


def test_the_blocking_client_tells_the_same(node: NodeProcess, capsys: pytest.CaptureFixture[str]) -> None:
    with sync.connect(node.ready["data_dir"]) as client:
        client.mailbox.send("ends/sync", "x")
        consumer = client.mailbox.consume("ends/sync")

        def handle(delivery: sync.SyncDelivery) -> None:
            if delivery.attempt == 1:
                raise Reject("too hot", delay_ms=200)
            consumer.stop()
            delivery.ack()
            raise ValueError("after")

        with no_logging():
            running = threading.Thread(target=consumer.run, args=(handle,))
            running.start()
            running.join(60)

    told = [re.sub(r"message [0-9a-f-]+", "message ID", line) for line in lines(capsys)]
    assert told == [
        "penstock: the handler of ends/sync rejected message ID, attempt 1: too hot; it comes again in 0.2s",
        (
            "penstock: the handler of ends/sync failed on message ID, attempt 2: ValueError: after; "
            "it was acked before, so it does not come again"
        ),
        "ValueError: after",
    ]
