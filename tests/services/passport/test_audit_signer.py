"""The audit's head is signed by the key store: who can write the file can no longer make a chain of his own."""

from __future__ import annotations

import asyncio
import json

import pytest

from penstock.capability.attesting import check_attested
from penstock.capability.trust import ring_of
from penstock.cli.commands import audit as audit_command
from penstock.contracts import passport as p
from penstock.contracts.call import Call
from penstock.kernel.errors import Conflict, Forbidden, Integrity
from penstock.services.passport.kms_local import LocalKms
from penstock.services.passport.store import read_evidence, read_head
from penstock.testing import until
from penstock.wire.audit_chain import AuditChain, ChainRecord
from tests.services.passport.kit import FakeKms, options, running
from tests.services.passport.test_commands import call


async def some_history(tmp_path) -> None:
    """Leave an audit behind: two issues, a revocation, an issue."""
    async with running(options(tmp_path)) as world:
        await world.issue()
        await world.issue()
        await world.api.revoke(p.Revoke(tenant="acme"), world.operator)
        await world.issue()


def rewritten(tmp_path, dropped: int) -> None:
    """Drop a record and compute the chain anew, as somebody who can write the file would."""
    path = tmp_path / "audit" / "passport.jsonl"
    chain, lines = AuditChain(), []
    for number, line in enumerate(path.read_bytes().splitlines()):
        record = ChainRecord(**{"hash": "", **json.loads(line)})
        if number != dropped:
            lines.append(chain.add(record.action, record.at_ms, record.facts))
    path.write_bytes(b"".join(lines))
    (tmp_path / "audit" / "passport.mark").unlink(missing_ok=True)


@pytest.mark.parametrize("dropped", [0, 1, 3])
async def test_a_chain_that_was_made_anew_without_a_record_is_found(tmp_path, capsys, dropped):
    await some_history(tmp_path)
    assert call(audit_command, "verify", "--data-dir", str(tmp_path)) == 0
    rewritten(tmp_path, dropped)

    assert call(audit_command, "verify", "--data-dir", str(tmp_path)) == 1
    with pytest.raises(Integrity):
        async with running(options(tmp_path)):
            pytest.fail("it started")
    capsys.readouterr()


async def test_a_chain_of_the_same_length_with_another_record_is_found(tmp_path, capsys):
    await some_history(tmp_path)
    path = tmp_path / "audit" / "passport.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"sub":"alice"', b'"sub":"elise"'))
    rewritten(tmp_path, dropped=-1)

    assert call(audit_command, "verify", "--data-dir", str(tmp_path)) == 1
    assert "not the one that was signed for" in capsys.readouterr().err


async def test_a_head_that_another_key_signed_is_no_head(tmp_path, capsys):
    await some_history(tmp_path)
    rewritten(tmp_path, dropped=0)
    forger = LocalKms()
    forger.open(("ed25519",), 0)
    async with running(options(), kms=forger) as world:
        walked = json.loads((tmp_path / "audit" / "passport.jsonl").read_bytes().splitlines()[-1])
        forged = await world.service.book.vouch_audit(walked["n"], walked["hash"])
    (tmp_path / "audit" / "passport.head").write_text(
        json.dumps({f: getattr(forged, f) for f in forged.__struct_fields__})
    )

    assert call(audit_command, "verify", "--data-dir", str(tmp_path)) == 1
    assert "signed by a key that is not known here" in capsys.readouterr().err


@pytest.mark.parametrize("also", [(), ("mark",), ("mark", "head")])
async def test_a_deleted_audit_is_told_from_one_that_is_empty(tmp_path, capsys, also):
    async with running(options(tmp_path)):
        assert call(audit_command, "verify", "--data-dir", str(tmp_path)) == 0
        assert "nothing written yet" in capsys.readouterr().out
    async with running(options(tmp_path)) as world:
        await world.issue()
        await until(lambda: world.service.book.state.audited == 1)
    for suffix in ("jsonl", *also):
        (tmp_path / "audit" / f"passport.{suffix}").unlink()

    assert call(audit_command, "verify", "--data-dir", str(tmp_path)) == 1
    assert "deleted" in capsys.readouterr().err
    with pytest.raises(Integrity):
        async with running(options(tmp_path)):
            pytest.fail("it started")


