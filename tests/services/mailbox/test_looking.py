"""Looking at one topic among many.

The engines agree on what there is, and the table is never walked from end to end.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import apsw
import pytest
from blake3 import blake3

from penstock.services.mailbox.batch import Batch
from penstock.services.mailbox.engines import sqlite_reads
from penstock.services.mailbox.engines.engine import DeadPage, TopicPage
from penstock.services.mailbox.engines.memory import MemoryEngine
from penstock.services.mailbox.engines.sqlite import SqliteEngine
from penstock.services.mailbox.ids import slot_of
from penstock.services.mailbox.rows import (
    KIND_DELAYED,
    KIND_LEASED,
    KIND_READY,
    DeadRow,
    MessageRow,
    MessageState,
)

NOW = 1_700_000_000_000
NO_BYTES = blake3(b"").digest()
REASONS = (
    "ttl",
    "visibility",
    "rejected:a",
    "rejected:a:b",
    "rejected:",
    "rejected;a",
    "rejected-a:b",
    "rejectee:a",
    "rejected:é",
    "é:é",
)


def row(seq: int, topic: int, key: str | None) -> MessageRow:
    return MessageRow(
        seq=seq, slot=slot_of(str(topic), key), topic=topic, key=key, ts=NOW, expires=None, nonce=seq, corr_id="c",
        idem_key=None, attrs={}, payload_hash=NO_BYTES, payload=b"",
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
    leaving = rng.sample(range(1, count + 1), count // 2)
    for seq in leaving[::2]:
        batch.remove(seq)
    for seq in leaving[1::2]:
        batch.dead.append(DeadRow(seq, rng.choice(REASONS), NOW, 1, ()))
        batch.states[seq] = None
    return batch


def filled(batch: Batch, directory: Path) -> tuple[SqliteEngine, MemoryEngine]:
    """Make both engines hold the same."""
    disk, memory = SqliteEngine(directory, fsync=False, wal_bytes=1 << 20), MemoryEngine(bytes(32))
    for engine in (disk, memory):
        engine.open(100)
        batch.statements = None
        engine.commit(batch)
    return disk, memory


@pytest.mark.parametrize("seed", range(30))
def test_engines_show_the_same_messages_however_far_they_lie_apart(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_reads, "NEAR", seed % 5)
    disk, memory = filled(history(random.Random(seed), 60), tmp_path)
    for topic in (1, 2, 3, 4):
        for state in ("ready", "inflight", "delayed", "dlq"):
            for limit in (1, 5, 100):
                page = TopicPage(topic, state, limit, NOW)
                (found, last), (same, same_last) = disk.reads.peek(page), memory.reads.peek(page)
                assert (seqs(found), last) == (seqs(same), same_last)
                whole = seqs(memory.reads.peek(replace(page, limit=1000))[0])
                assert pages(disk, page) == pages(memory, page) == whole
        assert walk(disk, topic) == walk(memory, topic)
    disk.close()


def seqs(found: list) -> list[int]:
    return [each.seq for each, _ in found]


def pages(engine, page: TopicPage) -> list[int]:
    """Walk through all pages; none but the last is short, and none is empty behind a full one."""
    seen: list[int] = []
    last: int | None = 0
    while last is not None:
        found, last = engine.reads.peek(replace(page, after=last))
        assert len(found) == page.limit or last is None
        assert found or not seen
        seen += seqs(found)
    return seen


@pytest.mark.parametrize("wanted", [None, "rejected", "rejecte", "é", "", ":", "rejected\0", *REASONS])
def test_engines_choose_dead_letters_by_reason_or_kind(wanted: str | None, tmp_path: Path) -> None:
    batch = history(random.Random(1), 200)
    batch.dead.sort(key=lambda each: each.seq)
    chosen = [each.seq for each in batch.dead if wanted in (None, each.reason, each.reason.partition(":")[0])]
    disk, memory = filled(batch, tmp_path)
    page = DeadPage(None, wanted, 0, 1000)
    for reads in (disk.reads, memory.reads):
        assert [each.seq for each, _ in reads.dead(page)] == chosen
        assert reads.dead_count(page) == len(chosen)
        assert reads.dead_count(replace(page, limit=2)) == min(2, len(chosen))
    disk.close()

    assert bool(chosen) == (wanted in (None, "rejected", "é", *REASONS))


@pytest.mark.parametrize("seed", range(10))
def test_engines_find_the_same_message_in_its_own_topic_alone(seed: int, tmp_path: Path) -> None:
    batch = history(random.Random(seed), 60)
    topics = {each.seq: each.topic for each in batch.rows}
    dead, gone = {each.seq for each in batch.dead}, set(batch.gone)
    disk, memory = filled(batch, tmp_path)
    for seq in range(62):
        for topic in (1, 2, 3, 4):
            found, same = disk.reads.peek_one(topic, seq, NOW), memory.reads.peek_one(topic, seq, NOW)
            assert found == same
            assert (found is not None) == (topics.get(seq) == topic and seq not in gone)
            if found is not None:
                (each, _), state = found
                assert (each.seq, state == "dlq") == (seq, seq in dead)
                if state != "dlq":
                    assert seq in seqs(memory.reads.peek(TopicPage(topic, state, 100, NOW))[0])
    disk.close()


@pytest.mark.parametrize("state", ["ready", "inflight", "delayed", "dlq"])
@pytest.mark.parametrize("leaving", [{1}, {3}, {1, 2, 3}, {3, 4}, set(range(1, 9)), {4, 5, 6, 7, 8}])
def test_messages_that_leave_while_a_page_is_read_hide_none_that_stays(
    state: str, leaving: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = Batch()
    batch.topics = [(1, "t")]
    kind = {"inflight": KIND_LEASED, "delayed": KIND_DELAYED}.get(state)
    for seq in range(1, 9):
        batch.insert(row(seq, 1, None))
        if kind is not None:
            batch.states[seq] = MessageState(seq, kind, NOW + 1, 1, 7)
        if state == "dlq":
            batch.dead.append(DeadRow(seq, "ttl", NOW, 1, ()))
    engine = SqliteEngine(tmp_path, fsync=False, wal_bytes=1 << 20)
    engine.open(100)
    engine.commit(batch)
    name = "_dead_peeked" if state == "dlq" else "_living_peeked"
    read = getattr(engine.reads, name)

    def left_meanwhile(*asked: object) -> list:
        """The numbers of the page are known; the rows are read after a commit."""
        leave = Batch()
        for each in leaving:
            if state == "dlq":
                leave.dead_gone.append(row(each, 1, None))
            else:
                leave.remove(each)
        engine.commit(leave)
        monkeypatch.setattr(engine.reads, name, read)
        return read(*asked)

    monkeypatch.setattr(engine.reads, name, left_meanwhile)
    seen: list[int] = []
    last: int | None = 0
    while last is not None:
        found, last = engine.reads.peek(TopicPage(1, state, 3, NOW, last))
        seen += seqs(found)
    engine.close()

    assert seen == sorted(set(range(1, 9)) - leaving)


def walk(engine, topic: int) -> list[int]:
    """Go through a topic's living messages as a purge does."""
    seen: list[int] = []
    while found := engine.reads.living(topic, seen[-1] if seen else 3, 50, 4):
        seen += seqs(found)
    return seen


