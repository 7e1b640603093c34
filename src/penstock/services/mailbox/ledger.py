"""What all shards share on the loop: numbers, bounds, topics and cached payloads. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.kernel.errors import Busy
from penstock.services.mailbox.ids import BOOT_SHIFT, MessageName, Receipts, read_msg_id, slot_of
from penstock.services.mailbox.rows import (
    KIND_LEASED,
    KIND_READY,
    MessageRow,
    MessageState,
)
from penstock.services.mailbox.shards.topic_names import TopicNames
from penstock.services.mailbox.shards.topics import (
    LEASED,
    READY,
    Message,
    Topic,
)

# How many msg_ids that were handed out are remembered; then all are forgotten.
NAMES_MAX: Final = 16_384
# How many topics that were forgotten are kept until their counts were looked at; others count in the sums only.
DEPARTED_MAX: Final = 256
# A ready message, and its `until` when that was written. If it has another by now, it was leased again.
Over = tuple[Message, float]


class Now(NamedTuple):
    """One instant in milliseconds: deadlines run on the first clock, what is stored or shown on the second."""

    mono: float
    wall: int

    def wall_of(self, mono: float) -> int:
        """Tell what the wall clock will show then."""
        return self.wall + round(mono - self.mono)


@dataclass(frozen=True, kw_only=True, slots=True)
class MailboxBounds:
    """How much there may be of everything."""

    backlog_messages: int = 1_000_000
    backlog_bytes: int = 1 << 30
    global_inflight: int = 8192
    window_messages: int = 65_536
    cache_bytes: int = 32 << 20
    waiters: int = 4096


class RowCache:
    """Payloads of messages that are about to be delivered; the oldest go first when it is full."""

    __slots__ = ("_limit_bytes", "_rows", "bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._rows: dict[int, MessageRow] = {}
        self.bytes = 0

    def put(self, row: MessageRow) -> None:
        """Keep a row, unless its bytes are damaged or left on the disk: then whoever wants it reads it again."""
        if row.left_bytes or row.damaged:
            return
        self._rows[row.seq] = row
        self.bytes += len(row.payload)
        while self.bytes > self._limit_bytes and len(self._rows) > 1:
            self.drop(next(iter(self._rows)))

    def put_stored(self, seqs: Sequence[int], rows: Sequence[MessageRow], size: int) -> None:
        """Keep rows that were just stored, `size` payload bytes together: none of them can be damaged."""
        self._rows.update(zip(seqs, rows, strict=True))
        self.bytes += size
        while self.bytes > self._limit_bytes and len(self._rows) > 1:
            self.drop(next(iter(self._rows)))

    def get_all(self, seqs: Iterable[int]) -> list[MessageRow | None]:
        """Return rows, None for those that are not here."""
        return list(map(self._rows.get, seqs))

    def drop(self, seq: int) -> None:
        """Forget a row; harmless when it is not here."""
        row = self._rows.pop(seq, None)
        if row is not None:
            self.bytes -= len(row.payload)

    def drop_all(self, seqs: Sequence[int]) -> None:
        """Forget several rows."""
        rows, size = self._rows, 0
        for seq in seqs:
            row = rows.pop(seq, None)
            if row is not None:
                size += len(row.payload)
        self.bytes -= size


class MailboxLedger:
    """The counts that belong to no single shard. The loop owns them, like all of the state."""

    def __init__(self, bounds: MailboxBounds) -> None:
        """Start empty; `begin` gives the numbers of this life."""
        self.bounds = bounds
        self.receipts = Receipts(bytes(32))
        self.topics: dict[str, Topic] = {}
        self.by_id: dict[int, Topic] = {}
        self.topic_names = TopicNames()
        # Counted since the process began: leases that ended by their deadline, expired messages that were dropped,
        # and messages that became dead letters.
        self.lapsed = self.dropped = self.died = 0
        # Messages that were stored, handed out (again too) and acknowledged since the process began.
        self.sent = self.delivered = self.acked = 0
        # Topics that did something and were forgotten since `BusiestTopics` looked last: it empties this each second.
        self.departed: list[Topic] = []
        self.clear()

    def clear(self) -> None:
        """Forget everything that comes from the engine; of the topics only the waiting receivers stay."""
        self.cache = RowCache(self.bounds.cache_bytes)
        # The last seq that was handed out.
        self.seq = 0
        self.topic_number = 0
        self.messages = self.bytes = self.inflight = self.resident = 0
        # Topics whose receivers got nothing because `global_inflight` was reached; the longest waiting first.
        self.starved: dict[Topic, None] = {}
        self.dead = self.dead_bytes = 0
        # The last lease generation that was handed out.
        self.gen = 0
        # What the msg_ids of messages that were delivered lately say, so that their settlements need not read them.
        self.names: dict[str, MessageName] = {}
        # Messages whose lease, or whose end of a delay, still has to be written with some commit; the oldest first.
        self.riders: dict[int, Message] = {}
        waiting = {name: topic.waiters for name, topic in self.topics.items() if topic.waiters}
        self.topics.clear()
        self.by_id.clear()
        self.topic_names.clear()
        for name, waiters in waiting.items():
            topic = self.topic(name)
            topic.waiters = waiters
            for waiter in waiters:
                waiter.job.topic = topic

    @property
    def inflight_full(self) -> bool:
        """Tell whether `global_inflight` is reached."""
        return self.inflight >= self.bounds.global_inflight

    def begin(self, boot: int, receipts: Receipts) -> None:
        """Hand out generations of this boot, which are above all earlier ones."""
        self.gen = boot << BOOT_SHIFT
        self.receipts = receipts

    def read_name(self, msg_id: str) -> MessageName | None:
        """Read a msg_id; None when it cannot be one of ours."""
        return self.names.pop(msg_id, None) or read_msg_id(msg_id)

    def topic(self, name: str) -> Topic:
        """Return the topic of that name; one that nobody has sent to yet has no number."""
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = Topic(0, name)
            self.topic_names.add(name)
        return topic

    def number(self, topic: Topic) -> int:
        """Give a topic its number at its first message."""
        self.topic_number += 1
        topic.id = self.topic_number
        self.by_id[topic.id] = topic
        return topic.id

    def adopt_topic(self, number: int, name: str, form: int) -> Topic:
        """Take over a topic that the engine holds."""
        topic = self.topic(name)
        topic.id = number
        topic.form, topic.slot = form, slot_of(name, None, form)
        self.by_id[number] = topic
        self.topic_number = max(self.topic_number, number)
        return topic

    def forget_idle(self, topic: Topic) -> bool:
        """Forget a topic that holds nothing and that nobody waits for; False for one in use, or replaced by another."""
        busy = topic.living or topic.incoming or topic.dead or topic.waiters or topic.pending or topic.inflight
        busy = busy or topic.configured
        if busy or self.topics.get(topic.name) is not topic:
            return False
        del self.topics[topic.name]
        self.topic_names.discard(topic.name)
        self.by_id.pop(topic.id, None)
        if topic.sends + topic.recvs + topic.acks > topic.sampled and len(self.departed) < DEPARTED_MAX:
            self.departed.append(topic)
        return True

    def take_room(self, size: int) -> None:
        """Make room for one message, or say which bound is reached. Dead letters count too."""
        if self.messages >= self.bounds.backlog_messages:
            raise Busy("The backlog is full.", limit="backlog_messages")
        if self.bytes + size > self.bounds.backlog_bytes:
            raise Busy("The backlog is full.", limit="backlog_bytes")
        self.messages += 1
        self.bytes += size

    def take_rooms(self, count: int, size: int) -> bool:
        """Make room for several messages at once, or for none of them."""
        if self.messages + count > self.bounds.backlog_messages or self.bytes + size > self.bounds.backlog_bytes:
            return False
        self.messages += count
        self.bytes += size
        return True

    def give_room(self, size: int) -> None:
        """Take a message out of the backlog."""
        self.messages -= 1
        self.bytes -= size

    def lease_states(self, now: Now, older_than: float) -> tuple[dict[int, MessageState | None], list[Over]]:
        """Return the states to write with the next commit, and the messages that these states say are ready again.

        Leases made after `older_than` (monotonic ms) stay for a later commit: most are acked before they have to be
        written. A message whose end is on its way to the disk by itself is left out.
        """
        states: dict[int, MessageState | None] = {}
        taken: list[int] = []
        over: list[Over] = []
        for seq, message in self.riders.items():
            if message.state == LEASED:
                if message.until - message.span > older_than:
                    break
                states[seq] = lease_state(message, now)
            elif message.state == READY:
                states[seq] = ready_state(message)
                over.append((message, message.until))
            message.bare = False
            taken.append(seq)
        for seq in taken:
            del self.riders[seq]
        return states, over

    def oldest_rider(self, now: Now) -> float:
        """Say when (monotonic ms) the oldest lease was made that is still to be written; infinity without one."""
        for message in self.riders.values():
            return message.until - message.span if message.state == LEASED else now.mono
        return math.inf


def ready_state(message: Message) -> MessageState | None:
    """Write down that a message is ready; one that was never tried is plain and needs no row."""
    if not message.attempts:
        return None
    return MessageState(message.seq, KIND_READY, 0, message.attempts, 0, message.history, 0, message.first_at)


def lease_state(message: Message, now: Now) -> MessageState:
    """Write down a lease."""
    until = now.wall_of(message.until)
    return MessageState(
        message.seq, KIND_LEASED, until, message.attempts, message.gen, message.history, message.span, message.first_at
    )
