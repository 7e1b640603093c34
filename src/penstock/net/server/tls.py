"""Certificates: TLS 1.3 only, and a key nobody else can read."""

from __future__ import annotations

import ssl
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class CertificateRefused(Exception):
    """A certificate or key cannot be used; the message says why in one sentence."""


def server_context(cert_path: Path, key_path: Path) -> ssl.SSLContext:
    """Return the listener's context; refuse a key file that group or world can read."""
    try:
        mode = stat.S_IMODE(key_path.stat().st_mode)
        if mode & 0o077:
            raise CertificateRefused(f"{key_path} can be read by others (mode {mode:04o}); make it 0600")
        return _context(cert_path, key_path)
    except ssl.SSLError as exc:
        why = f": {exc.reason}" if exc.reason else ", or not PEM files"
        raise CertificateRefused(f"{cert_path} and {key_path} are no certificate and its key{why}") from exc
    except OSError as exc:
        raise CertificateRefused(f"{exc.filename or cert_path} cannot be read: {exc.strerror}") from exc


def _context(cert_path: Path, key_path: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(cert_path, key_path)
    context.set_alpn_protocols(["http/1.1"])
    return context