@pytest.mark.parametrize("topic", [1, 2])
@pytest.mark.parametrize("after", [0, 15_000, 29_990])
@pytest.mark.parametrize("state", ["ready", "inflight", "delayed", "living", "dlq", "one"])
def test_topic_behind_a_large_backlog_is_looked_at_in_a_few_steps(
    state: str, after: int, topic: int, tmp_path: Path
) -> None:
    engine = SqliteEngine(tmp_path, fsync=False, wal_bytes=1 << 20)
    engine.open(100)
    batch, count = Batch(), 30_000
    batch.topics = [(1, "large"), (2, "small")]
    for seq in range(1, count + 1):
        batch.insert(row(seq, 2 if seq > count - 3 else 1, "k" if seq % 3 == 0 else None))
        if state == "dlq":
            batch.dead.append(DeadRow(seq, "ttl", NOW, 1, ()))
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
    match state:
        case "living":
            found = engine.reads.living(topic, after, count, 1)
        case "one":
            found = engine.reads.peek_one(1, after + 1, NOW)
        case _:
            found, _ = engine.reads.peek(TopicPage(topic, state, 10, NOW, after))
    reader.set_progress_handler(None)
    engine.close()

    assert found or (state, topic) in {("inflight", 1), ("delayed", 2)} or (state, after > 0) == ("delayed", True)
    # A walk over the whole table takes ten times as many.
    assert steps * 100 < count * 2
