"""The one verifier.

Every refusal has its code, the caches never authorise by themselves, and revocation is immediate.
"""

from __future__ import annotations

import inspect
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.capability import verifier as verifier_module
from penstock.capability.caveats import parse_all
from penstock.capability.judged_token import JudgedToken
from penstock.capability.making import attenuate, seal
from penstock.capability.token import TokenEnvelope, decode, encode, open_envelope
from penstock.capability.verifier import SLICE, VerifierOptions
from penstock.contracts.capability import Grant, RequestContext, Verifier
from penstock.kernel.errors import Forbidden, NotReady, PenstockError, Unauthenticated
from penstock.kernel.pool import Pool
from tests.capability.drawn import CAVEATS
from tests.capability.kit import NOW, SEND, Issuer, narrowed, rebuilt, seed


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


def test_it_keeps_the_contract(issuer):
    verifier: Verifier = issuer.verifier
    granted = verifier.verify(issuer.token("op=send"), SEND)

    assert isinstance(granted, Grant)
    assert (granted.sub, granted.tenant, granted.class_, granted.caveats) == ("alice", "acme", "authed", ("op=send",))
    assert len(granted.rids) == 1


def test_tenant_without_one_is_the_subject_in_a_space_of_its_own(issuer):
    granted = issuer.verifier.verify(issuer.token(tenant=None), SEND)

    assert granted.tenant == "sub:alice"


@pytest.mark.parametrize(
    ("caveats", "fields", "verdict"),
    [
        ((), {"aud": ("svc-dht",)}, "forbidden:caveat:aud"),
        (("op=recv",), {}, "forbidden:caveat:op"),
        (("topic=billing/",), {}, "forbidden:caveat:topic"),
        (("method=GET",), {}, "forbidden:caveat:method"),
        (("route=/v2",), {}, "forbidden:caveat:route"),
        (("ip=11.0.0.0/8",), {}, "forbidden:caveat:ip"),
        (("region=eu",), {}, "forbidden:caveat:region"),
        (("svc=svc-dht",), {}, "forbidden:caveat:svc"),
        (("tenant=victim",), {}, "forbidden:caveat:tenant"),
        (("scope=internal",), {}, "forbidden:caveat:scope"),
        (("amnesia=true",), {}, "forbidden:caveat:amnesia"),
        ((), {"exp": NOW}, "expired:expired"),
        ((f"exp={NOW}",), {}, "expired:expired"),
        ((), {"nbf": NOW + 61}, "expired:not_yet_valid"),
        ((), {"iat": NOW + 61}, "expired:not_yet_valid"),
        ((f"nbf={NOW + 61}",), {}, "expired:not_yet_valid"),
        ((), {"kid": "k9"}, "unauthenticated:unknown_kid"),
        ((), {"alg": "ed25519+ml-dsa-65"}, "unauthenticated:bad_signature"),
        (("budget.reqs=0",), {}, "rate_limited:caveat:budget.reqs"),
        ((), {"nbf": NOW + 60, "iat": NOW + 60}, "ok"),
        (("tenant=acme,other", "scope=authed", "amnesia=false", "op=*", "aud=*"), {}, "ok"),
    ],
)
def test_every_refusal_has_its_code_and_reason_cached_and_not(issuer, caveats, fields, verdict):
    token = issuer.token(*caveats, **fields)

    assert [issuer.verdict(token), issuer.verdict(token)] == [verdict, verdict]


def test_a_token_expires_while_it_is_cached(issuer):
    token = issuer.token(exp=NOW + 10)
    assert issuer.verdict(token) == "ok"
    issuer.clock.advance(10)

    assert issuer.verdict(token) == "expired:expired"


def test_a_key_past_its_grace_verifies_nothing_cached_or_not(issuer):
    issuer.trust.swap(MappingProxyType({"k1": issuer.record(exp=NOW + 30)}))
    token = issuer.token()
    assert issuer.verdict(token) == "ok"
    issuer.clock.advance(30)

    assert issuer.verdict(token) == "unauthenticated:unknown_kid"


