"""Payloads that people can read: text and JSON, beside bytes. Pure.

A sender may write `payload`, a string or any JSON value, instead of `payload_b64`. What is stored are bytes: UTF-8 of
the text, or compact JSON. The attribute `content-type` says which it was, and a receiver gets `payload` back where that
can be done without changing anything.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import Any, Final

import msgspec

from penstock.contracts import mailbox as m
from penstock.kernel.errors import Malformed
from penstock.wire.plain_words import fault_facts, plain_fault

CONTENT_TYPE: Final = "content-type"
TEXT: Final = "text/plain"
JSON: Final = "application/json"
# Neither sorts nor spaces anything: what is stored is what was meant, in the order it was written.
_encode: Final = msgspec.json.Encoder().encode
_NULL: Final = b"null"
_pack: Final = msgspec.msgpack.Encoder().encode
# How msgpack begins a number that is not finite; other bytes may look the same.
_NAN_PACKED: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")


class PlainSend(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename={"meta": "meta_b64"}
):
    """One message whose payload is a text or any JSON value."""

    topic: m.NewTopic
    payload: Any
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
_fields_of: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_NO_PAYLOAD: Final = "Object missing required field `payload`"


def payload_bytes(payload: object) -> tuple[bytes, str]:
    """Return the bytes to store for a text or a JSON value, and their type; `ValueError` for a number JSON lacks."""
    if isinstance(payload, str):
        return payload.encode(), TEXT
    data = _encode(payload)
    # The encoder writes NaN and the infinities as null, which would be another message. Without one there is none.
    if _NULL in data and _may_hold_nan(payload) and (place := _not_finite(msgspec.to_builtins(payload))):
        raise ValueError(f"{place}, and JSON has no such number; send None or a text in its place")
    return data, JSON


def _may_hold_nan(payload: object) -> bool:
    """Rule most values with a null out, many times faster than by looking at each part of them."""
    try:
        return _NAN_PACKED.search(_pack(payload)) is not None
    except OverflowError:
        # A whole number of more than 64 bits, which JSON has and msgpack lacks.
        return True


def _not_finite(payload: object) -> str:
    """Say where in a JSON value the first number is that JSON cannot write, as `sizes[2].width is nan`."""
    todo: list[tuple[str, object]] = [("", payload)]
    while todo:
        where, value = todo.pop()
        if isinstance(value, float) and not isfinite(value):
            return f"{where.removeprefix('.') or 'the value'} is {value}"
        if isinstance(value, dict):
            todo += [(f"{where}.{name}", value[name]) for name in reversed(value)]
        elif isinstance(value, list | tuple):
            todo += [(f"{where}[{place}]", value[place]) for place in reversed(range(len(value)))]
    return ""


def read_plain_send(body: bytes) -> m.Send:
    """Read a message that has `payload` instead of `payload_b64`.

    Raises as msgspec does for a message without `payload`, so that its first reader says what is wrong with it.
    """
    try:
        plain = _decode(body)
        data, kind = payload_bytes(plain.payload)
        attrs = plain.attrs if CONTENT_TYPE in plain.attrs else {**plain.attrs, CONTENT_TYPE: kind}
        return m.Send(
            plain.topic, data, plain.payload_hash, plain.idem_key, attrs, plain.key, plain.delay_ms, plain.ttl_ms,
            plain.group, plain.meta, plain.origin,
        )  # fmt: skip
    except (msgspec.ValidationError, ValueError) as exc:
        raise _refusal(body, str(exc)) from exc


def _refusal(body: bytes, said: str) -> Exception:
    """Say what is wrong with a message, by which payloads it has."""
    given = _fields_of(body)
    if "payload" in given and "payload_b64" in given:
        return Malformed("Give payload or payload_b64, not both.", reason="two_payloads")
    if "payload" in given:
        return Malformed(plain_fault(said, PlainSend), **fault_facts(said))
    if "payload_b64" not in given and said == _NO_PAYLOAD:
        return Malformed(
            "There is no payload: give payload, a text or any JSON value, or payload_b64, bytes as Base64.",
            reason="no_payload",
        )
    return msgspec.ValidationError(said)


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
