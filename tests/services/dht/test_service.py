"""The service over real sockets: provide, find, withdraw, restart; bad input is refused and harms nobody else."""

from __future__ import annotations

import asyncio
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.contracts import dht as d
from penstock.kernel.errors import Forbidden, Integrity, NotFound, NotReady
from penstock.services.dht.core.bucket import BucketView
from penstock.services.dht.core.ids import bucket_of, parse_key, to_text
from penstock.services.dht.core.lookup import ProbeFailure
from penstock.services.dht.core.record import RecordSigner, make_record
from penstock.services.dht.protocol import hello
from penstock.services.dht.protocol.envelope import decode_envelope
from penstock.services.dht.protocol.messages import EMPTY, AnswerCode, DhtAnswer, find_request, provide_request
from tests.services.dht.kit import KEY, Opcode, options, raw_peer, request, start, swarm, unproven, until

pytestmark = pytest.mark.real_loop


async def test_what_one_node_provides_another_finds_until_it_is_withdrawn() -> None:
    async with swarm(5) as nodes:
        made = await nodes[1].service.api.provide(d.Provide(KEY, ["tcp://127.0.0.1:9"]))
        found = await nodes[4].service.api.find(d.Find(KEY, limit=5))

        assert made.stored >= 3, "a majority of the five"
        assert [each.node_id for each in found.providers] == [to_text(nodes[1].own)]
        assert found.providers[0].addrs == ("tcp://127.0.0.1:9",)
        await nodes[1].service.api.withdraw(d.Withdraw(KEY))
        gone = await nodes[4].service.api.find(d.Find(KEY, limit=5))
        assert gone.providers == ()
        assert gone.complete
        with pytest.raises(NotFound):
            await nodes[1].service.api.withdraw(d.Withdraw(KEY))


