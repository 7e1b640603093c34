"""What the supervisor promises; `make` is a Supervisor class."""

from __future__ import annotations

import asyncio

import pytest

from penstock.kernel.backoff import FullJitter
from penstock.kernel.child import Child, ChildSpec, ChildState, Drain
from penstock.kernel.errors import NotReady
from penstock.kernel.health import Gate
from penstock.kernel.restart import Escalation, Restart, RestartPolicy
from penstock.kernel.supervisor import SupervisorOptions
from penstock.kernel.worker import Job
from penstock.testing.loop import VirtualLoop
from penstock.testing.session import run
from tests.kernel.kit import Diary, Loaded, crashing, new_inventory, now, turns, waiting, work_channel, worker_spec

_FATAL = RestartPolicy(escalation=Escalation.FATAL)
_TOP = Loaded(0.999999999)


def _options(policy: RestartPolicy | None = None, **options) -> SupervisorOptions:
    return SupervisorOptions(policy=policy or RestartPolicy(), **options)


def check_a_crashed_child_is_restarted_after_a_growing_pause(make) -> None:
    async def scenario() -> None:
        diary, inventory = Diary(), new_inventory()
        boss = make(inventory, [ChildSpec("scanner", crashing(diary))], _options(), rng=_TOP)
        await boss.start()
        await asyncio.sleep(3.5)
        assert diary.times == pytest.approx([0.0, 0.1, 0.3, 0.7, 1.5, 3.1])
        assert inventory.metrics.value("service_restarts_total", task="scanner") == 5
        await boss.drain()

    run(scenario())


def check_a_clean_return_is_not_a_crash(make) -> None:
    async def scenario() -> None:
        inventory = new_inventory()

        async def run_once(child: Child) -> None:
            await asyncio.sleep(1)

        boss = make(inventory, [ChildSpec("warmup", run_once)], _options(_FATAL), rng=Loaded())
        await boss.start()
        await asyncio.sleep(600)
        child = boss.children[0]
        assert (child.state, child.restarts, child.history.crashes) == (ChildState.FINISHED, 0, ())
        assert inventory.health.verdict().ready
        await boss.drain()

    run(scenario())


def check_a_permanent_child_that_returns_does_not_count_as_a_crash(make) -> None:
    async def scenario() -> None:
        diary, inventory = Diary(), new_inventory()

        async def run_once(child: Child) -> None:
            diary.note("run")

        policy = RestartPolicy(restart=Restart.PERMANENT, escalation=Escalation.FATAL)
        boss = make(inventory, [ChildSpec("poll", run_once, policy=policy)], _options(), rng=Loaded())
        await boss.start()
        await asyncio.sleep(10)
        assert len(diary.lines) >= 100
        assert inventory.health.fatal is None
        await boss.drain()

    run(scenario())


def check_the_sixth_crash_in_a_minute_quarantines(make) -> None:
    """Gate shut, senders refused with not_ready, what is queued waits; a retry every 60 s."""

    async def scenario() -> None:
        diary, inventory = Diary(), new_inventory()
        channel = work_channel(inventory)
        channel.try_send(Job("queued"))
        spec = ChildSpec("worker", crashing(diary), drain=Drain.FINISH, consumes=(channel,))
        boss = make(inventory, [spec], _options(), rng=Loaded(0.5))
        await boss.start()
        await asyncio.sleep(30)
        assert len(diary.lines) == 6
        assert boss.children[0].state is ChildState.QUARANTINED
        assert not inventory.health.verdict().ready
        with pytest.raises(NotReady):
            channel.try_send(Job("late"))
        assert channel.depth == 1
        await asyncio.sleep(120)
        assert len(diary.lines) == 8
        assert diary.times[7] - diary.times[6] == pytest.approx(60.0)
        await boss.drain(0.0)

    run(scenario())


