"""The body of a put as JSON, read alike by svc-interop and by the gateway before it. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.kernel.errors import Malformed
from penstock.wire.inflate import Inflater
from penstock.wire.strict_base64 import decode_base64

PUT_BYTES_MAX: Final = 1 << 20
_RATIO_MAX: Final = 10


class PutMeta(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the payload is."""

    type: str = ""
    content_encoding: str = "identity"


class PutIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes to store, in base64."""

    payload: str
    meta: PutMeta = PutMeta()


class PutAnswer(msgspec.Struct, frozen=True):
    """Where the bytes are."""

    address: str
    corr_id: str


_read: Final = msgspec.json.Decoder(PutIn).decode


def read_put(body: bytes) -> bytes:
    """Return the bytes to store; Malformed, or Unsupported for an encoding that is not known."""
    try:
        asked = _read(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise Malformed(f"The body is not a put: {exc}.") from exc
    data = decode_base64(asked.payload.encode("utf-8"))
    if data is None:
        raise Malformed("`payload` is not base64.", reason="bad_base64")
    return inflated(data, asked.meta.content_encoding)


def inflated(data: bytes, encoding: str) -> bytes:
    """Return what compressed bytes stand for: at most ten times as many, and at most 1 MiB."""
    if encoding == "identity":
        return data
    inflater = Inflater(encoding.encode("ascii", "replace"), ratio_cap=_RATIO_MAX, bytes_max=PUT_BYTES_MAX)
    whole = b"".join(inflater.feed(data))
    inflater.finish()
    return whole
