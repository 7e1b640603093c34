"""Caveats: a closed set, one written form, matched on boundaries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.capability.caveats import CAVEATS_MAX, VALUES_MAX, from_wire, parse, parse_all
from penstock.capability.families import FAMILIES
from penstock.capability.judging import is_under, judge, judge_given, make_ready
from penstock.contracts.capability import RequestContext
from penstock.kernel.errors import Forbidden, Malformed
from penstock.wire import cbor
from tests.capability.drawn import CAVEATS, CONTEXTS

CLOSED_SET = {
    "aud", "svc", "route", "method", "op", "topic", "region", "tenant", "ip", "exp", "nbf", "scope", "budget.bytes",
    "budget.reqs", "rate.rps", "amnesia", "proof.bind", "pq.fallback",
}  # fmt: skip


def test_the_set_is_closed_and_numbered_once():
    assert set(FAMILIES) == CLOSED_SET
    assert len({family.code for family in FAMILIES.values()}) == len(CLOSED_SET)


@given(CAVEATS)
def test_written_form_and_token_form_are_read_back(caveat):
    assert parse(str(caveat)) == caveat
    assert from_wire(cbor.decode(cbor.encode(caveat.wire()))) == caveat


@pytest.mark.parametrize(
    "text",
    [
        "sudo=yes", "op", "op=", "=x", "op=fly", "op=send,send", "op=send,", "exp=soon", "exp=-1", "exp=01", "exp=1.5",
        "exp=\u0661", f"exp={'9' * 5000}", f"exp={1 << 53}", "budget.reqs=", "amnesia=yes", "amnesia=1",
        "ip=10.0.0.1/8",
        "ip=somewhere", "ip=10.0.0.0/33", "ip=010.0.0.0/8", "aud=elsewhere", "method=get", "route=v1", "scope=root",
        f"region={'x' * 257}", "region=a\tb", "proof.bind=abcd", "Op=send", " op=send",
        "topic=" + ",".join(map(str, range(VALUES_MAX + 1))),
    ],
)  # fmt: skip
def test_what_cannot_be_judged_is_refused(text):
    with pytest.raises(Malformed):
        parse(text)


@pytest.mark.parametrize("text", ["sudo=yes", "proof.bind=abcd"])
def test_unknown_and_unevaluated_caveats_say_so(text):
    with pytest.raises(Malformed) as caught:
        parse(text)

    assert caught.value.facts["reason"] == "unknown_caveat"


def test_more_caveats_than_a_token_holds_are_refused():
    with pytest.raises(Malformed):
        parse_all(["op=send"] * (CAVEATS_MAX + 1))


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
        ("orders-private", "orders*", True),
        ("orders", "orders*", True),
        ("anything", "*", True),
        ("/v1/o", "/", True),
        ("", "orders", False),
    ],
)
def test_prefix_matches_only_on_a_boundary(value, prefix, under):
    assert is_under(value, prefix) is under
    (check,) = make_ready([parse(f"topic={prefix}")])
    assert check.allows(value) is under


@given(st.text("ab/:.*", max_size=6), st.text("ab/:.*", min_size=1, max_size=4))
def test_quick_match_agrees_with_the_plain_one(value, prefix):
    (check,) = make_ready([parse(f"topic={prefix}")])

    assert check.allows(value) == is_under(value, prefix)


@pytest.mark.parametrize(
    ("ip", "allowed"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("11.0.0.1", False),
        ("2001:db8::1", True),
        ("2001:db9::1", False),
        ("unix", False),
        ("", False),
        ("10.1.2.3/32", False),
    ],
)
def test_address_is_matched_by_network_and_version(ip, allowed):
    (check,) = make_ready([parse("ip=10.0.0.0/8,2001:db8::/32")])

    assert check.allows(ip) is allowed


@pytest.mark.parametrize("name", ["aud", "svc", "op", "method", "region", "topic", "route", "ip"])
def test_caveat_on_an_attribute_the_request_lacks_is_not_satisfied(name):
    value = {"aud": "*", "svc": "*", "op": "*", "method": "GET", "ip": "0.0.0.0/0", "route": "/"}.get(name, "*")
    checks = make_ready([parse(f"{name}={value}")])

    with pytest.raises(Forbidden) as caught:
        judge(checks, RequestContext())
    assert caught.value.facts["reason"] == f"caveat:{name}"
    assert judge_given(checks, RequestContext()) == [name]


@given(st.lists(CAVEATS, max_size=4), CAVEATS, CONTEXTS)
def test_one_more_caveat_never_allows_more(caveats, added, context):
    def allows(some):
        try:
            judge(make_ready(some), context)
        except Forbidden:
            return False
        return True

    assert not allows([*caveats, added]) or allows(caveats)
