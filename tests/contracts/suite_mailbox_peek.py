"""What every implementation of the mailbox contract must let a caller look at: all of a topic, and one message."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from penstock.contracts.mailbox import (
    Ack,
    DeleteDead,
    Nack,
    Peek,
    Peeked,
    PeekedList,
    Recv,
    Send,
    SendBatch,
    State,
)
from penstock.kernel.errors import Malformed, NotFound
from tests.contracts.worlds import World

STATES: tuple[State, ...] = ("ready", "inflight", "delayed", "dlq")


async def send_some(world: World, count: int, topic: str = "orders", delay_ms: int = 0) -> list[str]:
    """Send messages; returns their names in order."""
    sends = (Send(topic, b"%d" % number, delay_ms=delay_ms) for number in range(count))
    return [each.msg_id for each in (await world.api.send_batch(SendBatch(tuple(sends)))).results]


async def put_into(world: World, state: State, count: int, topic: str = "orders") -> list[str]:
    """Have new messages in a state, in a world with one attempt; everything that waits in the topic goes with them."""
    sent = await send_some(world, count, topic, delay_ms=60_000 if state == "delayed" else 0)
    if state in ("inflight", "dlq"):
        for each in (await world.api.recv(Recv(topic, 256, 60_000))).messages:
            if state == "dlq":
                await world.api.nack(Nack(each.msg_id, each.receipt))
    return sent


async def pages(world: World, state: State, limit: int, topic: str = "orders") -> list[list[str]]:
    """Walk through all pages."""
    page = await world.api.peek(Peek(topic, state, limit))
    found = [names(page)]
    while page.cursor is not None:
        page = await world.api.peek(Peek(topic, state, limit, cursor=page.cursor))
        found.append(names(page))
    return found


def names(page: PeekedList) -> list[str]:
    return [each.msg_id for each in page.messages]


async def look(world: World, msg_id: str, topic: str = "orders", **said: Any) -> Peeked:
    answer = await world.api.peek(Peek(topic, msg_id=msg_id, **said))
    (message,) = answer.messages
    assert answer.cursor is None
    return message


class PeekSuite:
    """Pages, and single messages."""

    def world(self, **options: object) -> AbstractAsyncContextManager[World]:
        raise AssertionError("a subclass says which implementation")

    @pytest.mark.parametrize("state", STATES)
    async def test_pages_of_a_state_show_each_of_its_messages_once_and_in_order(self, state: State) -> None:
        async with self.world(max_attempts=1) as world:
            sent = {}
            # Those that wait come last: whoever leases takes all that do.
            for each in ("dlq", "inflight", "delayed", "ready"):
                sent[each] = await put_into(world, each, 7)
                await put_into(world, each, 2, topic="other")
            wanted = sent[state]

            assert await pages(world, state, 3) == [wanted[:3], wanted[3:6], wanted[6:]]

    @pytest.mark.parametrize("state", STATES)
    async def test_page_that_holds_the_last_message_has_no_cursor_though_it_is_full(self, state: State) -> None:
        async with self.world(max_attempts=1) as world:
            wanted = await put_into(world, state, 4)

            assert await pages(world, state, 4) == [wanted]
            assert await pages(world, state, 2) == [wanted[:2], wanted[2:]]
            assert await pages(world, state, 3) == [wanted[:3], wanted[3:]]
            assert await pages(world, state, 4, "nowhere") == [[]]

    async def test_messages_that_leave_between_two_pages_make_the_next_skip_and_repeat_none(self) -> None:
        async with self.world() as world:
            sent = await send_some(world, 10)
            first = await world.api.peek(Peek("orders", limit=4))
            # All that were shown and the two after them: the one that the cursor names too.
            taken = (await world.api.recv(Recv("orders", 6, 60_000))).messages
            for each in taken[:5]:
                await world.api.ack(Ack(each.msg_id, each.receipt))
            second = await world.api.peek(Peek("orders", limit=3, cursor=first.cursor))
            # One comes back before the cursor, and is not shown to who is past it.
            await world.api.nack(Nack(taken[5].msg_id, taken[5].receipt, delay_ms=0))
            late = await send_some(world, 1)
            last = await world.api.peek(Peek("orders", limit=3, cursor=second.cursor))

            assert (names(first), names(second)) == (sent[:4], sent[6:9])
            assert (names(last), last.cursor) == ([sent[9], *late], None)
            assert (await pages(world, "ready", 256)) == [[*sent[5:], *late]]

    async def test_dead_letters_that_go_between_two_pages_make_the_next_skip_and_repeat_none(self) -> None:
        async with self.world(max_attempts=1) as world:
            dead = await put_into(world, "dlq", 6)
            first = await world.api.peek(Peek("orders", "dlq", limit=2))
            for msg_id in dead[:3]:
                assert (await world.api.delete_dead(DeleteDead("orders", 1, msg_id=msg_id))).deleted == 1
            second = await world.api.peek(Peek("orders", "dlq", limit=2, cursor=first.cursor))
            third = await world.api.peek(Peek("orders", "dlq", limit=2, cursor=second.cursor))

            assert (names(first), names(second), names(third)) == (dead[:2], dead[3:5], dead[5:])
            assert third.cursor is None

    @pytest.mark.parametrize("cursor", ["", "x", "-1", "1.5", "٣", "9" * 16])
    async def test_text_that_is_no_cursor_is_refused(self, cursor: str) -> None:
        async with self.world() as world:
            await send_some(world, 1)
            with pytest.raises(Malformed):
                await world.api.peek(Peek("orders", cursor=cursor))

    @pytest.mark.parametrize("state", STATES)
    async def test_one_message_is_shown_by_its_id_whatever_its_state(self, state: State) -> None:
        async with self.world(max_attempts=1) as world:
            wanted = (await put_into(world, state, 3))[1]
            asked = "dlq" if state == "ready" else "ready"
            bare, whole = await look(world, wanted), await look(world, wanted, payload=True, state=asked)
            listed = (await world.api.peek(Peek("orders", state))).messages[1]

            assert (bare.msg_id, bare.state, bare.payload) == (wanted, state, None)
            assert (whole.payload, whole.state, whole.attempt) == (b"1", state, listed.attempt)
            assert (bare.visible_at is None) == (state in ("ready", "dlq"))
            assert bare == listed

    async def test_one_message_is_followed_from_state_to_state_until_it_is_gone(self) -> None:
        async with self.world(max_attempts=2) as world:
            (msg_id,) = await send_some(world, 1, delay_ms=1000)
            seen = [(await look(world, msg_id)).state]
            await world.advance(1.5)
            seen.append((await look(world, msg_id)).state)
            (first,) = (await world.api.recv(Recv("orders"))).messages
            seen.append((await look(world, msg_id)).state)
            await world.api.nack(Nack(msg_id, first.receipt, delay_ms=0))
            (second,) = (await world.api.recv(Recv("orders"))).messages
            await world.api.ack(Ack(msg_id, second.receipt))

            assert seen == ["delayed", "ready", "inflight"]
            with pytest.raises(NotFound):
                await look(world, msg_id)

    async def test_message_of_another_topic_or_of_none_is_not_found(self) -> None:
        async with self.world(max_attempts=1) as world:
            others = [(await put_into(world, state, 1, topic="other"))[0] for state in ("dlq", "inflight", "ready")]
            (mine,) = await send_some(world, 1)
            forged = mine[:-1] + ("0" if mine[-1] != "0" else "1")

            for msg_id in (*others, forged, "nonsense"):
                with pytest.raises(NotFound):
                    await look(world, msg_id)
            with pytest.raises(NotFound):
                await look(world, mine, topic="nowhere")
            assert (await look(world, mine)).msg_id == mine
