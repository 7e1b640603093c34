"""The verdict counts what an operator must know: dead letters, age, refusals, full queues; not only gates."""

from __future__ import annotations

from penstock.admin.concern import Concern, summed_up
from penstock.admin.own_concerns import own_concerns
from penstock.kernel.channel import Full
from penstock.kernel.child import Child, ChildSpec
from penstock.kernel.clock import LoopClock
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor

DEAD = Concern("warn", "3 dead letters", "All dead letters are in orders", "dead")
FULL = Concern("bad", "a full queue", "svc-x work cannot take much more", "runtime")


def test_a_node_without_concerns_is_well() -> None:
    assert summed_up("ready", "", []) == {
        "state": "ready", "level": "good", "title": "Working, nothing to do", "why": "", "concerns": [],
    }  # fmt: skip


def test_a_ready_node_with_dead_letters_is_not_green() -> None:
    judged = summed_up("ready", "", [DEAD])

    assert (judged["level"], judged["title"]) == ("warn", "Working, with 3 dead letters")
    assert judged["why"] == "All dead letters are in orders."
    assert judged["concerns"] == [{"level": "warn", "words": "3 dead letters", "view": "dead"}]


def test_the_worst_concern_comes_first_and_sets_the_level() -> None:
    judged = summed_up("ready", "", [DEAD, FULL])

    assert (judged["level"], judged["title"]) == ("bad", "Working, with a full queue and 3 dead letters")


def test_a_bad_concern_makes_a_degraded_node_red() -> None:
    dead = Concern("bad", "a dead upstream", "", "gateway")

    assert summed_up("degraded", "", [dead])["level"] == "bad"
    assert summed_up("degraded", "", [])["level"] == "warn"


def test_a_node_that_is_not_ready_says_so_first() -> None:
    judged = summed_up("not ready", "svc-x is not ready: disk", [DEAD])

    assert (judged["level"], judged["title"]) == ("bad", "Not ready, with 3 dead letters")
    assert str(judged["why"]).startswith("svc-x is not ready: disk. ")


async def _wait(child: Child) -> None:
    await child.shutdown.wait()


async def test_a_queue_that_is_nearly_full_is_a_concern() -> None:
    inventory = Inventory("svc-x", LoopClock())
    channel = inventory.channel("work", int, capacity=5, full=Full.REFUSE)
    boss = Supervisor(inventory, [ChildSpec("worker", _wait)])
    assert own_concerns([boss], {}, {}) == []
    for number in range(4):
        channel.try_send(number)

    (concern,) = own_concerns([boss], {}, {})
    assert (concern.level, concern.words, concern.view) == ("bad", "a full queue", "runtime")
    assert "svc-x work" in concern.detail


def test_refusals_of_the_last_minute_are_a_concern_with_their_main_reason() -> None:
    assert own_concerns([], {}, {"busy": 9.0}) == []
    (concern,) = own_concerns([], {}, {"busy": 2.0, "unauthenticated": 1200.0})

    assert concern.detail == "1,202 requests were refused in the last minute, most as unauthenticated"


def test_a_disk_that_fills_up_is_a_concern() -> None:
    assert own_concerns([], {"disk": 80.0}, {}) == []
    assert [own_concerns([], {"disk": used}, {})[0].level for used in (91.0, 98.0)] == ["warn", "bad"]
