"""Topic settings on the real service: the contract's suite on both engines, and what only the service can show."""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import UNSET

from penstock.contracts import mailbox as m
from penstock.contracts.call import Call
from penstock.kernel.clock import LoopClock
from penstock.kernel.errors import Forbidden, NotFound, OverLimit
from penstock.services.mailbox.config import MailboxBounds
from tests.contracts.suite_mailbox_settings import TopicSettingsSuite
from tests.contracts.worlds import World
from tests.services.mailbox.invariants import check_all, check_ram, settled
from tests.services.mailbox.test_http import served
from tests.services.mailbox.test_narrow_tokens import guarded, token
from tests.services.mailbox.worlds import (
    WALL,
    RequestMeta,
    answer_of,
    mailbox_options,
    mailbox_world,
    make_engine,
    make_room,
    running,
)


class TestSettingsInMemory(TopicSettingsSuite):
    def world(self, **options: object) -> AbstractAsyncContextManager[World]:
        return mailbox_world("memory", **options)


class TestSettingsOnSqlite(TopicSettingsSuite):
    def world(self, **options: object) -> AbstractAsyncContextManager[World]:
        return mailbox_world("sqlite", **options)


NOISE = 10_000
SIZES = {"window_messages": 512}


async def send_noise(api, count: int, group: str) -> None:
    for start in range(0, count, 250):
        sends = tuple(m.Send("t", b"noise", group=group) for _ in range(min(250, count - start)))
        await api.send_batch(m.SendBatch(sends))


async def came_within(api, receives: int) -> set[bytes]:
    """Return what so many receives of one message brought, but the noise."""
    came = set()
    for _ in range(receives):
        (got,) = (await api.recv(m.Recv("t", 1, 60_000))).messages
        await api.ack(m.Ack(got.msg_id, got.receipt))
        came.add(got.payload)
    return came - {b"noise"}


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_backlog_of_one_group_delays_another_by_a_few_receives_also_after_a_restart(
    kind: str, tmp_path: Path
) -> None:
    engine, clock = make_engine(kind, tmp_path), LoopClock(WALL)
    options = replace(mailbox_options({}), bounds=MailboxBounds(**SIZES))
    async with running(engine, options, clock) as mailbox:
        await mailbox.api.put_settings(m.PutSettings("t", m.TopicSettings(fair_by="group")))
        await send_noise(mailbox.api, NOISE, "noisy")
        await mailbox.api.send(m.Send("t", b"first", group="quiet"))
        assert await came_within(mailbox.api, 20) == {b"first"}
        await mailbox.api.send(m.Send("t", b"second", group="quiet"))
        await mailbox.api.send(m.Send("t", b"third", group="other"))
    async with running(engine, options, clock) as mailbox:
        assert await came_within(mailbox.api, 20) == {b"second", b"third"}
        check_ram(mailbox)
        # Groups that have nothing left are forgotten.
        assert {group for lane in mailbox.state.ledger.topics["t"].lanes.values() for group in lane.lines} == {"noisy"}
        # And RAM holds no more than it may.
        assert mailbox.state.ledger.resident <= SIZES["window_messages"]


async def test_settings_generation_and_windows_survive_a_restart(tmp_path: Path) -> None:
    clock, engine = LoopClock(WALL), make_engine("sqlite", tmp_path)
    wish = m.TopicSettings(max_attempts=7, dedup=m.DedupSettings(604_800, mode="first_wins"), tags={"a": "b"})
    async with running(engine, mailbox_options({}), clock) as mailbox:
        await mailbox.api.put_settings(m.PutSettings("t", wish))
        await mailbox.api.send(m.Send("t", b"0", idem_key="before"))
        await mailbox.api.purge(m.Purge("t"))
        shown = await mailbox.api.put_settings(m.PutSettings("t", wish))
        sent = await mailbox.api.send(m.Send("t", b"1", idem_key="i"))
    await asyncio.sleep(86_400)
    async with running(engine, mailbox_options({}), clock) as mailbox:
        assert await mailbox.api.settings(m.GetSettings("t")) == shown
        assert (await mailbox.api.send(m.Send("t", b"2", idem_key="i"))).msg_id == sent.msg_id
        assert not (await mailbox.api.send(m.Send("t", b"3", idem_key="before"))).duplicate


async def test_long_window_does_not_pin_the_claims_of_a_short_one(tmp_path: Path) -> None:
    async with running(make_engine("sqlite", tmp_path), mailbox_options({})) as mailbox:
        await mailbox.api.put_settings(m.PutSettings("long", m.TopicSettings(dedup=m.DedupSettings(604_800))))
        for number in range(20):
            await mailbox.api.send(m.Send("long", b"x", idem_key=f"{number}"))
            await mailbox.api.send(m.Send("usual", b"x", idem_key=f"{number}"))
            await asyncio.sleep(1)
        await asyncio.sleep(310)
        usual, long = mailbox.state.claims

        assert (usual.live <= 1, long.live) == (True, 20)
        stored = dict(mailbox.engine.reads._ask("SELECT n >> 40, count(*) FROM dedup GROUP BY 1"))
        assert (stored.get(0, 0) <= 1, stored[604_800]) == (True, 20)


