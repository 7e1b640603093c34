"""What every implementation of the passport contract must do, as its operator and its verifiers see it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import pytest

from penstock.contracts.call import Call
from penstock.contracts.capability import RequestContext
from penstock.contracts.passport import (
    Attest,
    GetKeys,
    GetRevocations,
    Issue,
    IssuedToken,
    ListIssued,
    Revoke,
    Rotate,
    Verified,
    Verify,
    VerifyBatch,
)
from penstock.kernel.errors import Conflict, Forbidden, Malformed, NotFound, OverLimit, Unauthenticated
from tests.contracts.worlds import World


class PassportSuite:
    """A world's `fake.operator_token` is the operator's capability."""

    def world(self) -> AbstractAsyncContextManager[World]:
        raise AssertionError("a subclass says which implementation")

    @staticmethod
    def operator(world: World) -> Call:
        return Call(world.fake.operator_token)

    async def issue(self, world: World, *caveats: str, **fields: object) -> str:
        request = Issue("alice", "svc-mailbox", caveats=caveats, **fields)
        return (await world.api.issue(request, self.operator(world))).token

    @staticmethod
    async def verdict(world: World, token: str, **context: str) -> Verified:
        return await world.api.verify(Verify(token, RequestContext(**context)))

    async def test_issued_token_verifies_with_its_claims(self) -> None:
        async with self.world() as world:
            issued = await world.api.issue(
                Issue("alice", ("svc-mailbox", "svc-storage"), tenant="acme", caveats=("op=send",)),
                self.operator(world),
            )
            got = await self.verdict(world, issued.token, aud="svc-mailbox", op="send")

            assert got.ok
            assert not got.authoritative
            assert got.claims is not None
            assert (got.claims.sub, got.claims.tenant, got.claims.class_) == ("alice", "acme", "authed")
            assert got.claims.exp - got.claims.iat == 900
            assert (got.claims.kid, got.claims.epoch, got.claims.exp) == (issued.kid, issued.epoch, issued.exp)
            assert got.warnings == ()

    async def test_what_the_context_does_not_give_is_named_in_the_warnings(self) -> None:
        async with self.world() as world:
            token = await self.issue(world, "op=send", "topic=orders/")

            assert set((await self.verdict(world, token, op="send")).warnings) == {"aud", "topic"}
            assert set((await self.verdict(world, token, aud="svc-mailbox", topic="orders/eu")).warnings) == {"op"}

    @pytest.mark.parametrize(
        ("context", "reason"),
        [
            ({"aud": "svc-dht"}, "caveat:aud"),
            ({"op": "recv"}, "caveat:op"),
            ({"topic": "billing"}, "caveat:topic"),
        ],
    )
    async def test_what_the_token_does_not_cover_is_a_verdict_with_its_reason(self, context: dict, reason: str) -> None:
        async with self.world() as world:
            token = await self.issue(world, "op=send", "topic=orders/")
            got = await self.verdict(world, token, **context)

            assert (got.ok, got.reason, got.claims) == (False, reason, None)

    async def test_token_expires(self) -> None:
        async with self.world() as world:
            token = await self.issue(world, ttl_s=10)
            await world.advance(9)
            assert (await self.verdict(world, token)).ok
            await world.advance(1.5)

            assert (await self.verdict(world, token)).reason == "expired"

    async def test_token_before_its_time_is_not_valid_yet(self) -> None:
        async with self.world() as world:
            probe = (await self.verdict(world, await self.issue(world))).claims
            token = await self.issue(world, f"nbf={probe.iat + 200}")
            assert (await self.verdict(world, token)).reason == "not_yet_valid"
            # A minute of skew is granted to nbf.
            await world.advance(141)

            assert (await self.verdict(world, token)).ok

    @pytest.mark.parametrize(("token", "reason"), [("", "missing"), ("garbage", "malformed")])
    async def test_bad_token_is_a_verdict_not_an_error(self, token: str, reason: str) -> None:
        async with self.world() as world:
            assert await self.verdict(world, token) == Verified(ok=False, reason=reason)

    async def test_one_bad_item_never_fails_the_batch(self) -> None:
        async with self.world() as world:
            token = await self.issue(world)
            got = await world.api.verify_batch(VerifyBatch((Verify(token), Verify("x"), Verify(token))))
            assert [item.ok for item in got.results] == [True, False, True]

            with pytest.raises(OverLimit):
                await world.api.verify_batch(VerifyBatch((Verify(token),) * 513), Call(token))

    async def test_nobody_issues_revokes_or_rotates_without_authority(self) -> None:
        async with self.world() as world:
            plain = Call(await self.issue(world))
            for call, error in ((Call(), Unauthenticated), (Call("psp1_x"), Unauthenticated), (plain, Forbidden)):
                for attempt in (
                    world.api.issue(Issue("eve", "*"), call),
                    world.api.revoke(Revoke(tid="t"), call),
                    world.api.rotate(Rotate(), call),
                ):
                    with pytest.raises(error):
                        await attempt

    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            ({"ttl_s": 3601}, "ttl_too_long"),
            ({"caveats": ("sudo=yes",)}, "unknown_caveat"),
            ({"accept_algs": ("rot13",)}, "no_acceptable_alg"),
        ],
    )
    async def test_issue_refuses_what_it_cannot_keep(self, fields: dict, reason: str) -> None:
        async with self.world() as world:
            with pytest.raises(Malformed) as caught:
                await world.api.issue(Issue("alice", "*", **fields), self.operator(world))

            assert caught.value.facts["reason"] == reason

    @pytest.mark.parametrize("by", ["epoch", "kid", "tenant", "subject_ref", "tid"])
    async def test_revoked_token_falls_at_once_and_new_ones_stand(self, by: str) -> None:
        async with self.world() as world:
            token = await self.issue(world, tenant="acme")
            claims = (await self.verdict(world, token)).claims
            target = {
                "epoch": claims.epoch + 1,
                "kid": claims.kid,
                "tenant": "acme",
                "subject_ref": "alice",
                "tid": claims.tid,
            }[by]
            answer = await world.api.revoke(Revoke(**{by: target}), self.operator(world))
            assert answer.current_epoch > claims.epoch
            assert (await self.verdict(world, token)).reason == "revoked"

            # The operator is not locked out, and what is issued now is good.
            assert (await self.verdict(world, await self.issue(world, tenant="acme"))).ok

    async def test_a_key_that_is_not_there_is_not_revoked_and_one_that_was_may_be_again(self) -> None:
        async with self.world() as world:
            kid = (await self.verdict(world, await self.issue(world))).claims.kid
            with pytest.raises(NotFound) as caught:
                await world.api.revoke(Revoke(kid=kid[:-1]), self.operator(world))
            assert caught.value.facts["reason"] == "no_such_key"
            assert (await world.api.revocations(GetRevocations())).entries == ()

            for _ in range(2):
                await world.api.revoke(Revoke(kid=kid), self.operator(world))

    async def test_revoking_one_spares_the_others(self) -> None:
        async with self.world() as world:
            mine, other = await self.issue(world, tenant="a"), await self.issue(world, tenant="b")
            await world.api.revoke(Revoke(tenant="a"), self.operator(world))

            assert not (await self.verdict(world, mine)).ok
            assert (await self.verdict(world, other)).ok

    async def test_epoch_only_rises_and_by_one_at_most(self) -> None:
        async with self.world() as world:
            first = await world.api.revoke(Revoke(epoch=1), self.operator(world))
            again = await world.api.revoke(Revoke(epoch=1), self.operator(world))
            assert first == again
            with pytest.raises(Malformed):
                await world.api.revoke(Revoke(epoch=first.current_epoch + 2), self.operator(world))

    async def test_operator_revokes_himself_only_by_force_and_is_given_another_token(self) -> None:
        async with self.world() as world:
            old = self.operator(world)
            claims = (await self.verdict(world, world.fake.operator_token)).claims
            with pytest.raises(Conflict):
                await world.api.revoke(Revoke(tid=claims.tid), old)
            await world.api.revoke(Revoke(tid=claims.tid, force=True), old)

            with pytest.raises(Unauthenticated):
                await world.api.rotate(Rotate(), old)
            await world.api.rotate(Rotate(), self.operator(world))

    async def test_rotation_keeps_the_epoch_and_the_old_key_for_its_grace(self) -> None:
        async with self.world() as world:
            token = await self.issue(world, ttl_s=3600)
            before = (await self.verdict(world, token)).claims
            rotated = await world.api.rotate(Rotate(), self.operator(world))
            assert (rotated.epoch, rotated.kid != before.kid) == (before.epoch, True)
            assert [key.kid for key in (await world.api.keys(GetKeys())).keys] == [rotated.kid, before.kid]
            assert (await self.verdict(world, token)).ok
            await world.advance(601)

            assert (await self.verdict(world, token)).reason == "unknown_kid"
            assert [key.kid for key in (await world.api.keys(GetKeys())).keys] == [rotated.kid]

    async def test_feed_is_numbered_and_resumes(self) -> None:
        async with self.world() as world:
            for tenant in ("a", "b", "c"):
                await world.api.revoke(Revoke(tenant=tenant), self.operator(world))
            whole = await world.api.revocations(GetRevocations())
            rest = await world.api.revocations(GetRevocations(since=whole.entries[1].seq))
            assert [(entry.seq, entry.kind) for entry in whole.entries] == [(n, "tenant") for n in (1, 2, 3)]
            assert len({entry.value for entry in whole.entries}) == 3
            assert (rest.entries, rest.snapshot) == (whole.entries[2:], False)

            ahead = await world.api.revocations(GetRevocations(since=99))
            assert (ahead.snapshot, len(ahead.entries)) == (True, 3)

    async def test_nobody_has_a_head_attested_without_authority(self) -> None:
        async with self.world() as world:
            plain = Call(await self.issue(world))
            for call, error in ((Call(), Unauthenticated), (plain, Forbidden)):
                with pytest.raises(error):
                    await world.api.attest(Attest("svc-interop", 1, "aa"), call)

    async def test_the_head_of_a_chain_is_attested_and_never_goes_back(self) -> None:
        async with self.world() as world:
            operator = self.operator(world)
            first = await world.api.attest(Attest("svc-interop", 7, "aa"), operator)
            assert (first.service, first.n, first.head) == ("svc-interop", 7, "aa")
            await world.api.attest(Attest("svc-interop", 7, "aa"), operator)
            await world.api.attest(Attest("svc-other", 1, "bb"), operator)

            for n, head in ((6, "aa"), (7, "bb")):
                with pytest.raises(Conflict):
                    await world.api.attest(Attest("svc-interop", n, head), operator)
            assert (await world.api.attest(Attest("svc-interop", 8, "cc"), operator)).n == 8

    # --- what was issued

    async def listed(self, world: World, **asked: object) -> list[IssuedToken]:
        page = await world.api.issued(ListIssued(**asked), self.operator(world))
        found = list(page.tokens)
        while page.cursor is not None:
            page = await world.api.issued(ListIssued(**{**asked, "cursor": page.cursor}), self.operator(world))
            found += page.tokens
        return found

    async def test_what_was_issued_is_listed_newest_first_and_never_the_token(self) -> None:
        async with self.world() as world:
            first = await world.api.issue(
                Issue("alice", ("svc-mailbox", "svc-storage"), tenant="acme", caveats=("op=send",), class_="anon"),
                self.operator(world),
            )
            second = await world.api.issue(Issue("bob", "svc-mailbox", ttl_s=60), self.operator(world))
            newest, oldest = await self.listed(world)

        assert (newest.tid, newest.sub, newest.tenant, newest.state) == (second.tid, "bob", "sub:bob", "good")
        assert (oldest.tid, oldest.sub, oldest.tenant, oldest.class_) == (first.tid, "alice", "acme", "anon")
        assert (oldest.aud, oldest.caveats) == (("svc-mailbox", "svc-storage"), ("op=send",))
        assert (oldest.kid, oldest.epoch, oldest.exp) == (first.kid, first.epoch, first.exp)
        assert (oldest.exp - oldest.iat, newest.exp - newest.iat) == (900, 60)
        assert (oldest.by, newest.by) == ("operator", "operator")

    async def test_pages_of_what_was_issued_show_each_token_once(self) -> None:
        async with self.world() as world:
            tids = [(await world.api.issue(Issue(f"s{n}", "svc-mailbox"), self.operator(world))).tid for n in range(7)]
            by_two = await self.listed(world, limit=2)
            by_seven = await self.listed(world, limit=7)

        assert [each.tid for each in by_two] == tids[::-1]
        assert [each.tid for each in by_seven] == tids[::-1]

    async def test_ended_tokens_are_listed_only_when_asked_for_and_say_how_they_ended(self) -> None:
        async with self.world() as world:
            await self.issue(world, ttl_s=5)
            revoked = await world.api.issue(Issue("bob", "svc-mailbox"), self.operator(world))
            kept = await world.api.issue(Issue("carol", "svc-mailbox"), self.operator(world))
            await world.api.revoke(Revoke(tid=revoked.tid), self.operator(world))
            await world.advance(6)
            good = await self.listed(world)
            every = await self.listed(world, all=True)

        assert [each.tid for each in good] == [kept.tid]
        assert [(each.sub, each.state) for each in every] == [
            ("carol", "good"), ("bob", "revoked"), ("alice", "expired"),
        ]  # fmt: skip

    async def test_nobody_lists_what_was_issued_without_authority(self) -> None:
        async with self.world() as world:
            token = await self.issue(world)
            with pytest.raises(Unauthenticated):
                await world.api.issued(ListIssued())
            with pytest.raises(Forbidden):
                await world.api.issued(ListIssued(), Call(token))
            with pytest.raises(Malformed):
                await world.api.issued(ListIssued(cursor="none of ours"), self.operator(world))
