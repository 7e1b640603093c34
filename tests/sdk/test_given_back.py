"""However a worker stops, no message stays leased that nobody works on, and none loses an attempt by it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from penstock.client import Client, ConsumerStopped, Delivery, connect, sync
from penstock.contracts import mailbox as m
from penstock.contracts.call import NOBODY, Call
from penstock.kernel.errors import Forbidden
from tests.acceptance.node_process import NodeProcess
from tests.sdk.kit import GONE, TOPIC, Switched, World, started, world

ROUNDS = 10


async def refused(_delivery: Delivery) -> None:
    raise Forbidden("This needs op=send.", reason="caveat:op", url="POST http://h/v1/send")


async def check_untouched(w: World, count: int = 1) -> None:
    """All wait in the topic, and the next delivery is the first attempt."""
    await asyncio.sleep(1)
    assert await w.left() == {**GONE, "ready": count}
    got = await w.mailbox.recv(TOPIC, max_messages=count)
    assert [message.attempt for message in got] == [1] * count


@pytest.mark.parametrize("places", [1, 2, 8])
async def test_what_a_refused_handler_gives_back_is_not_taken_by_the_same_consumer(places: int) -> None:
    async with world() as w, started(w.mailbox.run(TOPIC, refused, concurrency=places)) as worker:
        await asyncio.sleep(1)
        await w.send(1)
        await asyncio.wait({worker})

        assert isinstance(worker.exception(), ConsumerStopped)
        assert w.server.polls == (1 if places == 1 else 2)
        await check_untouched(w)


class AnswersLate(Switched):
    """A mailbox whose messages are on their way for a moment, which no cancel shortens."""

    arrived: asyncio.Event

    async def recv(self, request: m.Recv, call: Call = NOBODY) -> m.Received:
        received = await super().recv(request, call)
        self.arrived.set()
        await asyncio.sleep(0)
        return received


@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_what_a_poll_brings_as_the_worker_stops_is_handed_back(how: str) -> None:
    async with world() as w:
        w.server.__class__ = AnswersLate
        w.server.arrived = asyncio.Event()
        consumer = w.mailbox.consume(TOPIC, concurrency=2)
        async with started(consumer.run(refused)) as worker:
            await asyncio.sleep(1)
            await w.send(2)
            await w.server.arrived.wait()
            consumer.stop() if how == "stop" else worker.cancel()
            await asyncio.wait({worker})

            w.server.arrived = asyncio.Event()
            await check_untouched(w, 2)


@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_a_handler_that_the_drain_cuts_uses_no_attempt(how: str) -> None:
    async def endless(_delivery: Delivery) -> None:
        await asyncio.sleep(3600)

    async with world() as w:
        await w.send(2)
        consumer = w.mailbox.consume(TOPIC, concurrency=3, drain_s=5)
        async with started(consumer.run(endless)) as worker:
            await asyncio.sleep(1)
            consumer.stop() if how == "stop" else worker.cancel()
            await asyncio.wait({worker})

            await check_untouched(w, 2)


# --- on a real node


async def is_untouched(client: Client, topic: str, msg_id: str) -> bool:
    peeked = await client.mailbox.peek_one(topic, msg_id)
    return (peeked.state, peeked.attempt) == ("ready", 0)


@pytest.mark.real_loop
@pytest.mark.parametrize("door", ["mailbox", "omnigate"])
async def test_a_refused_token_leaves_its_message_untouched(node: NodeProcess, door: str) -> None:
    url = f"http://127.0.0.1:{node.port(door)}"
    async with connect(node.ready["data_dir"]) as operator, connect(url, token=node.ready["token"]) as inbox:
        weak = await operator.passport.producer_token("weak", "elsewhere")
        async with connect(node.ready["data_dir"], token=weak.token) as outbox:

            async def handle(_delivery: Delivery) -> None:
                await outbox.mailbox.send("results", "x")

            for number in range(ROUNDS):
                topic = f"given-back/{door}-{number}"
                async with started(inbox.mailbox.run(topic, handle, concurrency=3)) as worker:
                    sent = await operator.mailbox.send(topic, "x")
                    await asyncio.wait({worker})

                    assert isinstance(worker.exception(), ConsumerStopped)
                    assert await is_untouched(operator, topic, sent.msg_id)


@pytest.mark.real_loop
async def test_a_stopped_or_cancelled_worker_leaves_what_it_did_not_begin(node: NodeProcess) -> None:
    async def endless(_delivery: Delivery) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with connect(node.ready["data_dir"]) as client:
        for number in range(ROUNDS):
            topic, begun = f"given-back/stop-{number}", asyncio.Event()
            consumer = client.mailbox.consume(topic, concurrency=4, drain_s=0)
            async with started(consumer.run(endless)) as worker:
                sent = await client.mailbox.send(topic, "x")
                await begun.wait()
                consumer.stop() if number % 2 else worker.cancel()
                await asyncio.wait({worker})

                assert await is_untouched(client, topic, sent.msg_id)


def test_a_blocking_worker_whose_token_is_refused_leaves_its_message_untouched(node: NodeProcess) -> None:
    topic = "given-back/blocking"
    with sync.connect(node.ready["data_dir"]) as client:
        weak = client.passport.producer_token("weak", "elsewhere")
        with sync.connect(node.ready["data_dir"], token=weak.token) as outbox:
            consumer = client.mailbox.consume(topic, concurrency=3)
            ended: list[BaseException] = []

            def work() -> None:
                try:
                    consumer.run(lambda _delivery: outbox.mailbox.send("results", "x"))
                except ConsumerStopped as stopped:
                    ended.append(stopped)

            thread = threading.Thread(target=work)
            thread.start()
            sent = client.mailbox.send(topic, "x")
            thread.join(60)
            peeked = client.mailbox.peek_one(topic, sent.msg_id)

    assert len(ended) == 1
    assert (peeked.state, peeked.attempt) == ("ready", 0)
