"""Killing workers and writers: the service is degraded, says so, and comes back."""

from __future__ import annotations

import pytest

from penstock.contracts import dht as d
from penstock.kernel.child import ChildState
from tests.services.dht.kit import KEY, RunningNode, swarm, until

pytestmark = pytest.mark.real_loop


def running(node: RunningNode, name: str) -> bool:
    """Tell whether every instance of a child runs."""
    return all(child.state is ChildState.RUNNING for child in node.supervisor.children if child.spec.name == name)


@pytest.mark.parametrize("name", ["lookup_worker", "bucket_writer"])
async def test_one_dead_worker_or_writer_degrades_and_comes_back(name: str) -> None:
    async with swarm(3) as nodes:
        node = nodes[2]
        before, flips = len(node.service.state.table), list[tuple[str, bool, bool]]()
        node.inventory.health.on_flip(lambda _service, gate: flips.append((gate.name, gate.open, gate.degraded)))
        assert node.supervisor.kill(f"{name}[0]")
        # Heard of, not looked for: it may be back before a busy machine looks.
        await until(lambda: any(flip[0] == name for flip in flips), "degrading")

        assert flips[0] == (name, True, True), "degraded and open: the others do its work"
        assert (await node.service.api.find(d.Find(KEY))).complete
        await until(lambda: running(node, name), "the restart")
        assert len(node.service.state.table) == before, "a writer's bucket outlives its crash"


async def test_all_lookup_workers_at_once_shut_the_gate_and_are_back_within_seconds() -> None:
    async with swarm(2) as nodes:
        node, missing = nodes[1], list[tuple[str, ...]]()
        node.inventory.health.on_flip(lambda _service, _gate: missing.append(node.inventory.health.verdict().missing))
        for child in node.supervisor.children:
            if child.spec.name == "lookup_worker":
                child.kill()
        await until(lambda: ("lookup_worker",) in missing, "shutting the gate")

        await until(lambda: running(node, "lookup_worker"), "recovery")
        assert node.inventory.health.gate("lookup_worker").open
        assert (await node.service.api.find(d.Find(KEY, wait_ms=10_000))).complete


async def test_finds_go_on_while_workers_are_killed() -> None:
    async with swarm(4) as nodes:
        await nodes[1].service.api.provide(d.Provide(KEY))
        found = 0
        for number in range(20):
            nodes[3].supervisor.kill(f"lookup_worker[{number % 16}]")
            found += bool((await nodes[3].service.api.find(d.Find(KEY, wait_ms=5000))).providers)

        assert found == 20, "a worker that dies idle takes no job with it"
