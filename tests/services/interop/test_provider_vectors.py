"""What providers published and what their own libraries sign is accepted; their libraries accept what we sign."""

from __future__ import annotations

import asyncio
import base64
import warnings
from datetime import UTC, datetime
from urllib.parse import parse_qsl, urlencode

import pytest

from penstock.services.interop.providers.kinds import make_verifier
from penstock.services.interop.providers.setup import WebhookSetup
from penstock.services.interop.providers.verdict import SigningNeeds, WebhookRequest, verify
from tests.services.interop.senders import NOW, OTHER_SHARED, SEED, SENDERS, SHARED, public_hex, settings

SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar"
    b"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2F"
    b"hooks.slack.com"
    b"%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121."
    b"803a0bc887a14d10d2c447fce8b6703c"
)
STANDARD = ((b"webhook-id", b"msg_p5jXN8AQM9LWM0D4loKWxJek"), (b"webhook-timestamp", b"1614265330"))
TWILIO_FORM = {
    "CallSid": "CA1234567890ABCDE",
    "Caller": "+12349013030",
    "Digits": "1234",
    "From": "+12349013030",
    "To": "+18005551212",
}
OLD_TWILIO_FORM = {**TWILIO_FORM, "Caller": "+14158675309", "From": "+14158675309"}
TWILIO_TARGET = b"/myapp.php?foo=1&bar=2"
DISCORD_TAG = (
    b"1695961a47c91a1ec033b819b7e87e3dbc583dd0cee6d1fd0216f58ac87b6228"
    b"ae531ddbf91fb7bc28d7edf7f08604da16f54624f38a6bc0614e4dc13cd47f0f"
)
FORM = (b"content-type", b"application/x-www-form-urlencoded")
TWILIO_DIGEST = b"&bodySHA256=0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620"


def _verdict(kind, secret, fields, body, now=NOW, *, target=b"/", **more):
    setup = WebhookSetup(secrets=(secret.encode(),), **more)
    return verify(make_verifier(kind, setup), WebhookRequest(fields, body, target), now)


