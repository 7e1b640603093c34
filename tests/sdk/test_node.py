"""The SDK against a real node in a process of its own: what a user would do, and what goes wrong for users."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path

import pytest

from penstock.client import Client, LeaseLost, connect, narrow, new_message
from penstock.kernel.errors import Conflict, Forbidden, Unauthenticated
from penstock.testing import until
from tests.acceptance.node_process import NodeProcess
from tests.net.server.certificates import make_certificate
from tests.sdk.kit import started

pytestmark = pytest.mark.real_loop(watchdog_s=170)


def client_of(node: NodeProcess, **options) -> Client:
    return connect(node.ready["data_dir"], **options)


async def test_a_message_goes_round(node: NodeProcess) -> None:
    async with client_of(node) as client:
        sent = await client.mailbox.send("round/trip", b"\0\xff", attrs={"a": "1"}, key="k")
        [got] = await client.mailbox.recv("round/trip", wait_ms=20_000, visibility_ms=30_000)
        assert (got.msg_id, got.payload, got.attrs, got.key) == (sent.msg_id, b"\0\xff", {"a": "1"}, "k")
        assert (await client.mailbox.topic("round/trip")).inflight == 1
        await client.mailbox.extend(got, 60_000)
        await client.mailbox.ack(got)

        assert await client.mailbox.recv("round/trip") == ()
        with pytest.raises(Conflict):
            await client.mailbox.nack(got)


async def test_a_batch_is_stored_each_on_its_own(node: NodeProcess) -> None:
    async with client_of(node) as client:
        batch = [new_message("batch", str(n), idem_key=f"b-{n % 2}") for n in range(3)]
        first, second, third = await client.mailbox.send_batch(batch)
        messages = await client.mailbox.recv("batch", max_messages=10)

        assert (first.duplicate, second.duplicate, third.code) == (False, False, "conflict")
        assert [result.ok for result in await client.mailbox.ack_batch(messages)] == [True, True]


async def test_a_narrowed_token_opens_less_and_a_revoked_one_nothing(node: NodeProcess) -> None:
    async with client_of(node) as operator:
        issued = await operator.passport.issue("ada", "svc-mailbox", caveats=["op=send,recv"], ttl_s=60)
        less = narrow(issued.token, "op=send", "topic=orders/")
        async with client_of(node, token=less) as client:
            assert (await client.mailbox.send("orders/eu", "x")).msg_id
            for refused in (client.mailbox.recv("orders/eu"), client.mailbox.send("secrets", "x")):
                with pytest.raises(Forbidden):
                    await refused
            verdict = await operator.passport.verify(less)
            assert verdict.claims is not None
            await operator.passport.revoke(tid=verdict.claims.tid)

            async def is_refused() -> bool:
                try:
                    await client.mailbox.send("orders/eu", "x")
                except Unauthenticated as refused:
                    return refused.facts["reason"] == "revoked"
                return False

            await until(is_refused)


async def test_the_node_renews_the_lease_of_a_handler_that_works_on(node: NodeProcess) -> None:
    """That nobody else gets the message meanwhile is shown on virtual time, in `test_delivery`."""
    async with client_of(node) as client:
        seen: list[tuple[bytes, int]] = []

        async def handle(delivery) -> None:
            seen.append((delivery.payload, delivery.attempt))
            await until(lambda: client.inventory.metrics.value("leases_renewed_total") >= 1)

        await client.mailbox.send("slow", "x")
        # Renewed after five seconds, lost after fifteen: a machine may freeze for some of them.
        async with started(client.mailbox.run("slow", handle, concurrency=4, visibility_ms=15_000)):
            await until(lambda: _gone(client, "slow"))

        assert seen == [(b"x", 1)]


async def test_poison_becomes_a_dead_letter_and_can_be_sent_back(node: NodeProcess) -> None:
    async with client_of(node) as client:
        healed = False
        done: list[str] = []

        async def handle(delivery) -> None:
            if delivery.payload == b"poison" and not healed:
                await delivery.nack("cannot digest", delay_ms=0)
                return
            done.append(delivery.payload.decode())

        for payload in ("a", "poison", "b"):
            await client.mailbox.send("food", payload)
        async with started(client.mailbox.run("food", handle, concurrency=2)):
            await until(lambda: _dead(client, "food"))
            [letter] = [letter async for letter in client.mailbox.dead_letters("food")]
            assert (letter.reason, letter.attempts) == ("rejected:cannot digest", 5)
            assert await client.mailbox.reprocess("food", dry_run=True) == 1
            healed = True
            assert await client.mailbox.reprocess("food") == 1
            await until(lambda: _gone(client, "food"))

        assert sorted(done) == ["a", "b", "poison"]


async def _gone(client: Client, topic: str) -> bool:
    return topic not in {stats.topic for stats in await client.mailbox.topics()}


async def _dead(client: Client, topic: str) -> bool:
    return (await client.mailbox.topic(topic)).dlq == 1


async def test_a_lease_taken_away_is_told_to_the_handler(node: NodeProcess) -> None:
    async with client_of(node) as client:
        await client.mailbox.send("taken", "x")
        # Long enough to be given back while it is ours, short enough to be missed soon.
        delivery = await anext(client.mailbox.consume("taken", visibility_ms=6000))

        async def work() -> None:
            async with delivery:
                await client.mailbox.nack(delivery, delay_ms=60_000)
                await asyncio.Event().wait()

        with pytest.raises(LeaseLost):
            await work()


async def test_a_node_killed_while_consuming_loses_nothing(tmp_path: Path) -> None:
    sent, done = 60, Counter()

    async def handle(delivery) -> None:
        await asyncio.sleep(0.02)  # lint: allow PK018 a handler takes time
        done[delivery.payload] += 1

    async with connect(tmp_path) as client:
        with NodeProcess(data_dir=tmp_path) as first:
            for n in range(sent):
                await client.mailbox.send("crash", str(n))
            consuming = started(client.mailbox.run("crash", handle, concurrency=8, visibility_ms=2000))
            async with consuming as task:
                await until(lambda: _done(done, 16))
                first.signal(signal.SIGKILL)
                first.wait()
                with NodeProcess(data_dir=tmp_path):
                    await until(lambda: _done(done, sent))
                    await until(lambda: _gone(client, "crash"))
                    assert not task.done()
                    task.cancel()
                    await asyncio.wait({task})

    assert len(done) == sent


async def _done(done: Counter, count: int) -> bool:
    return len(done) >= count


async def test_a_node_with_tls_is_found_and_believed_by_its_certificate(tmp_path: Path) -> None:
    paths = make_certificate(tmp_path)
    sets = [f"http.tls.{name}={paths[f'tls_{name}']}" for name in ("cert_path", "key_path")]
    data_dir = tmp_path / "data"
    with NodeProcess(*(word for one in sets for word in ("--set", one)), data_dir=data_dir):
        async with connect(data_dir) as client:
            assert client.place.url("mailbox").startswith("https://")
            assert (await client.mailbox.send("secure", "x")).msg_id


async def test_a_node_that_came_back_with_another_certificate_is_believed_by_it(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    async with connect(data_dir) as client:
        for n in range(2):
            paths = make_certificate(tmp_path)
            sets = [f"http.tls.{name}={paths[f'tls_{name}']}" for name in ("cert_path", "key_path")]
            with NodeProcess(*(word for one in sets for word in ("--set", one)), data_dir=data_dir):
                assert not (await client.mailbox.send("renewed", str(n))).duplicate


async def test_a_producer_with_its_token_sends_and_stores_and_does_nothing_else(node: NodeProcess) -> None:
    async with connect(node.ready["data_dir"]) as operator:
        issued = await operator.passport.producer_token("shop", "sales/", store=["put"])
        async with connect(node.ready["data_dir"], token=issued.token) as producer:
            stored = await producer.storage.put(b"a picture")
            sent = await producer.mailbox.send("sales/eu", stored.address)
            for call in (
                producer.mailbox.recv("sales/eu"),
                producer.mailbox.send("other", "x"),
                producer.storage.get(stored.address),
            ):
                with pytest.raises(Forbidden):
                    await call
        [message] = await operator.mailbox.recv("sales/eu", wait_ms=20_000)
        await operator.mailbox.ack(message)

    assert message.msg_id == sent.msg_id
