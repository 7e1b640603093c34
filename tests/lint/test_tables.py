"""Every entry of every table earns its place: without it a call would go unseen."""

from __future__ import annotations

import pytest

from penstock.lint import site
from penstock.lint.rules import blocking, clocks, deadlines, locks, queues, tasks
from tests.lint.sources import codes


def used(name: str, call: str) -> str:
    """Write a coroutine that makes a call to a dotted name."""
    return f"import {name.rpartition('.')[0]}\nasync def f(x, work):\n    {call}\n"


@pytest.mark.parametrize("name", sorted(locks._THREAD_LOCKS))
def test_every_thread_lock_is_a_lock(name):
    assert "PK001" in codes(used(name, f"guard = {name}()\n    with guard:\n        await work()"))


@pytest.mark.parametrize("name", sorted(locks._ASYNC_LOCKS))
def test_every_async_lock_is_refused_where_it_is_made_and_where_it_is_entered(name):
    source = used(name, f"guard = {name}()\n    async with guard:\n        work()")

    assert [code for code in codes(source) if code == "PK002"] == ["PK002", "PK002"]


@pytest.mark.parametrize("method", sorted(locks._GUARD_METHODS))
def test_every_guard_of_a_lock_is_a_lock(method):
    assert codes(f"async def f(lock, work):\n    with lock.{method}():\n        await work()\n") == ["PK001"]


@pytest.mark.parametrize("name", sorted(queues._SIZED | queues._ENDLESS))
def test_every_queue_without_a_size_is_unbounded(name):
    assert "PK003" in codes(used(name, f"{name}()"))


@pytest.mark.parametrize("name", sorted(queues._STREAMS))
@pytest.mark.parametrize("size", ["math.inf", "float('inf')"])
def test_every_stream_of_infinite_size_is_unbounded(name, size):
    assert "PK003" in codes("import math\n" + used(name, f"{name}({size})"))


@pytest.mark.parametrize("name", sorted(queues._SIZED))
def test_every_queue_with_a_size_is_undeclared(name):
    assert "PK004" in codes(used(name, f"{name}(8)"))


@pytest.mark.parametrize("method", sorted(queues._GROWING))
def test_every_way_to_grow_makes_a_queue(method):
    source = f"""
        from collections import deque

        class Box:
            def __init__(self):
                self.items = deque()

            def put(self, item):
                self.items.{method}(item)

            def take(self):
                return self.items.popleft()
    """

    assert codes(source) == ["PK003"]
    assert codes(source, path="tests/fakes.py") == []


@pytest.mark.parametrize("name", sorted(tasks._MAKERS))
def test_everything_that_makes_a_task_is_found(name):
    assert "PK005" in codes(used(name, f"{name}(work)"))


@pytest.mark.parametrize("name", sorted(tasks._THREADS))
def test_everything_that_makes_a_thread_is_found(name):
    assert "PK007" in codes(used(name, f"{name}(work)"))


@pytest.mark.parametrize("method", sorted(blocking._METHODS))
def test_telling_methods_block_whatever_they_are_called_on(method):
    assert codes(f"async def f(x):\n    x.{method}()\n") == ["PK008"]


@pytest.mark.parametrize("method", sorted(site._CALLBACKS))
@pytest.mark.parametrize("kind", sorted(site._PROTOCOLS))
def test_every_callback_of_every_protocol_runs_on_the_loop(kind, method):
    source = f"import asyncio, os\nclass P(asyncio.{kind}):\n    def {method}(self):\n        os.fsync(1)\n"

    assert codes(source) == ["PK008"]


@pytest.mark.parametrize("method", sorted(blocking._HEAVY_METHODS | blocking._LOOP_METHODS))
def test_every_heavy_method_is_refused_in_a_finalizer(method):
    assert "PK016" in codes(f"class C:\n    def __del__(self):\n        self.x.{method}()\n")


@pytest.mark.parametrize("glob", deadlines.IO_CALLS)
def test_every_declared_io_call_needs_a_deadline(glob):
    if glob.startswith("*"):
        owner, _, last = f"x{glob[1:]}".rpartition(".")
        source = f"async def f({owner or last}):\n    await {owner and f'{owner}.'}{last}()\n"
    else:
        source = (
            f"import asyncio\nx = {glob.rpartition('.')[0]}\nasync def f():\n    await x.{glob.rpartition('.')[2]}()\n"
        )

    assert "PK009" in codes(source)


@pytest.mark.parametrize("name", sorted(deadlines._SLEEPS))
def test_every_sleep_is_known(name):
    assert codes(used(name, f"while x:\n        await {name}(1)")) == ["PK010"]
    assert codes(used(name, f"await {name}(1)"), path="tests/test_x.py") == ["PK018"]


@pytest.mark.parametrize("name", sorted(clocks._WALL_WITHOUT_ARGUMENT))
def test_conversions_read_the_wall_clock_only_without_an_argument(name):
    assert codes(used(name, f"{name}()")) == ["PK011"]
    assert codes(used(name, f"{name}(x)")) == []
