"""Signatures that others made: published ones, and those of the providers' own libraries; and what is held to them.

    python -m tests.services.interop.vectors

prints, for each kind of sender, how many requests it is held to. A library that signs or checks is an oracle of the
tests; the product uses none of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.hmac import HMAC

from tests.services.interop.deliveries import Case, Pair
from tests.services.interop.delivery_claims import pairs
from tests.services.interop.delivery_kinds import cases
from tests.services.interop.senders import NOW, OTHER_SHARED, SENDERS, SHARED, Sent

SLACK_SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar"
    b"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2F"
    b"hooks.slack.com"
    b"%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121."
    b"803a0bc887a14d10d2c447fce8b6703c"
)
SLACK_TIME = 1531420618
SLACK_TAG = b"v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
GITHUB_SECRET = "It's a Secret to Everybody"
GITHUB_TAG = b"757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
STANDARD_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
STANDARD_PUBLIC = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
STANDARD_BODY = b'{"test": 2432232314}'
STANDARD_TIME = 1614265330
STANDARD_V1 = b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
STANDARD_V1A = b"v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="
TWILIO_FORM = {
    "CallSid": "CA1234567890ABCDE",
    "Caller": "+12349013030",
    "Digits": "1234",
    "From": "+12349013030",
    "To": "+18005551212",
}
OLD_TWILIO_FORM = {**TWILIO_FORM, "Caller": "+14158675309", "From": "+14158675309"}
TWILIO_TARGET = b"/myapp.php?foo=1&bar=2"
TWILIO_DIGEST = b"&bodySHA256=0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620"
DISCORD_PUBLIC = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
DISCORD_TAG = (
    b"1695961a47c91a1ec033b819b7e87e3dbc583dd0cee6d1fd0216f58ac87b6228"
    b"ae531ddbf91fb7bc28d7edf7f08604da16f54624f38a6bc0614e4dc13cd47f0f"
)
STRIPE_TAG = b"t=1492774577,v1=88a022085c6bdb887b02cb26ff76dd681234d9675c0f22844059f55552a8883a"
FORM = (b"content-type", b"application/x-www-form-urlencoded")
# The scheme of Slack as settings of an endpoint of kind hmac, and that of Stripe.
SLACK_SCHEME = {
    "header": "x-slack-signature",
    "format": "v0={hex}",
    "template": "v0:{ts}:{body}",
    "timestamp_header": "x-slack-request-timestamp",
}
STRIPE_SCHEME = {"header": "stripe-signature", "format": "t={ts},v1={hex}", "template": "{ts}.{body}"}


def _keyed(secret: str, **more: Any) -> dict[str, Any]:
    return {"secrets": (secret.encode(),), **more}


# --- published -------------------------------------------------------------------------------------------------------


def published() -> list[Case]:
    """List the vectors that providers have published, and with the rule `own_` those that we made where none is."""
    return [*_of_bodies(), *_of_slack(), *_of_standard(), *_of_twilio()]


def _of_bodies() -> Iterator[Case]:
    hello, one = b"Hello, World!", b'{"id":1}'
    github = Sent(((b"x-hub-signature-256", b"sha256=" + GITHUB_TAG),), hello)
    yield Case("github", "published", _keyed(GITHUB_SECRET), github)
    # Gitea signs as GitHub does, and writes the tag without a prefix.
    yield Case("gitea", "own_of_github", _keyed(GITHUB_SECRET), Sent(((b"x-gitea-signature", GITHUB_TAG),), hello))
    stripe = Sent(((b"stripe-signature", STRIPE_TAG),), b'{"id":"evt_test_webhook","object":"event"}')
    yield Case("stripe", "own", _keyed("whsec_test_secret"), stripe, now=1492774577)
    shopify = Sent(((b"x-shopify-hmac-sha256", b"plW8VGqq0nDMIEhDqaNNW99asdUCy7EIqLZVcQwtAZ0="),), one)
    yield Case("shopify", "own", _keyed("shop-secret"), shopify)
    tag = b"a655bc546aaad270cc204843a9a34d5bdf5ab1d502cbb108a8b655710c2d019d"
    # The signature holds; this body has no time, which is looked at after that.
    yield Case("linear", "own", _keyed("shop-secret"), Sent(((b"linear-signature", tag),), one), "no_timestamp")
    discord = Sent(((b"x-signature-timestamp", b"1700000000"), (b"x-signature-ed25519", DISCORD_TAG)), b'{"type":1}')
    yield Case("discord", "own", _keyed(DISCORD_PUBLIC), discord)


def _of_slack() -> Iterator[Case]:
    fields = ((b"x-slack-request-timestamp", b"%d" % SLACK_TIME), (b"x-slack-signature", SLACK_TAG))
    sent = Sent(fields, SLACK_BODY)
    yield Case("slack_webhook", "published", _keyed(SLACK_SECRET), sent, now=SLACK_TIME)
    yield Case("hmac", "published_of_slack", _keyed(SLACK_SECRET, **SLACK_SCHEME), sent, now=SLACK_TIME)


def _of_standard() -> Iterator[Case]:
    for kind, prefix in (("standard_webhooks", b"webhook"), ("svix", b"svix"), ("gitlab", b"webhook")):
        for rule, secret, tag in (("v1", STANDARD_SECRET, STANDARD_V1), ("v1a", STANDARD_PUBLIC, STANDARD_V1A)):
            if (kind, rule) == ("gitlab", "v1a"):
                continue
            fields = (
                (prefix + b"-id", b"msg_p5jXN8AQM9LWM0D4loKWxJek"),
                (prefix + b"-timestamp", b"%d" % STANDARD_TIME),
                (prefix + b"-signature", tag),
            )
            yield Case(kind, f"published_{rule}", _keyed(secret), Sent(fields, STANDARD_BODY), now=STANDARD_TIME)


def _of_twilio() -> Iterator[Case]:
    setup = _keyed("12345", public_url="https://mycompany.com")
    for rule, form, tag in (
        ("published_form", TWILIO_FORM, b"0/KCTR6DLpKmkAf8muzZqo1nDgQ="),
        ("published_older_form", OLD_TWILIO_FORM, b"RSOYDt4T1cUTdK1PDd93/VVr8B8="),
    ):
        sent = Sent((FORM, (b"x-twilio-signature", tag)), urlencode(form).encode(), TWILIO_TARGET)
        yield Case("twilio", rule, setup, sent)
    # The published digest is of a body that is not published, so the signature holds and the digest does not.
    json = Sent(((b"x-twilio-signature", b"a9nBmqA0ju/hNViExpshrM61xv4="),), b"{}", TWILIO_TARGET + TWILIO_DIGEST)
    yield Case("twilio", "published_json", setup, json, "body_digest")


# --- signed by libraries ---------------------------------------------------------------------------------------------

BODIES: Final = (b'{"id":"evt_1","type":"made"}', '{"name":"gr\u00fc\u00dfe"}'.encode(), b"{}")
FORMS: Final = (
    {"Body": "hello", "From": "+1"},
    {"Blank": ""},
    {},
    {"B\u00fc": "\u2603"},
    {"a": ["2", "1", "1"], "A": "z"},
)


def signed_by_libraries() -> list[Case]:
    """List requests that a library has signed: the provider's own, or where it has none for Python `cryptography`."""
    found = [case for body in BODIES for sign in _SIGNERS for case in sign(body)]
    return [*found, *_by_twilio()]