async def test_a_withdrawal_goes_to_a_node_that_kept_an_earlier_record_and_is_no_contact_any_more() -> None:
    called = asyncio.Event()

    def hear(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        called.set()
        writer.close()

    server = await asyncio.start_server(hear, "127.0.0.1", 0)
    async with server, swarm(1) as nodes:
        await nodes[0].service.api.provide(d.Provide(KEY))
        own, key = nodes[0].service.republisher.own, parse_key(KEY)
        await until(lambda: bool(own[key].published_ms), "the note")
        own[key] = replace(own[key], keepers=(f"{'11' * 32}@127.0.0.1:{server.sockets[0].getsockname()[1]}",))
        await nodes[0].service.api.withdraw(d.Withdraw(KEY))
        async with asyncio.timeout(30):
            await called.wait()

        assert own[key].withdrawn


async def test_a_record_is_found_after_half_of_the_nodes_were_cut_off() -> None:
    async with swarm(8) as nodes:
        await nodes[1].service.api.provide(d.Provide(KEY))
        for node in nodes.nodes[4:]:
            node.service.peer_listener.stop_accepting()
            node.service.pool.cut_all()
            node.service.pool.fall_silent(silent=True)

        found = await nodes[3].service.api.find(d.Find(KEY, wait_ms=10_000))
        assert found.providers


async def test_a_lone_node_is_ready_degraded_and_finds_what_it_provides_itself() -> None:
    node = await start(options())
    try:
        await until(lambda: node.service.state.readiness.ready, "readiness")
        made = await node.service.api.provide(d.Provide(KEY))
        found = await node.service.api.find(d.Find(KEY))

        assert made.stored == 1
        assert len(found.providers) == 1
        assert node.service.api.status_now().alone
        assert node.inventory.health.verdict().degraded == ("dht_peers",)
    finally:
        await node.stop()


async def test_a_node_whose_seeds_do_not_answer_refuses_to_provide_but_finds_what_it_can() -> None:
    node = await start(options(seeds=(("127.0.0.1", 1),)))
    try:
        with pytest.raises(NotReady):
            await node.service.api.provide(d.Provide(KEY))
        assert (await node.service.api.find(d.Find(KEY))).providers == ()
        async with raw_peer(node) as peer:
            record = make_record(RecordSigner(b"\x07" * 32), 5, ("a",), seq=1, issued_ms=node.service.state.wall_ms())
            answer = await peer.ask(Opcode.PROVIDE, provide_request(record))
        assert isinstance(answer, DhtAnswer)
        assert (answer.code, len(node.service.keeper.book)) == (AnswerCode.NOT_READY, 0)
        gate = node.inventory.health.gate("dht_peers")
        assert not gate.open
        assert gate.advisory
    finally:
        await node.stop()


async def test_a_restart_keeps_the_identity_and_the_own_records(tmp_path: Path) -> None:
    first = await start(options(directory=tmp_path / "dht"))
    await until(lambda: first.service.state.readiness.ready, "readiness")
    await first.service.api.provide(d.Provide(KEY))
    identity, seq = first.own, first.service.republisher.own[parse_key(KEY)].seq
    await first.stop()
    (tmp_path / "dht" / "candidates.json").write_text("{damaged")
    second = await start(options(directory=tmp_path / "dht"))
    try:
        key_file = tmp_path / "dht" / "identity.key"
        assert second.own == identity
        assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
        assert second.service.republisher.own[parse_key(KEY)].seq == seq
        await until(lambda: second.service.state.readiness.ready, "readiness")
        again = await second.service.api.provide(d.Provide(KEY))
        assert again.record.seq > seq, "a publisher's count never goes back"
    finally:
        await second.stop()


async def test_good_contacts_are_remembered_for_the_next_start(tmp_path: Path) -> None:
    async with swarm(3) as nodes:
        await nodes.grow(1, tmp_path / "dht")
        last = nodes.nodes.pop()
        await last.stop()
        back = await start(options(seeds=(("127.0.0.1", 1),), directory=tmp_path / "dht"))
        try:
            await until(lambda: len(back.service.state.table) >= 1, "contact by a remembered address")
            assert not back.service.state.readiness.ready, "saved contacts are only candidates; the seeds still count"
        finally:
            await back.stop()


async def test_under_amnesia_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    node = await start(options())
    await until(lambda: node.service.state.readiness.ready, "readiness")
    await node.service.api.provide(d.Provide(KEY))
    await node.stop()

    assert os.listdir(tmp_path) == []  # noqa: PTH208 - a path must not be asked inside a coroutine


# --- proven ids
# --------------------------------------------------------------------------------------------------------


async def test_a_node_with_another_id_than_expected_is_refused() -> None:
    async with swarm(2) as nodes:
        with pytest.raises(Forbidden):
            await nodes[0].service.pool.dial(*nodes[1].address, 12345)
        with pytest.raises(Forbidden):
            await nodes[0].service.pool.dial(*nodes[0].address)


async def test_a_listener_that_claims_the_id_of_another_node_is_refused_by_who_dials_it() -> None:
    thief, victim = RecordSigner(b"\x01" * 32), RecordSigner(b"\x02" * 32)

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonce = bytes(hello.NONCE_BYTES)
        writer.write(request(Opcode.HELLO, hello.greeting(nonce, victim.id)))
        size = int.from_bytes(await reader.readexactly(4), "big")
        said = hello.read_introduction(decode_envelope(await reader.readexactly(size)).payload)
        signed = hello.Transcript(nonce, said.nonce, victim.id, said.dialler)
        writer.write(request(Opcode.HELLO, hello.confirmation(thief, signed)))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(pretend, "127.0.0.1", 0)
    async with server, swarm(1) as nodes:
        with pytest.raises(Integrity):
            await nodes[0].service.pool.dial(*server.sockets[0].getsockname()[:2], victim.id)
        assert not nodes[0].service.pool.links


async def test_nobody_is_served_before_the_proof() -> None:
    async with swarm(1) as nodes:
        heard = await unproven(nodes[0], request(Opcode.FIND_NODE, find_request(1)))

        assert [each.opcode for each in heard] == [Opcode.HELLO]
        assert nodes[0].count("dht_malformed_total", what="unproven") == 1
        assert nodes[0].count("dht_rpcs_total", op="find_node") == 0


async def test_a_forged_introduction_is_refused_and_counted() -> None:
    async with swarm(1) as nodes:
        await unproven(nodes[0], request(Opcode.HELLO, EMPTY))

        assert nodes[0].count("dht_malformed_total", what="hello") == 1
        assert not nodes[0].service.pool.links


async def test_an_introduction_signed_for_another_connection_is_refused() -> None:
    async with swarm(1) as nodes:
        signer = RecordSigner(b"\x08" * 32)
        async with asyncio.timeout(30):
            reader, writer = await asyncio.open_connection(*nodes[0].address)
            size = int.from_bytes(await reader.readexactly(4), "big")
            greeted = hello.read_greeting(decode_envelope(await reader.readexactly(size)).payload)
            stolen = hello.Transcript(b"x" * 32, b"y" * 32, greeted.listener, signer.id)
            writer.write(request(Opcode.HELLO, hello.introduction(signer, stolen, [])))
            left = await reader.read()
            writer.close()

        assert left == b"", "the node hangs up without a proof of its own"
        assert nodes[0].count("dht_malformed_total", what="hello") == 1
        assert not nodes[0].service.pool.links


async def test_an_inbound_peer_is_named_only_after_it_was_dialled_back() -> None:
    async with swarm(1) as nodes, raw_peer(nodes[0]) as peer:
        await until(lambda: len(nodes[0].service.state.table) == 1, "dialling back")

        assert [each.address for each in nodes[0].service.state.table.contacts()] == [peer.node.address]


async def test_an_answer_on_a_link_that_the_peer_dialled_proves_no_address() -> None:
    async with swarm(1) as nodes, raw_peer(nodes[0]) as peer:
        node = nodes[0].service
        await until(lambda: len(node.state.table) == 1, "dialling back")
        elsewhere = node.state.contact_of(peer.node.own, "127.0.0.1", 65535)
        node.pool.links[peer.node.own].contact = None
        assert not node.pool.proved_at(elsewhere)

        await node.workers.walk_in_background(peer.node.own, (elsewhere,))
        await until(lambda: not node.route.queues[bucket_of(node.state.own, peer.node.own)].depth, "the writer")

        assert [each.address for each in node.state.table.contacts()] == [peer.node.address]


async def test_a_find_asks_peers_that_called_and_a_walk_or_a_find_on_several_paths_does_not() -> None:
    async with swarm(2) as nodes:
        node, key = nodes[1].service, parse_key(KEY)
        now_ms, addrs = node.state.wall_ms(), ("tcp://127.0.0.1:9",)
        record = make_record(RecordSigner(b"\x09" * 32), key, addrs, seq=1, issued_ms=now_ms, ttl_s=3600)
        await until(lambda: nodes[0].own in node.pool.links and len(node.state.table) == 1, "the link")
        nodes[0].service.keeper.book.store(record, None)
        link = node.pool.links[nodes[0].own]
        link.listen = [node.state.contact_of(nodes[0].own, *nodes[0].address)]
        node.state.table.publish(bucket_of(nodes[1].own, nodes[0].own), BucketView())

        assert (await node.api.nodes(d.FindNodes(KEY))).nodes == ()
        assert (await node.api.find(d.Find(KEY, paths=3))).providers == ()
        assert len((await node.api.find(d.Find(KEY))).providers) == 1


# --- bad input
# ---------------------------------------------------------------------------------------------------------


async def test_malformed_requests_are_refused_and_the_connections_other_requests_are_unharmed() -> None:
    async with swarm(1) as nodes, raw_peer(nodes[0]) as peer:
        peer.write(b"\x00\x00\x00\x00")
        peer.write(b"\x00\x00\x00\x03abc")
        peer.write((1 << 20 | 1).to_bytes(4, "big") + bytes((1 << 20) + 1))
        bad = await peer.ask(Opcode.FIND_NODE, b"\xff")
        unknown = await peer.ask(9, EMPTY)
        store = await peer.ask(Opcode.STORE, EMPTY)
        good = await peer.ask(Opcode.FIND_NODE, find_request(1))

        assert isinstance(bad, DhtAnswer)
        assert bad.code == AnswerCode.BAD_VERSION
        assert isinstance(unknown, DhtAnswer)
        assert unknown.code == AnswerCode.BAD_VERSION
        assert isinstance(store, DhtAnswer)
        assert (store.accepted, store.reason) == (False, "disabled")
        assert isinstance(good, DhtAnswer)
        assert good.code == AnswerCode.OK
        assert nodes[0].count("dht_malformed_total", what="frame") == 2
        assert nodes[0].count("dht_malformed_total", what="oversized") == 1


async def test_forged_expired_and_future_records_are_refused_counted_and_not_stored() -> None:
    async with swarm(1) as nodes, raw_peer(nodes[0]) as peer:
        now, signer = nodes[0].service.state.wall_ms(), RecordSigner(b"\x07" * 32)

        def made(**changed: int) -> bytes:
            facts = {"seq": 1, "issued_ms": now, "ttl_s": 3600, **changed}
            return provide_request(make_record(signer, 5, ("a",), **facts))

        forged = bytearray(made())
        forged[-1] ^= 1
        for payload in (bytes(forged), made(issued_ms=now - 3_600_001), made(issued_ms=now + 300_000)):
            answer = await peer.ask(Opcode.PROVIDE, payload)
            assert isinstance(answer, DhtAnswer)
            assert not answer.accepted
        assert len(nodes[0].service.keeper.book) == 0
        for why in ("forged", "expired", "future"):
            assert nodes[0].count("dht_records_refused_total", reason=why) == 1
        kept = await peer.ask(Opcode.PROVIDE, made())
        replayed = await peer.ask(Opcode.PROVIDE, made(seq=0))
        assert isinstance(kept, DhtAnswer)
        assert kept.accepted
        assert isinstance(replayed, DhtAnswer)
        assert replayed.code == AnswerCode.STALE_RECORD


async def test_a_flood_of_one_peer_is_refused_and_costs_the_others_nothing() -> None:
    async with swarm(1) as nodes, raw_peer(nodes[0]) as flood, raw_peer(nodes[0]) as other:
        for _ in range(600):
            flood.write(request(Opcode.FIND_NODE, find_request(1)))
        await until(lambda: nodes[0].count("quota_reject_total", kind="peer_rps") >= 300, "refusing the flood")
        answer = await other.ask(Opcode.FIND_NODE, find_request(1))

        assert isinstance(answer, DhtAnswer)
        assert answer.code == AnswerCode.OK


async def test_a_silent_peer_fails_within_the_rpc_timeout_and_is_left_out_of_answers() -> None:
    async with swarm(3) as nodes:
        dead = nodes[2]
        peer, table = dead.own, nodes[0].service.state.table
        await until(lambda: peer in {each.id for each in table.contacts()}, "the contact")
        contact = next(each for each in table.contacts() if each.id == peer)
        dead.service.pool.fall_silent(silent=True)
        outcomes: list[object] = []
        nodes[0].service.pool.ask(contact, Opcode.PING, EMPTY, outcomes.append)
        await until(lambda: bool(outcomes), "the timeout")

        assert outcomes == [ProbeFailure.TIMEOUT]
        assert peer in nodes[0].service.state.book.failing
        await until(lambda: peer not in {each.id for each in nodes[0].service.state.table.contacts()}, "eviction")


async def test_a_drain_answers_not_ready_and_ends_clean() -> None:
    async with swarm(2) as nodes:
        last = nodes.nodes.pop()
        report = await last.supervisor.drain()
        await last.service.close()

        assert report.clean, report
