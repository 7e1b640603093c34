"""Strict reading of signatures and times; pure.

Each reader accepts exactly one spelling of a value. Python's own readers are more generous: `int` takes `1_6` and
`+16`, `bytes.fromhex` takes blanks, base64 takes junk and unused bits. A second spelling would let one signed request
be sent again in another form.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec

from penstock.services.interop.providers.verdict import (
    BadWebhookSetup,
    RefusedWebhook,
    WebhookRefusal,
    WebhookRequest,
)
from penstock.wire.strict_base64 import decode_base64

__all__ = [
    "SHA256_BYTES",
    "TOLERANCE_S",
    "check_fresh",
    "check_secrets",
    "decode_base64",
    "is_form",
    "read_any_json",
    "read_base64",
    "read_hex",
    "read_json",
    "read_seconds",
]

SHA256_BYTES: Final = 32
TOLERANCE_S: Final = 300.0
_SECONDS: Final = re.compile(rb"[1-9][0-9]{0,11}")
_Struct = TypeVar("_Struct", bound=msgspec.Struct)
_FORM: Final = b"application/x-www-form-urlencoded"


def read_hex(text: bytes, size: int) -> bytes:
    """Read lower-case hex of exactly so many bytes."""
    try:
        data = binascii.unhexlify(text)
    except binascii.Error as exc:
        raise RefusedWebhook(WebhookRefusal.BAD_SIGNATURE_FORM) from exc
    # Written again it is the same text: upper case has another spelling.
    if len(data) != size or binascii.hexlify(data) != text:
        raise RefusedWebhook(WebhookRefusal.BAD_SIGNATURE_FORM)
    return data


def read_base64(text: bytes, size: int) -> bytes:
    """Read standard base64 of exactly so many bytes: no junk, full padding, unused bits zero."""
    data = decode_base64(text)
    if data is None or len(data) != size:
        raise RefusedWebhook(WebhookRefusal.BAD_SIGNATURE_FORM)
    return data


def read_seconds(text: bytes) -> int:
    """Read a Unix time in seconds."""
    if not _SECONDS.fullmatch(text):
        raise RefusedWebhook(WebhookRefusal.BAD_TIMESTAMP)
    return int(text)


def check_fresh(at_s: float, now: float, tolerance_s: float) -> None:
    """Refuse a time that is too far from now, in either direction."""
    if at_s < now - tolerance_s:
        raise RefusedWebhook(WebhookRefusal.TOO_OLD)
    if at_s > now + tolerance_s:
        raise RefusedWebhook(WebhookRefusal.IN_FUTURE)


def read_json(data: bytes, shape: type[_Struct]) -> _Struct | None:
    """Read the members of a JSON object that matter; None when it is no such object."""
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def read_any_json(data: bytes) -> Any:  # noqa: ANN401 - whatever the document holds
    """Read any JSON document; None when it is none."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def is_form(request: WebhookRequest) -> bool:
    """Tell whether the body says that it is a form."""
    media_type, _, _ = request.label(b"content-type").partition(";")
    return media_type.strip().lower().encode("ascii") == _FORM


def check_secrets(secrets: Sequence[bytes], kind: str) -> tuple[bytes, ...]:
    """Refuse an endpoint without a secret, or with an empty one: everybody could sign for it."""
    if not secrets or not all(secrets):
        raise BadWebhookSetup(f"An endpoint of kind {kind} needs at least one secret that is not empty.")
    return tuple(secrets)
