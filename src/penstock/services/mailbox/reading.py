"""Reading from the engine: what the shards ask for, and how it gets back into them.

A shard is pure: it cannot wait for the disk. It puts a `ReadRequest` into its `ReadQueue`; its worker starts one task for
each request, and the task calls `load`, which asks the engine and hands the rows to the window of their shard. Four things
are read like this: more of a lane (`window`), the next messages of a key (`key`), the first messages of keys that have no
queue yet (`keys`), and delayed messages whose time has come (`due`). A `Backlog` says when there is something to read.

A read sees the disk as it was at one moment, and rows arrive later. Meanwhile a commit may have removed some of them. The
`ReadTracker` remembers what was removed while a read is under way, so that the window drops such rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, ParamSpec, TypeVar

from penstock.kernel.errors import NotReady, PenstockError
from penstock.kernel.log import Log
from penstock.services.mailbox.eviction import make_room
from penstock.services.mailbox.ledger import Over
from penstock.services.mailbox.topics import READY, WRITTEN, KeyQueue, Lane, Topic

if TYPE_CHECKING:
    from penstock.services.mailbox.shard import Shard
    from penstock.services.mailbox.state import MailboxState

P = ParamSpec("P")
R = TypeVar("R")

# How many rows one read brings at most.
REFILL: Final = 1024
FOLLOWERS_MAX: Final = 64
_WINDOW_BYTES: Final = 8 << 20
_RETRY_S: Final = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class ReadRequest:
    """What shall be read, and since when the tracker of its shard counts it."""

    kind: Literal["window", "key", "keys", "due"]
    generation: int
    topic: Topic | None = None
    lane: Lane | None = None
    key: str = ""

    def failed(self) -> None:
        """Let a later receiver ask again."""
        if self.kind == "window" and self.lane is not None:
            self.lane.backlog.failed()
        elif self.kind == "keys" and self.topic is not None:
            self.topic.key_backlog.failed()
        elif self.kind == "key" and self.lane is not None:
            self.lane.keys[self.key].backlog.failed()
            self.lane.stalled.append(self.key)


class ReadTracker:
    """Counts the reads of one shard that are under way, and remembers what they may have seen before it changed. Pure.

    Changes are kept in two generations. A read belongs to the generation in which it began. When no read of the older
    generation is left, its changes are forgotten and a new generation begins. So the memory is bounded by how long a read
    takes, even where there is always some read under way.
    """

    __slots__ = ("_gone", "_now", "_over", "_reading")

    def __init__(self) -> None:
        self._now = 0
        self._reading = [0, 0]
        self._gone: tuple[set[int], set[int]] = (set(), set())
        self._over: tuple[list[Over], list[Over]] = ([], [])

    def __len__(self) -> int:
        """Return how many reads are under way."""
        return sum(self._reading)

    @property
    def remembered(self) -> int:
        """Return how many changes are remembered for them."""
        return sum(map(len, (*self._gone, *self._over)))

    def begin(self) -> int:
        """Count a read; `end` takes the generation that is returned."""
        self._reading[self._now] += 1
        return self._now

    def end(self, generation: int) -> None:
        """Count the end of a read, and forget the changes that no read can have missed."""
        self._reading[generation] -= 1
        before = 1 - self._now
        if self._reading[before]:
            return
        self._forget(before)
        if self._reading[self._now]:
            self._now = before
        else:
            self._forget(self._now)

    def _forget(self, generation: int) -> None:
        self._gone[generation].clear()
        for each in self._over[generation]:
            _mark_written(each)
        self._over[generation].clear()

    def left(self, seq: int) -> None:
        """Note that a message is durably gone: a read under way may still bring it."""
        if self._reading[0] or self._reading[1]:
            self._gone[self._now].add(seq)

    def saw_gone(self, seq: int) -> bool:
        """Tell whether a message that was read has left since."""
        return seq in self._gone[0] or seq in self._gone[1]

    def over_written(self, over: Over) -> None:
        """Note that the disk knows a lease or delay to be over. Its message may leave RAM once no read saw it before."""
        if self._reading[0] or self._reading[1]:
            self._over[self._now].append(over)
        else:
            _mark_written(over)


def _mark_written(over: Over) -> None:
    message, until = over
    if message.state == READY and message.until == until:
        message.until = WRITTEN


class ReadQueue:
    """The reads that one shard asks for, and the tracker of those under way. Pure."""

    __slots__ = ("tracker", "wanted")

    def __init__(self) -> None:
        # Requests that no task has begun yet; the worker takes them all.
        self.wanted: list[ReadRequest] = []
        self.tracker = ReadTracker()

    def want_window(self, lane: Lane) -> None:
        """Ask for more un-keyed messages of a lane."""
        if lane.backlog.want():
            self._want(ReadRequest("window", self.tracker.begin(), lane.topic, lane))

    def want_keys(self, topic: Topic) -> None:
        """Ask for the first messages of keys that have no queue yet."""
        if topic.key_backlog.want():
            self._want(ReadRequest("keys", self.tracker.begin(), topic))

    def want_key(self, lane: Lane, key: str, queue: KeyQueue) -> None:
        """Ask for the next messages of a key."""
        if queue.backlog.want():
            self._want(ReadRequest("key", self.tracker.begin(), lane.topic, lane, key))

    def retry_keys(self, lane: Lane) -> None:
        """Ask again for keys whose read failed."""
        stalled, lane.stalled = lane.stalled, []
        for key in stalled:
            queue = lane.keys.get(key)
            if queue is not None and queue.head is None:
                self.want_key(lane, key, queue)

    def want_due(self) -> None:
        """Ask for delayed messages whose time has come."""
        self._want(ReadRequest("due", self.tracker.begin()))

    def _want(self, request: ReadRequest) -> None:
        if request.topic is not None:
            request.topic.pending += 1
        self.wanted.append(request)

    def ended(self, request: ReadRequest) -> None:
        """Note that a read came back, well or not."""
        self.tracker.end(request.generation)
        if request.topic is not None:
            request.topic.pending -= 1


async def load(room: MailboxState, shard: Shard, wanted: ReadRequest) -> None:
    """Read for one shard; whatever happens, the shard hears that the read is over."""
    # Removals in any shard matter: heads of keys and delays are read for all of them.
    others = [each.reads.tracker for each in room.shards if each is not shard] if wanted.kind in ("keys", "due") else []
    begun = [(tracker, tracker.begin()) for tracker in others]
    try:
        await _LOADS[wanted.kind](room, shard, wanted)
    except PenstockError as error:
        _give_up(shard, wanted)
        Log(room.inventory.service).warning("mailbox.load_failed", kind=wanted.kind, detail=error.detail)
        if wanted.topic is not None:
            room.waiters.refuse(wanted.topic, error)
        # Those who wait ask again as soon as this is over.
        await room.writer.paused(_RETRY_S)
    except BaseException:
        _give_up(shard, wanted)
        raise
    finally:
        shard.read_ended(wanted)
        for tracker, generation in begun:
            tracker.end(generation)
        room.look_after_all()


async def _read(room: MailboxState, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Ask the engine; when the shards were made anew meanwhile, what it says is of no use to the old ones."""
    shards = room.shards
    found = await room.ask(call, *args, **kwargs)
    if room.shards is not shards:
        raise NotReady("The shards were made anew.", phase="reopening")
    return found


