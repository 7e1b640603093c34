"""Readiness that flips before collapse: writes are shed first, and reads are served as long as they can be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from penstock.kernel.errors import Closed, Lagging
from penstock.kernel.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.kernel.broadcast import Broadcast, Receiver
    from penstock.kernel.bus import KernelEvent
    from penstock.kernel.child import Child
    from penstock.kernel.health import Gate as HealthGate
    from penstock.kernel.inventory import Inventory

LOOK_S: Final = 0.25
# Below this part of free places the queue is said to be nearly full; it has to recover to the other before it is not.
HEADROOM_LOW: Final = 0.125
HEADROOM_CLEAR: Final = 0.25


class GateStatus(Protocol):
    """As much of the gate as readiness needs."""

    degraded: bool

    @property
    def headroom(self) -> float:
        """Return the free part of the fullest class queue of verified callers."""

    @property
    def scarce(self) -> list[str]:
        """Name the classes that take no writes because they are nearly full."""


class Readiness:
    """Looks four times a second at the queue, the keys and what is behind, and moves the gates of `/readyz`.

    A queue without headroom shuts its gate: a balancer stops sending. A service behind that does not answer makes the
    gateway degraded: it stays ready, and requests that change something are refused first. An upstream of a configured
    route that does not answer is told too, but costs only its own route, where the breaker refuses.
    """

    def __init__(
        self,
        inventory: Inventory,
        admitting: GateStatus,
        behind: Mapping[str, Callable[[], bool]],
        upstreams: Callable[[], Mapping[str, bool]] = dict,
        *,
        events: Broadcast[KernelEvent] | None = None,
    ) -> None:
        """Watch the gate, for each service behind whether it is well, and the upstreams of configured routes.

        Between two looks, whatever `events` tells of is looked at.
        """
        health = inventory.health
        self._events = events
        self._log = Log(inventory.service)
        self._admitting = admitting
        self._behind = behind
        self._upstreams = upstreams
        self.unreached: list[str] = []
        """Upstreams that could not be dialled when last tried; no call has to fail before that is told."""
        self.ill: list[str] = []
        """Services behind that do not answer, as of the last look."""
        health.brownout = self.brownout
        self._headroom = health.gate("queue_headroom", is_open=True)
        self._downstreams = health.gate("downstreams", is_open=True)
        self._passport = health.gate("passport", is_open=True)
        self.reload: HealthGate = health.gate("reload", is_open=True)
        self.config: HealthGate = health.gate("config", is_open=True)
        inventory.metrics.gauge(
            "readyz_degraded", "1 while writes are shed.", read=lambda: 1.0 if admitting.degraded else 0.0
        )

    async def run(self, child: Child) -> None:
        """Look until the service drains."""
        if self._events is None:
            await self._look_on(child)
            return
        receiver = self._events.subscribe()
        listening = child.scope("readiness", 1).start(self._listen(receiver))
        try:
            await self._look_on(child)
        finally:
            listening.cancel()
            receiver.close()

    async def _look_on(self, child: Child) -> None:
        while not await child.shutdown.sleep(LOOK_S):
            self.look()

    async def _listen(self, receiver: Receiver[KernelEvent]) -> None:
        """Look when something was told; who lags looks too, because the truth is in the state and not in the event."""
        while True:
            try:
                await receiver.recv()
            except Lagging as lagging:
                self._log.warning("bus.lagged", subscriber="readiness", bus="events", lost=lagging.skipped)
            except Closed:
                return
            self.look()

    def look(self) -> None:
        """Judge once."""
        self._judge_headroom()
        ill = self.ill = sorted(name for name, is_well in self._behind.items() if not is_well())
        issuer_ill = "svc-passport" in ill
        self._passport.set(is_open=True, degraded=issuer_ill, why="last good keys" if issuer_ill else "")
        # One that could not be dialled is named with its address; its route is not named once more.
        ill_routes = sorted(name for name, is_well in self._upstreams().items() if not is_well)
        dialled = [name for name in ill_routes if not any(each.startswith(f"{name} (") for each in self.unreached)]
        down = [*self.unreached, *dialled]
        self._downstreams.set(is_open=True, degraded=bool(ill or down), why=", ".join([*ill, *down]))
        self._admitting.degraded = bool(ill)

    def brownout(self) -> str:
        """Say what is shed and why; nothing while all is taken."""
        said = [f"writes are shed: {', '.join(self.ill)} does not answer"] if self._admitting.degraded else []
        full = self._admitting.scarce
        said += [f"writes of {', '.join(full)} are shed: the class is nearly full"] if full else []
        return "; ".join(said)

    def _judge_headroom(self) -> None:
        free = self._admitting.headroom
        if self._headroom.open and free < HEADROOM_LOW:
            self._headroom.set(is_open=False, why=f"{free:.0%} of the fullest class queue is free")
        elif not self._headroom.open and free >= HEADROOM_CLEAR:
            self._headroom.set(is_open=True)
