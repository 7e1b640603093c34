"""What RAM holds of a topic: its counts, who waits for it, and each shard's lane with its window of messages. Pure."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.contracts.mailbox import TopicSettings
from penstock.services.mailbox.ids import SLOT_FORM, make_msg_id, slot_of
from penstock.services.mailbox.rows import History, MessageRow, chain_start
from penstock.services.mailbox.shards.backlog import Backlog
from penstock.services.mailbox.shards.topic_names import TopicNames

if TYPE_CHECKING:
    from penstock.services.mailbox.waiters import Waiter

READY: Final = 0
LEASED: Final = 1
DELAYED: Final = 2
SETTLING: Final = 3
"""Its end of lease is on its way to the disk; nobody may have or settle it meanwhile."""

ACK: Final = 1
PURGE: Final = 2
RETURN: Final = 3
"""How a message that is SETTLING ends when its commit is done: acked, removed, or back to be delivered again."""

WRITTEN: Final = -1.0
"""The `until` of a ready message that was leased or delayed once, when the disk knows that this is over."""

NO_SETTINGS: Final = TopicSettings()
_RATE_WINDOW_S: Final = 60.0
_RATE_STEP_S: Final = 5.0
_RATE_SLICE: Final = 500
# Samples of a topic are this far apart at least: a few are enough, and there may be very many topics.
_RATE_APART_S: Final = 14.0


class Topic:
    """One topic over all shards."""

    __slots__ = (
        "acks", "bytes", "chain_start", "claimed_until", "configured", "dead", "delayed", "form", "generation",
        "group_backlog", "id", "incoming", "inflight", "key_backlog", "lanes", "living", "name", "pending", "recvs",
        "sampled", "samples", "sends", "settings", "slot", "tenant", "turn", "waiters",
    )  # fmt: skip

    def __init__(self, number: int, name: str, form: int = SLOT_FORM) -> None:
        self.id = number
        self.name = name
        # By which rule its messages get their slots, and that of its un-keyed ones.
        self.form = form
        self.slot = slot_of(name, None, form)
        # Its own settings, or NO_SETTINGS; `configured` says that it has some, even if they say nothing.
        self.settings = NO_SETTINGS
        self.configured = False
        # Part of the names of its claims on idem_keys; the time (Unix ms) of its last purge, 0 if there was none.
        self.generation = 0
        # Until then (Unix ms) claims on idem_keys of the topic may be in their window.
        self.claimed_until = 0.0
        self.chain_start = chain_start(name)
        # Who was first seen sending to it in this life; None: nobody yet, or nobody is asked for a token.
        self.tenant: str | None = None
        self.living = 0
        # Messages on their way to the disk.
        self.incoming = 0
        self.inflight = 0
        self.delayed = 0
        self.dead = 0
        self.bytes = 0
        # Keys that have messages on the disk but no queue in RAM; its cursor is the key that the scan has come to.
        self.key_backlog = Backlog()
        # The same of groups that have no line in RAM.
        self.group_backlog = Backlog()
        # Reads and ends of lease under way: while there are any, an empty answer could be wrong.
        self.pending = 0
        self.lanes: dict[int, Lane] = {}
        # How many receivers asked, so that each begins with another shard.
        self.turn = 0
        self.waiters: deque[Waiter] = deque()
        self.sends = self.recvs = self.acks = 0
        # When (monotonic s) it was sampled, and these three counts then; the oldest first. Kept by `TopicRates`.
        self.samples: list[tuple[float, int, int, int]] = []
        # How much of these three the sampler of the busiest topics has seen; it alone moves this.
        self.sampled = 0


class KeyQueue:
    """The unsettled messages of one key: the first is the only one that may be delivered."""

    __slots__ = ("backlog", "followers", "head", "released")

    def __init__(self, head: Message | None, *, more: bool = False) -> None:
        """Begin with its first message; `more` when the disk may have others."""
        self.head = head
        self.followers: deque[Message] = deque()
        # Followers that only the disk has.
        self.backlog = Backlog(more=more)
        # The last one that was settled: what comes next is read from behind it.
        self.released = 0

    @property
    def last(self) -> int:
        """Return the seq behind which the disk is read."""
        if self.followers:
            return self.followers[-1].seq
        return self.released if self.head is None else self.head.seq


class GroupLine:
    """The un-keyed messages of one group: those in RAM that are ready, in order of seq, and whether the disk has more.

    `ready` is only used where the topic is fair; otherwise all groups share the lane's own heap.
    """

    __slots__ = ("backlog", "ready", "tail")

    def __init__(self, *, more: bool = False) -> None:
        """Begin with nothing; `more` when the disk may have messages."""
        self.ready: list[int] = []
        # As in `Lane`.
        self.tail = 0
        self.backlog = Backlog(more=more)


class Lane:
    """One shard's part of a topic: a window of deliverable messages, in order of seq."""

    __slots__ = ("backlog", "hungry", "keys", "lines", "ready", "stalled", "tail", "topic", "turns", "used")

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        # A heap of seqs; an entry whose message is no longer READY is skipped when it comes up.
        self.ready: list[int] = []
        self.keys: dict[str, KeyQueue] = {}
        # Un-keyed messages up to here were in the window; the backlog says whether there are others beyond.
        self.tail = 0
        self.backlog = Backlog()
        # Keys whose next messages could not be read; the next receiver asks again.
        self.stalled: list[str] = []
        # Groups that have something in RAM while the topic is fair, or something that only the disk has.
        self.lines: dict[str, GroupLine] = {}
        # The lines that have something ready, in the order of their turns; "" is the lane's own heap.
        self.turns: dict[str, None] = {}
        # Lines that the disk has more of, and that nobody reads.
        self.hungry: dict[str, None] = {}
        # When (monotonic ms) somebody last received from it. Eviction begins with the longest ago.
        self.used = 0.0

    @property
    def busy(self) -> bool:
        """Tell whether a receiver could get something here, now or after a read."""
        return bool(self.ready or self.stalled or self.backlog.unread or self.turns or self.hungry)

    @property
    def oldest(self) -> float:
        """Return the seq of what was ready first, about: it may have been taken since. Infinite when nothing is."""
        return self.ready[0] if self.ready else inf

    def line(self, group: str) -> GroupLine:
        """Return the line of a group; a new one may have more on the disk where not all groups were read."""
        line = self.lines.get(group)
        if line is None:
            line = self.lines[group] = GroupLine(more=self.topic.group_backlog.more)
            if line.backlog.more:
                self.hungry[group] = None
        return line

    def drop_line(self, group: str) -> None:
        """Forget a line that has nothing in RAM and no more on the disk."""
        line = self.lines.get(group)
        if line is not None and not (line.ready or line.backlog.more or line.backlog.reading):
            del self.lines[group]
            self.hungry.pop(group, None)


