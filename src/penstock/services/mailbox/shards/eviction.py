"""Keeps the windows within their one budget: lanes that nobody received from for longest leave RAM first. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from penstock.services.mailbox.shards.topics import (
    DELAYED,
    READY,
    KeyQueue,
    Lane,
    Message,
)

if TYPE_CHECKING:
    from penstock.services.mailbox.shards.shard import Shard
    from penstock.services.mailbox.shards.window import Window

# Room is made for more than the next read, so that not every read has to look for some.
_SLACK: Final = 0.125
_SLACK_MAX: Final = 512
# The lanes of so many messages are compared first, of each shard: those that came into RAM longest ago. With a hundred
# thousand topics, sorting all lanes would hold up everybody.
_COMPARED: Final = 256
_MORE: Final = 8


def make_room(shards: Sequence[Shard], need: int) -> int:
    """Evict until `need` more messages fit; returns how many left RAM. What is leased or on its way stays."""
    ledger = shards[0].ledger
    budget = ledger.bounds.window_messages
    if ledger.resident + need <= budget:
        return 0
    before = ledger.resident
    goal = max(0, budget - min(int(budget * _SLACK), _SLACK_MAX) - need)
    compared = _COMPARED
    while ledger.resident > goal:
        everything = compared >= max(len(shard.window.messages) for shard in shards)
        for window, lane in _by_age(shards, compared):
            if ledger.resident <= goal:
                break
            _evict(window, lane)
        if everything:
            break
        compared *= _MORE
    return before - ledger.resident


def _by_age(shards: Sequence[Shard], count: int) -> list[tuple[Window, Lane]]:
    """List the lanes of the messages that came into RAM first; the lane nobody received from for longest is first."""
    lanes: dict[Lane, Window] = {}
    for shard in shards:
        for message in islice(shard.window.messages.values(), count):
            lanes[message.lane] = shard.window
    return sorted(((window, lane) for lane, window in lanes.items()), key=_last_used)


def _last_used(each: tuple[Window, Lane]) -> float:
    return each[1].used


def _evict(window: Window, lane: Lane) -> None:
    if lane.backlog.reading:
        return
    _evict_plain(window, lane)
    _evict_lines(window, lane)
    _evict_keys(window, lane)
    # In order, so that it is a heap still; and without those that left, who are named anew when they come back.
    lane.ready = sorted({seq for seq in lane.ready if seq in window.messages})
    for line in lane.lines.values():
        line.ready = sorted({seq for seq in line.ready if seq in window.messages})


def _evict_plain(window: Window, lane: Lane) -> None:
    """Give up a lane's un-keyed waiting messages; they are read again when somebody asks for them."""
    plain = [m for m in _waiting(window, lane.ready) if m.group is None]
    if not plain:
        return
    _drop(window, plain)
    # Never forward: one that came back from a lease of an earlier life may lie beyond what was read of the disk.
    lane.tail = min(lane.tail, *(message.seq - 1 for message in plain))
    lane.backlog.more = True


def _waiting(window: Window, seqs: Iterable[int]) -> list[Message]:
    """Find the un-keyed messages that wait and lie on the disk just as they are here."""
    return [m for m in map(window.messages.get, seqs) if m is not None and m.key is None and _as_stored(m)]


def _evict_lines(window: Window, lane: Lane) -> None:
    """Give up grouped messages: the scan for groups without a line finds them again."""
    grouped = [m for m in _waiting(window, lane.ready) if m.group is not None]
    for line in lane.lines.values():
        grouped += _waiting(window, line.ready)
    _drop(window, grouped)
    for message in grouped:
        given_up = lane.lines.get(message.group or "")
        if given_up is not None:
            given_up.tail = min(given_up.tail, message.seq - 1)
            given_up.backlog.stored_beyond()
    idle = [name for name, line in lane.lines.items() if not line.backlog.reading and not _resident(window, line.ready)]
    for group in idle:
        del lane.lines[group]
        lane.hungry.pop(group, None)
        lane.turns.pop(group, None)
    if grouped or idle:
        lane.topic.group_backlog.stored_beyond()


def _resident(window: Window, seqs: Iterable[int]) -> bool:
    return any(seq in window.messages for seq in seqs)


def _evict_keys(window: Window, lane: Lane) -> None:
    """Give up whole keys: the scan for keys without a queue finds them again, in order."""
    evicted = [key for key, queue in lane.keys.items() if _idle(queue)]
    for key in evicted:
        queue = lane.keys.pop(key)
        assert queue.head is not None
        for message in (queue.head, *queue.followers):
            if message.state == DELAYED:
                window.disk_due = min(window.disk_due, message.until)
        _drop(window, (queue.head, *queue.followers))
    if evicted:
        lane.topic.key_backlog.stored_beyond()


def _idle(queue: KeyQueue) -> bool:
    """Tell whether nothing of a key is out or under way, and its head lies on the disk just as it does here."""
    head = queue.head
    if head is None or queue.backlog.reading:
        return False
    return all(_as_stored(each) or (each.state == DELAYED and each.until > 0) for each in (head, *queue.followers))


def _as_stored(message: Message) -> bool:
    """Tell whether the disk has a waiting message as it is: the end of a lease or delay may not be written yet."""
    return message.state == READY and message.until <= 0


def _drop(window: Window, messages: Iterable[Message]) -> None:
    for message in messages:
        if window.messages.pop(message.seq, None) is not None:
            window.ledger.resident -= 1
            window.ledger.cache.drop(message.seq)
