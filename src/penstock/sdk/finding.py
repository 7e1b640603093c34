"""Finds a node by what a caller gave, then by the environment, then by its data directory.

| looked at in this order | |
|---|---|
| what the call says | a URL, a data directory, or ports |
| `PENSTOCK_URL` | a URL |
| `PENSTOCK_DATA_DIR` | a data directory |
| `PENSTOCK_CONTEXT` | a named context |
| `./.penstock` | |

The token is the one given, else `PENSTOCK_TOKEN`, else what lies in the file of `PENSTOCK_TOKEN_FILE`, else the
context's, else the operator's in the data directory. A token file is read again when the node refuses its token.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.sdk.contexts import Contexts, NodeContext
from penstock.sdk.discovery import DIRECTORY_DEFAULT, DIRECTORY_VARIABLE, TOKEN_VARIABLE, Discovery
from penstock.sdk.errors import NoToken
from penstock.sdk.remote_place import NodePlace, RemotePlace, is_url, trusting
from penstock.sdk.token_text import clean_token

if TYPE_CHECKING:
    import ssl

URL_VARIABLE: Final = "PENSTOCK_URL"
TOKEN_FILE_VARIABLE: Final = "PENSTOCK_TOKEN_FILE"  # noqa: S105 - the name of a variable
CA_VARIABLE: Final = "PENSTOCK_CA"
CONTEXT_VARIABLE: Final = "PENSTOCK_CONTEXT"
_HOST_AND_PORT: Final = re.compile(r"[\w.-]+:\d{1,5}(/.*)?", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Whereabouts:
    """What a caller says of the node; what is None is looked for in the environment."""

    where: str | Path | None = None
    token: str | None = None
    token_file: Path | None = None
    ca: Path | None = None
    context: str | None = None
    ports: Mapping[str, int] | None = None
    tls: ssl.SSLContext | None = None


def find(said: Whereabouts, environ: Mapping[str, str] | None = None) -> NodePlace:
    """Return where the node is; nothing is dialled."""
    env = os.environ if environ is None else environ
    context = _context(said, env)
    where = said.where or (None if said.context else env.get(URL_VARIABLE) or env.get(DIRECTORY_VARIABLE))
    if where is None and context is not None:
        where = context.url or context.data_dir
    token = _token(said, env, context)
    ca = said.ca or _path(env.get(CA_VARIABLE)) or (None if context is None else _path(context.ca))
    if is_url(where) or _names_a_host(where):
        return RemotePlace(str(where), token=token or str, ca=ca, tls=said.tls)
    tls = said.tls if said.tls is not None or ca is None else trusting(ca)
    return Discovery(Path(where or DIRECTORY_DEFAULT), token=token and token(), ports=said.ports, tls=tls)


def _context(said: Whereabouts, env: Mapping[str, str]) -> NodeContext | None:
    """Return the context to go by; one that the environment names counts only where nothing else is said."""
    if said.context is not None:
        return Contexts.of(env).get(said.context)
    if said.where is not None or said.ports is not None or env.get(URL_VARIABLE) or env.get(DIRECTORY_VARIABLE):
        return None
    name = env.get(CONTEXT_VARIABLE)
    return Contexts.of(env).get(name) if name else None


def _token(said: Whereabouts, env: Mapping[str, str], context: NodeContext | None) -> Callable[[], str] | None:
    """Return what reads the token; None leaves it to the data directory."""
    if said.token:
        given = clean_token(said.token)
        return lambda: given
    exported = None if said.token_file else env.get(TOKEN_VARIABLE)
    if exported:
        from_env = clean_token(exported, f"The token in {TOKEN_VARIABLE}")
        return lambda: from_env
    file = (
        said.token_file or _path(env.get(TOKEN_FILE_VARIABLE)) or _path(None if context is None else context.token_file)
    )
    return None if file is None else lambda: read_token_file(file)


def read_token_file(file: Path) -> str:
    """Return the token in a file, or say why there is none."""
    try:
        text = file.read_text(encoding="ascii")
    except (OSError, ValueError) as exc:
        why = exc.strerror if isinstance(exc, OSError) and exc.strerror else "it is no text"
        raise NoToken(f"The token file {file} cannot be read: {why}.") from exc
    return clean_token(text, f"What lies in the token file {file}")


def _names_a_host(where: str | Path | None) -> bool:
    """Tell a URL without its scheme, which is refused as a URL, from a directory."""
    return isinstance(where, str) and _HOST_AND_PORT.fullmatch(where) is not None and not Path(where).exists()


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