def check_a_crash_loop_of_the_fatal_kind_is_told_once(make) -> None:
    async def scenario() -> None:
        diary, inventory, told = Diary(), new_inventory(), []
        boss = make(inventory, [ChildSpec("worker", crashing(diary))], _options(_FATAL), rng=Loaded(0.5))
        boss.on_fatal = told.append
        await boss.start()
        await asyncio.sleep(600)
        assert (len(diary.lines), told) == (6, ["worker"])
        assert inventory.health.fatal == "worker"
        assert not inventory.health.verdict().ready
        await boss.drain()

    run(scenario())


def check_children_start_in_order_and_stop_in_reverse(make) -> None:
    async def scenario() -> None:
        diary, inventory = Diary(), new_inventory()
        boss = make(inventory, [waiting(diary, name) for name in "abc"], _options(), rng=Loaded())
        await boss.start()
        await boss.drain()
        assert diary.lines == ["a up", "b up", "c up", "c down", "b down", "a down"]

    run(scenario())


def check_a_failed_start_stops_what_was_started(make) -> None:
    async def scenario() -> None:
        diary, inventory = Diary(), new_inventory()

        async def fail(child: Child) -> None:
            await asyncio.sleep(1)
            raise OSError("address in use")

        specs = [waiting(diary, "a"), ChildSpec("listener", fail, announces=True), waiting(diary, "c")]
        boss = make(inventory, specs, _options(), rng=Loaded())
        with pytest.raises(OSError, match="address in use"):
            await boss.start()
        assert "c up" not in diary.lines
        assert all(child.task.done() for child in boss.children)

    run(scenario())


def check_a_child_that_ends_before_it_announced_fails_the_start_at_once(make) -> None:
    async def scenario() -> None:
        async def leave(child: Child) -> None:
            await asyncio.sleep(1)

        boss = make(new_inventory(), [ChildSpec("listener", leave, announces=True)], _options(), rng=Loaded())
        with pytest.raises(RuntimeError, match="before it announced"):
            await boss.start()
        assert now() == pytest.approx(1001.0)

    run(scenario())


def check_a_gate_stays_shut_until_its_child_announced_itself(make) -> None:
    async def scenario() -> None:
        inventory = new_inventory()

        async def load(child: Child) -> None:
            await asyncio.sleep(2)
            child.announce()
            await child.shutdown.wait()

        boss = make(inventory, [ChildSpec("loader", load, announces=True)], _options(), rng=Loaded())
        starting = asyncio.create_task(boss.start())
        await asyncio.sleep(1)
        assert inventory.health.verdict().missing == ("loader",)
        await starting
        assert inventory.health.verdict().ready
        await boss.drain()

    run(scenario())


def _stubborn_scope(diary: Diary):
    """Make a child whose scope holds a task that takes 100 ms to go."""

    async def linger() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            await asyncio.sleep(0.1)

    async def work(child: Child) -> None:
        diary.note("run")
        child.scope("part", 4).start(linger())
        await child.shutdown.wait()

    return work


def check_a_child_killed_twice_in_a_row_is_restarted(make) -> None:
    async def scenario() -> None:
        diary, inventory = Diary(), new_inventory()
        boss = make(inventory, [ChildSpec("worker", _stubborn_scope(diary))], _options(), rng=Loaded(0.5))
        await boss.start()
        await asyncio.sleep(1)
        assert boss.kill("worker")
        await asyncio.sleep(0.05)
        assert not boss.kill("worker"), "the run has ended already: there is nothing to kill"
        await asyncio.sleep(5)
        assert diary.lines == ["run", "run"]
        assert boss.children[0].state is ChildState.RUNNING
        await boss.drain()

    run(scenario())


def check_a_cancelled_error_of_nobodys_is_a_crash(make) -> None:
    """Awaiting something that was cancelled must not end a supervised child in silence."""

    async def scenario() -> None:
        diary = Diary()

        async def await_the_dead(child: Child) -> None:
            diary.note("run")
            dead = asyncio.get_running_loop().create_future()
            dead.cancel()
            await dead

        boss = make(new_inventory(), [ChildSpec("worker", await_the_dead)], _options(), rng=Loaded(0.5))
        await boss.start()
        await asyncio.sleep(30)
        assert len(diary.lines) == 6
        assert "cancelled" in boss.children[0].last_error
        await boss.drain()

    run(scenario())


