"""Finds a node by what a caller gave, then by the environment, then by its data directory.

| looked at in this order | |
|---|---|
| what the call says | a URL, a data directory, or ports |
| `PENSTOCK_URL` | a URL |
| `PENSTOCK_DATA_DIR` | a data directory |
| `PENSTOCK_CONTEXT` | a named context |
| `./.penstock` | |

The token is the one given, else `PENSTOCK_TOKEN`, else what lies in the file of `PENSTOCK_TOKEN_FILE`, else the
context's, else the operator's in the data directory. One that is given and empty is refused: the next one in this list
may belong to somebody who may do more. `token_source` says when it is looked for again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.kernel.errors import Malformed
from penstock.sdk.contexts import Contexts, NodeContext
from penstock.sdk.discovery import DIRECTORY_DEFAULT, DIRECTORY_VARIABLE, TOKEN_VARIABLE, Discovery
from penstock.sdk.errors import NoToken
from penstock.sdk.remote_place import NodePlace, RemotePlace, is_url, trusting
from penstock.sdk.token_source import GivenToken, TokenFile, TokenFunction, TokenSource
from penstock.sdk.token_text import clean_token
from penstock.sdk.values import in_words

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
    token: str | Callable[[], str] | None = None
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
    if token is not None:
        # Before any call: whoever names a token and has none must not act as somebody else, or as nobody.
        token.token()
    if is_url(where) or _names_a_host(where):
        place = RemotePlace(str(where), token=token, ca=ca, tls=said.tls)
        # A CA file that cannot be used is a wrong argument, and no call is needed to say so.
        place.context("omnigate")
        return place
    tls = said.tls if said.tls is not None or ca is None else trusting(ca)
    return Discovery(Path(where or DIRECTORY_DEFAULT), token=token, ports=said.ports, tls=tls)


def _context(said: Whereabouts, env: Mapping[str, str]) -> NodeContext | None:
    """Return the context to go by; one that the environment names counts only where nothing else is said."""
    if said.context is not None:
        return Contexts.of(env).get(said.context)
    if said.where is not None or said.ports is not None or env.get(URL_VARIABLE) or env.get(DIRECTORY_VARIABLE):
        return None
    name = env.get(CONTEXT_VARIABLE)
    return Contexts.of(env).get(name) if name else None


def _token(said: Whereabouts, env: Mapping[str, str], context: NodeContext | None) -> TokenSource | None:
    """Return where the token comes from; None leaves it to the data directory."""
    if said.token is not None:
        return _given(said.token, said.token_file)
    if said.token_file is not None:
        return TokenFile(said.token_file)
    if TOKEN_VARIABLE in env:
        return GivenToken(clean_token(env[TOKEN_VARIABLE], f"The variable {TOKEN_VARIABLE}"))
    if TOKEN_FILE_VARIABLE in env:
        return TokenFile(Path(_not_blank(env[TOKEN_FILE_VARIABLE], TOKEN_FILE_VARIABLE)))
    file = None if context is None else _path(context.token_file)
    return None if file is None else TokenFile(file)


def _given(token: object, token_file: Path | None) -> TokenSource:
    if token_file is not None:
        raise Malformed("Give token or token_file, not both.")
    if callable(token):
        return TokenFunction(token)
    if not isinstance(token, str):
        raise Malformed(f"token is a text, or a function that returns one, not {in_words(token)}.")
    return GivenToken(clean_token(token))


def _not_blank(text: str, variable: str) -> str:
    """Return the value of a variable that is set; an empty one does not mean that another token shall be used."""
    if not text.strip():
        raise NoToken(f"The variable {variable} is empty.", hint="Unset it, or name a file that holds a token.")
    return text


def _names_a_host(where: str | Path | None) -> bool:
    """Tell a URL without its scheme, which is refused as a URL, from a directory."""
    return isinstance(where, str) and _HOST_AND_PORT.fullmatch(where) is not None and not Path(where).exists()


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
