"""The config watcher: the one place that reloads. It reads, swaps the snapshot, and applies it to the services."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.config import ConfigFaults, ReloadState
from penstock.kernel.bus import ConfigUpdated
from penstock.kernel.channel import Full
from penstock.kernel.errors import Busy, Closed
from penstock.kernel.log import Log
from penstock.kernel.worker import Job, JobLoop

if TYPE_CHECKING:
    from penstock.config import Reloaded, Reloader, Settings
    from penstock.kernel.broadcast import Broadcast
    from penstock.kernel.bus import KernelEvent
    from penstock.kernel.channel import Channel
    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.snapshot import Snapshot

_log = Log("node")


@dataclass(frozen=True, slots=True)
class ReloadOutcome:
    """What a reload changed, and what could not be applied: that keeps its old state until a later reload succeeds."""

    reloaded: Reloaded
    failed: tuple[str, ...]


class ConfigWatcher:
    """Handles requests to reload, one after the other: from a signal, the admin listener or the bus."""

    def __init__(
        self,
        inventory: Inventory,
        reloader: Reloader,
        settings: Snapshot[Settings],
        bus: Broadcast[KernelEvent],
        apply: Callable[[Settings], Awaitable[list[str]]],
    ) -> None:
        """Declare the channel; `apply` applies settings to the services and returns what could not be applied."""
        self.requests: Channel[Job[str, ReloadOutcome]] = inventory.channel(
            "reload", Job, capacity=8, full=Full.REFUSE, producers="listener", consumers="config_watcher"
        )
        self._metrics = inventory.metrics
        self._errors = inventory.metrics.counter("config_reload_errors_total")
        self._reloader = reloader
        self._settings = settings
        self._bus = bus
        self._apply = apply
        self.state = ReloadState()

    def request(self, cause: str) -> asyncio.Future[ReloadOutcome]:
        """Ask for a reload; the future holds its outcome, or the faults of the configuration."""
        job: Job[str, ReloadOutcome] = Job(cause)
        self.requests.try_send(job)
        return job.reply

    def ask(self, cause: str) -> None:
        """Ask for a reload and do not wait; one too many is dropped, because an earlier one will do."""
        with suppress(Busy, Closed):
            self.request(cause)

    async def run(self, child: Child) -> None:
        """Work until the channel is closed and empty."""
        await JobLoop("config_watcher", self.requests, self._reload, self._metrics).run(child.clock.monotonic)

    async def _reload(self, cause: str) -> ReloadOutcome:
        try:
            done = self._reloader.reload()
        except ConfigFaults as faults:
            _log.error("config.refused", cause=cause, faults=str(faults))
            self.state = replace(self.state, count=self.state.count + 1, faults=tuple(map(str, faults.faults)))
            raise
        # Applied even when nothing changed: what failed last time may work now.
        failed = await self._apply(self._settings.value)
        self._errors.value += len(failed)
        if done.changed:
            self._bus.publish(ConfigUpdated(self._settings.version))
        self.state = ReloadState(self.state.count + 1, done.held, tuple(failed))
        _report(cause, done, failed)
        return ReloadOutcome(done, tuple(failed))


def _report(cause: str, done: Reloaded, failed: list[str]) -> None:
    changed = {change.key: f"{change.old} -> {change.new}" for change in done.changed}
    _log.info("config.reloaded", cause=cause, changed=changed, waits_for_restart=[change.key for change in done.held])
    for reason in failed:
        _log.error("config.not_applied", reason=reason)
