"""With what right the bridge acts: its own issuer token, and short passports issued by it for one purpose each.

The outside proof (a signature, or a token for this service) never goes further in. Once it was found good, the bridge
asks svc-passport for a passport that can do exactly the one thing that is needed, for a minute, and uses it until half
of that is over. Its own issuer token is renewed at half of its life. Without one nothing is done: fail closed.

An issuer token issues for its own tenant alone. What is done for another tenant, that of an SQS access key for
instance, is done with a passport of that tenant, issued by an issuer token that the bridge gets for it when it is first
needed. A bridge that was given its issuer token cannot get others; its passports are all of its own tenant.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.contracts.call import Call
from penstock.contracts.passport import Issue, Issued, Passport
from penstock.kernel.errors import NotReady, PenstockError
from penstock.kernel.log import Log

if TYPE_CHECKING:
    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory
    from penstock.services.interop.calls import BridgeCalls

PASSPORT_TTL_S: Final = 60
ISSUER_TTL_S: Final = 3600
ISSUER_OPS: Final = "issue,send,recv,ack,nack,admin,put,get"
ISSUER_AUDIENCE: Final = ("svc-passport", "svc-mailbox", "svc-storage")
SUBJECT: Final = "svc-interop"
_AGAIN_S: Final = 1.0
_KEPT_MAX: Final = 4096


class Purpose(NamedTuple):
    """What a passport is for: one audience, one op, and for the mailbox one topic."""

    subject: str
    audience: str
    op: str
    topic: str = ""
    # For whom; empty for the bridge's own tenant.
    tenant: str = ""

    @property
    def caveats(self) -> tuple[str, ...]:
        """Write the restrictions."""
        return (f"op={self.op}", *((f"topic={self.topic}",) if self.topic else ()))


def issuer_request(tenant: str = SUBJECT) -> Issue:
    """Say what the bridge's own token for a tenant is: svc-passport issues it for whoever wires the bridge."""
    return Issue(
        SUBJECT,
        ISSUER_AUDIENCE,
        tenant=tenant,
        class_="internal",
        ttl_s=ISSUER_TTL_S,
        caveats=(f"op={ISSUER_OPS}",),
    )


class BridgeAuthority:
    """Holds the issuer token and the passports that are still fresh. Without a passport service nothing is checked."""

    def __init__(
        self,
        inventory: Inventory,
        passport: Passport | None,
        mint: Callable[[], Awaitable[Issued]] | None,
        calls: BridgeCalls,
        mint_for: Callable[[str], Awaitable[Issued]] | None = None,
    ) -> None:
        """Take the contract, and how the issuer token is got; None only for a node that was told to check nothing.

        `mint_for` gets an issuer token of another tenant; None where there is none to be had.
        """
        self._passport = passport
        self._mint = mint
        self._mint_for = mint_for
        # Issuer tokens of other tenants, each with when it is renewed; bounded like the passports.
        self._issuers: dict[str, tuple[str, float]] = {}
        self._calls = calls
        self._wall = inventory.clock.wall
        self._log = Log(inventory.service)
        self._issuer = ""
        self._renew_at = 0.0
        # Bounded: cleared when an endless stream of topics would fill it.
        self._fresh: dict[Purpose, tuple[str, float]] = {}
        self._gate = inventory.health.gate("passport", is_open=passport is None)
        metrics = inventory.metrics
        self._issued = metrics.counter("capabilities_issued_total", "Passports issued for work of the bridge.")

    async def call(self, purpose: Purpose, corr_id: str) -> Call:
        """Return the bearings of a call for this purpose; NotReady without an issuer token."""
        found = self.ready_call(purpose, corr_id)
        return Call((await self._fetch(purpose, corr_id))[0], corr_id) if found is None else found

    def ready_call(self, purpose: Purpose, corr_id: str) -> Call | None:
        """Return the bearings of a call if a passport for this purpose is at hand, else None."""
        if self._passport is None:
            return Call(corr_id=corr_id)
        found = self._fresh.get(purpose)
        return None if found is None or self._wall() >= found[1] else Call(found[0], corr_id)

    async def _fetch(self, purpose: Purpose, corr_id: str) -> tuple[str, float]:
        if not self._issuer or self._passport is None:
            raise NotReady("The bridge has no authority of its own yet.", phase="passport")
        passport, now = self._passport, self._wall()
        tenant = purpose.tenant if self._mint_for is not None else ""
        issuer = await self._issuer_of(tenant, now) if tenant else self._issuer
        request = Issue(
            purpose.subject, purpose.audience, tenant=tenant or SUBJECT, ttl_s=PASSPORT_TTL_S, caveats=purpose.caveats
        )
        issued = await self._calls.call("issue", lambda: passport.issue(request, Call(issuer, corr_id)))
        if len(self._fresh) >= _KEPT_MAX:
            self._fresh.clear()
        self._issued.value += 1
        fresh = self._fresh[purpose] = (issued.token, now + PASSPORT_TTL_S / 2)
        return fresh

    async def _issuer_of(self, tenant: str, now: float) -> str:
        """Return the issuer token of another tenant; a new one when half of the last one's life is over."""
        mint_for = self._mint_for
        known = self._issuers.get(tenant)
        if known is not None and now < known[1]:
            return known[0]
        assert mint_for is not None
        issued = await self._calls.call("mint", lambda: mint_for(tenant))
        if len(self._issuers) >= _KEPT_MAX:
            self._issuers.clear()
        self._issuers[tenant] = (issued.token, (now + issued.exp) / 2)
        return issued.token

    # --- the issuer token --------------------------------------------------------------------------------------------

    async def run(self, child: Child) -> None:
        """Get the issuer token and renew it at half of its life; tried again each second while that fails."""
        wait_s = 0.0
        while not await child.shutdown.sleep(wait_s):
            wait_s = await self.renew()

    async def renew(self) -> float:
        """Get a new issuer token; returns the seconds until the next one is due."""
        mint = self._mint
        if mint is None:
            return ISSUER_TTL_S
        try:
            issued = await self._calls.call("mint", mint)
        except PenstockError as error:
            self._log.warning("authority.failed", reason=error.code)
            self._judge()
            return _AGAIN_S
        self._issuer = issued.token
        self._renew_at = float(issued.exp)
        # What was issued by the token before it may be revoked with that one.
        self._fresh.clear()
        self._issuers.clear()
        self._judge()
        return max(_AGAIN_S, (issued.exp - self._wall()) / 2)

    def _judge(self) -> None:
        good = bool(self._issuer) and self._wall() < self._renew_at
        self._gate.set(is_open=good, why="" if good else "svc-passport gives no token")
