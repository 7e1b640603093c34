"""A quota for each address on requests that are answered 401. Requests with a good token are never counted.

Refusing a stranger costs work: a token has to be decoded, and its signature checked, before it is known to be bad. So
each address has a bucket, and every 401 takes one from it, whether it is made at the end of the headers or by a
handler. Until the bucket is empty the answer stays 401. From then on a request of this address is let in only if its
token is known to be good already, which the service tells without work (`Known`), or if the small budget for tokens
that are not known yet allows it. All others get 429 at the end of the headers, and their bodies are never read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from penstock.kernel.errors import PenstockError, RateLimited
from penstock.kernel.limiter import TokenBucket
from penstock.kernel.memo import Memo
from penstock.net.bearer import bearer
from penstock.net.server.admission import Refusal
from penstock.net.server.caps import peer_block

if TYPE_CHECKING:
    from penstock.kernel.inventory import Inventory
    from penstock.net.message import Peer, Request

STRANGERS_RPS: Final = 200.0
STRANGERS_DEPTH: Final = 400.0
# Tokens of exhausted addresses that nobody has judged yet: together, not for each address.
UNKNOWN_RPS: Final = 50.0
_ADDRESSES_KEPT: Final = 4096
_HINT: Final = (
    f"Send a good token; penstock token explain tells about yours. {STRANGERS_RPS:g} bad ones a second are looked at, "
    f"{STRANGERS_DEPTH:g} at once."
)

Known = Callable[["Request"], bool | None]
"""The hook of a service at the end of the headers, without crypto: is the token known to be good? None: not known."""


class TokenMemory(Protocol):
    """What a verifier remembers of the tokens it has judged."""

    def digest(self, token: str) -> bytes:
        """Return the name under which a token is remembered; raises for what cannot be one."""
        ...

    def peek(self, digest: bytes) -> object | None:
        """Return what is known of a token, None if nothing is; raises for one that is known to be bad."""
        ...

    def remembers(self, digest: bytes) -> bool:
        """Tell whether a token was good once and may have to be judged anew."""
        ...


def known_by(verifier: TokenMemory) -> Known:
    """Return the hook of a service that verifies its tokens by `verifier`."""

    def known(request: Request) -> bool | None:
        token = bearer(request)
        if not token:
            return False
        try:
            digest = verifier.digest(token)
            return verifier.peek(digest) is not None or verifier.remembers(digest) or None
        except PenstockError:
            return False

    return known


class StrangerQuota:
    """Counts the 401 answers of each address, and refuses an address that had too many."""

    __slots__ = ("_buckets", "_known", "_now", "_refusal", "_unknown", "refused")

    def __init__(self, inventory: Inventory, name: str, known: Known) -> None:
        """List the quota; nobody is remembered before the first 401."""
        self._known = known
        self._now = inventory.clock.monotonic
        # Only addresses that had a 401; the oldest are forgotten, and start with a full bucket again.
        self._buckets: Memo[str, TokenBucket] = inventory.memo(f"{name}.strangers", Memo(_ADDRESSES_KEPT))
        self._unknown = inventory.bucket(f"{name}.unknown_tokens", rate=UNKNOWN_RPS, depth=UNKNOWN_RPS)
        self.refused = 0
        inventory.limit(
            f"{name}.strangers_each",
            STRANGERS_DEPTH,
            f"401 answers of an address, {STRANGERS_RPS:g}/s; empty: 429 rate_limited",
            lambda: {"refused": self.refused},
        )
        inventory.metrics.watched("quota_reject_total", "Requests a limiter refused.", kind="strangers").append(
            lambda: self.refused
        )
        detail = "Too many requests of this address came without a good capability."
        self._refusal = Refusal(
            RateLimited(detail, scope="strangers", limit="strangers", limit_value=STRANGERS_RPS, hint=_HINT)
        )

    def admit(self, request: Request) -> Refusal | None:
        """Refuse a request of an exhausted address, unless its token is good or may be looked at."""
        buckets = self._buckets
        if not buckets.items or request.route.open:
            return None
        bucket, now = buckets.get(peer_block(request.peer)), self._now()
        if bucket is None or bucket.level(now) >= 1.0:
            return None
        known = self._known(request)
        if known or (known is None and self._unknown.try_take(now)):
            return None
        self.refused += 1
        return self._refusal

    def count(self, peer: Peer) -> None:
        """Count a 401."""
        block, now = peer_block(peer), self._now()
        bucket = self._buckets.get(block)
        if bucket is None:
            bucket = self._buckets.put(
                block, TokenBucket("strangers", rate=STRANGERS_RPS, depth=STRANGERS_DEPTH, now=now)
            )
        bucket.try_take(now)
