"""Random histories with everything at once: after each step every count is right, and at the end nothing is missing."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.contracts.mailbox import Ack, Extend, GetDlq, Nack, Purge, Recv, Reprocess, Send, SendBatch
from penstock.kernel.errors import PenstockError
from penstock.services.mailbox.config import ShardRules
from penstock.testing.loop import VirtualLoop
from penstock.testing.session import Session, run_with
from tests.services.mailbox.invariants import Stored, check_all, check_ram, settled
from tests.services.mailbox.lagging import failing_engine, lagging

ATTEMPTS = 3
KEYS = [None, None, "a", "b", "c", "d"]
TOPICS = ["t", "t", "u"]
VERBS = {
    "send": range(12),
    "batch": (1, 5, 12),
    "late": (20, 150),
    "brief": (1, 100, 900),
    "claim": (0, 1),
    "recv": range(1, 5),
    "poll": range(1, 5),
    "ack": range(9),
    "nack": range(4),
    "delay": range(3),
    "extend": range(2),
    "stale": range(2),
    "cancel": range(3),
    "turns": range(1, 13),
    "tick": (0.01, 0.3, 1.2),
    "rebind": (1, 3, 5),
    "purge": (0, 2),
    "redrive": (0, 2),
    "elsewhere": (0,),
    "fail": ("full", "before", "after"),
    "unread": (1, 3),
}
"""What may happen, and with what; the more values, the more often."""

STEPS = [(verb, value) for verb, values in VERBS.items() for value in values]


class History:
    """Plays steps against a mailbox without waiting for their ends, and notes what was promised."""

    def __init__(self, mailbox) -> None:
        self.mailbox = mailbox
        self.under_way: set[asyncio.Task[None]] = set()
        self.held: list = []
        self.stale: list = []
        self.polls: list = []
        self.stored: set[str] = set()
        self.seen: set[str] = set()
        self.acked: set[str] = set()
        self.purging = False
        self.count = 0

    def start(self, work) -> asyncio.Task[None]:
        async def quietly() -> None:
            with suppress(PenstockError):
                await work

        task = asyncio.get_running_loop().create_task(quietly())
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)
        # One that is cancelled before its first step has never awaited its work.
        task.add_done_callback(lambda _: work.close())
        return task

    async def step(self, verb: str, value) -> None:
        self.count += 1
        if verb in ("recv", "poll"):
            recv = Recv(TOPICS[value % 3], value, visibility_ms=500, wait_ms=300 if verb == "poll" else 0)
            self.polls.append(self.start(self.recv(recv)))
        elif verb in ("ack", "nack", "delay", "extend"):
            if self.held:
                self.start(self.settle(verb, self.held.pop(value % len(self.held))))
        elif verb == "tick":
            await asyncio.sleep(value)
        elif verb == "turns":
            for _ in range(value):
                await asyncio.sleep(0)
        else:
            getattr(self, f"begin_{verb}")(value)

    def begin_send(self, value: int) -> None:
        self.start(self.send(Send(TOPICS[value % 3], self.payload, key=KEYS[value % 6])))

    def begin_batch(self, count: int) -> None:
        self.start(self.send_many([Send("t", self.payload, key=KEYS[n % 5]) for n in range(count)]))

    def begin_late(self, delay_ms: int) -> None:
        self.start(self.send(Send("t", self.payload, delay_ms=delay_ms)))

    def begin_brief(self, ttl_ms: int) -> None:
        self.start(self.send(Send("t", self.payload, ttl_ms=ttl_ms, key=KEYS[ttl_ms % 4])))

    def begin_claim(self, value: int) -> None:
        self.start(self.send(Send("t", b"same", idem_key=f"i{value}")))

    def begin_stale(self, value: int) -> None:
        if self.stale:
            self.start(self.settle("ack", self.stale[value % len(self.stale)]))

    def begin_cancel(self, value: int) -> None:
        if self.polls:
            self.polls.pop(value % len(self.polls)).cancel()

    def begin_rebind(self, shards: int) -> None:
        self.mailbox.shards.set(shards)

    def begin_purge(self, value: int) -> None:
        self.purging = True
        self.start(self.mailbox.api.purge(Purge(TOPICS[value])))

    def begin_redrive(self, value: int) -> None:
        self.start(self.mailbox.api.reprocess(Reprocess(TOPICS[value], 10)))

    def begin_elsewhere(self, value: int) -> None:
        self.start(self.mailbox.api.reprocess(Reprocess(TOPICS[value], 10, to="v")))

    def begin_fail(self, failure: str) -> None:
        self.mailbox.engine.failures.append(failure)

    def begin_unread(self, count: int) -> None:
        self.mailbox.engine.failing_reads += count

    @property
    def payload(self) -> bytes:
        return b"%d" % self.count

    async def send(self, send: Send) -> None:
        self.stored.add((await self.mailbox.api.send(send)).msg_id)

    async def send_many(self, sends: list[Send]) -> None:
        results = (await self.mailbox.api.send_batch(SendBatch(tuple(sends)))).results
        self.stored |= {result.msg_id for result in results if isinstance(result.msg_id, str)}

    async def recv(self, recv: Recv) -> None:
        received = await self.mailbox.api.recv(recv)
        for message in received.messages:
            assert message.msg_id not in self.acked, "an acked message came back"
            self.seen |= {message.msg_id, message.redriven_from}
            self.held.append(message)

    async def settle(self, verb: str, message) -> None:
        api, msg_id, receipt = self.mailbox.api, message.msg_id, message.receipt
        if verb == "ack":
            await api.ack(Ack(msg_id, receipt))
            self.acked.add(msg_id)
        elif verb == "extend":
            await api.extend(Extend(msg_id, receipt, 500))
            self.held.append(message)
        else:
            self.stale.append(message)
            await api.nack(Nack(msg_id, receipt, delay_ms=100 if verb == "delay" else 0))

    async def finish(self) -> None:
        """Let everything come to rest, check every count, and take what is left: nothing may be missing."""
        mailbox, engine = self.mailbox, self.mailbox.engine
        engine.failures, engine.failing_reads = [], 0
        await mailbox.until_ready()
        while self.under_way or mailbox.reprocessor.open:  # noqa: ASYNC110 - nothing tells us
            await asyncio.sleep(0.01)
        await settled(mailbox)
        check_all(mailbox)
        await asyncio.sleep(2)
        for topic in ("t", "u", "v"):
            while await self._take(topic):
                check_ram(mailbox)
        await settled(mailbox)
        check_all(mailbox)
        dead = {entry.msg_id for entry in (await mailbox.api.dlq(GetDlq(limit=256))).entries}

        assert not Stored(engine).living
        if not self.purging:
            assert self.stored <= self.seen | dead

    async def _take(self, topic: str) -> bool:
        got = (await self.mailbox.api.recv(Recv(topic, 5, visibility_ms=60_000, wait_ms=100))).messages
        for message in got:
            self.seen |= {message.msg_id, message.redriven_from}
            await self.mailbox.api.ack(Ack(message.msg_id, message.receipt))
        return bool(got)


async def play(steps: list[tuple[str, object]], watch: list, directory: Path | None) -> None:
    bounds = {"window_messages": 8, "global_inflight": 6, "cache_bytes": 8}
    options = {"bounds": bounds, "rules": ShardRules(max_attempts=ATTEMPTS), "engine": failing_engine(directory)}
    async with lagging(2, **options) as mailbox:
        watch.append(mailbox)
        history = History(mailbox)
        for verb, value in steps:
            await history.step(verb, value)
        watch.clear()
        await history.finish()


def run_history(steps: list[tuple[str, object]], directory: Path | None = None) -> bool:
    """Play the steps, and check between any two turns of the loop."""
    watch: list = []
    wrong: list[AssertionError] = []

    def look(_handle: asyncio.Handle) -> None:
        if watch and not wrong and watch[0].state.ready:
            try:
                check_ram(watch[0])
            except AssertionError as error:
                wrong.append(error)

    run_with(lambda: play(steps, watch, directory), Session(VirtualLoop(observer=look, steps_limit=20_000)), "history")
    if wrong:
        raise wrong[0]
    return True


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(st.sampled_from(STEPS), max_size=40))
def test_counts_are_right_and_nothing_is_lost_whatever_happens_at_once(steps: list[tuple[str, object]]) -> None:
    assert run_history(steps)


@pytest.mark.parametrize("seed", range(12))
def test_counts_are_right_and_nothing_is_lost_in_long_histories(seed: int) -> None:
    assert run_history(random.Random(seed).choices(STEPS, k=120))


@pytest.mark.parametrize("seed", range(4))
def test_counts_are_right_and_nothing_is_lost_on_the_disk(seed: int, tmp_path: Path) -> None:
    assert run_history(random.Random(seed).choices(STEPS, k=120), tmp_path)
