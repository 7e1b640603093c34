"""Whether a queue has more messages on the disk than RAM holds of it. Pure.

RAM holds the front of every queue, the disk holds all of it. Three kinds of queue have to know whether there is more:
a lane (its un-keyed messages), the queue of a key (the followers of its head), and a topic (keys that have no queue
in RAM yet). Each has one `Backlog`:

```
                    stored_beyond                      want
   RAM has all  ---------------------->  more  --------------------->  more, a read is under way
        ^                                  ^                                    |
        |  arrived(exhausted=True)         |  arrived(exhausted=False), failed  |
        +----------------------------------+------------------------------------+
```

A message that is stored while a read is under way, and that RAM does not take, may or may not be among what the read
brings: `stored_beyond` remembers that it was `missed`, so that even a read which reaches the end leaves `more` set.
"""

from __future__ import annotations


class Backlog:
    """What is known about the rest of one queue."""

    __slots__ = ("cursor", "missed", "more", "reading")

    def __init__(self, *, more: bool = False) -> None:
        """Begin with everything in RAM, or with `more` on the disk."""
        self.more = more
        # A read is under way; there is never a second one.
        self.reading = False
        # Something was stored beyond since the read, or the scan of several reads, began.
        self.missed = False
        # Where the next read of a scan goes on; empty at its start, and always for a queue that is read from its tail.
        self.cursor = ""

    @property
    def unread(self) -> bool:
        """Tell whether there is more, and nobody reads it."""
        return self.more and not self.reading

    def want(self) -> bool:
        """Begin a read: True tells the caller to make it, False that one is under way already."""
        if self.reading:
            return False
        self.reading = True
        if not self.cursor:
            self.missed = False
        return True

    def stored_beyond(self) -> None:
        """Note that a message was stored, or given up by RAM, which only the disk has now."""
        self.more = self.missed = True

    def arrived(self, *, exhausted: bool, cursor: str = "") -> None:
        """Note what a read brought: everything up to the end, or a part that ends at `cursor`."""
        self.reading = False
        self.cursor = "" if exhausted else cursor
        self.more = self.missed or not exhausted

    def failed(self) -> None:
        """Note that a read brought nothing: whoever wants more has to ask again."""
        self.reading = False
        self.more = True
