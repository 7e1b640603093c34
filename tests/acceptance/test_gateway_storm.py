"""After a storm of everything at once nothing is held, and the next request is served."""

from __future__ import annotations

import asyncio
from pathlib import Path

from penstock.testing import wait_until
from tests.acceptance.gateway_kit import ask
from tests.acceptance.node_process import NodeProcess
from tests.acceptance.storm_upstream import Clients, misbehave

CLIENTS = 80
STORM_S = 3.0
STORM_S_MAX = 30.0
WANTED = {b"200", b"401", b"504"}
CONFIG = """
[omnigate.quotas]
default_rps = 0
per_ip_rps = 0
per_cap_rps = 0
[omnigate.fair_queue]
max_inflight = {slots}
adaptive = {adaptive}
[[omnigate.routes]]
prefix = "/shop"
upstream = ["http://127.0.0.1:{port}"]
timeout = "500ms"
"""


async def storm(directory: Path, slots: int) -> list[str]:
    """Run a node in the middle of it, kill its workers meanwhile, look at what is left; return what its log blames."""
    upstream = await asyncio.start_server(misbehave, "127.0.0.1", 0)
    config = directory / "penstock.toml"
    port = upstream.sockets[0].getsockname()[1]
    config.write_text(CONFIG.format(port=port, slots=slots, adaptive="false"), encoding="ascii")
    loop = asyncio.get_running_loop()
    node = NodeProcess("--config", str(config), "--set", "node.chaos=true")
    await asyncio.to_thread(node.__enter__)
    try:
        clients = Clients(node.port("omnigate"), node.ready["token"], seed=slots)
        began = loop.time()

        def is_over() -> bool:
            """It is a storm once there was everything; a slow machine needs longer for that."""
            return loop.time() > began + (STORM_S if set(clients.statuses) >= WANTED else STORM_S_MAX)

        async with asyncio.TaskGroup() as all_of_them:
            for _ in range(CLIENTS):
                all_of_them.create_task(clients.run(is_over))
            all_of_them.create_task(kill_workers(node, STORM_S / 2))
        assert set(clients.statuses) >= WANTED, clients.statuses
        await asyncio.to_thread(check_calm, node)
    finally:
        node.process.terminate()
        _, _, log = await asyncio.to_thread(node.wait)
        await asyncio.to_thread(node.__exit__)
        upstream.close()
    return faults(log)


def faults(log: str) -> list[str]:
    """Return the lines that tell of a bug; the one crash is the one that was asked for."""
    told = [line for line in log.splitlines() if '"level": "error"' in line or "Traceback" in line]
    return [line for line in told if "was killed" not in line]


async def kill_workers(node: NodeProcess, after_s: float) -> None:
    """Crash the pool in the middle."""
    await asyncio.sleep(after_s)
    killed = await asyncio.to_thread(node.kill_task, "worker_pool")
    assert killed.status == 200


def held(node: NodeProcess) -> float:
    """Add up everything the gate holds."""
    lines = node.ask("admin", "GET", "/metrics", token=True).body.decode().splitlines()
    rows = [line for line in lines if line.startswith(("fq_inflight{", "fq_waiting{", "fq_parked{"))]
    assert len(rows) == 9
    return sum(float(row.rsplit(" ", 1)[1]) for row in rows)


def check_calm(node: NodeProcess) -> None:
    """Demand that every slot, place and parked request was given back, and that the gateway serves."""
    wait_until(lambda: held(node) == 0)
    wait_until(lambda: ask(node, "GET", "/readyz").json()["ready"])
    wait_until(lambda: ask(node, "GET", "/shop/ok").status == 200)
    wait_until(lambda: ask(node, "POST", "/v1/mailbox/storm", b"after").status == 200)


def test_a_storm_leaves_nothing_behind_where_slots_are_many(tmp_path: Path) -> None:
    assert asyncio.run(storm(tmp_path, 512)) == []


def test_a_storm_leaves_nothing_behind_where_everybody_waits_for_a_slot(tmp_path: Path) -> None:
    assert asyncio.run(storm(tmp_path, 4)) == []
