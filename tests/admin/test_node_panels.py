"""The page's figures come worst first, are bounded, and the verdict says in one sentence what is wrong."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.admin.event_tail import EventTail
from penstock.admin.node_panels import channels, node_panels, services, tasks, verdict
from penstock.admin.panel import Column, Panel
from penstock.kernel.bus import ConfigUpdated, KernelEvent
from penstock.kernel.channel import Full
from penstock.kernel.child import Child, ChildSpec
from penstock.kernel.clock import LoopClock
from penstock.kernel.inventory import Inventory
from penstock.kernel.lifecycle import Phase
from penstock.kernel.supervisor import Supervisor


async def wait(child: Child) -> None:
    await child.shutdown.wait()


def service(name: str, *specs: ChildSpec) -> Supervisor:
    inventory = Inventory(name, LoopClock())
    return Supervisor(inventory, specs or [ChildSpec("worker", wait)])


class View:
    """As much of a node as the panels look at."""

    def __init__(self, *supervisors: Supervisor) -> None:
        self._supervisors = list(supervisors)

    def supervisors(self) -> list[Supervisor]:
        return self._supervisors

    def phase(self) -> Phase:
        return self._supervisors[-1].phase.value


def judged(*supervisors: Supervisor) -> dict[str, Any]:
    return verdict(View(*supervisors))  # type: ignore[arg-type]


def open_all(*supervisors: Supervisor) -> None:
    for supervisor in supervisors:
        supervisor.inventory.health.gate("worker").set(is_open=True)


async def test_services_come_worst_first() -> None:
    good, shut, dead, weak, going = (service(name) for name in ("good", "shut", "dead", "weak", "going"))
    open_all(good, dead, weak, going)
    dead.inventory.health.fatal = "worker"
    weak.inventory.health.gate("disk").set(is_open=True, degraded=True, why="nearly full")
    going.phase.set(Phase.DRAINING)
    rows = services([good, weak, going, shut, dead])

    assert [row["service"] for row in rows] == ["dead", "shut", "going", "weak", "good"]
    assert [row["state"] for row in rows] == ["fatal", "not ready", "draining", "degraded", "ready"]
    assert rows[3]["degraded"] == [{"gate": "disk", "why": "nearly full"}]


async def test_the_verdict_is_the_worst_word_and_says_why() -> None:
    good, shut, node = service("good"), service("shut"), service("node")
    open_all(good, node)
    shut.inventory.health.gate("worker").set(is_open=False, why="crash loop")

    assert judged(good, shut, node) == {"state": "not ready", "why": "shut is not ready: worker (crash loop)"}
    open_all(shut)
    assert judged(good, shut, node) == {"state": "ready", "why": ""}


async def test_a_long_list_of_reasons_is_cut_and_counted() -> None:
    told = judged(*(service(f"s{number}") for number in range(5)))["why"]

    assert told.count("is not ready") == 3
    assert told.endswith("; 2 more")


async def test_a_node_whose_services_ended_first_is_draining_not_stopped() -> None:
    first, node = service("first"), service("node")
    open_all(first, node)
    first.phase.set(Phase.STOPPED)

    assert judged(first, node)["state"] == "draining"
    node.phase.set(Phase.ABORTING)
    assert judged(first, node)["state"] == "aborting"


async def test_full_channels_come_first_then_those_that_dropped() -> None:
    boss = service("svc")
    made = {
        name: boss.inventory.channel(name, int, capacity=10, full=Full.REFUSE)
        for name in ("empty", "lossy", "half", "nearly")
    }
    for name, depth in {"half": 5, "nearly": 8}.items():
        for number in range(depth):
            made[name].try_send(number)
    made["lossy"].dropped = 3
    rows = channels([boss])

    assert [row["name"] for row in rows] == ["nearly", "half", "lossy", "shutdown", "empty"]
    assert (rows[0]["depth"], rows[0]["capacity"], rows[2]["dropped"]) == (8, 10, 3)


async def test_every_declared_channel_and_task_is_there() -> None:
    boss = service("svc", ChildSpec("a", wait), ChildSpec("b", wait, instances=3))
    boss.inventory.channel("work", int, capacity=1, full=Full.REFUSE)
    boss.inventory.broadcast("events", int)

    assert {row["name"] for row in channels([boss])} == {row.name for row in boss.inventory.declared("channels")}
    assert [row["name"] for row in tasks([boss])] == ["a", "b"]


async def test_a_task_that_crashed_comes_first_with_its_error() -> None:
    async def crash(child: Child) -> None:
        raise ValueError("bad day")

    calm = service("calm")
    rough = service("rough", ChildSpec("fine", wait), ChildSpec("broken", crash))
    await calm.start()
    await rough.start()
    await asyncio.sleep(0)
    rows = tasks([calm, rough])
    await rough.drain()
    await calm.drain()

    assert [(row["service"], row["name"]) for row in rows] == [
        ("rough", "broken"),
        ("rough", "fine"),
        ("calm", "worker"),
    ]
    assert rows[0]["states"] == {"backoff": 1}
    assert rows[0]["error"] == "ValueError: bad day"
    assert rows[2]["states"] == {"running": 1}


async def test_instances_of_one_task_are_counted_by_state() -> None:
    boss = service("svc", ChildSpec("worker", wait, instances=4))
    await boss.start()
    await asyncio.sleep(0)
    rows = tasks([boss])
    await boss.drain()

    assert rows[0]["states"] == {"running": 4}


async def test_busy_refusals_are_summed_over_routes_and_queues() -> None:
    boss = service("svc")
    for queue in ("a", "b"):
        boss.inventory.metrics.counter("busy_rejections_total", "", endpoint="/x", queue=queue).value = 2

    assert services([boss])[0]["busy"] == 4


@pytest.mark.parametrize(("many", "shown", "more"), [(0, 0, 0), (3, 3, 0), (5, 3, 2)])
def test_a_panel_shows_so_many_rows_and_counts_the_others(many: int, shown: int, more: int) -> None:
    panel = Panel(
        "p", "P", lambda: [{"n": n} for n in range(many)], columns=(Column("n", "number", "count"),), rows_max=3
    )
    drawn: dict[str, Any] = panel.draw()

    assert (len(drawn["rows"]), drawn["more"]) == (shown, more)
    assert drawn["columns"] == [("n", "number", "count")]


async def test_panels_of_services_stand_between_what_runs_and_what_happened() -> None:
    boss = service("svc")
    bus = boss.inventory.broadcast("bus", KernelEvent)
    tail = EventTail(bus, boss.inventory.clock.wall)
    tail.note(ConfigUpdated(1))
    tail.skipped = 7
    drawn: list[dict[str, Any]] = [
        panel.draw()
        for panel in node_panels(View(boss), tail, [Panel("extra", "Extra", list)])  # type: ignore[arg-type]
    ]

    assert [each["id"] for each in drawn] == ["services", "channels", "tasks", "extra", "phases", "events"]
    assert [row["text"] for row in drawn[-1]["rows"]] == ["7 events were lost", "configuration 1 in force"]
