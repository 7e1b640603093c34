"""The list of what was issued: from the audit, page by page, judged as a verifier would judge."""

from __future__ import annotations

import asyncio

import pytest

from penstock.capability.caveats import parse_all
from penstock.capability.making import attenuate
from penstock.contracts import passport as p
from penstock.contracts.call import Call
from penstock.services.passport import issued, store
from tests.services.passport.kit import options, running
from tests.services.passport.test_http import connected


async def listed(world, call=None, **asked) -> list[p.IssuedToken]:
    page = await world.api.issued(p.ListIssued(**asked), call or world.operator)
    found = list(page.tokens)
    while page.cursor is not None:
        page = await world.api.issued(p.ListIssued(**{**asked, "cursor": page.cursor}), call or world.operator)
        found += page.tokens
    return found


async def issuer(world) -> Call:
    """Issue a token that may issue."""
    asked = p.Issue("clerk", ("svc-passport", "svc-mailbox"), "acme", caveats=("op=issue,send",))
    return Call((await world.api.issue(asked, world.operator)).token)


@pytest.mark.parametrize("kind", ["subject_ref", "tid"])
async def test_what_a_revoked_token_has_issued_is_listed_as_revoked(kind):
    async with running() as world:
        clerk = await issuer(world)
        tid = (await world.verdict(clerk.capability)).claims.tid
        await world.api.issue(p.Issue("leaf", "svc-mailbox", caveats=("op=send",)), clerk)
        await world.issue()
        before = {each.sub: each.state for each in await listed(world, all=True)}
        await world.api.revoke(p.Revoke(**{kind: "clerk" if kind == "subject_ref" else tid}), world.operator)
        after = {each.sub: each.state for each in await listed(world, all=True)}

    assert before == {"clerk": "good", "leaf": "good", "alice": "good"}
    assert after == {"clerk": "revoked", "leaf": "revoked", "alice": "good"}


async def test_what_the_operator_issued_falls_with_the_operators_token():
    async with running() as world:
        await world.issue()
        await world.api.revoke(p.Revoke(subject_ref="operator", force=True), world.operator)
        states = [each.state for each in await listed(world, Call(world.operator_token), all=True)]

    assert states == ["revoked"]


async def test_a_token_that_was_issued_with_a_narrowing_falls_with_the_narrowing():
    async with running() as world:
        clerk = await issuer(world)
        narrowed = attenuate(clerk.capability, parse_all(["topic=a/"]))
        rid = (await world.verdict(narrowed)).claims.rids[-1]
        await world.api.issue(p.Issue("leaf", "svc-mailbox", caveats=("op=send", "topic=a/")), Call(narrowed))
        await world.api.revoke(p.Revoke(rid=rid), world.operator)
        states = {each.sub: each.state for each in await listed(world, all=True)}

    assert states == {"clerk": "good", "leaf": "revoked"}


async def test_a_token_falls_in_the_list_by_the_id_of_its_first_block_too():
    async with running() as world:
        token = await world.issue()
        rid = (await world.verdict(token)).claims.rids[0]
        await world.api.revoke(p.Revoke(rid=rid), world.operator)

        assert [each.state for each in await listed(world, all=True)] == ["revoked"]


@pytest.mark.parametrize("target", ["epoch", "kid"])
async def test_an_epoch_and_a_key_take_all_that_was_issued_before(target):
    async with running() as world:
        token = await world.issue()
        kid = (await world.verdict(token)).claims.kid
        await world.api.revoke(p.Revoke(**{target: 1 if target == "epoch" else kid}), world.operator)
        await world.issue()
        states = [each.state for each in await listed(world, all=True)]

    assert states == ["good", "revoked"]


async def test_a_token_of_a_key_that_was_rotated_out_ends_with_the_key():
    async with running() as world:
        await world.issue()
        (before,) = await listed(world)
        await world.api.rotate(p.Rotate(), world.operator)
        (old,) = (key for key in (await world.api.keys(p.GetKeys())).keys if key.kid == before.kid)
        (within,) = await listed(world)
        await asyncio.sleep(old.exp - world.inventory.clock.wall() + 1)

        assert (within.state, within.exp) == ("good", old.exp)
        assert within.exp < before.exp
        assert [(each.state, each.exp) for each in await listed(world, all=True)] == [("expired", old.exp)]
        assert await listed(world) == []


async def test_who_is_bound_to_a_tenant_sees_its_tokens_alone():
    async with running() as world:
        await world.issue(tenant="other")
        await world.issue(tenant="acme")
        asked = p.Issue("warden", "svc-passport", "acme", caveats=("op=admin",))
        warden = Call((await world.api.issue(asked, world.operator)).token)

        assert [each.tenant for each in await listed(world, warden)] == ["acme", "acme"]
        assert len(await listed(world)) == 3


async def test_the_list_outlives_a_restart_and_needs_no_memory_of_it(tmp_path):
    async with running(options(tmp_path)) as world:
        tokens = [await world.issue() for _ in range(3)]
        tids = [(await world.verdict(token)).claims.tid for token in tokens]

    async with running(options(tmp_path)) as world:
        assert [each.tid for each in await listed(world)] == tids[::-1]


@pytest.mark.parametrize("on_disk", [True, False])
async def test_a_long_audit_is_read_in_parts_and_no_token_is_left_out(tmp_path, monkeypatch, on_disk):
    monkeypatch.setattr(issued, "PART_BYTES", 2000)
    async with running(options(tmp_path if on_disk else None)) as world:
        tids = [(await world.verdict(await world.issue())).claims.tid for _ in range(40)]
        pages = []
        cursor = None
        while not pages or cursor is not None:
            page = await world.api.issued(p.ListIssued(cursor=cursor), world.operator)
            pages.append([each.tid for each in page.tokens])
            cursor = page.cursor

    assert [tid for page in pages for tid in page] == tids[::-1]
    assert len(pages) > 5


async def test_in_ram_only_the_newest_are_kept_and_an_old_cursor_ends_the_list(monkeypatch):
    monkeypatch.setattr(store, "_AUDIT_BYTES_MAX", 4000)
    async with running() as world:
        await world.issue()
        page = await world.api.issued(p.ListIssued(limit=1), world.operator)
        first = await world.api.issued(p.ListIssued(limit=1, cursor="1"), world.operator)
        tids = [(await world.verdict(await world.issue())).claims.tid for _ in range(40)]
        found = [each.tid for each in await listed(world)]
        gone = await world.api.issued(p.ListIssued(cursor="1"), world.operator)

    assert (len(page.tokens), page.cursor, first.tokens) == (1, None, ())
    assert found == tids[::-1][: len(found)]
    assert 2 < len(found) < 40
    assert (gone.tokens, gone.cursor) == ((), None)


@pytest.mark.real_loop
async def test_it_is_a_get_with_a_query_at_the_services_own_port():
    async with connected() as client:
        await client.world.issue("op=send")
        told = await client.ask("GET", "/v1/passport/issued?all=true&limit=5", token=client.world.operator_token)
        wrong = await client.ask("GET", "/v1/passport/issued?limit=0", token=client.world.operator_token)
        nobody = await client.ask("GET", "/v1/passport/issued")

    assert [each["caveats"] for each in told.body["tokens"]] == [["op=send"]]
    assert told.body["cursor"] is None
    assert "token" not in told.body["tokens"][0]
    assert (wrong.status, nobody.status) == (400, 401)
    assert "limit" in wrong.body["detail"]
