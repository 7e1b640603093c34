"""The Audit Signer: once a second it has the audit synced and its head signed by the key store.

The writer of the audit never waits for the key store, which may hang. What was written since the last signature is
chained but not vouched for, so at most a second of issues is open to somebody who can write the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.kernel.errors import Busy, Closed, PenstockError
from penstock.kernel.log import Log
from penstock.kernel.worker import Job
from penstock.services.passport.revocation import AuditSeen

if TYPE_CHECKING:
    from penstock.kernel.channel import Channel
    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory
    from penstock.services.passport.audit_writer import AuditTrail
    from penstock.services.passport.book import Book
    from penstock.services.passport.revocation import RevokeJob

SIGN_S: Final = 1.0
# The state is told how long the audit is when it is written anyway, and after so many records at the latest.
TELL_RECORDS: Final = 4096


class AuditSigner:
    """Signs the newest head that is on disk; fails quietly, because the next second tries again."""

    def __init__(self, inventory: Inventory, book: Book, trail: AuditTrail, revoke: Channel[RevokeJob]) -> None:
        """Take the chain, and who signs."""
        self._book = book
        self._trail = trail
        self._revoke = revoke
        self._log = Log(inventory.service)
        self._failures = inventory.metrics.counter(
            "audit_unsigned_total", "Times the head of the audit could not be signed."
        )

    async def run(self, child: Child) -> None:
        """Sign once a second while there is something new."""
        while not await child.shutdown.sleep(SIGN_S):
            await self.sign()

    async def sign(self) -> None:
        """Sign what is new; nothing when there is nothing."""
        if not self._trail.has_unsigned or not self._book.is_open:
            return
        try:
            ends = await self._trail.settle()
            attested = await self._book.vouch_audit(ends.records, ends.head)
            await self._trail.keep_head(attested)
        except (PenstockError, OSError) as error:
            self._failures.value += 1
            self._log.warning("audit.unsigned", reason=str(error))
            return
        self._tell_state(ends.records)

    def _tell_state(self, records: int) -> None:
        known = self._book.state.audited
        if known == 0 or records - known >= TELL_RECORDS:
            try:
                self._revoke.try_send(Job(AuditSeen(records)))
            except (Busy, Closed):
                # The next signature tells it.
                return