async def _window(room: MailboxState, shard: Shard, wanted: ReadRequest) -> None:
    lane = wanted.lane
    assert lane is not None
    limit = _limit(room)
    rows = await _read(room, room.engine.window, lane.topic.id, lane.tail, limit, _WINDOW_BYTES)
    whole = sum(len(row.payload) for row, _ in rows) < _WINDOW_BYTES // 2
    make_room(room.shards, len(rows))
    shard.window_loaded(lane, rows, exhausted=len(rows) < limit and whole, now=room.now())


async def _key(room: MailboxState, shard: Shard, wanted: ReadRequest) -> None:
    lane = wanted.lane
    assert lane is not None
    queue = lane.keys[wanted.key]
    after = queue.followers[-1].seq if queue.followers else queue.released
    rows = await _read(room, room.engine.next_of_key, lane.topic.id, wanted.key, after, FOLLOWERS_MAX)
    make_room(room.shards, len(rows))
    shard.key_loaded(lane, wanted.key, rows, room.now())


async def _keys(room: MailboxState, _shard: Shard, wanted: ReadRequest) -> None:
    topic = wanted.topic
    assert topic is not None
    limit, backlog = _limit(room), topic.key_backlog
    heads = await _read(room, room.engine.key_heads, topic.id, backlog.cursor, limit)
    make_room(room.shards, len(heads))
    now = room.now()
    for row, state in heads:
        room.shard_of(row.slot).key_found(row, state, now)
    backlog.arrived(exhausted=len(heads) < limit, cursor=heads[-1][0].key or "" if heads else "")


async def _due(room: MailboxState, shard: Shard, _wanted: ReadRequest) -> None:
    rows, later = await _read(room, room.engine.due, room.now().wall, REFILL)
    make_room(room.shards, len(rows))
    now = room.now()
    shard.disk_due = min(shard.disk_due, math.inf if later is None else now.mono + max(0, later - now.wall))
    for row, state in rows:
        room.shard_of(row.slot).due_loaded([(row, state)], math.inf, now)


def _limit(room: MailboxState) -> int:
    """Read no more at once than a small window can take."""
    return max(1, min(REFILL, room.options.bounds.window_messages // 8))


def _give_up(shard: Shard, wanted: ReadRequest) -> None:
    if wanted.kind == "due":
        shard.disk_due = 0.0
    else:
        wanted.failed()


_LOADS: Final = {"window": _window, "key": _key, "keys": _keys, "due": _due}
