"""A loop that stands still while leases are held is told of, with what to do."""

from __future__ import annotations

import asyncio

import pytest

from tests.sdk.kit import GONE, TOPIC, no_logging, started, world

LEASE_MS = 30_000


def block(seconds: float) -> None:
    """Let time pass without a turn of the loop, as `time.sleep` does."""
    asyncio.get_running_loop().advance(seconds)  # type: ignore[attr-defined]


async def told(handle, capsys: pytest.CaptureFixture[str], messages: int = 1) -> list[str]:
    async with world() as w:
        await w.send(messages)
        with no_logging():
            async with started(w.mailbox.run(TOPIC, handle, visibility_ms=LEASE_MS)):
                await asyncio.sleep(300)
        assert await w.left() == GONE
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("seconds", [10, 19])
@pytest.mark.parametrize("before", [0, 7, 9.9, 33])
@pytest.mark.parametrize("after", [0, 0.1, 5])
async def test_a_step_as_long_as_a_third_of_a_lease_is_told_in_one_line(
    seconds: float, before: float, after: float, capsys: pytest.CaptureFixture[str]
) -> None:
    async def handle(_delivery) -> None:
        await asyncio.sleep(before)
        block(seconds)
        await asyncio.sleep(after)

    [line] = [line for line in await told(handle, capsys) if "stood still" in line]

    assert line.startswith("penstock: the event loop stood still for ")
    assert "(a lease lasts 30s)" in line
    assert "await asyncio.to_thread(work, ...)" in line


async def test_a_lease_that_lapsed_so_is_told_with_its_cause_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    async def handle(delivery) -> None:
        if delivery.attempt == 1:
            block(40)

    stood, lost = await told(handle, capsys)

    assert stood.startswith("penstock: the event loop stood still for 40s or longer, and no lease could be renewed")
    assert ": no renewal came through in time; it is delivered again" in lost


@pytest.mark.parametrize("seconds", [0.4, 4.9])
async def test_short_steps_are_not_told(seconds: float, capsys: pytest.CaptureFixture[str]) -> None:
    async def handle(_delivery) -> None:
        for _ in range(30):
            block(seconds)
            await asyncio.sleep(0.01)

    assert await told(handle, capsys) == []


async def test_it_is_told_once_a_minute_at_most(capsys: pytest.CaptureFixture[str]) -> None:
    async def handle(_delivery) -> None:
        block(12)

    said = await told(handle, capsys, messages=10)

    assert len([line for line in said if "stood still" in line]) == 2


async def test_a_loop_that_stood_still_while_nothing_was_held_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    async def nothing(_delivery) -> None:
        """Be done."""

    async with world() as w:
        await w.send(1)
        with no_logging():
            async with started(w.mailbox.run(TOPIC, nothing, visibility_ms=LEASE_MS)):
                await asyncio.sleep(60)
                block(100)
                await asyncio.sleep(60)

    assert capsys.readouterr().err == ""
