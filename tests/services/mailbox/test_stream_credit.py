"""The credit of a stream.

Never more unsettled than it allows, never less than it is owed, and nothing lost when it ends.
"""

from __future__ import annotations

import asyncio

import msgspec

from penstock.contracts.mailbox import Ack, Recv, Send
from penstock.kernel.errors import PenstockError
from penstock.services.mailbox.config import ShardRules
from penstock.services.mailbox.shards.topics import LEASED
from penstock.services.mailbox.stream import RecvStream
from penstock.testing import Run, sweep
from penstock.testing.loop import VirtualLoop
from penstock.testing.session import Session, run_with
from tests.services.mailbox.invariants import check_all, check_ram, settled
from tests.services.mailbox.lagging import lagging, until
from tests.services.mailbox.worlds import RequestMeta


def stream_of(mailbox, max_inflight: int, max_messages: int = 3) -> RecvStream:
    recv = Recv("orders", max_messages, visibility_ms=60_000)
    return RecvStream(mailbox.parts, recv, max_inflight)


async def send(mailbox, count: int) -> None:
    for number in range(count):
        await mailbox.api.send(Send("orders", b"payload %d" % number, key=f"k{number}"))
    await settled(mailbox)


def leased(mailbox) -> set[str]:
    return {
        message.msg_id
        for shard in mailbox.state.shards
        for message in shard.messages.values()
        if message.state == LEASED
    }


async def read(lines, handed: list[dict], count: int) -> None:
    try:
        async for line in lines:
            value = msgspec.json.decode(line)
            if "msg_id" in value:
                handed.append(value)
                if len(handed) == count:
                    break
            await asyncio.sleep(0)
    finally:
        await lines.aclose()


def test_stream_that_ends_at_any_step_keeps_only_what_it_handed_on() -> None:
    async def scenario(run: Run) -> None:
        async with lagging(2, bounds={"cache_bytes": 1}) as mailbox:
            await send(mailbox, 7)
            handed: list[dict] = []
            stream = stream_of(mailbox, 5)
            run.start(read(stream.lines(RequestMeta()), handed, 5))
            await run.ended()
            await asyncio.sleep(0.05)

            assert leased(mailbox) == {each["msg_id"] for each in handed}
            assert stream._credit.used == len(handed) <= 5
            assert all(each["attempt"] == 1 for each in handed)
            rest: list = []
            while got := (await mailbox.api.recv(Recv("orders", 9, visibility_ms=60_000, wait_ms=50))).messages:
                rest += got
            assert {message.attempt for message in rest} == {1}
            assert len(rest) + len(handed) == 7
            await settled(mailbox)
            check_all(mailbox)

    assert sweep(scenario) > 10


def test_credit_is_never_above_its_limit_although_messages_turn_out_to_be_damaged() -> None:
    watched: list = []
    most: list[int] = [0]

    def look(_handle: asyncio.Handle) -> None:
        if watched:
            check_ram(watched[0])
            most[0] = max(most[0], len(leased(watched[0])))

    async def scenario() -> None:
        async with lagging(2, bounds={"cache_bytes": 1}, rules=ShardRules(max_attempts=2)) as mailbox:
            await send(mailbox, 9)
            mailbox.engine.spoiled = {1, 4, 5}
            watched.append(mailbox)
            handed: list[dict] = []
            stream = stream_of(mailbox, 2)
            task = asyncio.get_running_loop().create_task(read(stream.lines(RequestMeta()), handed, 6))
            acked = 0
            while acked < 6:
                await asyncio.sleep(0.01)
                if acked < len(handed):
                    await mailbox.api.ack(Ack(handed[acked]["msg_id"], handed[acked]["receipt"]))
                    acked += 1
            await task
            watched.clear()

            assert stream._credit.used == 0
            assert mailbox.state.ledger.dead >= 2

    run_with(scenario, Session(VirtualLoop(observer=look)), "scenario")
    assert most[0] == 2


async def test_stream_gets_its_credit_back_when_its_leases_do_not_survive_a_reopening() -> None:
    async with lagging() as mailbox:
        await send(mailbox, 2)
        stream = stream_of(mailbox, 2)
        handed: list[dict] = []
        task = asyncio.get_running_loop().create_task(read(stream.lines(RequestMeta()), handed, 3))
        await until(lambda: len(handed) == 2)
        # The leases ride with a commit that fails: one that is not stored has never been.
        mailbox.engine.failures.append("before")
        failing = mailbox.dispatcher.send(Send("orders", b"doubtful"), RequestMeta())
        await until(lambda: failing.done)
        await mailbox.until_ready()
        async with asyncio.timeout(5):
            await task

        assert isinstance(failing.result, PenstockError)
        assert handed[2]["msg_id"] in {each["msg_id"] for each in handed[:2]}
        check_ram(mailbox)


async def test_stream_keeps_the_leases_that_survive_a_reopening() -> None:
    async with lagging() as mailbox:
        await send(mailbox, 3)
        stream = stream_of(mailbox, 1)
        handed: list[dict] = []
        task = asyncio.get_running_loop().create_task(read(stream.lines(RequestMeta()), handed, 2))
        await until(lambda: handed)
        await settled(mailbox)
        mailbox.engine.failures.append("before")
        mailbox.dispatcher.send(Send("other", b"doubtful"), RequestMeta())
        await asyncio.sleep(0.01)
        await mailbox.until_ready()
        await asyncio.sleep(1)
        assert (len(handed), stream._credit.used) == (1, 1)
        await mailbox.api.ack(Ack(handed[0]["msg_id"], handed[0]["receipt"]))
        async with asyncio.timeout(5):
            await task

        assert stream._credit.used == 1
        check_ram(mailbox)


async def test_stream_that_is_refused_waits_and_does_not_spin() -> None:
    async with lagging() as mailbox:
        await send(mailbox, 1)
        mailbox.state.switching = True
        handed: list[dict] = []
        loop = asyncio.get_running_loop()
        task = loop.create_task(read(stream_of(mailbox, 1).lines(RequestMeta()), handed, 1))
        steps = loop.steps
        await asyncio.sleep(1)
        taken = loop.steps - steps
        assert (handed, taken < 1000) == ([], True)
        mailbox.state.switching = False
        async with asyncio.timeout(1):
            await task

        assert len(handed) == 1


async def test_stream_begins_to_flow_as_soon_as_others_let_go_of_their_leases() -> None:
    async with lagging(bounds={"global_inflight": 1}) as mailbox:
        await mailbox.api.send(Send("other", b"x"))
        (held,) = (await mailbox.api.recv(Recv("other", visibility_ms=60_000))).messages
        await send(mailbox, 1)
        handed: list[dict] = []
        loop = asyncio.get_running_loop()
        task = loop.create_task(read(stream_of(mailbox, 1).lines(RequestMeta()), handed, 1))
        await asyncio.sleep(0.5)
        await mailbox.api.ack(Ack(held.msg_id, held.receipt))
        before = loop.time()
        await task

        assert loop.time() - before < 0.1
