"""Discord: Ed25519 of `{time}{body}` under the application's public key.

Discord tests an endpoint with wrong signatures now and then, and turns it off if they are not refused with 401. The
body is a JSON object, which begins with a brace: so the text that is signed has one place only where the time ends.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from penstock.capability.ed25519 import SIGNATURE_BYTES, holds, read_public
from penstock.kernel.errors import Malformed
from penstock.services.interop.providers.claims import by_id
from penstock.services.interop.providers.decoding import (
    TOLERANCE_S,
    check_fresh,
    check_secrets,
    read_hex,
    read_json,
    read_seconds,
)
from penstock.services.interop.providers.setup import WebhookSetup
from penstock.services.interop.providers.verdict import (
    BadWebhookSetup,
    HandshakeAnswer,
    RefusedWebhook,
    SigningNeeds,
    WebhookRefusal,
    WebhookRequest,
    WebhookVerdict,
)

_SIGNATURE: Final = b"x-signature-ed25519"
_TIME: Final = b"x-signature-timestamp"
_KEY: Final = re.compile(rb"[0-9a-fA-F]{64}")
_EVENT_PING: Final = 0
_PING: Final = 1


class _DiscordInner(msgspec.Struct):
    type: str = ""


class _DiscordBody(msgspec.Struct):
    """An interaction has an id and a number as its type; a webhook event names itself inside `event`."""

    type: int
    id: str = ""
    event: _DiscordInner = msgspec.field(default_factory=_DiscordInner)


class DiscordVerifier:
    """A Discord endpoint: interactions and webhook events."""

    secret_fields = frozenset({_SIGNATURE})
    signed_fields = frozenset({_TIME})

    def __init__(self, setup: WebhookSetup) -> None:
        """Take the application's public keys, newest first."""
        self._keys = tuple(_read_key(secret) for secret in check_secrets(setup.secrets, "discord"))
        self._window_s = setup.window_s(TOLERANCE_S)

    def check(self, request: WebhookRequest, now: float) -> WebhookVerdict:
        """Check form, time and signature, then what it is."""
        tag = read_hex(request.required(_SIGNATURE), SIGNATURE_BYTES)
        time = request.required(_TIME, WebhookRefusal.NO_TIMESTAMP)
        check_fresh(read_seconds(time), now, self._window_s)
        content = time + request.body
        if not any(holds(key, content, tag) for key in self._keys):
            raise RefusedWebhook(WebhookRefusal.WRONG_SIGNATURE)
        body = read_json(request.body, _DiscordBody)
        if body is None or not request.body.startswith(b"{"):
            raise RefusedWebhook(WebhookRefusal.BAD_BODY)
        return _understood(request, body, tag)

    def document(self, request: WebhookRequest) -> bytes:
        """Return the body."""
        return request.body

    def sign(self, needs: SigningNeeds) -> list[tuple[bytes, bytes]]:
        """Refuse: Discord keeps the key that signs to itself."""
        raise BadWebhookSetup("Only Discord can sign for a Discord endpoint; its settings hold the public key alone.")


def _understood(request: WebhookRequest, body: _DiscordBody, tag: bytes) -> WebhookVerdict:
    # A webhook event is type 1 as well, and names itself inside `event`; only a bare 1 is a ping.
    if body.type == _PING and not body.event.type:
        answer = HandshakeAnswer(200, b'{"type":1}', b"application/json")
        return WebhookVerdict(tag=tag, event_type="ping", handshake=answer)
    if body.type == _EVENT_PING:
        return WebhookVerdict(tag=tag, event_type="ping", handshake=HandshakeAnswer(204))
    claim = by_id(body.id, request.body)
    event_id = body.id if claim.by == "id" else ""
    return WebhookVerdict(claim=claim, tag=tag, event_id=event_id, event_type=body.event.type or str(body.type))


def _read_key(text: bytes) -> bytes:
    try:
        if not _KEY.fullmatch(text):
            raise Malformed("This is not hex.")
        return read_public(bytes.fromhex(text.decode("ascii")))
    except Malformed as exc:
        raise BadWebhookSetup("A Discord key is the application's public key: 64 hex digits.") from exc
