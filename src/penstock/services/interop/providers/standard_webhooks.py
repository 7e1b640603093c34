"""Standard Webhooks, and Svix with its own field names: `{id}.{time}.{body}` by HMAC-SHA256 (v1) or Ed25519 (v1a).

The id is the same in every delivery of an event and is signed, so it is the claim. It must not hold a dot: the signed
text is cut at its dots, and with dots in the id one signature would fit two different requests.
"""

from __future__ import annotations

import base64
import hmac
import re
from typing import Final, NamedTuple

import msgspec

from penstock.capability.ed25519 import SIGNATURE_BYTES, holds, read_public
from penstock.kernel.errors import Malformed
from penstock.services.interop.providers.claims import Claim
from penstock.services.interop.providers.decoding import (
    SHA256_BYTES,
    TOLERANCE_S,
    check_fresh,
    check_secrets,
    read_base64,
    read_json,
    read_seconds,
)
from penstock.services.interop.providers.hmac_key import HmacKey
from penstock.services.interop.providers.setup import WebhookSetup
from penstock.services.interop.providers.verdict import (
    CANDIDATES_MAX,
    BadWebhookSetup,
    RefusedWebhook,
    SigningNeeds,
    WebhookRefusal,
    WebhookRequest,
    WebhookVerdict,
)
from penstock.wire.strict_base64 import decode_base64

SHARED_PREFIX: Final = b"whsec_"
_PUBLIC_PREFIX: Final = b"whpk_"
_SHARED_BYTES_MIN: Final = 24
_SHARED_BYTES_MAX: Final = 64
_ID: Final = re.compile(rb"[!-\-/-~]{1,256}")


class _StandardBody(msgspec.Struct):
    type: str = ""


class StandardKeys(NamedTuple):
    """The keys of an endpoint: shared ones check v1 alone, public ones v1a alone."""

    shared: tuple[HmacKey, ...]
    public: tuple[bytes, ...]


class StandardVerifier:
    """An endpoint of these; `prefix` is `webhook` or `svix`."""

    def __init__(self, setup: WebhookSetup, kind: str, prefix: bytes) -> None:
        """Take the keys and the names of the fields."""
        self._keys = read_keys(check_secrets(setup.secrets, kind), kind)
        self._window_s = setup.window_s(TOLERANCE_S)
        self._id, self._time, self._signature = prefix + b"-id", prefix + b"-timestamp", prefix + b"-signature"
        self.secret_fields = frozenset({self._signature})
        self.signed_fields = frozenset({self._id, self._time})

    def check(self, request: WebhookRequest, now: float) -> WebhookVerdict:
        """Check form, id, time and signature; any of the signatures may be the right one."""
        text = request.required(self._signature)
        event_id = request.required(self._id, WebhookRefusal.NO_ID)
        time = request.required(self._time, WebhookRefusal.NO_TIMESTAMP)
        if not _ID.fullmatch(event_id):
            raise RefusedWebhook(WebhookRefusal.BAD_ID)
        check_fresh(read_seconds(time), now, self._window_s)
        tag = self._match(b"%b.%b.%b" % (event_id, time, request.body), text)
        body = read_json(request.body, _StandardBody) or _StandardBody()
        return WebhookVerdict(
            claim=Claim("id", event_id), tag=tag, event_id=event_id.decode("ascii"), event_type=body.type
        )

    def _match(self, content: bytes, text: bytes) -> bytes:
        candidates = text.split(b" ", CANDIDATES_MAX)
        if len(candidates) > CANDIDATES_MAX:
            raise RefusedWebhook(WebhookRefusal.TOO_MANY_SIGNATURES)
        known = [parts for parts in (each.partition(b",") for each in candidates) if parts[0] in (b"v1", b"v1a")]
        if not known:
            raise RefusedWebhook(WebhookRefusal.BAD_SIGNATURE_FORM)
        expected = [key.tag(content) for key in self._keys.shared]
        for version, _, value in known:
            tag = read_base64(value, SHA256_BYTES if version == b"v1" else SIGNATURE_BYTES)
            if version == b"v1" and any(hmac.compare_digest(each, tag) for each in expected):
                return tag
            if version == b"v1a" and any(holds(key, content, tag) for key in self._keys.public):
                return tag
        raise RefusedWebhook(WebhookRefusal.WRONG_SIGNATURE)

    def document(self, request: WebhookRequest) -> bytes:
        """Return the body."""
        return request.body

    def sign(self, needs: SigningNeeds) -> list[tuple[bytes, bytes]]:
        """Sign by the newest shared key."""
        if not self._keys.shared:
            raise BadWebhookSetup("A whpk_ key only checks signatures; the sender alone has the key that signs.")
        event_id, time = needs.event_id.encode("utf-8"), b"%d" % int(needs.now)
        tag = self._keys.shared[0].tag(b"%b.%b.%b" % (event_id, time, needs.body))
        return [(self._id, event_id), (self._time, time), (self._signature, b"v1," + base64.b64encode(tag))]


def read_keys(secrets: tuple[bytes, ...], kind: str) -> StandardKeys:
    """Read `whsec_` and `whpk_` keys; anything else cannot work and is refused when the endpoint is made."""
    shared, public = [], []
    for secret in secrets:
        if secret.startswith(SHARED_PREFIX):
            shared.append(_read_shared(secret.removeprefix(SHARED_PREFIX)))
        elif secret.startswith(_PUBLIC_PREFIX):
            public.append(_read_public(secret.removeprefix(_PUBLIC_PREFIX)))
        else:
            raise BadWebhookSetup(f"A secret of kind {kind} begins with whsec_ or whpk_.")
    return StandardKeys(tuple(shared), tuple(public))


def _read_shared(text: bytes) -> HmacKey:
    key = decode_base64(text)
    if key is None or not _SHARED_BYTES_MIN <= len(key) <= _SHARED_BYTES_MAX:
        raise BadWebhookSetup("A whsec_ secret is whsec_ and the base64 of 24 to 64 bytes.")
    return HmacKey(key)


def _read_public(text: bytes) -> bytes:
    try:
        return read_public(decode_base64(text) or b"")
    except Malformed as exc:
        raise BadWebhookSetup("A whpk_ key is whpk_ and the base64 of a sound Ed25519 public key.") from exc
