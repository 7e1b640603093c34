"""Issuing: only what is covered, never after revocation, never without a policy, shed without taking verify along."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.capability.caveats import parse_all
from penstock.capability.making import attenuate, mint, seal
from penstock.capability.token import decode
from penstock.contracts import passport as p
from penstock.contracts.call import Call, Origin
from penstock.kernel.broadcast import Broadcast
from penstock.kernel.bus import ConfigUpdated
from penstock.kernel.errors import Busy, Forbidden, Malformed, NotReady, PenstockError, RateLimited, Unauthenticated
from penstock.services.passport.core import IssuerView, lineage, root_of
from penstock.services.passport.policy import Descriptor, Limits, in_force
from penstock.services.passport.service import Around
from tests.capability.kit import Issuer
from tests.services.passport.kit import Running, options, running


async def issuer_token(world: Running, *caveats: str, **fields) -> str:
    given = {"tenant": "acme", "caveats": ("op=issue,send,recv", *caveats), **fields}
    request = p.Issue("delegate", ("svc-passport", "svc-mailbox"), **given)
    return (await world.api.issue(request, world.operator)).token


async def ask(world: Running, capability: str, *caveats: str, **fields) -> p.Issued:
    given = {"caveats": caveats or ("op=send",), "ttl_s": 60, **fields}
    return await world.api.issue(p.Issue("bob", given.pop("audience", "svc-mailbox"), **given), Call(capability))


async def refusal(attempt) -> str:
    with pytest.raises(PenstockError) as caught:
        await attempt
    return f"{caught.value.code}:{caught.value.facts.get('reason')}"


async def test_a_delegate_issues_what_he_covers_in_his_own_tenant():
    async with running() as world:
        issued = await ask(world, await issuer_token(world))
        verdict = await world.verdict(issued.token, aud="svc-mailbox", op="send")

    assert verdict.ok
    assert verdict.claims.tenant == "acme"


@pytest.mark.parametrize(
    ("caveats", "fields", "reason"),
    [
        (("op=send",), {"audience": "svc-dht"}, "forbidden:caveat:aud"),
        (("op=ack",), {}, "forbidden:caveat:op"),
        (("op=issue",), {}, "forbidden:caveat:op"),
        (("op=*",), {}, "forbidden:caveat:op"),
        (("topic=a",), {}, "forbidden:caveat:op"),
        (("op=send",), {"tenant": "victim"}, "forbidden:caveat:tenant"),
        (("op=send",), {"class_": "internal"}, "forbidden:caveat:class"),
        (("op=send",), {"ttl_s": 3600}, "forbidden:caveat:exp"),
        (("op=send",), {"ttl_s": 3601}, "malformed:ttl_too_long"),
        (("op=send", "budget.reqs=101"), {}, "malformed:policy_violation"),
        (("op=send", "pq.fallback=true"), {}, "malformed:unknown_caveat"),
        (("op=send", "proof.bind=x"), {}, "malformed:unknown_caveat"),
        (("op=send",), {"audience": "elsewhere"}, "malformed:bad_audience"),
    ],
)
async def test_a_delegate_cannot_mint_wider_longer_or_stranger(caveats, fields, reason):
    async with running() as world:
        capability = await issuer_token(world, ttl_s=1800)

        assert await refusal(ask(world, capability, *caveats, **fields)) == reason


async def test_a_delegate_cannot_issue_for_the_operator():
    async with running() as world:
        request = p.Issue("operator", "svc-mailbox", caveats=("op=send",), ttl_s=60)

        assert await refusal(world.api.issue(request, Call(await issuer_token(world)))) == "forbidden:caveat:sub"


async def test_a_narrowed_delegate_issues_only_what_repeats_his_caveats():
    async with running() as world:
        narrowed = attenuate(await issuer_token(world), parse_all(["topic=orders/"]))
        assert await refusal(ask(world, narrowed)) == "forbidden:caveat:topic"
        assert await refusal(ask(world, narrowed, "op=send", "topic=orders")) == "forbidden:caveat:topic"

        assert (await ask(world, narrowed, "op=send", "topic=orders/eu")).caveats == ("op=send", "topic=orders/eu")


async def test_a_token_with_a_budget_cannot_issue():
    async with running() as world:
        assert await refusal(ask(world, await issuer_token(world, "budget.reqs=5"))) == "forbidden:caveat:budget"


async def test_a_holder_cannot_give_himself_the_power_to_issue():
    async with running() as world:
        plain = await world.issue("op=send", tenant="acme")
        silent = (await world.api.issue(p.Issue("x", "*", tenant="acme"), world.operator)).token
        helped = [attenuate(token, parse_all(["op=issue"])) for token in (plain, silent)]

        for token in (plain, silent, *helped):
            assert (await refusal(ask(world, token))).startswith("forbidden:caveat:")


@pytest.mark.parametrize("by", ["tid", "rid", "tenant", "subject_ref", "epoch"])
async def test_a_revoked_delegate_mints_nothing_and_what_he_minted_falls(by):
    async with running() as world:
        capability = await issuer_token(world)
        child = (await ask(world, capability)).token
        claims = (await world.verdict(capability)).claims
        value = {"tid": claims.tid, "rid": claims.rids[0], "tenant": "acme", "subject_ref": "delegate", "epoch": 1}[by]
        await world.api.revoke(p.Revoke(**{by: value}), world.operator)

        assert await refusal(ask(world, capability)) == "unauthenticated:revoked"
        if by != "subject_ref":
            assert (await world.verdict(child)).reason == "revoked"


@pytest.mark.parametrize(
    ("via", "blocks", "good"),
    [(0, 0, True), (3, 0, True), (4, 0, False), (1, 7, True), (3, 7, False)],
)
def test_lineage_is_bounded_in_levels_and_ids(via, blocks, good):
    issuer = Issuer()
    text = issuer.token(via=tuple((bytes([n]) * 16,) * 3 for n in range(via)))
    for _ in range(blocks):
        text = attenuate(text, ())
    held = issuer.verifier.open(text)

    if good:
        assert lineage(held)[-1].ids == (held.root.tid, *held.rids)
    else:
        with pytest.raises(Malformed) as caught:
            lineage(held)
        assert caught.value.facts["reason"] == "lineage_too_long"


async def test_a_sealed_token_may_issue_too():
    async with running() as world:
        assert (await ask(world, seal(await issuer_token(world)))).alg == "ed25519"


async def test_wrong_audience_and_no_token_are_told_apart():
    async with running() as world:
        mailbox_only = await world.issue("op=issue,send", tenant="acme")

        assert await refusal(ask(world, mailbox_only)) == "forbidden:caveat:aud"
        assert await refusal(ask(world, "")) == "unauthenticated:missing"
        assert await refusal(ask(world, "psp1_x")) == "unauthenticated:malformed"


async def test_nothing_is_minted_without_a_policy():
    async with running() as world:
        book = world.service.book
        book._descriptor = None
        book._swap()
        with pytest.raises(NotReady):
            await world.issue()
        world.service.sampler.sample()

        assert world.inventory.metrics.value("tokens_issued_total") == 0
        assert {"registry", "policy"} <= set(world.inventory.health.verdict().missing)


async def test_full_queue_sheds_and_verify_still_answers():
    async with running(options(inflight=600)) as world:
        token = await world.issue()
        jobs = [world.api.queue_issue(work(world), None, "") for _ in range(512)]
        with pytest.raises(Busy) as caught:
            world.api.queue_issue(work(world), None, "")
        world.service.sampler.sample()
        gates = world.inventory.health.verdict()
        assert (caught.value.facts["queue"], "issue_queue" in gates.missing) == ("issue", True)
        assert world.inventory.metrics.value("queue_dropped_total", queue="issue") == 1

        assert (await world.verdict(token)).ok
        await asyncio.wait(jobs)
        world.service.sampler.sample()
        assert world.inventory.health.verdict().ready


def work(world: Running):
    from penstock.services.passport.api import context_of
    from penstock.services.passport.issuance import IssueWork

    return IssueWork(p.Issue("a", "svc-mailbox"), world.operator_token, context_of(Call(), "issue"))


async def test_ingress_sheds_above_its_rate_and_its_unanswered_requests():
    async with running(options(rps=2, inflight=32)) as world:
        for _ in range(2):
            await world.issue()
        with pytest.raises(RateLimited) as caught:
            await world.issue()
        assert caught.value.facts["scope"] == "rps"
        await asyncio.sleep(1)
        assert await world.issue()

    async with running(options(rps=0, inflight=32)) as world:
        for _ in range(32):
            world.api.queue_issue(work(world), None, "")
        with pytest.raises(Busy) as caught:
            world.api.queue_issue(work(world), None, "")
        assert caught.value.facts["limit"] == "inflight"


async def test_limits_change_without_a_restart():
    async with running() as world:
        world.service.book.adopt(limits=Limits(max_ttl_s=30, disabled=frozenset({"route"})))

        assert await refusal(world.issue(ttl_s=31)) == "malformed:ttl_too_long"
        assert await refusal(world.issue("route=/v1", ttl_s=30)) == "malformed:unknown_caveat"
        assert (await world.verdict(await world.issue(ttl_s=30))).ok


async def test_post_quantum_mode_follows_the_settings_and_marks_a_classical_token():
    async with running(options(limits=Limits(pq_mode="mirror"))) as world:
        hybrid = await world.issue()
        classical = await world.issue(accept_algs=("ed25519",))
        algs = [(await world.verdict(token)).claims.alg for token in (hybrid, classical)]
        assert algs == ["ed25519+ml-dsa-65", "ed25519"]
        assert (await world.verdict(classical)).claims.caveats == ("pq.fallback=true",)
        assert (await world.verdict(attenuate(hybrid, ()), aud="svc-mailbox")).warnings == ("classical_attenuation",)
        world.service.book.adopt(limits=Limits(pq_mode="enforce"))
        await asyncio.sleep(0.01)

        assert (await world.verdict(classical)).reason == "caveat:pq.fallback"
        assert await refusal(world.issue(accept_algs=("ed25519",))) == "malformed:no_acceptable_alg"


async def test_a_changed_setting_is_followed_and_a_missing_key_is_made():
    bus = Broadcast("events")
    wanted = [Limits()]
    async with running(around=Around(bus=bus, limits=lambda: wanted[0])) as world:
        assert decode(await world.issue()).root.alg == "ed25519"
        wanted[0] = Limits(pq_mode="mirror", max_ttl_s=30)
        bus.publish(ConfigUpdated(2))
        await asyncio.sleep(1)
        token = await world.issue(ttl_s=30)

        assert decode(token).root.alg == "ed25519+ml-dsa-65"
        assert (await world.verdict(token)).ok
        assert await refusal(world.issue(ttl_s=31)) == "malformed:ttl_too_long"
        assert decode(world.operator_token).root.alg == "ed25519+ml-dsa-65"


async def test_what_was_charged_at_the_gateway_is_not_charged_again():
    async with running() as world:
        capability = await issuer_token(world, "rate.rps=1")
        charged = Call(capability, origin=Origin("POST", "/v1/passport/issue", "10.0.0.1", charged=True))
        request = p.Issue("bob", "svc-mailbox", caveats=("op=send", "rate.rps=1"), ttl_s=60)
        for _ in range(3):
            assert await world.api.issue(request, charged)
        assert await world.api.issue(request, Call(capability))

        assert (await refusal(world.api.issue(request, Call(capability)))).startswith("rate_limited")


async def test_operator_is_not_locked_out_by_his_own_revocations():
    async with running() as world:
        first = world.operator_token
        await world.api.revoke(p.Revoke(epoch=1), world.operator)
        second = world.operator_token
        kid = (await world.verdict(second)).claims.kid
        await world.api.revoke(p.Revoke(kid=kid), world.operator)

        assert len({first, second, world.operator_token}) == 3
        assert (await world.verdict(first)).reason == "revoked"
        assert (await world.verdict(world.operator_token)).ok
        with pytest.raises(Unauthenticated):
            await world.api.rotate(p.Rotate(), Call(first))


async def test_a_revoked_key_is_gone_at_once_even_for_epochs_to_come():
    async with running() as world:
        token = await world.issue()
        old = decode(token).root.kid
        await world.api.revoke(p.Revoke(kid=old), world.operator)
        keys = [key.kid for key in (await world.api.keys(p.GetKeys())).keys]

        assert old not in keys
        assert old not in world.service.book.trust.keys
        assert (await world.verdict(token)).reason == "revoked"


async def test_forbidden_is_told_before_a_place_in_the_queue_is_taken():
    async with running() as world:
        with pytest.raises(Forbidden):
            await world.api.revoke(p.Revoke(tid="0" * 32), Call(await issuer_token(world)))

        assert world.inventory.metrics.value("revocations_total", kind="tid") == 0


@pytest.mark.parametrize("fields", [{"tid": "x"}, {"rid": "A" * 32}, {"tenant": ""}])
async def test_a_target_that_cannot_exist_is_refused(fields):
    async with running() as world:
        assert (await refusal(world.api.revoke(p.Revoke(**fields), world.operator))) == "malformed:bad_target"


async def test_an_old_key_is_rotated_by_itself():
    async with running(options(rotation_days=1)) as world:
        first = world.service.book.state.signing
        await asyncio.sleep(24 * 3600 + 1)

        assert world.service.book.state.signing != first
        assert world.inventory.metrics.value("key_rotations_total") == 1
        assert (await world.verdict(await world.issue())).ok


async def test_a_killed_worker_comes_back_and_the_others_go_on():
    async with running() as world:
        victim = next(child for child in world.supervisor.children if child.name == "issuance[0]")
        assert victim.kill()
        assert await world.issue()
        await asyncio.sleep(1)

        assert victim.restarts == 1
        assert world.inventory.health.verdict().ready
        assert await world.issue()


NAMES = st.text(max_size=12) | st.sampled_from(["*", "svc-mailbox", "operator", "sub:x"])
REQUESTS = st.builds(
    p.Issue,
    NAMES,
    NAMES | st.lists(NAMES, max_size=3).map(tuple),
    tenant=st.none() | NAMES,
    ttl_s=st.integers(1, 1 << 60),
    caveats=st.lists(
        st.text(max_size=20) | st.sampled_from(["op=send", "exp=1", "ip=::/0", "rate.rps=0"]), max_size=3
    ).map(tuple),
    accept_algs=st.lists(NAMES, max_size=2).map(tuple),
)


@given(REQUESTS)
def test_whatever_is_asked_is_minted_readably_or_refused_by_name(request_):
    issuer = Issuer()
    held = issuer.verifier.open(issuer.token("op=*", aud=("*",), tenant=None, class_="internal"))
    view = IssuerView(in_force(Descriptor(version=1), Limits()), {"ed25519": "k1"}, 0)
    try:
        text = mint(root_of(request_, held, view, 1_800_000_000, bytes(16)), issuer.sign)
    except PenstockError:
        return
    # A name that cannot be read back must not have been issued.
    assert decode(text).root.sub == request_.subject_ref


@given(
    st.binary(max_size=200)
    | st.dictionaries(st.text(max_size=12), st.text() | st.integers() | st.none()).map(json.dumps).map(str.encode)
)
def test_a_body_is_read_or_refused_without_a_crash(data):
    for kind in (p.Issue, p.Revoke, p.Verify, p.VerifyBatch):
        try:
            msgspec.json.decode(data, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        assert data


# --- revoking an issuer revokes what it issued
# -------------------------------------------------------------------------


async def chain_of_issuers(world) -> list[str]:
    """Issue a token with the operator's, and a plain one with that: boss, then clerk."""
    boss = p.Issue("boss", ("svc-passport", "svc-mailbox"), "acme", caveats=("op=issue,send",))
    held = (await world.api.issue(boss, world.operator)).token
    clerk = p.Issue("clerk", "svc-mailbox", "acme", caveats=("op=send",))
    return [held, (await world.api.issue(clerk, Call(held))).token]


@pytest.mark.parametrize(
    "target",
    [{"subject_ref": "boss"}, {"tenant": "acme"}, {"kid": "own"}, {"epoch": 1}, {"tid": "own"}, {"rid": "own"}],
    ids=lambda target: next(iter(target)),
)
async def test_revoking_an_issuer_by_any_name_revokes_what_it_issued(target):
    async with running() as world:
        held, child = await chain_of_issuers(world)
        other = await world.issue(tenant="other")
        claims = (await world.verdict(held)).claims
        own = {"kid": claims.kid, "tid": claims.tid, "rid": claims.rids[0]}
        (kind,) = target
        await world.api.revoke(p.Revoke(**{kind: own.get(kind, target[kind])}), world.operator)

        assert (await world.verdict(child)).reason == "revoked"
        assert (await world.verdict(other)).ok is (kind not in ("kid", "epoch"))


async def test_what_an_issuer_hands_out_after_its_revocation_is_good():
    async with running() as world:
        await chain_of_issuers(world)
        await world.api.revoke(p.Revoke(subject_ref="boss"), world.operator)
        _, child = await chain_of_issuers(world)

        assert (await world.verdict(child)).ok
