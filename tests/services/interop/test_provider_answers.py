"""Handshakes, settings that cannot work, ordering keys and chosen claims."""

from __future__ import annotations

import base64
from urllib.parse import urlencode

import pytest

from penstock.services.interop.providers.kinds import KINDS, make_verifier
from penstock.services.interop.providers.pointers import ClaimRule, DeliveryValue
from penstock.services.interop.providers.setup import WebhookSetup
from penstock.services.interop.providers.verdict import BadWebhookSetup, SigningNeeds, WebhookRequest, verify
from tests.services.interop.senders import NOW, SENDERS, SHARED, public_hex, settings


def _judge(kind, body, *, now=NOW, secret=None):
    sender = SENDERS[kind]
    sent = sender.send(body, secret=secret)
    return verify(make_verifier(kind, WebhookSetup(**settings(sender))), _request(sent), now)


def _request(sent):
    return WebhookRequest(sent.fields, sent.body, sent.target)


# --- handshakes ------------------------------------------------------------------------------------------------------


def test_slack_challenge_is_answered():
    found = _judge("slack_webhook", b'{"type":"url_verification","challenge":"abc"}')

    assert found.handshake == (200, b"abc", b"text/plain; charset=utf-8")
    assert found.claim is None


def test_slack_challenge_without_a_good_signature_is_refused():
    found = _judge("slack_webhook", b'{"type":"url_verification","challenge":"abc"}', secret="other-fake")

    assert (found.refusal, found.handshake) == ("wrong_signature", None)


@pytest.mark.parametrize("challenge", [b'""', b"1", b'"' + b"x" * 513 + b'"'])
def test_slack_challenge_of_another_shape_is_an_event(challenge):
    found = _judge("slack_webhook", b'{"type":"url_verification","challenge":%b}' % challenge)

    assert found.accepted
    assert found.handshake is None


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"type":1}', 200),
        (b'{"type":0}', 204),
        (b'{"type":2,"id":"1"}', None),
        (b'{"type":1,"event":{"type":"X"}}', None),
    ],
)
def test_discord_pings_are_answered_and_events_are_events(body, status):
    found = _judge("discord", body)

    assert found.accepted
    assert (found.handshake and found.handshake.status) == status


def test_github_ping_and_stripe_test_event_are_events():
    github = _judge("github", b'{"zen":"Keep it logically awesome.","hook_id":123}')
    stripe = _judge("stripe", b'{"id":"evt_00000000000000","livemode":false}')

    assert github.handshake is stripe.handshake is None
    assert github.claim is not None
    assert stripe.claim is not None


# --- settings --------------------------------------------------------------------------------------------------------

