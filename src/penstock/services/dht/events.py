"""What happened, for whoever listens: the page and the log. Nobody may rely on it for truth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.kernel.errors import Closed, Lagging
from penstock.kernel.log import Log

if TYPE_CHECKING:
    from penstock.kernel.broadcast import Receiver
    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory


class DhtEvent(msgspec.Struct, frozen=True):
    """One event: `contact.added|evicted`, `record.stored|expired`, `ready.changed` or `lookup.done`."""

    name: str
    facts: dict[str, object]


class DhtEvents:
    """The broadcast, and the agent that writes what matters of it to the log."""

    def __init__(self, inventory: Inventory) -> None:
        self.broadcast = inventory.broadcast("events", DhtEvent, producers="core", consumers="event_log, page")
        self._log = Log(inventory.service)

    def say(self, name: str, **facts: object) -> None:
        """Publish an event; ids are cut to what tells nodes apart."""
        short = {
            key: f"{value:064x}"[:12] if key.endswith("_id") and isinstance(value, int) else value
            for key, value in facts.items()
        }
        try:
            self.broadcast.publish(DhtEvent(name, short))
        except Closed:
            return

    async def run(self, child: Child) -> None:
        """Log readiness changes, and warn when events come faster than they are read."""
        receiver = self.broadcast.subscribe()
        child.shutdown.on_drain(self.broadcast.close)
        try:
            await self._read(receiver)
        finally:
            # A place nobody reads from would look like a reader that lags for ever.
            receiver.close()

    async def _read(self, receiver: Receiver[DhtEvent]) -> None:
        while True:
            try:
                event = await receiver.recv()
            except Lagging as lagging:
                self._log.warning("events.lagging", receiver="event_log", lag=lagging.facts.get("skipped"))
            except Closed:
                return
            else:
                log = self._log.info if event.name == "ready.changed" else self._log.debug
                log(f"dht.{event.name}", **event.facts)
