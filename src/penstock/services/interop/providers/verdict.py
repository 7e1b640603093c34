"""What a verifier is given and what it answers; pure.

A verifier looks at one webhook request and says whether the provider sent it. Inside, the first thing that is wrong
ends the check by raising RefusedWebhook. `verify` is the only entry and turns that into a verdict, so no request,
however shaped, makes it raise. The caller of the webhook never learns which refusal it was: that is for the audit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

import msgspec

from penstock.services.interop.providers.claims import Claim

CANDIDATES_MAX: Final = 16
_NONE: Final[frozenset[bytes]] = frozenset()


class WebhookRefusal(StrEnum):
    """Why a webhook was refused; written to the audit, never answered."""

    NO_SIGNATURE = "no_signature"
    REPEATED_FIELD = "repeated_field"
    BAD_SIGNATURE_FORM = "bad_signature_form"
    TOO_MANY_SIGNATURES = "too_many_signatures"
    WRONG_SIGNATURE = "wrong_signature"
    NO_TIMESTAMP = "no_timestamp"
    BAD_TIMESTAMP = "bad_timestamp"
    TOO_OLD = "too_old"
    IN_FUTURE = "in_future"
    NO_ID = "no_id"
    BAD_ID = "bad_id"
    BAD_SETTINGS = "bad_settings"
    BODY_DIGEST = "body_digest"
    BAD_BODY = "bad_body"


class RefusedWebhook(Exception):
    """This request is not from the provider."""

    def __init__(self, refusal: WebhookRefusal) -> None:
        """Say why; the sender never learns it."""
        super().__init__(refusal)
        self.refusal = refusal


class BadWebhookSetup(ValueError):
    """The settings of an endpoint cannot work; the text is a sentence for the person who wrote them."""


class WebhookRequest:
    """One request as it was received: header fields unjoined, the body not decompressed, the target not decoded."""

    __slots__ = ("_found", "_pairs", "_repeated", "body", "target")

    def __init__(
        self, fields: Sequence[tuple[bytes, bytes]] | dict[bytes, bytes], body: bytes, target: bytes = b"/"
    ) -> None:
        """Take the fields in their order, repeated ones too; or a dictionary by lower-case name, if none came twice."""
        self.body = body
        self.target = target
        if isinstance(fields, dict):
            self._found, self._repeated = fields, _NONE
            self._pairs: list[tuple[bytes, bytes]] | None = None
            return
        self._pairs = pairs = [(name.lower(), value) for name, value in fields]
        self._found = dict(pairs)
        self._repeated = _NONE if len(self._found) == len(pairs) else _repeated(pairs)

    @property
    def fields(self) -> Iterable[tuple[bytes, bytes]]:
        """Return the fields in their order, with names in lower case."""
        return self._found.items() if self._pairs is None else self._pairs

    def optional(self, name: bytes) -> bytes | None:
        """Return a field's value, or None; a field that came twice is refused, whatever the two say."""
        if name in self._repeated:
            raise RefusedWebhook(WebhookRefusal.REPEATED_FIELD)
        return self._found.get(name)

    def required(self, name: bytes, missing: WebhookRefusal = WebhookRefusal.NO_SIGNATURE) -> bytes:
        """Return a field's value; without it the request is refused."""
        found = self.optional(name)
        if found is None:
            raise RefusedWebhook(missing)
        return found

    def label(self, name: bytes) -> str:
        """Return an unsigned field as a short text, to be shown and never trusted; empty unless it is plain ASCII."""
        found = self._found.get(name)
        if found is None or name in self._repeated or len(found) > 256 or not found.isascii():
            return ""
        return found.decode("ascii")


def _repeated(fields: Sequence[tuple[bytes, bytes]]) -> frozenset[bytes]:
    counts = Counter(name for name, _ in fields)
    return frozenset(name for name, count in counts.items() if count > 1)


class HandshakeAnswer(NamedTuple):
    """What a provider expects as the answer to its own test of the endpoint; nothing is put into the mailbox."""

    status: int
    body: bytes = b""
    content_type: bytes = b""


class WebhookVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a verifier found. Without a refusal the provider sent the request."""

    refusal: WebhookRefusal | None = None
    # Names the event by signed content alone; None when the endpoint makes no claims.
    claim: Claim | None = None
    # The signature that matched, decoded: for endpoints that claim by it.
    tag: bytes = b""
    event_id: str = ""
    event_type: str = ""
    # Which of `id` and `type` come from fields that the signature does not cover.
    unsigned: tuple[str, ...] = ()
    handshake: HandshakeAnswer | None = None

    @property
    def accepted(self) -> bool:
        """Tell whether the provider sent this."""
        return self.refusal is None

    @property
    def malformed(self) -> bool:
        """Tell whether the signature held but the request makes no sense: 400, where a bad signature is 401."""
        return self.refusal is WebhookRefusal.BAD_BODY


_REFUSED: Final = {refusal: WebhookVerdict(refusal=refusal) for refusal in WebhookRefusal}
refused: Final = _REFUSED.__getitem__
"""Returns the verdict of a refusal: there is one for each reason."""


class SigningNeeds(NamedTuple):
    """What it takes to sign a body as the provider would."""

    body: bytes
    now: float
    event_id: str = "msg_penstock"
    target: bytes = b"/"
    content_type: bytes = b"application/json"


class WebhookVerifier(Protocol):
    """One endpoint's check. `check` may raise RefusedWebhook and nothing else; call it through `verify`."""

    # Fields that carry a signature or a secret: they never enter an event.
    secret_fields: frozenset[bytes]
    # Fields that the signature covers; all others are labelled unsigned.
    signed_fields: frozenset[bytes]

    def check(self, request: WebhookRequest, now: float) -> WebhookVerdict:
        """Check one request."""

    def document(self, request: WebhookRequest) -> bytes:
        """Return the JSON text of a request, wherever in the body it stands."""

    def sign(self, needs: SigningNeeds) -> list[tuple[bytes, bytes]]:
        """Return the fields that a provider with the newest secret would send."""


def verify(verifier: WebhookVerifier, request: WebhookRequest, now: float) -> WebhookVerdict:
    """Say whether the provider sent this request. Never raises."""
    try:
        return verifier.check(request, now)
    except RefusedWebhook as refused:
        return _REFUSED[refused.refusal]
