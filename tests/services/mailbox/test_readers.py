"""What a read may have seen as it is no more is remembered as long as somebody reads since before, and no longer."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from penstock.services.mailbox.shards.reading import ReadTracker
from penstock.services.mailbox.shards.topics import LEASED, READY, WRITTEN


def ready(until: float):
    """Make what a lease or a delay has left of a message."""
    return SimpleNamespace(state=READY, until=until)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_left_since_a_read_began_is_known_at_its_end(seed: int) -> None:
    rng, readers = random.Random(seed), ReadTracker()
    begun: list[tuple[int, int]] = []
    seq = 0
    for _ in range(3000):
        what = rng.random()
        if what < 0.3:
            begun.append((readers.begin(), seq))
        elif what < 0.6 and begun:
            generation, since = begun.pop(rng.randrange(len(begun)))
            assert all(readers.saw_gone(each) for each in range(since + 1, seq + 1))
            readers.end(generation)
        else:
            seq += 1
            readers.left(seq)
    for generation, _ in begun:
        readers.end(generation)

    assert (len(readers), readers.remembered) == (0, 0)


def test_somebody_who_always_reads_does_not_keep_everything_that_ever_left() -> None:
    readers, most = ReadTracker(), 0
    last = readers.begin()
    for seq in range(10_000):
        readers.left(seq)
        if not seq % 10:
            begun = readers.begin()
            readers.end(last)
            last = begun
        most = max(most, readers.remembered)

    assert most <= 40


def test_nothing_is_remembered_while_nobody_reads() -> None:
    readers = ReadTracker()
    readers.left(1)

    assert (readers.saw_gone(1), readers.remembered) == (False, 0)


def test_message_may_leave_ram_only_when_nobody_reads_what_was_before() -> None:
    readers, message = ReadTracker(), ready(7.0)
    first = readers.begin()
    readers.over_written((message, 7.0))
    second = readers.begin()
    readers.end(first)
    third = readers.begin()
    early = message.until
    readers.end(second)
    readers.end(third)

    assert (early, message.until) == (7.0, WRITTEN)


@pytest.mark.parametrize("now", [{"state": LEASED}, {"until": 8.0}])
def test_message_that_was_leased_again_meanwhile_stays(now: dict) -> None:
    readers, message = ReadTracker(), ready(7.0)
    reading = readers.begin()
    readers.over_written((message, 7.0))
    vars(message).update(now)
    readers.end(reading)

    assert message.until != WRITTEN