async def test_evicted_claims_are_counted_and_degrade_a_gate_while_they_would_be_in_their_window() -> None:
    wish = m.TopicSettings(dedup=m.DedupSettings(100, entries=3, on_full="oldest_out"))
    async with running(make_engine("memory", Path()), mailbox_options({})) as mailbox:
        gate = mailbox.inventory.health.gate("dedup")
        await mailbox.api.put_settings(m.PutSettings("t", wish))
        for number in range(5):
            await mailbox.api.send(m.Send("t", b"x", idem_key=f"{number}"))
        await asyncio.sleep(1)
        assert mailbox.state.claims.evicted == 2
        assert (gate.open, gate.degraded) == (True, True)
        await asyncio.sleep(101)

        assert (gate.open, gate.degraded) == (True, False)


async def test_topic_keeps_its_messages_longer_than_the_service_does_if_it_says_so() -> None:
    options = replace(mailbox_options({}), ready_retention_s=60.0)
    async with running(make_engine("memory", Path()), options) as mailbox:
        await mailbox.api.put_settings(m.PutSettings("own", m.TopicSettings(retention_s=1000)))
        for topic in ("own", "usual"):
            await mailbox.api.send(m.Send(topic, b"x"))
        await asyncio.sleep(200)
        # One that is sent behind messages which stay is found as well.
        await mailbox.api.send(m.Send("usual", b"x"))
        await asyncio.sleep(200)
        counts = {each.topic: (each.ready, each.dlq) for each in (await mailbox.api.topics(m.GetTopics())).topics}
        assert counts == {"own": (1, 0), "usual": (0, 2)}
        await asyncio.sleep(700)

        assert (await mailbox.api.topic(m.GetTopic("own"))).dlq == 1


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_old_receipt_settles_a_message_that_only_the_disk_has(kind: str, tmp_path: Path) -> None:
    async with running(make_engine(kind, tmp_path), mailbox_options({})) as mailbox:
        await mailbox.api.put_settings(m.PutSettings("t", m.TopicSettings(receipts="any")))
        await mailbox.api.send(m.Send("t", b"x"))
        (old,) = (await mailbox.api.recv(m.Recv("t", 1, 250))).messages
        await asyncio.sleep(1)
        await settled(mailbox)
        make_room(mailbox.state.shards, 1 << 40)
        assert mailbox.state.ledger.resident == 0
        with pytest.raises(NotFound):
            await mailbox.api.ack(m.Ack(old.msg_id.replace("8", "9", 1), old.receipt))
        assert (await mailbox.api.ack(m.Ack(old.msg_id, old.receipt))).ok
        await settled(mailbox)
        check_all(mailbox)

        assert mailbox.state.ledger.messages == 0


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_old_receipt_settles_a_message_whose_lease_is_just_ending(kind: str, tmp_path: Path) -> None:
    async with running(make_engine(kind, tmp_path), mailbox_options({})) as mailbox:
        await mailbox.api.put_settings(m.PutSettings("t", m.TopicSettings(receipts="any")))
        await mailbox.api.send(m.Send("t", b"x"))
        (got,) = (await mailbox.api.recv(m.Recv("t", 1))).messages
        # In one step: the message is given back, and acked before that is on the disk.
        nack = mailbox.dispatcher.settle(
            m.Nack(got.msg_id, got.receipt, delay_ms=0), name_of(mailbox, got), RequestMeta()
        )
        ack = mailbox.dispatcher.settle(m.Ack(got.msg_id, got.receipt), name_of(mailbox, got), RequestMeta())
        assert not (await answer_of(nack)).dead_lettered
        assert (await answer_of(ack)).ok
        await settled(mailbox)
        check_all(mailbox)

        assert mailbox.state.ledger.messages == 0


def name_of(mailbox, got: m.Envelope):
    return mailbox.state.ledger.read_name(got.msg_id)


async def test_topics_that_nobody_set_up_can_be_refused() -> None:
    async with running(make_engine("memory", Path()), mailbox_options({"topics_auto": False})) as mailbox:
        for call in (mailbox.api.send(m.Send("t", b"x")), mailbox.api.recv(m.Recv("t"))):
            with pytest.raises(NotFound):
                await call
        (refused,) = (await mailbox.api.send_batch(m.SendBatch((m.Send("t", b"x"),)))).results
        assert refused.code == "not_found"
        await mailbox.api.put_settings(m.PutSettings("t", m.TopicSettings()))
        await mailbox.api.send(m.Send("t", b"x"))

        assert len((await mailbox.api.recv(m.Recv("t"))).messages) == 1


