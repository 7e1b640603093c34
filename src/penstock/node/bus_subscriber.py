"""The bus subscriber: acts on events that concern the whole node."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.kernel.bus import ConfigUpdated, ShutdownRequested
from penstock.kernel.errors import Lagging
from penstock.kernel.log import Log

if TYPE_CHECKING:
    from penstock.kernel.broadcast import Broadcast
    from penstock.kernel.bus import KernelEvent
    from penstock.kernel.child import Child

_log = Log("node")


class BusSubscriber:
    """Stops the node on `Shutdown`, and has the configuration read again when somebody knows of a newer version."""

    def __init__(
        self,
        bus: Broadcast[KernelEvent],
        *,
        stop: Callable[[], None],
        reload: Callable[[str], None],
        version: Callable[[], int],
    ) -> None:
        """Take what to do on each of the two events, and the version in force."""
        self._bus = bus
        self._stop = stop
        self._reload = reload
        self._version = version

    async def run(self, child: Child) -> None:
        """Listen until the service drains."""
        events = self._bus.subscribe()
        # Waiting for an event ends by an event: the drain is one too.
        forget = child.shutdown.on_drain(self._say_drain)
        try:
            while not child.shutdown.draining:
                try:
                    self._act(await events.recv())
                except Lagging as lost:
                    _log.warning("bus.lagging", skipped=lost.skipped)
        finally:
            forget()
            events.close()

    def _say_drain(self) -> None:
        self._bus.publish(ShutdownRequested("drain"))

    def _act(self, event: KernelEvent) -> None:
        if isinstance(event, ShutdownRequested):
            self._stop()
        elif isinstance(event, ConfigUpdated) and event.version > self._version():
            self._reload("bus")
