"""Who may revoke what: a token that is bound to a tenant reaches its own tenant, and nobody reads names in the feed."""

from __future__ import annotations

import json

import pytest

from penstock.contracts import passport as p
from penstock.contracts.call import Call
from penstock.kernel.errors import Forbidden
from tests.services.passport.kit import options, running
from tests.services.passport.test_http import connected


async def revoker(world, tenant: str | None) -> Call:
    """Issue a token that may revoke."""
    asked = p.Issue("warden", "svc-passport", tenant, caveats=("op=revoke",))
    return Call((await world.api.issue(asked, world.operator)).token)


@pytest.mark.parametrize("target", [{"tenant": "other"}, {"epoch": 1}, {"kid": "own"}])
async def test_a_revoker_of_one_tenant_reaches_no_other_and_nothing_of_all(target):
    async with running() as world:
        warden = await revoker(world, "acme")
        token = await world.issue(tenant="other")
        kid = (await world.verdict(token)).claims.kid
        with pytest.raises(Forbidden) as caught:
            await world.api.revoke(p.Revoke(**{k: kid if v == "own" else v for k, v in target.items()}), warden)

        assert caught.value.facts["reason"] == "caveat:tenant"
        assert (await world.verdict(token)).ok
        assert world.service.book.state.current == 0


async def test_a_revoker_of_one_tenant_rotates_no_keys_and_has_nothing_attested():
    async with running() as world:
        asked = p.Issue("warden", "svc-passport", "acme", caveats=("op=revoke,admin",))
        warden = Call((await world.api.issue(asked, world.operator)).token)

        for attempt in (world.api.rotate(p.Rotate(), warden), world.api.attest(p.Attest("svc-x", 1, "aa"), warden)):
            with pytest.raises(Forbidden):
                await attempt


@pytest.mark.parametrize("kind", ["subject_ref", "tid", "rid"])
async def test_a_revocation_by_a_tenants_revoker_hits_its_own_tenant_alone(kind):
    async with running() as world:
        warden = await revoker(world, "acme")
        own, foreign = await world.issue(tenant="acme"), await world.issue(tenant="other")
        for token in (own, foreign):
            claims = (await world.verdict(token)).claims
            named = {"subject_ref": claims.sub, "tid": claims.tid, "rid": claims.rids[0]}
            await world.api.revoke(p.Revoke(**{kind: named[kind]}), warden)

        assert (await world.verdict(own)).reason == "revoked"
        assert (await world.verdict(foreign)).ok
        await world.api.revoke(p.Revoke(tenant="acme"), warden)
        assert (await world.verdict(warden.capability)).reason == "revoked"


async def test_what_a_tenants_revoker_revoked_stays_revoked_over_a_restart(tmp_path):
    async with running(options(tmp_path)) as world:
        own, foreign = await world.issue(tenant="acme"), await world.issue(tenant="other")
        await world.api.revoke(p.Revoke(subject_ref="alice"), await revoker(world, "acme"))

    async with running(options(tmp_path)) as world:
        assert (await world.verdict(own)).reason == "revoked"
        assert (await world.verdict(foreign)).ok


async def test_a_revoker_without_a_tenant_reaches_all():
    async with running() as world:
        token = await world.issue(tenant="other")
        await world.api.revoke(p.Revoke(tenant="other"), await revoker(world, None))

        assert (await world.verdict(token)).reason == "revoked"


@pytest.mark.real_loop
async def test_the_open_feed_shows_no_name_of_a_tenant_or_subject():
    async with connected() as client:
        world = client.world
        await world.api.revoke(p.Revoke(tenant="acme-of-bavaria"), world.operator)
        await world.api.revoke(p.Revoke(subject_ref="alice-of-bavaria"), world.operator)
        await world.api.revoke(p.Revoke(subject_ref="bob-of-bavaria"), await revoker(world, "tenant-of-bavaria"))
        feed = (await client.ask("GET", "/v1/passport/revocations")).body

        assert [entry["kind"] for entry in feed["entries"]] == ["tenant", "subject_ref", "subject_ref"]
        assert "bavaria" not in json.dumps(feed)


async def test_a_forced_revocation_of_the_operator_mints_another_token_before_it_answers(tmp_path):
    async with running(options(tmp_path)) as world:
        for field in ("tid", "subject_ref"):
            old = world.operator_token
            claims = (await world.verdict(old)).claims
            named = {"tid": claims.tid, "subject_ref": claims.sub}
            await world.api.revoke(p.Revoke(**{field: named[field]}, force=True), world.operator)

            assert (await world.verdict(old)).reason == "revoked"
            assert (await world.verdict(world.operator_token)).ok
            assert (tmp_path / "operator.token").read_text().strip() == world.operator_token
