"""Phases, the shutdown a task sees, and what a signal means."""

from __future__ import annotations

import asyncio

import pytest

from penstock.kernel.lifecycle import Phase, Shutdown, StopRequests, until_drain
from penstock.testing.sweep import Run, sweep
from tests.kernel.kit import now, turns


async def test_a_sleep_lasts_its_time_unless_the_service_drains() -> None:
    shutdown = Shutdown("worker")
    assert await shutdown.sleep(10.0) is False
    assert now() == 1010.0

    asyncio.get_running_loop().call_later(2.0, shutdown.request, Phase.DRAINING)
    assert await shutdown.sleep(10.0) is True
    assert now() == 1012.0
    assert await shutdown.sleep(10.0) is True
    assert now() == 1012.0


async def test_waiting_after_the_fact_returns_at_once() -> None:
    shutdown = Shutdown("worker")
    shutdown.request(Phase.DRAINING)
    await shutdown.wait()

    assert shutdown.draining


async def test_a_listener_hears_close_after_drain() -> None:
    shutdown = Shutdown("listener")
    waiting = asyncio.create_task(shutdown.stopped())
    shutdown.request(Phase.DRAINING)
    await turns()
    assert not waiting.done()
    shutdown.request(Phase.STOPPED)
    await waiting

    assert shutdown.phase is Phase.STOPPED


async def test_there_is_no_way_back() -> None:
    shutdown = Shutdown("worker")
    shutdown.request(Phase.STOPPED)
    shutdown.request(Phase.DRAINING)
    shutdown.request(Phase.RUNNING)

    assert shutdown.phase is Phase.STOPPED


def test_a_cancelled_sleep_leaves_nothing_behind() -> None:
    async def scenario(run: Run[int]) -> int:
        shutdown = Shutdown("worker")
        run.start(shutdown.sleep(5.0))
        await asyncio.sleep(1)
        if not run.fired:
            shutdown.request(Phase.DRAINING)
        await run.ended()
        return len(shutdown._phase._calls)

    sweep(scenario, check=lambda left: left == 0)


async def _wait(shutdown: Shutdown, seconds: float) -> str:
    async with until_drain(shutdown):
        await asyncio.sleep(seconds)
        return "waited"
    return "drained"


@pytest.mark.parametrize(
    ("drains_after_s", "outcome", "ended_at"),
    [(2.0, "drained", 1002.0), (0.0, "drained", 1000.0), (20.0, "waited", 1010.0)],
)
async def test_a_wait_until_the_drain_ends_with_it_and_leaves_nothing_behind(
    drains_after_s: float, outcome: str, ended_at: float
) -> None:
    shutdown = Shutdown("listener")
    if drains_after_s:
        asyncio.get_running_loop().call_later(drains_after_s, shutdown.request, Phase.DRAINING)
    else:
        shutdown.request(Phase.DRAINING)

    assert await _wait(shutdown, 10.0) == outcome
    assert now() == ended_at
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == len(shutdown._phase._calls) == 0


async def test_a_cancel_from_outside_wins_over_the_drain() -> None:
    shutdown = Shutdown("listener")
    waiting = asyncio.create_task(_wait(shutdown, 10.0))
    await turns()
    shutdown.request(Phase.DRAINING)
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_an_error_inside_a_wait_passes_through() -> None:
    async def fail() -> None:
        async with until_drain(Shutdown("listener")):
            raise KeyError("x")

    with pytest.raises(KeyError):
        await fail()


async def test_whoever_drains_says_until_when() -> None:
    shutdown = Shutdown("listener")
    shutdown.request(Phase.DRAINING, 1003.0)
    shutdown.request(Phase.DRAINING, 1001.0)

    assert shutdown.until == 1003.0


@pytest.mark.parametrize(
    ("signals", "phases"),
    [
        ([("SIGTERM", 0.0)], [Phase.DRAINING]),
        ([("SIGTERM", 0.0), ("SIGTERM", 5.0), ("SIGTERM", 6.0)], [Phase.DRAINING, None, None]),
        ([("SIGINT", 0.0), ("SIGINT", 0.5)], [Phase.DRAINING, None]),
        ([("SIGINT", 0.0), ("SIGINT", 0.999)], [Phase.DRAINING, None]),
        ([("SIGINT", 0.0), ("SIGINT", 1.0)], [Phase.DRAINING, Phase.ABORTING]),
        ([("SIGINT", 0.0), ("SIGTERM", 2.0)], [Phase.DRAINING, None]),
        ([("SIGTERM", 0.0), ("SIGINT", 5.0)], [Phase.DRAINING, None]),
        ([("SIGTERM", 0.0), ("SIGINT", 5.0), ("SIGINT", 6.0)], [Phase.DRAINING, None, Phase.ABORTING]),
        ([("SIGINT", 0.0), ("SIGINT", 0.2), ("SIGINT", 1.1)], [Phase.DRAINING, None, Phase.ABORTING]),
    ],
)
def test_repeats_change_nothing_but_a_second_sigint_after_a_second_hurries(signals, phases) -> None:
    requests = StopRequests()

    assert [requests.receive(signal, at) for signal, at in signals] == phases
