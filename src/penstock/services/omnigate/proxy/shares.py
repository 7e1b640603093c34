"""How many of a route's upstream connections slow clients may hold, each and all together. Pure.

An upload holds a connection from its first byte to its last, at its client's pace. A client beyond its share has its
upload received in full first, and the connection is taken only then. A streamed answer holds its connection as long as
its client reads; a client that keeps half of all connections waiting gets no further one.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Protocol

_UPLOADS_EACH: Final = 8
_UPLOADS_ALL: Final = 2
_STALLED_EACH: Final = 2


class StreamTaker(Protocol):
    """The receiver of a streamed answer."""

    @property
    def is_parked(self) -> bool:
        """Tell whether it keeps its connection waiting."""


class TenantShares:
    """The uploads and streams of one route by tenant; a tenant without any is not remembered."""

    __slots__ = ("_streams", "_uploads", "stalled_max", "uploading", "uploads_max", "uploads_max_each")

    def __init__(self, connections_max: int) -> None:
        """Cut the connections of all the route's upstreams into shares, at least one each."""
        self.uploads_max = max(1, connections_max // _UPLOADS_ALL)
        self.uploads_max_each = max(1, connections_max // _UPLOADS_EACH)
        self.stalled_max = max(1, connections_max // _STALLED_EACH)
        self.uploading = 0
        self._uploads: dict[Hashable, int] = {}
        self._streams: dict[Hashable, set[StreamTaker]] = {}

    def begin_upload(self, key: Hashable) -> bool:
        """Tell whether an upload may hold a connection while it arrives; after True, call `end_upload` at its end."""
        own = self._uploads.get(key, 0)
        if own >= self.uploads_max_each or self.uploading >= self.uploads_max:
            return False
        self._uploads[key] = own + 1
        self.uploading += 1
        return True

    def end_upload(self, key: Hashable) -> None:
        """Count an upload as over: complete, or given up."""
        self.uploading -= 1
        self._uploads[key] -= 1
        if not self._uploads[key]:
            del self._uploads[key]

    def begin_stream(self, key: Hashable, taker: StreamTaker) -> None:
        """Count an answer that is streamed to its client."""
        self._streams.setdefault(key, set()).add(taker)

    def end_stream(self, key: Hashable, taker: StreamTaker) -> None:
        """Take it out again."""
        takers = self._streams[key]
        takers.discard(taker)
        if not takers:
            del self._streams[key]

    def may_ask(self, key: Hashable) -> bool:
        """Tell whether a tenant may have another connection: only few of its streams wait for it to read."""
        takers = self._streams.get(key)
        if takers is None or len(takers) < self.stalled_max:
            return True
        return sum(taker.is_parked for taker in takers) < self.stalled_max
