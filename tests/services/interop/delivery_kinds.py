"""What one kind of sender alone must accept and refuse."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nacl.signing import SigningKey

from tests.services.interop.deliveries import Case, common_cases
from tests.services.interop.senders import (
    NOW,
    OTHER_SHARED,
    SENDERS,
    SHARED,
    Sent,
    settings,
    standard,
    standard_v1a,
    twilio_signed,
)


def _stripe() -> Iterator[Case]:
    sender = SENDERS["stripe"]
    setup, good = settings(sender), sender.send()
    text = good.value(b"stripe-signature")
    time, tag = text.split(b",v1=")
    for rule, spelled, refusal in (
        ("two_t", b"t=%d,%b" % (NOW, text), "bad_timestamp"),
        ("no_t", b"v1=" + tag, "no_timestamp"),
        ("only_v0", b"%b,v0=%b" % (time, tag), "no_signature"),
        ("wrong_v1_first", b"%b,v1=%b,v1=%b" % (time, b"0" * 64, tag), ""),
        ("v0_beside", b"%b,v0=%b,v1=%b" % (time, b"0" * 64, tag), ""),
        ("sixteen", time + (b",v1=" + b"0" * 64) * 15 + b",v1=" + tag, ""),
        ("seventeen", time + (b",v1=" + b"0" * 64) * 16 + b",v1=" + tag, "too_many_signatures"),
        ("hundred", time + (b",v1=" + b"0" * 64) * 100, "bad_signature_form"),
        ("unknown_member", text + b",v9=x", ""),
        ("underscore_time", b"t=1_700_000_000,v1=" + tag, "bad_timestamp"),
        ("padded_time", b"t=01700000000,v1=" + tag, "bad_timestamp"),
        ("header_sample", b"t=1492774577,v1=" + b"5" * 64 + b",v0=" + b"6" * 64, "too_old"),
    ):
        yield Case("stripe", rule, setup, good.with_field(b"stripe-signature", spelled), refusal)


def _standard() -> Iterator[Case]:
    sender = SENDERS["standard_webhooks"]
    setup, good = settings(sender), sender.send()
    name, tag = b"webhook-signature", good.value(b"webhook-signature")
    zero = b"v1," + base64.b64encode(bytes(32))
    for rule, spelled, refusal in (
        ("second_of_two", zero + b" " + tag, ""),
        ("other_version_beside", b"v9,abc " + tag, ""),
        ("sixteen", b" ".join([zero] * 15 + [tag]), ""),
        ("seventeen", b" ".join([zero] * 16 + [tag]), "too_many_signatures"),
        ("no_comma", b"v1", "bad_signature_form"),
        ("two_commas", tag + b",x", "bad_signature_form"),
        ("v1_tag_as_v1a", b"v1a" + tag[2:], "bad_signature_form"),
    ):
        yield Case("standard_webhooks", rule, setup, good.with_field(name, spelled), refusal)
    yield Case("standard_webhooks", "no_id", setup, good.without(b"webhook-id"), "no_id")
    yield Case("standard_webhooks", "two_ids", setup, good.and_field(b"webhook-id", b"msg_1"), "repeated_field")
    yield Case("standard_webhooks", "changed_id", setup, good.with_field(b"webhook-id", b"msg_2"), "wrong_signature")
    dotted = replace(sender, sign=standard("webhook", "msg.1")).send()
    yield Case("standard_webhooks", "dot_in_id", setup, dotted, "bad_id")
    # The same signed bytes, cut at other dots: a different id, time and body.
    inner = sender.send(b"x.%d.rest" % NOW)
    recut = Sent(inner.fields, b"rest").with_field(b"webhook-id", b"msg_1.%d.x" % NOW)
    yield Case("standard_webhooks", "recut_at_another_dot", setup, recut, "bad_id")
    yield from _standard_public()


def _standard_public() -> Iterator[Case]:
    seed = base64.b64encode(b"s" * 32).decode()
    key = SigningKey(b"s" * 32).verify_key.encode()
    public = {"secrets": (b"whpk_" + base64.b64encode(key),)}
    sender = replace(SENDERS["standard_webhooks"], secret=seed, sign=standard_v1a)
    good = sender.send()
    yield Case("standard_webhooks", "v1a", public, good)
    yield Case("standard_webhooks", "v1a_changed", public, replace(good, body=b"{}"), "wrong_signature")
    yield Case("standard_webhooks", "v1a_key_for_v1", public, SENDERS["standard_webhooks"].send(), "wrong_signature")
    both = {"secrets": (SHARED.encode(), *public["secrets"])}
    yield Case("standard_webhooks", "v1a_beside_shared", both, good)
    # A public key is no secret: a tag that takes it for a shared key must not pass.
    forged = replace(sender, secret="whsec_" + base64.b64encode(key).decode(), sign=standard("webhook")).send()
    yield Case("standard_webhooks", "public_key_used_as_shared", public, forged, "wrong_signature")
    yield Case(
        "standard_webhooks", "shared_key_for_v1a", settings(SENDERS["standard_webhooks"]), good, "wrong_signature"
    )


def _both_families() -> Iterator[Case]:
    for kind, first, second in (
        ("gitea", b"x-gitea-signature", b"x-forgejo-signature"),
        ("shopify", b"x-shopify-hmac-sha256", b"shopify-hmac-sha256"),
    ):
        sender = SENDERS[kind]
        good, bad = sender.send(), sender.send(secret=sender.other)
        setup = settings(sender)
        yield Case(kind, "second_family", setup, good.without(first).and_field(second, good.value(first)))
        yield Case(kind, "both_families", setup, good.and_field(second, good.value(first)))
        yield Case(kind, "second_family_wrong", setup, good.and_field(second, bad.value(first)), "wrong_signature")
        yield Case(kind, "first_family_wrong", setup, bad.and_field(second, good.value(first)), "wrong_signature")


def _gitlab() -> Iterator[Case]:
    sender = SENDERS["gitlab"]
    good = sender.send()
    signed = replace(sender, secret=SHARED, sign=standard("webhook"))
    setup = settings(signed)
    yield Case("gitlab", "signing_token", setup, signed.send())
    yield Case("gitlab", "signing_token_and_plain", setup, signed.send().and_field(b"x-gitlab-token", b"anything"))
    yield Case("gitlab", "downgrade", setup, good, "no_signature")
    yield Case(
        "gitlab",
        "downgrade_with_the_secret",
        setup,
        good.with_field(b"x-gitlab-token", SHARED.encode()),
        "no_signature",
    )
    yield Case("gitlab", "signing_token_wrong", setup, signed.send(secret=OTHER_SHARED), "wrong_signature")
    yield Case("gitlab", "signing_token_old", setup, signed.send(now=NOW - 301), "too_old")
    yield Case("gitlab", "signing_token_ahead", setup, signed.send(now=NOW + 301), "in_future")
    yield Case("gitlab", "signed_body_changed", setup, replace(signed.send(), body=b"{}"), "wrong_signature")
    tag = signed.send().value(b"webhook-signature")
    junk = signed.send().with_field(b"webhook-signature", tag[:7] + b"!!" + tag[7:])
    yield Case("gitlab", "junk_base64", setup, junk, "bad_signature_form")
    yield Case(
        "gitlab",
        "token_with_blank",
        settings(sender),
        good.with_field(b"x-gitlab-token", b"fake-token "),
        "wrong_signature",
    )
    yield Case(
        "gitlab", "token_prefix", settings(sender), good.with_field(b"x-gitlab-token", b"fake-toke"), "wrong_signature"
    )
    yield Case(
        "gitlab", "token_non_ascii", settings(sender), good.with_field(b"x-gitlab-token", b"\xff"), "wrong_signature"
    )
    twice = good.and_field(b"idempotency-key", b"a").and_field(b"idempotency-key", b"b")
    yield Case("gitlab", "two_repeat_ids", settings(sender), twice, "repeated_field")


def _twilio() -> Iterator[Case]:
    sender = SENDERS["twilio"]
    setup, good, name = settings(sender), sender.send(), b"x-twilio-signature"
    host, target = b"https://hooks.example.org", good.target

    def signed(url: bytes, rule: str, refusal: str = "", **more: Any) -> Case:
        tag = twilio_signed(url, good.body, sender.secret)
        return Case("twilio", rule, {**setup, **more}, good.with_field(name, tag), refusal)

    yield signed(host + b":443" + target, "with_port")
    yield signed(host + b":8443" + target, "configured_port", public_url="https://hooks.example.org:8443")
    yield signed(host + target, "configured_port_left_out", public_url="https://hooks.example.org:8443")
    yield signed(host + b"/base" + target, "behind_a_path", public_url="https://hooks.example.org/base/")
    yield signed(b"https://evil.example" + target, "other_host", "wrong_signature")
    yield signed(b"http://hooks.example.org" + target, "other_scheme", "wrong_signature")
    yield Case("twilio", "other_target", setup, replace(good, target=b"/webhooks/other"), "wrong_signature")
    yield Case("twilio", "query_added", setup, replace(good, target=target + b"?a=1"), "wrong_signature")
    blank = good.body.replace(b"&Blank=", b"")
    yield Case("twilio", "blank_value_dropped", setup, replace(good, body=blank), "wrong_signature")
    for algorithm, digest, refusal in (
        (b"HMAC_SHA256", "sha256", ""),
        (b"HMAC_SHA1", "sha1", ""),
        (b"HMAC_MD5", "md5", "bad_settings"),
        (b"", "sha1", "bad_settings"),
        (b"HMAC_SHA256", "sha1", "bad_signature_form"),
    ):
        tag = twilio_signed(host + target, good.body, sender.secret, digest)
        sent = good.with_field(name, tag).and_field(
            b"x-twilio-webhooks-signature-settings", b"key=k1,algorithm=" + algorithm
        )
        yield Case("twilio", f"settings_{algorithm.decode()}_{digest}", setup, sent, refusal)
    keyed = good.and_field(b"x-twilio-webhooks-signature-settings", b"key=k1")
    yield Case("twilio", "settings_without_algorithm", setup, keyed)
    yield Case(
        "twilio",
        "two_settings",
        setup,
        keyed.and_field(b"x-twilio-webhooks-signature-settings", b"key=k1"),
        "repeated_field",
    )
    yield Case("twilio", "form_not_ascii", setup, replace(good, body=b"a=\xff"), "wrong_signature")
    yield Case("twilio", "form_not_utf8", setup, replace(good, body=b"a=%ff"), "wrong_signature")
    yield Case("twilio", "many_fields", setup, replace(good, body=b"a=1&" * 2000), "wrong_signature")
    yield from _twilio_json()


def twilio_json(
    body: bytes = b'{"a":1}', query: bytes | None = None, *, content_type: bytes = b"application/json"
) -> Sent:
    """Make a body that is no form, signed through its digest."""
    sender = SENDERS["twilio"]
    digest = b"bodySHA256=" + hashlib.sha256(body).hexdigest().encode() if query is None else query
    target = sender.target + b"?" + digest
    tag = twilio_signed(b"https://hooks.example.org" + target, body, sender.secret, form=False)
    return Sent(((b"x-twilio-signature", tag), (b"content-type", content_type)), body, target)


def _twilio_json() -> Iterator[Case]:
    setup = settings(SENDERS["twilio"])
    digest = b"bodySHA256=" + hashlib.sha256(b'{"a":1}').hexdigest().encode()
    yield Case("twilio", "json", setup, twilio_json())
    yield Case("twilio", "json_after_query", setup, twilio_json(query=b"foo=1&" + digest))
    yield Case("twilio", "json_changed", setup, replace(twilio_json(), body=b'{"a":2}'), "body_digest")
    yield Case("twilio", "json_without_digest", setup, twilio_json(query=b"foo=1"), "body_digest")
    yield Case("twilio", "json_digest_not_last", setup, twilio_json(query=digest + b"&foo=1"), "body_digest")
    yield Case("twilio", "json_two_digests", setup, twilio_json(query=digest + b"&" + digest), "body_digest")
    yield Case(
        "twilio", "json_upper_digest", setup, twilio_json(query=digest[:11] + digest[11:].upper()), "body_digest"
    )
    stripped = replace(twilio_json(), body=b"").with_field(b"content-type", b"application/x-www-form-urlencoded")
    yield Case("twilio", "json_sent_as_empty_form", setup, stripped, "body_digest")


def _linear() -> Iterator[Case]:
    sender = SENDERS["linear"]
    raw = replace(sender, at=lambda body, _: body)
    for rule, time, refusal in (
        ("seconds", b"1700000000", "bad_timestamp"),
        ("text", b'"1700000000000"', "no_timestamp"),
        ("null", b"null", "no_timestamp"),
        ("float", b"1700000000000.0", "bad_timestamp"),
        ("exponent", b"1.7e12", "bad_timestamp"),
        ("good", b"1700000000000", ""),
        ("fourteen_digits", b"17000000000000", "bad_timestamp"),
        ("negative", b"-1700000000000", "bad_timestamp"),
    ):
        yield Case(
            "linear", f"time_{rule}", settings(sender), raw.send(b'{"a":1,"webhookTimestamp":%b}' % time), refusal
        )
    for rule, body, refusal in (
        ("no_time", b"{}", "no_timestamp"),
        ("list", b"[]", "bad_body"),
        ("not_json", b"x", "bad_body"),
        ("not_utf8", b"\xff", "bad_body"),
        ("time_twice", b'{"webhookTimestamp":1,"webhookTimestamp":1700000000000}', "bad_body"),
        ("nan", b'{"a":NaN}', "bad_body"),
        ("deep", b'{"webhookTimestamp":1700000000000,"a":' + b"[" * 99 + b"]" * 99 + b"}", "bad_body"),
        ("very_deep", b"[" * 100_000, "bad_body"),
    ):
        yield Case("linear", rule, settings(sender), raw.send(body), refusal)


def _discord() -> Iterator[Case]:
    sender = SENDERS["discord"]
    setup = settings(sender)
    for rule, body in (
        ("not_json", b"x"),
        ("list", b"[1]"),
        ("no_type", b'{"id":"1"}'),
        ("text_type", b'{"type":"1"}'),
        ("blank", b' {"type":2}'),
    ):
        yield Case("discord", rule, setup, sender.send(body), "bad_body")
    # The last digit of the time moved into the body: the signed bytes stay the same.
    good = sender.send()
    moved = replace(good, body=b"0" + good.body).with_field(b"x-signature-timestamp", b"%d" % (NOW // 10))
    yield Case("discord", "digit_moved", setup, moved, "too_old")


def _custom() -> Iterator[Case]:
    sender = SENDERS["hmac"]
    good, name = sender.send(), b"x-buildkite-signature"
    tag = good.value(name).partition(b"signature=")[2]
    for rule, spelled, refusal in (
        ("two_times", b"timestamp=1700000000,timestamp=1700000000,signature=" + tag, "bad_signature_form"),
        ("no_time", b"signature=" + tag, "bad_signature_form"),
        ("padded_time", b"timestamp=01700000000,signature=" + tag, "bad_timestamp"),
        ("blank", good.value(name) + b" ", "bad_signature_form"),
        ("underscore", b"timestamp=1_700_000_000,signature=" + tag, "bad_signature_form"),
    ):
        yield Case("hmac", rule, settings(sender), good.with_field(name, spelled), refusal)
    zoom = {
        "secrets": (b"fake-secret",),
        "header": "x-zm-signature",
        "format": "v0={hex}",
        "template": "v0:{ts}:{body}",
        "timestamp_header": "x-zm-request-timestamp",
    }
    slack = SENDERS["slack_webhook"].send()
    renamed = {b"x-slack-signature": b"x-zm-signature", b"x-slack-request-timestamp": b"x-zm-request-timestamp"}
    zoomed = replace(slack, fields=tuple((renamed[n], v) for n, v in slack.fields))
    yield Case("hmac", "time_in_own_field", zoom, zoomed)
    yield Case("hmac", "time_in_own_field_missing", zoom, zoomed.without(b"x-zm-request-timestamp"), "no_timestamp")
    named = {
        "secrets": (b"k" * 32,),
        "header": "webhook-signature",
        "format": "v1,{b64}",
        "template": "{id}.{ts}.{body}",
        "timestamp_header": "webhook-timestamp",
        "id_header": "webhook-id",
    }
    standard_sent = SENDERS["standard_webhooks"].send()
    yield Case("hmac", "signed_id", named, standard_sent)
    tag = standard_sent.value(b"webhook-signature")
    junk = standard_sent.with_field(b"webhook-signature", tag[:7] + b"!!" + tag[7:])
    yield Case("hmac", "junk_base64", named, junk, "bad_signature_form")
    yield Case("hmac", "signed_id_missing", named, SENDERS["standard_webhooks"].send().without(b"webhook-id"), "no_id")
    dotted = replace(SENDERS["standard_webhooks"], sign=standard("webhook", "a.b")).send()
    yield Case("hmac", "signed_id_with_separator", named, dotted, "bad_id")


def cases() -> list[Case]:
    """List every request with its verdict."""
    own = (_stripe, _standard, _both_families, _gitlab, _twilio, _linear, _discord, _custom)
    return [*common_cases(), *(case for kind in own for case in kind())]
