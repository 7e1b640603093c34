"""The supervisor beyond its named checks: instances, probation, metrics, events, kills at every step."""

from __future__ import annotations

import asyncio

import pytest

from penstock.kernel.broadcast import Broadcast
from penstock.kernel.bus import ServiceCrashed
from penstock.kernel.channel import Channel, Full
from penstock.kernel.child import Child, ChildSpec, ChildState, Drain
from penstock.kernel.errors import NotReady, Timeout
from penstock.kernel.restart import Restart, RestartPolicy
from penstock.kernel.supervisor import Supervisor, SupervisorOptions
from penstock.kernel.worker import Job
from penstock.testing.sweep import Run, sweep
from tests.kernel.kit import (
    Diary,
    Loaded,
    crashing,
    new_inventory,
    now,
    supervisor,
    turns,
    waiting,
    work_channel,
    worker_spec,
)


async def test_a_child_that_never_announces_fails_the_start_by_its_deadline() -> None:
    async def silent(child: Child) -> None:
        await child.shutdown.wait()

    boss = supervisor(new_inventory(), [ChildSpec("listener", silent, announces=True)], start_deadline_s=4.0)

    with pytest.raises(Timeout, match="start:listener"):
        await boss.start()
    assert now() == pytest.approx(1004.0)
    assert boss.children[0].task.done()


async def test_a_cancelled_start_leaves_nothing_running() -> None:
    async def silent(child: Child) -> None:
        await child.shutdown.wait()

    boss = supervisor(new_inventory(), [waiting(Diary(), "a"), ChildSpec("b", silent, announces=True)])
    starting = asyncio.create_task(boss.start())
    await asyncio.sleep(1)
    starting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await starting
    assert all(child.task.done() for child in boss.children)


async def test_a_stop_during_the_start_ends_the_start() -> None:
    async def slow(child: Child) -> None:
        await child.shutdown.wait()

    boss = supervisor(new_inventory(), [ChildSpec("listener", slow, announces=True)])
    starting = asyncio.create_task(boss.start())
    await asyncio.sleep(1)
    await boss.drain()

    with pytest.raises(RuntimeError, match="before it announced"):
        await starting
    assert now() == pytest.approx(1001.0)


async def test_instances_are_named_counted_and_restarted_one_by_one() -> None:
    diary, inventory = Diary(), new_inventory()

    async def work(child: Child) -> None:
        diary.note(child.name)
        await child.shutdown.wait()

    boss = supervisor(inventory, [ChildSpec("worker", work, instances=3)])
    await boss.start()
    await turns()
    assert boss.kill("worker[1]")
    await asyncio.sleep(1)

    assert diary.lines == ["worker[0]", "worker[1]", "worker[2]", "worker[1]"]
    assert [child.restarts for child in boss.children] == [0, 1, 0]
    assert inventory.metrics.value("tasks_spawned_total", kind="worker") == 4
    await boss.drain()
    assert inventory.metrics.value("tasks_canceled_total", kind="worker") == 3


async def test_two_kills_in_one_turn_are_one_and_the_child_comes_back() -> None:
    boss = supervisor(new_inventory(), [waiting(Diary(), "worker")])
    await boss.start()
    await turns()

    assert [boss.kill("worker"), boss.kill("worker")] == [True, False]
    await asyncio.sleep(1)
    assert (boss.children[0].restarts, boss.children[0].state) == (1, ChildState.RUNNING)
    await boss.drain()


@pytest.mark.parametrize("ending", ["raises", "returns"])
async def test_a_kill_that_ends_in_another_way_does_not_make_the_next_kill_final(ending: str) -> None:
    endings = [ending, "cancelled", "cancelled"]

    async def work(child: Child) -> None:
        try:
            await child.shutdown.wait()
        except asyncio.CancelledError:  # lint: allow PK013 a child that ends in another way is what is tested
            how = endings.pop(0)
            if how == "raises":
                raise RuntimeError("the cleanup failed") from None
            if how == "cancelled":
                raise

    boss = supervisor(new_inventory(), [ChildSpec("worker", work, policy=RestartPolicy(restart=Restart.PERMANENT))])
    await boss.start()
    await turns()
    for kills in (1, 2, 3):
        assert boss.kill("worker")
        await asyncio.sleep(60)

        assert (boss.children[0].restarts, boss.children[0].state) == (kills, ChildState.RUNNING)
    await boss.drain()


