"""The drain of the kernel as a small program: a listener, a bounded channel, workers, and a stop at any moment.

Everything but the listener's own body is the kernel's code: `Channel`, `Job`, `JobLoop`, `Supervisor` and its drain.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial

from penstock import weave
from penstock.kernel.channel import Channel, Full
from penstock.kernel.child import Child, ChildSpec, Drain
from penstock.kernel.clock import LoopClock
from penstock.kernel.errors import Busy, Closed
from penstock.kernel.inventory import Inventory
from penstock.kernel.log import Log
from penstock.kernel.metrics import Metrics
from penstock.kernel.restart import RestartPolicy
from penstock.kernel.supervisor import Supervisor, SupervisorOptions
from penstock.kernel.worker import Job, JobLoop

IGNORES = (Metrics, Inventory, Log, ChildSpec, RestartPolicy, SupervisorOptions)
"""They count, list and log, or never change; nothing of the future depends on them."""

DEADLINE_S = 3.0


class Middle:
    """Dice that always show the middle."""

    def random(self) -> float:
        return 0.5


@dataclass
class World:
    """What the model keeps count of."""

    jobs: int
    workers: int
    capacity: int = 2
    accepted: list[int] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)

    def view(self, channel: Channel, boss: Supervisor) -> dict[str, object]:
        """Show the state in the words of Drain.tla."""
        waiting = tuple(job.value for job in channel._items)
        phase = boss.phase.value.value
        return {
            "offered": len(self.accepted) + len(self.refused),
            "accepted": set(self.accepted),
            "queue": waiting,
            "taken": set(self.accepted) - set(waiting) - set(self.finished),
            "finished": set(self.finished),
            "phase": "closed" if channel.closed and phase == "draining" else phase,
        }

    async def listen(self, channel: Channel, child: Child) -> None:
        """Offer one job after the other until asked to stop."""
        for number in range(self.jobs):
            if child.shutdown.draining:
                break
            self.accepted.append(number)
            try:
                channel.try_send(Job(number))
            except (Busy, Closed):
                self.refused.append(self.accepted.pop())
            await asyncio.sleep(0)
        child.quiet()
        await child.shutdown.stopped()

    async def handle(self, number: int) -> int:
        """Do a job, which takes a turn of the loop."""
        await asyncio.sleep(0)
        self.finished.append(number)
        # The worker takes its next job in the same step of the loop.
        weave.shown()
        return number

    async def work(self, channel: Channel, inventory: Inventory, child: Child) -> None:
        """Work as the kernel's workers do."""
        await JobLoop("worker", channel, self.handle, inventory.metrics).run(child.clock.monotonic)

    async def work_as_the_seeds_wrote(self, channel: Channel, child: Child) -> None:
        """Select over shutdown and the channel, and break on shutdown: the planted bug."""
        while True:
            receiving = asyncio.ensure_future(channel.recv())
            stopping = asyncio.ensure_future(child.shutdown.wait())
            await asyncio.wait({receiving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                receiving.cancel()
                return
            stopping.cancel()
            self.finished.append(receiving.result().value)


async def drain(jobs: int, workers: int, *, planted: bool = False, refuses: bool = False) -> tuple[int, int]:
    """Start, stop at any moment, and demand that what was accepted is finished within the deadline."""
    world = World(jobs, workers)
    inventory = Inventory("svc-model", LoopClock())
    channel = inventory.channel("work", Job, capacity=world.capacity, full=Full.REFUSE)
    work = partial(world.work_as_the_seeds_wrote, channel) if planted else partial(world.work, channel, inventory)
    specs = [
        ChildSpec("worker", work, instances=workers, drain=Drain.FINISH, consumes=(channel,)),
        ChildSpec("listener", partial(world.listen, channel), drain=Drain.STOP_INTAKE),
    ]
    boss = Supervisor(inventory, specs, SupervisorOptions(drain_deadline_s=DEADLINE_S), rng=Middle())
    boss.phase.on_change(weave.shown)
    weave.view(lambda: world.view(channel, boss))
    weave.always(lambda: channel.depth <= world.capacity, "the channel is bounded")
    if refuses:
        weave.sometimes("a job is refused", lambda: bool(world.refused))
    stop = asyncio.get_running_loop().create_future()
    weave.event(stop.set_result, None)
    await boss.start()
    await stop
    report = await boss.drain()
    assert report.clean, f"cut off: {report.aborted}"
    assert sorted(world.finished) == world.accepted, f"accepted {world.accepted}, finished {world.finished}"
    return len(world.accepted), len(world.refused)
