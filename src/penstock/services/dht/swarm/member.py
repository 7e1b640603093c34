"""One node of a swarm: a whole svc-dht with its two listeners, that can be killed, silenced and revived."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from penstock.services.dht.core.ids import to_text
from penstock.services.dht.service import SERVICE, DhtService, DhtSurroundings

if TYPE_CHECKING:
    from penstock.kernel.clock import Clock
    from penstock.services.dht.config import DhtOptions

KILL_S: Final = 0.05


class SwarmMember:
    """Keeps its identity and ports over a kill and a revival."""

    def __init__(self, number: int, options: DhtOptions, around: DhtSurroundings, clock: Clock) -> None:
        """Build the node; nothing runs yet."""
        self.number = number
        self._options = options
        self._around = around
        self._clock = clock
        self.alive = False
        self.silent = False
        self._build()

    def _build(self) -> None:
        inventory = Inventory(SERVICE, self._clock)
        self.service = DhtService(inventory, self._options, self._around)
        self._supervisor = Supervisor(inventory, self.service.children(), self.service.supervision())

    async def start(self) -> None:
        """Start the node; its ports are fixed from then on."""
        await self._supervisor.start()
        self.alive = True
        listener = self._options.listener
        assert listener is not None
        http = self.service.listener
        self._options = replace(
            self._options,
            port=self.service.state.port,
            listener=replace(listener, port=0 if http is None else http.port),
        )

    @property
    def ready(self) -> bool:
        """Tell whether the node has joined."""
        return self.alive and self.service.state.readiness.ready

    def told(self) -> dict[str, object]:
        """Say who the node is and where it is reached."""
        http = self.service.listener
        port = 0 if http is None else http.port
        own, peer = to_text(self.service.state.own), self.service.state.port
        return {"id": own, "rpc": f"127.0.0.1:{peer}", "http": f"127.0.0.1:{port}"}

    async def kill(self) -> None:
        """Reset every connection and stop, without a drain."""
        if not self.alive:
            return
        self.alive = False
        self.service.peer_listener.stop_accepting()
        self.service.pool.cut_all()
        await self._supervisor.drain(KILL_S)
        await self.service.close()

    def blackhole(self) -> None:
        """Leave every connection open, take everything in, and say nothing."""
        self.silent = True
        self.service.pool.fall_silent(silent=True)

    async def revive(self) -> None:
        """Come back as the same node at the same address."""
        if self.alive and self.silent:
            self.silent = False
            self.service.pool.fall_silent(silent=False)
        elif not self.alive:
            self._build()
            await self.start()

    async def stop(self) -> None:
        """End the node, if it runs."""
        await self.kill()
