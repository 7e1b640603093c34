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
    ("the host name", "Check the host in the URL."),
    ("connection ended before the answer", "If the node has a certificate there, write https://."),
    ("closed connection without response", "If the node has a certificate there, write https://."),
)


_BY_URL: Final = (
    "Check that the node runs, and that host and port are those of its gateway (5306 unless it was told another)."
)
_NOT_A_NODE: Final = "Give the URL of the node's gateway: host and port (5306 unless it was told another), and no path."
NO_ROUTE: Final = "There is no such route."


def url_hint(said: str) -> str:
    """Return what to do about a failure at a node that is known by its URL."""
    if said == NO_ROUTE:
        return f"This may be the URL of another service, or of an older node. {_NOT_A_NODE}"
    if "not a penstock node" in said or "is not HTTP/1" in said:
        return _NOT_A_NODE
    return _BY_URL if "out of reach" in said else ""


def reach_hint(said: str) -> str:
    """Return what to do about a failure to reach a node; empty when nothing is known about it."""
    return next((hint for words, hint in _HINTS if words in said), "")
