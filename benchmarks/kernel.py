"""The kernel's primitives against asyncio's own, in one run: a report, not a gate.

    python -m benchmarks.kernel [--json] [--seconds N]

Each phase alternates short rounds of ours and the peer's in one task, on channels that hold items, and takes the
median of each. Time is CPU time of this thread: it hardly moves with the neighbours. A missed aim is marked.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import prometheus_client
from rich.console import Console
from rich.table import Table

from penstock.kernel.broadcast import Broadcast
from penstock.kernel.channel import Channel, Full
from penstock.kernel.child import Child, ChildSpec, Drain
from penstock.kernel.inventory import Inventory
from penstock.kernel.metrics import Metrics
from penstock.kernel.supervisor import Supervisor
from penstock.kernel.watch import Watch
from penstock.kernel.worker import Job, JobLoop

RESULTS = Path(__file__).parent / "results" / "kernel.json"
ROUND = 5_000
HELD = 64
console = Console(stderr=True)

Round = Callable[[int], Awaitable[float]] | Callable[[int], float]
"""Does so many operations; tells the CPU seconds they took."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One figure: ours, a peer's, and the aim in nanoseconds (0: reported only)."""

    name: str
    ours: Round
    peer_name: str
    peer: Round
    aim_ns: float = 0.0
    aim_ratio: float = 0.0


@dataclass(frozen=True, slots=True)
class Figure:
    """What a phase measured."""

    name: str
    ours_ns: float
    peer_name: str
    peer_ns: float
    aim_ns: float
    aim_ratio: float

    @property
    def ratio(self) -> float:
        """Return ours by theirs: below 1 is faster."""
        return self.ours_ns / self.peer_ns

    @property
    def met(self) -> bool:
        """Tell whether every aim is met."""
        return (not self.aim_ns or self.ours_ns <= self.aim_ns) and (not self.aim_ratio or self.ratio <= self.aim_ratio)


# --- channels ------------------------------------------------------------------------------------------------------


def _held_channel(capacity: int = 4 * HELD) -> Channel[int]:
    channel: Channel[int] = Channel("bench", capacity=capacity, full=Full.REFUSE)
    for item in range(HELD):
        channel.try_send(item)
    return channel


def _held_queue() -> asyncio.Queue[int]:
    queue: asyncio.Queue[int] = asyncio.Queue(4 * HELD)
    for item in range(HELD):
        queue.put_nowait(item)
    return queue


async def channel_one(count: int) -> float:
    """One item in, one out."""
    channel = _held_channel()
    send, recv = channel.try_send, channel.recv
    began = time.thread_time()
    for item in range(count):
        send(item)
        await recv()
    return time.thread_time() - began


async def queue_one(count: int) -> float:
    """Do the same on asyncio.Queue."""
    queue = _held_queue()
    put, get = queue.put_nowait, queue.get
    began = time.thread_time()
    for item in range(count):
        put(item)
        await get()
    return time.thread_time() - began


