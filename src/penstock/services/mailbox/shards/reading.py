"""Reading from the engine: what the shards ask for, and how it gets back into them.

A shard is pure: it cannot wait for the disk. It puts a `ReadRequest` into its `ReadQueue`; its worker starts one task
for each request, in which the `Loader` asks the engine and hands the rows to the windows. Six things are read like
this: more of a lane (`window`) or of a group (`line`), the next messages of a key (`key`), the first messages of keys
and groups that RAM does not know yet (`keys`, `groups`), and delayed messages whose time has come (`due`). A `Backlog`
says when there is something to read.

A read sees the disk as it was at one moment, and rows arrive later. Meanwhile a commit may have removed some of them.
The `ReadTracker` remembers what was removed while a read is under way, so that the window drops such rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, ParamSpec, TypeVar

from penstock.kernel.errors import NotReady, PenstockError
from penstock.kernel.log import Log
from penstock.services.mailbox.engine_reader import pause
from penstock.services.mailbox.ledger import Over
from penstock.services.mailbox.rows import Loaded
from penstock.services.mailbox.shards.eviction import make_room
from penstock.services.mailbox.shards.topics import (
    READY,
    WRITTEN,
    KeyQueue,
    Lane,
    Topic,
)

if TYPE_CHECKING:
    from penstock.services.mailbox.shards.shard import Shard
    from penstock.services.mailbox.state import MailboxParts

P = ParamSpec("P")
R = TypeVar("R")

# How many rows one read brings at most.
REFILL: Final = 1024
LINE_REFILL: Final = 128
FOLLOWERS_MAX: Final = 64
_WINDOW_BYTES: Final = 8 << 20
_RETRY_S: Final = 0.05


@dataclass(slots=True, eq=False)
class ReadRequest:
    """What shall be read, and since when the tracker of its shard counts it."""

    kind: Literal["window", "line", "key", "keys", "groups", "due"]
    generation: int
    topic: Topic | None = None
    lane: Lane | None = None
    # A key or a group.
    key: str = ""
    # It brought nothing, and its queue knows that.
    has_failed: bool = False
    # It was counted as ended.
    has_ended: bool = False

    def failed(self) -> None:
        """Let a later receiver ask again. Once: somebody may have asked already when this is called another time."""
        if self.has_failed:
            return
        self.has_failed = True
        if self.kind == "window" and self.lane is not None:
            self.lane.backlog.failed()
        elif self.kind == "keys" and self.topic is not None:
            self.topic.key_backlog.failed()
        elif self.kind == "groups" and self.topic is not None:
            self.topic.group_backlog.failed()
        elif self.kind == "line" and self.lane is not None and self.key in self.lane.lines:
            self.lane.lines[self.key].backlog.failed()
            self.lane.hungry[self.key] = None
        elif self.kind == "key" and self.lane is not None and self.key in self.lane.keys:
            self.lane.keys[self.key].backlog.failed()
            self.lane.stalled.append(self.key)


class ReadTracker:
    """Counts the reads of one shard that are under way, and remembers what they may have seen before it changed. Pure.

    Changes are kept in two generations. A read belongs to the generation in which it began. When no read of the older
    generation is left, its changes are forgotten and a new generation begins. So the memory is bounded by how long a
    read takes, even where there is always some read under way.
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

    def left(self, *seqs: int) -> None:
        """Note that messages are durably gone: a read under way may still bring them."""
        if self._reading[0] or self._reading[1]:
            self._gone[self._now].update(seqs)

    def saw_gone(self, seq: int) -> bool:
        """Tell whether a message that was read has left since."""
        return seq in self._gone[0] or seq in self._gone[1]

    def over_written(self, over: Over) -> None:
        """Note that the disk knows a lease or delay to be over.

        Its message may leave RAM once no read saw it before.
        """
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

    def want_groups(self, topic: Topic) -> None:
        """Ask for the first messages of groups that have no line yet."""
        if topic.group_backlog.want():
            self._want(ReadRequest("groups", self.tracker.begin(), topic))

    def want_line(self, lane: Lane, group: str) -> None:
        """Ask for more messages of a group."""
        line = lane.lines.get(group)
        lane.hungry.pop(group, None)
        if line is not None and line.backlog.want():
            self._want(ReadRequest("line", self.tracker.begin(), lane.topic, lane, group))

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
        """Note that a read came back, well or not; once, however its task ended."""
        if request.has_ended:
            return
        request.has_ended = True
        self.tracker.end(request.generation)
        if request.topic is not None:
            request.topic.pending -= 1


