"""The Revocation worker: the only writer of epochs and keys. One at a time, durable before it is answered."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.capability.token import PREFIX
from penstock.contracts import passport as p
from penstock.kernel.worker import Job, JobLoop

if TYPE_CHECKING:
    from penstock.kernel.channel import Channel
    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory
    from penstock.services.passport.audit_writer import AuditTrail
    from penstock.services.passport.book import Book


# A token that somebody pastes as the reason does not go into the audit.
_TOKEN: Final = re.compile(rf"{PREFIX}[\w-]+")


@dataclass(frozen=True, slots=True)
class PolicySeen:
    """A policy of this version was seen: kept, so that a registry cannot roll back across a restart."""

    version: int


@dataclass(frozen=True, slots=True)
class OperatorOwed:
    """The operator's token could not be minted when it should have been: tried again."""


Change = p.Revoke | p.Rotate | PolicySeen | OperatorOwed
Changed = p.Revoked | p.Rotated | None
RevokeJob = Job[Change, Changed]


class RevocationWorker:
    """Works off the `revoke` channel; opens the book at the start, because it alone writes in it."""

    def __init__(self, inventory: Inventory, book: Book, trail: AuditTrail) -> None:
        """Take the book."""
        self._book = book
        self._trail = trail
        self._metrics = inventory.metrics
        self._revocations = {
            kind: inventory.metrics.counter("revocations_total", "What was revoked, by kind.", kind=kind)
            for kind in ("epoch", "kid", "tenant", "subject_ref", "tid", "rid")
        }
        self._rotations = inventory.metrics.counter("key_rotations_total", "Changes of the signing keys.")

    async def run(self, child: Child, channel: Channel[RevokeJob]) -> None:
        """Open the book, say so, and work until the channel is closed and empty."""
        await self._book.open(self._trail)
        child.announce()
        await JobLoop("revocation", channel, self.change, self._metrics).run(child.clock.monotonic)

    async def change(self, asked: Change) -> Changed:
        """Revoke or rotate, and record it; or only remember."""
        if isinstance(asked, PolicySeen):
            await self._book.remember_policy(asked.version)
            return None
        # What was done is recorded before the operator's token is minted, because that can fail.
        changed = None if isinstance(asked, OperatorOwed) else await self._change(asked)
        await self._book.renew_operator()
        return changed

    async def _change(self, asked: p.Revoke | p.Rotate) -> Changed:
        if isinstance(asked, p.Rotate):
            rotated = await self._book.rotate()
            self._rotations.value += 1
            await self._trail.note_durably("rotate", kid=rotated.kid, epoch=rotated.epoch)
            return rotated
        revoked = await self._book.revoke(asked)
        kind, value = next((kind, value) for kind, value in asked.targets().items() if value is not None)
        self._revocations[kind].value += 1
        why = _TOKEN.sub(f"{PREFIX}...", asked.reason)[:200]
        await self._trail.note_durably("revoke", kind=kind, value=value, why=why, epoch=revoked.current_epoch)
        return revoked