HMAC = {"secrets": (b"s",), "header": "x-sig"}
BAD_SETUPS = {
    "standard_short": ("standard_webhooks", {"secrets": (b"whsec_" + base64.b64encode(b"k" * 23),)}),
    "standard_long": ("standard_webhooks", {"secrets": (b"whsec_" + base64.b64encode(b"k" * 65),)}),
    "standard_no_prefix": ("standard_webhooks", {"secrets": (b"fake",)}),
    "standard_junk": ("svix", {"secrets": (b"whsec_!!!!",)}),
    "small_order_key": ("standard_webhooks", {"secrets": (b"whpk_" + base64.b64encode(bytes(32)),)}),
    "short_key": ("standard_webhooks", {"secrets": (b"whpk_" + base64.b64encode(b"k" * 31),)}),
    "discord_small_order": ("discord", {"secrets": (b"0" * 64,)}),
    "discord_not_hex": ("discord", {"secrets": (b"z" * 64,)}),
    "gitlab_mixed": ("gitlab", {"secrets": (SHARED.encode(), b"fake-token")}),
    "twilio_no_url": ("twilio", {"secrets": (b"t",)}),
    "twilio_bad_port": ("twilio", {"secrets": (b"t",), "public_url": "https://h:x"}),
    "twilio_query": ("twilio", {"secrets": (b"t",), "public_url": "https://h/?a"}),
    "twilio_user": ("twilio", {"secrets": (b"t",), "public_url": "https://u:p@h"}),
    "hmac_no_header": ("hmac", {"secrets": (b"s",)}),
    "hmac_bad_header": ("hmac", {"secrets": (b"s",), "header": "x sig"}),
    "hmac_no_body": ("hmac", {**HMAC, "template": "x"}),
    "hmac_two_bodies": ("hmac", {**HMAC, "template": "{body}{body}"}),
    "hmac_unknown": ("hmac", {**HMAC, "template": "{body}{what}"}),
    "hmac_no_signature": ("hmac", {**HMAC, "format": "x"}),
    "hmac_two_signatures": ("hmac", {**HMAC, "format": "{hex}.{b64}"}),
    "hmac_touching": ("hmac", {**HMAC, "format": "{ts}{hex}", "template": "{ts}.{body}"}),
    "hmac_time_not_signed": ("hmac", {**HMAC, "format": "{ts},{hex}"}),
    "hmac_time_not_sent": ("hmac", {**HMAC, "template": "{ts}.{body}"}),
    "hmac_time_twice": ("hmac", {**HMAC, "format": "{ts},{hex}", "timestamp_header": "x-t", "template": "{ts}.{body}"}),
    "hmac_id_touching": ("hmac", {**HMAC, "template": "{id}{body}", "id_header": "x-id"}),
    "hmac_id_open": ("hmac", {**HMAC, "template": "{id}-{body}", "id_header": "x-id"}),
    "hmac_id_not_sent": ("hmac", {**HMAC, "template": "{id}.{body}"}),
    "hmac_id_not_signed": ("hmac", {**HMAC, "id_header": "x-id"}),
    "hmac_time_then_id": (
        "hmac",
        {**HMAC, "timestamp_header": "x-t", "id_header": "x-id", "template": "{ts}{id}.{body}"},
    ),
    "hmac_body_first": ("hmac", {**HMAC, "timestamp_header": "x-t", "template": "{body}.{ts}"}),
    "unknown_kind": ("bitbucket", {"secrets": (b"s",)}),
}


@pytest.mark.parametrize("name", BAD_SETUPS)
def test_settings_that_cannot_work_are_refused_with_a_sentence(name):
    kind, setup = BAD_SETUPS[name]

    with pytest.raises(BadWebhookSetup, match=r"^[A-Z`].*\.$") as refused:
        make_verifier(kind, WebhookSetup(**setup))

    assert not any(secret.decode() in str(refused.value) for secret in setup["secrets"] if len(secret) > 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("secrets", [(), (b"",), (b"good", b"")])
def test_endpoint_without_a_secret_is_refused(kind, secrets):
    with pytest.raises(BadWebhookSetup):
        make_verifier(kind, WebhookSetup(**{**settings(SENDERS[kind]), "secrets": secrets}))


def test_setup_does_not_show_its_secrets():
    assert "fake-secret" not in repr(WebhookSetup(secrets=(b"fake-secret",)))


@pytest.mark.parametrize("kind", ["discord", "standard_webhooks"])
def test_public_key_cannot_sign(kind):
    key = bytes.fromhex(public_hex(SENDERS["discord"].secret))
    secret = key.hex().encode() if kind == "discord" else b"whpk_" + base64.b64encode(key)
    verifier = make_verifier(kind, WebhookSetup(secrets=(secret,)))

    with pytest.raises(BadWebhookSetup, match=r"\.$"):
        verifier.sign(SigningNeeds(b"{}", NOW))


# --- labels, keys and chosen claims ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "event_type", "event_id", "unsigned"),
    [
        ("github", "push", f"d-{NOW}", ("id", "type")),
        ("slack_webhook", "message", "Ev1", ()),
        ("stripe", "made", "ev_1", ()),
        ("standard_webhooks", "made", "msg_1", ()),
        ("shopify", "orders/create", "", ("id", "type")),
        ("discord", "2", "77", ()),
        ("gitlab", "Push Hook", "", ("id", "type", "body")),
        ("linear", "Issue.create", f"d-{NOW}", ("id",)),
    ],
)
def test_event_is_named_and_what_is_unsigned_is_said(kind, event_type, event_id, unsigned):
    found = _judge(kind, None)

    assert (found.event_type, found.event_id, found.unsigned) == (event_type, event_id, unsigned)


