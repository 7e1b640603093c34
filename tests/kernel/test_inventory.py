"""The inventory: nothing concurrent is anonymous, and its rows are live."""

from __future__ import annotations

import pytest

from penstock.kernel.channel import Full
from penstock.kernel.child import ChildSpec
from penstock.kernel.errors import Busy, Lagging
from penstock.kernel.inventory import Inventory
from penstock.kernel.lock import HIERARCHY
from penstock.kernel.supervisor import Supervisor
from tests.kernel.kit import Diary, crashing, new_inventory, supervisor, waiting


def _declare_all(inventory: Inventory, shard: int | None = None):
    return inventory.channel(
        "work", bytes, capacity=2, full=Full.REFUSE, producers="listener", consumers="worker", shard=shard
    )


async def test_what_is_declared_twice_is_refused() -> None:
    inventory = new_inventory()
    _declare_all(inventory)
    inventory.limiter("inflight", 4)
    inventory.watch("config", 0)
    inventory.timeout("kms_sign", 3.0, "Timeout")

    for again in (
        lambda: _declare_all(inventory),
        lambda: inventory.broadcast("work", int),
        lambda: inventory.limiter("inflight", 4),
        lambda: inventory.bucket("inflight", rate=1, depth=1),
        lambda: inventory.watch("config", 0),
        lambda: inventory.timeout("kms_sign", 3.0, "Timeout"),
    ):
        with pytest.raises(ValueError, match="already"):
            again()


async def test_rows_are_live() -> None:
    inventory = new_inventory()
    channel = _declare_all(inventory)
    limiter = inventory.limiter("inflight", 4)
    bucket = inventory.bucket("rps", rate=1.0, depth=5.0)
    channel.try_send(b"a")
    channel.try_send(b"b")
    with pytest.raises(Busy):
        channel.try_send(b"c")
    limiter.acquire_or_busy(3)
    bucket.try_take(inventory.clock.monotonic(), 2)

    rows = inventory.rows()
    assert rows["channels"][0] == {
        "name": "work", "kind": "mpsc", "item": "bytes", "capacity": 2, "policy": "try_send, full: Busy",
        "full": "refuse",
        "producers": "listener", "consumers": "worker", "depth": 2, "dropped": 1, "closed": False,
    }  # fmt: skip
    assert [(row["name"], row["in_use"]) for row in rows["limits"]] == [("inflight", 3), ("rps", 2.0)]


async def test_channels_are_measured_under_the_seeds_names() -> None:
    inventory = new_inventory("svc-mailbox")
    shards = [_declare_all(inventory, shard) for shard in range(3)]
    plain = inventory.channel("reproc", str, capacity=256, full=Full.REFUSE, producers="o", consumers="d")
    shards[1].try_send(b"a")
    plain.try_send("x")
    for channel in shards:
        while channel.depth < 2:
            channel.try_send(b"b")
        with pytest.raises(Busy):
            channel.try_send(b"c")

    value = inventory.metrics.value
    assert value("queue_depth", queue="work", shard="1") == 2
    assert value("queue_depth", queue="reproc") == 1
    assert value("queue_dropped_total", queue="work") == 3


async def test_lost_messages_and_refusals_are_measured() -> None:
    inventory = new_inventory()
    events = inventory.broadcast("events", int, capacity=2)
    receiver = events.subscribe()
    for message in range(5):
        events.publish(message)
    with pytest.raises(Lagging):
        await receiver.recv()
    limiter = inventory.limiter("inflight", 1)
    limiter.try_acquire_many(2)

    assert inventory.metrics.value("bus_lagged_total") == 3
    assert inventory.metrics.value("quota_reject_total", kind="inflight") == 1


async def test_a_lock_without_a_place_in_the_hierarchy_is_a_bug() -> None:
    inventory = new_inventory()

    assert [inventory.lock(name).rank for name in HIERARCHY] == list(HIERARCHY.values())
    with pytest.raises(KeyError):
        inventory.lock("ad_hoc")


async def test_a_declared_pool_that_was_never_used_owes_no_close() -> None:
    inventory = new_inventory()
    pool = inventory.pool("sqlite", threads=2, capacity=8)

    assert pool.is_closed
    assert inventory.metrics.value("pool_stuck", pool="sqlite") == 0
    (row,) = inventory.rows()["limits"]
    assert (row["capacity"], row["in_use"]) == (10, 0)


async def test_tasks_are_listed_with_their_policy_and_their_state() -> None:
    inventory = new_inventory()
    boss = supervisor(inventory, [waiting(Diary(), "scanner"), ChildSpec("worker", crashing(Diary()), instances=2)])
    await boss.start()
    first, second = inventory.rows()["tasks"]

    assert (first["name"], first["states"], first["restarts"]) == ("scanner", ["running"], 0)
    assert second["crash_loop"] == "more than 5 in 60 s: quarantine"
    assert second["backoff"] == "100 ms, full jitter, cap 30 s"
    await boss.drain()


async def test_two_children_of_one_name_are_refused() -> None:
    specs = [waiting(Diary(), "scanner"), waiting(Diary(), "scanner")]

    with pytest.raises(ValueError, match="already"):
        Supervisor(new_inventory(), specs)


def test_a_queue_kept_by_its_owner_is_listed_like_a_channel() -> None:
    inventory = Inventory("svc")
    inventory.queue("work", int, capacity=8, live=lambda: {"depth": 3, "dropped": 1}, producers="a", consumers="b")
    (row,) = inventory.rows()["channels"]

    assert row["name"] == "work"
    assert (row["kind"], row["full"], row["capacity"], row["depth"]) == ("mpsc", "refuse", 8, 3)
