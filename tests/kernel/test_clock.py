"""Clocks: monotonic inside the process, wall time anchored once."""

from __future__ import annotations

import asyncio
import time

import pytest

from penstock.kernel.clock import SYSTEM, LoopClock


async def test_the_loop_clock_moves_with_the_loop() -> None:
    clock = LoopClock()
    began = clock.monotonic()
    await asyncio.sleep(3600)

    assert clock.monotonic() - began == 3600


async def test_wall_time_starts_at_its_anchor_and_moves_with_the_loop() -> None:
    clock = LoopClock(wall_at_start=1_700_000_000.0)

    assert clock.wall() == 1_700_000_000.0
    await asyncio.sleep(90)
    assert clock.wall() == pytest.approx(1_700_000_090.0)


async def test_a_step_of_the_systems_wall_clock_changes_nothing(monkeypatch) -> None:
    clock = LoopClock()
    first = clock.wall()
    monkeypatch.setattr(time, "time", lambda: 5.0)
    await asyncio.sleep(10)

    assert clock.wall() - first == pytest.approx(10.0)


async def test_the_default_anchor_is_the_systems_wall_clock() -> None:
    before, wall, after = time.time(), LoopClock().wall(), time.time()

    assert before - 1.0 <= wall <= after + 1.0


def test_the_system_clock_reads_the_machine() -> None:
    before, wall, after = time.time(), SYSTEM.wall(), time.time()

    assert SYSTEM.monotonic() <= time.monotonic() <= SYSTEM.monotonic()
    assert before - 1.0 <= wall <= after + 1.0
