"""The Rebalancer: cuts the slots into another number of shards, without losing or rewriting a message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.kernel.child import Child
from penstock.kernel.log import Log

if TYPE_CHECKING:
    from penstock.kernel.watch import Watch
    from penstock.services.mailbox.state import MailboxParts

_DRAIN_STEP_S = 0.002
# How often to look whether the engine is open again.
_REOPEN_STEP_S = 0.05


class Rebalancer:
    """Watches `ready_shards`; a change stops intake, lets everything drain, rebinds and goes on."""

    def __init__(self, parts: MailboxParts, wanted: Watch[int]) -> None:
        self._state = parts.state
        self._writer = parts.writer
        self._dispatcher = parts.dispatcher
        self._wanted = wanted
        self._log = Log(parts.inventory.service)
        self._rebinds = parts.inventory.metrics.counter("rebalances_total", "Changes of the number of shards.")

    async def run(self, child: Child) -> None:
        """Rebind at each change, until the service drains."""
        changed = asyncio.Event()
        undo = (self._wanted.on_change(changed.set), child.shutdown.on_drain(changed.set))
        try:
            while not child.shutdown.draining:
                if self._wanted.value == len(self._state.shards):
                    await changed.wait()
                    changed.clear()
                elif self._state.ready:
                    await self._rebind(child, self._wanted.value)
                else:
                    await child.shutdown.sleep(_REOPEN_STEP_S)
        finally:
            for forget in undo:
                forget()

    async def _rebind(self, child: Child, shards: int) -> None:
        state = self._state
        began = child.clock.monotonic()
        state.switching = True
        try:
            while not self._dispatcher.quiet:
                await self._writer.flushed()
                if await child.shutdown.sleep(_DRAIN_STEP_S) or not state.ready:
                    return
            state.rebind(shards)
        finally:
            state.switching = False
        self._rebinds.value += 1
        elapsed_ms = round((child.clock.monotonic() - began) * 1000)
        self._log.info("shards.rebound", shards=shards, elapsed_ms=elapsed_ms)
        for topic in list(state.ledger.topics.values()):
            if topic.waiters:
                self._dispatcher.notify(topic)
