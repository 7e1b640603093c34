"""The mailbox against a plain oracle: any order of commands, time, crashes and restarts, on both engines."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.contracts.mailbox import Ack, Extend, GetDlq, Nack, Recv, Send
from penstock.kernel.clock import LoopClock
from penstock.kernel.errors import Conflict, NotFound
from penstock.services.mailbox.shards.window import Window
from penstock.testing.loop import VirtualLoop
from tests.services.mailbox.worlds import WALL, mailbox_options, make_engine, running

ATTEMPTS = 3
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.sampled_from([None, "a", "b"])),
        st.tuples(st.just("repeat"), st.integers(0, 5)),
        st.tuples(st.just("recv"), st.integers(1, 3)),
        st.tuples(st.sampled_from(["ack", "nack", "reject", "extend", "stale"]), st.integers(0, 5)),
        st.tuples(st.just("tick"), st.sampled_from([0.3, 1.2])),
        st.tuples(st.sampled_from(["restart", "rebind"]), st.integers(1, 4)),
    ),
    max_size=40,
)


class Oracle:
    """What must hold, told in the plainest way: who is waiting, who is out, who is done."""

    def __init__(self) -> None:
        self.waiting: dict[str, tuple[int, str | None]] = {}
        self.out: dict[str, tuple[str, float]] = {}
        self.stale: list[tuple[str, str]] = []
        self.done: set[str] = set()
        self.attempts: dict[str, int] = {}
        self.order = 0

    def sent(self, msg_id: str, key: str | None) -> None:
        self.order += 1
        self.waiting[msg_id] = (self.order, key)
        self.attempts[msg_id] = 0

    def delivered(self, message, until: float) -> None:
        """Check a delivery against everything that was promised."""
        msg_id, key = message.msg_id, message.key
        assert msg_id not in self.done, "an acked message came back"
        assert msg_id not in self.out, "a leased message was delivered again"
        assert msg_id in self.waiting, "a message from nowhere"
        self.attempts[msg_id] += 1
        assert message.attempt == self.attempts[msg_id]
        place = self.waiting[msg_id][0]
        if key is not None:
            assert not [m for m, (_, k) in self.waiting.items() if k == key and m in self.out], "two of a key are out"
            assert place == min(p for p, k in self.waiting.values() if k == key), "a key was overtaken"
        self.out[msg_id] = (message.receipt, until)

    def lapse(self, now: float) -> None:
        """End the leases that are over."""
        for msg_id, (receipt, until) in list(self.out.items()):
            if until <= now:
                self.ended(msg_id, receipt)

    def ended(self, msg_id: str, receipt: str) -> None:
        """Note the end of a lease without ack; the last one makes a dead letter."""
        del self.out[msg_id]
        self.stale.append((msg_id, receipt))
        if self.attempts[msg_id] >= ATTEMPTS:
            del self.waiting[msg_id]

    def rejected(self, msg_id: str, receipt: str) -> None:
        """Note a message that its consumer gave up for good: a dead letter at its first attempt too."""
        del self.out[msg_id], self.waiting[msg_id]
        self.stale.append((msg_id, receipt))

    def acked(self, msg_id: str, receipt: str) -> None:
        del self.out[msg_id], self.waiting[msg_id]
        self.done.add(msg_id)


async def play(kind: str, steps: list[tuple[str, object]], directory: Path) -> None:
    # One clock for all of it: wall time goes on while nothing runs, and leases lapse by it.
    oracle, loop, clock = Oracle(), asyncio.get_running_loop(), LoopClock(WALL)
    engine, options = make_engine(kind, directory), mailbox_options({"max_attempts": ATTEMPTS})
    sends: list[tuple[Send, str]] = []
    place = 0
    while place <= len(steps):
        async with running(engine, options, clock) as mailbox:
            while place < len(steps):
                verb, value = steps[place]
                place += 1
                if verb == "restart":
                    break
                oracle.lapse(loop.time())
                await step(mailbox, oracle, sends, verb, value)
            else:
                place += 1
                await finish(mailbox, oracle)


async def step(mailbox, oracle: Oracle, sends: list[tuple[Send, str]], verb: str, value) -> None:
    api, loop = mailbox.api, asyncio.get_running_loop()
    held = list(oracle.out.items())
    if verb == "send":
        send = Send("t", b"%d" % len(sends), key=value, idem_key=f"i{len(sends)}")
        sends.append((send, (await api.send(send)).msg_id))
        oracle.sent(sends[-1][1], value)
    elif verb == "repeat" and sends:
        send, msg_id = sends[value % len(sends)]
        assert (await api.send(send)) == type(await api.send(send))(msg_id, True, (await api.send(send)).shard)
    elif verb == "recv":
        for message in (await api.recv(Recv("t", value, visibility_ms=1000))).messages:
            oracle.delivered(message, loop.time() + 1.0)
    elif verb == "tick":
        await asyncio.sleep(value)
        # A lapse is noticed within 100 ms: leave the doubtful moments out of the comparison.
        await asyncio.sleep(0.1)
        oracle.lapse(loop.time())
    elif verb == "rebind":
        mailbox.shards.set(value)
        await asyncio.sleep(0.05)
        oracle.lapse(loop.time())
    elif verb == "stale" and oracle.stale:
        msg_id, receipt = oracle.stale[value % len(oracle.stale)]
        with pytest.raises((Conflict, NotFound)):
            await api.ack(Ack(msg_id, receipt))
    elif verb in ("ack", "nack", "reject", "extend") and held:
        msg_id, (receipt, _) = held[value % len(held)]
        if verb == "ack":
            await api.ack(Ack(msg_id, receipt))
            oracle.acked(msg_id, receipt)
            assert (await api.ack(Ack(msg_id, receipt))).ok
        elif verb == "nack":
            await api.nack(Nack(msg_id, receipt, delay_ms=0))
            oracle.ended(msg_id, receipt)
        elif verb == "reject":
            assert (await api.nack(Nack(msg_id, receipt, final=True))).dead_lettered
            oracle.rejected(msg_id, receipt)
        else:
            await api.extend(Extend(msg_id, receipt, 1000))
            oracle.out[msg_id] = (receipt, loop.time() + 1.0)


async def finish(mailbox, oracle: Oracle) -> None:
    """Let every lease lapse and take what is left: nothing may be missing, nothing too much."""
    await asyncio.sleep(1.2)
    oracle.lapse(asyncio.get_running_loop().time())
    left = set(oracle.waiting)
    while got := (await mailbox.api.recv(Recv("t", 10, wait_ms=100))).messages:
        for message in got:
            oracle.delivered(message, 1e9)
            await mailbox.api.ack(Ack(message.msg_id, message.receipt))
            oracle.acked(message.msg_id, message.receipt)
            left.discard(message.msg_id)
    dead = {entry.msg_id for entry in (await mailbox.api.dlq(GetDlq(limit=256))).entries}

    assert not left
    assert dead == set(oracle.attempts) - oracle.done
    assert mailbox.state.ledger.messages == len(dead)


def run_model(kind: str, steps: list[tuple[str, object]]) -> bool:
    """Play the steps; every promise is asserted on the way."""
    directory = Path(tempfile.mkdtemp())
    loop = VirtualLoop()
    try:
        loop.run_until_complete(play(kind, steps, directory))
        return True
    finally:
        loop.close()
        shutil.rmtree(directory)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_mailbox_agrees_with_the_oracle(kind: str, steps: list[tuple[str, object]]) -> None:
    assert run_model(kind, steps)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_lease_that_ends_after_a_restart_ends_when_it_was_due(kind: str) -> None:
    ticks = [("tick", 0.3), ("tick", 0.3)]

    assert run_model(kind, [("send", None), ("recv", 1), *ticks, ("restart", 1), ("tick", 0.3), ("stale", 0)])


def test_oracle_catches_a_shard_that_forgets_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    def store_keyed(self, row, key, until, lane):
        self._store_plain(row, lane)

    monkeypatch.setattr(Window, "_store_keyed", store_keyed)
    with pytest.raises(AssertionError):
        run_model("memory", [("send", "a"), ("send", "a"), ("recv", 2)])
