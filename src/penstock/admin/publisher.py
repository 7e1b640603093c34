"""The page publisher: one child makes one snapshot a second for all viewers, and none while there are no viewers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.net.server.core import encode_json

if TYPE_CHECKING:
    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory

TICK_S: Final = 1.0
VIEWERS_MAX: Final = 16
# A stream is ended before its request's deadline; the page comes back by itself.
STREAM_S: Final = 6 * 3600.0
DEADLINE_S: Final = STREAM_S + 60.0


class Publisher:
    """Makes the frames. A slow viewer misses some, because the watch holds only the last one."""

    def __init__(self, inventory: Inventory, snapshot: Callable[[int], dict[str, object]]) -> None:
        """Declare the watch and the places; `snapshot(number)` returns everything the page shows."""
        self.frames = inventory.watch("page", b"", producers="page_publisher", consumers="viewers")
        self.places = inventory.limiter("page_viewers", VIEWERS_MAX)
        self._clock = inventory.clock
        self._snapshot = snapshot
        self._wanted = asyncio.Event()
        self._made_at = float("-inf")
        self.ended = False

    async def run(self, child: Child) -> None:
        """Publish while anybody looks; sleep otherwise."""
        self._made_at = float("-inf")
        forget = child.shutdown.on_drain(self._wanted.set)
        try:
            while not child.shutdown.draining:
                if not self.places.in_use:
                    self._wanted.clear()
                    await self._wanted.wait()
                    continue
                self.publish()
                await child.shutdown.sleep(TICK_S)
        finally:
            forget()

    def publish(self) -> None:
        """Make one frame and hand it to everybody."""
        self._made_at = self._clock.monotonic()
        self.frames.set(as_event("state", self._snapshot(self.frames.version + 1)))

    def open(self, allowed: Callable[[], bool]) -> Viewer:
        """Take a place for one more viewer, or raise `Busy`. Its stream ends when `allowed` returns False."""
        self.places.acquire_or_busy()
        self._wanted.set()
        fresh = self._clock.monotonic() - self._made_at < TICK_S
        return Viewer(
            self, allowed, seen=-1 if fresh else self.frames.version, until=self._clock.monotonic() + STREAM_S
        )

    def end(self) -> None:
        """Tell every viewer that the node is going down, and end the streams."""
        self.ended = True
        if self.places.in_use:
            self.publish()

    def over(self, until: float) -> bool:
        """Tell whether a stream has reached the end of its time."""
        return self._clock.monotonic() >= until


class Viewer:
    """The frames of one stream: each is the newest there is.

    This is a class and not a generator, because a generator that was never started does not run its `finally`.
    """

    def __init__(self, publisher: Publisher, allowed: Callable[[], bool], *, seen: int, until: float) -> None:
        """Hold a place until closed."""
        self._publisher = publisher
        self._allowed = allowed
        self._seen = seen
        self._until = until
        self._open = True
        self._last_words = b""

    def __aiter__(self) -> Viewer:
        """Iterate over itself."""
        return self

    async def __anext__(self) -> bytes:
        """Return the next frame; the first comes at once when there is a fresh one."""
        publisher, frames = self._publisher, self._publisher.frames
        if self._last_words:
            raise StopAsyncIteration
        while frames.version == self._seen and not publisher.ended:
            await frames.wait()
        self._seen = frames.version
        self._last_words = self._farewell()
        if publisher.ended:
            return frames.value + self._last_words
        return self._last_words or frames.value

    def _farewell(self) -> bytes:
        """Return the event that ends a stream, with the reason; empty while it goes on."""
        if self._publisher.ended:
            return as_event("bye", {"why": "stopped"})
        if not self._allowed():
            return as_event("bye", {"why": "signed_out"})
        return as_event("bye", {"why": "renew"}) if self._publisher.over(self._until) else b""

    async def aclose(self) -> None:
        """Give the place back; once."""
        if self._open:
            self._open = False
            self._publisher.places.release()


def as_event(name: str, data: dict[str, object]) -> bytes:
    """Write one server-sent event; JSON has no line ends of its own."""
    return b"event: %b\ndata: %b\n\n" % (name.encode("ascii"), encode_json(data))
