"""Stripe: `t=` and one or more `v1=` in one field; the HMAC-SHA256 of `{t}.{body}` under the whole `whsec_` text."""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.services.interop.providers.claims import by_id
from penstock.services.interop.providers.decoding import (
    SHA256_BYTES,
    TOLERANCE_S,
    check_fresh,
    read_hex,
    read_json,
    read_seconds,
)
from penstock.services.interop.providers.hmac_key import check_tags, hmac_keys
from penstock.services.interop.providers.setup import WebhookSetup
from penstock.services.interop.providers.verdict import (
    CANDIDATES_MAX,
    RefusedWebhook,
    SigningNeeds,
    WebhookRefusal,
    WebhookRequest,
    WebhookVerdict,
)

_SIGNATURE: Final = b"stripe-signature"


class _StripeBody(msgspec.Struct):
    id: str = ""
    type: str = ""


class StripeVerifier:
    """A Stripe endpoint."""

    secret_fields = frozenset({_SIGNATURE})
    signed_fields: frozenset[bytes] = frozenset()

    def __init__(self, setup: WebhookSetup) -> None:
        """Take the signing secrets: the text is the key, it is not decoded."""
        self._keys = hmac_keys(setup.secrets, "stripe")
        self._window_s = setup.window_s(TOLERANCE_S)

    def check(self, request: WebhookRequest, now: float) -> WebhookVerdict:
        """Check form, time and signature; any `v1` may be the right one, `v0` never counts."""
        time, texts = _parts(request.required(_SIGNATURE))
        tags = [read_hex(text, SHA256_BYTES) for text in texts]
        check_fresh(read_seconds(time), now, self._window_s)
        tag = check_tags(self._keys, b"%b.%b" % (time, request.body), tags)
        body = read_json(request.body, _StripeBody) or _StripeBody()
        claim = by_id(body.id, request.body)
        return WebhookVerdict(claim=claim, tag=tag, event_id=body.id if claim.by == "id" else "", event_type=body.type)

    def document(self, request: WebhookRequest) -> bytes:
        """Return the body."""
        return request.body

    def sign(self, needs: SigningNeeds) -> list[tuple[bytes, bytes]]:
        """Sign as Stripe does."""
        time = b"%d" % int(needs.now)
        tag = self._keys[0].tag(b"%b.%b" % (time, needs.body))
        return [(_SIGNATURE, b"t=%b,v1=%b" % (time, tag.hex().encode("ascii")))]


def _parts(text: bytes) -> tuple[bytes, list[bytes]]:
    """Split the field into its one time and its `v1` signatures; members with other names are ignored."""
    members = [part.partition(b"=") for part in text.split(b",", 2 * CANDIDATES_MAX + 2)]
    times = [value for name, _, value in members if name.strip() == b"t"]
    tags = [value for name, _, value in members if name.strip() == b"v1"]
    if len(times) != 1:
        raise RefusedWebhook(WebhookRefusal.BAD_TIMESTAMP if times else WebhookRefusal.NO_TIMESTAMP)
    if not tags:
        raise RefusedWebhook(WebhookRefusal.NO_SIGNATURE)
    return times[0], tags
