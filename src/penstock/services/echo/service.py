"""The wiring of svc-echo: what it is made of, as child specs in start order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.kernel.channel import Full
from penstock.kernel.child import Child, ChildSpec, Drain
from penstock.kernel.restart import RestartPolicy
from penstock.kernel.supervisor import SupervisorOptions
from penstock.kernel.worker import Job, JobLoop
from penstock.net.server.listener import Listener
from penstock.net.server.listener_config import listener_options
from penstock.services.echo.routes import EchoIn, EchoJob, EchoOut, EchoRoutes

if TYPE_CHECKING:
    from penstock.kernel.channel import Channel
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.limiter import ByteBudget
    from penstock.services.echo.config import EchoOptions

SERVICE = "svc-echo"


class EchoService:
    """One listener, one bounded `work` channel, a pool of workers."""

    def __init__(self, inventory: Inventory, options: EchoOptions, budget: ByteBudget | None = None) -> None:
        """Declare everything; nothing runs yet."""
        self._inventory = inventory
        self._options = options
        self._work: Channel[EchoJob] = inventory.channel(
            "work", Job, capacity=options.work_capacity, full=Full.REFUSE, producers="listener", consumers="worker"
        )
        routes = EchoRoutes(self._work, chaos=options.chaos)
        self.routes = routes.routes()
        self.listener = Listener(inventory, listener_options(options.listener), self.routes, budget=budget)

    def children(self) -> list[ChildSpec]:
        """List what this service runs, in start order; it stops in reverse."""
        return [
            ChildSpec(
                "worker",
                self._run_worker,
                instances=self._options.workers,
                critical=True,
                drain=Drain.FINISH,
                consumes=(self._work,),
            ),
            # The listener is last: it starts when everything behind it runs, and stops taking work first.
            ChildSpec("listener", self.listener.run, critical=True, drain=Drain.STOP_INTAKE, announces=True),
        ]

    def supervision(self) -> SupervisorOptions:
        """Return how the children are restarted and how long the drain may take."""
        return SupervisorOptions(
            drain_deadline_s=self._options.drain_deadline_s,
            policy=RestartPolicy(escalation=self._options.escalation),
        )

    async def _run_worker(self, child: Child) -> None:
        async def echo(asked: EchoIn) -> EchoOut:
            return await _answer(asked, child)

        await JobLoop("worker", self._work, echo, self._inventory.metrics).run(child.clock.monotonic)


async def _answer(asked: EchoIn, child: Child) -> EchoOut:
    if asked.fault == "raise":
        message = "the caller asked for this failure"
        raise RuntimeError(message)
    if asked.delay_ms:
        await asyncio.sleep(asked.delay_ms / 1000)
    return EchoOut(asked.text, child.index)
