"""Frames and records from several peers at once, most of them bent, while their keeper is killed and comes back."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from random import Random

import pytest

from penstock.services.dht.core.record import ProviderRecord, RecordSigner, make_record
from penstock.services.dht.protocol.messages import AnswerCode, DhtAnswer, find_request, provide_request
from tests.fuzz.mutating import corpus_of, mutated
from tests.services.dht.kit import Opcode, RawPeer, RunningNode, raw_peer, swarm, until

pytestmark = pytest.mark.real_loop

PEERS = 3
ROUNDS = 24
# Fewer than a peer may send before it is cut off.
BENT_FRAMES = 12


def genuine(node: RunningNode, peer: int) -> list[ProviderRecord]:
    """Make a peer's records; two of them have the same key and publisher, and the later one counts."""
    signer, now = RecordSigner(bytes([peer + 1]) * 32), node.service.state.wall_ms()
    return [
        make_record(signer, number // 2, ("a",), seq=number + 1, issued_ms=now, ttl_s=3600) for number in range(ROUNDS)
    ]


async def submit(peer: RawPeer, records: list[ProviderRecord], seed: int, frames: list[bytes]) -> None:
    """Send each record among bent copies of it and of every kind of message; each request is answered somehow."""
    rng = Random(seed)
    for number, record in enumerate(records):
        good = provide_request(record)
        if number < BENT_FRAMES:
            bent = mutated(rng, frames)[:1000]
            peer.write(len(bent).to_bytes(4, "big") + bent)
        payloads = (mutated(rng, [good]), good, mutated(rng, [good]))
        for answer in [asyncio.ensure_future(peer.ask(Opcode.PROVIDE, payload)) for payload in payloads]:
            await answer


async def test_bent_frames_and_records_of_many_peers_at_once_leave_only_genuine_records_behind() -> None:
    async with swarm(1) as nodes, AsyncExitStack() as stack:
        node = nodes[0]
        keeper = next(child for child in node.supervisor.children if child.name == "record_keeper")
        frames = [each[4:] for each in corpus_of("dht_messages")]
        peers = [await stack.enter_async_context(raw_peer(node)) for _ in range(PEERS)]
        records = [genuine(node, number) for number in range(PEERS)]
        await until(lambda: len(node.service.state.table) == PEERS, "dialling back")
        for peer in peers:
            # Of the two links of a pair this one stays.
            peer.link = peer.node.service.pool.links[node.own]
        async with asyncio.TaskGroup() as group:
            for number, peer in enumerate(peers):
                group.create_task(submit(peer, records[number], number, frames))
            for crashes in range(2):
                await until(lambda: keeper.restarts == crashes and keeper.kill(), "a crash")  # noqa: B023 - waited for
            await until(lambda: keeper.restarts == 2, "the restart")

        # Whatever was refused while the keeper was away is taken when it is sent again.
        for peer, own in zip(peers, records, strict=True):
            for record in own[1::2]:
                answer = await peer.ask(Opcode.PROVIDE, provide_request(record))
                assert isinstance(answer, DhtAnswer)
                assert answer.accepted
        latest = {(each.key, each.publisher): each.raw for own in records for each in own[1::2]}
        assert {(each.key, each.publisher): each.raw for each in node.service.keeper.book.records()} == latest
        found = await peers[0].ask(Opcode.FIND_VALUE, find_request(0))
        assert isinstance(found, DhtAnswer)
        assert (found.code, len(found.records)) == (AnswerCode.OK, PEERS)
        places = node.service.server._inflight
        assert places.free == places.capacity, "every request gave its place back"