async def test_the_head_is_signed_within_a_second_and_after_the_last_record(tmp_path):
    head = tmp_path / "audit" / "passport.head"
    async with running(options(tmp_path)) as world:
        await world.issue()
        await asyncio.sleep(2)
        assert read_head(head).n == 1
        await world.api.rotate(p.Rotate(), world.operator)
        await world.issue()
        trail = world.service.trail
    known = read_evidence(tmp_path)

    assert (known.head.n, known.head.head) == (3, trail.head)
    check_attested(known.head, known.keys)


async def test_a_key_store_that_fails_leaves_the_audit_going_and_the_head_behind(tmp_path):
    kms = FakeKms()
    async with running(options(tmp_path), kms=kms) as world:
        await world.issue()
        await asyncio.sleep(2)
        kms.failing = True
        await world.api.revoke(p.Revoke(tenant="acme"), world.operator)
        await asyncio.sleep(2)
        behind = read_head(tmp_path / "audit" / "passport.head").n
        kms.failing = False
        await asyncio.sleep(30)

        assert (behind, read_head(tmp_path / "audit" / "passport.head").n) == (1, 2)


async def test_records_say_who_did_what_for_whom(tmp_path):
    async with running(options(tmp_path)) as world:
        asked = p.Issue("alice", "svc-mailbox", "acme", "internal", caveats=("op=send,recv", "topic=orders/"))
        issued = (await world.api.issue(asked, world.operator)).token
        tid = (await world.verdict(issued)).claims.tid
        await world.api.revoke(p.Revoke(tid=tid, reason="lost"), world.operator)
        operator = (await world.verdict(world.operator_token)).claims.tid
    issue, revoke = map(json.loads, (tmp_path / "audit" / "passport.jsonl").read_text().splitlines())

    assert (
        issue["facts"] | {"tid": tid, "by": operator, "by_sub": "operator", "sub": "alice", "tenant": "acme"}
        == issue["facts"]
    )
    assert (issue["facts"]["traffic_class"], issue["facts"]["caveats"]) == (
        "internal",
        ["op=send,recv", "topic=orders/"],
    )
    assert revoke["facts"] | {"by": operator, "by_sub": "operator", "value": tid, "why": "lost"} == revoke["facts"]


# --- attestations for others
# -------------------------------------------------------------------------------------------


async def test_an_attestation_holds_under_the_published_keys_and_is_recorded(tmp_path):
    async with running(options(tmp_path)) as world:
        attested = await world.api.attest(p.Attest("svc-interop", 41, "ab" * 32), world.operator)
        check_attested(attested, ring_of(world.api.key_set()))
        entry = world.service.trail.recent[-1]
        assert (entry.action, entry.facts["service"], entry.facts["lines"]) == ("attest", "svc-interop", 41)
        for field, wrong in (("n", 42), ("head", "cd" * 32), ("service", "svc-dht"), ("at_ms", 1)):
            forged = p.Attested(**{**{f: getattr(attested, f) for f in attested.__struct_fields__}, field: wrong})
            with pytest.raises(Integrity):
                check_attested(forged, ring_of(world.api.key_set()))


async def test_a_chain_that_went_back_is_refused_over_a_restart_too(tmp_path):
    async with running(options(tmp_path)) as world:
        await world.api.attest(p.Attest("svc-interop", 41, "ab"), world.operator)

    async with running(options(tmp_path)) as world:
        with pytest.raises(Conflict):
            await world.api.attest(p.Attest("svc-interop", 40, "aa"), world.operator)
        with pytest.raises(Conflict):
            await world.api.attest(p.Attest("svc-passport", 1, "aa"), world.operator)


async def test_a_token_without_admin_has_nothing_attested():
    async with running() as world:
        asked = p.Issue("clerk", "svc-passport", caveats=("op=issue,revoke",))
        clerk = (await world.api.issue(asked, world.operator)).token

        with pytest.raises(Forbidden):
            await world.api.attest(p.Attest("svc-interop", 1, "aa"), Call(clerk))
