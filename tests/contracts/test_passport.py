"""The passport contract on every implementation there is, and the verifier that goes with the one in RAM."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import msgspec
import pytest

from penstock.contracts.call import Call
from penstock.contracts.capability import Grant, RequestContext
from penstock.contracts.passport import METHODS, Issue, Revoke
from penstock.kernel.errors import Expired, Forbidden, Malformed, RateLimited, Unauthenticated
from penstock.testing.contracts.memory_passport import MemoryPassport
from penstock.testing.contracts.memory_tokens import TokenBook, check_caveat, is_under
from penstock.testing.fakes import VirtualClock
from tests.contracts.suite_passport import PassportSuite
from tests.contracts.worlds import World, in_ram, over_memory, over_socket


class TestPassportInRam(PassportSuite):
    def world(self) -> AbstractAsyncContextManager[World]:
        return in_ram(MemoryPassport, METHODS)


class TestPassportOverMemory(PassportSuite):
    def world(self) -> AbstractAsyncContextManager[World]:
        return over_memory(MemoryPassport, METHODS)


@pytest.mark.real_loop
class TestPassportOverSocket(PassportSuite):
    def world(self) -> AbstractAsyncContextManager[World]:
        return over_socket(MemoryPassport, METHODS)


@pytest.mark.parametrize("fields", [{}, {"tid": "t", "kid": "k"}, {"epoch": 1, "rid": "r"}])
def test_revoke_names_exactly_one_target(fields: dict) -> None:
    with pytest.raises(msgspec.ValidationError, match="exactly one"):
        msgspec.convert(fields, Revoke)


# --- the verifier ----------------------------------------------------------------------------------------------------

SEND = RequestContext(aud="svc-mailbox", op="send", topic="orders/eu")


class Bench:
    """A passport, its book as the verifier, and a clock to move."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.passport = MemoryPassport(self.clock)
        self.book: TokenBook = self.passport.book

    async def token(self, *caveats: str, **fields: object) -> str:
        request = Issue("alice", "svc-mailbox", caveats=caveats, **fields)
        return (await self.passport.issue(request, Call(self.passport.operator_token))).token


async def test_verifier_grants_what_the_root_says() -> None:
    bench = Bench()
    grant = bench.book.verify(await bench.token("op=send"), SEND)

    assert isinstance(grant, Grant)
    assert (grant.sub, grant.tenant, grant.class_, grant.caveats) == ("alice", "sub:alice", "authed", ("op=send",))


async def test_added_block_only_narrows_and_changes_no_class_tenant_or_subject() -> None:
    bench = Bench()
    token = await bench.token(tenant="acme")
    child = bench.book.attenuate(token, "op=send", "tenant=victim")
    parent = bench.book.verify(token, RequestContext(aud="svc-mailbox", op="recv"))

    with pytest.raises(Forbidden):
        bench.book.verify(child, RequestContext(aud="svc-mailbox", op="recv", tenant="victim"))
    narrowed = bench.book.verify(child, RequestContext(aud="svc-mailbox", op="send", tenant="victim"))
    assert (narrowed.tenant, narrowed.class_, narrowed.sub) == (parent.tenant, parent.class_, parent.sub)


async def test_caveat_on_an_attribute_the_request_lacks_is_not_satisfied() -> None:
    bench = Bench()
    token = await bench.token("topic=orders/")

    with pytest.raises(Forbidden) as caught:
        bench.book.verify(token, RequestContext(aud="svc-mailbox", op="send"))
    assert caught.value.facts["reason"] == "caveat:topic"


async def test_further_attribute_is_judged_by_check() -> None:
    bench = Bench()
    grant = bench.book.verify(await bench.token("topic=orders/"), SEND)
    bench.book.check(grant, RequestContext(topic="orders/us"))

    with pytest.raises(Forbidden):
        bench.book.check(grant, RequestContext(topic="billing"))


async def test_budget_is_counted_per_block_and_then_rate_limited() -> None:
    bench = Bench()
    token = await bench.token("budget.reqs=2")
    sibling = bench.book.attenuate(token, "budget.reqs=1")
    bench.book.verify(sibling, SEND)

    with pytest.raises(RateLimited) as caught:
        bench.book.verify(sibling, SEND)
    assert caught.value.facts["scope"] == "capability"
    bench.book.verify(token, SEND)
    with pytest.raises(RateLimited):
        bench.book.verify(token, SEND)


async def test_byte_budget_counts_what_the_request_costs() -> None:
    bench = Bench()
    token = await bench.token("budget.bytes=100")
    bench.book.verify(token, SEND, cost_bytes=60)

    with pytest.raises(RateLimited):
        bench.book.verify(token, SEND, cost_bytes=41)
    bench.book.verify(token, SEND, cost_bytes=40)


async def test_revoked_block_takes_its_children_and_spares_its_parent() -> None:
    bench = Bench()
    token = await bench.token()
    child = bench.book.attenuate(token, "op=send")
    grandchild = bench.book.attenuate(child, "topic=orders/")
    rid = bench.book.verify(child, SEND).rids[-1]
    await bench.passport.revoke(Revoke(rid=rid), Call(bench.passport.operator_token))

    for fallen in (child, grandchild):
        with pytest.raises(Unauthenticated) as caught:
            bench.book.verify(fallen, SEND)
        assert caught.value.facts["reason"] == "revoked"
    assert bench.book.verify(token, SEND).sub == "alice"


async def test_every_refusal_has_the_class_and_reason_of_the_contract() -> None:
    bench = Bench()
    token = await bench.token("ip=10.0.0.0/8", ttl_s=5)
    inside = msgspec.structs.replace(SEND, ip="10.1.2.3")
    bench.book.verify(token, inside)

    for bad, reason in (("", "missing"), ("x", "malformed"), ("psp1_x", "bad_signature")):
        with pytest.raises(Unauthenticated) as caught:
            bench.book.verify(bad, SEND)
        assert caught.value.facts["reason"] == reason
    with pytest.raises(Forbidden):
        bench.book.verify(token, msgspec.structs.replace(SEND, ip="192.168.0.1"))
    bench.clock.advance(5)
    with pytest.raises(Expired):
        bench.book.verify(token, inside)


@pytest.mark.parametrize(
    ("value", "prefix", "under"),
    [
        ("orders", "orders", True),
        ("orders/eu", "orders", True),
        ("orders.eu", "orders", True),
        ("orders:eu", "orders", True),
        ("orders-private", "orders", False),
        ("orders/eu", "orders/", True),
        ("orders", "orders/", False),
        ("order", "orders", False),
    ],
)
def test_prefix_matches_only_on_a_boundary(value: str, prefix: str, under: bool) -> None:
    assert is_under(value, prefix) is under


@pytest.mark.parametrize("caveat", ["sudo=yes", "op", "op=", "exp=soon", "budget.reqs=-1"])
def test_caveat_that_cannot_be_judged_is_refused(caveat: str) -> None:
    book = TokenBook(VirtualClock())

    with pytest.raises((Malformed, Unauthenticated)):
        book.attenuate("psp1_mem1", caveat)
    with pytest.raises(Malformed):
        check_caveat(caveat)
