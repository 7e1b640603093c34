"""Small parts the kernel's tests share: dice that do not roll, and children that tell what happens to them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from penstock.kernel.channel import Channel, Full
from penstock.kernel.child import Child, ChildSpec, Drain
from penstock.kernel.clock import LoopClock
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor, SupervisorOptions
from penstock.kernel.worker import Job, JobLoop


class Loaded:
    """Dice that always show the same number."""

    def __init__(self, face: float = 0.5) -> None:
        self.face = face

    def random(self) -> float:
        return self.face


def now() -> float:
    """Return the virtual time."""
    return asyncio.get_running_loop().time()


def new_inventory(service: str = "svc-test") -> Inventory:
    """Make an inventory on the loop's own time."""
    return Inventory(service, LoopClock())


class Diary:
    """What happened, in order, with the time since the diary was begun."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.times: list[float] = []
        self._began = now()

    def note(self, line: str) -> None:
        self.lines.append(line)
        self.times.append(round(now() - self._began, 6))


def crashing(diary: Diary, *, healthy_s: float = 0.0) -> Callable[[Child], Awaitable[None]]:
    """Make a child that notes each of its runs and then crashes."""

    async def run(child: Child) -> None:
        diary.note(child.name)
        await asyncio.sleep(healthy_s)
        raise ValueError("planted crash")

    return run


def waiting(diary: Diary, name: str) -> ChildSpec:
    """Specify a child that announces itself, then waits for the end."""

    async def run(child: Child) -> None:
        diary.note(f"{name} up")
        child.announce()
        await child.shutdown.wait()
        diary.note(f"{name} down")

    return ChildSpec(name, run, announces=True)


def worker_spec(inventory: Inventory, channel: Channel, handle, **options) -> ChildSpec:
    """Specify a worker that finishes what is in its channel."""

    async def run(child: Child) -> None:
        await JobLoop("worker", channel, handle, inventory.metrics).run(child.clock.monotonic)

    return ChildSpec("worker", run, drain=Drain.FINISH, consumes=(channel,), **options)


def work_channel(inventory: Inventory, capacity: int = 16) -> Channel:
    """Declare the channel of a test's worker."""
    return inventory.channel("work", Job, capacity=capacity, full=Full.REFUSE, producers="listener", consumers="worker")


def supervisor(inventory: Inventory, specs: list[ChildSpec], **options) -> Supervisor:
    """Make a supervisor whose jitter is always the middle of its window."""
    return Supervisor(inventory, specs, SupervisorOptions(**options), rng=Loaded(0.5))


async def turns(count: int = 10) -> None:
    """Let the loop run a few iterations without letting time pass."""
    for _ in range(count):
        await asyncio.sleep(0)
