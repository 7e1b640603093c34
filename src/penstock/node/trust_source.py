"""Where this node gets its keys and revocations from: svc-passport in the same process, or an issuer it follows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from penstock.capability import config as capability_config
from penstock.capability.following import Follower
from penstock.capability.metering import Meter
from penstock.capability.trust import Trust
from penstock.capability.verifier import CapabilityVerifier
from penstock.kernel.child import ChildSpec
from penstock.kernel.errors import Malformed
from penstock.rpc.issuer import Issuer, issuer_at

if TYPE_CHECKING:
    from penstock.capability.verifier import PqMode
    from penstock.config import Settings
    from penstock.kernel.clock import Clock
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.pool import Pool

GATE = "capability"


class NeedsPassport(Exception):
    """A service that checks capabilities has no issuer to trust."""


class TrustSource:
    """One trust for all verifiers of the process; fed by svc-passport itself, else by one follower. And one meter."""

    def __init__(self) -> None:
        self.trust = Trust(lease_until=float("-inf"))
        # Set once somebody feeds the trust.
        self._fed = False
        self._issuer: Issuer | None = None
        self._pool: Pool | None = None
        self._verifiers: list[CapabilityVerifier] = []
        # A budget is spent in this process once, at whichever of its services that is.
        self._meter: Meter | None = None

    def adopt(self, trust: Trust, meter: Meter | None = None) -> None:
        """Trust the svc-passport of this process, whose word does not expire, and share its meter."""
        self.trust = trust
        self._meter = meter
        self._fed = True

    def verifier(self, settings: Settings, clock: Clock, pool: Pool) -> CapabilityVerifier:
        """Make a service's verifier over the one trust."""
        options = capability_config.verifier_options(settings)
        if self._meter is None:
            self._meter = Meter(options.accounts_max)
        made = CapabilityVerifier(self.trust, clock, options, pool=pool, meter=self._meter)
        self._verifiers.append(made)
        return made

    def follower(self, settings: Settings, inventory: Inventory) -> ChildSpec | None:
        """Return the child that feeds the trust, for the first service that verifies and has no issuer beside it."""
        if self._fed or not self._verifiers:
            return None
        self._fed = True
        self._pool = inventory.pool("issuer", threads=1, capacity=2)
        try:
            pinned = settings.path("capability.issuer_certificate")
            self._issuer = issuer_at(_address(settings), inventory, self._pool, pinned)
        except Malformed as exc:
            raise NeedsPassport(f"capability.issuer is no address: {exc.detail}") from exc
        gate = inventory.health.gate(GATE)
        run = Follower(self.trust, self._issuer.fetch, inventory.metrics, gate=gate, wall=inventory.clock.wall).run
        # First, and waited for: whoever has a key to judge by when the first request comes answers it.
        return ChildSpec("capability_follower", run, announces=True)

    def apply(self, settings: Settings) -> None:
        """Apply the settings that may change while the node runs: the post-quantum mode."""
        mode = cast("PqMode", settings.text("passport.pq.mode"))
        for verifier in self._verifiers:
            if verifier.options.pq_mode != mode:
                verifier.options = replace(verifier.options, pq_mode=mode)
                self.trust.swap()

    async def close(self) -> None:
        """Close the connection to the issuer; called after the drain."""
        if self._issuer is not None:
            await self._issuer.close()
        if self._pool is not None:
            await self._pool.close()


def _address(settings: Settings) -> str:
    """Return where the issuer is: as configured, else the file it publishes in the data directory."""
    if settings["capability.issuer"] is not None:
        return settings.text("capability.issuer")
    folder = settings.path("node.data_dir")
    if settings.flag("node.amnesia") or folder is None:
        raise NeedsPassport(
            "nobody vouches for capabilities here: run svc-passport in the same node, set capability.issuer, "
            "or use --insecure-dev"
        )
    return str(folder / "passport" / "public.json")
