"""The Brownout Sentinel: looks once a second, tells everybody through a watch, and moves the gate of `/readyz`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.kernel.log import Log
from penstock.services.interop.brownout import Brownout, BrownoutState

if TYPE_CHECKING:
    from penstock.kernel.channel import Channel
    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory
    from penstock.services.interop.records import BridgeRecords
    from penstock.services.interop.work import BridgeJob

LOOK_S: Final = 1.0


class BrownoutSentinel:
    """Asks the pure decision with the depth of the work queue, and performs what it says."""

    def __init__(
        self, inventory: Inventory, brownout: Brownout, work: Channel[BridgeJob], records: BridgeRecords
    ) -> None:
        """Declare the watch, the gate and the gauge."""
        self._clock = inventory.clock.monotonic
        self._brownout = brownout
        self._work = work
        self._records = records
        self._log = Log(inventory.service)
        self.watch = inventory.watch("brownout", BrownoutState(), producers="sentinel", consumers="listener, worker")
        self._gate = inventory.health.gate("bridge", is_open=True)
        inventory.health.brownout = self.told
        inventory.metrics.gauge(
            "brownout_active", "1 while puts and large webhooks are shed.",
            read=lambda: float(brownout.state.active), component="bridge",
        )  # fmt: skip

    async def run(self, child: Child) -> None:
        """Look until the service drains."""
        while not await child.shutdown.sleep(LOOK_S):
            self.look()

    def look(self) -> None:
        """Decide once, and tell what changed."""
        self._records.look()
        was_active = self._brownout.state.active
        state = self._brownout.look(self._clock(), self._work.depth / self._work.capacity)
        why = ", ".join(state.reasons)
        self._gate.set(is_open=not state.active, degraded=state.active, why=why)
        if state.active is was_active:
            return
        self.watch.set(state)
        self._records.brownout(active=state.active, reasons=state.reasons)
        self._log.warning("brownout", active=state.active, reasons=why)

    def told(self) -> str:
        """Say what is shed and why; nothing while all is taken."""
        state = self._brownout.state
        return f"puts and webhooks over 64 KiB are shed: {', '.join(state.reasons)}" if state.active else ""
