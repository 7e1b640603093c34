"""Small worlds of the kernel's own parts: a channel whose senders wait, a line of places, a pool, restarts and a drain.

Each lets somebody be cancelled, killed or stopped at any moment, and demands that nothing is lost and nobody waits for
what will never come.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial

from penstock import weave
from penstock.kernel.channel import Channel, Full
from penstock.kernel.child import Child, ChildSpec, Drain
from penstock.kernel.clock import LoopClock
from penstock.kernel.errors import Busy, Closed, PenstockError, Timeout
from penstock.kernel.inventory import Inventory
from penstock.kernel.log import Log
from penstock.kernel.metrics import Metrics
from penstock.kernel.pool import Pool
from penstock.kernel.restart import RestartPolicy
from penstock.kernel.supervisor import Supervisor, SupervisorOptions
from penstock.kernel.worker import Job, JobLoop
from penstock.sdk.joining.place_line import PlaceLine
from tests.models.drain_model import Middle

IGNORES = (Metrics, Inventory, Log, ChildSpec, RestartPolicy, SupervisorOptions, Executor)


async def waiting_senders(happens: str) -> list[int]:
    """Two senders wait for room; one is cancelled, or the channel closes: what was sent arrives, once, in order."""
    channel: Channel[int] = Channel("work", capacity=1, full=Full.WAIT, wait_s=1.0)
    sent: list[int] = [0]
    got: list[int] = []
    channel.try_send(0)

    async def send(number: int) -> None:
        with suppress(Closed, Timeout):
            await channel.send(number)
            sent.append(number)

    async def receive() -> None:
        with suppress(Closed):
            while True:
                got.append(await channel.recv())

    senders = [asyncio.ensure_future(send(number)) for number in (1, 2)]
    receiver = asyncio.ensure_future(receive())
    weave.event(senders[0].cancel if happens == "cancel" else channel.close)
    await asyncio.wait(senders)
    channel.close()
    await receiver
    assert got == sent, f"sent {sent}, received {got}"
    assert happens == "close" or 2 in got, "a sender that nobody cancelled gave up"
    return got


async def waiting_receivers() -> list[int]:
    """Two receivers wait, one is cancelled at any moment, and an item comes: one that still waits gets it."""
    channel: Channel[int] = Channel("work", capacity=1, full=Full.REFUSE)
    receivers = [asyncio.ensure_future(channel.recv()) for _ in range(2)]
    weave.event(receivers[0].cancel)
    weave.event(channel.try_send, 1)
    done, _ = await asyncio.wait(receivers, return_when=asyncio.FIRST_COMPLETED)
    if all(task.cancelled() for task in done):
        await receivers[1]
    got = [task.result() for task in receivers if task.done() and not task.cancelled()]
    channel.close()
    for task in receivers:
        task.cancel()
    await asyncio.wait(receivers)
    assert got == [1], f"received {got}"
    return got


async def line_of_places() -> int:
    """Three ask for one place; the second is cancelled at any moment: never two inside, and no place is lost."""
    line = PlaceLine("calls", 1, waiting_max=2)
    inside: list[int] = []
    weave.always(lambda: len(inside) <= 1, "one inside")

    async def visit(number: int) -> None:
        await line.take()
        inside.append(number)
        try:
            await asyncio.sleep(0)
        finally:
            inside.remove(number)
            line.give()

    visits = [asyncio.ensure_future(visit(number)) for number in range(3)]
    weave.event(visits[1].cancel)
    await asyncio.wait(visits)
    assert [visit.cancelled() for visit in visits] in ([False] * 3, [False, True, False])
    await line.take()
    return line._in_use


async def pool_of_threads() -> list[str]:
    """Two calls on a pool with one place; one caller leaves at any moment: the place comes back, once."""
    pool = Pool("disk", threads=1, capacity=1)

    async def ask(number: int) -> str:
        try:
            return str(await pool.run("read", 1.0, lambda: number))
        except (Busy, Timeout) as error:
            return type(error).__name__

    callers = [asyncio.ensure_future(ask(number)) for number in range(2)]
    weave.event(callers[0].cancel)
    await asyncio.wait(callers)
    # A call that was given up on holds its place until its thread returns.
    await asyncio.sleep(5)
    assert (pool.depth, pool.stuck) == (0, 0), "a place is lost"
    await pool.close()
    return ["cancelled" if caller.cancelled() else caller.result() for caller in callers]


async def restarts(happens: tuple[str, ...], *, jobs: int = 2) -> str:
    """A worker is killed at any moment, and the service stops at any moment: every accepted job is answered."""
    inventory = Inventory("svc-model", LoopClock())
    channel: Channel[Job[int, int]] = inventory.channel("work", Job, capacity=4, full=Full.REFUSE)

    async def handle(number: int) -> int:
        await asyncio.sleep(0)
        return number

    async def work(child: Child) -> None:
        await JobLoop("worker", channel, handle, inventory.metrics).run(child.clock.monotonic)

    async def listen(child: Child) -> None:
        await child.shutdown.wait()
        child.quiet()
        await child.shutdown.stopped()

    specs = [
        ChildSpec("worker", work, drain=Drain.FINISH, consumes=(channel,)),
        ChildSpec("listener", listen, drain=Drain.STOP_INTAKE),
    ]
    boss = Supervisor(inventory, specs, SupervisorOptions(drain_deadline_s=3.0), rng=Middle())
    with weave.still():
        await boss.start()
    asked = [Job[int, int](number) for number in range(jobs)]
    for job in asked:
        channel.try_send(job)
    stop = asyncio.get_running_loop().create_future()
    for what in happens:
        weave.event(partial(boss.kill, what) if what != "stop" else partial(stop.set_result, None))
    if "stop" in happens:
        await stop
    else:
        await asyncio.wait([job.reply for job in asked])
    report = await boss.drain()
    assert report.clean, f"cut off: {report.aborted}"
    assert all(job.reply.done() for job in asked), "a job was never answered"
    return ", ".join(told(job) for job in asked)


def told(job: Job[int, int]) -> str:
    """Tell how a job was answered."""
    error = None if job.reply.cancelled() else job.reply.exception()
    return type(error).__name__ if isinstance(error, PenstockError) else "done"
