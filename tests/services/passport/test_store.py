"""What outlives the process: floors and keys come back, nothing older does, and amnesia leaves no file."""

from __future__ import annotations

import asyncio
import stat

import msgspec
import pytest

from penstock.capability.floors import name_digest
from penstock.capability.following import Follower, decode_published, from_file, from_passport
from penstock.capability.trust import Trust
from penstock.capability.verifier import CapabilityVerifier
from penstock.contracts import passport as p
from penstock.contracts.capability import RequestContext
from penstock.kernel.child import ChildSpec
from penstock.kernel.clock import LoopClock
from penstock.kernel.errors import Conflict, DownstreamUnavailable, Integrity, NotReady, Unauthenticated
from penstock.kernel.inventory import Inventory
from penstock.kernel.metrics import Metrics
from penstock.kernel.pool import Pool
from penstock.kernel.supervisor import Supervisor
from penstock.services.passport import audit, audit_signer, background
from penstock.services.passport.store import FileStore
from penstock.wire.audit_chain import AuditChain
from tests.services.passport.kit import START_S, options, running


async def test_revocations_keys_and_operator_survive_a_restart(tmp_path):
    async with running(options(tmp_path)) as world:
        token, other = await world.issue(tenant="a"), await world.issue(tenant="b")
        await world.api.revoke(p.Revoke(tenant="a"), world.operator)
        operator = world.operator_token

    async with running(options(tmp_path)) as world:
        assert world.operator_token == operator
        assert (await world.verdict(token)).reason == "revoked"
        assert (await world.verdict(other)).ok
        assert (await world.api.revocations(p.GetRevocations())).entries[0].value == name_digest("a")
        assert (await world.verdict(await world.issue(tenant="a"))).ok


async def test_a_state_older_than_the_audit_refuses_to_start(tmp_path):
    async with running(options(tmp_path)) as world:
        old = (tmp_path / "passport" / "state.json").read_bytes()
        await world.api.revoke(p.Revoke(tenant="a"), world.operator)
    (tmp_path / "passport" / "state.json").write_bytes(old)

    with pytest.raises(Integrity) as caught:
        async with running(options(tmp_path)):
            pytest.fail("it started")
    assert caught.value.facts["reason"] == "rollback"


async def test_two_issuers_never_share_a_data_directory(tmp_path):
    async with running(options(tmp_path)) as first:
        with pytest.raises(Conflict, match="Another svc-passport"):
            async with running(options(tmp_path)):
                pytest.fail("it started")
        assert (await first.verdict(await first.issue())).ok

    async with running(options(tmp_path)) as again:
        assert await again.issue()


async def test_a_damaged_state_refuses_to_start(tmp_path):
    async with running(options(tmp_path)):
        (tmp_path / "passport" / "state.json").write_bytes(b'{"seq":')

    with pytest.raises(Integrity):
        async with running(options(tmp_path)):
            pytest.fail("it started")


async def test_an_operator_token_that_no_longer_verifies_is_minted_anew_at_the_start(tmp_path):
    async with running(options(tmp_path)) as world:
        first = world.operator_token
        tid = (await world.verdict(first)).claims.tid
        await world.api.revoke(p.Revoke(tid=tid, force=True), world.operator)
        assert (await world.verdict(first)).reason == "revoked"
    (tmp_path / "operator.token").write_text(first)

    async with running(options(tmp_path)) as world:
        assert world.operator_token != first
        assert (await world.verdict(world.operator_token)).ok
        assert (await world.verdict(first)).reason == "revoked"


async def test_files_are_private_and_hold_no_token_or_seed(tmp_path):
    async with running(options(tmp_path)) as world:
        token = await world.issue()
        await world.api.rotate(p.Rotate(), world.operator)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]

    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert not any(token.encode() in path.read_bytes() for path in files)
    holders = [path.name for path in files if b"psp1_" in path.read_bytes()]
    assert holders == ["operator.token"]


async def test_without_a_directory_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with running() as world:
        await world.issue()
        await world.api.revoke(p.Revoke(tenant="a"), world.operator)
        await world.api.rotate(p.Rotate(), world.operator)

    assert list(tmp_path.rglob("*")) == []


