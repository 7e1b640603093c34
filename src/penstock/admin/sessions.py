"""One-time links and the sessions they turn into.

Pure: time comes in, what is kept is bounded, secrets only as digests.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Final

LINK_S: Final = 300.0
SESSION_S: Final = 12 * 3600.0
LINKS_MAX: Final = 8
SESSIONS_MAX: Final = 32
_SECRET_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class SessionGrant:
    """What a secret is good for: until when, and as long as the operator token is the one it was made under."""

    until: float
    token: bytes


class Sessions:
    """Who may come in without showing the operator token again.

    A replaced token ends everything made under the old one.
    """

    def __init__(self) -> None:
        # Digest to grant, oldest first: when full, the oldest goes.
        self._links: dict[bytes, SessionGrant] = {}
        self._sessions: dict[bytes, SessionGrant] = {}

    def __len__(self) -> int:
        """Return how many sessions are kept, lapsed ones included."""
        return len(self._sessions)

    def make_link(self, token: str, now: float) -> str:
        """Make the secret of a link that works once, within five minutes."""
        return _keep(self._links, LINKS_MAX, SessionGrant(now + LINK_S, _digest(token)))

    def redeem(self, once: str, token: str, now: float) -> str | None:
        """Turn the secret of a link into a session; None when it was used, has lapsed or never was."""
        # Taken out whatever follows: a second use finds nothing.
        grant = self._links.pop(_digest(once), None)
        return self.open(token, now) if grant is not None and _good(grant, token, now) else None

    def open(self, token: str, now: float) -> str:
        """Begin a session for whoever showed the operator token; returns its secret."""
        return _keep(self._sessions, SESSIONS_MAX, SessionGrant(now + SESSION_S, _digest(token)))

    def holds(self, secret: str, token: str, now: float) -> bool:
        """Tell whether a session is good now; one that is not is forgotten."""
        name = _digest(secret)
        grant = self._sessions.get(name)
        if grant is None:
            return False
        if _good(grant, token, now):
            return True
        del self._sessions[name]
        return False

    def end(self, secret: str) -> None:
        """Forget a session."""
        self._sessions.pop(_digest(secret), None)


def _good(grant: SessionGrant, token: str, now: float) -> bool:
    return bool(token) and now < grant.until and grant.token == _digest(token)


def _keep(table: dict[bytes, SessionGrant], most: int, grant: SessionGrant) -> str:
    """Make a secret and remember its digest; lookups go by digest, so that they tell nothing by their time."""
    while len(table) >= most:
        del table[next(iter(table))]
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    table[_digest(secret)] = grant
    return secret


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
