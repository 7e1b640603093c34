"""The admin listener judges the operator's token like any other: a revoked one opens nothing, and its sessions end."""

from __future__ import annotations

import asyncio

import pytest

from penstock.admin.authority import OperatorOnly
from penstock.contracts import passport as p
from penstock.kernel.errors import DownstreamUnavailable
from tests.admin.test_authority import asked
from tests.admin.test_session_authority import judge, with_session
from tests.services.passport.kit import FakeKms, Running, running


def authority_of(world: Running) -> OperatorOnly:
    book = world.service.book
    return OperatorOnly(lambda: book.operator_token, open_metrics=lambda: False, stands=book.operator_stands)


def by_token(authority: OperatorOnly, token: str) -> str | None:
    return judge(authority, asked(authorization=f"Bearer {token}"))


@pytest.mark.parametrize("kind", ["tid", "subject_ref", "epoch", "kid"])
async def test_a_revoked_operator_token_opens_nothing_and_its_sessions_end(kind: str) -> None:
    async with running() as world:
        authority, old = authority_of(world), world.operator_token
        session, link = authority.sign_in(token=old), authority.make_link()
        assert session
        assert (by_token(authority, old), judge(authority, with_session(session))) == (None, None)
        claims = (await world.verdict(old)).claims
        named = {"tid": claims.tid, "subject_ref": claims.sub, "epoch": 1, "kid": claims.kid}
        await world.api.revoke(p.Revoke(**{kind: named[kind]}, force=True), world.operator)

        assert by_token(authority, old) == "bad_signature"
        assert judge(authority, with_session(session)) == "session"
        assert authority.sign_in(token=old) is None
        assert authority.sign_in(once=link) is None
        assert by_token(authority, world.operator_token) is None


async def test_while_no_other_token_can_be_minted_nobody_is_the_operator() -> None:
    """The key store fails just then: what the node still holds is the revoked token."""
    kms = FakeKms()
    async with running(kms=kms) as world:
        authority, old = authority_of(world), world.operator_token
        session = authority.sign_in(token=old)
        assert session
        kms.failing = True
        tid = (await world.verdict(old)).claims.tid
        with pytest.raises(DownstreamUnavailable):
            await world.api.revoke(p.Revoke(tid=tid, force=True), world.operator)
        assert world.operator_token == old
        assert (by_token(authority, old), judge(authority, with_session(session))) == ("bad_signature", "session")
        kms.failing = False
        await asyncio.sleep(30)

        assert world.operator_token != old
        assert by_token(authority, world.operator_token) is None
        assert judge(authority, with_session(session)) == "session"


async def test_a_token_that_has_expired_opens_nothing() -> None:
    async with running() as world:
        authority = authority_of(world)
        assert by_token(authority, world.operator_token) is None
        book = world.service.book
        book._wall = lambda: 1_800_000_000.0 + 366 * 24 * 3600

        assert by_token(authority, world.operator_token) == "bad_signature"


async def test_the_token_is_judged_once_for_each_state_of_the_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as world:
        authority, book, judged = authority_of(world), world.service.book, []
        real = book._operator_until
        monkeypatch.setattr(book, "_operator_until", lambda now: judged.append(now) or real(now))
        for _ in range(50):
            assert by_token(authority, world.operator_token) is None
        await world.api.revoke(p.Revoke(tenant="acme"), world.operator)
        for _ in range(50):
            assert by_token(authority, world.operator_token) is None

        assert len(judged) <= 2
