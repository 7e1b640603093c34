"""Finds a node's addresses and token: given, or read from its data directory."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from penstock.sdk.errors import NoNode, NoService
from penstock.sdk.token_source import GivenToken, TokenFile, TokenSource
from penstock.sdk.token_text import clean_token

TOKEN_VARIABLE: Final = "PENSTOCK_TOKEN"  # noqa: S105 - the name of a variable
DIRECTORY_VARIABLE: Final = "PENSTOCK_DATA_DIR"
DIRECTORY_DEFAULT: Final = ".penstock"
_HOST: Final = "127.0.0.1"
# What a client calls.
_SERVICES: Final = ("mailbox", "passport", "storage", "dht", "interop")


def _http_ports(ports: Mapping[str, int]) -> dict[str, int]:
    """Return each service's HTTP port: one that also has a port for peers names it apart."""
    return {name.removesuffix("_http"): port for name, port in sorted(ports.items())}


class Discovery:
    """One node's addresses and token. The addresses are read again when the node is out of reach."""

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        token: str | TokenSource | None = None,
        ports: Mapping[str, int] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Take what is given; the rest is looked for in the data directory. With `tls`, given ports are https.

        An empty `token` is none at all: the operator's is not used either.
        """
        self._data_dir = data_dir
        self._token = _source(token, data_dir)
        self._tls = tls
        self._given = None if ports is None else {name: _door(port, tls) for name, port in _http_ports(ports).items()}
        self._doors: dict[str, dict[str, Any]] = {}
        # By certificate; made anew when the file is another.
        self._contexts: dict[str, tuple[int, ssl.SSLContext]] = {}

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Look where `PENSTOCK_DATA_DIR` says (default `.penstock`), with `PENSTOCK_TOKEN` if it is set."""
        # Not as a default in the signature: `help` prints those, and the environment holds secrets.
        environ = os.environ if environ is None else environ
        data_dir = Path(environ.get(DIRECTORY_VARIABLE) or DIRECTORY_DEFAULT)
        given = environ.get(TOKEN_VARIABLE)
        return cls(data_dir, token=None if given is None else clean_token(given, f"The variable {TOKEN_VARIABLE}"))

    def holding(self, token: str) -> Discovery:
        """Return the same node for the holder of another token."""
        other = Discovery(self._data_dir, token=clean_token(token), tls=self._tls)
        other._given = self._given
        return other

    def services(self) -> tuple[str, ...]:
        """Name the services that listen."""
        return tuple(self._known())

    def url(self, service: str) -> str:
        """Return a service's URL; `NoNode` when nothing runs there, `NoService` when it lacks this one."""
        doors = self._known()
        if service not in doors:
            raise NoService(f"The node runs no {service}; it has {', '.join(doors)}.")
        return str(doors[service]["url"])

    def context(self, service: str) -> ssl.SSLContext | None:
        """Return the TLS context for a service: the given one, else one that trusts only the node's certificate."""
        certificate = self._known().get(service, {}).get("certificate")
        if self._tls is not None or certificate is None:
            return self._tls
        written_ns = Path(certificate).stat().st_mtime_ns
        made_ns, context = self._contexts.get(certificate, (0, None))
        if context is None or made_ns != written_ns:
            # The node's own certificate and no other: its name need not be that of a loopback address.
            context = ssl.create_default_context(cafile=certificate)
            context.check_hostname = False
            self._contexts[certificate] = written_ns, context
        return context

    def token(self) -> str:
        """Return the capability to act with: the one given, else the operator's; empty when there is none."""
        return self._token.token()

    def renew_token(self) -> None:
        """Look for a newer token."""
        self._token.renew()

    def changed(self) -> bool:
        """Read the files again; tells whether the node has moved."""
        before, self._doors = self._doors, {}
        if self._given is None:
            self._doors = self._read_doors()
        return self._doors != before

    def _known(self) -> dict[str, dict[str, Any]]:
        if self._given is not None:
            return self._given
        self._doors = self._doors or self._read_doors()
        if not self._doors:
            raise _nobody(self._data_dir)
        return self._doors

    def _read_doors(self) -> dict[str, dict[str, Any]]:
        """Read where the services listen: `admin.json` knows hosts and certificates, `ports.json` the ports alone."""
        found = self._read("admin.json").get("services")
        if isinstance(found, dict) and found:
            return found
        return {name: _door(port, self._tls) for name, port in self._read("ports.json").items()} or self._read_alone()

    def _read_alone(self) -> dict[str, dict[str, Any]]:
        """Read where services listen that run by themselves, each with a file of its own."""
        said = {name: self._read(f"{name}.json") for name in _SERVICES}
        return {name: door for name, door in said.items() if door.get("url")}

    def _read(self, name: str) -> dict[str, Any]:
        if self._data_dir is None:
            return {}
        try:
            content = json.loads((self._data_dir / "run" / name).read_text(encoding="ascii"))
        except PermissionError as exc:
            raise _not_ours(self._data_dir) from exc
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}


def _source(token: str | TokenSource | None, data_dir: Path | None) -> TokenSource:
    if token is None and data_dir is not None:
        return TokenFile(data_dir / "operator.token", needed=False)
    if token is None or isinstance(token, str):
        return GivenToken(clean_token(token) if token else "")
    return token


def _nobody(data_dir: Path | None) -> NoNode:
    """Say where no node was found; a directory that is not there at all is mostly a wrong name."""
    if data_dir is None:
        return NoNode()
    there = data_dir.is_dir()
    what = "No node is running in" if there else "There is no node, and no directory,"
    how = "start one with `penstock up`, or name another data directory (PENSTOCK_DATA_DIR) or a URL (PENSTOCK_URL)"
    return NoNode(f"{what} {data_dir.absolute()}: {how}.")


def _not_ours(data_dir: Path) -> NoNode:
    return NoNode(
        f"The data directory {data_dir} belongs to another user: permission denied.",
        reason="permission",
        hint="Work as the user who runs the node, or go by its URL with a token of your own.",
    )


def _door(port: int, tls: ssl.SSLContext | None) -> dict[str, Any]:
    return {"url": f"{'http' if tls is None else 'https'}://{_HOST}:{port}", "certificate": None}
