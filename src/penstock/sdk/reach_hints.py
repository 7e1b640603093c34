"""What to do when a node cannot be spoken to, by how the attempt failed. Pure."""

from __future__ import annotations

from typing import Final

_UNTRUSTED: Final = (
    "The node's certificate is not by an authority that is trusted here, or is for another host. "
    "Give its CA file (--ca, PENSTOCK_CA, or ca= of connect), and the host name that is in the certificate."
)
_HINTS: Final = (
    ("CERTIFICATE_VERIFY_FAILED", _UNTRUSTED),
    ("WRONG_VERSION_NUMBER", "That port does not speak TLS: write http://, or give the port of the gateway."),
    ("HTTP_REQUEST", "That port does not speak TLS: write http://, or give the port of the gateway."),
    ("Name or service not known", "Check the host in the URL."),
    ("connection ended before the answer", "If the node has a certificate there, write https://."),
    ("closed connection without response", "If the node has a certificate there, write https://."),
)


def reach_hint(said: str) -> str:
    """Return what to do about a failure to reach a node; empty when nothing is known about it."""
    return next((hint for words, hint in _HINTS if words in said), "")
