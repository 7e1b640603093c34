"""The end of a service and of a node: what is not among the named checks."""

from __future__ import annotations

import asyncio

import pytest

from penstock.kernel.channel import Full
from penstock.kernel.child import Child, ChildSpec, Drain
from penstock.kernel.errors import Closed
from penstock.kernel.lifecycle import Phase
from penstock.kernel.metrics import Metrics
from penstock.kernel.restart import Escalation, RestartPolicy
from penstock.kernel.root import Root, Staged
from penstock.kernel.supervisor import Supervisor, SupervisorOptions
from penstock.kernel.worker import Job
from tests.kernel.kit import (
    Diary,
    Loaded,
    crashing,
    new_inventory,
    now,
    supervisor,
    waiting,
    work_channel,
    worker_spec,
)


async def test_queued_jobs_are_finished_although_the_worker_is_slow() -> None:
    inventory = new_inventory()
    channel = work_channel(inventory)

    async def handle(value: int) -> int:
        await asyncio.sleep(0.2)
        return value

    boss = supervisor(inventory, [worker_spec(inventory, channel, handle)], drain_deadline_s=3.0)
    await boss.start()
    jobs = [Job(n) for n in range(10)]
    for job in jobs:
        channel.try_send(job)
    report = await boss.drain()

    assert report.clean
    assert report.elapsed_s == pytest.approx(2.0)
    assert [job.reply.result() for job in jobs] == list(range(10))
    with pytest.raises(Closed):
        channel.try_send(Job("late"))


async def test_jobs_cut_at_the_deadline_in_hand_or_queued_are_answered_with_canceled() -> None:
    inventory = new_inventory()
    channel = work_channel(inventory)

    async def handle(value: int) -> None:
        await asyncio.sleep(60)

    boss = supervisor(inventory, [worker_spec(inventory, channel, handle)], drain_deadline_s=1.0)
    await boss.start()
    in_hand, queued = jobs = [Job(1), Job(2)]
    for job in jobs:
        channel.try_send(job)
    report = await boss.drain()

    assert report.aborted == ("worker",)
    assert in_hand.reply.exception().code == "canceled"
    assert queued.reply.exception().code == "canceled"
    assert channel.depth == 0
    assert inventory.metrics.value("tasks_aborted_total", kind="worker") == 1


async def test_a_writer_behind_the_workers_gets_all_they_sent() -> None:
    """Stop in reverse: the channel into the writer is closed only when every worker has ended."""
    inventory = new_inventory()
    work = work_channel(inventory)
    written: list[int] = []
    route = work_channel_named(inventory, "route")

    async def handle(value: int) -> int:
        await asyncio.sleep(0.1)
        route.try_send(value)
        return value

    async def write(child: Child) -> None:
        try:
            while True:
                written.extend(await route.recv_many(4))
                await asyncio.sleep(0.05)
        except Closed:
            return

    writer = ChildSpec("writer", write, drain=Drain.FINISH, consumes=(route,))
    boss = supervisor(inventory, [writer, worker_spec(inventory, work, handle, instances=2)])
    await boss.start()
    for n in range(12):
        work.try_send(Job(n))
    report = await boss.drain()

    assert report.clean
    assert sorted(written) == list(range(12))


def work_channel_named(inventory, name: str):
    return inventory.channel(name, int, capacity=64, full=Full.REFUSE, producers="worker", consumers="writer")


async def test_scopes_of_an_aborted_child_are_cut_with_it() -> None:
    inventory = new_inventory()

    async def listen(child: Child) -> None:
        scope = child.scope("connection", 8)
        for _ in range(3):
            scope.start(asyncio.sleep(600))
        await asyncio.sleep(600)

    boss = supervisor(inventory, [ChildSpec("listener", listen, drain=Drain.STOP_INTAKE)], drain_deadline_s=1.0)
    await boss.start()
    await asyncio.sleep(1)
    report = await boss.drain()

    assert report.aborted == ("listener", "connection", "connection", "connection")
    assert inventory.metrics.value("tasks_aborted_total", kind="connection") == 3


async def test_the_intake_is_cut_off_after_what_stands_behind_it() -> None:
    """Answers to what was cut are still written: the listener must outlive the workers in an abort too."""
    inventory = new_inventory()
    order: list[str] = []

    def stubborn(name: str, drain: Drain) -> ChildSpec:
        async def run(child: Child) -> None:
            try:
                await asyncio.sleep(600)
            finally:
                order.append(name)

        return ChildSpec(name, run, drain=drain)

    specs = [stubborn("worker", Drain.FINISH), stubborn("listener", Drain.STOP_INTAKE)]
    boss = supervisor(inventory, specs, drain_deadline_s=1.0)
    await boss.start()
    await asyncio.sleep(1)
    await boss.drain()

    assert order == ["worker", "listener"]


async def test_a_restarted_listener_is_not_ready_before_it_announces_itself_again() -> None:
    inventory = new_inventory()
    bound = asyncio.Event()

    async def listen(child: Child) -> None:
        if child.restarts:
            await bound.wait()
        child.announce()
        await child.shutdown.stopped()

    boss = supervisor(inventory, [ChildSpec("listener", listen, drain=Drain.STOP_INTAKE, announces=True)])
    await boss.start()
    first = inventory.health.verdict().ready
    boss.kill("listener")
    await asyncio.sleep(10)
    rebinding = inventory.health.verdict().ready
    bound.set()
    await asyncio.sleep(1)

    assert (first, rebinding, inventory.health.verdict().ready) == (True, False, True)
    await boss.drain()


