"""A node that is known by its URL: the gateway's, which reaches every service, or one service's own."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final, Protocol, Self
from urllib.parse import urlsplit

from penstock.kernel.errors import Malformed
from penstock.sdk.token_source import GivenToken, TokenSource
from penstock.sdk.token_text import clean_token

SERVICES: Final = ("mailbox", "passport", "storage", "dht", "interop", "omnigate")


class NodePlace(Protocol):
    """Where a node is, how its certificate is judged, and with which token it is asked."""

    def holding(self, token: str) -> Self:
        """Return the same node for the holder of another token."""
        ...

    def services(self) -> tuple[str, ...]:
        """Name the services that can be called."""
        ...

    def url(self, service: str) -> str:
        """Return the URL below which a service's paths are."""
        ...

    def context(self, service: str) -> ssl.SSLContext | None:
        """Return the TLS context for a service; None: the system's authorities."""
        ...

    def token(self) -> str:
        """Return the capability to act with; empty when there is none."""
        ...

    def renew_token(self) -> None:
        """Look for a newer token at once, because the node refused this one; `NoToken` when it cannot be read."""
        ...

    def changed(self) -> bool:
        """Look again where the node is; tells whether that is different."""
        ...


def is_url(where: object) -> bool:
    """Tell a URL from a directory."""
    return isinstance(where, str) and "://" in where


class RemotePlace:
    """One base URL for all services, the token, and the authority that the certificate is held against."""

    def __init__(
        self, url: str, *, token: TokenSource | None = None, ca: Path | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        """Take a URL, and where the token comes from; without one, calls are made with none."""
        self._url = base_url(url)
        self._token = token or GivenToken("")
        self._ca = ca
        self._tls = tls

    @property
    def ca(self) -> Path | None:
        """Return the file of the authorities that were given; None: the system's."""
        return self._ca

    def holding(self, token: str) -> RemotePlace:
        """Return the same node for the holder of another token."""
        return RemotePlace(self._url, token=GivenToken(clean_token(token)), ca=self._ca, tls=self._tls)

    def services(self) -> tuple[str, ...]:
        """Name every service: which of them a URL leads to is known by asking."""
        return SERVICES

    def url(self, service: str) -> str:
        """Return the base."""
        return self._url

    def context(self, service: str) -> ssl.SSLContext | None:
        """Return a context that trusts the given authority alone; without one, the system's."""
        if self._tls is None and self._ca is not None and self._url.startswith("https:"):
            self._tls = trusting(self._ca)
        return self._tls

    def token(self) -> str:
        """Return the capability to act with."""
        return self._token.token()

    def renew_token(self) -> None:
        """Look for a newer token."""
        self._token.renew()

    def changed(self) -> bool:
        """Tell that a URL stays what it is."""
        return False


def trusting(ca: Path) -> ssl.SSLContext:
    """Make a context that trusts the authorities of this file and no others."""
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as exc:
        why = "it holds no certificate" if isinstance(exc, ssl.SSLError) else exc.strerror or str(exc)
        said = f"The CA file {ca} cannot be used: {why}."
        raise Malformed(said, reason="bad_ca", hint="Give a file of PEM certificates.") from exc


def base_url(text: str) -> str:
    """Check a node's URL and return it without a slash at its end."""
    parts = urlsplit(text)
    try:
        port_is_one = parts.port != 0
    except ValueError:
        port_is_one = False
    if not port_is_one:
        raise _no_url(text, "its port is a number from 1 to 65535, as https://queue.example.org:5306")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _no_url(text, "it begins with http:// or https:// and names a host, as https://queue.example.org:5306")
    if parts.username is not None or parts.query or parts.fragment:
        raise _no_url(text, "it holds no user, query or fragment; the token goes into PENSTOCK_TOKEN or a token file")
    return text.rstrip("/")


def _no_url(text: str, rule: str) -> Malformed:
    shown = text.rpartition("@")[2][:200]
    return Malformed(f"{shown!r} is no URL of a node: {rule}.", reason="bad_url")
