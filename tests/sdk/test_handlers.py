"""Handlers of the wrong kind are refused, and use up no message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest

from penstock.client import Malformed, sync
from penstock.kernel.deadline import timeout
from tests.acceptance.node_process import NodeProcess
from tests.sdk.kit import GONE, TOPIC, world


def plain(delivery) -> None:
    """Do the work without asyncio."""


def unannotated(delivery):
    return None


async def asynchronous(delivery) -> None:
    """Do the work under asyncio."""


def yields(delivery) -> Iterator[None]:
    yield


async def yields_async(delivery) -> AsyncIterator[None]:
    yield


class Called:
    async def __call__(self, delivery) -> None:
        """Do the work under asyncio."""

    async def method(self, delivery) -> None:
        """Do the work under asyncio."""

    def plain(self, delivery) -> None:
        """Do the work without asyncio."""


@pytest.mark.parametrize("handler", [plain, partial(plain), Called().plain, yields, yields_async, None, "handle"])
async def test_what_is_surely_no_async_function_is_refused_before_any_message_is_taken(handler) -> None:
    async with world() as w:
        await w.send(1)
        with pytest.raises(TypeError, match="the handler must be"):
            await w.mailbox.run(TOPIC, handler)

        assert (w.server.polls, await w.left()) == (0, {**GONE, "ready": 1})


@pytest.mark.parametrize("handler", [unannotated, lambda _delivery: None, lambda _delivery: 3])
async def test_a_plain_handler_is_told_at_its_first_message_which_keeps_all_its_attempts(handler) -> None:
    async with world(max_attempts=1) as w:
        await w.send(3)
        with pytest.raises(TypeError, match="must be an async function"):
            async with timeout("run", 600):
                await w.mailbox.run(TOPIC, handler, concurrency=2)

        assert await w.left() == {**GONE, "ready": 3}
        assert [nack.uncounted for nack in w.server.nacks] == [True] * len(w.server.nacks)


class Worker:
    """Stops its consumer after the first message."""

    def __init__(self, consumer) -> None:
        self.consumer = consumer

    async def work(self, delivery) -> None:
        await asyncio.sleep(0)
        self.consumer.stop()

    __call__ = work


@pytest.mark.parametrize(
    "handler_of",
    [lambda w: w, lambda w: w.work, lambda w: partial(w.work), lambda w: lambda one: w.work(one)],  # noqa: PLW0108
    ids=["object", "method", "partial", "lambda"],
)
async def test_whatever_returns_something_to_await_is_a_handler(handler_of) -> None:
    async with world() as w:
        await w.send(1)
        consumer = w.mailbox.consume(TOPIC)
        await consumer.run(handler_of(Worker(consumer)))

        assert await w.left() == GONE


@pytest.mark.parametrize("concurrency", [0, -1, 257, "4", None])
async def test_a_wrong_concurrency_is_called_by_its_name(concurrency) -> None:
    async with world() as w:
        with pytest.raises(Malformed, match="concurrency is a whole number from 1 to 256"):
            w.mailbox.consume(TOPIC, concurrency=concurrency)


# --- without asyncio


@pytest.fixture
def client(node: NodeProcess) -> Iterator[sync.SyncClient]:
    with sync.connect(node.ready["data_dir"]) as opened:
        yield opened


@pytest.mark.parametrize(
    "handler", [asynchronous, partial(asynchronous), Called(), Called().method, yields, yields_async, None]
)
def test_an_async_handler_of_the_blocking_client_is_refused_before_any_message_is_taken(
    client: sync.SyncClient, handler
) -> None:
    with pytest.raises(TypeError, match="the handler must be"):
        client.mailbox.run("handlers/never", handler)


def test_a_blocking_handler_that_returns_a_coroutine_acks_nothing(client: sync.SyncClient) -> None:
    client.mailbox.send("handlers/hidden", "x")
    consumer = client.mailbox.consume("handlers/hidden")

    def handle(delivery: sync.SyncDelivery):
        consumer.stop()  # so that the run ends, whatever it does with the result
        return asynchronous(delivery)

    with pytest.raises(TypeError, match="must be a plain function"):
        consumer.run(handle)

    [again] = client.mailbox.recv("handlers/hidden", wait_ms=20_000)
    assert again.attempt == 1
    client.mailbox.ack(again)
