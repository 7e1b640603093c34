"""A small service under random load, bad jobs, impatient clients and kills: every admitted job has one answer."""

from __future__ import annotations

import asyncio
import random

import pytest

from penstock.kernel.child import Child, ChildSpec, Drain
from penstock.kernel.deadline import Deadline, timeout
from penstock.kernel.errors import Busy, Malformed, NotReady
from penstock.kernel.supervisor import Supervisor, SupervisorOptions
from penstock.kernel.worker import Job, JobLoop
from tests.kernel.kit import new_inventory, now, work_channel


class Storm:
    """Random clients and a random operator against two workers."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.inventory = new_inventory()
        self.channel = work_channel(self.inventory, capacity=8)
        self.jobs: list[Job] = []
        self.withdrawn: set[Job] = set()
        self.worked: list[int] = []
        self.refused = self.kills = 0
        spec = ChildSpec("worker", self.work, instances=2, drain=Drain.FINISH, consumes=(self.channel,))
        self.boss = Supervisor(self.inventory, [spec], SupervisorOptions(drain_deadline_s=30.0), rng=self.rng)

    async def work(self, child: Child) -> None:
        await JobLoop("worker", self.channel, self.handle, self.inventory.metrics).run(child.clock.monotonic)

    async def handle(self, value: int) -> int:
        async with timeout("work", 0.4):
            await asyncio.sleep(self.rng.choice([0.0, 0.01, 0.05, 0.5]))
        self.worked.append(value)
        match value % 7:
            case 0:
                raise ZeroDivisionError("planted")
            case 1:
                raise Malformed("planted")
        return value

    async def rage(self, seconds: float) -> None:
        until = now() + seconds
        while now() < until:
            await asyncio.sleep(self.rng.random() * 0.05)
            match self.rng.randrange(60):
                case 0:
                    self.kills += self.boss.kill("worker")
                case 1 | 2 | 3 if self.jobs:
                    job = self.rng.choice(self.jobs[-4:])
                    if job.withdraw():
                        self.withdrawn.add(job)
                case _:
                    self.send()

    def send(self) -> None:
        job: Job = Job(len(self.jobs), deadline=Deadline.after(self.rng.choice([0.02, 5.0]), now()))
        try:
            self.channel.try_send(job)
        except (Busy, NotReady):
            self.refused += 1
        else:
            self.jobs.append(job)


@pytest.mark.parametrize("seed", range(25))
async def test_every_admitted_job_has_exactly_one_end(seed) -> None:
    storm = Storm(seed)
    await storm.boss.start()
    await storm.rage(8.0)
    report = await storm.boss.drain()

    assert report.clean
    assert all(job.reply.done() for job in storm.jobs)
    assert {job for job in storm.jobs if job.reply.cancelled()} == storm.withdrawn
    assert len(storm.worked) == len(set(storm.worked)), "a job was worked twice"
    assert storm.channel.dropped == storm.refused
    codes = [job.reply.exception().code for job in storm.jobs if not job.reply.cancelled() and job.reply.exception()]
    planted = sum(value % 7 == 0 for value in storm.worked)
    assert codes.count("internal") <= storm.kills + planted


async def test_the_storm_is_a_storm() -> None:
    """The random service does meet what it is meant to meet."""
    storms = [Storm(seed) for seed in range(4)]
    for storm in storms:
        await storm.boss.start()
        await storm.rage(8.0)
        await storm.boss.drain()

    assert all(storm.kills and storm.refused and storm.withdrawn for storm in storms)
    assert all(len(storm.worked) > 50 for storm in storms)