def _by_standardwebhooks(body: bytes) -> Iterator[Case]:
    from standardwebhooks import Webhook

    for kind in ("standard_webhooks", "gitlab"):
        for secret in (SHARED, OTHER_SHARED):
            tag = Webhook(secret).sign("msg_1", datetime.fromtimestamp(NOW, UTC), body.decode())
            yield Case(kind, f"library_{secret[-4:]}_{body!r}", _keyed(secret), _standard(b"webhook", tag, body))


def _by_svix(body: bytes) -> Iterator[Case]:
    from svix.webhooks import Webhook

    tag = Webhook(SHARED).sign("msg_1", datetime.fromtimestamp(NOW, UTC), body.decode())
    yield Case("svix", f"library_{body!r}", _keyed(SHARED), _standard(b"svix", tag, body))


def _standard(prefix: bytes, tag: str, body: bytes) -> Sent:
    time = b"%d" % NOW
    return Sent(
        ((prefix + b"-id", b"msg_1"), (prefix + b"-timestamp", time), (prefix + b"-signature", tag.encode())), body
    )


def _by_slack_sdk(body: bytes) -> Iterator[Case]:
    from slack_sdk.signature import SignatureVerifier

    tag = SignatureVerifier("fake-secret").generate_signature(timestamp=str(NOW), body=body)
    assert tag is not None
    sent = Sent(((b"x-slack-request-timestamp", b"%d" % NOW), (b"x-slack-signature", tag.encode())), body)
    yield Case("slack_webhook", f"library_{body!r}", _keyed("fake-secret"), sent)
    yield Case("hmac", f"library_slack_{body!r}", _keyed("fake-secret", **SLACK_SCHEME), sent)


