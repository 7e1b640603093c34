"""The same promises on the loops that processes really run: asyncio's own and uvloop."""

from __future__ import annotations

import asyncio

import pytest

from penstock.kernel.channel import Channel, Full
from penstock.kernel.child import Child, ChildSpec, Drain
from penstock.kernel.clock import SYSTEM, LoopClock
from penstock.kernel.deadline import Deadline, timeout, use_deadline
from penstock.kernel.errors import Busy, Timeout
from penstock.kernel.inventory import Inventory
from penstock.kernel.lock import Lock
from penstock.kernel.supervisor import Supervisor
from penstock.kernel.worker import Job, JobLoop

asyncio_loop = pytest.mark.real_loop(loop="asyncio")
uvloop_loop = pytest.mark.real_loop(loop="uvloop")


async def _serve_and_drain() -> None:
    """Two hundred jobs, a worker killed in between, a drain: every job has one answer."""
    inventory = Inventory("svc-test")
    channel = inventory.channel("work", Job, capacity=512, full=Full.REFUSE)

    async def handle(value: int) -> int:
        await asyncio.sleep(0)
        return value

    async def work(child: Child) -> None:
        await JobLoop("worker", channel, handle, inventory.metrics).run(child.clock.monotonic)

    spec = ChildSpec("worker", work, instances=2, drain=Drain.FINISH, consumes=(channel,))
    boss = Supervisor(inventory, [spec])
    await boss.start()
    jobs = [Job(n, deadline=Deadline.after(60.0, SYSTEM.monotonic())) for n in range(200)]
    for job in jobs:
        channel.try_send(job)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert boss.kill("worker")
    report = await boss.drain(25.0)

    assert report.clean
    ends = [job.reply.exception() is None for job in jobs]
    assert ends.count(False) <= 1
    assert [job.reply.result() for job, ok in zip(jobs, ends, strict=True) if ok] == [
        n for n, ok in enumerate(ends) if ok
    ]


async def _time_out() -> None:
    """Timers, clipping and a full channel, by the real clock."""
    loop = asyncio.get_running_loop()
    channel: Channel[str] = Channel("route", capacity=1, full=Full.WAIT, wait_s=0.05)
    await channel.send("a")
    began = loop.time()
    with pytest.raises(Timeout, match="send:route"):
        await channel.send("b")
    assert loop.time() - began >= 0.04
    with use_deadline(Deadline.after(0.0, loop.time())), pytest.raises(Timeout):
        async with timeout("rpc", 5.0):
            await asyncio.sleep(10)
    with pytest.raises(Busy):
        channel.try_send("c")
    assert channel.dropped == 2
    assert asyncio.current_task().cancelling() == 0


async def _lock_briefly() -> None:
    lock = Lock("counters", 3)
    for _ in range(100):
        with lock:
            lock.acquired += 0
        await asyncio.sleep(0)
    assert lock.acquired == 100


_SCENARIOS = pytest.mark.parametrize("scenario", [_serve_and_drain, _time_out, _lock_briefly])


def _between(began: float) -> bool:
    """Tell whether the loop's clock is the system's; uvloop reads it once a turn, in whole milliseconds."""
    return began - 0.01 <= LoopClock().monotonic() <= SYSTEM.monotonic() + 0.01


@asyncio_loop
@_SCENARIOS
async def test_on_asyncios_loop(scenario) -> None:
    began = SYSTEM.monotonic()
    await asyncio.sleep(0)
    await scenario()

    assert _between(began)


@uvloop_loop
@_SCENARIOS
async def test_on_uvloop(scenario) -> None:
    began = SYSTEM.monotonic()
    await asyncio.sleep(0)
    await scenario()

    assert _between(began)