REVOKE = {
    "epoch": lambda grant: ("epoch", "", 1),
    "kid": lambda grant: ("kid", grant.kid, 1),
    "tenant": lambda grant: ("tenant", grant.tenant, 1),
    "subject": lambda grant: ("subject_ref", grant.sub, 1),
    "tid": lambda grant: ("tid", grant.tid, 1),
    "root block": lambda grant: ("rid", grant.rids[0], 1),
    "last block": lambda grant: ("rid", grant.rids[-1], 1),
}


@pytest.mark.parametrize("by", REVOKE)
@pytest.mark.parametrize("seen_before", [True, False])
def test_a_revoked_token_falls_at_once(issuer, by, seen_before):
    token, twin = (narrowed(issuer.token(), ("op=send",)) for _ in range(2))
    target = token if seen_before else twin
    grant = issuer.verifier.verify(token, SEND)
    grant = grant if seen_before else replace(grant, tid=decode(twin).root.tid.hex(), rids=rids(twin))
    issuer.revoke(*REVOKE[by](grant))

    assert issuer.verdict(target) == "unauthenticated:revoked"


def rids(token: str) -> tuple[str, ...]:
    return tuple(value[:16].hex() for value in decode(token).chain())


def test_a_revoked_block_takes_its_children_and_spares_its_parent(issuer):
    parent = issuer.token()
    child = narrowed(parent, ("op=send",))
    grandchild, sibling = narrowed(child, ("topic=orders/",)), attenuate(parent, parse_all(["op=send"]), seed(50))
    issuer.revoke("rid", rids(child)[-1], 1)

    verdicts = [issuer.verdict(token) for token in (parent, child, grandchild, sibling)]
    assert verdicts == ["ok", "unauthenticated:revoked", "unauthenticated:revoked", "ok"]


def test_what_was_issued_with_a_revoked_token_falls_with_it(issuer):
    first = decode(issuer.token())
    child = issuer.token(via=((first.root.tid, *(value[:16] for value in first.chain())),))
    assert issuer.verdict(child) == "ok"
    issuer.revoke("tid", first.root.tid.hex(), 1)

    assert issuer.verdict(child) == "unauthenticated:revoked"


@settings(max_examples=150)
@given(st.lists(CAVEATS, max_size=3), st.lists(CAVEATS, max_size=3))
def test_no_added_block_changes_class_tenant_subject_or_quota_key(mine, added):
    issuer = Issuer()
    token = issuer.token(*map(str, mine), exp=NOW + 900)
    child = attenuate(token, added)
    gives = [
        (standing.root.class_, standing.root.owner, standing.root.sub, standing.grant.tid, standing.granted)
        for text in (token, child)
        if isinstance(standing := opened(issuer, text), JudgedToken)
    ]

    assert len(set(gives)) <= 1


def opened(issuer: Issuer, token: str):
    try:
        return issuer.verifier.open(token)
    except PenstockError as error:
        return error


@settings(max_examples=150)
@given(st.lists(CAVEATS, max_size=3), st.lists(CAVEATS, min_size=1, max_size=3), st.data())
def test_attenuation_never_widens(mine, added, data):
    from tests.capability.drawn import CONTEXTS

    issuer = Issuer()
    scoped = any(caveat.scope for caveat in (*mine, *added))
    token = issuer.token(*map(str, mine), aud=("omnigate", "svc-mailbox", "svc-storage") if scoped else ("*",))
    child = attenuate(token, added)
    context = data.draw(CONTEXTS)

    # Counted caveats are charged where they are first met, so each is asked by a verifier of its own.
    if issuer.verdict(child, context) == "ok":
        assert Issuer().verdict(token, context) == "ok"


@pytest.mark.parametrize("op", ["issue", "revoke"])
def test_silence_in_the_root_does_not_grant_what_only_an_issuer_gives(issuer, op):
    ask = RequestContext(aud="svc-mailbox", op=op)
    plain = issuer.token()
    helped = narrowed(plain, (f"op={op}",))
    starred = narrowed(plain, ("op=*",))

    assert {issuer.verdict(token, ask) for token in (plain, helped, starred)} == {"forbidden:caveat:op"}
    assert issuer.verdict(issuer.token(f"op={op}"), ask) == "ok"
    assert issuer.verdict(issuer.token("op=*"), ask) == "ok"
    assert issuer.verdict(narrowed(issuer.token("op=*"), ("op=send",)), ask) == "forbidden:caveat:op"