async def test_settings_windows_and_their_size_are_bounded() -> None:
    async with running(make_engine("memory", Path()), mailbox_options({"topic_settings_max": 20})) as mailbox:
        for number in range(16):
            wish = m.TopicSettings(dedup=m.DedupSettings(number + 1))
            await mailbox.api.put_settings(m.PutSettings(f"t{number}", wish))
        with pytest.raises(OverLimit, match="windows"):
            await mailbox.api.put_settings(m.PutSettings("t", m.TopicSettings(dedup=m.DedupSettings(17))))
        # A window that no topic uses any more makes room for another.
        await mailbox.api.put_settings(m.PutSettings("t0", m.TopicSettings()))
        await mailbox.api.put_settings(m.PutSettings("t", m.TopicSettings(dedup=m.DedupSettings(17))))
        for number in range(3):
            await mailbox.api.put_settings(m.PutSettings(f"u{number}", m.TopicSettings()))
        with pytest.raises(OverLimit, match="Too many topics"):
            await mailbox.api.put_settings(m.PutSettings("u3", m.TopicSettings()))
        # One that has settings already may change them.
        await mailbox.api.put_settings(m.PutSettings("u0", m.TopicSettings(paused=True)))


async def test_moving_and_dead_lettering_need_an_operators_capability_for_both_topics() -> None:
    async with guarded() as (mailbox, book):
        sender, owner = token(book, "topic=a", "op=send"), token(book, "topic=a")
        both = Call(token(book, "topic=a,b"))
        moved = m.Send("a", b"x", origin=m.Origin("m", 5))
        with pytest.raises(Forbidden):
            await mailbox.api.send(moved, Call(sender))
        batch = m.SendBatch((m.Send("a", b"y"), moved))
        results = (await mailbox.api.send_batch(batch, Call(sender))).results
        assert [result.code for result in results] == [UNSET, "forbidden"]
        await mailbox.api.send(moved, Call(owner))
        wish = m.PutSettings("a", m.TopicSettings(dead_letter_to="b"))
        for call in (Call(sender), Call(owner)):
            with pytest.raises(Forbidden):
                await mailbox.api.put_settings(wish, call)
        await mailbox.api.put_settings(wish, both)

        assert (await mailbox.api.settings(m.GetSettings("a"), Call(owner))).settings.dead_letter_to == "b"


async def ask(http, method: str, path: str, body: dict | None = None) -> tuple[int, dict]:
    return await http.request(method, path, b"" if body is None else json.dumps(body).encode())


@pytest.mark.real_loop
async def test_settings_go_over_http() -> None:
    async with served() as (_, http, _):
        path = "/v1/topics/a%2Fb/settings"
        assert (await ask(http, "GET", path))[0] == 404
        status, shown = await ask(http, "PUT", path, {"max_attempts": 3, "visibility_ms": 0})
        assert (status, shown["topic"], shown["settings"]) == (200, "a/b", {"max_attempts": 3, "visibility_ms": 0})
        for bad in ({"visibility_ms": 100}, {"max_attempts": -1}, {"surprise": 1}, {"dead_letter_to": "a/b"}):
            assert (await ask(http, "PUT", path, bad))[0] == 400
        assert (await ask(http, "GET", path))[1]["settings"] == {"max_attempts": 3, "visibility_ms": 0}
        assert (await ask(http, "DELETE", path))[1] == {"ok": True}
        await ask(http, "PUT", path, {})
        await ask(http, "POST", "/v1/send", {"topic": "a/b", "payload_b64": "aGk=", "meta_b64": "bQ==", "group": "g"})
        _, got = await ask(http, "POST", "/v1/recv", {"topic": "a/b"})
        assert (got["messages"][0]["meta_b64"], got["messages"][0]["group"]) == ("bQ==", "g")

        assert (await ask(http, "DELETE", "/v1/topics/a%2Fb"))[1] == {"deleted": 1}


async def test_meta_counts_with_the_payload_in_a_batch_too() -> None:
    async with running(make_engine("memory", Path()), mailbox_options({"payload_bytes_max": 10})) as mailbox:
        sends = (m.Send("t", b"1234", meta=b"1234567"), m.Send("t", b"1234", meta=b"123456"))
        results = (await mailbox.api.send_batch(m.SendBatch(sends))).results

        assert [result.code for result in results] == ["over_limit", UNSET]
        assert (mailbox.state.ledger.messages, mailbox.state.ledger.bytes) == (1, 10)
