"""GitLab: a plain token in a field, or Standard Webhooks once a signing token is set.

With a plain token nothing is signed: whoever reads one request can send others. It is the one kind whose claim comes
from an unsigned field, Idempotency-Key. Where a signing token is configured, a request that only has the plain one is
refused: otherwise a thief of the plain token could go around the signature.
"""

from __future__ import annotations

import hmac
from typing import Final

from penstock.services.interop.providers.claims import Claim, by_content
from penstock.services.interop.providers.decoding import check_secrets
from penstock.services.interop.providers.setup import WebhookSetup
from penstock.services.interop.providers.standard_webhooks import SHARED_PREFIX, StandardVerifier
from penstock.services.interop.providers.verdict import (
    BadWebhookSetup,
    RefusedWebhook,
    SigningNeeds,
    WebhookRefusal,
    WebhookRequest,
    WebhookVerdict,
    WebhookVerifier,
)

TOKEN: Final = b"x-gitlab-token"
_EVENT: Final = b"x-gitlab-event"
_REPEAT_ID: Final = b"idempotency-key"
_UUID: Final = b"x-gitlab-event-uuid"


def gitlab_verifier(setup: WebhookSetup) -> WebhookVerifier:
    """Make the verifier that the secrets ask for; the two kinds of secret do not mix."""
    secrets = check_secrets(setup.secrets, "gitlab")
    signing = [secret.startswith(SHARED_PREFIX) for secret in secrets]
    if all(signing):
        return GitlabSignedVerifier(setup)
    if any(signing):
        raise BadWebhookSetup("A GitLab endpoint has signing tokens (whsec_) or plain tokens, not both.")
    return GitlabTokenVerifier(secrets)


class GitlabSignedVerifier(StandardVerifier):
    """GitLab with a signing token; the plain token it may send as well is kept out of the event."""

    def __init__(self, setup: WebhookSetup) -> None:
        """Take the signing tokens; the fields are those of Standard Webhooks."""
        super().__init__(setup, "gitlab", b"webhook")
        self.secret_fields |= {TOKEN}


class GitlabTokenVerifier:
    """GitLab with a plain token."""

    secret_fields = frozenset({TOKEN})
    signed_fields: frozenset[bytes] = frozenset()

    def __init__(self, tokens: tuple[bytes, ...]) -> None:
        """Take the tokens that are live, newest first."""
        self._tokens = tokens

    def check(self, request: WebhookRequest, now: float) -> WebhookVerdict:
        """Compare the token with each that is live."""
        token = request.required(TOKEN)
        repeat_id = request.optional(_REPEAT_ID)
        if not any(hmac.compare_digest(token, each) for each in self._tokens):
            raise RefusedWebhook(WebhookRefusal.WRONG_SIGNATURE)
        return WebhookVerdict(
            claim=Claim("id", repeat_id) if repeat_id else by_content(request.body),
            event_id=request.label(_REPEAT_ID) or request.label(_UUID),
            event_type=request.label(_EVENT),
            unsigned=("id", "type", "body"),
        )

    def document(self, request: WebhookRequest) -> bytes:
        """Return the body."""
        return request.body

    def sign(self, needs: SigningNeeds) -> list[tuple[bytes, bytes]]:
        """Send the token, as GitLab does."""
        return [(TOKEN, self._tokens[0]), (_EVENT, b"Push Hook"), (_REPEAT_ID, needs.event_id.encode("utf-8"))]