def test_a_request_for_another_tenants_things_is_refused(issuer):
    mine, other = (RequestContext(aud="svc-mailbox", op="send", tenant=name) for name in ("acme", "victim"))
    token, operator = issuer.token(), issuer.token("op=*", tenant=None)

    assert [issuer.verdict(token, mine), issuer.verdict(token, other)] == ["ok", "forbidden:caveat:tenant"]
    assert issuer.verdict(operator, other) == "ok"
    assert issuer.verdict(narrowed(operator, ("op=send",)), other) == "forbidden:caveat:tenant"


def test_further_attribute_is_judged_by_check(issuer):
    grant = issuer.verifier.verify(issuer.token("topic=orders/"), SEND)
    issuer.verifier.check(grant, RequestContext(topic="orders/us"))

    with pytest.raises(Forbidden):
        issuer.verifier.check(grant, RequestContext(topic="billing"))


# --- budgets
# -----------------------------------------------------------------------------------------------------------


def test_siblings_do_not_spend_each_others_budget_and_parents_pay_for_children(issuer):
    parent = issuer.token("budget.reqs=3")
    one, other = (attenuate(parent, parse_all(["budget.reqs=1"]), seed(n)) for n in (1, 2))
    asked = [issuer.verdict(token) for token in (one, one, other, parent, parent)]

    spent = "rate_limited:caveat:budget.reqs"
    assert asked == ["ok", spent, "ok", "ok", spent]


def test_bytes_are_charged_by_cost_and_a_refusal_charges_nothing(issuer):
    token = issuer.token("budget.bytes=100", "budget.reqs=2")
    issuer.verifier.verify(token, SEND, cost_bytes=60)
    with pytest.raises(PenstockError):
        issuer.verifier.verify(token, SEND, cost_bytes=41)

    assert isinstance(issuer.verifier.verify(token, SEND, cost_bytes=40), Grant)


def test_a_rate_refills_with_time(issuer):
    token = issuer.token("rate.rps=2")
    assert [issuer.verdict(token) for _ in range(3)] == ["ok", "ok", "rate_limited:caveat:rate.rps"]
    issuer.clock.advance(0.5)

    assert issuer.verdict(token) == "ok"


def test_what_was_charged_before_is_not_charged_again(issuer):
    token = issuer.token("budget.reqs=1")
    for _ in range(3):
        issuer.verifier.verify(token, SEND, charged=True)

    assert [issuer.verdict(token), issuer.verdict(token)] == ["ok", "rate_limited:caveat:budget.reqs"]


def test_a_full_table_refuses_new_budgets_and_forgets_only_expired_ones():
    issuer = Issuer(VerifierOptions(accounts_max=4))
    first, second, third = (issuer.token("budget.reqs=5", exp=NOW + 20 + n) for n in range(3))
    assert [issuer.verdict(token) for token in (first, second)] == ["ok", "ok"]
    assert issuer.verdict(third) == "rate_limited:budget_table"
    assert issuer.verdict(first) == "ok"
    issuer.clock.advance(20)

    assert issuer.verdict(third) == "ok"


def test_a_refused_request_is_not_charged(issuer):
    token = issuer.token("budget.reqs=1", "topic=orders/")
    assert issuer.verdict(token, replace(SEND, topic="billing")) == "forbidden:caveat:topic"

    assert issuer.verdict(token) == "ok"


# --- caches
# ------------------------------------------------------------------------------------------------------------


def test_a_hit_costs_no_crypto_and_a_parents_hit_serves_its_children(issuer):
    parent = narrowed(issuer.token(), ("op=send",))
    issuer.verdict(parent)
    issuer.verdict(parent)
    assert (issuer.verifier.hits, issuer.verifier.misses) == (1, 1)
    child = narrowed(parent, ("topic=orders/",))
    prepared = issuer.verifier._prepare(child, b"", NOW)

    assert (prepared.known, prepared.signatures) == (1, 1)


