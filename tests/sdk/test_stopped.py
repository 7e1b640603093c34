"""A process that stands still (Ctrl-Z, a closed lid, a machine that is busy with others) goes on where it was."""

from __future__ import annotations

import asyncio

import pytest

from penstock.cli.commands import recv
from penstock.kernel.deadline import Deadline, pause, use_deadline
from penstock.kernel.errors import Timeout
from tests.sdk.kit import (
    AWAY,
    GONE,
    TOPIC,
    started,
    world,
)


async def test_a_consumer_that_was_stopped_while_it_waited_for_the_node_goes_on() -> None:
    async with world() as w:
        await w.send(1)
        seen: list[bytes] = []

        async def handle(delivery) -> None:
            seen.append(delivery.payload)

        w.server.down = AWAY
        async with started(w.mailbox.run(TOPIC, handle)) as task:
            await asyncio.sleep(0.01)  # it has asked in vain, and waits
            asyncio.get_running_loop().advance(60)
            w.server.down = None
            await asyncio.sleep(30)

            assert (seen, task.done(), await w.left()) == ([b"0"], False, GONE)


async def test_an_ack_that_was_stopped_between_two_tries_is_tried_again() -> None:
    async with world() as w:
        await w.send(1)
        loop = asyncio.get_running_loop()
        async for delivery in w.mailbox.consume(TOPIC, visibility_ms=30_000):
            async with delivery:
                w.server.down = AWAY
                loop.call_later(0.01, loop.advance, 5)
                loop.call_later(6, setattr, w.server, "down", None)
            break

        assert await w.left() == GONE


@pytest.mark.parametrize("failures", [0, 5])
async def test_following_that_was_stopped_while_it_paused_goes_on(failures: int) -> None:
    loop = asyncio.get_running_loop()
    loop.call_soon(loop.advance, 60)
    began_at = loop.time()
    await recv._pause(failures)

    assert loop.time() - began_at >= 60


async def test_a_pause_is_as_long_as_it_says_and_no_longer_than_the_callers_deadline() -> None:
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    await pause("rest", 3)
    assert loop.time() - began_at == 3

    with pytest.raises(Timeout), use_deadline(Deadline.after(2, loop.time())):
        await pause("rest", 3)
    assert loop.time() - began_at == 5
