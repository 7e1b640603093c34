"""Where a client's token comes from, and how it gets a newer one without a restart.

| the token | is looked for again |
|---|---|
| was given as a text | never |
| lies in a file | when the file changed, which is looked at once a second; and whenever the node refuses the token |
| is returned by a function | when the node refuses the last one |

A file that cannot be read for a moment, because somebody writes it anew, leaves the token as it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from penstock.kernel.clock import SYSTEM, Clock
from penstock.kernel.log import Log
from penstock.sdk.errors import NoToken
from penstock.sdk.token_text import clean_token
from penstock.sdk.values import in_words

# How often a token file is looked at.
_LOOK_S: Final = 1.0
_log: Final = Log("client")


class TokenSource(Protocol):
    """Gives the token of a client."""

    def token(self) -> str:
        """Return the token to act with now."""
        ...

    def renew(self) -> None:
        """Look for a newer token at once, because the node refused this one; `NoToken` when there is none at all."""
        ...


class GivenToken:
    """A token that was given as a text."""

    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        """Return it."""
        return self._token

    def renew(self) -> None:
        """Do nothing: there is no other."""


class TokenFile:
    """A token in a file, which is read again when it changed."""

    def __init__(self, file: Path, *, needed: bool = True, clock: Clock = SYSTEM) -> None:
        """Name the file; nothing is read before the first use. One that is not `needed` may be missing."""
        # Absolute, because a program may change its directory before the file is read again.
        self._file = file.absolute()
        self._needed = needed
        self._clock = clock
        self._token: str | None = None
        # What the file looked like when it was read: its times, size and inode.
        self._seen: tuple[int, ...] | None = None
        self._look_at = 0.0
        self._is_told = False

    def token(self) -> str:
        """Return the token in the file, as it was a second ago or later."""
        if self._token is None:
            self.renew()
        elif self._clock.monotonic() >= self._look_at:
            self._look()
        assert self._token is not None
        return self._token

    def renew(self) -> None:
        """Read the file, whether it looks changed or not."""
        self._look_at = self._clock.monotonic() + _LOOK_S
        seen = self._stat()
        try:
            self._token = read_token_file(self._file)
        except NoToken:
            if self._needed:
                raise
            self._token = self._token or ""
            return
        self._seen, self._is_told = seen, False

    def _look(self) -> None:
        """Read the file if it changed. If that fails, the token stays as it is, and the next look tries again."""
        self._look_at = self._clock.monotonic() + _LOOK_S
        if self._stat() == self._seen:
            return
        try:
            self.renew()
        except NoToken as error:
            if not self._is_told:
                _log.warning("token.not_read", reason=error.detail)
            self._is_told = True

    def _stat(self) -> tuple[int, ...] | None:
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


class TokenFunction:
    """A token that a function of the program returns."""

    def __init__(self, make: Callable[[], str]) -> None:
        """Call `make` at the first use, and again when the node refuses what it returned."""
        self._make = make
        self._token: str | None = None

    def token(self) -> str:
        """Return what the function returned last."""
        if self._token is None:
            self.renew()
        assert self._token is not None
        return self._token

    def renew(self) -> None:
        """Call the function. Its errors at the first use are the caller's; later ones say that there is no token."""
        try:
            self._token = self._made()
        except Exception as error:  # lint: allow PK015 a function of the program, whose error is told with the refusal
            if self._token is None:
                raise
            raise NoToken(f"the function given as token failed with {type(error).__name__}.") from error

    def _made(self) -> str:
        made: object = self._make()
        if inspect.iscoroutine(made):
            made.close()
            raise TypeError("the function given as token returns a text and is no async function")
        if not isinstance(made, str):
            raise TypeError(f"the function given as token returns a text, not {in_words(made)}")
        return clean_token(made, "What the function given as token returned")


def read_token_file(file: Path) -> str:
    """Return the token in a file, or say why there is none."""
    try:
        text = file.read_text(encoding="ascii")
    except (OSError, ValueError) as exc:
        why = exc.strerror if isinstance(exc, OSError) and exc.strerror else "it is no text"
        raise NoToken(f"The token file {file} cannot be read: {why}.") from exc
    return clean_token(text, f"What lies in the token file {file}")