VECTORS = {
    "github": (
        "github",
        "It's a Secret to Everybody",
        [(b"x-hub-signature-256", b"sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17")],
        b"Hello, World!",
        NOW,
    ),
    "slack": (
        "slack_webhook",
        "8f742231b10e8888abcd99yyyzzz85a5",
        [
            (b"x-slack-request-timestamp", b"1531420618"),
            (b"x-slack-signature", b"v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"),
        ],
        SLACK_BODY,
        1531420618,
    ),
    "standard_v1": (
        "standard_webhooks",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        [*STANDARD, (b"webhook-signature", b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")],
        b'{"test": 2432232314}',
        1614265330,
    ),
    "standard_v1a": (
        "standard_webhooks",
        "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=",
        [
            *STANDARD,
            (
                b"webhook-signature",
                b"v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg==",
            ),
        ],
        b'{"test": 2432232314}',
        1614265330,
    ),
    "stripe": (
        "stripe",
        "whsec_test_secret",
        [(b"stripe-signature", b"t=1492774577,v1=88a022085c6bdb887b02cb26ff76dd681234d9675c0f22844059f55552a8883a")],
        b'{"id":"evt_test_webhook","object":"event"}',
        1492774577,
    ),
    "shopify": (
        "shopify",
        "shop-secret",
        [(b"x-shopify-hmac-sha256", b"plW8VGqq0nDMIEhDqaNNW99asdUCy7EIqLZVcQwtAZ0=")],
        b'{"id":1}',
        NOW,
    ),
    "discord": (
        "discord",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        [
            (b"x-signature-timestamp", b"1700000000"),
            (
                b"x-signature-ed25519",
                DISCORD_TAG,
            ),
        ],
        b'{"type":1}',
        NOW,
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_published_vector_is_accepted(name):
    assert _verdict(*VECTORS[name]).refusal is None


@pytest.mark.parametrize("name", VECTORS)
def test_published_vector_with_another_body_is_refused(name):
    kind, secret, fields, body, now = VECTORS[name]

    assert _verdict(kind, secret, fields, body + b" ", now).refusal == "wrong_signature"


@pytest.mark.parametrize(
    ("form", "signature"),
    [(TWILIO_FORM, b"0/KCTR6DLpKmkAf8muzZqo1nDgQ="), (OLD_TWILIO_FORM, b"RSOYDt4T1cUTdK1PDd93/VVr8B8=")],
)
def test_published_twilio_form_is_accepted(form, signature):
    fields = [FORM, (b"x-twilio-signature", signature)]
    found = _verdict(
        "twilio", "12345", fields, urlencode(form).encode(), target=TWILIO_TARGET, public_url="https://mycompany.com"
    )

    assert found.refusal is None


def test_published_twilio_json_signature_covers_the_url_and_the_url_the_body():
    fields = [(b"x-twilio-signature", b"a9nBmqA0ju/hNViExpshrM61xv4=")]
    found = _verdict(
        "twilio", "12345", fields, b"{}", target=TWILIO_TARGET + TWILIO_DIGEST, public_url="https://mycompany.com"
    )

    # The published digest is of a body that is not published, so the signature holds and the digest does not.
    assert found.refusal == "body_digest"


# --- signed by the providers' own libraries --------------------------------------------------------------------------

BODIES = [b'{"id":"evt_1","type":"made"}', '{"name":"gr\u00fc\u00dfe"}'.encode(), b"{}"]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("secret", [SHARED, OTHER_SHARED])
def test_what_standardwebhooks_signs_is_accepted(body, secret):
    from standardwebhooks import Webhook

    signature = Webhook(secret).sign("msg_1", datetime.fromtimestamp(NOW, UTC), body.decode())
    fields = [
        (b"webhook-id", b"msg_1"),
        (b"webhook-timestamp", b"%d" % NOW),
        (b"webhook-signature", signature.encode()),
    ]

    assert _verdict("standard_webhooks", secret, fields, body).refusal is None


@pytest.mark.parametrize("body", BODIES)
def test_what_svix_signs_is_accepted(body):
    from svix.webhooks import Webhook

    signature = Webhook(SHARED).sign("msg_1", datetime.fromtimestamp(NOW, UTC), body.decode())
    fields = [(b"svix-id", b"msg_1"), (b"svix-timestamp", b"%d" % NOW), (b"svix-signature", signature.encode())]

    assert _verdict("svix", SHARED, fields, body).refusal is None


@pytest.mark.parametrize("body", BODIES)
def test_what_slack_sdk_signs_is_accepted(body):
    from slack_sdk.signature import SignatureVerifier

    signature = SignatureVerifier("fake-secret").generate_signature(timestamp=str(NOW), body=body)
    fields = [(b"x-slack-request-timestamp", b"%d" % NOW), (b"x-slack-signature", signature.encode())]

    assert _verdict("slack_webhook", "fake-secret", fields, body).refusal is None


@pytest.mark.parametrize("body", BODIES)
def test_what_stripe_signs_is_accepted(body):
    from stripe import WebhookSignature

    tag = WebhookSignature._compute_signature(f"{NOW}.{body.decode()}", "whsec_fake")
    found = _verdict("stripe", "whsec_fake", [(b"stripe-signature", f"t={NOW},v1={tag}".encode())], body)

    assert found.refusal is None


@pytest.mark.parametrize(
    "form",
    [{"Body": "hello", "From": "+1"}, {"Blank": ""}, {}, {"B\u00fc": "\u2603"}, {"a": ["2", "1", "1"], "A": "z"}],
)
@pytest.mark.parametrize("port", ["", ":443"])
def test_what_twilio_signs_is_accepted(form, port):
    from twilio.request_validator import RequestValidator

    class Many(dict):
        def getlist(self, name):
            return self[name] if isinstance(self[name], list) else [self[name]]

    body = urlencode(form, doseq=True).encode()
    url = f"https://hooks.example.org{port}/webhooks/test"
    tag = RequestValidator("fake-token").compute_signature(url, Many(form))
    found = _verdict(
        "twilio",
        "fake-token",
        [FORM, (b"x-twilio-signature", tag.encode())],
        body,
        target=b"/webhooks/test",
        public_url="https://hooks.example.org",
    )

    assert found.refusal is None


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