def check_an_abort_that_meets_a_kill_wins(make) -> None:
    async def scenario() -> None:
        diary = Diary()

        async def work(child: Child) -> None:
            diary.note("run")
            await asyncio.sleep(600)

        spec = ChildSpec("listener", work, drain=Drain.STOP_INTAKE)
        boss = make(new_inventory(), [spec], _options(), rng=Loaded(0.5))
        await boss.start()
        await asyncio.sleep(1)
        boss.kill("listener")
        boss.children[0].task.cancel()
        await asyncio.sleep(5)
        assert diary.lines == ["run"]
        assert boss.children[0].task.cancelled()

    run(scenario())


def check_scopes_end_with_the_run_of_their_child(make) -> None:
    async def scenario() -> None:
        alive: list[str] = []

        async def part() -> None:
            alive.append("part")
            try:
                await asyncio.sleep(600)
            finally:
                alive.remove("part")

        async def work(child: Child) -> None:
            child.scope("part", 4).start(part())
            await asyncio.sleep(1)
            raise ValueError("planted crash")

        boss = make(new_inventory(), [ChildSpec("worker", work)], _options(), rng=Loaded(0.5))
        await boss.start()
        await asyncio.sleep(0.5)
        assert alive == ["part"]
        await asyncio.sleep(0.52)
        assert alive == []
        await boss.drain()

    run(scenario())


def check_a_worker_that_crashes_on_sight_does_not_hold_the_loop_while_draining(make) -> None:
    """The drain deadline must come, although there is admitted work and its worker dies at every attempt."""

    async def scenario() -> None:
        diary, inventory = Diary(), new_inventory()
        channel = work_channel(inventory)
        spec = ChildSpec("worker", crashing(diary), drain=Drain.FINISH, consumes=(channel,))
        boss = make(inventory, [spec], _options(drain_deadline_s=3.0), rng=Loaded(0.5))
        await boss.start()
        channel.try_send(Job("admitted"))
        report = await boss.drain()
        assert report.aborted == ("worker",)
        assert report.elapsed_s == pytest.approx(3.0, abs=0.3)
        assert len(diary.lines) < 20

    run(scenario(), VirtualLoop(steps_limit=1000))


def check_a_restarted_worker_finishes_admitted_work_while_draining(make) -> None:
    async def scenario() -> None:
        inventory = new_inventory()
        channel, crashes = work_channel(inventory), [1]

        async def handle(value: int) -> int:
            return value * 2

        spec = worker_spec(inventory, channel, handle)
        run_jobs = spec.run

        async def crash_first(child: Child) -> None:
            if crashes:
                crashes.pop()
                raise ValueError("planted crash")
            await run_jobs(child)

        fragile = ChildSpec("worker", crash_first, drain=Drain.FINISH, consumes=(channel,))
        policy = RestartPolicy(backoff=FullJitter(10.0, 10.0))
        boss = make(inventory, [fragile], _options(policy), rng=Loaded(0.5))
        await boss.start()
        await turns()
        job = Job(21)
        channel.try_send(job)
        report = await boss.drain()
        assert report.clean
        assert job.reply.done()
        assert job.reply.result() == 42

    run(scenario())


def check_flips_of_a_gate_are_told(make) -> None:
    async def scenario() -> None:
        flips: list[bool] = [False]

        def hear(service: str, gate: Gate) -> None:
            if gate.open is not flips[-1]:
                flips.append(gate.open)

        inventory = new_inventory()
        inventory.health.on_flip(hear)
        boss = make(inventory, [ChildSpec("worker", crashing(Diary()), critical=True)], _options(), rng=Loaded(0.5))
        await boss.start()
        await asyncio.sleep(1)
        assert flips[:4] == [False, True, False, True]
        await boss.drain()

    run(scenario())