class Loader:
    """Carries out the requests of the shards, and hands the rows to their windows."""

    def __init__(self, parts: MailboxParts) -> None:
        self._state = parts.state
        self._reader = parts.reader
        self._reads = parts.reader.reads
        self._dispatcher = parts.dispatcher
        self._log = Log(parts.inventory.service)

    async def load(self, shard: Shard, request: ReadRequest) -> None:
        """Read for one shard. A read that fails is over after a pause: those who wait ask again as soon as it is."""
        state, others = self._state, []
        if request.kind in ("keys", "groups", "due"):
            # These are read for all shards: what leaves any of them meanwhile matters.
            others = [each.window.reads.tracker for each in state.shards if each is not shard]
        begun = [(tracker, tracker.begin()) for tracker in others]
        try:
            await self._read(shard, request)
        except PenstockError as error:
            shard.window.read_failed(request)
            self._log.warning("mailbox.load_failed", kind=request.kind, detail=error.detail)
            if request.topic is not None:
                state.waiters.refuse(request.topic, error)
            await pause(_RETRY_S)
        finally:
            for tracker, generation in begun:
                tracker.end(generation)
        self._ended(shard, request)

    def cut_off(self, shard: Shard, request: ReadRequest) -> None:
        """End a read whose task was cancelled or failed by a bug, perhaps before it began."""
        shard.window.read_failed(request)
        self._ended(shard, request)

    def _ended(self, shard: Shard, request: ReadRequest) -> None:
        shard.window.read_ended(request)
        self._dispatcher.wake_all()

    async def _read(self, shard: Shard, request: ReadRequest) -> None:
        match request.kind:
            case "window":
                await self._read_window(shard, request)
            case "line":
                await self._read_line(shard, request)
            case "groups":
                await self._read_groups(request)
            case "key":
                await self._read_key(shard, request)
            case "keys":
                await self._read_keys(request)
            case "due":
                await self._read_due(shard)

    async def _ask(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Ask the engine; when the shards were made anew meanwhile, what it says is of no use to the old ones."""
        shards = self._state.shards
        found = await self._reader.ask(call, *args, **kwargs)
        if self._state.shards is not shards:
            raise NotReady("The shards were made anew.", phase="reopening")
        return found

    async def _read_window(self, shard: Shard, request: ReadRequest) -> None:
        lane = request.lane
        assert lane is not None
        limit = self._limit()
        rows = await self._ask(self._reads.window, lane.topic.id, None, lane.tail, limit, _WINDOW_BYTES)
        make_room(self._state.shards, len(rows))
        exhausted = len(rows) < limit and _is_whole(rows)
        shard.window.window_loaded(lane, rows, exhausted=exhausted, now=self._state.now())

    async def _read_line(self, shard: Shard, request: ReadRequest) -> None:
        lane, group = request.lane, request.key
        assert lane is not None
        limit, after = min(LINE_REFILL, self._limit()), lane.line(group).tail
        rows = await self._ask(self._reads.window, lane.topic.id, group, after, limit, _WINDOW_BYTES)
        make_room(self._state.shards, len(rows))
        exhausted = len(rows) < limit and _is_whole(rows)
        shard.window.line_loaded(lane, group, rows, exhausted=exhausted, now=self._state.now())

    async def _read_groups(self, request: ReadRequest) -> None:
        topic = request.topic
        assert topic is not None
        limit, backlog = self._limit(), topic.group_backlog
        heads = await self._ask(self._reads.group_heads, topic.id, backlog.cursor, limit)
        make_room(self._state.shards, len(heads))
        now = self._state.now()
        for row, state in heads:
            self._state.shard_of(row.slot).window.group_found(row, state, now)
        backlog.arrived(exhausted=len(heads) < limit, cursor=heads[-1][0].group or "" if heads else "")

    async def _read_key(self, shard: Shard, request: ReadRequest) -> None:
        lane = request.lane
        assert lane is not None
        after = lane.keys[request.key].last
        rows = await self._ask(self._reads.next_of_key, lane.topic.id, request.key, after, FOLLOWERS_MAX)
        make_room(self._state.shards, len(rows))
        shard.window.key_loaded(lane, request.key, rows, self._state.now())

    async def _read_keys(self, request: ReadRequest) -> None:
        topic = request.topic
        assert topic is not None
        limit, backlog = self._limit(), topic.key_backlog
        heads = await self._ask(self._reads.key_heads, topic.id, backlog.cursor, limit)
        make_room(self._state.shards, len(heads))
        now = self._state.now()
        for row, state in heads:
            self._state.shard_of(row.slot).window.key_found(row, state, now)
        backlog.arrived(exhausted=len(heads) < limit, cursor=heads[-1][0].key or "" if heads else "")

    async def _read_due(self, shard: Shard) -> None:
        rows, later = await self._ask(self._reads.due, self._state.now().wall, REFILL)
        make_room(self._state.shards, len(rows))
        now, window = self._state.now(), shard.window
        if later is not None:
            window.disk_due = min(window.disk_due, now.mono + max(0, later - now.wall))
        for row, state in rows:
            self._state.shard_of(row.slot).window.due_loaded(row, state, now)

    def _limit(self) -> int:
        """Read no more at once than a small window can take."""
        return max(1, min(REFILL, self._state.options.bounds.window_messages // 8))


def _is_whole(rows: list[Loaded]) -> bool:
    """Tell whether a read was certainly not cut short by the size of its payloads."""
    return sum(row.size for row, _ in rows) < _WINDOW_BYTES // 2