async def test_a_store_that_fails_revokes_nothing_and_says_that_the_outcome_is_unknown(tmp_path, monkeypatch):
    async with running(options(tmp_path)) as world:
        token = await world.issue(tenant="a")

        def fail(self, state):
            raise OSError(28, "no space left")

        with monkeypatch.context() as patched:
            patched.setattr(FileStore, "save", fail)
            with pytest.raises(DownstreamUnavailable) as caught:
                await world.api.revoke(p.Revoke(tenant="a"), world.operator)
        assert caught.value.facts["outcome"] == "unknown"
        assert (await world.verdict(token)).ok
        await world.api.revoke(p.Revoke(tenant="a"), world.operator)

        assert (await world.verdict(token)).reason == "revoked"


async def test_every_verifier_that_reads_the_published_file_refuses_after_the_next_read(tmp_path):
    context = RequestContext(aud="svc-mailbox", op="send")
    clock = LoopClock(START_S)
    async with running(options(tmp_path)) as world, Pool("file", threads=1, capacity=1) as pool:
        trust = Trust()
        follower = Follower(trust, from_file(tmp_path / "passport" / "public.json", pool), Metrics("svc-mailbox"))
        elsewhere = CapabilityVerifier(trust, world.inventory.clock)
        token = await world.issue()
        await follower.step(clock.monotonic)
        assert elsewhere.verify(token, context).sub == "alice"
        await world.api.revoke(p.Revoke(subject_ref="alice"), world.operator)
        await follower.step(clock.monotonic)

        with pytest.raises(Unauthenticated) as caught:
            elsewhere.verify(token, context)
        assert caught.value.facts["reason"] == "revoked"


async def test_floors_are_dropped_when_no_token_they_hit_is_alive(tmp_path, monkeypatch):
    for name in ("SAMPLE_S", "BEAT_S"):  # a day of looking four times a second is long
        monkeypatch.setattr(background, name, 3600.0)
    monkeypatch.setattr(audit_signer, "SIGN_S", 3600.0)
    async with running(options(tmp_path)) as world:
        book = world.service.book
        await world.api.revoke(p.Revoke(tenant="a"), world.operator)
        await world.api.revoke(p.Revoke(rid="b" * 32), world.operator)
        # As long as the longest life any setting allows: this token may have been issued before `max_ttl` was lowered.
        await asyncio.sleep(24 * 3600)
        await world.api.revoke(p.Revoke(tenant="c"), world.operator)
        assert [kept.entry.value for kept in book.state.kept] == [name_digest("a"), "b" * 32, name_digest("c")]
        await asyncio.sleep(120)
        await world.api.revoke(p.Revoke(tenant="d"), world.operator)

        # A block may narrow the operator's own token, which lives for a year.
        assert [kept.entry.value for kept in book.state.kept] == ["b" * 32, name_digest("c"), name_digest("d")]
        assert (book.state.current, book.state.seq) == (4, 4)
        assert decode_published((tmp_path / "passport" / "public.json").read_bytes()).revocations.current_epoch == 4


async def test_the_published_file_beats_while_the_issuer_lives_and_no_longer(tmp_path):
    path = tmp_path / "passport" / "public.json"
    clock = LoopClock(START_S)
    context = RequestContext(aud="svc-mailbox", op="send")
    async with Pool("file", threads=1, capacity=1) as pool:
        trust = Trust()
        verifier = CapabilityVerifier(trust, clock)
        follower = Follower(trust, from_file(path, pool), Metrics("svc-mailbox"), wall=clock.wall)
        async with running(options(tmp_path)) as world:
            token = await world.issue()
            inode = 0
            for second in range(20):
                inode = path.stat().st_ino if second == 5 else inode
                await follower.step(clock.monotonic)
                assert verifier.verify(token, context).sub == "alice"
                await asyncio.sleep(1)
            assert path.stat().st_ino == inode  # written over in place: a full disk does not stop it
        for _ in range(6):
            await asyncio.sleep(1)
            await follower.step(clock.monotonic)

        with pytest.raises(NotReady):
            verifier.verify(token, context)


