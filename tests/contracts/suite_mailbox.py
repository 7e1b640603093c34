"""What every implementation of the mailbox contract must do. Subclass it and say where the world comes from."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.contracts.call import Call
from penstock.contracts.handler_error import HandlerError
from penstock.contracts.mailbox import (
    Ack,
    AckBatch,
    Extend,
    ExtendBatch,
    GetDlq,
    GetTopic,
    Nack,
    NackBatch,
    Recv,
    Send,
    SendBatch,
)
from penstock.contracts.mailbox_rules import check_envelope
from penstock.kernel.errors import Busy, Conflict, Integrity, NotFound, OverLimit
from penstock.testing.contracts.memory_mailbox_state import MemoryMailboxOptions
from penstock.wire.ids import address_of, uuid7_ms
from tests.contracts.suite_mailbox_operator import OperatorSuite
from tests.contracts.suite_mailbox_peek import PeekSuite


class MailboxSuite(OperatorSuite, PeekSuite):
    """The promises of the mailbox that can be seen through its contract."""

    async def test_what_was_sent_is_received_with_its_hashes(self) -> None:
        async with self.world() as world:
            sent = await world.api.send(
                Send("orders", b"\0hi", attrs={"b": "2", "a": "1"}, idem_key="i-1"), Call(corr_id="c-1")
            )
            got = await self.one(world)

            assert (got.msg_id, got.payload, got.attempt) == (sent.msg_id, b"\0hi", 1)
            assert (got.corr_id, got.idem_key, got.shard) == ("c-1", "i-1", sent.shard)
            assert got.payload_hash == address_of(b"\0hi")
            assert got.visible_until == got.ts + 5000
            assert uuid7_ms(got.msg_id) == got.ts
            check_envelope(got)

    async def test_acked_message_never_comes_back(self) -> None:
        async with self.world() as world:
            await world.api.send(Send("orders", b"x"))
            got = await self.one(world)
            await world.api.ack(Ack(got.msg_id, got.receipt))
            await world.advance(60)

            assert await self.empty(world)

    async def test_repeating_an_ack_with_its_own_receipt_is_fine(self) -> None:
        async with self.world() as world:
            await world.api.send(Send("orders", b"x"))
            got = await self.one(world)
            await world.api.ack(Ack(got.msg_id, got.receipt))

            assert (await world.api.ack(Ack(got.msg_id, got.receipt))).ok
            with pytest.raises(Conflict):
                await world.api.ack(Ack(got.msg_id, "another"))

    async def test_message_reappears_after_its_visibility_and_never_before(self) -> None:
        async with self.world() as world:
            await world.api.send(Send("orders", b"x"))
            first = await self.one(world, visibility_ms=1000)
            await world.advance(0.9)
            assert await self.empty(world)
            await world.advance(0.2)
            second = await self.one(world)

            assert (second.msg_id, second.attempt) == (first.msg_id, 2)
            assert second.receipt != first.receipt

    @pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
    async def test_stale_receipt_settles_nothing(self, verb: str) -> None:
        async with self.world() as world:
            await world.api.send(Send("orders", b"x"))
            first = await self.one(world, visibility_ms=1000)
            # Stale from the instant the lease ends, also before somebody else has the message.
            await world.advance(1.0)
            stale = {
                "ack": Ack(first.msg_id, first.receipt),
                "nack": Nack(first.msg_id, first.receipt),
                "extend": Extend(first.msg_id, first.receipt, 1000),
            }[verb]
            with pytest.raises(Conflict) as caught:
                await getattr(world.api, verb)(stale)
            assert caught.value.facts["reason"] == "stale_receipt"
            second = await self.one(world)
            with pytest.raises(Conflict):
                await getattr(world.api, verb)(stale)

            assert (await world.api.ack(Ack(second.msg_id, second.receipt))).ok

    async def test_unknown_message_is_not_found(self) -> None:
        async with self.world() as world:
            with pytest.raises(NotFound):
                await world.api.ack(Ack("nobody", "r"))

    async def test_extend_keeps_the_receipt_and_moves_the_end(self) -> None:
        async with self.world() as world:
            await world.api.send(Send("orders", b"x"))
            got = await self.one(world, visibility_ms=1000)
            await world.advance(0.9)
            longer = await world.api.extend(Extend(got.msg_id, got.receipt, 2000))
            assert longer.receipt == got.receipt
            assert longer.visible_until == got.ts + 2900
            await world.advance(1.9)
            assert await self.empty(world)

            assert (await world.api.ack(Ack(got.msg_id, got.receipt))).ok

    async def test_nack_gives_the_message_back_after_its_delay(self) -> None:
        async with self.world() as world:
            await world.api.send(Send("orders", b"x"))
            got = await self.one(world)
            answer = await world.api.nack(Nack(got.msg_id, got.receipt, delay_ms=500))
            assert (answer.attempt, answer.visible_in_ms, answer.dead_lettered) == (1, 500, False)
            await world.advance(0.4)
            assert await self.empty(world)
            await world.advance(0.2)

            assert (await self.one(world)).attempt == 2

    @pytest.mark.parametrize(("reason", "dead_reason"), [("bad card", "rejected:bad card"), (None, "max_attempts")])
    async def test_last_attempt_dead_letters_with_reason_origin_and_history(
        self, reason: str | None, dead_reason: str
    ) -> None:
        async with self.world(max_attempts=2) as world:
            await world.api.send(Send("orders", b"x"))
            got = await self.one(world, visibility_ms=250)
            await world.advance(1)
            got = await self.one(world)
            assert (await world.api.nack(Nack(got.msg_id, got.receipt, reason=reason))).dead_lettered
            await world.advance(60)
            assert await self.empty(world)
            (dead,) = (await world.api.dlq(GetDlq("orders"))).entries

            assert (dead.msg_id, dead.topic, dead.reason, dead.attempts) == (got.msg_id, "orders", dead_reason, 2)
            assert [attempt.cause for attempt in dead.history] == [
                "visibility",
                "nack" if reason is None else f"rejected:{reason}",
            ]

    @pytest.mark.parametrize("reason", ["no such order", None])
    async def test_final_nack_makes_a_dead_letter_at_once_and_frees_its_key(self, reason: str | None) -> None:
        async with self.world(max_attempts=5) as world:
            for payload in (b"poison", b"next"):
                await world.api.send(Send("orders", payload, key="k"))
            got = await self.one(world)
            error = HandlerError("KeyError", "order 7")
            answer = await world.api.nack(Nack(got.msg_id, got.receipt, reason, error=error, final=True))
            (dead,) = (await world.api.dlq(GetDlq("orders"))).entries
            following = await self.one(world)

            said = "rejected" if reason is None else f"rejected:{reason}"
            assert (answer.attempt, answer.visible_in_ms, answer.dead_lettered) == (1, 0, True)
            assert (dead.msg_id, dead.reason, dead.attempts) == (got.msg_id, said, 1)
            assert [(each.cause, each.error) for each in dead.history] == [(said, error)]
            assert (following.payload, following.attempt) == (b"next", 1)

    async def test_consumer_that_never_answers_dead_letters_by_visibility(self) -> None:
        async with self.world(max_attempts=1) as world:
            await world.api.send(Send("orders", b"x"))
            await self.one(world, visibility_ms=250)
            await world.advance(1)

            (dead,) = (await world.api.dlq(GetDlq())).entries
            assert dead.reason == "visibility"

    async def test_expired_message_goes_to_the_dlq(self) -> None:
        async with self.world() as world:
            await world.api.send(Send("orders", b"x", ttl_ms=500))
            await world.advance(1)

            assert await self.empty(world)
            assert [dead.reason for dead in (await world.api.dlq(GetDlq())).entries] == ["ttl"]

    async def test_delayed_message_is_not_delivered_early(self) -> None:
        async with self.world() as world:
            await world.api.send(Send("orders", b"x", delay_ms=2000))
            assert (await world.api.topic(GetTopic("orders"))).delayed == 1
            await world.advance(1.9)
            assert await self.empty(world)
            await world.advance(0.2)

            assert (await self.one(world)).attempt == 1

    async def test_same_idem_key_and_content_is_one_message(self) -> None:
        async with self.world() as world:
            first = await world.api.send(Send("orders", b"x", idem_key="k", attrs={"a": "1"}))
            again = await world.api.send(Send("orders", b"x", idem_key="k", attrs={"a": "1"}))
            assert (again.msg_id, again.duplicate, first.duplicate) == (first.msg_id, True, False)
            for other in (
                Send("orders", b"y", idem_key="k", attrs={"a": "1"}),
                Send("orders", b"x", idem_key="k"),
                Send("orders", b"x", idem_key="k", attrs={"a": "1"}, key="z"),
                Send("orders", b"x", idem_key="k", attrs={"a": "1"}, ttl_ms=5),
            ):
                with pytest.raises(Conflict) as caught:
                    await world.api.send(other)
                assert caught.value.facts["msg_id"] == first.msg_id
            assert not (await world.api.send(Send("elsewhere", b"x", idem_key="k"))).duplicate

            assert (await world.api.topic(GetTopic("orders"))).ready == 1

    async def test_dedup_outlives_the_ack_and_ends_with_its_window(self) -> None:
        async with self.world(t_replay_s=100.0) as world:
            first = await world.api.send(Send("orders", b"x", idem_key="k"))
            got = await self.one(world)
            await world.api.ack(Ack(got.msg_id, got.receipt))
            assert (await world.api.send(Send("orders", b"x", idem_key="k"))).msg_id == first.msg_id
            await world.advance(101)

            assert not (await world.api.send(Send("orders", b"x", idem_key="k"))).duplicate

    async def test_one_key_is_delivered_in_order_one_at_a_time_while_others_flow(self) -> None:
        async with self.world() as world:
            for payload, key in ((b"a1", "a"), (b"a2", "a"), (b"b1", "b"), (b"n1", None), (b"n2", None)):
                await world.api.send(Send("orders", payload, key=key))
            batch = (await world.api.recv(Recv("orders", max_messages=10))).messages
            assert [message.payload for message in batch] == [b"a1", b"b1", b"n1", b"n2"]
            assert await self.empty(world)
            # A nacked head holds its key back until it is delivered again.
            await world.api.nack(Nack(batch[0].msg_id, batch[0].receipt, delay_ms=1000))
            assert await self.empty(world)
            await world.advance(1.1)
            head = await self.one(world)
            assert head.payload == b"a1"
            await world.api.ack(Ack(head.msg_id, head.receipt))

            assert (await self.one(world)).payload == b"a2"

    async def test_dead_lettered_head_releases_its_key(self) -> None:
        async with self.world(max_attempts=1) as world:
            await world.api.send(Send("orders", b"a1", key="a"))
            await world.api.send(Send("orders", b"a2", key="a"))
            head = await self.one(world)
            await world.api.nack(Nack(head.msg_id, head.receipt))

            assert (await self.one(world)).payload == b"a2"

    async def test_batches_answer_item_by_item_in_order(self) -> None:
        async with self.world() as world:
            results = (
                await world.api.send_batch(
                    SendBatch(
                        (
                            Send("orders", b"1"),
                            Send("orders", b"2", payload_hash=address_of(b"other")),
                            Send("orders", b"3"),
                        )
                    )
                )
            ).results
            assert [result.code for result in results[1:2]] == ["integrity"]
            got = (await world.api.recv(Recv("orders", max_messages=5))).messages
            assert [message.payload for message in got] == [b"1", b"3"]
            acks = AckBatch((Ack(got[0].msg_id, got[0].receipt), Ack("nobody", "r"), Ack(got[1].msg_id, "stale")))
            settled = (await world.api.ack_batch(acks)).results
            assert settled[0].ok is True
            assert (settled[1].code, settled[2].code, settled[2].reason) == ("not_found", "conflict", "stale_receipt")
            extended = await world.api.extend_batch(ExtendBatch((Extend(got[1].msg_id, got[1].receipt, 9000),)))
            assert extended.results[0].receipt == got[1].receipt
            nacked = await world.api.nack_batch(NackBatch((Nack(got[1].msg_id, got[1].receipt, delay_ms=0),)))

            assert nacked.results[0].dead_lettered is False
            assert (await self.one(world)).payload == b"3"

    async def test_batch_of_257_is_over_limit_and_nothing_is_stored(self) -> None:
        async with self.world() as world:
            with pytest.raises(OverLimit):
                await world.api.send_batch(SendBatch((Send("orders", b"x"),) * 257))

            assert await self.empty(world)

    async def test_wrong_payload_hash_and_large_payload_are_refused(self) -> None:
        async with self.world() as world:
            with pytest.raises(Integrity):
                await world.api.send(Send("orders", b"x", payload_hash=address_of(b"y")))
            with pytest.raises(OverLimit):
                await world.api.send(Send("orders", bytes((704 << 10) + 1)))
            with pytest.raises(OverLimit):
                await world.api.send(Send("orders", b"x", attrs={str(n): "" for n in range(33)}))
            with pytest.raises(OverLimit):
                await world.api.send(Send("orders", b"x", attrs={"a": "x" * 8192}))

            assert await self.empty(world)

    async def test_largest_payload_arrives_whole(self) -> None:
        async with self.world() as world:
            await world.api.send(Send("orders", bytes(704 << 10)))

            assert (await self.one(world)).payload == bytes(704 << 10)

    async def test_full_backlog_is_busy_and_an_ack_makes_room(self) -> None:
        async with self.world(backlog_messages_max=1) as world:
            await world.api.send(Send("orders", b"x"))
            with pytest.raises(Busy):
                await world.api.send(Send("orders", b"y"))
            got = await self.one(world)
            await world.api.ack(Ack(got.msg_id, got.receipt))

            await world.api.send(Send("orders", b"y"))

    async def test_full_dedup_memory_refuses_only_sends_with_an_idem_key(self) -> None:
        async with self.world(dedup_entries=1) as world:
            await world.api.send(Send("orders", b"x", idem_key="1"))
            with pytest.raises(Busy) as caught:
                await world.api.send(Send("orders", b"x", idem_key="2"))
            assert caught.value.facts["limit"] == "dedup"

            await world.api.send(Send("orders", b"x"))

    async def test_full_inflight_answers_empty_and_says_why(self) -> None:
        async with self.world(global_inflight=1) as world:
            await world.api.send_batch(SendBatch((Send("orders", b"1"), Send("orders", b"2"))))
            got = await world.api.recv(Recv("orders", max_messages=2))
            assert len(got.messages) == 1
            full = await world.api.recv(Recv("orders", wait_ms=1000))

            assert (full.messages, full.inflight_full) == ((), True)

    async def test_max_bytes_is_soft_at_least_one_message(self) -> None:
        async with self.world() as world:
            await world.api.send_batch(SendBatch((Send("orders", bytes(100)), Send("orders", bytes(100)))))

            assert len((await world.api.recv(Recv("orders", max_messages=5, max_bytes=10))).messages) == 1


class LongPollSuite(MailboxSuite):
    """Waiting for messages; needs a world whose time is the loop's."""

    async def test_long_poll_returns_when_a_message_comes(self) -> None:
        async with self.world() as world:
            poll = asyncio.get_running_loop().create_task(world.api.recv(Recv("orders", wait_ms=10_000)))
            await world.advance(3)
            assert not poll.done()
            before = asyncio.get_running_loop().time()
            await world.api.send(Send("orders", b"x"))

            assert [message.payload for message in (await poll).messages] == [b"x"]
            assert asyncio.get_running_loop().time() - before < 0.1

    async def test_long_poll_ends_empty_after_its_wait(self) -> None:
        async with self.world() as world:
            before = asyncio.get_running_loop().time()
            assert (await world.api.recv(Recv("orders", wait_ms=4000))).messages == ()

            assert asyncio.get_running_loop().time() - before == pytest.approx(4.0, abs=0.1)

    async def test_long_poll_sees_a_lease_lapse_and_a_delay_end(self) -> None:
        async with self.world() as world:
            await world.api.send(Send("orders", b"x"))
            await self.one(world, visibility_ms=1000)
            got = await self.one(world, wait_ms=5000)
            assert got.attempt == 2
            await world.api.send(Send("later", b"y", delay_ms=1500))

            assert (await self.one(world, "later", wait_ms=5000)).payload == b"y"

    async def test_one_message_wakes_two_polls_and_is_delivered_once(self) -> None:
        async with self.world() as world:
            loop = asyncio.get_running_loop()
            polls = [loop.create_task(world.api.recv(Recv("orders", wait_ms=1000))) for _ in range(2)]
            await world.advance(0.1)
            await world.api.send(Send("orders", b"x"))
            got = [len((await poll).messages) for poll in polls]

            assert sorted(got) == [0, 1]

    async def test_cancelled_poll_takes_no_message(self) -> None:
        async with self.world() as world:
            poll = asyncio.get_running_loop().create_task(world.api.recv(Recv("orders", wait_ms=10_000)))
            await world.advance(1)
            poll.cancel()
            with pytest.raises(asyncio.CancelledError):
                await poll
            await world.advance(0.1)
            await world.api.send(Send("orders", b"x"))

            assert (await self.one(world)).attempt == 1


def mailbox_options(options: dict[str, Any]) -> MemoryMailboxOptions:
    """Turn a test's wishes into options."""
    return MemoryMailboxOptions(**options)
