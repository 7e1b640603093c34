"""The smaller promises: what time takes away and where it is written down, the bounds of a lease and of an answer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from penstock.contracts.mailbox import Ack, Extend, GetDlq, GetTopic, Nack, Recv, Reprocess, Send
from penstock.kernel.deadline import Deadline
from penstock.kernel.errors import Busy, Malformed, NotFound, Timeout
from penstock.services.mailbox.agents.reprocessor import Redrive
from penstock.services.mailbox.config import MailboxBounds, MailboxOptions, ShardRules
from penstock.services.mailbox.engines.engine import DeadPage
from tests.services.mailbox.worlds import RequestMeta, answer_of, make_engine, running

KINDS = pytest.mark.parametrize("kind", ["memory", "sqlite"])


@KINDS
async def test_expired_messages_go_where_their_topic_says(kind: str, tmp_path: Path) -> None:
    rules = ShardRules(on_expiry=(("logs/*", "drop"), ("logs/audit", "dlq")))
    async with running(make_engine(kind, tmp_path), MailboxOptions(rules=rules)) as mailbox:
        for topic in ("logs/web", "logs/audit", "orders"):
            await mailbox.api.send(Send(topic, b"x", ttl_ms=1000))
            await mailbox.api.send(Send(topic, b"y", ttl_ms=1000, key="k"))
        await asyncio.sleep(3)
        dead = (await mailbox.api.dlq(GetDlq())).entries

        assert sorted(entry.topic for entry in dead) == ["logs/audit"] * 2 + ["orders"] * 2
        assert {entry.reason for entry in dead} == {"ttl"}
        assert mailbox.inventory.metrics.value("expired_dropped_total") == 2
        assert mailbox.state.ledger.messages == 4
        with pytest.raises(NotFound):
            await mailbox.api.topic(GetTopic("logs/web"))


@KINDS
async def test_message_that_waits_too_long_is_dead_lettered_and_never_just_gone(kind: str, tmp_path: Path) -> None:
    options = MailboxOptions(ready_retention_s=60.0)
    async with running(make_engine(kind, tmp_path), options) as mailbox:
        await mailbox.api.send(Send("orders", b"old"))
        await asyncio.sleep(50)
        await mailbox.api.send(Send("orders", b"young"))
        await asyncio.sleep(15)
        (dead,) = (await mailbox.api.dlq(GetDlq())).entries
        (left,) = (await mailbox.api.recv(Recv("orders"))).messages

        assert (dead.reason, left.payload) == ("ttl", b"young")


@KINDS
async def test_dead_letters_above_their_share_go_oldest_first_and_are_written_down(kind: str, tmp_path: Path) -> None:
    audit = tmp_path / "audit" / "mailbox.jsonl"
    options = MailboxOptions(
        bounds=MailboxBounds(backlog_messages=10), dlq_share=0.5, rules=ShardRules(max_attempts=1), audit_path=audit
    )
    async with running(make_engine(kind, tmp_path), options) as mailbox:
        sent = []
        for number in range(9):
            ttl_ms = 500 if number == 8 else None
            sent.append((await mailbox.api.send(Send("orders", b"%d" % number, ttl_ms=ttl_ms))).msg_id)
            if number == 8:
                await asyncio.sleep(0.6)
                continue
            (got,) = (await mailbox.api.recv(Recv("orders"))).messages
            await mailbox.api.nack(Nack(got.msg_id, got.receipt))
        await asyncio.sleep(5)
        left = {entry.msg_id for entry in (await mailbox.api.dlq(GetDlq())).entries}
        records = [json.loads(line) for line in audit.read_text().splitlines()]

        assert len(left) == mailbox.state.ledger.dead == 5
        # The ninth died last, but of age: it goes before the others.
        assert sorted(record["msg_id"] for record in records) == [*sent[:3], sent[8]]
        assert left == set(sent[3:8])
        assert {(record["action"], record["why"], record["topic"]) for record in records} == {
            ("dlq.dropped", "share", "orders")
        }
        assert mailbox.inventory.metrics.value("dlq_dropped_total", reason="share") == 4


@KINDS
async def test_dead_letter_is_removed_after_its_retention(kind: str, tmp_path: Path) -> None:
    options = MailboxOptions(dlq_retention_s=60.0, rules=ShardRules(max_attempts=1))
    async with running(make_engine(kind, tmp_path), options) as mailbox:
        await mailbox.api.send(Send("orders", b"x"))
        (got,) = (await mailbox.api.recv(Recv("orders"))).messages
        await mailbox.api.nack(Nack(got.msg_id, got.receipt))
        await asyncio.sleep(55)
        assert mailbox.state.ledger.dead == 1
        await asyncio.sleep(10)

        assert (mailbox.state.ledger.dead, mailbox.state.ledger.messages) == (0, 0)


async def test_lease_below_the_configured_minimum_is_refused_and_nothing_is_leased(tmp_path: Path) -> None:
    options = MailboxOptions(rules=ShardRules(visibility_ms_min=2000))
    async with running(make_engine("memory", tmp_path), options) as mailbox:
        await mailbox.api.send(Send("orders", b"x"))
        with pytest.raises(Malformed, match="2000"):
            await mailbox.api.recv(Recv("orders", visibility_ms=1999))
        (got,) = (await mailbox.api.recv(Recv("orders", visibility_ms=2000))).messages
        with pytest.raises(Malformed, match="2000"):
            await mailbox.api.extend(Extend(got.msg_id, got.receipt, 500))

        assert (await mailbox.api.ack(Ack(got.msg_id, got.receipt))).ok


async def test_job_whose_deadline_passed_in_the_queue_is_not_done(tmp_path: Path) -> None:
    async with running(make_engine("memory", tmp_path), MailboxOptions()) as mailbox:
        now = mailbox.inventory.clock.monotonic()
        late = mailbox.dispatcher.send(Send("orders", b"late"), RequestMeta(deadline=Deadline(now, 2.0)))
        with pytest.raises(Timeout):
            await answer_of(late)

        assert mailbox.state.ledger.messages == 0


@KINDS
async def test_answer_to_recv_is_bounded_in_bytes_over_all_shards(kind: str, tmp_path: Path) -> None:
    async with running(make_engine(kind, tmp_path), MailboxOptions()) as mailbox:
        for number in range(20):
            await mailbox.api.send(Send("orders", bytes(500_000), key=f"k{number}"))
        many = (await mailbox.api.recv(Recv("orders", 256))).messages
        few = (await mailbox.api.recv(Recv("orders", 256, max_bytes=1))).messages

        assert sum(len(message.payload) for message in many) <= (4 << 20) + 500_000
        assert len(many) < 20
        assert len(few) == 1


@KINDS
async def test_idle_topics_are_forgotten_however_many_there_are(kind: str, tmp_path: Path) -> None:
    async with running(make_engine(kind, tmp_path), MailboxOptions()) as mailbox:
        for number in range(1100):
            await mailbox.api.send(Send(f"busy{number}", b"x"))
        for number in range(50):
            assert (await mailbox.api.recv(Recv(f"idle{number}"))).messages == ()
        await asyncio.sleep(5)

        assert len(mailbox.state.ledger.topics) == 1100


async def bury(mailbox, count: int) -> None:
    for number in range(count):
        await mailbox.api.send(Send("orders", b"%d" % number, key="k"))
        (got,) = (await mailbox.api.recv(Recv("orders"))).messages
        await mailbox.api.nack(Nack(got.msg_id, got.receipt))


@KINDS
async def test_redrive_that_a_shard_refuses_waits_and_leaves_nothing_behind(kind: str, tmp_path: Path) -> None:
    options = MailboxOptions(rules=ShardRules(max_attempts=1), ready_shards=1)
    async with running(make_engine(kind, tmp_path), options) as mailbox:
        await bury(mailbox, 5)
        work = mailbox.dispatcher.workers[0].work
        work.suspend()
        assert (await mailbox.api.reprocess(Reprocess("orders", 5))).accepted == 5
        await asyncio.sleep(1)
        retries = mailbox.inventory.metrics.value("backoff_retries_total", op="reprocess", result="success")
        assert (mailbox.state.ledger.dead, retries > 0) == (5, True)
        work.resume()
        await asyncio.sleep(5)
        seen = []
        while got := (await mailbox.api.recv(Recv("orders"))).messages:
            seen += [message.payload for message in got]
            await mailbox.api.ack(Ack(got[0].msg_id, got[0].receipt))

        assert seen == [b"%d" % number for number in range(5)]
        assert mailbox.state.ledger.dead == 0


async def test_full_reproc_channel_says_so_and_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(make_engine("memory", tmp_path), MailboxOptions(reproc_capacity=1)) as mailbox:
        redrive = Redrive(DeadPage(None, None, 0, 1), None, "c")
        mailbox.reprocessor.submit(redrive)
        with pytest.raises(Busy) as caught:
            mailbox.reprocessor.submit(redrive)

        assert (caught.value.status, caught.value.facts["reason"]) == (429, "reproc_queue_full")
        assert "reproc_queue_full" in caplog.text


async def test_scanner_backs_off_when_requeue_is_full_and_the_message_still_comes_back(tmp_path: Path) -> None:
    async with running(make_engine("memory", tmp_path), MailboxOptions(ready_shards=1)) as mailbox:
        await mailbox.api.send(Send("orders", b"x"))
        await mailbox.api.recv(Recv("orders", visibility_ms=250))
        mailbox.dispatcher.workers[0].requeue.suspend()
        await asyncio.sleep(1)
        metrics = mailbox.inventory.metrics
        assert metrics.value("requeue_backoff_total") > 1
        mailbox.dispatcher.workers[0].requeue.resume()
        (again,) = (await mailbox.api.recv(Recv("orders", wait_ms=2000))).messages

        assert (again.attempt, metrics.value("io_timeouts_total", op="recv")) == (2, 1)
        assert metrics.value("scanner_wake_jitter_ms") > 0


async def test_receivers_that_wait_are_bounded(tmp_path: Path) -> None:
    options = MailboxOptions(bounds=MailboxBounds(waiters=2))
    async with running(make_engine("memory", tmp_path), options) as mailbox:
        waiting = [mailbox.dispatcher.recv(Recv("orders", wait_ms=1000), RequestMeta()) for _ in range(2)]
        await asyncio.sleep(0.1)
        with pytest.raises(Busy) as caught:
            await mailbox.api.recv(Recv("orders", wait_ms=1000))
        assert caught.value.facts["limit"] == "waiters"
        await asyncio.sleep(2)

        assert mailbox.state.waiters.count == 0
        assert all(job.promise.done for job in waiting)