async def channel_many(count: int) -> float:
    """64 items in, taken out in one step."""
    channel = _held_channel()
    send, batch = channel.try_send, range(HELD)
    began = time.thread_time()
    for _ in range(count // HELD):
        for item in batch:
            send(item)
        await channel.recv_many(HELD)
    return time.thread_time() - began


async def queue_many(count: int) -> float:
    """Do the same on asyncio.Queue, which knows no batch."""
    queue = _held_queue()
    put, batch = queue.put_nowait, range(HELD)
    began = time.thread_time()
    for _ in range(count // HELD):
        for item in batch:
            put(item)
        for _ in batch:
            await queue.get()
    return time.thread_time() - began


# --- broadcast and watch --------------------------------------------------------------------------------------------


def publish_idle(count: int) -> float:
    """Publish while a receiver listens but does not wait."""
    broadcast: Broadcast[int] = Broadcast("bench")
    broadcast.subscribe()
    publish = broadcast.publish
    began = time.thread_time()
    for item in range(count):
        publish(item)
    return time.thread_time() - began


def put_idle(count: int) -> float:
    """Put on a queue nobody waits for."""
    queue: asyncio.Queue[int] = asyncio.Queue(count)
    put = queue.put_nowait
    began = time.thread_time()
    for item in range(count):
        put(item)
    return time.thread_time() - began


async def _fan_out(count: int, publish: Callable[[int], object], readers: list[Awaitable[None]]) -> float:
    tasks = [asyncio.ensure_future(reader) for reader in readers]
    await asyncio.sleep(0)
    began = time.thread_time()
    for item in range(count // 10):
        publish(item)
        await asyncio.sleep(0)
    elapsed_s = time.thread_time() - began
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    return elapsed_s * 10


async def publish_parked(count: int) -> float:
    """Publish to eight receivers that wait, and let them run."""
    broadcast: Broadcast[int] = Broadcast("bench")

    async def read() -> None:
        receiver = broadcast.subscribe()
        while True:
            await receiver.recv()

    return await _fan_out(count, broadcast.publish, [read() for _ in range(8)])


async def put_parked(count: int) -> float:
    """Do the same with eight queues."""
    queues: list[asyncio.Queue[int]] = [asyncio.Queue(HELD) for _ in range(8)]

    async def read(queue: asyncio.Queue[int]) -> None:
        while True:
            await queue.get()

    def put(item: int) -> None:
        for queue in queues:
            queue.put_nowait(item)

    return await _fan_out(count, put, [read(queue) for queue in queues])


def watch_set(count: int) -> float:
    """Replace a watched value."""
    watch = Watch("bench", 0)
    set_value = watch.set
    began = time.thread_time()
    for item in range(count):
        set_value(item)
    return time.thread_time() - began


def event_set(count: int) -> float:
    """Set and clear an asyncio.Event."""
    event = asyncio.Event()
    began = time.thread_time()
    for _ in range(count):
        event.set()
        event.clear()
    return time.thread_time() - began


# --- counters -------------------------------------------------------------------------------------------------------


def counter_ours(count: int) -> float:
    """Increment a declared counter as hot paths do."""
    counter = Metrics("bench").counter("bench_total", "Bench.", queue="work")
    began = time.thread_time()
    for _ in range(count):
        counter.value += 1
    return time.thread_time() - began


def counter_prometheus(count: int) -> float:
    """Increment the peer's counter with its label already chosen."""
    registry = prometheus_client.CollectorRegistry()
    counter = prometheus_client.Counter("bench", "Bench.", ["queue"], registry=registry).labels("work")
    began = time.thread_time()
    for _ in range(count):
        counter.inc()
    return time.thread_time() - began


# --- workers --------------------------------------------------------------------------------------------------------


async def _handle(value: int) -> int:  # noqa: RUF029 a handler is a coroutine function
    return value


async def _feed(channel: Channel[Job[int, int]], count: int) -> float:
    """Send jobs in batches and wait for each batch: senders and worker share the loop, as in a service."""
    began = time.thread_time()
    for _ in range(count // HELD):
        jobs: list[Job[int, int]] = [Job(value) for value in range(HELD)]
        for job in jobs:
            channel.try_send(job)
        await jobs[-1].reply
    return time.thread_time() - began


async def worker_supervised(count: int) -> float:
    """Jobs through a worker that a supervisor keeps."""
    inventory = Inventory("bench")
    channel = inventory.channel("work", Job, capacity=2 * HELD, full=Full.REFUSE)

    async def run(child: Child) -> None:
        await JobLoop("worker", channel, _handle, inventory.metrics).run(child.clock.monotonic)

    boss = Supervisor(inventory, [ChildSpec("worker", run, drain=Drain.FINISH, consumes=(channel,))])
    await boss.start()
    elapsed_s = await _feed(channel, count)
    await boss.drain()
    return elapsed_s


async def worker_alone(count: int) -> float:
    """Jobs through the same worker in a plain task."""
    inventory = Inventory("bench")
    channel = inventory.channel("work", Job, capacity=2 * HELD, full=Full.REFUSE)
    loop = JobLoop("worker", channel, _handle, inventory.metrics)
    task = asyncio.ensure_future(loop.run(time.monotonic))
    elapsed_s = await _feed(channel, count)
    channel.close()
    await task
    return elapsed_s


async def worker_bare(count: int) -> float:
    """Futures through asyncio.Queue and a loop written by hand, without deadline, corr_id or boundary."""
    queue: asyncio.Queue[tuple[int, asyncio.Future[int]]] = asyncio.Queue(2 * HELD)
    make_future = asyncio.get_running_loop().create_future

    async def work() -> None:
        while True:
            value, reply = await queue.get()
            reply.set_result(await _handle(value))

    task = asyncio.ensure_future(work())
    began = time.thread_time()
    for _ in range(count // HELD):
        replies = [make_future() for _ in range(HELD)]
        for value, reply in enumerate(replies):
            queue.put_nowait((value, reply))
        await replies[-1]
    elapsed_s = time.thread_time() - began
    task.cancel()
    await asyncio.wait([task])
    return elapsed_s


PHASES = (
    Phase("try_send + recv", channel_one, "asyncio.Queue", queue_one, aim_ns=600, aim_ratio=1.0),
    Phase("item through recv_many(64)", channel_many, "asyncio.Queue", queue_many, aim_ns=1000),
    Phase("publish, nobody parked", publish_idle, "asyncio.Queue put", put_idle, aim_ns=1000),
    Phase("publish to 8 parked", publish_parked, "8 asyncio.Queues", put_parked),
    Phase("watch set", watch_set, "asyncio.Event", event_set),
    Phase("counter increment", counter_ours, "prometheus_client inc", counter_prometheus, aim_ns=100),
    Phase("job, supervised worker", worker_supervised, "same worker alone", worker_alone, aim_ratio=1.05),
    Phase("job, worker alone", worker_alone, "hand-written loop", worker_bare),
)


async def _once(round_of: Round) -> float:
    """Run one round; return nanoseconds for each operation."""
    told = round_of(ROUND)
    return (told if isinstance(told, float) else await told) / ROUND * 1e9


async def measure(phase: Phase, seconds: float) -> Figure:
    """Alternate rounds of both for so long; the median of each counts."""
    until = time.monotonic() + seconds
    ours: list[float] = []
    peers: list[float] = []
    while len(ours) < 5 or time.monotonic() < until:
        ours.append(await _once(phase.ours))
        peers.append(await _once(phase.peer))
    return Figure(phase.name, median(ours), phase.peer_name, median(peers), phase.aim_ns, phase.aim_ratio)


def table(figures: list[Figure]) -> Table:
    """Lay the figures out."""
    view = Table(title="kernel")
    for column in ("what", "ns", "a second", "against", "their ns", "ratio", "aim"):
        view.add_column(column, justify="left" if column in ("what", "against", "aim") else "right")
    for figure in figures:
        aims = [f"<= {figure.aim_ns:g} ns"] * bool(figure.aim_ns) + [f"<= {figure.aim_ratio:g}x"] * bool(
            figure.aim_ratio
        )
        mark = "" if not aims else "[green]met[/] " if figure.met else "[red]missed[/] "
        row = (figure.name, f"{figure.ours_ns:.0f}", f"{1e9 / figure.ours_ns:,.0f}", figure.peer_name)
        view.add_row(*row, f"{figure.peer_ns:.0f}", f"{figure.ratio:.2f}", mark + ", ".join(aims))
    return view


def main() -> None:
    """Run all phases, show them, and keep the figures."""
    parser = argparse.ArgumentParser(description="The kernel's primitives against asyncio's own.")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON instead of a table")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each phase runs")
    options, _ = parser.parse_known_args()
    figures = []
    for phase in PHASES:
        figure = asyncio.run(measure(phase, options.seconds))
        console.print(f"{figure.name}: {figure.ours_ns:.0f} ns, {figure.peer_name} {figure.peer_ns:.0f} ns")
        figures.append(figure)
    told = [{**asdict(figure), "ratio": figure.ratio, "met": figure.met} for figure in figures]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(told, indent=2) + "\n")
    if options.json:
        print(json.dumps(told, indent=2))
    else:
        Console().print(table(figures))


if __name__ == "__main__":
    main()
