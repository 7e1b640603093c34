"""The rules of `Backlog`: a queue never believes that RAM has all of it while the disk has more."""

from __future__ import annotations

import random

import pytest

from penstock.services.mailbox.shards.backlog import Backlog


def test_only_one_read_is_under_way() -> None:
    backlog = Backlog(more=True)

    assert (backlog.want(), backlog.want()) == (True, False)
    assert not backlog.unread


def test_read_that_reaches_the_end_leaves_nothing_to_read() -> None:
    backlog = Backlog(more=True)
    backlog.want()
    backlog.arrived(exhausted=True)

    assert (backlog.more, backlog.unread) == (False, False)


def test_message_stored_during_a_read_that_reaches_the_end_is_read_by_another() -> None:
    backlog = Backlog(more=True)
    backlog.want()
    backlog.stored_beyond()
    backlog.arrived(exhausted=True)

    assert backlog.unread


def test_failed_read_can_be_asked_for_again() -> None:
    backlog = Backlog(more=True)
    backlog.want()
    backlog.failed()

    assert backlog.unread
    assert backlog.want()


def test_message_stored_behind_the_cursor_of_a_scan_makes_the_scan_begin_again() -> None:
    backlog = Backlog(more=True)
    backlog.want()
    backlog.arrived(exhausted=False, cursor="k")
    backlog.stored_beyond()
    backlog.want()
    backlog.arrived(exhausted=True)

    assert (backlog.unread, backlog.cursor) == (True, "")


@pytest.mark.parametrize("seed", range(20))
def test_queue_is_read_to_its_end_whatever_is_stored_or_fails_meanwhile(seed: int) -> None:
    """Against a plain list: messages that RAM has, and messages that only the disk has."""
    rng, backlog = random.Random(seed), Backlog()
    disk, taken, snapshot = 0, 0, -1
    for step in range(400):
        kind = rng.choice(["store", "want", "arrive", "fail"]) if step < 300 else "arrive"
        if kind == "store":
            disk += 1
            if backlog.more or backlog.reading or rng.random() < 0.3:
                backlog.stored_beyond()
            else:
                taken = disk
        if snapshot >= 0 and kind == "fail":
            backlog.failed()
            snapshot = -1
        elif snapshot >= 0 and kind == "arrive":
            few = min(snapshot, taken + 2)
            exhausted = few == snapshot
            taken = few
            backlog.arrived(exhausted=exhausted)
            snapshot = -1
        elif snapshot < 0 and backlog.more and kind in ("want", "arrive") and backlog.want():
            snapshot = disk

        assert taken == disk or backlog.more or backlog.reading
    while backlog.more or backlog.reading:
        backlog.want()
        taken = disk
        backlog.arrived(exhausted=True)

    assert taken == disk
