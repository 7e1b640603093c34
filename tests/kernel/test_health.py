"""Readiness gates and the verdict over them."""

from __future__ import annotations

from penstock.kernel.health import Health


def test_nothing_is_ready_until_somebody_vouches() -> None:
    health = Health("svc-test")
    assert not health.verdict().ready

    gate = health.gate("listener")
    assert (health.verdict().ready, health.verdict().missing) == (False, ("listener",))
    gate.set(is_open=True)
    assert health.verdict().ready


def test_a_degraded_gate_is_named_and_does_not_make_the_service_unready() -> None:
    health = Health("svc-test")
    health.gate("kms").set(is_open=True, degraded=True, why="p95")
    verdict = health.verdict()

    assert (verdict.ready, verdict.degraded, verdict.gates) == (True, ("kms",), {"kms": True})


def test_a_fatal_task_outweighs_every_open_gate() -> None:
    health = Health("svc-test")
    health.gate("worker").set(is_open=True)
    health.fatal = "worker"

    assert not health.verdict().ready


def test_only_a_real_change_is_told() -> None:
    health, flips = Health("svc-test"), []
    health.on_flip(lambda service, gate: flips.append((service, gate.name, gate.open, gate.degraded)))
    gate = health.gate("worker")
    gate.set(is_open=False)
    gate.set(is_open=True)
    gate.set(is_open=True, why="still")
    gate.set(is_open=True, degraded=True)

    assert flips == [("svc-test", "worker", True, False), ("svc-test", "worker", True, True)]
    assert health.gate("worker") is gate
