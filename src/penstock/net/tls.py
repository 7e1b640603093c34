"""Certificates: TLS 1.3 only, and a key nobody else can read."""

from __future__ import annotations

import ssl
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def server_context(cert_path: Path, key_path: Path) -> ssl.SSLContext:
    """Return the listener's context; refuse a key file that group or world can read."""
    mode = stat.S_IMODE(key_path.stat().st_mode)
    if mode & 0o077:
        raise ValueError(f"{key_path} can be read by others (mode {mode:04o}); make it 0600")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(cert_path, key_path)
    context.set_alpn_protocols(["http/1.1"])
    return context