def test_a_known_prefix_never_stands_for_a_proof(issuer):
    whole = decode(narrowed(issuer.token(), ("op=send",)))
    issuer.verdict(encode(whole))

    # The parent's text was never seen, its signatures are known, and the child's seed is no proof of it.
    assert issuer.verdict(rebuilt(whole, blocks=())) == "unauthenticated:bad_signature"


def test_a_forgery_costs_its_crypto_once(issuer):
    forged = rebuilt(decode(issuer.token()), signature=bytes(64))
    for _ in range(3):
        assert issuer.verdict(forged) == "unauthenticated:bad_signature"

    assert len(issuer.verifier._refused) == 1
    assert len(issuer.verifier._tokens) == len(issuer.verifier._prefixes) == 0


def test_a_token_refused_for_its_claims_is_in_no_cache_that_could_authorise(issuer):
    for bad in (issuer.token(exp=NOW), issuer.token(kid="k9"), "psp1_garbage"):
        issuer.verdict(bad)
    caches = (issuer.verifier._tokens, issuer.verifier._prefixes)

    assert [len(cache) for cache in caches] == [0, 0]


def test_caches_stay_within_their_bounds():
    issuer = Issuer(VerifierOptions(tokens_max=4, prefixes_max=4, refused_max=4))
    for n in range(10):
        issuer.verdict(issuer.token(sub=f"s{n}"))
        issuer.verdict(rebuilt(decode(issuer.token(sub=f"s{n}")), signature=bytes(64)))
    caches = (issuer.verifier._tokens, issuer.verifier._prefixes, issuer.verifier._refused)

    assert [len(cache) for cache in caches] == [4, 4, 4]


def test_expired_tokens_leave_the_caches_long_before_these_are_full():
    issuer = Issuer()
    kept = issuer.token(sub="kept")
    issuer.verdict(kept)
    for n in range(600):
        issuer.verdict(issuer.token(sub=f"s{n}", exp=NOW + 60))
        if n == 300:
            issuer.clock.advance(61)
            issuer.verdict(kept)

    # Those of the second half expired before they were seen, and were refused.
    assert len(issuer.verifier._tokens) == 302
    for n in range(256):
        issuer.verdict(issuer.token(sub=f"t{n}"))
    assert len(issuer.verifier._tokens) < 260
    assert len(issuer.verifier._prefixes) < 260
    assert issuer.verdict(kept) == "ok"


def test_a_rotation_costs_no_crypto_and_another_key_under_the_same_kid_does(issuer):
    token = issuer.token()
    issuer.verdict(token)
    issuer.trust.swap(MappingProxyType({"k1": issuer.record(exp=NOW + 600), "k2": issuer.record("k2")}))
    assert issuer.verdict(token) == "ok"
    assert issuer.verifier.misses == 1
    issuer.public = b"\x01" + issuer.public[1:]
    issuer.trust.swap(MappingProxyType({"k1": issuer.record()}))

    assert issuer.verdict(token) == "unauthenticated:bad_signature"


def test_after_a_minute_the_proof_is_checked_again(issuer):
    token = issuer.token()
    issuer.verdict(token)
    issuer.clock.advance(60)
    issuer.verdict(token)

    assert issuer.verifier.misses == 2


# --- the feed is lost
# --------------------------------------------------------------------------------------------------


def test_without_the_feed_writes_stop_and_reads_go_on_for_a_while(issuer):
    token = issuer.token()
    recv = RequestContext(aud="svc-mailbox", op="recv")
    issuer.verdict(token)
    issuer.trust.lease_until = issuer.clock.monotonic() + 5
    assert issuer.verdict(token) == "ok"
    issuer.clock.advance(5)
    assert [issuer.verdict(token), issuer.verdict(token, recv)] == ["not_ready:revocation_feed", "ok"]
    issuer.clock.advance(30)

    assert issuer.verdict(token, recv) == "not_ready:revocation_feed"


def test_losing_the_feed_drops_judgements_and_keeps_proven_signatures(issuer):
    token = issuer.token()
    issuer.verdict(token)
    issuer.trust.lease_until = issuer.clock.monotonic()
    with pytest.raises(NotReady):
        issuer.verifier.verify(token, SEND)

    assert (len(issuer.verifier._tokens), len(issuer.verifier._prefixes)) == (0, 1)


