"""Named nodes of a user: where each is, and the files that hold its token and its authority.

They lie in `contexts.json` in the user's configuration directory, readable by the user alone. A token itself is never
in it: a context names the file that holds one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

import msgspec

from penstock.kernel.errors import Malformed, NotFound
from penstock.wire.plain_words import near_word

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
CONTEXTS_MAX: Final = 256


class NodeContext(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """One node: a URL or a data directory, and the files that go with it."""

    url: str | None = None
    data_dir: str | None = None
    token_file: str | None = None
    ca: str | None = None


class _Kept(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What the file holds."""

    contexts: dict[str, NodeContext] = {}
    current: str | None = None


class Contexts:
    """The user's contexts. Each change reads the file and writes it anew."""

    def __init__(self, file: Path) -> None:
        """Name the file; it need not be there."""
        self.file = file

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self:
        """Return those of the user: in `$XDG_CONFIG_HOME/penstock`, else in `~/.config/penstock`."""
        home = environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or "~").expanduser() / ".config"
        return cls(Path(home) / "penstock" / "contexts.json")

    @property
    def current(self) -> str | None:
        """Name the one that the command line goes by where nothing else is said."""
        return self._read().current

    def all(self) -> dict[str, NodeContext]:
        """Return every context by its name."""
        return dict(sorted(self._read().contexts.items()))

    def get(self, name: str) -> NodeContext:
        """Return one; `NotFound` names what is near."""
        known = self._read().contexts
        if name not in known:
            raise _unknown(name, known)
        return known[name]

    def put(self, name: str, context: NodeContext) -> None:
        """Add one, or put another in its place."""
        if not _NAME.fullmatch(name):
            raise Malformed(f"{name!r} is no name of a context: up to 64 letters, digits, dots, dashes, underscores.")
        kept = self._read()
        if name not in kept.contexts and len(kept.contexts) >= CONTEXTS_MAX:
            raise Malformed(f"There are {CONTEXTS_MAX} contexts already; remove one.")
        kept.contexts[name] = context
        self._write(kept)

    def use(self, name: str | None) -> None:
        """Have the command line go by this one, or by none."""
        kept = self._read()
        if name is not None and name not in kept.contexts:
            raise _unknown(name, kept.contexts)
        kept.current = name
        self._write(kept)

    def remove(self, name: str) -> None:
        """Forget one."""
        kept = self._read()
        if kept.contexts.pop(name, None) is None:
            raise _unknown(name, kept.contexts)
        kept.current = None if kept.current == name else kept.current
        self._write(kept)

    def _read(self) -> _Kept:
        try:
            return msgspec.json.decode(self.file.read_bytes(), type=_Kept)
        except FileNotFoundError:
            return _Kept({})
        except OSError as exc:
            raise Malformed(f"The contexts in {self.file} cannot be read: {exc.strerror}.") from exc
        except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
            raise Malformed(f"{self.file} holds no contexts: {exc}.", hint="Mend the file, or remove it.") from exc

    def _write(self, kept: _Kept) -> None:
        """Write a new file beside the old one and put it in its place, so that a reader sees the one or the other."""
        beside = self.file.with_name(f".{self.file.name}.{os.getpid()}")
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as out:
                out.write(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")
            beside.replace(self.file)
        except OSError as exc:
            raise Malformed(f"The contexts cannot be kept in {self.file}: {exc.strerror}.") from exc


def _unknown(name: str, known: Mapping[str, NodeContext]) -> NotFound:
    near = near_word(name, known)
    named = f"Did you mean {near}?" if near else f"There are: {', '.join(sorted(known))}." if known else ""
    return NotFound(f"There is no context {name}.", hint=named or "Make one with penstock context add.")
