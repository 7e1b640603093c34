"""Close discipline: whatever owns a socket, file, thread or task is closed by `await close()`, and leaks are found.

`__del__` never blocks, awaits or touches the loop: it says at most that somebody forgot.
"""

from __future__ import annotations

import weakref
from types import TracebackType
from typing import Self

from penstock.kernel.log import Log

_open: weakref.WeakSet[Resource] = weakref.WeakSet()
_log = Log("kernel")


class Resource:
    """Something that must be closed. Subclasses free what they hold in `_release`, once, within a bound."""

    resource_name: str
    _closed: bool = True  # until opened; an object that never opened anything owes no close

    def opened(self, name: str) -> None:
        """Register as open; call when the socket, file, thread or task exists."""
        self.resource_name = name
        self._closed = False
        _open.add(self)

    @property
    def is_closed(self) -> bool:
        """Tell whether nothing is held (any more)."""
        return self._closed

    async def close(self) -> None:
        """Free what is held. Idempotent; bounded by what `_release` bounds itself with."""
        if self._closed:
            return
        self._closed = True
        _open.discard(self)
        await self._release()

    async def _release(self) -> None:
        message = f"{type(self).__name__} opens something but does not say how to release it"
        raise RuntimeError(message)

    async def __aenter__(self) -> Self:
        """Hand out the open resource."""
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        """Close at the end of the block."""
        await self.close()

    def __del__(self) -> None:
        """Say that it was dropped without close(); nothing else is allowed here."""
        if not self._closed:
            _log.debug("dropped_without_close", resource=self.resource_name)


def open_resources() -> list[str]:
    """Name what is open now; the test kit fails a test that leaves anything behind."""
    return sorted(resource.resource_name for resource in _open)