# --- audit
# -------------------------------------------------------------------------------------------------------------


def lines(count: int) -> list[bytes]:
    chain = AuditChain()
    return [chain.add("issue", n, {"tid": str(n), "epoch": n}) for n in range(count)]


def test_a_whole_chain_walks_to_its_head():
    chain = AuditChain()
    data = b"".join(chain.add("issue", n, {"n": n, "epoch": 3}) for n in range(5))

    assert audit.walk(data) == audit.Walked(5, chain.head, 3)


@pytest.mark.parametrize("place", range(4))
def test_a_record_taken_out_changed_or_swapped_breaks_the_chain(place):
    good = lines(5)
    taken = [line for n, line in enumerate(good) if n != place]
    changed = [line.replace(b'"epoch":', b'"epocH":') if n == place else line for n, line in enumerate(good)]
    swapped = [*good[:place], good[place + 1], good[place], *good[place + 2 :]]
    forged = [good[place][:-68] + b"0" * 64 + b'"}\n' if n == place else line for n, line in enumerate(good)]

    for broken in (taken, changed, swapped, forged):
        with pytest.raises(Integrity):
            audit.walk(b"".join(broken))


def test_every_bit_flip_of_a_chain_is_found_or_is_an_unfinished_end():
    data = b"".join(lines(3))
    for place in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        try:
            walked = audit.walk(bytes(flipped))
        except Integrity:
            continue
        # Without its newline the last record was never finished; the walk ends before it.
        assert (walked.records, place // 8) == (2, len(data) - 1)


async def test_issue_revoke_and_rotate_are_recorded_in_one_chain_over_restarts(tmp_path):
    for _ in range(2):
        async with running(options(tmp_path)) as world:
            await world.issue()
            await world.api.revoke(p.Revoke(tenant="a", reason="left"), world.operator)
            await world.api.rotate(p.Rotate(), world.operator)
            head = world.service.trail.head
    data = (tmp_path / "audit" / "passport.jsonl").read_bytes()
    records = [msgspec.json.decode(line) for line in data.splitlines()]

    assert audit.walk(data).head == head
    assert [record["action"] for record in records] == ["issue", "revoke", "rotate"] * 2
    assert b"psp1_" not in data


async def test_a_line_that_was_never_finished_is_cut_off_at_the_start(tmp_path):
    async with running(options(tmp_path)) as world:
        await world.issue()
    file = tmp_path / "audit" / "passport.jsonl"
    with file.open("ab") as out:
        out.write(b'{"n":2,"at')
    async with running(options(tmp_path)) as world:
        await world.issue()

    assert audit.walk(file.read_bytes()).records == 2


async def test_a_broken_chain_refuses_to_start(tmp_path):
    async with running(options(tmp_path)) as world:
        await world.issue()
    file = tmp_path / "audit" / "passport.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"issue"', b'"other"'))

    with pytest.raises(Integrity):
        async with running(options(tmp_path)):
            pytest.fail("it started")


async def test_a_verifier_elsewhere_refuses_within_a_second_of_the_revoke():
    context = RequestContext(aud="svc-mailbox", op="send")
    async with running() as world:
        trust = Trust()
        inventory = Inventory("svc-mailbox", world.inventory.clock)
        follower = Follower(trust, from_passport(world.api), inventory.metrics)
        elsewhere = CapabilityVerifier(trust, inventory.clock)
        supervisor = Supervisor(inventory, [ChildSpec("capability_follower", follower.run, announces=True)])
        await supervisor.start()
        try:
            token = await world.issue()
            assert elsewhere.verify(token, context).sub == "alice"
            await world.api.revoke(p.Revoke(subject_ref="alice"), world.operator)
            await asyncio.sleep(1)
            with pytest.raises(Unauthenticated) as caught:
                elsewhere.verify(token, context)
            assert caught.value.facts["reason"] == "revoked"
        finally:
            await supervisor.drain()
