"""What is said on the bus reaches the node: a shutdown stops it, news of a newer configuration reloads it."""

from __future__ import annotations

import asyncio

from penstock.kernel.bus import ConfigUpdated, HealthChanged, ShutdownRequested
from penstock.kernel.child import ChildSpec
from penstock.kernel.clock import LoopClock
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from penstock.node.bus_subscriber import BusSubscriber


async def test_events_lead_to_what_they_announce_and_old_news_to_nothing() -> None:
    done: list[str] = []
    inventory = Inventory("node", LoopClock())
    bus = inventory.broadcast("events", object, capacity=4)
    subscriber = BusSubscriber(bus, stop=lambda: done.append("stop"), reload=done.append, version=lambda: 7)
    boss = Supervisor(inventory, [ChildSpec("bus_subscriber", subscriber.run)])
    await boss.start()
    await asyncio.sleep(0.1)
    for event in (ConfigUpdated(7), ConfigUpdated(8), HealthChanged("svc", ok=True), ShutdownRequested("test")):
        bus.publish(event)
    await asyncio.sleep(0.1)

    assert done == ["bus", "stop"]
    for _ in range(9):
        bus.publish(ConfigUpdated(9))
    await asyncio.sleep(0.1)
    assert done[2:] == ["bus"] * 4  # it lagged by five, and went on with what was kept
    report = await boss.drain()
    assert report.clean
    assert bus.receivers == 0
