"""Waiting in tests for what nobody announces: one way on a loop, one way between processes, both within a limit."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Final

WITHIN_S: Final = 60.0
"""Ends a test that waits in vain. It says nothing about how fast anything is: a busy machine may take long."""


async def until(
    holds: Callable[[], object | Awaitable[object]], *, within_s: float = WITHIN_S, every_s: float = 0.01
) -> None:
    """Let the loop run until `holds` returns something true; AssertionError when it does not `within_s`.

    `holds` may also be an async function. With `every_s=0` the condition is looked at in every turn of the loop, and
    virtual time stands still meanwhile.
    """
    loop = asyncio.get_running_loop()
    # The system's clock beside the loop's: with `every_s=0` virtual time would never reach the limit.
    ends_at, ends_at_really = loop.time() + within_s, time.monotonic() + max(within_s, WITHIN_S)
    while not await _answer(holds):
        if loop.time() >= ends_at or time.monotonic() >= ends_at_really:
            raise AssertionError(f"it did not become true within {within_s:g} s")
        await asyncio.sleep(every_s)  # lint: allow PK010 a test waits, within its limit


async def _answer(holds: Callable[[], object | Awaitable[object]]) -> object:
    found = holds()
    return await found if inspect.isawaitable(found) else found


def wait_until(holds: Callable[[], object], *, within_s: float = WITHIN_S, every_s: float = 0.01) -> None:
    """Block this thread until `holds` returns something true: for what another process or thread does."""
    ends_at = time.monotonic() + within_s
    while not holds():
        if time.monotonic() >= ends_at:
            raise AssertionError(f"it did not become true within {within_s:g} s")
        time.sleep(every_s)  # lint: allow PK010 a test waits, within its limit
