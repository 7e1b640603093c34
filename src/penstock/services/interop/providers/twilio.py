"""Twilio: the HMAC of the public URL followed by each form field's name and value, sorted.

Three traps. The URL is the one that Twilio was told, so it comes from the settings and never from Host; Twilio adds or
drops the port, so both spellings are tried. Names and values are signed without separators, so several forms have the
same signature: the claim is the signed text itself, and such a rewritten form is a duplicate of the first. A body that
is no form is signed only through its digest in the URL, `bodySHA256`, which therefore has to be there and to be right.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from penstock.services.interop.providers.claims import by_content
from penstock.services.interop.providers.decoding import SHA256_BYTES, is_form, read_base64
from penstock.services.interop.providers.hmac_key import find_tag, hmac_keys
from penstock.services.interop.providers.setup import WebhookSetup
from penstock.services.interop.providers.verdict import (
    BadWebhookSetup,
    RefusedWebhook,
    SigningNeeds,
    WebhookRefusal,
    WebhookRequest,
    WebhookVerdict,
)

_SIGNATURE: Final = b"x-twilio-signature"
_SETTINGS: Final = b"x-twilio-webhooks-signature-settings"
_RETRY_ID: Final = b"i-twilio-idempotency-token"
_ALGORITHMS: Final = {b"HMAC_SHA1": ("sha1", 20), b"HMAC_SHA256": ("sha256", SHA256_BYTES)}
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}
_FIELDS_MAX: Final = 1000
# Twilio puts the digest last; anywhere else it could be a part of a value that a stranger chose.
_DIGEST: Final = re.compile(rb"bodySHA256=([0-9a-f]{64})")


class TwilioVerifier:
    """A Twilio endpoint."""

    secret_fields = frozenset({_SIGNATURE, _SETTINGS})
    signed_fields: frozenset[bytes] = frozenset()

    def __init__(self, setup: WebhookSetup) -> None:
        """Take the auth tokens and the public URL."""
        self._keys = {digest: hmac_keys(setup.secrets, "twilio", digest) for digest, _ in _ALGORITHMS.values()}
        self._bases = _bases(setup.public_url)

    def check(self, request: WebhookRequest, now: float) -> WebhookVerdict:
        """Check the signature over what was signed, for each spelling of the URL."""
        digest, size = _algorithm(request.optional(_SETTINGS))
        tag = read_base64(request.required(_SIGNATURE), size)
        rest = _signed_rest(request)
        keys = self._keys[digest]
        if not any(find_tag(keys, base + rest, (tag,)) for base in self._bases):
            raise RefusedWebhook(WebhookRefusal.WRONG_SIGNATURE)
        return WebhookVerdict(
            claim=by_content(self._bases[0] + rest), tag=tag, event_id=request.label(_RETRY_ID), unsigned=("id",)
        )

    def document(self, request: WebhookRequest) -> bytes:
        """Return the body."""
        return request.body

    def sign(self, needs: SigningNeeds) -> list[tuple[bytes, bytes]]:
        """Sign as Twilio does; the target of a body that is no form has to end with its `bodySHA256`."""
        fields = [(b"content-type", needs.content_type)]
        request = WebhookRequest(fields, needs.body, needs.target)
        try:
            content = self._bases[0] + _signed_rest(request)
        except RefusedWebhook as refused:
            raise BadWebhookSetup(f"Twilio could not have sent this: {refused.refusal.value}.") from refused
        return [(_SIGNATURE, base64.b64encode(self._keys["sha1"][0].tag(content)))]


def body_digest_query(body: bytes) -> bytes:
    """Return what Twilio adds to the query for a body that is no form."""
    return b"bodySHA256=" + hashlib.sha256(body).hexdigest().encode("ascii")


def _algorithm(settings: bytes | None) -> tuple[str, int]:
    """Read which HMAC signed; SHA-1 where none is named."""
    members = [part.strip().partition(b"=") for part in (settings or b"").split(b",", 8)]
    named = [value for name, _, value in members if name == b"algorithm"] or [b"HMAC_SHA1"]
    if len(named) != 1 or named[0] not in _ALGORITHMS:
        raise RefusedWebhook(WebhookRefusal.BAD_SETTINGS)
    return _ALGORITHMS[named[0]]


def _signed_rest(request: WebhookRequest) -> bytes:
    """Return what is signed after scheme and host: the target, and the fields of a form."""
    _, _, query = request.target.partition(b"?")
    members = query.split(b"&")
    if b"bodySHA256" in query:
        _check_digest(members, request.body)
    elif request.body and not is_form(request):
        raise RefusedWebhook(WebhookRefusal.BODY_DIGEST)
    return request.target + (_form_text(request.body) if is_form(request) else b"")


def _check_digest(members: list[bytes], body: bytes) -> None:
    """Refuse unless the last member, and no other, is the digest of this body."""
    last = _DIGEST.fullmatch(members[-1])
    repeated = any(member.startswith(b"bodySHA256") for member in members[:-1])
    if last is None or repeated or not hmac.compare_digest(hashlib.sha256(body).hexdigest().encode("ascii"), last[1]):
        raise RefusedWebhook(WebhookRefusal.BODY_DIGEST)


def _form_text(body: bytes) -> bytes:
    """Write the fields as Twilio signs them: sorted by name, values sorted and each once, blank ones kept."""
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS_MAX)
    except ValueError as exc:
        raise RefusedWebhook(WebhookRefusal.WRONG_SIGNATURE) from exc
    return "".join(name + value for name, value in sorted(set(pairs))).encode("utf-8")


def _bases(public_url: str) -> tuple[bytes, ...]:
    """Return scheme and host as configured, and with the port added or left out."""
    try:
        parts = urlsplit(public_url)
        port = parts.port
    except ValueError as exc:
        raise BadWebhookSetup("The setting interop.public_url is not a URL.") from exc
    plain = public_url.isascii() and not parts.query and not parts.fragment and parts.username is None
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or not plain:
        raise BadWebhookSetup("A Twilio endpoint needs interop.public_url: https:// and the public host.")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    path = parts.path.rstrip("/")
    bare, full = f"{parts.scheme}://{host}", f"{parts.scheme}://{host}:{port or _DEFAULT_PORTS[parts.scheme]}"
    bases = (full, bare) if port else (bare, full)
    return tuple((base + path).encode("ascii") for base in bases)