async def test_killing_what_is_not_there_is_no() -> None:
    boss = supervisor(new_inventory(), [ChildSpec("worker", crashing(Diary()))])
    await boss.start()
    assert not boss.kill("worker"), "it has not begun to run"
    await asyncio.sleep(30)

    assert boss.children[0].state is ChildState.QUARANTINED
    assert not boss.kill("worker")
    assert not boss.kill("nobody")
    await boss.drain()


async def test_a_temporary_child_is_not_restarted() -> None:
    diary = Diary()
    policy = RestartPolicy(restart=Restart.TEMPORARY)
    boss = supervisor(new_inventory(), [ChildSpec("once", crashing(diary), policy=policy)])
    await boss.start()
    await asyncio.sleep(100)

    assert diary.lines == ["once"]
    assert boss.children[0].state is ChildState.FINISHED
    await boss.drain()


async def test_a_crash_is_an_event_and_a_line_in_the_inventory() -> None:
    bus: Broadcast = Broadcast("events")
    receiver, inventory = bus.subscribe(), new_inventory()
    boss = Supervisor(
        inventory, [ChildSpec("worker", crashing(Diary()))], SupervisorOptions(), bus=bus, rng=Loaded(0.5)
    )
    await boss.start()

    assert await receiver.recv() == ServiceCrashed("svc-test", "worker", "ValueError")
    (row,) = inventory.rows()["tasks"]
    assert row["last_error"] == "ValueError: planted crash"
    await boss.drain()


async def test_the_backoff_starts_anew_after_a_minute_of_health() -> None:
    diary = Diary()
    boss = supervisor(new_inventory(), [ChildSpec("worker", crashing(diary, healthy_s=61.0))])
    await boss.start()
    await asyncio.sleep(61.05 * 8 + 1)

    gaps = [b - a for a, b in zip(diary.times, diary.times[1:], strict=False)]
    assert len(gaps) == 8
    assert gaps == pytest.approx([61.05] * 8)
    await boss.drain()


async def test_a_retried_child_is_on_probation_before_its_gate_opens() -> None:
    inventory = new_inventory()
    channel = work_channel(inventory)
    runs = []

    async def heals(child: Child) -> None:
        runs.append(now())
        if len(runs) <= 6:
            raise ValueError("planted crash")
        await child.shutdown.wait()

    boss = supervisor(inventory, [ChildSpec("worker", heals, consumes=(channel,))])
    await boss.start()
    await asyncio.sleep(30)
    assert boss.children[0].state is ChildState.QUARANTINED
    await asyncio.sleep(runs[5] + 60 + 1 - now())
    assert boss.children[0].state is ChildState.PROBATION
    assert not inventory.health.verdict().ready
    with pytest.raises(NotReady):
        channel.try_send(Job("x"))
    await asyncio.sleep(5)

    assert boss.children[0].state is ChildState.RUNNING
    assert inventory.health.verdict().ready
    channel.try_send(Job("x"))
    await boss.drain()


async def test_a_channel_somebody_still_serves_is_not_suspended() -> None:
    inventory = new_inventory()
    channel = work_channel(inventory)

    async def first_is_broken(child: Child) -> None:
        if child.index == 0:
            raise ValueError("planted crash")
        await child.shutdown.wait()

    boss = supervisor(inventory, [ChildSpec("worker", first_is_broken, instances=2, consumes=(channel,))])
    await boss.start()
    await asyncio.sleep(30)

    assert [child.state for child in boss.children] == [ChildState.QUARANTINED, ChildState.RUNNING]
    channel.try_send(Job("x"))
    verdict = inventory.health.verdict()
    assert (verdict.missing, verdict.degraded) == (("worker",), ("worker",))
    await boss.drain()


async def test_each_shard_has_its_own_channel_and_only_the_dead_one_refuses() -> None:
    inventory = new_inventory()
    shards: list[Channel] = [
        inventory.channel("work", Job, capacity=4, full=Full.REFUSE, producers="l", consumers="w", shard=shard)
        for shard in range(2)
    ]

    async def first_is_broken(child: Child) -> None:
        if child.index == 0:
            raise ValueError("planted crash")
        await child.shutdown.wait()

    spec = ChildSpec("worker", first_is_broken, instances=2, consumes=lambda index: (shards[index],))
    boss = supervisor(inventory, [spec])
    await boss.start()
    await asyncio.sleep(30)

    with pytest.raises(NotReady):
        shards[0].try_send(Job("x"))
    shards[1].try_send(Job("x"))
    assert inventory.health.verdict().missing == ("worker",)
    await boss.drain()


