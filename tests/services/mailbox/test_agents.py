"""What the agents and bounds of the founding document promise: order, the scanner's pace, events, reserves, trims."""

from __future__ import annotations

import asyncio
import random
from heapq import heappush
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.contracts.call import Call
from penstock.contracts.mailbox import Ack, Nack, Recv, Send
from penstock.kernel.errors import Busy, Unauthenticated
from penstock.services.mailbox.config import MailboxOptions
from penstock.services.mailbox.ids import read_msg_id
from tests.services.mailbox.lagging import lagging, reopened
from tests.services.mailbox.worlds import RequestMeta, mailbox_options, make_engine, running

# --- order


def deepest(mailbox) -> float:
    value = mailbox.inventory.metrics.value
    return max(value("reorder_depth_max", shard=str(worker.index)) for worker in mailbox.dispatcher.workers)


async def test_gauge_tells_how_many_messages_overtook_one(tmp_path: Path) -> None:
    async with running(make_engine("memory", tmp_path), MailboxOptions(ready_shards=1)) as mailbox:
        for number in range(6):
            await mailbox.api.send(Send("orders", b"%d" % number))
        lane = mailbox.state.home_lane(mailbox.state.ledger.topics["orders"])
        lane.ready.remove(1)
        await mailbox.api.recv(Recv("orders", 4))
        assert deepest(mailbox) == 0
        # As if it had been found late.
        heappush(lane.ready, 1)
        await mailbox.api.recv(Recv("orders", 2))

        assert deepest(mailbox) == 4


async def test_messages_are_overtaken_by_at_most_32_through_failures_and_rebinds() -> None:
    rng, count, seen, depth = random.Random(7), 600, [], 0.0
    async with lagging(2, bounds={"window_messages": 64, "cache_bytes": 2000}) as mailbox:
        for number in range(count):
            await mailbox.api.send(Send("orders", b"%d" % number))
        while len(seen) < count:
            got = (await mailbox.api.recv(Recv("orders", rng.randrange(1, 12), wait_ms=2000))).messages
            seen += [int(message.payload) for message in got if message.attempt == 1]
            depth = max(depth, deepest(mailbox))
            for message in got:
                await mailbox.api.ack(Ack(message.msg_id, message.receipt))
            step = rng.random()
            if step < 0.1:
                mailbox.shards.set(rng.randrange(1, 6))
                await asyncio.sleep(0.05)
            elif step < 0.15:
                await reopened(mailbox)

    overtaken = [sum(other > number for other in seen[:place]) for place, number in enumerate(seen)]
    assert max(overtaken) <= 32
    assert depth <= 32


# --- the scanner


async def test_scanner_wakes_at_least_every_500_ms_and_not_more_often_than_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(make_engine("memory", tmp_path), MailboxOptions()) as mailbox:
        loop, looks, look = asyncio.get_running_loop(), [], mailbox.state.nearest_due

        def looking() -> float:
            looks.append(loop.time())
            return look()

        monkeypatch.setattr(mailbox.state, "nearest_due", looking)
        await asyncio.sleep(10)
        pauses = [after - before for before, after in pairwise(looks)]

        assert max(pauses) <= 0.501
        assert min(pauses) >= 0.049
        assert looks[-1] >= loop.time() - 0.501


# --- events


async def test_every_dead_letter_is_published_with_its_topic_and_reason(tmp_path: Path) -> None:
    async with running(make_engine("memory", tmp_path), mailbox_options({"max_attempts": 1})) as mailbox:
        receiver = mailbox.events.subscribe()
        await mailbox.api.send(Send("orders", b"x"))
        (got,) = (await mailbox.api.recv(Recv("orders"))).messages
        await mailbox.api.nack(Nack(got.msg_id, got.receipt, reason="card declined"))
        async with asyncio.timeout(1):
            event = await receiver.recv()
        receiver.close()

        assert (event.kind, event.topic, event.reason) == ("mailbox.dlq.moved", "orders", "rejected")


# --- the reserve of the work channel


@pytest.mark.parametrize(("capacity", "sends"), [(8, 7), (64, 56), (4, 3)])
async def test_an_eighth_of_work_is_kept_for_settlements(capacity: int, sends: int, tmp_path: Path) -> None:
    options = MailboxOptions(shard_capacity=capacity, ready_shards=1)
    async with running(make_engine("memory", tmp_path), options) as mailbox:
        await mailbox.api.send(Send("orders", b"x"))
        (held,) = (await mailbox.api.recv(Recv("orders"))).messages
        name, ack = read_msg_id(held.msg_id), Ack(held.msg_id, held.receipt)
        # In one step of the loop: the worker has no chance to take anything.
        for _ in range(sends):
            mailbox.dispatcher.send(Send("orders", b"x"), RequestMeta())
        with pytest.raises(Busy):
            mailbox.dispatcher.send(Send("orders", b"x"), RequestMeta())
        with pytest.raises(Busy):
            mailbox.dispatcher.recv(Recv("orders"), RequestMeta())
        for _ in range(capacity - sends):
            mailbox.dispatcher.settle(ack, name, RequestMeta())
        with pytest.raises(Busy):
            mailbox.dispatcher.settle(ack, name, RequestMeta())


# --- the capability cache


class Refusing:
    """A verifier that refuses everything."""

    def verify(self, _token, _context, **_more):
        raise Unauthenticated(reason="invalid")


def trims(mailbox, why: str) -> float:
    return mailbox.inventory.metrics.value("cap_cache_trims_total", why=why)


async def test_capability_cache_is_trimmed_on_schedule(tmp_path: Path) -> None:
    trimmed: list[float] = []
    options = MailboxOptions(cap_cache_ttl_s=10.0)
    loop = asyncio.get_running_loop()
    more = {"trim_capabilities": lambda: trimmed.append(loop.time())}
    async with running(make_engine("memory", tmp_path), options, **more) as mailbox:
        await asyncio.sleep(35)

        assert (len(trimmed), trims(mailbox, "schedule"), trims(mailbox, "spike")) == (3, 3, 0)
        assert all(9.9 <= after - before <= 11.1 for before, after in pairwise(trimmed))


@pytest.mark.parametrize(("refusals", "spikes"), [(60, 1), (30, 0)])
async def test_spike_of_refusals_trims_the_capability_cache_at_once(refusals: int, spikes: int, tmp_path: Path) -> None:
    trimmed: list[int] = []
    options = MailboxOptions(cap_cache_ttl_s=3600.0)
    more = {"trim_capabilities": lambda: trimmed.append(1), "verifier": Refusing()}
    async with running(make_engine("memory", tmp_path), options, **more) as mailbox:
        await asyncio.sleep(1)
        for _ in range(refusals):
            with pytest.raises(Unauthenticated):
                await mailbox.api.send(Send("orders", b"x"), Call("not a token"))
        await asyncio.sleep(2.5)

        assert (len(trimmed), trims(mailbox, "spike")) == (spikes, spikes)
