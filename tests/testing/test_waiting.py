"""Waiting in tests ends as soon as something is true, and fails when it never is."""

from __future__ import annotations

import asyncio
import threading

import pytest

from penstock.testing import until, wait_until


async def test_until_returns_when_the_condition_holds() -> None:
    loop = asyncio.get_running_loop()
    began, happened = loop.time(), loop.create_future()
    loop.call_later(3.0, happened.set_result, None)

    await until(happened.done)

    assert loop.time() - began == pytest.approx(3.0, abs=0.02)


async def test_until_asks_an_async_condition() -> None:
    answers = [False, False, True]

    async def ask() -> bool:
        await asyncio.sleep(1.0)
        return answers.pop(0)

    await until(ask)

    assert answers == []


async def test_until_fails_when_the_condition_never_holds() -> None:
    began = asyncio.get_running_loop().time()

    with pytest.raises(AssertionError, match="not become true within 5 s"):
        await until(lambda: False, within_s=5.0)
    assert asyncio.get_running_loop().time() - began == pytest.approx(5.0, abs=0.02)


async def test_until_in_every_turn_lets_no_virtual_time_pass() -> None:
    loop, turns = asyncio.get_running_loop(), []
    began = loop.time()

    await until(lambda: turns.append(None) or len(turns) == 9, every_s=0)

    assert loop.time() == began


def test_wait_until_sees_what_another_thread_does() -> None:
    happened = threading.Event()
    threading.Timer(0.05, happened.set).start()

    wait_until(happened.is_set)

    assert happened.is_set()


def test_wait_until_fails_when_the_condition_never_holds() -> None:
    with pytest.raises(AssertionError, match=r"not become true within 0\.02 s"):
        wait_until(lambda: False, within_s=0.02)
