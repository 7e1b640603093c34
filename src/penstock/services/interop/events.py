"""A verified webhook as the one form of event that consumers read; pure."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from penstock.services.interop.providers.claims import Claim
from penstock.services.interop.providers.verdict import WebhookRequest, WebhookVerdict, WebhookVerifier

# Bodies above this go to svc-storage first, and the event has their address.
INLINE_BYTES_MAX: Final = 512 << 10
# Fields of the connection, and those a secret may stand in whatever the provider calls it.
_DROPPED: Final = frozenset(
    {
        b"connection",
        b"content-length",
        b"content-encoding",
        b"expect",
        b"forwarded",
        b"host",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"via",
        b"x-corr-id",
        b"x-deadline-ms",
    }
)
_SECRET: Final = re.compile(
    rb"authoriz|authentic|\bauth\b|cookie|credential|hmac|key\b|password|secret|signature|token|x-forwarded"
)
_KEPT: Final = frozenset({b"idempotency-key", b"i-twilio-idempotency-token"})
_encode: Final = msgspec.json.Encoder().encode


class WebhookEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is put into the mailbox. Exactly one of `body`, `body_b64` and `body_addr` is there."""

    provider: str
    endpoint: str
    id: str
    type: str
    received_at: int
    headers: dict[str, str]
    # Names in `headers`, and `id` or `type`, that the signature does not cover: anybody could have written them.
    unsigned: tuple[str, ...]
    body: str | None = None
    body_b64: bytes | None = None
    body_addr: str | None = None
    body_size: int | None = None
    claim: str | None = None
    replayed_from: str | None = None


class StoredBody(msgspec.Struct, frozen=True):
    """Where a large body lies."""

    address: str
    size: int


class WebhookArrival(msgspec.Struct, frozen=True):
    """Which endpoint a request came to, of which kind, and when (Unix milliseconds)."""

    kind: str
    endpoint: str
    at_ms: int


def kept_headers(verifier: WebhookVerifier, request: WebhookRequest) -> dict[str, str]:
    """Return the fields an event may show: none of the connection, none that may hold a secret or a signature."""
    found: dict[str, str] = {}
    for name, value in request.fields:
        if name in _DROPPED or name in verifier.secret_fields or (name not in _KEPT and _SECRET.search(name)):
            continue
        key, text = name.decode("ascii", "replace"), value.decode("utf-8", "replace")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


def build_event(
    arrival: WebhookArrival,
    verifier: WebhookVerifier,
    request: WebhookRequest,
    verdict: WebhookVerdict,
    claim: Claim | None,
) -> WebhookEvent:
    """Make the event of a verified request, without its body."""
    headers = kept_headers(verifier, request)
    signed = {name.decode("ascii") for name in verifier.signed_fields}
    return WebhookEvent(
        provider=arrival.kind,
        endpoint=arrival.endpoint,
        id=verdict.event_id,
        type=verdict.event_type,
        received_at=arrival.at_ms,
        headers=headers,
        unsigned=(*(name for name in headers if name not in signed), *verdict.unsigned),
        claim=None if claim is None else claim.text,
    )


def with_body(event: WebhookEvent, body: bytes | StoredBody) -> bytes:
    """Write the event as JSON: text where the bytes are UTF-8, else base64, or where they are stored."""
    if isinstance(body, StoredBody):
        return _encode(msgspec.structs.replace(event, body_addr=body.address, body_size=body.size))
    try:
        return _encode(msgspec.structs.replace(event, body=body.decode("utf-8")))
    except UnicodeDecodeError:
        return _encode(msgspec.structs.replace(event, body_b64=body))
