"""The thread of the blocking face: bounded calls, given up and closed at any moment, and nobody left waiting."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from penstock.client import ClientClosed
from penstock.kernel.errors import Busy, Canceled, Timeout
from penstock.kernel.metrics import Metrics
from penstock.sdk.loop_thread import LoopThread


@pytest.fixture
def thread():
    loop = LoopThread("test-loop", Metrics("test"), calls_max=4)
    yield loop
    loop.close()
    assert "test-loop" not in {each.name for each in threading.enumerate()}


async def forever() -> None:
    await asyncio.Event().wait()


async def answer() -> int:
    return 42


def test_too_many_calls_at_once_are_refused(thread: LoopThread) -> None:
    calls = [thread.submit(forever) for _ in range(4)]

    with pytest.raises(Busy):
        thread.call(answer, 60)
    for call in calls:
        call.cancel()


def test_whoever_gives_up_takes_his_call_with_him(thread: LoopThread) -> None:
    for _ in range(10):
        with pytest.raises(Timeout):
            thread.call(forever, 0.001)
    # Were one of them still running, there would be no place for this one.
    assert thread.call(answer, 60) == 42


def test_a_call_given_up_before_its_turn_is_never_begun(thread: LoopThread) -> None:
    begun: list[int] = []
    free, held = threading.Event(), threading.Event()

    async def hold() -> None:
        held.set()
        free.wait(60)

    async def begin() -> None:
        begun.append(1)

    holding = thread.submit(hold)
    held.wait(60)
    thread.submit(begin).cancel()
    free.set()
    thread.result(holding, 60)

    assert (thread.call(answer, 60), begun) == (42, [])


def test_closing_cancels_what_runs(thread: LoopThread) -> None:
    waiting = thread.submit(forever)
    thread.close()

    with pytest.raises(Canceled):
        thread.result(waiting, 60)
    with pytest.raises(Canceled):
        thread.call(answer, 60)


def test_a_call_that_comes_as_the_thread_ends_is_answered_or_refused_never_left(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look whether it is open and the call reaching the loop, another thread closes."""
    hand_over = thread._loop.call_soon_threadsafe
    closing = threading.Thread(target=thread.close)

    def after_a_close(*work) -> None:
        monkeypatch.undo()
        closing.start()
        closing.join(0.3)
        hand_over(*work)

    monkeypatch.setattr(thread._loop, "call_soon_threadsafe", after_a_close)
    call = thread.submit(answer)
    closing.join(60)

    assert isinstance(call.exception(60), ClientClosed) or call.result() == 42


def test_any_number_of_threads_may_close(thread: LoopThread) -> None:
    closers = [threading.Thread(target=thread.close) for _ in range(5)]
    for each in closers:
        each.start()
    for each in closers:
        each.join(60)

    assert not any(each.is_alive() for each in closers)
    assert not thread._thread.is_alive(), "whoever closes waits until it is closed"


def test_a_call_under_way_at_the_close_hears_of_it(thread: LoopThread) -> None:
    waiting, closed_in_time = thread.submit(forever), threading.Event()

    async def at_end() -> None:
        closed_in_time.set()

    thread.at_end = at_end
    thread.close()

    with pytest.raises(ClientClosed):
        thread.result(waiting, 60)
    assert closed_in_time.is_set(), "what lives on the loop is closed before it ends"


def test_a_loop_that_cannot_begin_says_why_at_once() -> None:
    script = """
        import resource
        from penstock.client import sync
        resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))
        try:
            sync.connect("/nowhere")
        except OSError as error:
            print(error.strerror)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert done.stdout == "Too many open files\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_told_instead_of_left_hanging(tmp_path: Path) -> None:
    script = """
        import os, sys
        from penstock.sdk.loop_thread import LoopThread
        from penstock.kernel.errors import Canceled
        from penstock.kernel.metrics import Metrics
        async def answer(): return 42
        thread = LoopThread("t", Metrics("t"))
        if os.fork() == 0:
            try:
                thread.call(answer, 60)
            except Canceled:
                os._exit(7)
            os._exit(1)
        sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)]

    assert subprocess.run(command, timeout=120, check=False).returncode == 7
