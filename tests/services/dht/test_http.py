"""The HTTP door, the SDK and the swarm's conversation, over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.client import Client, connect
from penstock.kernel.clock import SYSTEM
from penstock.kernel.errors import Malformed, NotFound, Unauthenticated
from penstock.services.dht.service import DhtSurroundings
from penstock.services.dht.swarm.key import SwarmKey
from penstock.services.dht.swarm.options import SwarmOptions, peer_conns
from penstock.services.dht.swarm.session import obey
from penstock.services.dht.swarm.swarm import Swarm
from tests.services.dht.kit import KEY, RunningNode, options, start, until

pytestmark = pytest.mark.real_loop


@asynccontextmanager
async def door() -> AsyncIterator[tuple[RunningNode, SwarmKey, Client]]:
    """Run one node that checks capabilities, and a client of it."""
    key = SwarmKey(SYSTEM)
    node = await start(options(), DhtSurroundings(verifier=key.verifier))
    try:
        await until(lambda: node.service.state.readiness.ready, "readiness")
        async with connect(token=key.token, ports={"dht": 1, "dht_http": port_of(node)}) as client:
            yield node, key, client
    finally:
        await node.stop()


def port_of(node: RunningNode) -> int:
    """Return the HTTP port."""
    assert node.service.listener is not None
    return node.service.listener.port


async def raw(node: RunningNode, key: SwarmKey, path: str, *, accept: str = "*/*") -> tuple[int, str]:
    """Ask by hand; return status and body."""
    async with asyncio.timeout(30):
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(node))
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key.token}\r\n"
        writer.write(f"{head}Accept: {accept}\r\nConnection: close\r\n\r\n".encode())
        answer = (await reader.read(-1)).decode()
        writer.close()
    first, _, rest = answer.partition("\r\n")
    return int(first.split()[1]), rest.partition("\r\n\r\n")[2]


async def test_the_sdk_provides_finds_withdraws_and_looks() -> None:
    async with door() as (node, _key, client):
        made = await client.dht.provide(f"b3:{KEY}", addrs=["tcp://127.0.0.1:9"], ttl_s=60)
        found = await client.dht.find(KEY)
        status, table, records = await client.dht.status(), await client.dht.table(), await client.dht.records()

        assert made.stored == 1
        assert made.record.expires_at - made.record.issued_at == 60_000
        assert found.providers[0].addrs == ("tcp://127.0.0.1:9",)
        assert status.node_id == table["node_id"] == f"{node.own:064x}"
        assert records["own"][0]["key"] == KEY
        await client.dht.withdraw(KEY)
        assert (await client.dht.find(KEY)).providers == ()
        with pytest.raises(NotFound):
            await client.dht.withdraw(KEY)


async def test_without_a_capability_nothing_is_told() -> None:
    async with door() as (node, _key, _client), connect(token="psp1_x", ports={"dht_http": port_of(node)}) as stranger:
        with pytest.raises(Unauthenticated):
            await stranger.dht.status()


@pytest.mark.parametrize(
    "path",
    [
        "/v1/dht/providers/zz",
        f"/v1/dht/providers/{KEY}0",
        f"/v1/dht/providers/{KEY}?limit=0",
        f"/v1/dht/providers/{KEY}?limit=65",
        f"/v1/dht/providers/{KEY}?wait_ms=49",
        f"/v1/dht/providers/{KEY}?wait_ms=10001",
        f"/v1/dht/providers/{KEY}?paths=4",
        f"/v1/dht/providers/{KEY}?more=1",
        "/v1/dht/nodes/x",
    ],
)
async def test_keys_that_are_no_keys_and_numbers_out_of_range_are_400(path: str) -> None:
    async with door() as (node, key, _client):
        status, body = await raw(node, key, path)

        assert status == 400
        assert json.loads(body)["code"] == "malformed"


async def test_records_are_streamed_as_they_come_and_the_answer_ends_the_stream() -> None:
    async with door() as (node, key, client):
        await client.dht.provide(KEY)
        status, body = await raw(node, key, f"/v1/dht/providers/{KEY}", accept="text/event-stream")

        assert status == 200
        assert body.index("event: provider") < body.index("event: done")


async def test_a_ping_goes_only_where_peers_may_be() -> None:
    async with door() as (_node, _key, client):
        with pytest.raises(Malformed):
            await client.dht.ping("127.0.0.1", 80)
        with pytest.raises(Malformed):
            await client.dht.ping("169.254.1.1", 5302)
        other = await start(options())
        try:
            assert (await client.dht.ping(*other.address)).node_id == f"{other.own:064x}"
        finally:
            await other.stop()


async def test_a_swarm_obeys_and_its_nodes_come_back_as_themselves() -> None:
    swarm = Swarm(SwarmOptions(nodes=5))
    try:
        await swarm.start()
        told = swarm.members[3].told()
        assert (await obey(swarm, ["kill", "3"]))["event"] == "done"
        assert not swarm.members[3].alive
        assert (await obey(swarm, ["blackhole", "4"]))["nodes"] == [4]
        assert (await obey(swarm, ["revive", "3", "4"]))["event"] == "done"
        assert swarm.members[3].told() == told, "the same id at the same addresses"
        await until(lambda: all(member.ready for member in swarm.members), "joining again")
        looked = await obey(swarm, ["gets", "3", KEY])
        assert (looked["event"], len(looked["took"]), len(looked["cpu"]), looked["found"]) == ("gets", 3, 3, 0)
        for wrong in (["gets"], ["gets", "3"], ["gets", "0", KEY], ["gets", "3", "no key"]):
            assert (await obey(swarm, wrong))["event"] == "error"
        assert (await obey(swarm, ["kill", "99"]))["event"] == "error"
        assert (await obey(swarm, ["explode"]))["event"] == "error"
    finally:
        await swarm.close()


def test_a_swarm_that_does_not_fit_says_so() -> None:
    assert peer_conns(200, 20_000) == 74
    assert peer_conns(2, 1 << 20) == 512
    with pytest.raises(ValueError, match="ulimit -n"):
        peer_conns(200, 1024)
