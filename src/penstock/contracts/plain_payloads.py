"""Payloads that people can read: text and JSON, beside bytes. Pure.

A sender may write `payload`, a string or any JSON value, instead of `payload_b64`. What is stored are bytes: UTF-8 of
the text, or compact JSON. The attribute `content-type` says which it was, and a receiver gets `payload` back where that
can be done without changing anything.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from penstock.contracts import mailbox as m
from penstock.kernel.errors import Malformed
from penstock.wire.plain_words import plain_fault

CONTENT_TYPE: Final = "content-type"
TEXT: Final = "text/plain"
JSON: Final = "application/json"
# Neither sorts nor spaces anything: what is stored is what was meant, in the order it was written.
_encode: Final = msgspec.json.Encoder().encode
_NAMED: Final = b'"payload"'


class PlainSend(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One message whose payload is a text or any JSON value."""

    topic: m.NewTopic
    payload: Any
    payload_b64: str | UnsetType = UNSET
    payload_hash: m.Hash | None = None
    idem_key: m.Key | None = None
    attrs: dict[str, str] = {}
    key: m.Key | None = None
    delay_ms: m.DelayMs | None = None
    ttl_ms: m.TtlMs | None = None
    group: m.Group | None = None
    meta: bytes | None = None
    origin: m.MessageOrigin | None = None


_decode: Final = msgspec.json.Decoder(PlainSend).decode


def payload_bytes(payload: object) -> tuple[bytes, str]:
    """Return the bytes to store for a text or a JSON value, and their type."""
    if isinstance(payload, str):
        return payload.encode(), TEXT
    return _encode(payload), JSON


def read_plain_send(body: bytes) -> m.Send:
    """Read a message that has `payload` instead of `payload_b64`; one that has neither is told by its first reader."""
    if _NAMED not in body:
        raise msgspec.ValidationError("no payload")
    try:
        plain = _decode(body)
        if plain.payload_b64 is not UNSET:
            raise Malformed("Give payload or payload_b64, not both.", reason="two_payloads")
        data, kind = payload_bytes(plain.payload)
        attrs = plain.attrs if CONTENT_TYPE in plain.attrs else {**plain.attrs, CONTENT_TYPE: kind}
        return m.Send(
            plain.topic, data, plain.payload_hash, plain.idem_key, attrs, plain.key, plain.delay_ms, plain.ttl_ms,
            plain.group, plain.meta, plain.origin,
        )  # fmt: skip
    except (msgspec.ValidationError, ValueError) as exc:
        raise Malformed(plain_fault(str(exc))) from exc


def plain_json(payload: bytes, attrs: dict[str, str]) -> bytes | None:
    """Return `payload` as the JSON of an answer, if its type says that it is text or JSON and it is; else None."""
    kind = attrs.get(CONTENT_TYPE, "").partition(";")[0].strip().lower()
    try:
        if kind == JSON:
            msgspec.json.decode(payload)
            return payload
        return _encode(payload.decode("utf-8")) if kind == TEXT else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
