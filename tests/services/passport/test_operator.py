"""The operator: never locked out by what he does, never imitated by whom he empowers."""

from __future__ import annotations

import asyncio
import threading

import pytest

from penstock.capability.caveats import parse_all
from penstock.capability.making import attenuate
from penstock.capability.token import decode, encode
from penstock.contracts import passport as p
from penstock.contracts.call import Call
from penstock.kernel.errors import PenstockError, Timeout
from penstock.services.passport import background
from penstock.services.passport.audit import walk
from penstock.services.passport.config import KmsOptions
from penstock.services.passport.kms import KmsLimits
from penstock.services.passport.policy import Limits
from penstock.testing import until
from tests.services.passport.kit import FakeKms, Running, hanging, options, running


async def refusal(attempt) -> str:
    with pytest.raises(PenstockError) as caught:
        await attempt
    return f"{caught.value.code}:{caught.value.facts.get('reason')}"


async def star(world: Running, **fields) -> Call:
    """Have the operator hand out everything, for a minute."""
    request = p.Issue("deputy", "*", caveats=("op=*",), ttl_s=60, **fields)
    return Call((await world.api.issue(request, world.operator)).token)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"ttl_s": 3600}, "forbidden:caveat:exp"),
        ({"tenant": "other"}, "forbidden:caveat:tenant"),
        ({"class_": "internal"}, "forbidden:caveat:class"),
        ({"caveats": ("op=*",)}, "forbidden:caveat:op"),
        ({"caveats": ("op=issue",)}, "forbidden:caveat:op"),
        ({"caveats": ()}, "forbidden:caveat:op"),
    ],
)
async def test_a_deputy_with_every_op_mints_nothing_longer_wider_or_equal_to_himself(fields, reason):
    async with running() as world:
        deputy = await star(world, tenant="acme")
        good = {"ttl_s": 30, "tenant": "acme", "caveats": ("op=send",)}
        await world.api.issue(p.Issue("bob", "svc-mailbox", **good), deputy)

        assert await refusal(world.api.issue(p.Issue("bob", "svc-mailbox", **{**good, **fields}), deputy)) == reason


async def test_a_narrowed_operator_mints_within_his_narrowing():
    async with running() as world:
        soon = int(world.inventory.clock.wall()) + 60
        narrowed = Call(attenuate(world.operator_token, parse_all([f"exp={soon}", "topic=orders/"])))
        good = p.Issue("bob", "svc-mailbox", caveats=("op=send", "topic=orders/eu"), ttl_s=30)
        assert await world.api.issue(good, narrowed)

        longer = p.Issue("bob", "svc-mailbox", caveats=("op=send", "topic=orders/eu"), ttl_s=90)
        wider = p.Issue("bob", "svc-mailbox", caveats=("op=send", "topic=billing"), ttl_s=30)
        assert await refusal(world.api.issue(longer, narrowed)) == "forbidden:caveat:exp"
        assert await refusal(world.api.issue(wider, narrowed)) == "forbidden:caveat:topic"


async def test_a_revoked_narrowing_of_the_operator_stays_revoked_for_as_long_as_he_lives(tmp_path, monkeypatch):
    monkeypatch.setattr(background, "SAMPLE_S", 3600.0)  # a day of looking four times a second is long
    async with running(options(tmp_path)) as world:
        child = attenuate(world.operator_token, parse_all(["op=send"]))
        rid = (await world.verdict(child)).claims.rids[-1]
        await world.api.revoke(p.Revoke(rid=rid), world.operator)
        await asyncio.sleep(25 * 3600)  # longer than any other token lives
        await world.api.revoke(p.Revoke(tenant="somebody"), world.operator)

        assert (await world.verdict(child)).reason == "revoked"
        assert (await world.verdict(world.operator_token)).ok


@pytest.mark.parametrize("damage", ["signature", "classical under enforce", "not the operator"])
async def test_an_operator_token_that_does_not_hold_is_replaced_at_the_start(tmp_path, damage):
    async with running(options(tmp_path)) as world:
        token = world.operator_token
        other = await world.issue("op=send")
    file = tmp_path / "operator.token"
    read = decode(token)
    if damage == "signature":
        parts = {name: getattr(read, name) for name in read.__struct_fields__}
        file.write_text(encode(type(read)(**{**parts, "signature": bytes(64)})))
    elif damage == "not the operator":
        file.write_text(other)
    limits = Limits(pq_mode="enforce") if damage == "classical under enforce" else Limits()
    async with running(options(tmp_path, limits=limits)) as world:
        assert world.operator_token not in (token, other)

        assert (await world.verdict(world.operator_token, aud="svc-passport", op="revoke")).ok
        assert file.read_text().strip() == world.operator_token


async def test_a_change_of_the_post_quantum_mode_leaves_the_operator_a_good_token():
    async with running(options(limits=Limits(pq_mode="mirror"))) as world:
        for mode in ("off", "enforce"):
            world.service.book.adopt(limits=Limits(pq_mode=mode))
            await asyncio.sleep(6)
            assert (await world.verdict(world.operator_token, aud="svc-passport", op="issue")).ok

        assert decode(world.operator_token).root.alg == "ed25519+ml-dsa-65"


