"""What RAM holds of a shard's messages, and where each of them stands. Pure.

A million messages may wait; RAM has room for some. A window holds, for every topic, the messages that may be
delivered next: un-keyed ones in order of seq, and of each key the first unsettled one with a few followers. What does
not fit stays on the disk, and a `Backlog` remembers that it is there. When a window runs low, or somebody waits, it
asks its `ReadQueue` for more; what was read comes back through the `*_loaded` methods. `eviction` takes messages out
again.

The window also keeps the two heaps of deadlines (leases and delays) and `notified`, the topics whose waiting receivers
have to be looked at. It decides nothing: `Shard` does, and calls this.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice
from typing import Final

from penstock.services.mailbox.ledger import MailboxLedger, Now
from penstock.services.mailbox.rows import (
    KIND_DELAYED,
    KIND_LEASED,
    KIND_READY,
    Loaded,
    MessageRow,
    MessageState,
)
from penstock.services.mailbox.shards.reading import (
    FOLLOWERS_MAX,
    REFILL,
    ReadQueue,
    ReadRequest,
)
from penstock.services.mailbox.shards.topics import (
    DELAYED,
    LEASED,
    READY,
    GroupLine,
    KeyQueue,
    Lane,
    Message,
    Topic,
)

LANE_MAX: Final = 4096
LINE_MAX: Final = 256
# A line is read on when it has fewer than this ready, a few lines a receive.
LINE_LOW: Final = 32
LINES_AT_ONCE: Final = 16
DELAYS_MAX: Final = 16_384

# A message, and the generation of one lease of it: when it has another by now, that lease is over.
Leased = tuple[Message, int]


class Window:
    """The messages of one shard that are in RAM."""

    def __init__(self, index: int, ledger: MailboxLedger) -> None:
        self.index = index
        self.ledger = ledger
        self.refill_below = REFILL // 4
        self.messages: dict[int, Message] = {}
        # A heap of leases that were made together: until, first generation, and each message with its generation. An
        # entry whose lease is over is skipped when it comes up.
        self.leases: list[tuple[float, int, list[Leased]]] = []
        # (until, seq) of each delay.
        self.delays: list[tuple[float, int]] = []
        # When the first of the delays ends that are on the disk only.
        self.disk_due = math.inf
        self.reads = ReadQueue()
        # Topics in which something became deliverable, or stopped being under way, since their receivers were served.
        self.notified: dict[Topic, None] = {}

    def notify(self, topic: Topic) -> None:
        """Note that the waiting receivers of a topic have to be looked at; the worker does it when it wakes."""
        self.notified[topic] = None

    def lane(self, topic: Topic) -> Lane:
        """Return this shard's part of a topic."""
        lane = topic.lanes.get(self.index)
        if lane is None:
            lane = topic.lanes[self.index] = Lane(topic)
        return lane

    # --- what was stored

    def stored(self, row: MessageRow, until: float) -> None:
        """Take a message whose commit is done; `until` is the end of its delay."""
        topic = self.ledger.by_id[row.topic]
        topic.incoming -= 1
        topic.living += 1
        topic.bytes += row.size
        topic.sends += 1
        self.ledger.sent += 1
        lane = topic.lanes.get(self.index) or self.lane(topic)
        if row.key is not None:
            topic.delayed += bool(until)
            self._store_keyed(row, row.key, until, lane)
        elif until:
            self._store_delayed(row, until, lane)
        elif row.group is not None:
            self._store_grouped(row, row.group, lane)
        elif row.seq > lane.tail:
            self._store_plain(row, lane)

    def stored_run(self, rows: Sequence[MessageRow]) -> None:
        """Take messages of one topic whose commit is done: un-keyed, undelayed, in order."""
        ledger, messages, first = self.ledger, self.messages, rows[0]
        topic = ledger.by_id[first.topic]
        lane = topic.lanes.get(self.index) or self.lane(topic)
        full = len(lane.ready) + len(rows) > LANE_MAX or ledger.resident + len(rows) > ledger.bounds.window_messages
        if full or lane.backlog.more or lane.backlog.reading or first.seq <= lane.tail:
            for row in rows:
                self.stored(row, 0.0)
            return
        slot, ts, total, seqs = first.slot, first.ts, 0, []
        for row in rows:
            seq, size = row.seq, len(row.payload)
            messages[seq] = Message(seq, lane, None, slot, ts, row.nonce, size, row.expires, True)
            seqs.append(seq)
            total += size
        topic.incoming -= len(rows)
        topic.living += len(rows)
        topic.sends += len(rows)
        ledger.sent += len(rows)
        topic.bytes += total
        ledger.cache.put_stored(seqs, rows, total)
        ledger.resident += len(rows)
        # They are higher than all that is in the heap, so at its end they are in their place.
        lane.ready += seqs
        lane.tail = seqs[-1]
        self.notified[topic] = None

    def _store_plain(self, row: MessageRow, lane: Lane) -> None:
        if lane.backlog.more or lane.backlog.reading or len(lane.ready) >= LANE_MAX or self._crowded():
            lane.backlog.stored_beyond()
            if lane.topic.waiters:
                self.reads.want_window(lane)
            return
        lane.tail = row.seq
        self._take_in(Message.of(row, lane, bare=True))
        self.ledger.cache.put(row)

    def _store_grouped(self, row: MessageRow, group: str, lane: Lane) -> None:
        topic, line = lane.topic, lane.lines.get(group)
        if line is None and (topic.group_backlog.more or len(lane.ready) >= LANE_MAX or self._crowded()):
            # The group may have older messages on the disk: the scan of groups will find the first of them.
            topic.group_backlog.stored_beyond()
            if topic.waiters:
                self.reads.want_groups(topic)
            return
        if line is not None:
            if line.backlog.more or line.backlog.reading or len(line.ready) >= LINE_MAX or self._crowded():
                line.backlog.stored_beyond()
                lane.hungry[group] = None
                if topic.waiters:
                    self.reads.want_line(lane, group)
                return
            line.tail = max(line.tail, row.seq)
        self._take_in(Message.of(row, lane, bare=True))
        self.ledger.cache.put(row)

    def _store_delayed(self, row: MessageRow, until: float, lane: Lane) -> None:
        lane.topic.delayed += 1
        if row.seq in self.messages:
            return  # a read of delays that are over saw it before its commit was applied
        if len(self.delays) >= DELAYS_MAX or self._crowded():
            self.disk_due = min(self.disk_due, until)
            return
        message = Message.of(row, lane)
        self.keep(message)
        message.until, message.state = until, DELAYED
        heappush(self.delays, (until, message.seq))

    def _store_keyed(self, row: MessageRow, key: str, until: float, lane: Lane) -> None:
        queue = lane.keys.get(key)
        topic = lane.topic
        if queue is not None:
            self._follow(row, queue, until, lane)
        elif topic.key_backlog.more or self._crowded():
            # The key may have older messages on the disk: the scan of keys will find the first of them.
            topic.key_backlog.stored_beyond()
            if topic.waiters:
                self.reads.want_keys(topic)
        else:
            message = self._fresh(row, until, lane)
            lane.keys[key] = KeyQueue(message)
            self.keep(message)
            self._place(message)
            self.ledger.cache.put(row)

    def _fresh(self, row: MessageRow, until: float, lane: Lane) -> Message:
        """Make a message that was just stored; `until` is the end of its delay."""
        message = Message.of(row, lane, bare=not until)
        if until:
            message.state, message.until = DELAYED, until
        return message

    def _follow(self, row: MessageRow, queue: KeyQueue, until: float, lane: Lane) -> None:
        if row.seq in self.messages:
            return
        backlog = queue.backlog
        if backlog.more or backlog.reading or len(queue.followers) >= FOLLOWERS_MAX or self._crowded():
            backlog.stored_beyond()
            return
        message = self._fresh(row, until, lane)
        self.keep(message)
        if queue.head is None:
            queue.head = message
        else:
            queue.followers.append(message)
        self._place(message)

    def _crowded(self) -> bool:
        return self.ledger.resident >= self.ledger.bounds.window_messages

    def keep(self, message: Message) -> None:
        """Hold a message in RAM."""
        self.messages[message.seq] = message
        self.ledger.resident += 1

    def _take_in(self, message: Message) -> None:
        self.keep(message)
        self.make_ready(message)

    def make_ready(self, message: Message) -> None:
        """Let a message be delivered; one that is not the first of its key waits for those before it."""
        message.state = READY
        lane = message.lane
        if message.key is not None:
            queue = lane.keys.get(message.key)
            if queue is None or queue.head is not message:
                return
        if message.group is not None and lane.topic.settings.fair_by is not None:
            heappush(lane.line(message.group).ready, message.seq)
            lane.turns.setdefault(message.group)
        else:
            heappush(lane.ready, message.seq)
        self.notified[lane.topic] = None

    def regroup(self, lane: Lane) -> None:
        """Sort what is ready anew, after the topic began or ceased to be fair."""
        ready = {seq for heap in (lane.ready, *(line.ready for line in lane.lines.values())) for seq in heap}
        lane.ready = []
        lane.turns.clear()
        for group in list(lane.lines):
            lane.lines[group].ready = []
            lane.drop_line(group)
        for message in filter(None, map(self.messages.get, sorted(ready))):
            if message.state == READY:
                self.make_ready(message)

    # --- deadlines

    def next_due(self) -> float:
        """Say when (monotonic ms) the next deadline is; one that has passed counts as well."""
        leases = self.leases
        while leases:
            until, _, together = leases[0]
            while together:
                message, gen = together[-1]
                if message.state == LEASED and message.gen == gen and message.until == until:
                    return self._next_due(until)
                # This lease ended otherwise, or was extended.
                together.pop()
            heappop(leases)
        return self._next_due(math.inf)

    def _next_due(self, due: float) -> float:
        if self.delays and self.delays[0][0] < due:
            due = self.delays[0][0]
        return min(due, self.disk_due)

    def add_leases(self, until: float, leased: list[Leased]) -> None:
        """Watch the one deadline of leases that were made together."""
        heappush(self.leases, (until, leased[0][1], leased.copy()))

    def take_lease(self) -> Message:
        """Take out the lease that is over first; `next_due` has just found it."""
        return self.leases[0][2].pop()[0]

    def delay(self, message: Message) -> None:
        """Hold a message back until its delay is over."""
        message.state = DELAYED
        message.lane.topic.delayed += 1
        heappush(self.delays, (message.until, message.seq))
        self.notified[message.lane.topic] = None

    def undelay(self) -> None:
        """End the delay that is over first."""
        message = self.messages.get(heappop(self.delays)[1])
        if message is not None and message.state == DELAYED:
            message.lane.topic.delayed -= 1
            # Otherwise every read of delays that are over would find its stored one again.
            self.ledger.riders[message.seq] = message
            self.make_ready(message)

    def refill(self, lane: Lane) -> None:
        """Ask for more of a lane with settings or groups: what runs low, and what nobody has looked for yet."""
        if lane.backlog.more and len(lane.ready) < self.refill_below:
            self.reads.want_window(lane)
        if lane.topic.group_backlog.more:
            self.reads.want_groups(lane.topic)
        low = (group for group in lane.hungry if len(lane.lines[group].ready) < LINE_LOW)
        for group in list(islice(low, LINES_AT_ONCE)):
            self.reads.want_line(lane, group)

    # --- what leaves

    def leave(self, message: Message) -> None:
        """Forget a message that is durably gone from the living, and let the next of its key be delivered."""
        if self.messages.pop(message.seq, None) is None:
            return
        ledger, lane = self.ledger, message.lane
        topic, size = lane.topic, message.size
        ledger.resident -= 1
        ledger.messages -= 1
        ledger.bytes -= size
        ledger.cache.drop(message.seq)
        topic.living -= 1
        topic.bytes -= size
        self.reads.tracker.left(message.seq)
        if message.key is not None:
            self._release(message, message.key, lane)
        if topic.waiters:
            self.notified[topic] = None

    def leave_all(self, messages: list[Message]) -> None:
        """Forget messages that are durably gone, in one go."""
        ledger, here = self.ledger, self.messages
        gone: list[int] = []
        total = 0
        for message in messages:
            seq, lane, size = message.seq, message.lane, message.size
            if here.pop(seq, None) is None:
                continue
            topic = lane.topic
            topic.living -= 1
            topic.bytes -= size
            gone.append(seq)
            total += size
            if message.key is not None:
                self._release(message, message.key, lane)
            if topic.waiters:
                self.notified[topic] = None
        ledger.resident -= len(gone)
        ledger.messages -= len(gone)
        ledger.bytes -= total
        ledger.cache.drop_all(gone)
        self.reads.tracker.left(*gone)

    def _release(self, message: Message, key: str, lane: Lane) -> None:
        queue = lane.keys.get(key)
        if queue is None:
            return
        if queue.head is not message:
            if message in queue.followers:
                queue.followers.remove(message)
            return
        if queue.followers:
            queue.head = queue.followers.popleft()
            if queue.head.state == READY:
                # Otherwise it is on its way out itself, and lets the next one go when it is gone.
                self.make_ready(queue.head)
        elif queue.backlog.more:
            queue.head, queue.released = None, message.seq
            self.reads.want_key(lane, key, queue)
        else:
            del lane.keys[key]

    # --- what was read

    def want_due(self) -> None:
        """Ask for delayed messages whose time has come and that only the disk has."""
        self.disk_due = math.inf
        self.reads.want_due()

    def read_failed(self, request: ReadRequest) -> None:
        """Note that a read brought nothing, so that it is asked for again."""
        request.failed()
        if request.kind == "due":
            self.disk_due = 0.0

    def read_ended(self, request: ReadRequest) -> None:
        """Note that a read came back, well or not: those who wait may hear now that there is nothing."""
        self.reads.ended(request)
        if request.topic is not None:
            self.notify(request.topic)

    def line_loaded(self, lane: Lane, group: str, rows: list[Loaded], *, exhausted: bool, now: Now) -> None:
        """Add messages of a group beyond its line's tail."""
        line = lane.line(group)
        for row, state in rows:
            line.tail = max(line.tail, row.seq)
            if self.is_new(row.seq):
                self._take_in(self._restored(row, state, lane, now))
                self.ledger.cache.put(row)
        line.backlog.arrived(exhausted=exhausted)
        if line.backlog.more:
            lane.hungry[group] = None
        else:
            lane.hungry.pop(group, None)
            lane.drop_line(group)

    def group_found(self, row: MessageRow, state: MessageState | None, now: Now) -> None:
        """Make a line for a group whose first message was found by the scan."""
        lane = self.lane(self.ledger.by_id[row.topic])
        if row.group is None or row.group in lane.lines:
            return
        line = lane.lines[row.group] = GroupLine(more=True)
        lane.hungry[row.group] = None
        if (state is None or state.kind == KIND_READY) and self.is_new(row.seq):
            line.tail = row.seq
            self._take_in(self._restored(row, state, lane, now))

    def window_loaded(self, lane: Lane, rows: list[Loaded], *, exhausted: bool, now: Now) -> None:
        """Add un-keyed messages beyond the tail to the window."""
        for row, state in rows:
            if self.is_new(row.seq):
                self._take_in(self._restored(row, state, lane, now))
                self.ledger.cache.put(row)
            lane.tail = max(lane.tail, row.seq)
        lane.backlog.arrived(exhausted=exhausted)

    def key_loaded(self, lane: Lane, key: str, rows: list[Loaded], now: Now) -> None:
        """Give a key its next messages; the first becomes its head."""
        queue = lane.keys.get(key)
        if queue is None:
            return
        last = queue.last
        for message in self._next_of_key(lane, [each for each in rows if each[0].seq > last], now):
            queue.followers.append(message)
        queue.backlog.arrived(exhausted=not rows)
        if queue.head is None and queue.followers:
            queue.head = queue.followers.popleft()
            if queue.head.state == READY:
                self.make_ready(queue.head)
        elif queue.head is None and queue.backlog.more:
            self.reads.want_key(lane, key, queue)
        elif queue.head is None:
            del lane.keys[key]

    def _next_of_key(self, lane: Lane, rows: list[Loaded], now: Now) -> Iterator[Message]:
        """Take a key's messages into RAM, those that are there already as they are."""
        for row, state in rows:
            message = self.messages.get(row.seq)
            if message is None and self.is_new(row.seq):
                message = self._restored(row, state, lane, now)
                self.keep(message)
                if message.state != READY:
                    self._place(message)
            if message is not None:
                yield message

    def key_found(self, row: MessageRow, state: MessageState | None, now: Now) -> None:
        """Make a queue for a key whose first message was found by the scan."""
        lane = self.lane(self.ledger.by_id[row.topic])
        if row.key is None or row.key in lane.keys:
            return
        found = self.messages.get(row.seq)
        if found is not None:
            # A lease or delay of an earlier life: it was kept by itself until its key's first message was known.
            lane.keys[row.key] = KeyQueue(found, more=True)
            if found.state == READY:
                self.make_ready(found)
            return
        if not self.is_new(row.seq):
            # It has just left; the next of its key is found by another scan.
            lane.topic.key_backlog.stored_beyond()
            return
        message = self._restored(row, state, lane, now)
        lane.keys[row.key] = KeyQueue(message, more=True)
        self.keep(message)
        self._place(message)

    def _place(self, message: Message) -> None:
        """Put a message that came from the disk where its state belongs."""
        if message.state == DELAYED:
            heappush(self.delays, (message.until, message.seq))
        elif message.state == LEASED:
            # A lease of an earlier life: its receipt stays good until it ends.
            self.add_leases(message.until, [(message, message.gen)])
            self.ledger.inflight += 1
            message.lane.topic.inflight += 1
        else:
            self.make_ready(message)

    def is_new(self, seq: int) -> bool:
        """Tell whether a row that was read is not in RAM, and did not leave while it was being read."""
        return seq not in self.messages and not self.reads.tracker.saw_gone(seq)

    def due_loaded(self, row: MessageRow, state: MessageState | None, now: Now) -> None:
        """Take a delayed message whose time has come."""
        lane = self.lane(self.ledger.by_id[row.topic])
        if row.key is not None and row.key not in lane.keys:
            # It is the first of its key, whose queue was given up to make room; or the scan will find who is.
            lane.topic.key_backlog.stored_beyond()
            if lane.topic.waiters:
                self.reads.want_keys(lane.topic)
        if self.is_new(row.seq):
            self._place(self.adopt(row, state, now))

    def adopt(self, row: MessageRow, state: MessageState | None, now: Now) -> Message:
        """Hold a message in RAM without making it deliverable, for a command that needs it."""
        message = self._restored(row, state, self.lane(self.ledger.by_id[row.topic]), now)
        self.keep(message)
        return message

    def _restored(self, row: MessageRow, state: MessageState | None, lane: Lane, now: Now) -> Message:
        """Rebuild a message from the disk; what is stored as wall time becomes a deadline once, here."""
        message = Message.of(row, lane)
        if state is not None:
            message.attempts, message.gen, message.history = state.attempts, state.gen, state.history
            message.first_at = state.first_at
            if state.kind == KIND_DELAYED:
                message.state = DELAYED
                message.until = now.mono + state.left(now.wall)
            elif state.kind == KIND_LEASED:
                message.state = LEASED
                message.until = now.mono + state.left(now.wall)
                message.span = state.span
                message.receipt = self.ledger.receipts.make(row.slot, row.seq, state.gen)
        return message

    # --- a new life, other shards

    def restore(self, row: MessageRow, state: MessageState, now: Now) -> None:
        """Take over a lease or a delay of an earlier life."""
        # A keyed one is kept by itself: the scan of keys finds out which message is the first of its key.
        self._place(self.adopt(row, state, now))

    def take_over(self, message: Message) -> None:
        """Take a message from another cut of the shards; one that the disk has as it is, is read again instead."""
        lane = self.lane(message.lane.topic)
        message.lane = lane
        if message.state == READY and not message.attempts and message.until <= 0:
            return
        self.keep(message)
        self._place(message)