class Message(msgspec.Struct, eq=False):
    """A message in RAM, without its payload. A struct, because one is made for every message."""

    seq: int
    lane: Lane
    key: str | None
    slot: int
    ts: int
    nonce: int
    size: int
    expires: int | None
    # True while the disk certainly has no state row of it: then there is none to delete with the message.
    bare: bool = False
    state: int = READY
    # Monotonic milliseconds: leased or delayed until then.
    until: float = 0.0
    span: int = 0
    attempts: int = 0
    gen: int = 0
    receipt: str = ""
    history: History = ()
    # While SETTLING: how it ends.
    ending: int = 0
    # The stream whose credit this lease uses, if any.
    owner: Any = None
    group: str | None = None
    # When (Unix ms) it was delivered for the first time; 0: never.
    first_at: int = 0

    @classmethod
    def of(cls, row: MessageRow, lane: Lane, *, bare: bool = False) -> Message:
        """Take what is needed of a stored row."""
        return cls(row.seq, lane, row.key, row.slot, row.ts, row.nonce, row.size, row.expires, bare, group=row.group)

    @property
    def msg_id(self) -> str:
        """Name the message."""
        return make_msg_id(self.ts, self.seq, self.slot, self.nonce)


class TopicRates:
    """Messages a second over the last minute, from samples of the topics' counts.

    Every few seconds a round begins in which every topic is sampled, a slice of them with each call.
    """

    def __init__(self) -> None:
        # When each of the last rounds began.
        self._rounds: deque[float] = deque()
        # The name that the round under way has come to.
        self._after: str | None = None

    def sample(self, topics: dict[str, Topic], names: TopicNames, now_s: float) -> None:
        """Note the counts of the next topics, if a round is due or under way."""
        if self._after is None:
            if self._rounds and now_s - self._rounds[-1] < _RATE_STEP_S:
                return
            self._begin(now_s)
        some = names.page(self._after or "", "", _RATE_SLICE)
        for name in some:
            topic = topics[name]
            if topic.sends or topic.recvs or topic.acks:
                self._note(topic, now_s)
        self._after = some[-1] if len(some) == _RATE_SLICE else None

    def _begin(self, now_s: float) -> None:
        self._after = ""
        self._rounds.append(now_s)
        while len(self._rounds) > 2 and now_s - self._rounds[1] >= _RATE_WINDOW_S:
            self._rounds.popleft()

    def _note(self, topic: Topic, now_s: float) -> None:
        samples = topic.samples
        if not samples:
            # Whatever it has done, it did since the oldest round.
            samples.append((self._rounds[0], 0, 0, 0))
        elif now_s - samples[-1][0] < _RATE_APART_S:
            return
        samples.append((now_s, topic.sends, topic.recvs, topic.acks))
        while len(samples) > 2 and now_s - samples[1][0] >= _RATE_WINDOW_S:
            del samples[0]

    def of(self, topic: Topic, now_s: float) -> tuple[float, float, float]:
        """Return the rates of one topic up to now: sent, received, acked."""
        if not self._rounds:
            return 0.0, 0.0, 0.0
        since, *before = topic.samples[0] if topic.samples else (self._rounds[0], 0, 0, 0)
        seconds = max(1.0, now_s - since)
        now = (topic.sends, topic.recvs, topic.acks)
        sent, received, acked = (round(max(0, n - b) / seconds, 3) for n, b in zip(now, before, strict=True))
        return sent, received, acked
