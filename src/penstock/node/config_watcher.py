"""The Config Watcher: brings a reloaded snapshot to everyone it concerns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from penstock.kernel.log import Log
from penstock.net.listener import CannotBind

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.kernel.child import Child
    from penstock.kernel.watch import Watch

_log = Log("node")


class ConfigWatcher:
    """Waits for a new snapshot and applies it; what cannot be applied is logged, and the old stays."""

    def __init__(self, watch: Watch[Settings], apply: Callable[[Settings], Awaitable[None]]) -> None:
        """Follow `watch`; `apply` does the work."""
        self._watch = watch
        self._apply = apply

    async def run(self, child: Child) -> None:
        """Apply every change until shutdown."""
        changes = self._watch.subscribe()
        changed = asyncio.Event()
        forget = self._watch.on_change(changed.set)
        stop = child.shutdown.on_drain(changed.set)
        try:
            while not child.shutdown.draining:
                await changed.wait()
                changed.clear()
                if not child.shutdown.draining:
                    await self._follow(changes.value)
        finally:
            forget()
            stop()

    async def _follow(self, settings: Settings) -> None:
        try:
            await self._apply(settings)
        except CannotBind as failed:
            _log.error("config.not_applied", reason=str(failed))