async def test_the_post_quantum_mode_holds_from_the_first_request():
    async with running(options(limits=Limits(pq_mode="enforce"))) as world:
        assert world.service.verifier.options.pq_mode == "enforce"
        assert await refusal(world.issue(accept_algs=("ed25519",))) == "malformed:no_acceptable_alg"


async def test_a_revocation_holds_and_is_recorded_although_the_key_store_hangs_and_the_operator_gets_his_token_later(
    tmp_path,
):
    kms, limits = FakeKms(), KmsOptions(limits=KmsLimits(timeout_s=0.05))
    async with running(options(tmp_path, kms=limits), kms=kms) as world:
        token = await world.issue()
        with hanging(kms), pytest.raises(Timeout):
            await world.api.revoke(p.Revoke(epoch=1), world.operator)
        assert (await world.verdict(token)).reason == "revoked"
        assert walk((tmp_path / "audit" / "passport.jsonl").read_bytes()).epoch == 1
        assert world.service.book.owes_operator
        kms.hanging.set()
        kms.hanging = None
        world.service.sampler._renew_after = 0.0
        await until(lambda: not world.service.book.owes_operator)

        assert (await world.verdict(world.operator_token)).ok


@pytest.mark.real_loop
async def test_who_is_revoked_while_the_key_store_signs_is_handed_nothing():
    kms, limits = FakeKms(), KmsOptions(limits=KmsLimits(timeout_s=60.0))
    async with running(options(kms=limits), kms=kms) as world:
        request = p.Issue("delegate", ("svc-passport", "svc-mailbox"), tenant="acme", caveats=("op=issue,send",))
        delegate = (await world.api.issue(request, world.operator)).token
        kms.hanging = threading.Event()
        asked = p.Issue("bob", "svc-mailbox", caveats=("op=send",), ttl_s=60, tenant="acme")
        minting = asyncio.ensure_future(world.api.issue(asked, Call(delegate)))
        await until(lambda: kms.calls == 3)
        # By subject: the new token is somebody else's, so only this look stops it.
        await world.api.revoke(p.Revoke(subject_ref="delegate"), world.operator)
        kms.hanging.set()

        assert await refusal(minting) == "unauthenticated:revoked"
        assert world.inventory.metrics.value("tokens_issued_total") == 1


async def test_a_changed_grace_holds_for_the_next_rotation():
    async with running() as world:
        token = await world.issue()
        world.service.book.adopt(limits=Limits(grace_s=5.0))
        await world.api.rotate(p.Rotate(), world.operator)
        assert (await world.verdict(token)).ok
        await asyncio.sleep(6)

        assert (await world.verdict(token)).reason == "unknown_kid"


async def test_a_stolen_key_is_revoked_although_no_new_one_can_be_made_and_never_comes_back(tmp_path):
    kms = FakeKms()
    async with running(options(tmp_path), kms=kms) as world:
        token = await world.issue()
        stolen = decode(token).root.kid
        kms.failing = True
        assert (await world.api.revoke(p.Revoke(kid=stolen), world.operator)).current_epoch == 1
        assert (await world.verdict(token)).reason == "revoked"
        assert stolen not in {key.kid for key in (await world.api.keys(p.GetKeys())).keys}
        world.service.sampler.sample()
        kms.failing = False
        world.service.sampler._rotate_after = world.service.sampler._renew_after = 0.0
        await until(lambda: not world.service.book.owes_operator)

        assert decode(await world.issue()).root.kid != stolen
        assert stolen not in world.service.book.trust.keys


async def test_secrets_are_in_no_record_message_or_representation(tmp_path, caplog):
    caplog.set_level("DEBUG")
    async with running(options(tmp_path)) as world:
        token = await world.issue()
        seed = decode(token).proof[1]
        for bad in (token[:-8] + "AAAAAAAA", token + "A", "psp1_" + "A" * 50):
            await world.verdict(bad)
            with pytest.raises(PenstockError) as caught:
                await world.api.revoke(p.Revoke(tenant="x"), Call(bad))
            assert bad not in str(caught.value.facts) + caught.value.detail
        await world.api.revoke(p.Revoke(tenant="acme", reason=f"leaked {token} today"), world.operator)
        keys = world.service._kms.engine._engine._keys
        shown, signing = repr(decode(token)) + repr(keys), keys[0].secret
    said = caplog.text + (tmp_path / "audit" / "passport.jsonl").read_text() + shown
    sealed = (tmp_path / "passport" / "sealing.key").read_bytes()

    assert "leaked psp1_... today" in said
    for secret in (seed, sealed, signing):
        assert secret.hex() not in said
        assert repr(secret)[2:-1] not in said
    for text in (token, token[5:60], world.operator_token[5:60]):
        assert text not in said