def _by_stripe(body: bytes) -> Iterator[Case]:
    from stripe import WebhookSignature

    tag = WebhookSignature._compute_signature(f"{NOW}.{body.decode()}", "whsec_fake")
    sent = Sent(((b"stripe-signature", f"t={NOW},v1={tag}".encode()),), body)
    yield Case("stripe", f"library_{body!r}", _keyed("whsec_fake"), sent)
    yield Case("hmac", f"library_stripe_{body!r}", _keyed("whsec_fake", **STRIPE_SCHEME), sent)


def _by_pynacl(body: bytes) -> Iterator[Case]:
    """Sign as Discord does; its library only checks, with the same PyNaCl."""
    named = b'{"type":2,"id":"7","data":%b}' % body
    yield Case("discord", f"library_{body!r}", _keyed(DISCORD_PUBLIC), SENDERS["discord"].send(named))


def _by_cryptography(body: bytes) -> Iterator[Case]:
    """Sign for those who have no library for Python that signs: GitHub, Gitea, Shopify, Linear."""
    from base64 import b64encode

    tag = _hmac(body)
    timed = b'{"webhookTimestamp":%d,"data":%b}' % (NOW * 1000, body)
    for kind, name, value, sent in (
        ("github", b"x-hub-signature-256", b"sha256=" + tag.hex().encode(), body),
        ("gitea", b"x-gitea-signature", tag.hex().encode(), body),
        ("shopify", b"x-shopify-hmac-sha256", b64encode(tag), body),
        ("linear", b"linear-signature", _hmac(timed).hex().encode(), timed),
    ):
        yield Case(kind, f"library_{body!r}", _keyed("fake-secret"), Sent(((name, value),), sent))


def _hmac(content: bytes) -> bytes:
    signer = HMAC(b"fake-secret", hashes.SHA256())
    signer.update(content)
    return signer.finalize()


_SIGNERS: Final[tuple[Callable[[bytes], Iterator[Case]], ...]] = (
    _by_standardwebhooks,
    _by_svix,
    _by_slack_sdk,
    _by_stripe,
    _by_pynacl,
    _by_cryptography,
)


class _Many(dict[str, Any]):
    """A form as Twilio's library takes it: a name may have several values."""

    def getlist(self, name: str) -> list[str]:
        return self[name] if isinstance(self[name], list) else [self[name]]


