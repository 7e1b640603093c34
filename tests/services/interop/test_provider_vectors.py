"""What providers published and what their own libraries sign is accepted; their libraries accept what we sign."""

from __future__ import annotations

import asyncio
import base64
import warnings
from dataclasses import replace
from urllib.parse import parse_qsl

import pytest

from penstock.services.interop.providers.kinds import make_verifier
from penstock.services.interop.providers.setup import WebhookSetup
from penstock.services.interop.providers.verdict import SigningNeeds, WebhookRequest, verify
from tests.services.interop.deliveries import PRODUCT, broken
from tests.services.interop.senders import NOW, SEED, SENDERS, SHARED, public_hex, settings
from tests.services.interop.vectors import BODIES, FORM, counted, published, signed_by_libraries

RULES = [*published(), *signed_by_libraries()]


def _verdict(kind, secret, fields, body, now=NOW, *, target=b"/", **more):
    setup = WebhookSetup(secrets=(secret.encode(),), **more)
    return verify(make_verifier(kind, setup), WebhookRequest(fields, body, target), now)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_what_others_signed_is_accepted(rule):
    assert broken(PRODUCT, rule) == ""


@pytest.mark.parametrize("rule", [rule for rule in published() if not rule.refusal], ids=str)
def test_published_vector_with_another_body_is_refused(rule):
    # A blank at the end of a form would be a part of its last value.
    changed = replace(rule, sent=replace(rule.sent, body=b"x" + rule.sent.body), refusal="wrong_signature")

    assert broken(PRODUCT, changed) == ""


def test_every_kind_is_held_to_everything_that_it_can_have():
    empty = [(kind, column) for kind, row in counted().items() for column, count in row.items() if count == 0]

    assert empty == []


# --- signed by us, checked by their libraries ------------------------------------------------------------------------


def _signed(kind, body, **needs):
    verifier = make_verifier(kind, WebhookSetup(**settings(SENDERS[kind])))
    return dict(verifier.sign(SigningNeeds(body, NOW, **needs))), verifier


@pytest.mark.parametrize("kind", [kind for kind in SENDERS if kind != "discord"])
def test_what_we_sign_is_accepted_by_our_own_check(kind):
    sent = SENDERS[kind].send()
    fields, verifier = _signed(
        kind, sent.body, target=sent.target, content_type=dict(sent.fields).get(b"content-type", b"")
    )

    found = verify(verifier, WebhookRequest([*fields.items(), *SENDERS[kind].extra], sent.body, sent.target), NOW)

    assert found.refusal is None


@pytest.mark.parametrize("body", BODIES)
def test_slack_sdk_accepts_what_we_sign(body):
    from slack_sdk.signature import Clock, SignatureVerifier

    class Then(Clock):
        def now(self):
            return NOW

    fields, _ = _signed("slack_webhook", body)
    verifier = SignatureVerifier("fake-secret", Then())

    assert verifier.is_valid(body, fields[b"x-slack-request-timestamp"].decode(), fields[b"x-slack-signature"].decode())


@pytest.mark.parametrize("body", BODIES)
def test_stripe_accepts_what_we_sign(body):
    from stripe import WebhookSignature

    fields, _ = _signed("stripe", body)

    assert WebhookSignature.verify_header(body.decode(), fields[b"stripe-signature"].decode(), "whsec_fake", None)


@pytest.mark.parametrize("body", BODIES)
def test_gidgethub_accepts_what_we_sign(body):
    from gidgethub.sansio import validate_event

    fields, _ = _signed("github", body)

    assert validate_event(body, signature=fields[b"x-hub-signature-256"].decode(), secret="fake-secret") is None


def test_twilio_accepts_what_we_sign():
    from twilio.request_validator import RequestValidator

    sent = SENDERS["twilio"].send()
    fields, _ = _signed("twilio", sent.body, target=sent.target, content_type=FORM[1])
    form = dict(parse_qsl(sent.body.decode(), keep_blank_values=True))

    assert RequestValidator("fake-token").validate(
        "https://hooks.example.org" + sent.target.decode(), form, fields[b"x-twilio-signature"].decode()
    )


def test_discord_interactions_agrees_on_good_and_bad():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from discord_interactions import verify_key
    sent = SENDERS["discord"].send()
    signature, time = sent.value(b"x-signature-ed25519").decode(), sent.value(b"x-signature-timestamp").decode()

    assert _run(verify_key(sent.body, signature, time, public_hex(SEED)))
    assert not _run(verify_key(sent.body + b" ", signature, time, public_hex(SEED)))
    assert _verdict("discord", public_hex(SEED), sent.fields, sent.body).accepted
    assert not _verdict("discord", public_hex(SEED), sent.fields, sent.body + b" ").accepted


def _run(found):
    return asyncio.run(found) if asyncio.iscoroutine(found) else found


def test_legacy_sha1_of_github_is_refused_where_its_library_accepts_it():
    import hashlib
    import hmac as mac

    from gidgethub.sansio import validate_event

    body, tag = b"{}", mac.new(b"fake-secret", b"{}", hashlib.sha1).hexdigest()
    validate_event(body, signature=f"sha1={tag}", secret="fake-secret")

    for name in (b"x-hub-signature", b"x-hub-signature-256"):
        assert _verdict("github", "fake-secret", [(name, f"sha1={tag}".encode())], body).refusal is not None


@pytest.mark.parametrize("spelled", [b"v1", b"v1,", b"v1,a,b", b"v1,\xff", b",", b"v1,====", b"v1a,AA=="])
def test_what_makes_the_reference_library_raise_is_only_refused(spelled):
    fields = [(b"webhook-id", b"m"), (b"webhook-timestamp", b"%d" % NOW), (b"webhook-signature", spelled)]

    assert _verdict("standard_webhooks", SHARED, fields, b"\xff").refusal == "bad_signature_form"


def test_whole_stripe_secret_is_the_key():
    decoded = base64.b64decode("fake")
    sent = SENDERS["stripe"].send(secret=decoded.decode("latin-1"))

    assert _verdict("stripe", "whsec_fake", sent.fields, sent.body).refusal == "wrong_signature"
