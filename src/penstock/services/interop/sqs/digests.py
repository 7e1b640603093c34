"""The MD5 digests by which SQS clients check what they sent and received; no secret hangs on them; pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

_TEXT: Final = b"\x01"
_BINARY: Final = b"\x02"


def body_md5(body: bytes) -> str:
    """Digest a message's body, as UTF-8."""
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


def attributes_md5(attributes: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Digest message attributes in the order of their names; None when there are none."""
    if not attributes:
        return None
    text = b"".join(part for name in sorted(attributes) for part in _parts(name, attributes[name]))
    return hashlib.md5(text, usedforsecurity=False).hexdigest()


def _parts(name: str, value: Mapping[str, Any]) -> Iterator[bytes]:
    yield _prefixed(name.encode("utf-8"))
    yield _prefixed(value["DataType"].encode("utf-8"))
    is_binary = value["DataType"].startswith("Binary")
    yield _BINARY if is_binary else _TEXT
    yield _prefixed(value["BinaryValue"] if is_binary else value["StringValue"].encode("utf-8"))


def _prefixed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data
