"""No request, however shaped, makes a verifier raise; and nothing that was not signed is accepted."""

from __future__ import annotations

import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.services.interop.providers.hmac_key import HmacKey
from penstock.services.interop.providers.kinds import KINDS, make_verifier
from penstock.services.interop.providers.pointers import ClaimRule, DeliveryValue
from penstock.services.interop.providers.setup import WebhookSetup
from penstock.services.interop.providers.verdict import WebhookRequest, verify
from tests.services.interop import senders
from tests.services.interop.senders import NOW, SENDERS

VERIFIERS = {kind: make_verifier(kind, WebhookSetup(**senders.settings(SENDERS[kind]))) for kind in KINDS}
NAMES = sorted(
    {name for sender in SENDERS.values() for name, _ in sender.send().fields} | {b"content-type", b"idempotency-key"}
)
PIECES = [
    b"t=",
    b"v1=",
    b"v0=",
    b"v1,",
    b"v1a,",
    b"sha256=",
    b",",
    b" ",
    b"=",
    b"1700000000",
    b"1_7",
    b"a" * 64,
    b"A" * 43 + b"=",
    b"\xff",
    b"application/x-www-form-urlencoded",
    b"key=,algorithm=HMAC_SHA256",
    b"timestamp=1700000000,signature=",
    b"0" * 128,
]
values = st.one_of(st.binary(max_size=80), st.lists(st.sampled_from(PIECES), max_size=6).map(b"".join))
bodies = st.one_of(
    st.binary(max_size=200),
    st.sampled_from(
        [
            b"",
            b"{}",
            b"[]",
            b'{"type":1}',
            b"[" * 5000,
            b'{"id":"\\ud800"}',
            b'{"type":"url_verification","challenge":"x"}',
        ]
    ),
)


@st.composite
def requests(draw):
    fields = draw(st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=8))
    return WebhookRequest(
        fields, draw(bodies), draw(st.sampled_from([b"/", b"/?bodySHA256=", b"/?a&bodySHA256=0", b"/\xff?\xff"]))
    )


@pytest.mark.parametrize("kind", KINDS)
@given(request=requests())
@settings(max_examples=150, deadline=None)
def test_any_request_is_refused_and_never_raises(kind, request):
    found = verify(VERIFIERS[kind], request, NOW)

    assert found.refusal is not None
    assert found.claim is found.handshake is None


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_changed_request_is_refused_unless_only_unsigned_things_changed(kind, data):
    sender, verifier = SENDERS[kind], VERIFIERS[kind]
    good = sender.send()
    names = [name for name, _ in good.fields]
    name = data.draw(st.sampled_from(names))
    changed = good.with_field(name, data.draw(values))
    first = verify(verifier, WebhookRequest(good.fields, good.body, good.target), NOW)

    found = verify(verifier, WebhookRequest(changed.fields, changed.body, changed.target), NOW)

    if name in verifier.secret_fields | verifier.signed_fields and changed != good:
        assert found.refusal is not None
    assert found.refusal is not None or found.claim == first.claim


@given(
    body=st.one_of(bodies, st.recursive(st.none() | st.integers(), st.lists).map(lambda v: str(v).encode())),
    form=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_pointers_never_raise(body, form):
    fields = [(b"content-type", b"application/x-www-form-urlencoded")] if form else []
    request = WebhookRequest(fields, body)

    for verifier in VERIFIERS.values():
        assert isinstance(DeliveryValue("pointer:/a/0").find(verifier, request), str)


@pytest.mark.parametrize("kind", KINDS)
@given(body=st.binary(max_size=100))
@settings(max_examples=60, deadline=None)
def test_any_signed_body_is_accepted_or_malformed(kind, body):
    # Twilio signs a form; other bytes would not be one.
    sender = SENDERS[kind]
    signed = sender.body if kind in ("twilio", "linear") else body
    sent = sender.send(signed)

    request = WebhookRequest(sent.fields, sent.body, sent.target)
    found = verify(VERIFIERS[kind], request, NOW)

    assert found.accepted or found.malformed
    if found.accepted and found.handshake is None:
        assert ClaimRule("auto").choose(VERIFIERS[kind], request, found) is not None


@given(
    secret=st.binary(min_size=1, max_size=150),
    content=st.binary(max_size=300),
    digest=st.sampled_from(["sha1", "sha256"]),
)
@settings(max_examples=200, deadline=None)
def test_a_prepared_key_gives_the_bytes_of_an_hmac(secret, content, digest):
    key = HmacKey(secret, digest)

    assert key.tag(content) == hmac.digest(secret, content, digest)
    # A key is used again and again: what it hashed before must not stay in it.
    assert key.tag(content) == hmac.digest(secret, content, digest)