def _by_twilio() -> Iterator[Case]:
    from twilio.request_validator import RequestValidator

    setup = _keyed("fake-token", public_url="https://hooks.example.org")
    validator = RequestValidator("fake-token")
    for number, form in enumerate(FORMS):
        for port in ("", ":443"):
            tag = validator.compute_signature(f"https://hooks.example.org{port}/webhooks/test", _Many(form))
            fields = (FORM, (b"x-twilio-signature", tag.encode()))
            yield Case("twilio", f"library_{number}{port}", setup, Sent(fields, urlencode(form, doseq=True).encode()))
    body = b'{"a":1}'
    target = b"/webhooks/test?bodySHA256=" + hashlib.sha256(body).hexdigest().encode()
    tag = validator.compute_signature("https://hooks.example.org" + target.decode(), {})
    yield Case("twilio", "library_json", setup, Sent(((b"x-twilio-signature", tag.encode()),), body, target))


# --- the table -------------------------------------------------------------------------------------------------------

_JUNK = {"junk_base64", "no_padding", "tail", "url_base64", "newline", "unused_bits", "more_padding"}
_CHANGED = ("changed_body", "longer_body", "empty_body", "json_changed", "v1a_changed", "signed_body_changed")
Column = Callable[[Case | Pair], bool]
COLUMNS: Final[dict[str, Column]] = {
    "published": lambda rule: rule.rule.startswith("published"),
    "own": lambda rule: rule.rule.startswith("own") and rule.rule != "own_window",
    "library": lambda rule: rule.rule.startswith("library"),
    "changed body": lambda rule: rule.rule in _CHANGED,
    "too old": lambda rule: isinstance(rule, Case) and rule.refusal == "too_old",
    "in future": lambda rule: isinstance(rule, Case) and rule.refusal == "in_future",
    "wrong secret": lambda rule: rule.rule in ("wrong_secret", "rotated_out", "signing_token_wrong"),
    "rotation": lambda rule: rule.rule.startswith("rotation") or rule.rule == "retry_after_rotation",
    "two fields": lambda rule: isinstance(rule, Case) and rule.refusal == "repeated_field",
    "upper hex": lambda rule: rule.rule in ("upper_hex", "json_upper_digest"),
    "junk base64": lambda rule: rule.rule in _JUNK and isinstance(rule, Case) and rule.refusal == "bad_signature_form",
    "retry": lambda rule: rule.rule == "retry_signed_anew",
    "other name": lambda rule: rule.rule.startswith("replay_under_other") or rule.rule == "other_unsigned_fields",
    "two events": lambda rule: isinstance(rule, Pair) and not rule.same,
}
_UNTIMED = frozenset({"github", "gitea", "shopify", "twilio"})
_BASE64 = frozenset({"shopify", "standard_webhooks", "svix", "gitlab"})
# What a kind cannot have, and why.
NOT_THERE: Final[dict[str, dict[str, str]]] = {
    "too old": dict.fromkeys(_UNTIMED, "it signs no time"),
    "in future": dict.fromkeys(_UNTIMED, "it signs no time"),
    "upper hex": dict.fromkeys(_BASE64, "its signature is base64"),
    "junk base64": dict.fromkeys(set(SENDERS) - _BASE64 - {"twilio", "hmac"}, "its signature is hex"),
    "published": dict.fromkeys(("gitea", "shopify", "stripe", "linear", "discord"), "its provider publishes none"),
    "own": dict.fromkeys(
        ("github", "slack_webhook", "standard_webhooks", "svix", "twilio", "gitlab", "hmac"), "there is a published one"
    ),
}


def counted() -> dict[str, dict[str, int | None]]:
    """Count, by kind and column, what the verifiers are held to; None where a kind cannot have it."""
    rules: list[Case | Pair] = [*published(), *signed_by_libraries(), *cases(), *pairs()]
    return {
        kind: {
            column: None
            if kind in NOT_THERE.get(column, {})
            else sum(rule.kind == kind and fits(rule) for rule in rules)
            for column, fits in COLUMNS.items()
        }
        for kind in SENDERS
    }


def table() -> str:
    """Lay the counts out."""
    lines = [f"| kind | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for kind, row in counted().items():
        lines.append(f"| {kind} | {' | '.join('-' if count is None else str(count) for count in row.values())} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())  # noqa: T201 - a command
