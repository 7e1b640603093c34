"""What a topic's settings do, on every implementation of the mailbox contract. Subclass it and say where it runs."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from itertools import pairwise
from typing import Any

import pytest

from penstock.contracts import mailbox as m
from penstock.kernel.errors import Busy, Conflict, Malformed, NotFound, OverLimit
from tests.contracts.worlds import World

TOPIC = "orders"


async def set_up(world: World, topic: str = TOPIC, **said: Any) -> m.SettingsShown:
    return await world.api.put_settings(m.PutSettings(topic, m.TopicSettings(**said)))


async def take(world: World, many: int = 10, topic: str = TOPIC, **said: Any) -> list[m.Envelope]:
    return list((await world.api.recv(m.Recv(topic, many, **said))).messages)


async def send_all(world: World, *payloads: bytes, topic: str = TOPIC, **said: Any) -> list[str]:
    return [(await world.api.send(m.Send(topic, payload, **said))).msg_id for payload in payloads]


def ack_of(message: m.Envelope) -> m.Ack:
    return m.Ack(message.msg_id, message.receipt)


class TopicSettingsSuite:
    """The rules of topic settings that can be seen through the contract."""

    def world(self, **options: object) -> AbstractAsyncContextManager[World]:
        raise NotImplementedError

    # --- settings as such

    async def test_settings_are_shown_as_they_were_put_and_gone_when_deleted(self) -> None:
        async with self.world() as world:
            with pytest.raises(NotFound):
                await world.api.settings(m.GetSettings(TOPIC))
            await set_up(world, max_attempts=3, tags={"a": "1"})
            shown = await world.api.settings(m.GetSettings(TOPIC))
            assert (shown.topic, shown.settings) == (TOPIC, m.TopicSettings(max_attempts=3, tags={"a": "1"}))
            await world.api.delete_settings(m.DeleteSettings(TOPIC))

            with pytest.raises(NotFound):
                await world.api.settings(m.GetSettings(TOPIC))

    async def test_topic_with_settings_exists_when_it_is_empty(self) -> None:
        async with self.world() as world:
            await set_up(world)
            await world.advance(2)

            assert (await world.api.topic(m.GetTopic(TOPIC))).ready == 0
            assert [each.topic for each in (await world.api.topics(m.GetTopics())).topics] == [TOPIC]

    # --- attempts, times, sizes

    async def test_topics_own_max_attempts_holds_and_zero_is_endless(self) -> None:
        async with self.world(max_attempts=2) as world:
            for topic, attempts in (("once", 1), ("endless", 0)):
                await set_up(world, topic, max_attempts=attempts)
                await send_all(world, b"x", topic=topic)
            for _ in range(40):
                for topic in ("once", "endless"):
                    for got in await take(world, topic=topic):
                        await world.api.nack(m.Nack(got.msg_id, got.receipt, delay_ms=0))
            (dead,) = (await world.api.dlq(m.GetDlq())).entries
            (alive,) = await take(world, topic="endless")

            assert (dead.topic, dead.attempts) == ("once", 1)
            assert alive.attempt == 41

    async def test_history_of_many_attempts_keeps_the_first_and_the_last_16(self) -> None:
        async with self.world() as world:
            await set_up(world, max_attempts=40)
            await send_all(world, b"x")
            for number in range(40):
                (got,) = await take(world)
                await world.api.nack(m.Nack(got.msg_id, got.receipt, f"r{number}", 0))
            (dead,) = (await world.api.dlq(m.GetDlq(TOPIC))).entries

            kept = [*range(16), *range(24, 40)]
            assert dead.attempts == 40
            assert [end.cause for end in dead.history] == [f"rejected:r{number}" for number in kept]

    async def test_topics_own_visibility_holds_unless_the_receiver_says_another(self) -> None:
        async with self.world() as world:
            await set_up(world, visibility_ms=60_000)
            await send_all(world, b"a", b"b")
            (own,) = await take(world, 1)
            (said,) = await take(world, 1, visibility_ms=1000)
            await world.advance(2)

            assert [got.msg_id for got in await take(world)] == [said.msg_id]
            assert own.visible_until - said.visible_until == 59_000

    async def test_lease_of_zero_is_over_at_once(self) -> None:
        async with self.world() as world:
            await send_all(world, b"x")
            (first,) = await take(world, visibility_ms=0)
            await world.advance(0.2)
            (second,) = await take(world)

            assert (second.msg_id, second.attempt, second.first_at) == (first.msg_id, 2, first.first_at)

    async def test_extending_by_zero_returns_the_message_at_once(self) -> None:
        async with self.world() as world:
            await send_all(world, b"x")
            (first,) = await take(world)
            waiting, loop = asyncio.ensure_future(take(world, wait_ms=5000)), asyncio.get_running_loop()
            await world.advance(0.1)
            began = loop.time()
            await world.api.extend(m.Extend(first.msg_id, first.receipt, 0))
            (second,) = await waiting
            # Whoever waits has it at once, without anybody looking at deadlines.
            assert loop.time() - began < 0.02
            with pytest.raises(Conflict):
                await world.api.ack(ack_of(first))

            assert (second.msg_id, second.attempt) == (first.msg_id, 2)

    @pytest.mark.parametrize("key", [None, "k"])
    async def test_topics_own_delay_holds_with_keys_too_unless_the_message_says_zero(self, key: str | None) -> None:
        async with self.world() as world:
            await set_up(world, delay_ms=1000, key_batch=2)
            ids = await send_all(world, b"a", b"b", key=key)
            (at_once,) = await send_all(world, b"c", delay_ms=0)
            assert [got.msg_id for got in await take(world)] == [at_once]
            assert (await world.api.topic(m.GetTopic(TOPIC))).delayed == 2
            await world.advance(1.2)

            assert [got.msg_id for got in await take(world)] == ids
            assert (await world.api.topic(m.GetTopic(TOPIC))).delayed == 0

    @pytest.mark.parametrize("on_expiry", ["dlq", "drop"])
    async def test_topics_own_retention_ends_a_message_as_the_topic_says(self, on_expiry: str) -> None:
        async with self.world() as world:
            await set_up(world, retention_s=2, on_expiry=on_expiry)
            await send_all(world, b"x")
            await world.advance(1.5)
            assert (await world.api.topic(m.GetTopic(TOPIC))).ready == 1
            await world.advance(2)
            stats = await world.api.topic(m.GetTopic(TOPIC))

            assert (stats.ready, stats.dlq) == (0, 1 if on_expiry == "dlq" else 0)

    async def test_payload_and_meta_together_are_within_the_topics_own_limit(self) -> None:
        async with self.world() as world:
            await set_up(world, max_payload=10)
            with pytest.raises(OverLimit):
                await world.api.send(m.Send(TOPIC, b"12345678", meta=b"123"))
            await set_up(world, max_payload=1 << 20)
            await world.api.send(m.Send(TOPIC, bytes((1 << 20) - 4096)))

            assert len((await take(world))[0].payload) == (1 << 20) - 4096

    async def test_paused_topic_takes_messages_and_gives_none_until_it_goes_on(self) -> None:
        async with self.world() as world:
            await set_up(world, paused=True)
            (sent,) = await send_all(world, b"x")
            assert await take(world) == []
            assert (await world.api.topic(m.GetTopic(TOPIC))).paused
            await set_up(world)

            assert not (await world.api.topic(m.GetTopic(TOPIC))).paused
            assert [got.msg_id for got in await take(world)] == [sent]

    # --- what a message carries

    async def test_group_and_meta_travel_with_the_message_and_survive_a_redrive(self) -> None:
        async with self.world(max_attempts=1) as world:
            (sent,) = await send_all(world, b"x", group="g", meta=b"\0meta")
            (first,) = await take(world)
            assert (first.group, first.meta, first.payload) == ("g", b"\0meta", b"x")
            await world.api.nack(m.Nack(first.msg_id, first.receipt))
            await world.api.reprocess(m.Reprocess(TOPIC, 10))
            (second,) = await take(world)

            assert (second.group, second.meta, second.payload) == ("g", b"\0meta", b"x")
            assert (second.origin_id, second.origin_ts) == (sent, first.ts)
            (shown,) = (await world.api.peek(m.Peek(TOPIC, "inflight", payload=True))).messages
            assert (shown.group, shown.meta, shown.origin_id) == ("g", b"\0meta", sent)

    # --- receipts

    async def test_any_receipt_of_a_living_message_acks_it_where_the_topic_says_so(self) -> None:
        async with self.world() as world:
            await set_up(world, receipts="any")
            await send_all(world, b"a", b"b")
            old = await take(world, visibility_ms=250)
            await world.advance(0.5)
            # The first is leased again, the second waits: old receipts are good for both.
            (again,) = await take(world, 1)
            for message in old:
                await world.api.ack(ack_of(message))
            # And every receipt of the message may repeat it.
            for message in (again, *old):
                await world.api.ack(ack_of(message))
            await world.advance(10)

            assert await take(world) == []

    async def test_old_receipt_extends_and_nacks_the_lease_that_is_running(self) -> None:
        async with self.world() as world:
            await set_up(world, receipts="any")
            await send_all(world, b"a")
            (old,) = await take(world, visibility_ms=250)
            await world.advance(0.5)
            with pytest.raises(Conflict) as caught:
                await world.api.extend(m.Extend(old.msg_id, old.receipt, 1000))
            assert caught.value.facts["reason"] == "not_leased"
            await take(world, visibility_ms=250)
            await world.api.extend(m.Extend(old.msg_id, old.receipt, 10_000))
            await world.advance(5)
            assert await take(world) == []
            await world.api.nack(m.Nack(old.msg_id, old.receipt, delay_ms=0))

            assert [got.attempt for got in await take(world)] == [3]

    # --- idem_keys

    async def test_first_wins_answers_the_first_message_whatever_the_second_says(self) -> None:
        async with self.world() as world:
            await set_up(world, dedup=m.DedupSettings(mode="first_wins"))
            first = await world.api.send(m.Send(TOPIC, b"a", idem_key="i"))
            second = await world.api.send(m.Send(TOPIC, b"b", idem_key="i"))

            assert (second.msg_id, second.duplicate) == (first.msg_id, True)
            assert [got.payload for got in await take(world)] == [b"a"]

    async def test_each_topic_remembers_idem_keys_for_its_own_window(self) -> None:
        async with self.world() as world:
            await set_up(world, "short", dedup=m.DedupSettings(10))
            await set_up(world, "long", dedup=m.DedupSettings(604_800))
            for _ in range(2):
                for topic in ("short", "long"):
                    await world.api.send(m.Send(topic, b"x", idem_key="i"))
                await world.advance(11)
            long = await world.api.send(m.Send("long", b"x", idem_key="i"))

            assert long.duplicate
            assert (await world.api.topic(m.GetTopic("short"))).ready == 2
            assert (await world.api.topic(m.GetTopic("long"))).ready == 1

    async def test_full_ledger_refuses_or_forgets_the_oldest_as_the_topic_says(self) -> None:
        async with self.world() as world:
            await set_up(world, "refuses", dedup=m.DedupSettings(100, entries=2))
            await set_up(world, "forgets", dedup=m.DedupSettings(200, entries=2, on_full="oldest_out"))
            for topic in ("refuses", "forgets"):
                for key in ("a", "b"):
                    await world.api.send(m.Send(topic, b"x", idem_key=key))
            with pytest.raises(Busy):
                await world.api.send(m.Send("refuses", b"x", idem_key="c"))
            await world.api.send(m.Send("forgets", b"x", idem_key="c"))

            assert not (await world.api.send(m.Send("forgets", b"x", idem_key="a"))).duplicate
            assert (await world.api.send(m.Send("forgets", b"x", idem_key="c"))).duplicate

    @pytest.mark.parametrize("ending", ["purge", "delete_topic"])
    async def test_purge_and_delete_forget_the_idem_keys_of_a_topic(self, ending: str) -> None:
        async with self.world() as world:
            before = (await set_up(world)).generation
            await world.api.send(m.Send(TOPIC, b"x", idem_key="i"))
            await world.api.send(m.Send("other", b"x", idem_key="i"))
            ask = {"purge": m.Purge, "delete_topic": m.DeleteTopic}[ending]
            await getattr(world.api, ending)(ask(TOPIC))
            sent = await world.api.send(m.Send(TOPIC, b"x", idem_key="i"))

            assert not sent.duplicate
            assert (await set_up(world)).generation > before
            assert (await world.api.send(m.Send(TOPIC, b"x", idem_key="i"))).duplicate
            assert (await world.api.send(m.Send("other", b"x", idem_key="i"))).duplicate

    async def test_deleted_topic_leaves_nothing_behind(self) -> None:
        async with self.world(max_attempts=1) as world:
            await set_up(world, max_attempts=1)
            await send_all(world, b"a", b"b", b"c")
            (dying, _) = await take(world, 2)
            await world.api.nack(m.Nack(dying.msg_id, dying.receipt))

            assert (await world.api.delete_topic(m.DeleteTopic(TOPIC))).deleted == 3
            for ask, name in ((m.GetTopic, "topic"), (m.GetSettings, "settings")):
                with pytest.raises(NotFound):
                    await getattr(world.api, name)(ask(TOPIC))
            assert (await world.api.dlq(m.GetDlq(TOPIC))).entries == ()
            # Again, and for a topic that never was.
            assert (await world.api.delete_topic(m.DeleteTopic(TOPIC))).deleted == 0

    # --- keys and groups

    async def test_one_receive_takes_consecutive_messages_of_a_key_and_hides_the_rest(self) -> None:
        async with self.world() as world:
            await set_up(world, key_batch=3)
            ids = await send_all(world, b"1", b"2", b"3", b"4", b"5", key="k")
            got = await take(world)
            assert [each.msg_id for each in got] == ids[:3]
            assert await take(world) == []
            await world.api.ack(ack_of(got[1]))
            await world.api.ack(ack_of(got[2]))
            assert await take(world) == []
            # The first comes back: it hides what lies behind it until it is taken, and then goes with it.
            await world.api.nack(m.Nack(got[0].msg_id, got[0].receipt, delay_ms=0))

            assert [each.msg_id for each in await take(world)] == [ids[0], ids[3], ids[4]]

    async def test_follower_that_comes_back_waits_for_the_one_before_it(self) -> None:
        async with self.world() as world:
            await set_up(world, key_batch=2)
            ids = await send_all(world, b"1", b"2", b"3", key="k")
            first, second = await take(world)
            await world.api.nack(m.Nack(second.msg_id, second.receipt, delay_ms=0))
            assert await take(world) == []
            await world.api.ack(ack_of(first))

            assert [each.msg_id for each in await take(world)] == ids[1:]

    async def test_groups_take_turns_and_a_noisy_one_delays_nobody(self) -> None:
        async with self.world() as world:
            await set_up(world, fair_by="group")
            await send_all(world, *[b"noise"] * 20, group="noisy")
            await send_all(world, b"a", group="quiet")
            await send_all(world, b"b")
            got = [(await take(world, 1))[0] for _ in range(4)]

            assert {each.payload for each in got[:3]} == {b"noise", b"a", b"b"}
            assert got[3].payload == b"noise"

    async def test_groups_without_fairness_keep_the_order_of_sending(self) -> None:
        async with self.world() as world:
            ids = [(await send_all(world, b"x", group=group))[0] for group in "aabab"]

            assert [each.msg_id for each in await take(world)] == ids

    # --- dead_letter_to

    async def test_message_goes_to_another_topic_after_its_last_attempt_with_all_it_had(self) -> None:
        async with self.world() as world:
            await set_up(world, max_attempts=2, dead_letter_to="dead")
            (sent,) = await send_all(world, b"x", attrs={"a": "1"}, key="k", group="g", meta=b"m")
            (got,) = await take(world)
            await world.api.nack(m.Nack(got.msg_id, got.receipt, "one", 0))
            (got,) = await take(world)
            assert (await world.api.nack(m.Nack(got.msg_id, got.receipt, "two", 0))).dead_lettered
            await world.advance(0.2)
            (moved,) = await take(world, topic="dead")

            assert (moved.payload, moved.key, moved.group, moved.meta) == (b"x", "k", "g", b"m")
            assert (moved.origin_id, moved.origin_ts, moved.idem_key, moved.attempt) == (sent, got.ts, sent, 1)
            history = moved.attrs.pop("penstock.dead.history").split("\n")
            assert [end.partition(":")[2] for end in history] == ["rejected:one", "rejected:two"]
            assert moved.attrs == {
                "a": "1",
                "penstock.dead.topic": TOPIC,
                "penstock.dead.reason": "rejected:two",
                "penstock.dead.attempts": "2",
            }
            assert (await world.api.dlq(m.GetDlq(TOPIC))).entries == ()
            # Moved once more, it still names its first send.
            await set_up(world, "dead", max_attempts=1, dead_letter_to="deader")
            await world.api.nack(m.Nack(moved.msg_id, moved.receipt))
            await world.advance(0.2)
            assert [got.origin_id for got in await take(world, topic="deader")] == [sent]

    async def test_message_that_died_of_age_stays_where_it_died(self) -> None:
        async with self.world() as world:
            await set_up(world, retention_s=1, dead_letter_to="dead")
            await send_all(world, b"x")
            await world.advance(3)

            assert [dead.reason for dead in (await world.api.dlq(m.GetDlq())).entries] == ["ttl"]
            assert await take(world, topic="dead") == []

    @pytest.mark.parametrize("chain", [["a"], ["b", "a"], ["c", "b", "a"]])
    async def test_dead_letters_must_not_come_back(self, chain: list[str]) -> None:
        async with self.world() as world:
            for source, target in pairwise(chain):
                await set_up(world, source, dead_letter_to=target)
            with pytest.raises(Malformed):
                await set_up(world, "a", dead_letter_to=chain[0])
            with pytest.raises(NotFound):
                await world.api.settings(m.GetSettings("a"))