async def test_phases_only_go_forward() -> None:
    boss = supervisor(new_inventory(), [ChildSpec("late", late)], drain_deadline_s=1.0)
    seen = [boss.phase.value]
    boss.phase.on_change(lambda: seen.append(boss.phase.value))
    await boss.start()
    await asyncio.sleep(1)
    await boss.drain(keep_intake=True)
    await boss.drain()
    await boss.drain()

    assert seen == [Phase.RUNNING, Phase.DRAINING, Phase.ABORTING, Phase.STOPPED]


async def late(child: Child) -> None:
    await asyncio.sleep(600)


async def test_an_empty_supervisor_drains_at_once() -> None:
    boss = supervisor(new_inventory(), [])
    await boss.start()

    assert (await boss.drain()).clean


# --- root ------------------------------------------------------------------------------------------------------


def _root(bosses: dict[str, tuple[Supervisor, int]], *, exit_on_fatal: bool = False) -> Root:
    return Root([Staged(boss, stage) for boss, stage in bosses.values()], Metrics("node"), exit_on_fatal=exit_on_fatal)


def _service(diary: Diary, name: str) -> Supervisor:
    return Supervisor(new_inventory(name), [waiting(diary, name)], SupervisorOptions(), rng=Loaded(0.5))


async def test_stages_start_from_behind_and_drain_from_the_front() -> None:
    diary = Diary()
    stages = {"admin": 3, "mailbox": 2, "omnigate": 1, "interop": 1, "dht": 2}
    root = _root({name: (_service(diary, name), stage) for name, stage in stages.items()})
    told: list[tuple[str, Phase]] = []
    root.on_phase = lambda service, phase: told.append((service, phase))
    await root.start()
    assert [line.split()[0] for line in diary.lines] == ["admin", "mailbox", "dht", "omnigate", "interop"]

    diary.lines.clear()
    reports = await root.drain()
    assert [stages[line.split()[0]] for line in diary.lines] == [1, 1, 2, 2, 3]
    assert all(report.clean for report in reports)
    assert told[:2] == [("omnigate", Phase.DRAINING), ("interop", Phase.DRAINING)]
    assert told[-1] == ("admin", Phase.STOPPED)


async def test_a_service_that_does_not_start_takes_down_those_that_did() -> None:
    diary = Diary()

    async def fail(child: Child) -> None:
        raise OSError("address in use")

    broken = Supervisor(new_inventory("omnigate"), [ChildSpec("listener", fail, announces=True)], rng=Loaded())
    behind = _service(diary, "mailbox")
    root = _root({"omnigate": (broken, 1), "mailbox": (behind, 2)})

    with pytest.raises(OSError, match="address in use"):
        await root.start()
    assert behind.children[0].task.done()


async def test_an_impatient_operator_cuts_every_stage() -> None:
    def slow(name: str) -> Supervisor:
        return supervisor(new_inventory(name), [ChildSpec("worker", late, drain=Drain.FINISH)], drain_deadline_s=5.0)

    root = _root({"a": (slow("a"), 1), "b": (slow("b"), 2)})
    await root.start()
    await asyncio.sleep(1)
    asyncio.get_running_loop().call_later(1.0, root.hurry)
    reports = await root.drain()

    assert [report.aborted for report in reports] == [("worker",), ("worker",)]
    assert now() == pytest.approx(1002.0)


@pytest.mark.parametrize("exit_on_fatal", [True, False])
async def test_a_fatal_service_stops_its_own_subtree_and_keeps_its_listener(exit_on_fatal) -> None:
    diary, inventory = Diary(), new_inventory("svc-interop")

    async def listen(child: Child) -> None:
        await child.shutdown.wait()
        diary.note("refuses")
        child.quiet()
        await child.shutdown.stopped()
        diary.note("closed")

    specs = [
        waiting(diary, "sentinel"),
        ChildSpec("worker", crashing(Diary())),
        ChildSpec("listener", listen, drain=Drain.STOP_INTAKE),
    ]
    options = SupervisorOptions(policy=RestartPolicy(escalation=Escalation.FATAL))
    interop = Supervisor(inventory, specs, options, rng=Loaded(0.5))
    other = _service(diary, "mailbox")
    root = _root({"interop": (interop, 1), "mailbox": (other, 2)}, exit_on_fatal=exit_on_fatal)
    await root.start()
    await asyncio.sleep(30)

    assert root.fatal == ["svc-interop/worker"]
    assert root.stop_requested.is_set() is exit_on_fatal
    assert inventory.health.fatal == "worker"
    assert diary.lines[-2:] == ["refuses", "sentinel down"]
    assert not interop.children[2].task.done()
    assert not other.children[0].task.done()
    await root.drain()
    assert diary.lines[-2:] == ["closed", "mailbox down"]


async def test_a_node_asked_to_stop_again_and_again_stops_once() -> None:
    diary = Diary()
    root = _root({name: (_service(diary, name), stage) for name, stage in {"omnigate": 1, "mailbox": 2}.items()})
    await root.start()
    first, *others = await asyncio.gather(root.drain(), root.drain(), root.drain())

    assert others == [first, first]
    assert await root.drain() == first
    assert diary.lines[-2:] == ["omnigate down", "mailbox down"]


async def test_an_intake_that_lies_in_its_backoff_is_not_waited_for() -> None:
    boss = supervisor(new_inventory(), [ChildSpec("listener", crashing(Diary()), drain=Drain.STOP_INTAKE)])
    await boss.start()
    await asyncio.sleep(0.01)
    report = await boss.drain()

    assert (report.clean, report.elapsed_s) == (True, 0.0)
