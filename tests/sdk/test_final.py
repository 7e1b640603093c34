"""A message that can never work is a dead letter at once, in every way a program can say so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.client import Client, Delivery, Reject, connect, sync
from penstock.contracts.mailbox import DeadLetter
from tests.acceptance.node_process import NodeProcess
from tests.sdk.kit import GONE, TOPIC, World, no_logging, world

Handle = Callable[[Delivery], Awaitable[object]]
DEAD = {**GONE, "dlq": 1}


async def reject(_delivery: Delivery) -> None:
    raise Reject("no such order", final=True)


async def reject_from(_delivery: Delivery) -> None:
    try:
        {}["order"]
    except KeyError as error:
        raise Reject("no such order", final=True) from error


async def reject_during(_delivery: Delivery) -> None:
    try:
        {}["order"]
    except KeyError:
        raise Reject("no such order", final=True)  # noqa: B904 - many write it so


async def reject_alone(_delivery: Delivery) -> None:
    try:
        {}["order"]
    except KeyError:
        raise Reject("no such order", final=True) from None


async def reject_by(_delivery: Delivery) -> None:
    raise Reject(KeyError("order"), final=True)


async def nack(delivery: Delivery) -> None:
    await delivery.nack("no such order", final=True)


async def worked(w: World, handle: Handle) -> DeadLetter:
    """Have one message handled; return the dead letter that it is now."""
    await w.send(1)
    consumer = w.mailbox.consume(TOPIC)

    async def once(delivery: Delivery) -> None:
        consumer.stop()
        await handle(delivery)

    with no_logging():
        await consumer.run(once)
    [letter] = [each async for each in w.mailbox.dead_letters(TOPIC)]
    return letter


@pytest.mark.parametrize("handle", [reject, reject_from, nack])
async def test_a_final_message_is_a_dead_letter_on_its_first_attempt_and_that_is_told(
    handle: Handle, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world(max_attempts=5) as w:
        letter = await worked(w, handle)

        assert (letter.reason, letter.attempts, await w.left()) == ("rejected:no such order", 1, DEAD)
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(
        f"penstock: the handler of orders rejected message {letter.msg_id}, attempt 1: no such order"
    )
    assert line.endswith(f"; it is a dead letter now (penstock dlq show orders {letter.msg_id})")


@pytest.mark.parametrize(
    ("handle", "kind"),
    [(reject, None), (reject_from, "KeyError"), (reject_during, "KeyError"), (reject_alone, None), (nack, None)],
)
async def test_the_error_behind_a_rejection_is_kept_with_its_traceback(handle: Handle, kind: str | None) -> None:
    async with world() as w:
        error = (await worked(w, handle)).history[-1].error

    assert (None if error is None else error.class_) == kind
    if error is not None:
        assert error.message == "'order'"
        assert '{}["order"]' in error.traceback


async def test_an_error_given_as_the_reason_is_kept_too() -> None:
    async with world() as w:
        letter = await worked(w, reject_by)

    error = letter.history[-1].error
    assert error is not None
    assert (letter.reason, error.class_, error.message) == ("rejected:'order'", "KeyError", "'order'")


async def test_a_last_attempt_that_is_rejected_keeps_its_error_too() -> None:
    async def again(_delivery: Delivery) -> None:
        raise Reject("no such order") from KeyError("order")

    async with world(max_attempts=1) as w:
        error = (await worked(w, again)).history[-1].error

    assert error is not None
    assert error.class_ == "KeyError"


@pytest.mark.real_loop
async def test_final_nacks_that_share_a_request_end_only_their_own_messages(node: NodeProcess) -> None:
    async with connect(node.ready["data_dir"]) as client:
        topic = "final/joined"
        for number in range(8):
            await client.mailbox.send(topic, number)
        messages = await client.mailbox.recv(topic, max_messages=8, wait_ms=5000)
        async with asyncio.TaskGroup() as group:
            ends = [
                group.create_task(client.mailbox.nack(each, "odd", final=each.json() % 2 == 1)) for each in messages
            ]
        answers = [end.result() for end in ends]

        assert [answer.dead_lettered for answer in answers] == [each.json() % 2 == 1 for each in messages]
        assert await dead(client, topic) == {each.msg_id for each in messages if each.json() % 2}


async def dead(client: Client, topic: str) -> set[str]:
    return {letter.msg_id async for letter in client.mailbox.dead_letters(topic)}


def test_the_blocking_client_ends_messages_in_the_same_ways(node: NodeProcess) -> None:
    topic = "final/blocking"
    with sync.connect(node.ready["data_dir"]) as client:
        for number in range(3):
            client.mailbox.send(topic, number)
        consumer = iter(client.mailbox.consume(topic))
        with next(consumer):
            raise Reject("first", final=True) from KeyError("order")
        with next(consumer) as second:
            second.nack("second", final=True)
        [third] = client.mailbox.recv(topic, wait_ms=5000)
        assert client.mailbox.nack(third, "third", final=True).dead_lettered

        letters = {letter.reason: letter for letter in client.mailbox.dead_letters(topic)}
        assert set(letters) == {"rejected:first", "rejected:second", "rejected:third"}
        error = letters["rejected:first"].history[-1].error
        assert error is not None
        assert error.class_ == "KeyError"
