"""Every child of the mailbox killed at any moment of a storm, on sqlite with a slow disk: nothing lost, nobody waits.

The storm is the same in each run: producers repeat a send until it is taken, consumers ack, nack, extend or forget what
they get, an operator sends dead letters back. One child is killed before one step of it, drawn anew for each run.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Awaitable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.contracts.mailbox import Ack, Extend, GetDlq, Nack, Recv, Reprocess, Send
from penstock.kernel.errors import PenstockError
from penstock.testing.loop import VirtualLoop
from penstock.testing.session import Session, run_with
from tests.services.mailbox.invariants import check_all, settled
from tests.services.mailbox.lagging import Lagging, Steps, failing_engine, lagging

CHILDREN = (
    "writer",
    "shard_worker",
    "visibility_scanner",
    "dlq_reprocessor",
    "dead_letter_mover",
    "retention",
    "cap_cache_refresher",
    "rebalancer",
)
# Those who hold what others wait for are killed at more places than those who only look around.
KILLS = {"writer": 12, "shard_worker": 12}
# Payloads are read again for each delivery, and most of the backlog is on the disk.
OPTIONS: dict[str, Any] = {"ready_shards": 1, "bounds": {"cache_bytes": 1, "window_messages": 8}}
TOPICS = ("orders", "plain")
EACH = 12
PATIENCE_S = 120.0
GONE = "gone"


class Storm:
    """The callers of one run, and what they were promised."""

    def __init__(self, mailbox, seed: int) -> None:
        self.mailbox = mailbox
        self.random = random.Random(seed)
        self.accepted: dict[bytes, str] = {}
        self.seen: Counter[bytes] = Counter()
        self.acked: set[bytes] = set()
        self.back: list[bytes] = []

    async def ask(self, call: Awaitable[Any]) -> Any:
        """Wait for an answer; None when it asks to try again, GONE when the lease is over; silence fails the run."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await call
        except PenstockError as error:
            if error.code in ("conflict", "not_found"):
                return GONE
            if not error.retryable:
                raise
        await asyncio.sleep(0.2)
        return None

    async def produce(self, topic: str, who: int) -> None:
        for number in range(EACH):
            payload = f"{topic} {who} {number}".encode()
            more: dict[str, Any] = {"key": f"k{number % 2}"} if topic == "orders" else {"delay_ms": 200 * (number % 3)}
            send = Send(topic, payload, idem_key=payload.decode(), **more)
            while (answer := await self.ask(self.mailbox.api.send(send))) is None:
                pass
            self.accepted[payload] = answer.msg_id
            await asyncio.sleep(self.random.random() * 0.3)

    async def consume(self, topic: str) -> None:
        while True:
            got = await self.ask(self.mailbox.api.recv(Recv(topic, 3, visibility_ms=1000, wait_ms=500)))
            for message in () if got is None else got.messages:
                self.seen[message.payload] += 1
                if message.payload in self.acked:
                    self.back.append(message.payload)
                await self._settle(message)

    async def _settle(self, message) -> None:
        draw = self.random.random()
        if draw < 0.1:
            return
        if draw < 0.3:
            await self.ask(self.mailbox.api.nack(Nack(message.msg_id, message.receipt)))
            return
        if draw < 0.4:
            await self.ask(self.mailbox.api.extend(Extend(message.msg_id, message.receipt, 2000)))
        ack = Ack(message.msg_id, message.receipt)
        # What became of an ack may be unknown to who answers: it is repeated, and then it is known.
        while (answer := await self.ask(self.mailbox.api.ack(ack))) is None:
            pass
        if answer is not GONE:
            self.acked.add(message.payload)

    async def operate(self) -> None:
        """Send back what died of too many attempts."""
        while True:
            await asyncio.sleep(1.0)
            for topic in TOPICS:
                dead = await self.ask(self.mailbox.api.dlq(GetDlq(topic)))
                if dead not in (None, GONE) and dead.entries:
                    await self.ask(self.mailbox.api.reprocess(Reprocess(topic, 100)))

    async def run(self) -> None:
        """Let it blow until everything that was accepted was acked."""
        async with asyncio.timeout(1800), asyncio.TaskGroup() as group:
            served = [group.create_task(self.consume(topic)) for topic in TOPICS]
            served.append(group.create_task(self.operate()))
            producers = [group.create_task(self.produce(topic, who)) for topic in TOPICS for who in range(2)]
            while not all(task.done() for task in producers) or self.acked != self.accepted.keys():  # noqa: ASYNC110
                await asyncio.sleep(0.5)
            for task in served:
                task.cancel()


async def storm(directory: Path, child: str, steps: Steps) -> bool:
    """Run it with one kill, look at everything that was promised, and tell whether the child was killed."""
    killed: list[bool] = []
    engine = failing_engine(directory)
    async with lagging(engine=engine, **OPTIONS) as mailbox:
        mailbox.reader.thread = Lagging(2, seconds=0.03)
        mailbox.writer.thread = Lagging(2, seconds=0.02)
        this = Storm(mailbox, 7)
        steps.begin(lambda: killed.append(mailbox.supervisor.kill(child)))
        await this.run()
        steps.end()
        await asyncio.sleep(40.0)
        mailbox.reader.thread = mailbox.writer.thread = Lagging(1)
        await settled(mailbox)

        assert this.accepted.keys() == this.acked
        assert len(set(this.accepted.values())) == len(this.accepted)
        assert not this.back
        assert not mailbox.state.claims.pending
        assert mailbox.state.ready
        check_all(mailbox)
    return killed == [True]


def blow(child: str, at: int) -> tuple[bool, int]:
    """Run the storm with one kill before that step; tell whether it was one, and how many steps there were."""
    with tempfile.TemporaryDirectory() as directory:
        steps = Steps(at)
        try:
            killed = run_with(
                partial(storm, Path(directory), child, steps), Session(VirtualLoop(observer=steps.observe)), "storm"
            )
        except BaseException as error:
            error.add_note(f"{child} was killed before step {at}")
            raise
        return killed, steps.count


@pytest.fixture(scope="module")
def steps_in_all() -> int:
    """How long the storm is without a kill."""
    return blow("", 1 << 30)[1]


@pytest.mark.parametrize("child", CHILDREN)
def test_child_killed_in_a_storm_loses_nothing_and_leaves_nobody_waiting(child: str, steps_in_all: int) -> None:
    draw = random.Random(child)
    for _ in range(KILLS.get(child, 2)):
        killed, _ = blow(child, draw.randrange(steps_in_all))
        assert killed
