"""A session runs coroutines on one loop and gives an account of what they left."""

from __future__ import annotations

import asyncio
import gc

import pytest

from penstock.testing.leaks import Leaks
from penstock.testing.session import Session, close_quietly, run


async def stray() -> str:
    asyncio.get_running_loop().create_task(asyncio.sleep(5), name="stray")
    return "result"


def test_runs_of_one_session_share_loop_and_time() -> None:
    session = Session()

    async def now() -> float:
        await asyncio.sleep(10)
        return asyncio.get_running_loop().time()

    first, second = session.run(now()), session.run(now())
    session.close()

    assert second == first + 10
    assert session.loop.is_closed()


def test_what_was_left_is_told_once_with_each_finding() -> None:
    session = Session()
    assert session.run(stray()) == "result"

    with pytest.raises(Leaks) as caught:
        session.close()
    session.close()
    assert [(finding.kind, finding.text.partition(":")[0]) for finding in caught.value.findings] == [
        ("leaked task", "stray")
    ]


def test_an_error_of_the_run_is_kept_and_what_was_left_is_its_note() -> None:
    async def fail() -> None:
        await stray()
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        run(fail())

    assert "leaked task: stray" in caught.value.__notes__[0]


def test_closing_quietly_adds_no_note_when_nothing_was_left() -> None:
    session, error = Session(), KeyError("mine")
    session.run(asyncio.sleep(1))
    close_quietly(session, error)

    assert not hasattr(error, "__notes__")


def test_a_task_cancelled_in_the_last_step_may_still_end() -> None:
    async def last_minute() -> None:
        task = asyncio.get_running_loop().create_task(asyncio.sleep(5))
        await asyncio.sleep(0)
        task.cancel()

    assert run(last_minute()) is None


def test_the_collector_is_left_as_it_was_found() -> None:
    before = gc.get_freeze_count()
    run(asyncio.sleep(1))

    assert gc.get_freeze_count() == before
