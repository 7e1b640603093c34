"""What a shard wants to read from the disk, and what it has to remember while that is under way. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from penstock.services.mailbox.read_tracker import ReadTracker
from penstock.services.mailbox.topics import KeyQueue, Lane, Topic


@dataclass(frozen=True, slots=True, eq=False)
class ReadRequest:
    """What shall be read: more of a lane, the next of a key, heads of unknown keys, or delays that are over."""

    kind: Literal["window", "key", "keys", "due"]
    # When it began, in its shard's words.
    generation: int
    topic: Topic | None = None
    lane: Lane | None = None
    key: str = ""


class PendingReads:
    """The reads of a shard: what it asks for, what is under way, and what happens meanwhile."""

    def __init__(self) -> None:
        """Start with nothing to read."""
        # The earliest delay that is on the disk only.
        self.disk_due = math.inf
        self.wanted: list[ReadRequest] = []
        # Topics in which something became deliverable, or stopped being under way.
        self.woken: dict[Topic, None] = {}
        self.readers = ReadTracker()

    def want_window(self, lane: Lane) -> None:
        """Ask for more of a lane."""
        if not lane.loading:
            lane.loading, lane.missed = True, False
            self._want(ReadRequest("window", self.readers.begin(), lane.topic, lane))

    def want_keys(self, topic: Topic) -> None:
        """Ask for the heads of keys that have no line yet."""
        if not topic.keys_loading:
            topic.keys_loading = True
            if not topic.keys_cursor:
                topic.keys_missed = False
            self._want(ReadRequest("keys", self.readers.begin(), topic))

    def want_due(self) -> None:
        """Ask for delays that are over and lie on the disk."""
        self.disk_due = math.inf
        self._want(ReadRequest("due", self.readers.begin()))

    def _want_key(self, lane: Lane, key: str, line: KeyQueue) -> None:
        if not line.loading:
            line.loading, line.missed = True, False
            self._want(ReadRequest("key", self.readers.begin(), lane.topic, lane, key))

    def retry_keys(self, lane: Lane) -> None:
        """Ask again for keys whose read failed."""
        stalled, lane.stalled = lane.stalled, []
        for key in stalled:
            line = lane.keys.get(key)
            if line is not None and line.head is None:
                self._want_key(lane, key, line)

    def _want(self, load: ReadRequest) -> None:
        if load.topic is not None:
            load.topic.pending += 1
        self.wanted.append(load)

    def load_ended(self, load: ReadRequest) -> None:
        """Note that a read came back, well or not."""
        self.readers.end(load.generation)
        if load.topic is not None:
            load.topic.pending -= 1
            self.woken[load.topic] = None
