"""key_batch and fair_by against a reference model: any order of sends, receives, settlements, restarts, evictions.

The model knows, of each unsettled message, its key, its group and whether it waits, is out or is delayed. From that it
says which messages may be delivered. Every receive is judged by it, and after every step what holds between RAM and
disk is checked.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.contracts import mailbox as m
from penstock.kernel.clock import LoopClock
from penstock.services.mailbox.shards.shard import Shard
from penstock.services.mailbox.shards.window import Window
from penstock.testing.loop import VirtualLoop
from tests.services.mailbox.invariants import check_all, settled
from tests.services.mailbox.worlds import WALL, mailbox_options, make_engine, make_room, running

LEASE_MS = 60_000
DELAY_MS = 1000
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.sampled_from([None, "a", "b"]), st.sampled_from([None, "x", "y", "z"])),
        st.tuples(st.just("recv"), st.integers(1, 6), st.none()),
        st.tuples(st.sampled_from(["ack", "nack", "delay", "extend"]), st.integers(0, 9), st.none()),
        st.tuples(st.just("tick"), st.just(1), st.none()),
        st.tuples(st.sampled_from(["restart", "evict", "turn", "rebind"]), st.integers(1, 3), st.none()),
    ),
    max_size=30,
)


@dataclass
class Seen:
    """What the model knows of one unsettled message."""

    order: int
    key: str | None
    group: str | None
    receipt: str | None = None
    delayed_until: float = 0.0


class TurnsModel:
    """Every unsettled message, in the order of sending."""

    def __init__(self, key_batch: int) -> None:
        self.key_batch = key_batch
        self.fair = True
        self.messages: dict[str, Seen] = {}
        self.sent = 0
        # Nothing was read from the disk yet that RAM did not know before: then turns are exact.
        self.exact = True

    def waits(self, seen: Seen, now: float) -> bool:
        return seen.receipt is None and seen.delayed_until <= now

    def runs(self, now: float) -> list[list[str]]:
        """Name what may be delivered: each un-keyed message that waits, and of each key its first ones, together."""
        found: list[list[str]] = []
        keys: dict[str, list[str] | None] = {}
        for msg_id, seen in self.messages.items():
            if seen.key is None:
                found += [[msg_id]] if self.waits(seen, now) else []
            elif seen.key not in keys:
                keys[seen.key] = [msg_id] if self.waits(seen, now) else None
            elif (run := keys[seen.key]) is not None and len(run) < self.key_batch and self.waits(seen, now):
                run.append(msg_id)
            elif run is not None:
                found.append(run)
                keys[seen.key] = None
        return [*found, *(run for run in keys.values() if run is not None)]

    def judge(self, got: list[m.Envelope], most: int, now: float) -> None:
        """Check one receive, and note what it took."""
        runs = self.runs(now)
        ids = [message.msg_id for message in got]
        assert len(ids) == len(set(ids)) <= most
        first = {run[0]: run for run in runs}
        taken = {run[0]: [msg_id for msg_id in ids if msg_id in run] for run in runs}
        assert sorted(msg_id for some in taken.values() for msg_id in some) == sorted(ids), "not deliverable"
        for head, some in taken.items():
            assert some == first[head][: len(some)], "a key was overtaken"
        assert ids or not runs, "something is deliverable and nothing came"
        if self.exact and self.fair:
            self._judge_turns(runs, taken)
        for message in got:
            self.messages[message.msg_id].receipt = message.receipt

    def _judge_turns(self, runs: list[list[str]], taken: dict[str, list[str]]) -> None:
        """Check that of two groups which both have something left, neither was served twice more than the other."""
        served = Counter(self.messages[head].group for head, some in taken.items() if some)
        left = {self.messages[run[0]].group for run in runs if not taken[run[0]]}
        counts = [served[group] for group in left]
        assert not counts or max(counts) - min(counts) <= 1, "a group had more than its turns"
        assert not counts or max(served.values(), default=0) - min(counts) <= 1, "a group was passed over"


async def play(kind: str, key_batch: int, steps: list[tuple], directory: Path) -> None:
    model, clock, engine = TurnsModel(key_batch), LoopClock(WALL), make_engine(kind, directory)
    left = list(steps)
    while True:
        # One shard, so that one receive asks one lane: across shards turns are best effort.
        async with running(engine, mailbox_options({"ready_shards": 1, "max_attempts": 1000}), clock) as mailbox:
            await put(mailbox, model)
            while left and left[0][0] != "restart":
                await step(mailbox, model, *left.pop(0))
                await settled(mailbox)
                check_all(mailbox)
            if not left:
                await take_all(mailbox, model)
                return
            left.pop(0)
            model.exact = False


async def put(mailbox, model: TurnsModel) -> None:
    wish = m.TopicSettings(key_batch=model.key_batch, fair_by="group" if model.fair else None)
    await mailbox.api.put_settings(m.PutSettings("t", wish))


async def step(mailbox, model: TurnsModel, verb: str, value, group) -> None:
    api, now = mailbox.api, asyncio.get_running_loop().time()
    out = [(msg_id, seen) for msg_id, seen in model.messages.items() if seen.receipt is not None]
    if verb == "send":
        sent = await api.send(m.Send("t", b"x", key=value, group=group))
        model.sent += 1
        model.messages[sent.msg_id] = Seen(model.sent, value, group)
    elif verb == "recv":
        # What is not in RAM is read first: an answer may be short while a read is under way, but never empty.
        got = (await api.recv(m.Recv("t", value, LEASE_MS))).messages
        model.judge(list(got), value, now)
    elif verb == "tick":
        await asyncio.sleep(DELAY_MS / 1000 + 0.2)
    elif verb == "evict":
        make_room(mailbox.state.shards, 1 << 40)
        model.exact = False
    elif verb == "turn":
        model.fair = not model.fair
        await put(mailbox, model)
    elif verb == "rebind":
        mailbox.shards.set(value)
        await asyncio.sleep(0.05)
        model.exact = False
    elif out:
        await settle(api, model, verb, *out[value % len(out)])


async def settle(api, model: TurnsModel, verb: str, msg_id: str, seen: Seen) -> None:
    receipt, seen.receipt = seen.receipt, None
    if verb == "ack":
        del model.messages[msg_id]
        await api.ack(m.Ack(msg_id, receipt))
    elif verb == "extend":
        await api.extend(m.Extend(msg_id, receipt, 0))
    else:
        delay_ms = DELAY_MS if verb == "delay" else 0
        await api.nack(m.Nack(msg_id, receipt, delay_ms=delay_ms))
        seen.delayed_until = asyncio.get_running_loop().time() + delay_ms / 1000


async def take_all(mailbox, model: TurnsModel) -> None:
    """Let everything come back and take it: nothing may be missing."""
    await asyncio.sleep(LEASE_MS / 1000 + 1)
    for seen in model.messages.values():
        seen.receipt = None
    model.exact = False
    while got := (await mailbox.api.recv(m.Recv("t", 256, LEASE_MS))).messages:
        model.judge(list(got), 256, asyncio.get_running_loop().time())
        for message in got:
            del model.messages[message.msg_id]
        await mailbox.api.ack_batch(m.AckBatch(tuple(m.Ack(each.msg_id, each.receipt) for each in got)))

    assert model.messages == {}


def run_model(kind: str, key_batch: int, steps: list[tuple]) -> bool:
    """Play the steps; every rule is asserted on the way."""
    directory, loop = Path(tempfile.mkdtemp()), VirtualLoop()
    try:
        loop.run_until_complete(play(kind, key_batch, steps, directory))
        return True
    finally:
        loop.close()
        shutil.rmtree(directory)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(key_batch=st.sampled_from([1, 2, 3]), steps=STEPS)
def test_turns_and_key_batches_agree_with_the_model(kind: str, key_batch: int, steps: list[tuple]) -> None:
    assert run_model(kind, key_batch, steps)


def verbs(text: str) -> list[tuple]:
    """Read steps: `s:KEY:GROUP` sends (`-` is none), `r2` receives two, `nack1` settles the second that is out."""
    names = {"s": "send", "r": "recv"}
    steps: list[tuple] = []
    for word in text.split():
        name, _, rest = word.partition(":")
        if name == "s":
            key, group = (None if part == "-" else part for part in rest.split(":"))
            steps.append(("send", key, group))
        else:
            verb = name.rstrip("0123456789")
            steps.append((names.get(verb, verb), int(name[len(verb) :] or 1), None))
    return steps


SCENES = {
    "a lease of a follower outlives a restart, the first of its key waits": (
        2, "s:a:- s:a:- s:a:- r2 nack0 restart r3",
    ),
    "a follower came back between two that are out, over a restart": (
        3, "s:a:- s:a:- s:a:- s:a:- r3 nack1 restart r3 ack0 r3 ack0 r3",
    ),
    "groups that left RAM come back": (1, "s:-:x s:-:x s:-:y s:-:- evict r2 r2"),
    "keys that left RAM come back with a delayed first": (2, "s:a:- s:a:- r1 delay0 evict r1 tick r2"),
    "groups take turns": (1, "s:-:x s:-:x s:-:x s:-:y s:-:z s:-:- r2 r2 r2"),
    "a topic begins and ceases to be fair": (1, "s:-:x s:-:x s:-:y turn r1 turn r1 s:-:z r2"),
    "the first of a key that comes back by an extend of zero": (2, "s:a:x s:a:x s:a:x r2 extend0 r2 ack0 r2"),
    "keys of a fair topic over a rebind": (2, "s:a:x s:a:y s:b:x r2 rebind3 nack0 r3 rebind1 r3"),
    "groups over a restart": (1, "s:-:x s:-:x s:-:y r1 restart r1 r1 nack0 r1"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("scene", SCENES)
def test_scene_agrees_with_the_model(kind: str, scene: str) -> None:
    key_batch, text = SCENES[scene]

    assert run_model(kind, key_batch, verbs(text))


SENDS = [("send", "a", None)] * 3


def test_model_catches_a_shard_that_takes_more_of_a_key_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(self, message, lane, now):
        queue = lane.keys.get(message.key)
        return [message, *queue.followers]

    monkeypatch.setattr(Shard, "_run", run)
    with pytest.raises(AssertionError):
        run_model("memory", 2, [*SENDS, ("recv", 3, None)])


def test_model_catches_a_follower_that_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def make_ready(self, message):
        message.state = 0
        message.lane.ready.append(message.seq)

    monkeypatch.setattr(Window, "make_ready", make_ready)
    with pytest.raises(AssertionError):
        run_model("memory", 2, [*SENDS, ("recv", 2, None), ("nack", 1, None), ("recv", 1, None)])
