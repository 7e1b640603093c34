"""Readiness flips before collapse, recovers with some slack, and sheds writes while a service behind is ill."""

from __future__ import annotations

from penstock.kernel.inventory import Inventory
from penstock.services.omnigate.agents.readiness import HEADROOM_CLEAR, HEADROOM_LOW, Readiness


class Queue:
    """As much of a gate as readiness looks at."""

    def __init__(self) -> None:
        self.degraded = False
        self.headroom = 1.0
        self.scarce: list[str] = []


def watched(**well: bool) -> tuple[Inventory, Queue, dict[str, bool], Readiness]:
    """Make a readiness over downstreams whose health the test moves."""
    inventory, queue = Inventory("omnigate"), Queue()
    readiness = Readiness(inventory, queue, {name: lambda name=name: well[name] for name in well})  # type: ignore[misc]
    return inventory, queue, well, readiness


def test_a_queue_without_headroom_shuts_its_gate() -> None:
    inventory, queue, _, readiness = watched()

    queue.headroom = HEADROOM_LOW - 0.01
    readiness.look()

    assert inventory.health.verdict().missing == ("queue_headroom",)
    # The class that is full sheds its own writes; those of the others are taken.
    assert not queue.degraded


def test_headroom_must_recover_well_before_it_is_believed() -> None:
    inventory, queue, _, readiness = watched()
    queue.headroom = 0.0
    readiness.look()

    queue.headroom = (HEADROOM_LOW + HEADROOM_CLEAR) / 2
    readiness.look()
    between = inventory.health.verdict().ready
    queue.headroom = HEADROOM_CLEAR
    readiness.look()

    assert not between
    assert inventory.health.verdict().ready
    assert not queue.degraded


def test_an_ill_downstream_degrades_but_stays_ready() -> None:
    inventory, queue, well, readiness = watched(**{"svc-mailbox": True, "svc-passport": True})

    well["svc-mailbox"] = False
    readiness.look()
    ill = inventory.health.verdict()
    well["svc-mailbox"] = True
    readiness.look()

    assert (ill.ready, ill.degraded) == (True, ("downstreams",))
    assert not queue.degraded
    assert inventory.health.verdict().degraded == ()


def test_an_upstream_that_is_down_is_told_and_costs_nobody_else_their_writes() -> None:
    inventory, queue, well = Inventory("omnigate"), Queue(), {"/shop": False}
    Readiness(inventory, queue, {}, lambda: well).look()

    assert inventory.health.verdict().degraded == ("downstreams",)
    assert [gate.why for gate in inventory.health.gates() if gate.degraded] == ["/shop"]
    assert not queue.degraded


def test_an_upstream_that_could_not_be_dialled_is_named_once() -> None:
    inventory, queue, well = Inventory("omnigate"), Queue(), {"/shop": False, "/shoes": False}
    readiness = Readiness(inventory, queue, {}, lambda: well)
    readiness.unreached = ["/shop (http://192.0.2.7:80)"]
    readiness.look()

    [why] = [gate.why for gate in inventory.health.gates() if gate.degraded]
    assert why == "/shop (http://192.0.2.7:80), /shoes"


def test_an_ill_issuer_is_named_apart_because_the_last_good_keys_still_serve() -> None:
    inventory, _, well, readiness = watched(**{"svc-passport": True})

    well["svc-passport"] = False
    readiness.look()

    assert set(inventory.health.verdict().degraded) == {"downstreams", "passport"}


def test_what_is_shed_is_said_with_its_reason_and_nothing_while_nothing_is() -> None:
    inventory, queue, well, readiness = watched(**{"svc-mailbox": True})
    readiness.look()
    said = [readiness.brownout()]
    queue.scarce = ["authed"]
    said.append(readiness.brownout())
    well["svc-mailbox"] = False
    readiness.look()
    said.append(readiness.brownout())

    assert said == [
        "",
        "writes of authed are shed: the class is nearly full",
        "writes are shed: svc-mailbox does not answer; writes of authed are shed: the class is nearly full",
    ]
    assert inventory.health.brownout is not None
    assert inventory.health.brownout() == said[-1]
