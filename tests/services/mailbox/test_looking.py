"""Looking at one topic among many.

The engines agree on what there is, and the table is never walked from end to end.
"""

from __future__ import annotations

import random
from pathlib import Path

import apsw
import pytest

from penstock.services.mailbox.batch import Batch
from penstock.services.mailbox.engines import sqlite_reads
from penstock.services.mailbox.engines.engine import TopicPage
from penstock.services.mailbox.engines.memory import MemoryEngine
from penstock.services.mailbox.engines.sqlite import SqliteEngine
from penstock.services.mailbox.ids import slot_of
from penstock.services.mailbox.rows import (
    KIND_DELAYED,
    KIND_LEASED,
    KIND_READY,
    MessageRow,
    MessageState,
)

NOW = 1_700_000_000_000


def row(seq: int, topic: int, key: str | None) -> MessageRow:
    return MessageRow(
        seq=seq, slot=slot_of(str(topic), key), topic=topic, key=key, ts=NOW, expires=None, nonce=seq, corr_id="c",
        idem_key=None, attrs={}, payload_hash=bytes([1]) * 32, payload=b"",
    )  # fmt: skip


def history(rng: random.Random, count: int) -> Batch:
    """Make messages of a few topics, some with keys, in every state, in runs and alone."""
    batch = Batch()
    batch.topics = [(number, f"t{number}") for number in (1, 2, 3)]
    topic = 1
    for seq in range(1, count + 1):
        topic = rng.choice((topic, topic, topic, topic, 1, 2, 3))
        batch.insert(row(seq, topic, rng.choice((None, None, "a", "b", "c"))))
        kind = rng.choice((None, None, None, KIND_READY, KIND_LEASED, KIND_DELAYED))
        if kind is not None:
            batch.states[seq] = MessageState(seq, kind, NOW + rng.choice((-5, 5)), 1, 7)
    gone = rng.sample(range(1, count + 1), count // 4)
    for seq in gone:
        batch.remove(seq)
    return batch


@pytest.mark.parametrize("seed", range(30))
def test_engines_show_the_same_messages_however_far_they_lie_apart(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_reads, "NEAR", seed % 5)
    batch = history(random.Random(seed), 60)
    disk, memory = SqliteEngine(tmp_path, fsync=False, wal_bytes=1 << 20), MemoryEngine(bytes(32))
    disk.open(100)
    memory.open(100)
    for engine in (disk, memory):
        batch.statements = None
        engine.commit(batch)
    for topic in (1, 2, 3, 4):
        for state in ("ready", "inflight", "delayed"):
            for limit in (1, 5, 100):
                page = TopicPage(topic, state, limit, NOW)
                assert seqs(disk.reads.peek(page)) == seqs(memory.reads.peek(page))
        assert walk(disk, topic) == walk(memory, topic)
    disk.close()


def seqs(found: list) -> list[int]:
    return [each.seq for each, _ in found]


def walk(engine, topic: int) -> list[int]:
    """Go through a topic's living messages as a purge does."""
    seen: list[int] = []
    while found := engine.reads.living(topic, seen[-1] if seen else 3, 50, 4):
        seen += seqs(found)
    return seen


@pytest.mark.parametrize("topic", [1, 2])
@pytest.mark.parametrize("state", ["ready", "inflight", "delayed", "living"])
def test_topic_behind_a_large_backlog_is_looked_at_in_a_few_steps(state: str, topic: int, tmp_path: Path) -> None:
    engine = SqliteEngine(tmp_path, fsync=False, wal_bytes=1 << 20)
    engine.open(100)
    batch, count = Batch(), 30_000
    batch.topics = [(1, "large"), (2, "small")]
    for seq in range(1, count + 1):
        batch.insert(row(seq, 2 if seq > count - 3 else 1, "k" if seq % 3 == 0 else None))
    batch.states[count] = MessageState(count, KIND_LEASED, NOW + 1, 1, 7)
    batch.states[2] = MessageState(2, KIND_DELAYED, NOW + 1, 1, 7)
    engine.commit(batch)
    steps = 0

    def count_steps() -> bool:
        nonlocal steps
        steps += 1
        return False

    engine.reads.oldest(topic)
    reader = engine.reads._reader
    assert isinstance(reader, apsw.Connection)
    reader.set_progress_handler(count_steps, 100)
    found = (
        engine.reads.living(topic, 0, count, 1)
        if state == "living"
        else engine.reads.peek(TopicPage(topic, state, 10, NOW))
    )
    reader.set_progress_handler(None)
    engine.close()

    assert found or (state, topic) in {("inflight", 1), ("delayed", 2)}
    # A walk over the whole table takes ten times as many.
    assert steps * 100 < count * 2
