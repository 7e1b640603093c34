"""The Passport Cache Refresher.

Proves known tokens again before they have to be, so that nobody in use is a stranger.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from penstock.capability.judged_token import JudgedToken
from penstock.kernel.errors import PenstockError

if TYPE_CHECKING:
    from penstock.capability.verifier import CapabilityVerifier
    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory

LOOK_S: Final = 5.0
AHEAD_S: Final = 20.0
"""Tokens whose proof ends within this are proven again: a look, and time for a full cache."""
PAUSE_S: Final = 0.001
"""Between two tokens the loop is the others'."""


class PassportCacheRefresher:
    """Keeps what the verifier knows warm.

    A token whose proof lapsed would stand in the small class of the unknown, beside forgeries, until it is proven.
    """

    def __init__(self, inventory: Inventory, verifier: CapabilityVerifier | None) -> None:
        """Look after this verifier; without one there is nothing to do."""
        self._verifier = verifier
        text = "Known tokens that were proven again before they had to be."
        self._renewals = inventory.metrics.counter("cap_cache_renewals_total", text)

    async def run(self, child: Child) -> None:
        """Look every few seconds until the service drains."""
        while not await child.shutdown.sleep(LOOK_S):
            if self._verifier is not None and await self._renew_all(child, self._verifier):
                return

    async def _renew_all(self, child: Child, verifier: CapabilityVerifier) -> bool:
        """Renew one after the other; tell whether the service drains."""
        for digest in verifier.lapsing(AHEAD_S):
            # One that was revoked, or is not believed any more, is told so when it comes.
            with suppress(PenstockError):
                await self._renew(verifier, digest)
            if await child.shutdown.sleep(PAUSE_S):
                return True
        return False

    async def _renew(self, verifier: CapabilityVerifier, digest: bytes) -> None:
        proof = verifier.renew(digest)
        if proof is not None and not isinstance(proof, JudgedToken):
            await proof
        self._renewals.value += 1
