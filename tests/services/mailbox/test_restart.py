"""What a restart must keep: messages, leases, delays, claims, dead letters."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.contracts.mailbox import Ack, GetDlq, GetTopic, Nack, Recv, Send
from penstock.kernel.errors import Conflict
from tests.services.mailbox.worlds import mailbox_options, make_engine, running


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
class TestRestart:
    async def test_everything_waiting_is_delivered_after_a_restart(self, kind: str, tmp_path: Path) -> None:
        engine = make_engine(kind, tmp_path)
        async with running(engine, mailbox_options({})) as mailbox:
            for number in range(50):
                key = f"k{number % 5}" if number % 3 == 0 else None
                await mailbox.api.send(Send("orders", b"%d" % number, key=key))
        seen = []
        async with running(engine, mailbox_options({})) as mailbox:
            while got := (await mailbox.api.recv(Recv("orders", 7))).messages:
                for message in got:
                    seen.append(int(message.payload))
                    await mailbox.api.ack(Ack(message.msg_id, message.receipt))

            assert sorted(seen) == list(range(50))
            keyed = [number for number in seen if number % 3 == 0]
            for key in range(5):
                assert [n for n in keyed if n % 5 == key] == sorted(n for n in keyed if n % 5 == key)

    async def test_stored_lease_outlives_a_restart_and_its_receipt_stays_good(self, kind: str, tmp_path: Path) -> None:
        engine = make_engine(kind, tmp_path)
        async with running(engine, mailbox_options({})) as mailbox:
            await mailbox.api.send(Send("orders", b"a", key="k"))
            await mailbox.api.send(Send("orders", b"b", key="k"))
            (first,) = (await mailbox.api.recv(Recv("orders", visibility_ms=60_000))).messages
        async with running(engine, mailbox_options({})) as mailbox:
            assert (await mailbox.api.recv(Recv("orders"))).messages == ()
            assert (await mailbox.api.topic(GetTopic("orders"))).inflight == 1
            assert (await mailbox.api.ack(Ack(first.msg_id, first.receipt))).ok

            (second,) = (await mailbox.api.recv(Recv("orders"))).messages
            assert second.payload == b"b"

    async def test_ack_and_claim_outlive_a_restart(self, kind: str, tmp_path: Path) -> None:
        engine = make_engine(kind, tmp_path)
        async with running(engine, mailbox_options({})) as mailbox:
            sent = await mailbox.api.send(Send("orders", b"a", idem_key="i"))
            (got,) = (await mailbox.api.recv(Recv("orders"))).messages
            await mailbox.api.ack(Ack(got.msg_id, got.receipt))
        async with running(engine, mailbox_options({})) as mailbox:
            again = await mailbox.api.send(Send("orders", b"a", idem_key="i"))
            assert (again.msg_id, again.duplicate) == (sent.msg_id, True)
            assert (await mailbox.api.ack(Ack(got.msg_id, got.receipt))).ok
            with pytest.raises(Conflict):
                await mailbox.api.nack(Nack(got.msg_id, got.receipt))

            assert (await mailbox.api.recv(Recv("orders"))).messages == ()

    async def test_delay_history_and_dead_letters_outlive_a_restart(self, kind: str, tmp_path: Path) -> None:
        engine = make_engine(kind, tmp_path)
        options = mailbox_options({"max_attempts": 2})
        async with running(engine, options) as mailbox:
            await mailbox.api.send(Send("orders", b"a"))
            await mailbox.api.send(Send("orders", b"later", delay_ms=3_600_000))
            (got,) = (await mailbox.api.recv(Recv("orders"))).messages
            await mailbox.api.nack(Nack(got.msg_id, got.receipt, reason="one", delay_ms=0))
        async with running(engine, options) as mailbox:
            assert (await mailbox.api.topic(GetTopic("orders"))).delayed == 1
            (got,) = (await mailbox.api.recv(Recv("orders"))).messages
            assert got.attempt == 2
            assert (await mailbox.api.nack(Nack(got.msg_id, got.receipt, reason="two"))).dead_lettered
        async with running(engine, options) as mailbox:
            (dead,) = (await mailbox.api.dlq(GetDlq("orders"))).entries

            assert [attempt.cause for attempt in dead.history] == ["rejected:one", "rejected:two"]
            assert (await mailbox.api.topic(GetTopic("orders"))).dlq == 1
