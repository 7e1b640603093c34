"""Dead letters that are sent back, dropped, or both at once: each is moved once, and every count is right."""

from __future__ import annotations

import asyncio

import pytest

from penstock.contracts.mailbox import Ack, GetDlq, Nack, Recv, Reprocess, Send
from penstock.services.mailbox.config import ShardRules
from penstock.services.mailbox.redrive_guard import RedriveGuard
from tests.services.mailbox.invariants import check_all, settled
from tests.services.mailbox.lagging import Steps, at_every_step, lagging, taken


async def bury(mailbox, topic: str, count: int, key: str | None = None) -> list[str]:
    for number in range(count):
        await mailbox.api.send(Send(topic, b"%d" % number, key=key))
    return [await _reject(mailbox, topic) for _ in range(count)]


async def _reject(mailbox, topic: str) -> str:
    (got,) = (await mailbox.api.recv(Recv(topic, wait_ms=100))).messages
    await mailbox.api.nack(Nack(got.msg_id, got.receipt))
    return got.msg_id


@pytest.mark.parametrize("to", [None, "elsewhere"])
@pytest.mark.parametrize("key", [None, "k"])
def test_redrives_of_the_same_letters_at_any_step_make_one_message_of_each(to: str | None, key: str | None) -> None:
    async def scenario(steps: Steps) -> None:
        async with lagging(2, rules=ShardRules(max_attempts=1)) as mailbox:
            names = await bury(mailbox, "orders", 3, key)
            tasks: list = []

            def again() -> None:
                work = mailbox.api.reprocess(Reprocess("orders", 10, to=to))
                tasks.append(asyncio.get_running_loop().create_task(work))

            steps.begin(again)
            await mailbox.api.reprocess(Reprocess("orders", 10, to=to))
            await asyncio.sleep(0.5)
            steps.end()
            await tasks[0]
            await asyncio.sleep(0.5)
            await settled(mailbox)
            check_all(mailbox)
            got = []
            while more := await taken(mailbox, to or "orders"):
                got += more
                for message in more:
                    await mailbox.api.ack(Ack(message.msg_id, message.receipt))

            assert [message.redriven_from for message in got] == names
            assert mailbox.state.ledger.messages == mailbox.state.ledger.dead == 0

    assert at_every_step(scenario) > 10


def test_redrive_at_any_step_of_the_retention_moves_each_letter_once() -> None:
    async def scenario(steps: Steps) -> None:
        async with lagging(2, rules=ShardRules(max_attempts=1), dlq_retention_s=0.6) as mailbox:
            await bury(mailbox, "orders", 3)
            tasks: list = []
            await asyncio.sleep(0.95)

            def redrive() -> None:
                tasks.append(asyncio.get_running_loop().create_task(mailbox.api.reprocess(Reprocess("orders", 10))))

            steps.begin(redrive)
            await asyncio.sleep(0.1)
            steps.end()
            await tasks[0]
            await asyncio.sleep(0.3)
            await settled(mailbox)

            check_all(mailbox)
            assert (await mailbox.api.dlq(GetDlq())).entries == ()

    assert at_every_step(scenario) > 10


def test_dead_letter_is_moved_by_one_and_not_by_who_read_it_before_it_left() -> None:
    redrive_guard = RedriveGuard()
    mark = redrive_guard.mark()
    first = redrive_guard.take([1, 2], mark)
    assert (first, redrive_guard.take([2, 3], mark)) == ({1, 2}, {3})
    redrive_guard.ended(first)

    assert redrive_guard.take([1, 2], mark) == set()
    assert redrive_guard.take([2, 4], redrive_guard.mark()) == {2, 4}


async def test_many_small_redrives_together_keep_to_the_rate() -> None:
    async with lagging(2, rules=ShardRules(max_attempts=1), reprocess_rps=100) as mailbox:
        await bury(mailbox, "orders", 60)
        began = asyncio.get_running_loop().time()
        for _ in range(12):
            await mailbox.api.reprocess(Reprocess("orders", 5, to="elsewhere"))
        while mailbox.state.ledger.dead:  # noqa: ASYNC110 - nothing tells us
            await asyncio.sleep(0.001)

        # The last slice is moved at once; what it used up of the rate is waited for by the next.
        assert asyncio.get_running_loop().time() - began >= 55 / 100
