"""The Revocation worker: the only writer of epochs and keys. One at a time, durable before it is answered."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.capability.token import PREFIX
from penstock.contracts import passport as p
from penstock.contracts.capability import Grant
from penstock.kernel.errors import Forbidden
from penstock.kernel.worker import Job, JobLoop
from penstock.services.passport.core import bound_tenant

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
    """The operator's token could not be issued when it should have been: tried again."""


@dataclass(frozen=True, slots=True)
class AuditSeen:
    """So many records of the audit are signed for: kept, so that an audit that is taken away is missed."""

    records: int


Asked = p.Revoke | p.Rotate | p.Attest
Change = Asked | PolicySeen | OperatorOwed | AuditSeen
Changed = p.Revoked | p.Rotated | p.Attested | None


@dataclass(frozen=True, slots=True)
class AskedChange:
    """A change that somebody asked for with a capability, which was judged."""

    change: Asked
    by: Grant


RevokeJob = Job[Change | AskedChange, Changed]


class RevocationWorker:
    """Works off the `revoke` channel; opens the book at the start, because it alone writes in it."""

    def __init__(self, inventory: Inventory, book: Book, trail: AuditTrail) -> None:
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

    async def change(self, asked: Change | AskedChange) -> Changed:
        """Revoke, rotate or attest, and record it; or only remember."""
        by = asked.by if isinstance(asked, AskedChange) else None
        change = asked.change if isinstance(asked, AskedChange) else asked
        if isinstance(change, PolicySeen):
            await self._book.remember_policy(change.version)
            return None
        if isinstance(change, AuditSeen):
            await self._book.remember_audited(change.records)
            return None
        # What was done is recorded before the operator's token is issued, because that can fail.
        changed = None if isinstance(change, OperatorOwed) else await self._change(change, by)
        await self._book.renew_operator()
        return changed

    async def _change(self, change: Asked, by: Grant | None) -> Changed:
        if isinstance(change, p.Attest):
            return await self._attest(change, by)
        if isinstance(change, p.Rotate):
            return await self._rotate(by)
        revoked = await self._book.revoke(change, bound_tenant(by))
        kind, value = next((kind, value) for kind, value in change.targets().items() if value is not None)
        self._revocations[kind].value += 1
        why = _TOKEN.sub(f"{PREFIX}...", change.reason)[:200]
        facts: dict[str, Any] = {"kind": kind, "value": value, "why": why, "epoch": revoked.current_epoch}
        bound = bound_tenant(by)
        if bound is not None:
            facts["within"] = bound
        await self._trail.note_durably("revoke", **facts, **_author(by))
        return revoked

    async def _rotate(self, by: Grant | None) -> p.Rotated:
        if bound_tenant(by) is not None:
            raise Forbidden("A token that is bound to a tenant does not rotate keys.", reason="caveat:tenant")
        rotated = await self._book.rotate()
        self._rotations.value += 1
        await self._trail.note_durably("rotate", kid=rotated.kid, epoch=rotated.epoch, **_author(by))
        return rotated

    async def _attest(self, asked: p.Attest, by: Grant | None) -> p.Attested:
        if bound_tenant(by) is not None:
            raise Forbidden("A token that is bound to a tenant attests nothing.", reason="caveat:tenant")
        attested = await self._book.attest(asked)
        facts = {"service": asked.service, "lines": asked.n, "head": asked.head, "kid": attested.kid}
        await self._trail.note_durably("attest", **facts, **_author(by))
        return attested


def _author(by: Grant | None) -> dict[str, str]:
    """Say whose token it was; nobody's, where the service itself found that it was due."""
    return {} if by is None else {"by": by.tid, "by_sub": by.sub}
