"""Values out of a delivery by an endpoint's settings: its ordering key, and a claim that is not automatic."""

from __future__ import annotations

import re
from typing import Any, Final

from penstock.services.interop.providers.claims import Claim
from penstock.services.interop.providers.decoding import read_any_json
from penstock.services.interop.providers.verdict import (
    BadWebhookSetup,
    WebhookRequest,
    WebhookVerdict,
    WebhookVerifier,
)

_VALUE_CHARS_MAX: Final = 256
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")
_FIELD: Final = re.compile(r"[A-Za-z0-9-]{1,64}")


class DeliveryValue:
    """`pointer:<JSON pointer>` or `header:<name>`: where a value stands in a delivery."""

    __slots__ = ("_field", "_tokens", "text")

    def __init__(self, text: str) -> None:
        """Read the words; refuse those that name nothing."""
        kind, _, where = text.partition(":")
        self.text = text
        self._tokens: tuple[str, ...] | None = None
        self._field = b""
        if kind == "pointer" and where.startswith("/"):
            self._tokens = tuple(token.replace("~1", "/").replace("~0", "~") for token in where[1:].split("/"))
        elif kind == "header" and _FIELD.fullmatch(where):
            self._field = where.lower().encode("ascii")
        else:
            raise BadWebhookSetup("This is pointer: and a JSON pointer such as /id, or header: and a field's name.")

    @property
    def signed(self) -> bool:
        """Tell whether the value stands in the body."""
        return self._tokens is not None

    def find(self, verifier: WebhookVerifier, request: WebhookRequest) -> str:
        """Return the value as text; empty when there is none, or it is no text and no whole number."""
        if self._tokens is None:
            return request.label(self._field)
        value = read_any_json(verifier.document(request))
        for token in self._tokens:
            value = _step(value, token)
        return _as_text(value)


def _step(value: Any, token: str) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, dict):
        return value.get(token)
    if isinstance(value, list) and _INDEX.fullmatch(token) and int(token) < len(value):
        return value[int(token)]
    return None


def _as_text(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return ""
    if isinstance(value, int) and value.bit_length() > 1024:
        return ""
    text = str(value)
    return text if len(text) <= _VALUE_CHARS_MAX else ""


class ClaimRule:
    """`claim` of an endpoint: auto, none, signature, pointer:... or header:...; a missing value falls back to auto."""

    __slots__ = ("_value", "_word")

    def __init__(self, text: str) -> None:
        """Read the setting; refuse words that name no rule."""
        self._word = text
        self._value = None if text in ("auto", "none", "signature") else DeliveryValue(text)

    def choose(self, verifier: WebhookVerifier, request: WebhookRequest, verdict: WebhookVerdict) -> Claim | None:
        """Return what names this event, or None when every delivery is an event of its own."""
        if self._word == "none":
            return None
        if self._word == "signature" and verdict.tag:
            return Claim("signature", verdict.tag)
        found = "" if self._value is None else self._value.find(verifier, request)
        if self._value is None or not found:
            return verdict.claim
        return Claim("pointer" if self._value.signed else "header", found.encode("utf-8"))
