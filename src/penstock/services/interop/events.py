"""A verified webhook as the one form of event that consumers read; pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

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
_NAMES_MAX: Final = 1024
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


_read: Final = msgspec.json.Decoder(WebhookEvent).decode


class StoredBody(msgspec.Struct, frozen=True):
    """Where a large body lies."""

    address: str
    size: int


class WebhookArrival(NamedTuple):
    """Which endpoint a request came to, of which kind, when (Unix milliseconds), and what claims the event."""

    kind: str
    endpoint: str
    at_ms: int
    claim: Claim | None


class KeptHeaders:
    """Which fields of an endpoint's requests an event may show.

    None of the connection, and none that may hold a secret or a signature. Providers send the same few names again and
    again, so what was decided of a name is remembered.
    """

    __slots__ = ("_names", "_signed", "_verifier")

    def __init__(self, verifier: WebhookVerifier) -> None:
        """Decide by what the verifier knows of its provider's fields."""
        self._verifier = verifier
        self._signed = frozenset(name.decode("ascii") for name in verifier.signed_fields)
        # The name as text, or None for one that is left out. Bounded: begun anew when it is full.
        self._names: dict[bytes, str | None] = {}

    def of(self, request: WebhookRequest) -> dict[str, str]:
        """Return the fields of a request that its event shows; repeated ones are joined."""
        names, found = self._names, dict[str, str]()
        for name, value in request.fields:
            key = names[name] if name in names else self._decide(name)
            if key is not None:
                text = value.decode("utf-8", "replace")
                found[key] = f"{found[key]}, {text}" if key in found else text
        return found

    def unsigned(self, headers: dict[str, str]) -> tuple[str, ...]:
        """Name the shown fields that the signature does not cover."""
        return tuple([name for name in headers if name not in self._signed])

    def _decide(self, name: bytes) -> str | None:
        left_out = name in _DROPPED or name in self._verifier.secret_fields
        key = None if left_out or (name not in _KEPT and _SECRET.search(name)) else name.decode("ascii", "replace")
        if len(self._names) >= _NAMES_MAX:
            self._names.clear()
        self._names[name] = key
        return key


def write_event(
    arrival: WebhookArrival,
    kept: KeptHeaders,
    request: WebhookRequest,
    verdict: WebhookVerdict,
    body: bytes | StoredBody,
) -> bytes:
    """Write the event of a verified request as JSON: its body as text where it is UTF-8, else base64, or an address."""
    headers = kept.of(request)
    text, data, stored = _told(body)
    return _encode(
        WebhookEvent(
            provider=arrival.kind,
            endpoint=arrival.endpoint,
            id=verdict.event_id,
            type=verdict.event_type,
            received_at=arrival.at_ms,
            headers=headers,
            unsigned=kept.unsigned(headers) + verdict.unsigned,
            body=text,
            body_b64=data,
            body_addr=None if stored is None else stored.address,
            body_size=None if stored is None else stored.size,
            claim=None if arrival.claim is None else arrival.claim.text,
        )
    )


def _told(body: bytes | StoredBody) -> tuple[str | None, bytes | None, StoredBody | None]:
    if isinstance(body, StoredBody):
        return None, None, body
    try:
        return body.decode("utf-8"), None, None
    except UnicodeDecodeError:
        return None, body, None


def replayed_event(event: bytes, replayed_from: str) -> bytes:
    """Write an event of ours once more, marked as a replay of a delivery."""
    return _encode(msgspec.structs.replace(_read(event), replayed_from=replayed_from))
