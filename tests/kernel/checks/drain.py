"""What a drain promises; `make` is a Supervisor class."""

from __future__ import annotations

import asyncio

import pytest

from penstock.kernel.child import Child, ChildSpec, Drain
from penstock.kernel.errors import PenstockError
from penstock.kernel.lifecycle import Phase
from penstock.kernel.supervisor import SupervisorOptions
from penstock.kernel.worker import Job
from penstock.testing.session import run
from tests.kernel.kit import Diary, Loaded, new_inventory, work_channel, worker_spec

_OPTIONS = SupervisorOptions(drain_deadline_s=3.0)


class Intake:
    """A listener as the drain sees it: admits a job every 100 ms, each answered before it says quiet."""

    def __init__(self, channel, diary: Diary, *, crashes: int = 0) -> None:
        self.channel = channel
        self.diary = diary
        self.crashes = crashes
        self.answers: list[object] = []

    async def run(self, child: Child) -> None:
        scope = child.scope("request", 64)
        while not await child.shutdown.sleep(0.1):
            scope.start(self._request(len(self.answers)))
            if self.crashes:
                self.crashes -= 1
                raise ValueError("planted crash")
        self.diary.note("intake refuses")
        await scope.join()
        child.quiet()
        self.diary.note("intake quiet")
        await child.shutdown.stopped()
        self.diary.note("intake closed")

    async def _request(self, value: int) -> None:
        place = len(self.answers)
        self.answers.append("unanswered")
        await asyncio.sleep(0.05)  # reading the body: the job is sent only after that
        try:
            job = Job(value)
            self.channel.try_send(job)
            self.answers[place] = await job.reply
        except PenstockError as error:
            self.answers[place] = error.code

    def spec(self) -> ChildSpec:
        return ChildSpec("listener", self.run, drain=Drain.STOP_INTAKE)


async def _slow(value: int) -> str:
    await asyncio.sleep(0.12)
    return "done"


async def _serve(make, *, crashes: int = 0, run_s: float = 1.03):
    diary, inventory = Diary(), new_inventory()
    channel = work_channel(inventory)
    intake = Intake(channel, diary, crashes=crashes)
    boss = make(inventory, [worker_spec(inventory, channel, _slow), intake.spec()], _OPTIONS, rng=Loaded(0.5))
    await boss.start()
    await asyncio.sleep(run_s)
    return boss, intake, diary


def check_admitted_requests_are_answered(make) -> None:
    async def scenario() -> None:
        boss, intake, diary = await _serve(make)
        report = await boss.drain()
        assert report.clean
        assert len(intake.answers) >= 9
        assert set(intake.answers) == {"done"}
        assert diary.lines == ["intake refuses", "intake quiet", "intake closed"]
        assert boss.phase.value is Phase.STOPPED

    run(scenario())


def check_a_restarted_intake_is_waited_for_as_well(make) -> None:
    async def scenario() -> None:
        boss, intake, _ = await _serve(make, crashes=1, run_s=1.3)
        assert boss.children[-1].restarts == 1
        await boss.drain()
        assert set(intake.answers[1:]) == {"done"}

    run(scenario())


def _late_spec(name: str = "worker", *, stubborn: bool = False) -> ChildSpec:
    async def work(child: Child) -> None:
        while True:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                if not stubborn:
                    raise
                await asyncio.sleep(5)
                raise

    return ChildSpec(name, work, kind="lookup", drain=Drain.FINISH)


def check_what_is_late_is_cut_off_at_the_deadline(make) -> None:
    async def scenario() -> None:
        boss = make(new_inventory(), [_late_spec()], _OPTIONS, rng=Loaded())
        await boss.start()
        report = await boss.drain()
        assert report.aborted == ("worker",)
        assert report.elapsed_s == pytest.approx(3.0)
        assert boss.phase.value is Phase.STOPPED

    run(scenario())


def check_what_was_cut_off_is_counted(make) -> None:
    async def scenario() -> None:
        inventory = new_inventory()
        boss = make(inventory, [_late_spec("a"), _late_spec("b")], _OPTIONS, rng=Loaded())
        await boss.start()
        await boss.drain(0.5)
        await boss.drain()
        assert inventory.metrics.value("tasks_aborted_total", kind="lookup") == 2

    run(scenario())


def check_what_ignores_the_abort_is_given_up_after_250_ms(make) -> None:
    async def scenario() -> None:
        boss = make(new_inventory(), [_late_spec(stubborn=True)], _OPTIONS, rng=Loaded())
        await boss.start()
        await asyncio.sleep(1)
        report = await boss.drain(1.0)
        assert report.elapsed_s == pytest.approx(1.25)
        await asyncio.wait([boss.children[0].task])

    run(scenario())


def check_a_second_drain_joins_the_first(make) -> None:
    async def scenario() -> None:
        inventory = new_inventory()
        boss = make(inventory, [_late_spec()], _OPTIONS, rng=Loaded())
        await boss.start()
        reports = await asyncio.gather(boss.drain(), boss.drain(), boss.drain(100.0))
        assert [report.elapsed_s for report in reports] == pytest.approx([3.0, 3.0, 3.0])
        assert inventory.metrics.value("tasks_aborted_total", kind="lookup") == 1

    run(scenario())


def check_hurry_cuts_the_deadline(make) -> None:
    async def scenario() -> None:
        boss = make(new_inventory(), [_late_spec()], _OPTIONS, rng=Loaded())
        await boss.start()
        asyncio.get_running_loop().call_later(1.0, boss.hurry)
        report = await boss.drain()
        assert report.elapsed_s == pytest.approx(1.0)
        assert report.aborted == ("worker",)

    run(scenario())


def check_a_kept_intake_stays_until_it_is_drained_itself(make) -> None:
    async def scenario() -> None:
        boss, _, diary = await _serve(make)
        await boss.drain(keep_intake=True)
        assert diary.lines == ["intake refuses", "intake quiet"]
        assert boss.phase.value is Phase.DRAINING
        await asyncio.sleep(10)
        assert not boss.children[-1].task.done()
        await boss.drain()
        assert diary.lines[-1] == "intake closed"
        assert boss.phase.value is Phase.STOPPED

    run(scenario())
