"""What every implementation of the mailbox contract must let an operator see and do."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from penstock.contracts.mailbox import (
    Ack,
    DeleteDead,
    Envelope,
    GetDlq,
    GetTopic,
    GetTopics,
    Nack,
    Peek,
    Purge,
    Recv,
    Reprocess,
    Send,
    SendBatch,
)
from penstock.kernel.errors import NotFound
from tests.contracts.worlds import World


class OperatorSuite:
    """Looking, purging, dead letters and redrive."""

    def world(self, **options: object) -> AbstractAsyncContextManager[World]:
        raise AssertionError("a subclass says which implementation")

    @staticmethod
    async def one(world: World, topic: str = "orders", **recv: Any) -> Envelope:
        (message,) = (await world.api.recv(Recv(topic, **recv))).messages
        return message

    @staticmethod
    async def empty(world: World, topic: str = "orders") -> bool:
        return (await world.api.recv(Recv(topic))).messages == ()

    async def test_unknown_topic_is_empty_to_recv_and_not_found_to_look_at(self) -> None:
        async with self.world() as world:
            assert await self.empty(world, "nowhere")
            with pytest.raises(NotFound):
                await world.api.topic(GetTopic("nowhere"))

    async def test_topics_count_every_state(self) -> None:
        async with self.world(max_attempts=1) as world:
            await world.api.send_batch(SendBatch(tuple(Send("b", bytes([n])) for n in range(3))))
            await world.api.send(Send("b", b"later", delay_ms=60_000))
            await world.api.send(Send("a", b"x"))
            leased = (await world.api.recv(Recv("b", max_messages=2))).messages
            await world.api.nack(Nack(leased[0].msg_id, leased[0].receipt))
            await world.advance(2)

            a, b = (await world.api.topics(GetTopics())).topics
            assert (a.topic, b.topic) == ("a", "b")
            assert (b.ready, b.inflight, b.delayed, b.dlq) == (1, 1, 1, 1)
            assert b.bytes == 8
            assert b.oldest_age_s == pytest.approx(2.0, abs=0.01)

    async def test_topics_come_in_pages_by_name_and_prefix(self) -> None:
        async with self.world() as world:
            await world.api.send_batch(SendBatch(tuple(Send(name, b"x") for name in ("b/2", "a", "b/1", "c"))))
            first = await world.api.topics(GetTopics(limit=3))
            last = await world.api.topics(GetTopics(limit=3, cursor=first.cursor))
            some = await world.api.topics(GetTopics(prefix="b/"))

            assert [each.topic for each in (*first.topics, *last.topics)] == ["a", "b/1", "b/2", "c"]
            assert (first.cursor is None, last.cursor) == (False, None)
            assert ([each.topic for each in some.topics], some.cursor) == (["b/1", "b/2"], None)

    async def test_peek_consumes_nothing(self) -> None:
        async with self.world() as world:
            await world.api.send(Send("orders", b"x", attrs={"n": "1"}))
            (seen,) = (await world.api.peek(Peek("orders"))).messages
            (whole,) = (await world.api.peek(Peek("orders", payload=True))).messages
            assert (seen.payload, whole.payload, seen.size, seen.attempt) == (None, b"x", 1, 0)

            assert (await self.one(world)).attempt == 1
            assert (await world.api.peek(Peek("orders"))).messages == ()
            assert len((await world.api.peek(Peek("orders", state="inflight"))).messages) == 1

    async def test_purge_removes_what_waits_and_what_is_leased(self) -> None:
        async with self.world() as world:
            await world.api.send_batch(SendBatch((Send("orders", b"1"), Send("orders", b"2"))))
            await world.api.send(Send("other", b"x"))
            got = await self.one(world)

            assert (await world.api.purge(Purge("orders"))).purged == 2
            assert await self.empty(world)
            with pytest.raises(NotFound):
                await world.api.ack(Ack(got.msg_id, got.receipt))
            assert (await self.one(world, "other")).payload == b"x"

    async def test_dlq_is_paged_and_filtered(self) -> None:
        async with self.world(max_attempts=1) as world:
            for n in range(5):
                await world.api.send(Send("orders" if n < 4 else "other", bytes([n])))
            for topic in ("orders",) * 4 + ("other",):
                got = await self.one(world, topic)
                await world.api.nack(Nack(got.msg_id, got.receipt, reason="odd" if got.payload[0] % 2 else None))
            first = await world.api.dlq(GetDlq("orders", limit=3))
            rest = await world.api.dlq(GetDlq("orders", limit=3, cursor=first.cursor))

            assert (len(first.entries), len(rest.entries), rest.cursor) == (3, 1, None)
            assert not {e.msg_id for e in first.entries} & {e.msg_id for e in rest.entries}
            assert len((await world.api.dlq(GetDlq(reason="rejected:odd"))).entries) == 2

    async def test_kind_of_a_reason_stands_for_every_reason_of_it(self) -> None:
        async with self.world(max_attempts=1) as world:
            for said in ("odd", "odd:ly", "", None):
                await world.api.send(Send("orders", b"x"))
                got = await self.one(world)
                await world.api.nack(Nack(got.msg_id, got.receipt, reason=said))
            wanted = ("rejected", "rejected:odd", "rejected:", "max_attempts", "reject", "odd", "")
            listed = {reason: await self.reasons(world, reason) for reason in wanted}
            redriven = await world.api.reprocess(Reprocess("orders", 10, reason="rejected", dry_run=True))
            some = await world.api.delete_dead(DeleteDead("orders", 2, reason="rejected"))
            none = await world.api.delete_dead(DeleteDead("orders", 10, reason="reject"))

            assert listed["rejected"] == ["rejected:odd", "rejected:odd:ly", "rejected:"]
            assert {reason: found for reason, found in listed.items() if found and reason != "rejected"} == {
                reason: [reason] for reason in ("rejected:odd", "rejected:", "max_attempts")
            }
            assert (redriven.accepted, some.deleted, none.deleted) == (3, 2, 0)
            assert await self.reasons(world, None) == ["rejected:", "max_attempts"]

    @staticmethod
    async def reasons(world: World, wanted: str | None) -> list[str]:
        """Read the reasons of dead letters, a letter a page."""
        page = await world.api.dlq(GetDlq("orders", wanted, limit=1))
        found = list(page.entries)
        while page.cursor is not None:
            page = await world.api.dlq(GetDlq("orders", wanted, page.cursor, 1))
            found += page.entries
        return [each.reason for each in found]

    async def test_redrive_by_kind_leaves_the_other_dead_letters(self) -> None:
        async with self.world(max_attempts=1) as world:
            for said in ("odd", None):
                await world.api.send(Send("orders", b"x"))
                got = await self.one(world)
                await world.api.nack(Nack(got.msg_id, got.receipt, reason=said))
            await world.api.reprocess(Reprocess("orders", 10, reason="rejected"))

            assert await self.reasons(world, None) == ["max_attempts"]

    async def test_redrive_sends_a_new_message_to_the_origin(self) -> None:
        async with self.world(max_attempts=1) as world:
            await world.api.send(Send("orders", b"x", key="k"))
            dead = await self.one(world)
            await world.api.nack(Nack(dead.msg_id, dead.receipt))
            dry = await world.api.reprocess(Reprocess("orders", 10, dry_run=True))
            assert (dry.accepted, await self.empty(world)) == (1, True)
            assert (await world.api.reprocess(Reprocess("orders", 10))).accepted == 1
            again = await self.one(world)

            assert (again.payload, again.key, again.attempt) == (b"x", "k", 1)
            assert again.redriven_from == dead.msg_id
            assert again.msg_id != dead.msg_id
            assert (await world.api.dlq(GetDlq())).entries == ()

    async def test_redrive_may_go_elsewhere(self) -> None:
        async with self.world(max_attempts=1) as world:
            await world.api.send(Send("orders", b"x"))
            dead = await self.one(world)
            await world.api.nack(Nack(dead.msg_id, dead.receipt))
            await world.api.reprocess(Reprocess("orders", 10, to="repair"))

            assert await self.empty(world)
            assert (await self.one(world, "repair")).payload == b"x"

    async def dead(self, world: World, *payloads: bytes, topic: str = "orders") -> list[str]:
        """Have messages die one after the other; returns their names."""
        names = []
        for payload in payloads:
            await world.api.send(Send(topic, payload))
            message = await self.one(world, topic)
            await world.api.nack(Nack(message.msg_id, message.receipt))
            names.append(message.msg_id)
        return names

    async def test_one_dead_letter_is_sent_back_alone(self) -> None:
        async with self.world(max_attempts=1) as world:
            first, second, third = await self.dead(world, b"1", b"2", b"3")
            assert (await world.api.reprocess(Reprocess("orders", 10, msg_id=second))).accepted == 1

            assert (await self.one(world)).redriven_from == second
            assert [each.msg_id for each in (await world.api.dlq(GetDlq())).entries] == [first, third]

    async def test_one_that_is_gone_or_never_was_takes_no_other_along(self) -> None:
        async with self.world(max_attempts=1) as world:
            first, _ = await self.dead(world, b"1", b"2")
            await world.api.delete_dead(DeleteDead("orders", 10, msg_id=first))

            assert (await world.api.reprocess(Reprocess("orders", 10, msg_id=first))).accepted == 0
            assert (await world.api.reprocess(Reprocess("orders", 10, msg_id="nonsense"))).accepted == 0
            assert (await world.api.delete_dead(DeleteDead("orders", 10, msg_id=first))).deleted == 0
            assert len((await world.api.dlq(GetDlq())).entries) == 1

    async def test_dead_letters_are_deleted_after_a_dry_run_and_only_those_meant(self) -> None:
        async with self.world(max_attempts=1) as world:
            await self.dead(world, b"1", b"2", b"3")
            await self.dead(world, b"other", topic="repair")
            assert (await world.api.delete_dead(DeleteDead("orders", 10, dry_run=True))).deleted == 3
            assert len((await world.api.dlq(GetDlq())).entries) == 4
            assert (await world.api.delete_dead(DeleteDead("orders", 10, reason="ttl"))).deleted == 0
            assert (await world.api.delete_dead(DeleteDead("orders"))).deleted == 1
            assert (await world.api.delete_dead(DeleteDead("orders", 10))).deleted == 2
            assert (await world.api.delete_dead(DeleteDead("nowhere", 10))).deleted == 0

            assert [each.topic for each in (await world.api.dlq(GetDlq())).entries] == ["repair"]
            assert await self.empty(world)
