"""Slack: `v0=` and the HMAC-SHA256 of `v0:{time}:{body}`, with the time in a field of its own."""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.services.interop.providers.claims import by_id
from penstock.services.interop.providers.decoding import (
    SHA256_BYTES,
    TOLERANCE_S,
    check_fresh,
    is_form,
    read_hex,
    read_json,
    read_seconds,
)
from penstock.services.interop.providers.hmac_key import check_tags, hmac_keys
from penstock.services.interop.providers.setup import WebhookSetup
from penstock.services.interop.providers.signed_body import form_payload
from penstock.services.interop.providers.verdict import (
    HandshakeAnswer,
    RefusedWebhook,
    SigningNeeds,
    WebhookRefusal,
    WebhookRequest,
    WebhookVerdict,
)

_SIGNATURE: Final = b"x-slack-signature"
_TIME: Final = b"x-slack-request-timestamp"
_VERSION: Final = b"v0="
_CHALLENGE_CHARS_MAX: Final = 512


class _SlackInner(msgspec.Struct):
    type: str = ""


class _SlackBody(msgspec.Struct):
    """What matters of an event; slash commands are forms and have none of it."""

    type: str = ""
    event_id: str = ""
    challenge: str = ""
    event: _SlackInner = msgspec.field(default_factory=_SlackInner)


class SlackVerifier:
    """A Slack endpoint: events, slash commands and interactions."""

    secret_fields = frozenset({_SIGNATURE})
    signed_fields = frozenset({_TIME})

    def __init__(self, setup: WebhookSetup) -> None:
        """Take the app's signing secrets, newest first."""
        self._keys = hmac_keys(setup.secrets, "slack_webhook")
        self._window_s = setup.window_s(TOLERANCE_S)

    def check(self, request: WebhookRequest, now: float) -> WebhookVerdict:
        """Check form, time and signature."""
        text = request.required(_SIGNATURE)
        time = request.required(_TIME, WebhookRefusal.NO_TIMESTAMP)
        if not text.startswith(_VERSION):
            raise RefusedWebhook(WebhookRefusal.BAD_SIGNATURE_FORM)
        tag = read_hex(text.removeprefix(_VERSION), SHA256_BYTES)
        check_fresh(read_seconds(time), now, self._window_s)
        check_tags(self._keys, b"v0:%b:%b" % (time, request.body), (tag,))
        return _understood(request, tag)

    def document(self, request: WebhookRequest) -> bytes:
        """Return the body, or the `payload=` of an interaction."""
        return form_payload(request.body) if is_form(request) else request.body

    def sign(self, needs: SigningNeeds) -> list[tuple[bytes, bytes]]:
        """Sign as Slack does."""
        time = b"%d" % int(needs.now)
        tag = self._keys[0].tag(b"v0:%b:%b" % (time, needs.body))
        return [(_TIME, time), (_SIGNATURE, _VERSION + tag.hex().encode("ascii"))]


def _understood(request: WebhookRequest, tag: bytes) -> WebhookVerdict:
    body = read_json(request.body, _SlackBody)
    if body is None:
        return WebhookVerdict(claim=by_id("", request.body), tag=tag)
    if body.type == "url_verification" and 0 < len(body.challenge) <= _CHALLENGE_CHARS_MAX:
        answer = HandshakeAnswer(200, body.challenge.encode("utf-8"), b"text/plain; charset=utf-8")
        return WebhookVerdict(tag=tag, event_type=body.type, handshake=answer)
    claim = by_id(body.event_id, request.body)
    event_id = body.event_id if claim.by == "id" else ""
    return WebhookVerdict(claim=claim, tag=tag, event_id=event_id, event_type=body.event.type or body.type)
