"""What a process sets once, and the watch over the loop."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import sys
import time
from collections.abc import Callable

import pytest

from penstock.kernel import runtime
from penstock.kernel.child import ChildSpec
from penstock.kernel.metrics import Metrics
from penstock.kernel.runtime import GcPauses, LoopWatch, raise_fd_limit, tune_process
from tests.kernel.kit import new_inventory, supervisor


@pytest.fixture
def restored():
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*thresholds)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_the_process_is_tuned_as_measured(restored) -> None:
    tune_process()

    assert sys.getswitchinterval() == pytest.approx(0.0005)
    assert gc.get_threshold() == (50_000, 20, 50)


def test_the_descriptor_limit_is_raised_and_bounds_the_connections(restored) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, hard), hard))

    assert raise_fd_limit(10) == 10
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
    assert raise_fd_limit(10**9) == hard - 256


@pytest.mark.parametrize(
    ("limits", "fit"),
    [((1024, 1024), 768), ((100, 100), 1), ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), 5000)],
)
def test_connections_fit_below_whatever_the_limit_is(monkeypatch, limits, fit) -> None:
    monkeypatch.setattr(runtime.resource, "getrlimit", lambda _: limits)

    assert raise_fd_limit(5000) == fit


def test_a_system_that_refuses_to_raise_the_limit_is_taken_as_it_is(monkeypatch) -> None:
    def refuse(*_) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(runtime.resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(runtime.resource, "setrlimit", refuse)

    assert raise_fd_limit(5000) == 768


def test_stops_of_the_collector_are_measured() -> None:
    metrics = Metrics("node")
    pauses = GcPauses(metrics)
    gc.collect()
    pauses.remove()
    counted = metrics.value("gc_pause_seconds")
    gc.collect()

    assert counted >= 1
    assert metrics.value("gc_pause_seconds") == counted


async def test_an_idle_loop_has_no_lag() -> None:
    inventory = new_inventory()
    watch = LoopWatch(inventory.metrics)
    boss = supervisor(inventory, [ChildSpec("loop_watch", watch.run)])
    await boss.start()
    await asyncio.sleep(10.05)
    await boss.drain()

    assert inventory.metrics.value("loop_lag_seconds") == 101
    assert inventory.metrics.histogram("loop_lag_seconds").total == pytest.approx(0.0)
    assert inventory.metrics.value("loop_slow_steps_total") == 0


@pytest.mark.real_loop
async def test_a_step_over_50_ms_is_counted_and_told_with_its_stack(caplog) -> None:
    """In debug mode also a step that lies between two ordinary ticks is seen, and again after a restart."""
    inventory = new_inventory()
    watch = LoopWatch(inventory.metrics, debug=True)
    boss = supervisor(inventory, [ChildSpec("loop_watch", watch.run)])
    await boss.start()

    def told() -> int:
        stacks = [record.fields["stack"] for record in caplog.records if record.msg == "loop.slow_step"]
        return sum("_hog" in stack for stack in stacks)

    with caplog.at_level(logging.WARNING, logger="penstock.svc-test"):
        for round_number in (1, 2):
            await asyncio.sleep(0.03)
            _hog(lambda round_number=round_number: told() >= round_number)
            await asyncio.sleep(0.03)
            assert inventory.metrics.value("loop_slow_steps_total") >= round_number
            if round_number == 1:
                assert boss.kill("loop_watch")
                await _watching_again(watch)
    await boss.drain()

    assert told() == 2


async def _watching_again(watch: LoopWatch) -> None:
    await asyncio.sleep(0)
    while watch._stop.is_set():  # noqa: ASYNC110 - the supervisor starts it again; the watchdog is the bound
        await asyncio.sleep(0.01)


def _hog(is_seen: Callable[[], bool]) -> None:
    """Hold the loop for longer than allowed, and until the watching thread has seen it, however late it runs."""
    began = time.monotonic()
    while time.monotonic() < began + 0.09 or not (is_seen() or time.monotonic() > began + 20):
        continue
