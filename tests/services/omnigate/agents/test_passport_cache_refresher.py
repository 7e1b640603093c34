"""A token in use never becomes a stranger again, and one that is not to be believed any more is not renewed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.capability.verifier import TTL_S, CapabilityVerifier, VerifierOptions
from penstock.kernel.child import ChildSpec
from penstock.kernel.clock import LoopClock
from penstock.kernel.errors import Unauthenticated
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from penstock.services.omnigate.agents.passport_cache_refresher import PassportCacheRefresher
from tests.capability.kit import NOW, Issuer


class Warm:
    """An issuer, and a verifier that is looked after."""

    def __init__(self) -> None:
        self.issuer = Issuer()
        self.inventory = Inventory("omnigate", LoopClock(float(NOW)))
        options = VerifierOptions(tokens_max=4096)
        self.verifier = CapabilityVerifier(self.issuer.trust, self.inventory.clock, options)

    def learn(self, **fields: object) -> bytes:
        """Have a new token proven; return its digest."""
        token = self.issuer.token(**fields)
        self.verifier.open(token)
        return self.verifier.digest(token)

    def believes(self, digest: bytes) -> bool:
        """Tell whether a token needs no proof."""
        try:
            return self.verifier.peek(digest) is not None
        except Unauthenticated:
            return False

    @property
    def renewals(self) -> float:
        return self.inventory.metrics.value("cap_cache_renewals_total")


@asynccontextmanager
async def warm() -> AsyncIterator[Warm]:
    """Run the refresher."""
    made = Warm()
    refresher = PassportCacheRefresher(made.inventory, made.verifier)
    supervisor = Supervisor(made.inventory, [ChildSpec("passport_cache_refresher", refresher.run)])
    await supervisor.start()
    try:
        yield made
    finally:
        await supervisor.drain()


async def test_a_known_token_is_known_for_as_long_as_it_is_good() -> None:
    async with warm() as made:
        digests = [made.learn(exp=NOW + 600) for _ in range(300)]
        for _ in range(59):
            await asyncio.sleep(10)
            assert all(made.believes(digest) for digest in digests)
        await asyncio.sleep(20)

        assert not any(made.believes(digest) for digest in digests)


async def test_it_is_proven_about_as_often_as_it_would_be_anyway() -> None:
    async with warm() as made:
        made.learn(exp=NOW + 6000)
        await asyncio.sleep(600)

        assert 600 / TTL_S <= made.renewals <= 2 * 600 / TTL_S


async def test_a_revoked_token_is_not_kept_and_holds_up_nobody() -> None:
    async with warm() as made:
        revoked, kept = made.learn(tenant="acme", exp=NOW + 6000), made.learn(tenant="other", exp=NOW + 6000)
        made.issuer.revoke("tenant", "acme", 1)
        await asyncio.sleep(200)

        assert (made.believes(revoked), made.believes(kept)) == (False, True)


async def test_without_a_verifier_there_is_nothing_to_do() -> None:
    inventory = Inventory("omnigate", LoopClock())
    refresher = PassportCacheRefresher(inventory, None)
    supervisor = Supervisor(inventory, [ChildSpec("passport_cache_refresher", refresher.run)])
    await supervisor.start()
    await asyncio.sleep(30)
    report = await supervisor.drain()

    assert report.clean
    assert inventory.metrics.value("cap_cache_renewals_total") == 0
