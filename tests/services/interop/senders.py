"""Providers as a test needs them: each signs a body as its documentation says, written without the product's code."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

from nacl.signing import SigningKey

NOW = 1_700_000_000
OTHER_SECRET = "another-fake-secret"
Fields = list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Sent:
    """A request as plain data, so that any copy of the verifiers can be run on it."""

    fields: tuple[tuple[bytes, bytes], ...]
    body: bytes
    target: bytes = b"/webhooks/test"

    def with_field(self, name: bytes, value: bytes) -> Sent:
        return replace(self, fields=tuple((n, value if n == name else v) for n, v in self.fields))

    def without(self, name: bytes) -> Sent:
        return replace(self, fields=tuple(pair for pair in self.fields if pair[0] != name))

    def and_field(self, name: bytes, value: bytes) -> Sent:
        return replace(self, fields=(*self.fields, (name, value)))

    def value(self, name: bytes) -> bytes:
        return dict(self.fields)[name]


@dataclass(frozen=True)
class Sender:
    """One kind: its secrets, the field with its signature, and how it signs."""

    kind: str
    secret: str
    other: str
    signature: bytes
    sign: Callable[[bytes, str, int], Fields]
    body: bytes = b'{"id":"ev_1","type":"made","n":1}'
    time: bytes = b""
    encoding: str = "hex"
    setup: tuple[tuple[str, Any], ...] = ()
    window_s: int = 300
    target: bytes = b"/webhooks/test"
    # A body with the same event sent at another time; most senders keep it.
    at: Callable[[bytes, int], bytes] = lambda body, _: body
    # Extra fields of every request.
    extra: tuple[tuple[bytes, bytes], ...] = ()

    def send(
        self, body: bytes | None = None, *, now: int = NOW, secret: str | None = None, target: bytes | None = None
    ):
        timed = self.at(self.body if body is None else body, now)
        where = self.target if target is None else target
        signed = (
            TARGETED[self.kind](timed, secret or self.secret, where)
            if self.kind in TARGETED
            else (self.sign(timed, secret or self.secret, now))
        )
        return Sent((*signed, *self.extra), timed, where)

    def settings(self, *secrets: str, **more: Any) -> dict[str, Any]:
        return {"secrets": tuple(s.encode() for s in secrets or (self.secret,)), **dict(self.setup), **more}


def _tag(secret: str, content: bytes) -> bytes:
    return hmac.new(secret.encode(), content, hashlib.sha256).digest()


def _github(body, secret, now):
    return [
        (b"x-hub-signature-256", b"sha256=" + _tag(secret, body).hex().encode()),
        (b"x-github-event", b"push"),
        (b"x-github-delivery", b"d-%d" % now),
    ]


def _gitea(body, secret, now):
    return [(b"x-gitea-signature", _tag(secret, body).hex().encode()), (b"x-gitea-event", b"push")]


def _shopify(body, secret, now):
    return [(b"x-shopify-hmac-sha256", base64.b64encode(_tag(secret, body))), (b"x-shopify-topic", b"orders/create")]


def _slack(body, secret, now):
    tag = _tag(secret, f"v0:{now}:".encode() + body)
    return [(b"x-slack-signature", b"v0=" + tag.hex().encode()), (b"x-slack-request-timestamp", str(now).encode())]


def _stripe(body, secret, now):
    tag = _tag(secret, f"{now}.".encode() + body)
    return [(b"stripe-signature", f"t={now},v1={tag.hex()}".encode())]


def standard(prefix: str, event_id: str = "msg_1"):
    def sign(body, secret, now):
        key = base64.b64decode(secret.removeprefix("whsec_"))
        tag = hmac.new(key, f"{event_id}.{now}.".encode() + body, hashlib.sha256).digest()
        p = prefix.encode()
        return [
            (p + b"-signature", b"v1," + base64.b64encode(tag)),
            (p + b"-id", event_id.encode()),
            (p + b"-timestamp", str(now).encode()),
        ]

    return sign


def standard_v1a(body, seed, now):
    tag = SigningKey(base64.b64decode(seed)).sign(f"msg_1.{now}.".encode() + body).signature
    return [
        (b"webhook-signature", b"v1a," + base64.b64encode(tag)),
        (b"webhook-id", b"msg_1"),
        (b"webhook-timestamp", str(now).encode()),
    ]


def _discord(body, seed, now):
    tag = SigningKey(bytes.fromhex(seed)).sign(str(now).encode() + body).signature
    return [(b"x-signature-ed25519", tag.hex().encode()), (b"x-signature-timestamp", str(now).encode())]


def _gitlab(body, secret, now):
    return [(b"x-gitlab-token", secret.encode()), (b"x-gitlab-event", b"Push Hook")]


def _linear(body, secret, now):
    return [(b"linear-signature", _tag(secret, body).hex().encode()), (b"linear-delivery", b"d-%d" % now)]


def _linear_at(body, now):
    return json.dumps({**json.loads(body), "webhookTimestamp": now * 1000}).encode()


def _buildkite(body, secret, now):
    return [
        (
            b"x-buildkite-signature",
            f"timestamp={now},signature={_tag(secret, f'{now}.'.encode() + body).hex()}".encode(),
        )
    ]


def twilio_signed(url: bytes, body: bytes, secret: str, digest: str = "sha1", *, form: bool = True) -> bytes:
    text = url
    if form:
        text += "".join(n + v for n, v in sorted(set(parse_qsl(body.decode(), keep_blank_values=True)))).encode()
    return base64.b64encode(hmac.new(secret.encode(), text, digest).digest())


def _twilio(body, secret, target):
    return [(b"x-twilio-signature", twilio_signed(b"https://hooks.example.org" + target, body, secret))]


# The senders whose signature covers the target.
TARGETED = {"twilio": _twilio}
SHARED = "whsec_" + base64.b64encode(b"k" * 32).decode()
OTHER_SHARED = "whsec_" + base64.b64encode(b"o" * 32).decode()
SEED = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
OTHER_SEED = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"


def public_hex(seed: str) -> str:
    return SigningKey(bytes.fromhex(seed)).verify_key.encode().hex()


SENDERS = {
    sender.kind: sender
    for sender in (
        Sender("github", "fake-secret", OTHER_SECRET, b"x-hub-signature-256", _github),
        Sender("gitea", "fake-secret", OTHER_SECRET, b"x-gitea-signature", _gitea),
        Sender("shopify", "fake-secret", OTHER_SECRET, b"x-shopify-hmac-sha256", _shopify, encoding="base64"),
        Sender(
            "slack_webhook",
            "fake-secret",
            OTHER_SECRET,
            b"x-slack-signature",
            _slack,
            time=b"x-slack-request-timestamp",
            body=b'{"type":"event_callback","event_id":"Ev1","event":{"type":"message"}}',
        ),
        Sender("stripe", "whsec_fake", OTHER_SECRET, b"stripe-signature", _stripe),
        Sender(
            "standard_webhooks",
            SHARED,
            OTHER_SHARED,
            b"webhook-signature",
            standard("webhook"),
            time=b"webhook-timestamp",
            encoding="base64",
        ),
        Sender(
            "svix", SHARED, OTHER_SHARED, b"svix-signature", standard("svix"), time=b"svix-timestamp", encoding="base64"
        ),
        Sender(
            "twilio",
            "fake-token",
            OTHER_SECRET,
            b"x-twilio-signature",
            _twilio,
            encoding="base64",
            body=urlencode({"MessageSid": "SM1", "Body": "hello there", "Blank": ""}).encode(),
            setup=(("public_url", "https://hooks.example.org"),),
            extra=((b"content-type", b"application/x-www-form-urlencoded"),),
        ),
        Sender(
            "discord",
            SEED,
            OTHER_SEED,
            b"x-signature-ed25519",
            _discord,
            time=b"x-signature-timestamp",
            body=b'{"type":2,"id":"77","data":{"name":"x"}}',
        ),
        Sender("gitlab", "fake-token", OTHER_SECRET, b"x-gitlab-token", _gitlab, encoding="plain"),
        Sender(
            "linear",
            "fake-secret",
            OTHER_SECRET,
            b"linear-signature",
            _linear,
            window_s=60,
            at=_linear_at,
            body=b'{"type":"Issue","action":"create","data":{"id":"L1","n":1.50}}',
        ),
        Sender(
            "hmac",
            "fake-secret",
            OTHER_SECRET,
            b"x-buildkite-signature",
            _buildkite,
            setup=(
                ("header", "X-Buildkite-Signature"),
                ("format", "timestamp={ts},signature={hex}"),
                ("template", "{ts}.{body}"),
            ),
        ),
    )
}


def settings(sender: Sender, *secrets: str, **more: Any) -> dict[str, Any]:
    """Return the endpoint's settings for these signing secrets; Discord's endpoint holds public keys."""
    named = secrets or (sender.secret,)
    return sender.settings(*([public_hex(each) for each in named] if sender.kind == "discord" else named), **more)
