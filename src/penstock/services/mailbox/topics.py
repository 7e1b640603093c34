"""What RAM holds of a topic: its counts, who waits for it, and each shard's lane with its window of messages. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from penstock.services.mailbox.backlog import Backlog
from penstock.services.mailbox.ids import make_msg_id, slot_of
from penstock.services.mailbox.rows import History, MessageRow, chain_start

if TYPE_CHECKING:
    from penstock.services.mailbox.waiters import Waiter

READY: Final = 0
LEASED: Final = 1
DELAYED: Final = 2
SETTLING: Final = 3
"""Its end of lease is on its way to the disk; nobody may have or settle it meanwhile."""
WRITTEN: Final = -1.0
"""The `until` of a ready message that was leased or delayed once: that it is over, the disk knows."""


class Topic:
    """One topic over all shards."""

    __slots__ = (
        "acks", "bytes", "chain_start", "dead", "delayed", "id", "incoming", "inflight", "key_backlog", "lanes", "living",
        "name", "pending", "recvs", "sends", "slot", "turn", "waiters",
    )  # fmt: skip

    def __init__(self, number: int, name: str) -> None:
        """Start empty."""
        self.id = number
        self.name = name
        self.slot = slot_of(name, None)
        self.chain_start = chain_start(name)
        self.living = 0
        # Messages on their way to the disk.
        self.incoming = 0
        self.inflight = 0
        self.delayed = 0
        self.dead = 0
        self.bytes = 0
        # Keys that have messages on the disk but no queue in RAM; its cursor is the key that the scan has come to.
        self.key_backlog = Backlog()
        # Loads and ends of lease under way: while there are any, an empty answer could be wrong.
        self.pending = 0
        self.lanes: dict[int, Lane] = {}
        self.turn = 0
        self.waiters: deque[Waiter] = deque()
        self.sends = self.recvs = self.acks = 0


class KeyQueue:
    """The unsettled messages of one key: the first is the only one that may be delivered."""

    __slots__ = ("backlog", "followers", "head", "released")

    def __init__(self, head: Message | None) -> None:
        """Begin with its first message."""
        self.head = head
        self.followers: deque[Message] = deque()
        # Followers that only the disk has.
        self.backlog = Backlog()
        # The last one that was settled: what comes next is read from behind it.
        self.released = 0


class Lane:
    """One shard's part of a topic: a window of deliverable messages, in order of seq."""

    __slots__ = ("backlog", "keys", "ready", "stalled", "tail", "topic", "used")

    def __init__(self, topic: Topic) -> None:
        """Start with an empty window."""
        self.topic = topic
        # A heap of seqs; an entry whose message is no longer READY is skipped when it comes up.
        self.ready: list[int] = []
        self.keys: dict[str, KeyQueue] = {}
        # Un-keyed messages up to here were in the window; the backlog says whether there are others beyond.
        self.tail = 0
        self.backlog = Backlog()
        # Keys whose next messages could not be read; the next receiver asks again.
        self.stalled: list[str] = []
        # When (monotonic ms) somebody last received from it: the longest ago gives up its place in RAM first.
        self.used = 0.0


class Message:
    """A message in RAM, without its payload. Its shard alone changes it."""

    __slots__ = (
        "acking", "attempts", "bare", "expires", "gen", "history", "key", "lane", "nonce", "owner", "receipt", "seq", "size", "slot", "span",
        "state", "ts", "until",
    )  # fmt: skip

    def __init__(self, row: MessageRow, lane: Lane) -> None:
        """Take what is needed of a stored row."""
        self.seq = row.seq
        self.lane = lane
        self.key = row.key
        self.slot = row.slot
        self.ts = row.ts
        self.nonce = row.nonce
        self.size = row.left_bytes or len(row.payload)
        self.expires = row.expires
        self.state = READY
        # Monotonic milliseconds: leased or delayed until then.
        self.until = 0.0
        self.span = 0
        self.attempts = 0
        self.gen = 0
        self.receipt = ""
        self.history: History = ()
        # True while it is certain that the disk has no state row of it: there is nothing to take away with it then.
        self.bare = False
        # The end that is on its way to the disk is an ack: repeating it is fine.
        self.acking = False
        # The stream whose credit this lease uses, if any.
        self.owner: Any = None

    @property
    def msg_id(self) -> str:
        """Name the message."""
        return make_msg_id(self.ts, self.seq, self.slot, self.nonce)
