"""Any other sender that signs by HMAC-SHA256: the settings say where the signature stands and what it covers.

`format` describes the signature field: `{hex}` or `{b64}` is the signature, `{ts}` the time if it stands there too.
`template` describes the signed text: `{body}` once, `{ts}` and `{id}` if they are signed. Everything else in either is
literal. A template in which one text could be read in two ways is refused when the endpoint is made.
"""

from __future__ import annotations

import base64
import re
from itertools import pairwise
from typing import Final

from penstock.services.interop.providers.claims import Claim, by_content
from penstock.services.interop.providers.decoding import (
    SHA256_BYTES,
    TOLERANCE_S,
    check_fresh,
    read_base64,
    read_hex,
    read_seconds,
)
from penstock.services.interop.providers.hmac_key import check_tags, hmac_keys
from penstock.services.interop.providers.setup import WebhookSetup
from penstock.services.interop.providers.verdict import (
    BadWebhookSetup,
    RefusedWebhook,
    SigningNeeds,
    WebhookRefusal,
    WebhookRequest,
    WebhookVerdict,
)

_PART: Final = re.compile(r"(\{[a-z0-9]*\})")
_FIELD_NAME: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_ID: Final = re.compile(rb"[A-Za-z0-9_-]{1,256}")
_ID_CHARS: Final = re.compile(r"[A-Za-z0-9_-]")
_IN_FORMAT: Final = {"{ts}": rb"(?P<ts>[0-9]{1,16})", "{hex}": rb"(?P<hex>[^,; ]*)", "{b64}": rb"(?P<b64>[^,; ]*)"}


class CustomHmacVerifier:
    """An endpoint whose scheme is in its settings."""

    def __init__(self, setup: WebhookSetup) -> None:
        """Take the settings apart; what cannot work is refused here."""
        self._keys = hmac_keys(setup.secrets, "hmac")
        self._window_s = setup.window_s(TOLERANCE_S)
        self._header, self._time, self._id = (
            _field_name(name, key)
            for key, name in (
                ("header", setup.header), ("timestamp_header", setup.timestamp_header), ("id_header", setup.id_header)
            )
        )  # fmt: skip
        if not self._header:
            raise BadWebhookSetup("An endpoint of kind hmac needs `header`, the field with the signature.")
        self._format, self._template = _split(setup.format), _split(setup.template)
        _check_format(self._format)
        _check_template(self._template)
        self._check_sources()
        self._pattern = re.compile(
            b"".join(_IN_FORMAT.get(part) or re.escape(part.encode("utf-8")) for part in self._format)
        )
        self.secret_fields = frozenset({self._header})
        self.signed_fields = frozenset({self._time, self._id} - {b""})

    def _check_sources(self) -> None:
        """Refuse a time or id that is signed but not sent, sent twice, or sent but not signed."""
        sources = ("{ts}" in self._format) + bool(self._time)
        if sources != ("{ts}" in self._template):
            raise BadWebhookSetup(
                "`{ts}` stands in `template` exactly when `format` or timestamp_header gives the time."
            )
        if bool(self._id) != ("{id}" in self._template):
            raise BadWebhookSetup("`{id}` stands in `template` exactly when id_header names its field.")

    def check(self, request: WebhookRequest, now: float) -> WebhookVerdict:
        """Check form, time and signature."""
        found = self._pattern.fullmatch(request.required(self._header))
        if found is None:
            raise RefusedWebhook(WebhookRefusal.BAD_SIGNATURE_FORM)
        given = found.groupdict()
        tag = read_hex(given["hex"], SHA256_BYTES) if "hex" in given else read_base64(given["b64"], SHA256_BYTES)
        time = request.required(self._time, WebhookRefusal.NO_TIMESTAMP) if self._time else given.get("ts", b"")
        if "{ts}" in self._template:
            check_fresh(read_seconds(time), now, self._window_s)
        event_id = self._event_id(request)
        check_tags(self._keys, self._content(request.body, time, event_id), (tag,))
        claim = Claim("id", event_id) if event_id else by_content(request.body)
        return WebhookVerdict(claim=claim, tag=tag, event_id=event_id.decode("ascii"))

    def _event_id(self, request: WebhookRequest) -> bytes:
        if not self._id:
            return b""
        event_id = request.required(self._id, WebhookRefusal.NO_ID)
        if not _ID.fullmatch(event_id):
            raise RefusedWebhook(WebhookRefusal.BAD_ID)
        return event_id

    def _content(self, body: bytes, time: bytes, event_id: bytes) -> bytes:
        values = {"{ts}": time, "{id}": event_id, "{body}": body}
        return b"".join(values[part] if part in values else part.encode("utf-8") for part in self._template)

    def document(self, request: WebhookRequest) -> bytes:
        """Return the body."""
        return request.body

    def sign(self, needs: SigningNeeds) -> list[tuple[bytes, bytes]]:
        """Sign as the settings say."""
        time, event_id = b"%d" % int(needs.now), needs.event_id.encode("utf-8")
        tag = self._keys[0].tag(self._content(needs.body, time, event_id))
        values = {"{ts}": time, "{hex}": tag.hex().encode("ascii"), "{b64}": base64.b64encode(tag)}
        text = b"".join(values.get(part) or part.encode("utf-8") for part in self._format)
        extra = [(name, value) for name, value in ((self._time, time), (self._id, event_id)) if name]
        return [(self._header, text), *extra]


def _field_name(name: str, key: str) -> bytes:
    if name and not _FIELD_NAME.fullmatch(name):
        raise BadWebhookSetup(f"`{key}` is the name of a header field.")
    return name.lower().encode("ascii")


def _split(text: str) -> list[str]:
    return [part for part in _PART.split(text) if part]


def _check_format(parts: list[str]) -> None:
    names = [part for part in parts if part.startswith("{")]
    signatures = names.count("{hex}") + names.count("{b64}")
    if signatures != 1 or names.count("{ts}") > 1 or set(names) - set(_IN_FORMAT):
        raise BadWebhookSetup("`format` holds one of {hex} and {b64}, {ts} at most once, and no other braces.")
    if any(a.startswith("{") and b.startswith("{") for a, b in pairwise(parts)):
        raise BadWebhookSetup("`format` needs some text between the time and the signature.")


def _check_template(parts: list[str]) -> None:
    names = [part for part in parts if part.startswith("{")]
    if names.count("{body}") != 1 or len(set(names)) != len(names) or set(names) - {"{body}", "{ts}", "{id}"}:
        raise BadWebhookSetup("`template` holds {body} once, {ts} and {id} at most once, and no other braces.")
    after = dict(zip(parts, [*parts[1:], ""], strict=True))
    if names[-1] != "{body}":
        raise BadWebhookSetup("`template` ends with {body}, or with text after it: time and id stand before the body.")
    if "{id}" in after and (after["{id}"].startswith("{") or _ID_CHARS.match(after["{id}"])):
        raise BadWebhookSetup("In `template` some text such as a dot has to follow {id}: it says where the id ends.")
    if "{ts}" in after and (after["{ts}"] == "{id}" or after["{ts}"][:1].isdigit()):
        raise BadWebhookSetup("In `template` some text such as a dot has to follow {ts}: it says where the time ends.")