def test_a_token_whose_proof_lapsed_is_remembered_until_it_expires(issuer):
    token = issuer.token()
    issuer.verdict(token)
    digest = issuer.verifier.digest(token)
    issuer.clock.advance(61)
    assert (issuer.verifier.peek(digest), issuer.verifier.remembers(digest)) == (None, True)
    assert issuer.verifier.forget_expired() == 0
    issuer.clock.advance(1 << 20)

    assert not issuer.verifier.remembers(digest)
    assert issuer.verifier.forget_expired() == 1


# --- off the loop
# ------------------------------------------------------------------------------------------------------


async def test_more_than_two_unknown_signatures_leave_the_loop_and_fewer_do_not():
    async with Pool("crypto", threads=1, capacity=8) as pool:
        issuer = Issuer(pool=pool)
        short, long = narrowed(issuer.token(), ("op=send",)), narrowed(issuer.token(), ("op=send",), ("op=send",))
        assert isinstance(issuer.verifier.verify(short, SEND), Grant)
        later = issuer.verifier.verify(long, SEND)

        assert inspect.isawaitable(later)
        assert (await later).sub == "alice"
        assert isinstance(issuer.verifier.verify(long, SEND), Grant)


async def test_what_is_revoked_while_its_signatures_are_checked_is_refused():
    async with Pool("crypto", threads=1, capacity=8) as pool:
        issuer = Issuer(pool=pool)
        later = issuer.verifier.verify(narrowed(issuer.token(), ("op=send",), ("op=send",)), SEND)
        issuer.revoke("tenant", "acme", 1)

        with pytest.raises(Unauthenticated) as caught:
            await later
        assert caught.value.facts["reason"] == "revoked"


async def test_a_batch_is_opened_in_slices_and_one_bad_token_fails_alone():
    async with Pool("crypto", threads=1, capacity=8) as pool:
        issuer = Issuer(pool=pool)
        tokens = [issuer.token() for _ in range(SLICE * 2 + 3)]
        tokens[1], tokens[9], tokens[10] = "", "psp1_x", rebuilt(decode(tokens[10]), signature=bytes(64))
        found = await issuer.verifier.open_many(tokens)
        again = await issuer.verifier.open_many(tokens)

    bad = [place for place, each in enumerate(found) if isinstance(each, PenstockError)]
    assert bad == [1, 9, 10] == [place for place, each in enumerate(again) if isinstance(each, PenstockError)]


def test_sealed_children_need_the_seal_of_their_own_chain(issuer):
    assert issuer.verdict(seal(narrowed(issuer.token(), ("op=send",), ("topic=orders/",)))) == "ok"


# --- what was refused is not judged again for a while
# ------------------------------------------------------------------


def costly(issuer: Issuer, **fields) -> str:
    """Return a token that takes long to read: as many values as a token may have."""
    words = [f"topic={','.join(f'{n:x}{m:x}' for m in range(32))}" for n in range(16)]
    return issuer.token(*words, **fields)


@pytest.mark.parametrize(
    ("make", "verdict"),
    [
        (lambda issuer: costly(issuer, kid="stranger"), "unauthenticated:unknown_kid"),
        (lambda issuer: costly(issuer) + "A", "unauthenticated:malformed"),
        (lambda issuer: costly(issuer, exp=NOW), "expired:expired"),
        (lambda issuer: costly(issuer, nbf=NOW + 3600), "expired:not_yet_valid"),
        (lambda issuer: costly(issuer, tenant="revoked"), "unauthenticated:revoked"),
        (lambda issuer: rebuilt(decode(costly(issuer)), signature=bytes(64)), "unauthenticated:bad_signature"),
    ],
)
def test_a_refused_token_is_not_even_read_a_second_time(make, verdict, monkeypatch):
    issuer = Issuer()
    issuer.revoke("tenant", "revoked", 1)
    token = make(issuer)
    read = []
    monkeypatch.setattr(verifier_module, "open_envelope", lambda text: read.append(text) or open_envelope(text))

    assert [issuer.verdict(token) for _ in range(50)] == [verdict] * 50
    assert len(read) == 1
    with pytest.raises(PenstockError) as caught:
        issuer.verifier.peek(issuer.verifier.digest(token))
    assert f"{caught.value.code}:{caught.value.facts['reason']}" == verdict


