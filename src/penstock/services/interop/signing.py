"""A webhook as its provider would send it, for trying an endpoint out: `penstock webhook sign`; pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from urllib.parse import urlsplit

from penstock.services.interop.providers.twilio import body_digest_query
from penstock.services.interop.providers.verdict import SigningNeeds, WebhookVerifier


@dataclass(frozen=True, kw_only=True, slots=True)
class SignedDelivery:
    """A request that is ready to be sent."""

    url: str
    fields: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def curl(self, file: str, ca: str | None = None) -> str:
        """Write the request as one line for a shell: the body is read from the file, the authorities from `ca`."""
        trust = [] if ca is None else ["--cacert", ca]
        fields = [part for name, value in self.fields for part in ("-H", _field(name, value))]
        return shlex.join(["curl", "-sS", *trust, "-X", "POST", *fields, "--data-binary", f"@{file}", self.url])


@dataclass(frozen=True, kw_only=True, slots=True)
class WebhookTrial:
    """What to send, to which URL, and when."""

    kind: str
    url: str
    body: bytes
    now: float
    event_id: str
    content_type: str = "application/json"


def sign_delivery(verifier: WebhookVerifier, trial: WebhookTrial) -> SignedDelivery:
    """Sign a body with the endpoint's newest secret; raises BadWebhookSetup where only the provider can sign."""
    url = trial.url
    is_form = trial.content_type.startswith("application/x-www-form-urlencoded")
    if trial.kind == "twilio" and not is_form:
        url += ("&" if "?" in url else "?") + body_digest_query(trial.body).decode("ascii")
    parts = urlsplit(url)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    content_type = trial.content_type.encode("ascii")
    needs = SigningNeeds(trial.body, trial.now, trial.event_id, target.encode("ascii"), content_type)
    return SignedDelivery(url=url, fields=((b"content-type", content_type), *verifier.sign(needs)), body=trial.body)


def _field(name: bytes, value: bytes) -> str:
    return f"{name.decode('ascii')}: {value.decode('utf-8')}"
