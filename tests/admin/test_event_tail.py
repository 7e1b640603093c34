"""What happened is kept whether or not anybody looks: bounded, dated, in words, and without noise."""

from __future__ import annotations

import asyncio

from penstock.admin.event_tail import EVENTS_KEPT, EventTail
from penstock.kernel.bus import (
    ConfigUpdated,
    HealthChanged,
    KernelEvent,
    ServiceCrashed,
    ShutdownRequested,
)
from penstock.kernel.child import ChildSpec
from penstock.kernel.clock import LoopClock
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor


def make() -> tuple[EventTail, Inventory]:
    inventory = Inventory("node", LoopClock(wall_at_start=1_000.0))
    bus = inventory.broadcast("events", KernelEvent, capacity=4, producers="test", consumers="tail")
    return EventTail(bus, inventory.clock.wall), inventory


def texts(tail: EventTail) -> list[str]:
    return [f"{moment.service}: {moment.text} ({moment.level})" for moment in tail.events]


async def test_every_kind_of_event_is_told_in_words_with_its_date() -> None:
    tail, _ = make()
    for event in (
        ServiceCrashed("svc-echo", "worker[0]", "ValueError"),
        HealthChanged("svc-echo", ok=False, gate="worker"),
        HealthChanged("svc-echo", ok=True, gate="worker"),
        ConfigUpdated(3),
        ShutdownRequested("SIGTERM"),
    ):
        tail.note(event)

    assert texts(tail) == [
        "svc-echo: worker[0] crashed: ValueError (bad)",
        "svc-echo: gate worker shut (warn)",
        "svc-echo: gate worker opened (info)",
        "node: configuration 3 in force (info)",
        "node: asked to stop (SIGTERM) (warn)",
    ]
    assert {moment.at for moment in tail.events} == {1_000_000}


async def test_a_gate_that_opens_at_the_start_or_says_the_same_again_is_no_news() -> None:
    tail, _ = make()
    for ok in (True, True, False, False, True, True):
        tail.note(HealthChanged("svc", ok=ok, gate="worker"))

    assert texts(tail) == ["svc: gate worker shut (warn)", "svc: gate worker opened (info)"]


async def test_gates_are_no_news_while_the_node_starts_and_shut_ones_are_told_at_its_end() -> None:
    tail, inventory = make()
    boss = Supervisor(inventory, [ChildSpec("event_tail", tail.run)])
    tail.await_start()
    await boss.start()
    await asyncio.sleep(0.1)
    tail._bus.publish(HealthChanged("svc", ok=False, gate="worker"))
    await asyncio.sleep(0.1)
    # Published before the end of the start and read after it: still of the start.
    tail._bus.publish(HealthChanged("svc", ok=True, gate="worker"))
    tail._bus.publish(HealthChanged("svc", ok=False, gate="disk"))
    tail.end_start([("svc", "disk")])
    await asyncio.sleep(0.1)
    at_the_end = texts(tail)
    tail._bus.publish(HealthChanged("svc", ok=False, gate="worker"))
    tail._bus.publish(HealthChanged("svc", ok=True, gate="disk"))
    await asyncio.sleep(0.1)
    after = texts(tail)
    await boss.drain()

    assert at_the_end == ["svc: gate disk shut (warn)"]
    assert after[1:] == ["svc: gate worker shut (warn)", "svc: gate disk opened (info)"]


async def test_the_oldest_goes_when_the_tail_is_full() -> None:
    tail, _ = make()
    for version in range(EVENTS_KEPT + 5):
        tail.note(ConfigUpdated(version))

    assert len(tail.events) == EVENTS_KEPT
    assert tail.events[0].text == "configuration 5 in force"


async def test_it_listens_until_the_drain_and_counts_what_it_lost() -> None:
    tail, inventory = make()
    boss = Supervisor(inventory, [ChildSpec("event_tail", tail.run)])
    tail.follow(boss)
    await boss.start()
    await asyncio.sleep(0.1)
    for version in range(9):
        tail._bus.publish(ConfigUpdated(version))
    await asyncio.sleep(0.1)
    report = await boss.drain()

    assert tail.skipped == 5
    assert texts(tail)[:4] == [f"node: configuration {version} in force (info)" for version in range(5, 9)]
    assert report.clean
    assert tail._bus.receivers == 0
    assert [moment.text for moment in tail.phases] == ["running", "draining", "stopped"]
