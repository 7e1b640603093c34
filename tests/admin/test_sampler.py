"""The sampler measures once a second; a source that fails leaves a gap, and the others go on."""

from __future__ import annotations

import asyncio

import pytest

from penstock.admin.sampler import Sampler
from penstock.kernel.child import ChildSpec
from penstock.kernel.clock import LoopClock
from penstock.kernel.errors import Busy
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from tests.net.server.listener_kit import get, serving


async def test_every_second_has_a_value_whether_or_not_anybody_looks() -> None:
    inventory = Inventory("node", LoopClock())
    sampler = Sampler(inventory, [lambda now: {"clock": now}])
    boss = Supervisor(inventory, [ChildSpec("history_sampler", sampler.run)])
    await boss.start()
    await asyncio.sleep(20.5)
    await boss.drain()

    kept = [value for value in sampler.history.read("5m")["clock"] if value is not None]
    assert len(kept) in (20, 21)
    assert sampler.now["clock"] == kept[-1]


async def test_a_source_that_fails_costs_its_own_figures_alone() -> None:
    broken = True

    def source(_now: float) -> dict[str, float]:
        if broken:
            raise KeyError("topic")
        return {"weak": 1.0}

    sampler = Sampler(Inventory("node", LoopClock()), [source, lambda _: {"strong": 2.0}])
    sampler.sample()
    assert sampler.now == {"strong": 2.0}
    broken = False
    sampler.sample()

    assert sampler.now == {"strong": 2.0, "weak": 1.0}


async def test_what_has_to_be_asked_for_is_asked_for_again_after_a_refusal() -> None:
    asked = 0

    async def ask() -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise Busy("Not now.")

    inventory = Inventory("node", LoopClock())
    sampler = Sampler(inventory, [], [ask])
    boss = Supervisor(inventory, [ChildSpec("history_refresher", sampler.refresh)])
    await boss.start()
    await asyncio.sleep(10)
    await boss.drain()

    assert asked == 3


async def test_the_history_is_declared_with_its_bound() -> None:
    inventory = Inventory("node", LoopClock())
    sampler = Sampler(inventory, [lambda _: {"a": 1.0}])
    sampler.sample()

    (row,) = [row for row in inventory.rows()["limits"] if row["name"] == "page_history_bytes"]
    assert (row["capacity"], row["series"]) == (4 << 20, 1)
    assert inventory.metrics.value("page_history_bytes") == row["in_use"] > 0


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 200),
        ("?span=5m&series=sent,refused&points=60", 200),
        ("?span=9m", 400),
        ("?points=100000", 400),
        ("?points=-1", 400),
        ("?bad=1", 400),
        ("?series=" + ",".join("abcdefghijklmnopqrstuvwxyz"), 400),
    ],
)
async def test_the_route_answers_or_says_what_is_wrong(query: str, status: int) -> None:
    sampler = Sampler(Inventory("node", LoopClock()), [lambda _: {"sent": 1.0}])
    sampler.sample()
    async with serving(sampler.routes()) as site:
        client = site.connect()
        client.send(get(f"/history{query}"))

        assert (await client.answer()).status == status
