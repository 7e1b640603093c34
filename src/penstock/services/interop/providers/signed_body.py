"""GitHub, Gitea and Forgejo, Shopify: an HMAC-SHA256 of the body alone.

Nothing but the body is signed: no time, no id, no event name. So there is no window, the claim is the body, and two
deliveries with equal bodies are one event. The event's name and id are in unsigned fields and only label it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

from penstock.services.interop.providers.claims import by_content
from penstock.services.interop.providers.decoding import (
    SHA256_BYTES,
    is_form,
    read_base64,
    read_hex,
)
from penstock.services.interop.providers.hmac_key import find_tag, hmac_keys
from penstock.services.interop.providers.setup import WebhookSetup
from penstock.services.interop.providers.verdict import (
    RefusedWebhook,
    SigningNeeds,
    WebhookRefusal,
    WebhookRequest,
    WebhookVerdict,
    refused,
)

_GITHUB_PREFIX: Final = b"sha256="


class _Family(NamedTuple):
    """The names one provider uses for its fields; Gitea and Shopify have two sets of them."""

    signature: bytes
    event_id: bytes
    event_type: bytes


class _Scheme(NamedTuple):
    """How one provider writes its signature, and in which fields."""

    kind: str
    families: tuple[_Family, ...]
    read: Callable[[bytes], bytes]
    write: Callable[[bytes], bytes]


def _read_github(text: bytes) -> bytes:
    """Read `sha256=` and hex; the older `sha1=` is refused."""
    if not text.startswith(_GITHUB_PREFIX):
        raise RefusedWebhook(WebhookRefusal.BAD_SIGNATURE_FORM)
    return read_hex(text.removeprefix(_GITHUB_PREFIX), SHA256_BYTES)


def _read_hex_tag(text: bytes) -> bytes:
    return read_hex(text, SHA256_BYTES)


def _read_base64_tag(text: bytes) -> bytes:
    return read_base64(text, SHA256_BYTES)


def _write_hex(tag: bytes) -> bytes:
    return tag.hex().encode("ascii")


GITHUB: Final = _Scheme(
    "github",
    (_Family(b"x-hub-signature-256", b"x-github-delivery", b"x-github-event"),),
    _read_github,
    lambda tag: _GITHUB_PREFIX + _write_hex(tag),
)
GITEA: Final = _Scheme(
    "gitea",
    (
        _Family(b"x-gitea-signature", b"x-gitea-delivery", b"x-gitea-event"),
        _Family(b"x-forgejo-signature", b"x-forgejo-delivery", b"x-forgejo-event"),
    ),
    _read_hex_tag,
    _write_hex,
)
SHOPIFY: Final = _Scheme(
    "shopify",
    (
        _Family(b"x-shopify-hmac-sha256", b"x-shopify-webhook-id", b"x-shopify-topic"),
        _Family(b"shopify-hmac-sha256", b"shopify-webhook-id", b"shopify-topic"),
    ),
    _read_base64_tag,
    base64.b64encode,
)


class SignedBodyVerifier:
    """An endpoint of one of these three."""

    signed_fields: frozenset[bytes] = frozenset()

    def __init__(self, scheme: _Scheme, setup: WebhookSetup) -> None:
        """Take the scheme and the secrets."""
        self._scheme = scheme
        self._keys = hmac_keys(setup.secrets, scheme.kind)
        self.secret_fields = frozenset(family.signature for family in scheme.families)

    def check(self, request: WebhookRequest, now: float) -> WebhookVerdict:
        """Check every signature that is there: a request with a good one and a bad one is refused."""
        tag: bytes | None = None
        for family in self._scheme.families:
            text = request.optional(family.signature)
            if text is not None:
                tag = find_tag(self._keys, request.body, (self._scheme.read(text),))
                if tag is None:
                    # Returned, not raised: forged webhooks come in numbers, and raising takes longer than the HMAC.
                    return refused(WebhookRefusal.WRONG_SIGNATURE)
        if tag is None:
            raise RefusedWebhook(WebhookRefusal.NO_SIGNATURE)
        return WebhookVerdict(
            claim=by_content(request.body),
            tag=tag,
            event_id=self._label(request, 1),
            event_type=self._label(request, 2),
            unsigned=("id", "type"),
        )

    def _label(self, request: WebhookRequest, at: int) -> str:
        for family in self._scheme.families:
            label = request.label(family[at])
            if label:
                return label
        return ""

    def document(self, request: WebhookRequest) -> bytes:
        """Return the body, or what GitHub puts into `payload=` of a form."""
        return form_payload(request.body) if is_form(request) else request.body

    def sign(self, needs: SigningNeeds) -> list[tuple[bytes, bytes]]:
        """Sign as the provider does."""
        family = self._scheme.families[0]
        tag = self._keys[0].tag(needs.body)
        fields = [(family.signature, self._scheme.write(tag)), (family.event_id, needs.event_id.encode("utf-8"))]
        return [*fields, (family.event_type, b"ping")]


def form_payload(body: bytes) -> bytes:
    """Return the one `payload` of a form; empty when there is none."""
    try:
        pairs = parse_qsl(body.decode("ascii"), errors="strict", max_num_fields=16)
    except ValueError:
        return b""
    payloads = [value for name, value in pairs if name == "payload"]
    return payloads[0].encode("utf-8") if len(payloads) == 1 else b""