def test_nothing_inside_a_token_is_read_whose_key_is_not_known(monkeypatch):
    """What a stranger makes up costs the same, however much is in it."""
    issuer = Issuer()
    unknown, known = costly(Issuer(), kid="nobody"), costly(issuer)
    read, whole = [], decode(known)
    monkeypatch.setattr(TokenEnvelope, "read", lambda envelope: read.append(envelope.kid) or whole)

    assert issuer.verdict(unknown) == "unauthenticated:unknown_kid"
    assert read == []
    assert issuer.verdict(known) == "forbidden:caveat:topic"
    assert read == ["k1"]


def test_a_refusal_is_forgotten_when_keys_or_floors_change():
    issuer = Issuer()
    token = issuer.token(kid="k2")
    assert issuer.verdict(token) == "unauthenticated:unknown_kid"
    issuer.trust.swap(keys=MappingProxyType({"k2": issuer.record("k2")}))

    assert issuer.verdict(token) == "ok"


def test_a_refusal_is_forgotten_after_seconds_and_a_token_not_valid_yet_sooner():
    issuer = Issuer()
    early = issuer.token(nbf=NOW + 62)
    assert issuer.verdict(early) == "expired:not_yet_valid"
    issuer.clock.advance(2)

    assert issuer.verdict(early) == "ok"


def test_a_token_that_was_revoked_is_read_no_more_either(monkeypatch):
    issuer = Issuer()
    token = issuer.token()
    assert issuer.verdict(token) == "ok"
    issuer.revoke("tenant", "acme", 1)
    monkeypatch.setattr(verifier_module, "open_envelope", lambda text: pytest.fail("it was read again"))

    assert [issuer.verdict(token) for _ in range(3)] == ["unauthenticated:revoked"] * 3


# --- what a token must be given by name
# --------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["admin", "issue", "revoke"])
def test_a_token_that_names_no_op_may_do_all_but_the_destructive(op):
    issuer = Issuer()
    asked = RequestContext(aud="svc-mailbox", op=op, topic="orders/eu")

    assert issuer.verdict(issuer.token(), SEND) == "ok"
    assert issuer.verdict(issuer.token(), asked) == "forbidden:caveat:op"
    assert issuer.verdict(narrowed(issuer.token(), (f"op={op}",)), asked) == "forbidden:caveat:op"
    assert issuer.verdict(issuer.token(f"op=send,{op}"), asked) == "ok"
    assert issuer.verdict(issuer.token("op=*"), asked) == "ok"


# --- a route of the gateway as an audience
# -----------------------------------------------------------------------------


def test_a_token_narrowed_to_a_route_is_good_for_that_route_and_for_no_service():
    issuer = Issuer()
    token = narrowed(issuer.token(aud=("*",)), ("aud=route:/shop",))
    shop = RequestContext(aud="route:/shop", method="GET", route="/shop/1")

    assert issuer.verdict(token, shop) == "ok"
    for audience in ("omnigate", "svc-mailbox", "svc-passport", "svc-storage", "svc-dht", "svc-interop", "route:/bank"):
        assert issuer.verdict(token, RequestContext(aud=audience, op="send")) == "forbidden:caveat:aud"


def test_a_route_belongs_to_the_gateway():
    issuer = Issuer()
    shop = RequestContext(aud="route:/shop")

    assert issuer.verdict(narrowed(issuer.token(aud=("omnigate",)), ("aud=route:/shop",)), shop) == "ok"
    assert issuer.verdict(issuer.token("svc=omnigate", aud=("omnigate", "svc-mailbox")), shop) == "ok"
    assert issuer.verdict(issuer.token(aud=("omnigate",)), SEND) == "forbidden:caveat:aud"
    assert issuer.verdict(issuer.token(aud=("svc-mailbox",)), shop) == "forbidden:caveat:aud"
    assert issuer.verdict(issuer.token("svc=svc-dht", aud=("*",)), shop) == "forbidden:caveat:svc"