BODY = (
    b'{"id":"a","n":5,"big":'
    + b"9" * 400
    + b',"f":1.5,"t":true,"deep":[{"x/y":"z","m~n":"w"}],"":"empty","long":"'
    + b"x" * 257
    + b'"}'
)


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("pointer:/id", "a"),
        ("pointer:/n", "5"),
        ("pointer:/deep/0/x~1y", "z"),
        ("pointer:/deep/0/m~0n", "w"),
        ("pointer:/", "empty"),
        ("pointer:/none", ""),
        ("pointer:/f", ""),
        ("pointer:/t", ""),
        ("pointer:/deep", ""),
        ("pointer:/deep/1/x", ""),
        ("pointer:/deep/00", ""),
        ("pointer:/deep/-1", ""),
        ("pointer:/big", ""),
        ("pointer:/long", ""),
        ("pointer:/id/x", ""),
        ("header:X-GitHub-Event", "push"),
        ("header:x-none", ""),
    ],
)
def test_value_is_found_by_pointer_or_field(words, value):
    verifier = make_verifier("github", WebhookSetup(secrets=(b"s",)))

    assert DeliveryValue(words).find(verifier, WebhookRequest([(b"x-github-event", b"push")], BODY)) == value


@pytest.mark.parametrize("body", [b"", b"x", b"\xff", b"[" * 100_000, b'{"id":{}}', b"9" * 10_000])
def test_body_without_the_value_has_none(body):
    verifier = make_verifier("github", WebhookSetup(secrets=(b"s",)))

    assert DeliveryValue("pointer:/id").find(verifier, WebhookRequest([], body)) == ""


@pytest.mark.parametrize("kind", ["github", "slack_webhook"])
def test_pointer_reads_the_payload_of_a_form(kind):
    verifier = make_verifier(kind, WebhookSetup(secrets=(b"s",)))
    fields = [(b"Content-Type", b"application/x-www-form-urlencoded; charset=utf-8")]
    body = urlencode({"payload": '{"id":"a"}'}).encode()

    assert DeliveryValue("pointer:/id").find(verifier, WebhookRequest(fields, body)) == "a"
    assert DeliveryValue("pointer:/id").find(verifier, WebhookRequest(fields, body + b"&" + body)) == ""
    assert DeliveryValue("pointer:/id").find(verifier, WebhookRequest(fields, b"\xff=1")) == ""


@pytest.mark.parametrize("words", ["", "id", "pointer:", "pointer:id", "header:", "header:a b", "cookie:x"])
def test_words_that_name_nothing_are_refused(words):
    with pytest.raises(BadWebhookSetup):
        DeliveryValue(words)


@pytest.mark.parametrize(
    ("rule", "by"),
    [
        ("auto", "content"),
        ("none", None),
        ("signature", "signature"),
        ("pointer:/id", "pointer"),
        ("header:X-GitHub-Event", "header"),
        ("pointer:/none", "content"),
        ("header:x-none", "content"),
    ],
)
def test_claim_can_be_chosen_and_falls_back_to_auto(rule, by):
    sender = SENDERS["github"]
    sent = sender.send()
    verifier = make_verifier("github", WebhookSetup(**settings(sender)))
    verdict = verify(verifier, _request(sent), NOW)

    claim = ClaimRule(rule).choose(verifier, _request(sent), verdict)

    assert (claim and claim.by) == by


def test_claims_of_different_rules_never_meet():
    sender = SENDERS["github"]
    sent = sender.send(b'{"id":"push"}')
    verifier = make_verifier("github", WebhookSetup(**settings(sender)))
    verdict = verify(verifier, _request(sent), NOW)
    claims = [
        ClaimRule(rule).choose(verifier, _request(sent), verdict) for rule in ("pointer:/id", "header:x-github-event")
    ]

    assert claims[0] is not None
    assert claims[0].value == claims[1].value
    assert claims[0] != claims[1]
    assert claims[0].text == "pointer:push"
