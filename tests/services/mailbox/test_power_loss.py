"""Power lost at any moment, with any of the unsynced sectors on the disk.

What was answered is there, what was acked is not.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import tempfile
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.contracts.mailbox import Ack, Nack, Recv, Send
from penstock.kernel.errors import PenstockError
from penstock.services.mailbox.engines.sqlite import SqliteEngine
from penstock.testing.loop import VirtualLoop
from tests.services.mailbox.power_vfs import Entry, PowerVfs, lose_power
from tests.services.mailbox.worlds import mailbox_options, running

WAL_BYTES = 64 << 10
_names = itertools.count()


async def produce(mailbox, vfs: PowerVfs, tag: str, rng: random.Random, count: int) -> None:
    for number in range(count):
        name = f"{tag}-{number}"
        key = rng.choice([None, "a", "b"])
        payload = name.encode() + bytes(rng.choice([0, 100, 5000]))
        try:
            await mailbox.api.send(Send("orders", payload, key=key, idem_key=name))
            vfs.note("stored", name)
        except PenstockError:
            await asyncio.sleep(0.05)  # its outcome is unknown, and so the ledger says nothing of it


async def consume(mailbox, vfs: PowerVfs, rng: random.Random) -> None:
    while True:
        try:
            got = (await mailbox.api.recv(Recv("orders", 3, wait_ms=300, visibility_ms=250))).messages
            if not got:
                return
            for message in got:
                name = message.payload.rstrip(b"\0").decode()
                if rng.random() < 0.3:
                    await mailbox.api.nack(Nack(message.msg_id, message.receipt, delay_ms=rng.choice([0, 50])))
                elif rng.random() < 0.7:
                    vfs.note("acking", name)
                    await mailbox.api.ack(Ack(message.msg_id, message.receipt))
                    vfs.note("acked", name)
        except PenstockError:
            await asyncio.sleep(0.05)


async def fail_syncs(vfs: PowerVfs, mailbox, rng: random.Random, times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(rng.random() * 0.05)
        vfs.failing_syncs = 1
        await asyncio.sleep(0.01)
        await mailbox.until_ready()


async def load(directory: Path, seed: int, failures: int) -> list[Entry]:
    """Run producers and consumers over a disk that is watched; returns all that happened."""
    vfs = PowerVfs(f"power{next(_names)}")
    rng = random.Random(seed)
    engine = SqliteEngine(directory, wal_bytes=WAL_BYTES, vfs=vfs.name)
    async with running(engine, mailbox_options({"max_attempts": 3})) as mailbox:
        work = [produce(mailbox, vfs, f"p{n}", random.Random(rng.random()), 25) for n in range(4)]
        work += [consume(mailbox, vfs, random.Random(rng.random())) for _ in range(3)]
        await asyncio.gather(*work, fail_syncs(vfs, mailbox, rng, failures))
        await mailbox.until_ready()
    return vfs.log


def check(log: list[Entry], at: int, files: dict[str, bytes]) -> None:
    """Open what is left, and compare it with what was known when the power went."""
    known: dict[str, set[str]] = {"stored": set(), "acking": set(), "acked": set()}
    for entry in log[:at]:
        if entry[0] == "note":
            known[entry[1]].add(entry[2])
    with tempfile.TemporaryDirectory() as path:
        for name, content in files.items():
            (Path(path) / Path(name).name).write_bytes(content)
        engine = SqliteEngine(Path(path), wal_bytes=WAL_BYTES)
        opened = engine.open(1000)
        found = [row for topic in opened.topics for row, _ in engine.reads.living(topic.id, 0, opened.seq, 10_000)]
        rows = engine.reads.rows([row.seq for row in found])
        dead = engine.reads._ask("SELECT payload FROM dead")
        damage, faults = [*engine.reads.damaged, *engine.reads.damaged_states], engine.check()
        engine.close()
    alive = {row.payload.rstrip(b"\0").decode() for row in rows.values()}
    buried = {payload.rstrip(b"\0").decode() for (payload,) in dead}

    assert (damage, faults) == ([], [])
    assert known["stored"] - known["acking"] <= alive | buried, "an answered send is lost"
    assert not known["acked"] & (alive | buried), "an acked message is back"
    assert not alive & buried, "a message is in both places"
    assert len(rows) == len(alive), "one idem_key, two messages"


async def fail_once(directory: Path, before: int) -> list[Entry]:
    """Send so often, let one sync fail, and send again: one step after the other, so that every run is the same."""
    vfs = PowerVfs(f"power{next(_names)}")
    engine = SqliteEngine(directory, wal_bytes=WAL_BYTES, vfs=vfs.name)
    async with running(engine, mailbox_options({})) as mailbox:
        for tag, count in (("before", before), ("doubtful", 1), ("after", 2)):
            vfs.failing_syncs = int(tag == "doubtful")
            await produce(mailbox, vfs, tag, random.Random(tag), count)
            await mailbox.until_ready()
    return vfs.log


def run_story(story: Callable[[Path], Coroutine[object, object, list[Entry]]]) -> list[Entry]:
    loop = VirtualLoop()
    with tempfile.TemporaryDirectory() as path:
        try:
            return loop.run_until_complete(story(Path(path)))
        finally:
            loop.close()


def run_load(seed: int, failures: int) -> list[Entry]:
    return run_story(lambda directory: load(directory, seed, failures))


@pytest.mark.parametrize("failures", [0, 1], ids=["plain", "after a failed fsync"])
@settings(
    max_examples=6, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck)
)
@given(seed=st.integers(0, 1 << 30), moments=st.lists(st.floats(0.01, 1), min_size=8, max_size=8, unique=True))
def test_power_loss_at_any_moment_loses_no_answered_send_and_brings_back_no_acked_message(
    failures: int, seed: int, moments: list[float]
) -> None:
    log = run_load(seed, failures)
    rng = random.Random(seed)
    assert sum(entry[1] == "acked" for entry in log if entry[0] == "note") > 10
    first = next(place for place, entry in enumerate(log) if entry[0] == "note")

    for moment in moments:
        at = first + int(moment * (len(log) - first))
        for mode in ("none", "torn", "any"):
            check(log, at, lose_power(log, at, rng, mode))


def check_often(log: list[Entry], every: int = 1) -> None:
    first = next(place for place, entry in enumerate(log) if entry[0] == "note")
    for at in range(first, len(log) + 1, every):
        check(log, at, lose_power(log, at, random.Random(at), "none"))


def test_ledger_catches_a_disk_that_does_not_sync() -> None:
    log = [entry for entry in run_load(7, 0) if entry[0] != "sync" or not entry[1].endswith("-wal")]

    with pytest.raises((AssertionError, PenstockError)):
        check_often(log, 20)


def check_failed_syncs() -> None:
    """Let the sync of a log fail that is new, or has one message, or two; lose power at every step from then on."""
    for before in range(1, 4):
        log = run_story(partial(fail_once, before=before))
        assert [entry[0] for entry in log].count("lost") == 1
        check_often(log)


def test_power_loss_at_every_step_around_a_failed_sync_loses_no_answered_send() -> None:
    check_failed_syncs()


def test_ledger_catches_an_engine_that_trusts_a_log_whose_sync_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.services.mailbox.engines.sqlite.renew_wal", lambda _path: None)

    with pytest.raises((AssertionError, PenstockError)):
        check_failed_syncs()
