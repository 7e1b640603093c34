"""Delegated issue: what is covered is never wider, and each way to widen is named."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.capability.caveats import parse_all
from penstock.capability.covers import HeldAuthority, RequestedAuthority, uncovered
from penstock.capability.families import AUDIENCES
from penstock.capability.judging import AttributeCheck, ScopedChecks, judge, make_ready
from penstock.contracts.capability import RequestContext
from penstock.kernel.errors import Forbidden
from tests.capability.drawn import CAVEATS, CONTEXTS

HELD = HeldAuthority(
    aud=("svc-passport", "svc-mailbox"),
    caveats=parse_all(["op=issue,send,recv"]),
    tenant="acme",
    class_="authed",
    exp=1000,
    operator=False,
)
ASKED = RequestedAuthority(
    aud=("svc-mailbox",), caveats=parse_all(["op=send"]), tenant="acme", class_="authed", nbf=100, exp=900
)  # fmt: skip


def held(*caveats: str, **fields) -> HeldAuthority:
    return replace(HELD, caveats=(*HELD.caveats, *parse_all(caveats)), **fields)


def asked(*caveats: str, **fields) -> RequestedAuthority:
    return replace(ASKED, caveats=parse_all(caveats), **fields)


def test_the_same_or_less_is_covered():
    assert uncovered(HELD, ASKED) is None


@pytest.mark.parametrize(
    ("issuer", "request_", "missing"),
    [
        (held(), asked("op=send", aud=("svc-dht",)), "aud"),
        (held(), asked("op=send", aud=("*",)), "aud"),
        (held(), asked(), "op"),
        (held(), asked("op=ack"), "op"),
        (held(), asked("op=*"), "op"),
        (held(), asked("op=issue"), "op"),
        (held(), asked("op=revoke"), "op"),
        (held(), asked("op=send,issue"), "op"),
        (held(), asked("op=send", tenant="other"), "tenant"),
        (held(), asked("op=send", tenant=None), "tenant"),
        (held(tenant=None), asked("op=send", tenant=None), "tenant"),
        (held(), asked("op=send", class_="internal"), "class"),
        (held(), asked("op=send", exp=1001), "exp"),
        (held("topic=orders/"), asked("op=send"), "topic"),
        (held("topic=orders/"), asked("op=send", "topic=orders"), "topic"),
        (held("topic=orders"), asked("op=send", "topic=orders*"), "topic"),
        (held("topic=orders/"), asked("op=send", "topic=orders/eu,billing"), "topic"),
        (held("ip=10.0.0.0/8"), asked("op=send", "ip=0.0.0.0/0"), "ip"),
        (held("ip=10.0.0.0/8"), asked("op=send", "ip=::/0"), "ip"),
        (held("method=GET"), asked("op=send", "method=GET,POST"), "method"),
        (held("rate.rps=2"), asked("op=send", "rate.rps=3"), "rate.rps"),
        (held("exp=800"), asked("op=send"), "exp"),
        (held("nbf=200"), asked("op=send"), "nbf"),
        (held("amnesia=true"), asked("op=send"), "amnesia"),
        (held("amnesia=true"), asked("op=send", "amnesia=false"), "amnesia"),
        (held("budget.reqs=5"), asked("op=send", "budget.reqs=1"), "budget"),
        (held("budget.bytes=5"), asked("op=send", "budget.bytes=1"), "budget"),
        (held("aud=svc-passport"), asked("op=send"), "aud"),
        (held("op=issue,recv"), asked("op=send"), "op"),
    ],
)
def test_each_way_to_widen_is_named(issuer, request_, missing):
    assert uncovered(issuer, request_) == missing


@pytest.mark.parametrize(
    ("issuer", "request_"),
    [
        (held("topic=orders/"), asked("op=send", "topic=orders/eu")),
        (held("topic=orders"), asked("op=send", "topic=orders/*")),
        (held("ip=10.0.0.0/8"), asked("op=send", "ip=10.1.0.0/16")),
        (held("exp=950"), asked("op=send")),
        (held("exp=800"), asked("op=send", "exp=700")),
        (held("nbf=50"), asked("op=send")),
        (held("nbf=200"), asked("op=send", "nbf=300")),
        (held("rate.rps=2"), asked("op=send", "rate.rps=1")),
        (held("amnesia=true"), asked("op=send", "amnesia=true")),
        (held("aud=svc-passport,svc-mailbox"), asked("op=send")),
    ],
)
def test_what_is_at_least_as_narrow_is_covered(issuer, request_):
    assert uncovered(issuer, request_) is None


def test_operator_hands_out_any_op_tenant_class_and_life_but_not_past_his_own_caveats():
    operator = replace(HELD, aud=("*",), caveats=parse_all(["op=*"]), tenant=None, class_="internal", operator=True)
    wide = asked("op=issue,send", aud=("*",), tenant="any", class_="internal", exp=10**6)
    assert uncovered(operator, wide) is None

    narrowed = replace(operator, caveats=(*operator.caveats, *parse_all(["topic=orders/"])))
    assert uncovered(narrowed, wide) == "topic"


def allows(aud: tuple[str, ...], caveats, context: RequestContext, at: int, times: tuple[int, int]) -> bool:
    """Ask the judging code itself, times included."""
    nbfs = [times[0], *(caveat.number for caveat in caveats if caveat.name == "nbf")]
    exps = [times[1], *(caveat.number for caveat in caveats if caveat.name == "exp")]
    if not max(nbfs) <= at < min(exps):
        return False
    check = AttributeCheck("aud", "aud", lambda name: "*" in aud or name in aud)
    try:
        judge((check, *make_ready(caveats), *ScopedChecks((tuple(caveats),)).at(context.at)), context)
    except Forbidden:
        return False
    return True


AUDS = st.lists(st.sampled_from(AUDIENCES), min_size=1, max_size=3, unique=True).map(tuple)
SETS = st.lists(CAVEATS, max_size=3).map(tuple)


@settings(max_examples=400)
@given(st.tuples(AUDS, SETS), st.tuples(AUDS, SETS), CONTEXTS, st.integers(0, 9), st.booleans())
@example(
    (("svc-mailbox",), parse_all(["topic=orders"])),
    (("svc-mailbox",), parse_all(["topic=orders*", "op=send"])),
    RequestContext(aud="svc-mailbox", op="send", topic="orders-x"),
    1,
    False,
)
@example(
    (("omnigate", "svc-mailbox"), parse_all(["svc-mailbox:topic=orders/"])),
    (("omnigate",), parse_all(["op=send"])),
    RequestContext(aud="omnigate", op="send", topic="billing", service="svc-mailbox"),
    4,
    False,
)
def test_law_every_request_the_new_token_allows_the_old_one_allows(mine, wanted, context, at, operator):
    (aud, caveats), (wanted_aud, wanted_caveats) = mine, wanted
    # Such tokens are refused when they are made and when they are read.
    assume(all("*" not in who or not any(each.scope for each in what) for who, what in (mine, wanted)))
    issuer = replace(HELD, aud=aud, caveats=(*parse_all(["op=send,recv,issue"]), *caveats), exp=9, operator=operator)
    issuer = replace(issuer, shut=ScopedChecks((issuer.caveats,)).shut)
    request = replace(ASKED, aud=wanted_aud, caveats=wanted_caveats, nbf=3, exp=8)
    if uncovered(issuer, request) is not None:
        return

    # The operator may hand out ops he was not asked for; everything else of the law holds for him too.
    held_caveats = [caveat for caveat in issuer.caveats if not (operator and caveat.name == "op")]
    if allows(wanted_aud, wanted_caveats, context, at, (3, 8)):
        assert allows(aud, held_caveats, context, at, (0, 9))
