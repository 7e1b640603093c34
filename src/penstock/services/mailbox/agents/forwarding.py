"""Which topics have dead letters that shall go to another topic. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.services.mailbox.shards.topics import Topic


class ForwardingTopics:
    """Topics for the DeadLetterMover to look at; each is named once, however many of its messages died."""

    __slots__ = ("_topics", "on_change")

    def __init__(self) -> None:
        self._topics: dict[Topic, None] = {}
        self.on_change: Callable[[], None] = lambda: None

    def add(self, topic: Topic) -> None:
        """Name a topic if it sends its dead letters elsewhere and has any."""
        if topic.settings.dead_letter_to is not None and topic.dead:
            self._topics[topic] = None
            self.on_change()

    def take(self) -> list[Topic]:
        """Return the topics that were named since."""
        topics, self._topics = list(self._topics), {}
        return topics