async def test_quarantined_work_is_done_by_the_next_run() -> None:
    inventory = new_inventory()
    channel = work_channel(inventory)
    jobs = [Job(n) for n in range(3)]
    for job in jobs:
        channel.try_send(job)
    crashes = list(range(6))

    async def handle(value: int) -> int:
        return value + 1

    spec = worker_spec(inventory, channel, handle)

    async def fragile(child: Child) -> None:
        if crashes:
            crashes.pop()
            raise ValueError("planted crash")
        await spec.run(child)

    boss = supervisor(inventory, [ChildSpec("worker", fragile, drain=Drain.FINISH, consumes=(channel,))])
    await boss.start()
    await asyncio.sleep(30)
    assert not any(job.reply.done() for job in jobs)
    await asyncio.sleep(60)

    assert [job.reply.result() for job in jobs] == [1, 2, 3]
    await boss.drain()


async def test_a_drain_does_not_wait_for_a_quarantine_to_end() -> None:
    boss = supervisor(new_inventory(), [ChildSpec("worker", crashing(Diary()))])
    await boss.start()
    await asyncio.sleep(30)
    report = await boss.drain()

    assert (report.clean, report.elapsed_s) == (True, 0.0)


def test_a_worker_killed_at_any_step_loses_no_job() -> None:
    """Every job is answered (by a result, or internal when it was in the worker's hands), at whatever step it dies."""

    async def scenario(run: Run[list[str]]) -> list[str]:
        inventory = new_inventory()
        channel = work_channel(inventory)

        async def handle(value: int) -> str:
            await asyncio.sleep(0.01)
            return "done"

        boss = supervisor(inventory, [worker_spec(inventory, channel, handle)])
        await boss.start()
        jobs = [Job(n) for n in range(4)]
        for job in jobs:
            channel.try_send(job)

        async def watch_and_kill() -> None:
            try:
                await asyncio.wait([job.reply for job in jobs])
            except asyncio.CancelledError:
                boss.kill("worker")
                raise

        run.start(watch_and_kill())
        await run.ended()
        report = await boss.drain()
        assert report.clean
        return [job.reply.exception().code if job.reply.exception() else job.reply.result() for job in jobs]

    steps = sweep(scenario, check=lambda ends: set(ends) <= {"done", "internal"} and ends.count("internal") <= 1)

    assert steps > 8


def test_a_drain_cancelled_at_any_step_can_be_asked_for_again() -> None:
    async def scenario(run: Run[bool]) -> bool:
        diary = Diary()
        boss = supervisor(new_inventory(), [waiting(diary, name) for name in "ab"])
        await boss.start()
        run.start(boss.drain())
        await run.ended()
        await boss.drain()
        return all(child.task.done() for child in boss.children)

    sweep(scenario, check=lambda ended: ended)


async def test_a_crash_during_probation_leads_back_to_quarantine_for_good() -> None:
    runs: list[float] = []

    async def relapse(child: Child) -> None:
        runs.append(now())
        await asyncio.sleep(1.0 if len(runs) > 6 else 0.0)
        raise ValueError("planted crash")

    inventory = new_inventory()
    boss = supervisor(inventory, [ChildSpec("worker", relapse)])
    await boss.start()
    await asyncio.sleep(30)
    await asyncio.sleep(runs[5] + 60 + 10 - now())

    assert len(runs) == 7
    assert boss.children[0].state is ChildState.QUARANTINED, "the time of an ended probation counted"
    assert not inventory.health.verdict().ready
    await boss.drain()


async def test_an_abort_in_the_middle_of_a_crash_leaves_no_scope_running() -> None:
    async def linger() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            await asyncio.sleep(0.1)

    async def work(child: Child) -> None:
        for kind in ("first", "second"):
            child.scope(kind, 1).start(linger())
        await asyncio.sleep(1)
        raise ValueError("planted crash")

    inventory = new_inventory()
    boss = supervisor(inventory, [ChildSpec("worker", work)])
    await boss.start()
    await asyncio.sleep(1.05)
    boss.children[0].task.cancel()
    await asyncio.sleep(0.2)

    assert boss.children[0].task.cancelled()
    assert inventory.metrics.value("tasks_aborted_total", kind="second") == 1
