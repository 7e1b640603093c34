"""Scopes: short tasks have a parent too."""

from __future__ import annotations

import asyncio

import pytest

from penstock.kernel.child import Child, ChildSpec
from penstock.kernel.errors import Busy, Malformed
from penstock.kernel.metrics import Metrics
from penstock.kernel.scope import Scope
from tests.kernel.kit import new_inventory, now, supervisor, turns


async def test_join_waits_for_all_tasks_also_for_those_that_came_meanwhile() -> None:
    scope, ended = Scope("part", 8, Metrics("svc-test")), []

    async def part(seconds: float, then: float | None = None) -> None:
        await asyncio.sleep(seconds)
        if then is not None:
            scope.start(part(then))
        ended.append(seconds)

    scope.start(part(1.0, then=5.0))
    scope.start(part(2.0))
    await scope.join()

    assert (ended, len(scope), now()) == ([1.0, 2.0, 5.0], 0, 1006.0)


async def test_a_place_is_free_again_when_its_task_has_ended() -> None:
    scope = Scope("part", 1, Metrics("svc-test"))
    first = scope.start(asyncio.sleep(1, "first"))
    with pytest.raises(Busy):
        scope.start(asyncio.sleep(1))

    assert await first == "first"
    await turns(1)
    assert await scope.start(asyncio.sleep(1, "second")) == "second"


async def test_a_task_that_is_over_takes_no_place_while_it_leaves() -> None:
    scope = Scope("part", 1, Metrics("svc-test"))

    async def nothing() -> None:
        """End in the first step."""

    over = scope.start(nothing())
    await asyncio.sleep(0)
    assert (over.done(), len(scope)) == (True, 1)

    assert await scope.start(asyncio.sleep(1, "next")) == "next"


async def test_a_refusal_by_a_large_scope_looks_at_none_of_its_tasks() -> None:
    looked_at = []

    class Watched(asyncio.Task[None]):
        def done(self) -> bool:
            looked_at.append(self)
            return super().done()

    scope = Scope("part", 1024, Metrics("svc-test"))
    loop = asyncio.get_running_loop()
    loop.set_task_factory(lambda loop, work, **kind: Watched(work, loop=loop, **kind))  # type: ignore[arg-type]
    for _ in range(scope.limit):
        scope.start(asyncio.sleep(1))
    asyncio.get_running_loop().set_task_factory(None)
    with pytest.raises(Busy):
        scope.start(asyncio.sleep(1))

    assert looked_at == []
    await scope.close()


async def test_a_closed_scope_refuses_and_leaves_no_coroutine_behind() -> None:
    scope = Scope("part", 4, Metrics("svc-test"))
    await scope.close()

    with pytest.raises(Busy):
        scope.start(asyncio.sleep(1))
    assert (scope.closed, scope.refused) == (True, 1)


async def test_a_failed_task_is_counted_and_ends_nobody_else() -> None:
    metrics = Metrics("svc-test")
    scope = Scope("request", 4, metrics)

    async def fail(error: Exception) -> None:
        raise error

    scope.start(fail(ZeroDivisionError("planted")))
    scope.start(fail(Malformed("a condition is no failure")))
    other = scope.start(asyncio.sleep(1, "fine"))

    assert await other == "fine"
    assert metrics.value("job_failures_total", worker="request", type="ZeroDivisionError") == 1
    (family,) = [family for family in metrics.families() if family.name == "job_failures_total"]
    assert len(family.series) == 1


async def test_close_gives_up_on_a_stubborn_task_after_250_ms_and_says_so() -> None:
    scope = Scope("part", 4, Metrics("svc-test"))

    async def stubborn() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(2)

    scope.start(stubborn())
    await asyncio.sleep(1)

    assert await scope.close() == 1
    assert now() == pytest.approx(1001.25)
    await scope.join()
    assert await scope.close() == 0


async def test_tasks_see_that_they_were_cancelled_once() -> None:
    scope, cancels = Scope("part", 4, Metrics("svc-test")), []

    async def count() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancels.append("cancel")
            await asyncio.sleep(0.1)
            raise

    scope.start(count())
    await asyncio.sleep(1)
    scope.cancel()
    await scope.close()
    await scope.close()

    assert cancels == ["cancel"]


async def test_a_child_forgets_the_scopes_it_closed_and_ends_the_others() -> None:
    opened: list[Scope] = []

    async def serve(child: Child) -> None:
        for _ in range(100):
            scope = child.scope("request", 4)
            opened.append(scope)
            scope.start(asyncio.sleep(60))
            await asyncio.sleep(0.01)
            await scope.close()
        opened.append(child.scope("request", 4))
        opened[-1].start(asyncio.sleep(60))
        assert list(child._scopes) == opened[-1:]
        await child.shutdown.wait()

    boss = supervisor(new_inventory(), [ChildSpec("listener", serve)])
    await boss.start()
    await asyncio.sleep(10)
    assert len(opened) == 101
    await boss.drain()

    assert all(scope.closed for scope in opened)
    assert boss.children[0].last_error == ""
    assert not boss.children[0]._scopes
