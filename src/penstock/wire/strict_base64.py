"""Base64 with exactly one spelling for each sequence of bytes. Pure."""

from __future__ import annotations

import base64
import binascii


def decode_base64(text: bytes) -> bytes | None:
    """Decode base64, or None if it is not the one canonical spelling: no junk, full padding, unused bits zero."""
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        return None
    return data if base64.b64encode(data) == text else None
