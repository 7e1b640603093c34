"""What a shard has in RAM of its messages: windows of deliverable ones, filled from the disk as they empty. Pure."""

from __future__ import annotations

import math
from heapq import heappush
from typing import Final

from penstock.services.mailbox.ledger import MailboxLedger, Now
from penstock.services.mailbox.reading import FOLLOWERS_MAX, REFILL, ReadQueue, ReadRequest
from penstock.services.mailbox.rows import (
    KIND_DELAYED,
    KIND_LEASED,
    MessageRow,
    MessageState,
)
from penstock.services.mailbox.topics import (
    DELAYED,
    LEASED,
    READY,
    KeyQueue,
    Lane,
    Message,
    Topic,
)

LANE_MAX: Final = 4096
DELAYS_MAX: Final = 16_384

Loaded = tuple[MessageRow, MessageState | None]


class Window:
    """The resident messages of a shard, and what it wants to read."""

    def __init__(self, index: int, count: int, ledger: MailboxLedger) -> None:
        """Start empty, as one of `count` shards."""
        self.reads = ReadQueue()
        # The earliest delay that is on the disk only.
        self.disk_due = math.inf
        # Topics in which something became deliverable, or stopped being under way.
        self.woken: dict[Topic, None] = {}
        self.index = index
        self._count = count
        self.ledger = ledger
        self.refill_below = REFILL // 4
        self.messages: dict[int, Message] = {}
        self.leases: list[tuple[float, int, int]] = []
        self.delays: list[tuple[float, int]] = []

    def lane(self, topic: Topic) -> Lane:
        """Return this shard's part of a topic."""
        lane = topic.lanes.get(self.index)
        if lane is None:
            lane = topic.lanes[self.index] = Lane(topic)
        return lane

    # --- what comes in

    def stored(self, row: MessageRow, until: float) -> None:
        """Take a message whose commit is done; `until` is its delay's end."""
        topic = self.ledger.by_id[row.topic]
        topic.incoming -= 1
        topic.living += 1
        topic.bytes += len(row.payload)
        topic.sends += 1
        lane = topic.lanes.get(self.index) or self.lane(topic)
        if row.key is not None:
            self._store_keyed(row, row.key, lane)
        elif until:
            self._store_delayed(row, until, lane)
        elif row.seq > lane.tail:
            self._store_plain(row, lane)

    def run_stored(self, rows: list[MessageRow]) -> None:
        """Take messages of one topic whose commit is done: un-keyed, undelayed, in order."""
        ledger, first = self.ledger, rows[0]
        topic = ledger.by_id[first.topic]
        lane = topic.lanes.get(self.index) or self.lane(topic)
        full = len(lane.ready) + len(rows) > LANE_MAX or ledger.resident + len(rows) > ledger.bounds.window_messages
        if full or lane.backlog.more or lane.backlog.reading or first.seq <= lane.tail:
            for row in rows:
                self.stored(row, 0.0)
            return
        topic.incoming -= len(rows)
        topic.living += len(rows)
        topic.sends += len(rows)
        topic.bytes += sum(len(row.payload) for row in rows)
        for row in rows:
            self.messages[row.seq] = _bare(row, lane)
            ledger.cache.put(row)
        ledger.resident += len(rows)
        # Higher than all that is in the heap: at its end they are in their place.
        lane.ready += [row.seq for row in rows]
        lane.tail = rows[-1].seq
        self.woken[topic] = None

    def _store_plain(self, row: MessageRow, lane: Lane) -> None:
        if lane.backlog.more or lane.backlog.reading or len(lane.ready) >= LANE_MAX or self._crowded():
            lane.backlog.stored_beyond()
            if lane.topic.waiters:
                self.reads.want_window(lane)
            return
        lane.tail = row.seq
        self._take_in(_bare(row, lane))
        self.ledger.cache.put(row)

    def _store_delayed(self, row: MessageRow, until: float, lane: Lane) -> None:
        lane.topic.delayed += 1
        if row.seq in self.messages:
            return  # whoever looked for delays that are over saw it before its commit was applied
        if len(self.delays) >= DELAYS_MAX or self._crowded():
            self.disk_due = min(self.disk_due, until)
            return
        message = Message(row, lane)
        self._keep(message)
        message.until, message.state = until, DELAYED
        heappush(self.delays, (until, message.seq))

    def _store_keyed(self, row: MessageRow, key: str, lane: Lane) -> None:
        queue = lane.keys.get(key)
        topic = lane.topic
        if queue is not None:
            self._follow(row, queue, lane)
        elif topic.key_backlog.more or self._crowded():
            # The key may have older messages on the disk: the scan of keys will find the first of them.
            topic.key_backlog.stored_beyond()
            if topic.waiters:
                self.reads.want_keys(topic)
        else:
            message = _bare(row, lane)
            lane.keys[key] = KeyQueue(message)
            self._take_in(message)
            self.ledger.cache.put(row)

    def _follow(self, row: MessageRow, queue: KeyQueue, lane: Lane) -> None:
        if row.seq in self.messages:
            return
        backlog = queue.backlog
        if backlog.more or backlog.reading or len(queue.followers) >= FOLLOWERS_MAX or self._crowded():
            backlog.stored_beyond()
            return
        message = _bare(row, lane)
        self._keep(message)
        if queue.head is None:
            queue.head = message
            self._make_ready(message)
        else:
            queue.followers.append(message)

    def _crowded(self) -> bool:
        return self.ledger.resident >= self.ledger.bounds.window_messages

    def _keep(self, message: Message) -> None:
        self.messages[message.seq] = message
        self.ledger.resident += 1

    def _take_in(self, message: Message) -> None:
        self._keep(message)
        self._make_ready(message)

    def _make_ready(self, message: Message) -> None:
        message.state = READY
        lane = message.lane
        heappush(lane.ready, message.seq)
        self.woken[lane.topic] = None

    def _delay(self, message: Message) -> None:
        message.state = DELAYED
        message.lane.topic.delayed += 1
        heappush(self.delays, (message.until, message.seq))
        self.woken[message.lane.topic] = None

    def _undelay(self, seq: int) -> None:
        message = self.messages.get(seq)
        if message is not None and message.state == DELAYED:
            message.lane.topic.delayed -= 1
            # Its stored delay would be found again and again by those who look for delays that are over.
            self.ledger.riders[seq] = message
            self._make_ready(message)

    # --- what goes out

    def _leave(self, message: Message) -> None:
        """Forget a message that is durably gone from the living, and let its key go on."""
        if self.messages.pop(message.seq, None) is None:
            return
        ledger, lane = self.ledger, message.lane
        ledger.resident -= 1
        ledger.cache.drop(message.seq)
        ledger.give_room(message.size)
        lane.topic.living -= 1
        lane.topic.bytes -= message.size
        self.reads.tracker.left(message.seq)
        if message.key is not None:
            self._release(message, message.key, lane)
        if lane.topic.waiters:
            self.woken[lane.topic] = None

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
                self._make_ready(queue.head)
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

    def read_ended(self, request: ReadRequest) -> None:
        """Note that a read came back, well or not: those who wait may hear now that there is nothing."""
        self.reads.ended(request)
        if request.topic is not None:
            self.woken[request.topic] = None

    def window_loaded(self, lane: Lane, rows: list[Loaded], *, exhausted: bool, now: Now) -> None:
        """Add un-keyed messages beyond the tail to the window."""
        for row, state in rows:
            if self._is_new(row.seq):
                self._take_in(self._restored(row, state, lane, now))
                self.ledger.cache.put(row)
            lane.tail = max(lane.tail, row.seq)
        lane.backlog.arrived(exhausted=exhausted)

    def key_loaded(self, lane: Lane, key: str, rows: list[Loaded], now: Now) -> None:
        """Give a key its next messages; the first becomes its head."""
        queue = lane.keys.get(key)
        if queue is None:
            return
        fresh = [self._restored(row, state, lane, now) for row, state in rows if self._is_new(row.seq)]
        for message in fresh:
            self._keep(message)
            queue.followers.append(message)
        queue.backlog.arrived(exhausted=not rows)
        if queue.head is None and queue.followers:
            queue.head = queue.followers.popleft()
            self._settle_in(queue.head)
        elif queue.head is None and queue.backlog.more:
            self.reads.want_key(lane, key, queue)
        elif queue.head is None:
            del lane.keys[key]

    def key_found(self, row: MessageRow, state: MessageState | None, now: Now) -> None:
        """Make a queue for a key whose first message was found by the scan."""
        lane = self.lane(self.ledger.by_id[row.topic])
        if row.key is None or row.key in lane.keys:
            return
        if not self._is_new(row.seq):
            # It is leaving or has just left; the next of its key is found by another scan.
            lane.topic.key_backlog.stored_beyond()
            return
        message = self._restored(row, state, lane, now)
        queue = lane.keys[row.key] = KeyQueue(message)
        queue.backlog.more = True
        self._keep(message)
        self._settle_in(message)

    def _settle_in(self, message: Message) -> None:
        """Put a message that came from the disk where it belongs."""
        if message.state == DELAYED:
            heappush(self.delays, (message.until, message.seq))
        elif message.state == LEASED:
            self.restore_lease(message)
        else:
            self._make_ready(message)

    def _is_new(self, seq: int) -> bool:
        return seq not in self.messages and not self.reads.tracker.saw_gone(seq)

    def due_loaded(self, rows: list[Loaded], next_due: float, now: Now) -> None:
        """Take delayed messages whose time has come."""
        self.disk_due = min(self.disk_due, next_due)
        for row, state in rows:
            if row.key is not None:
                # A delayed message is the first of its key; its queue was given up to make room.
                self.key_found(row, state, now)
            elif self._is_new(row.seq):
                message = self._restored(row, state, self.lane(self.ledger.by_id[row.topic]), now)
                self._keep(message)
                self._settle_in(message)

    def adopt(self, row: MessageRow, state: MessageState | None, now: Now) -> Message:
        """Make a message resident without making it deliverable, for a command that needs it in hand."""
        message = self._restored(row, state, self.lane(self.ledger.by_id[row.topic]), now)
        self._keep(message)
        return message

    def _restored(self, row: MessageRow, state: MessageState | None, lane: Lane, now: Now) -> Message:
        """Rebuild a message from the disk; what is stored as wall time becomes a deadline once, here."""
        message = Message(row, lane)
        if state is not None:
            message.attempts, message.gen, message.history = state.attempts, state.gen, state.history
            if state.kind == KIND_DELAYED:
                message.state = DELAYED
                message.until = now.mono + state.left(now.wall)
            elif state.kind == KIND_LEASED:
                message.state = LEASED
                message.until = now.mono + state.left(now.wall)
                message.span = state.span
                message.receipt = self.ledger.receipts.make(row.slot, row.seq, state.gen)
        return message

    def restore(self, row: MessageRow, state: MessageState, now: Now) -> None:
        """Take over a lease or a delay of an earlier life."""
        lane = self.lane(self.ledger.by_id[row.topic])
        message = self._restored(row, state, lane, now)
        self._keep(message)
        if row.key is not None:
            # Only the first of a key is ever leased or given back.
            queue = lane.keys[row.key] = KeyQueue(message)
            queue.backlog.more = True
        self._settle_in(message)

    def take_over(self, message: Message) -> None:
        """Take a message from another cut of the shards; what the disk has as it is, is read again instead."""
        lane = self.lane(message.lane.topic)
        message.lane = lane
        if message.state == READY and not message.attempts and message.until <= 0:
            return
        self._keep(message)
        if message.key is not None:
            queue = lane.keys[message.key] = KeyQueue(message)
            queue.backlog.more = True
        self._settle_in(message)

    def restore_lease(self, message: Message) -> None:
        """Count a lease of an earlier life: its receipt stays good until it ends."""
        heappush(self.leases, (message.until, message.seq, message.gen))
        self.ledger.inflight += 1
        message.lane.topic.inflight += 1


def _bare(row: MessageRow, lane: Lane) -> Message:
    """Make a message of a row that was just stored, with no state beside it."""
    message = Message(row, lane)
    message.bare = True
    return message
