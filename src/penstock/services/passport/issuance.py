"""The Issuance pool: takes jobs, judges the issuing token once more, decides purely, and has the result signed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.capability.judged_token import JudgedToken
from penstock.capability.token import ID_BYTES, encode
from penstock.contracts import passport as p
from penstock.contracts.capability import RequestContext
from penstock.kernel.worker import Job, JobLoop
from penstock.services.passport.core import root_of
from penstock.services.passport.issued import lineage_facts

if TYPE_CHECKING:
    from penstock.capability.verifier import CapabilityVerifier
    from penstock.kernel.channel import Channel
    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory
    from penstock.services.passport.audit_writer import AuditTrail
    from penstock.services.passport.book import Book

# What these restrict is not the request to issue but what is issued: `covers` holds the new token to them.
COVERED: Final = frozenset({"topic", "route", "method", "region"})
_AUDIENCE: Final = frozenset({"aud", "svc"})
# Random bytes for ids are drawn in one go: a system call for each would show.
_DRAW: Final = 256


class IssueWork(msgspec.Struct, frozen=True):
    """A request to issue, and the capability it came with."""

    request: p.Issue
    capability: str
    context: RequestContext
    # It came through the gateway, and was taken in for a token that was meant for either.
    relayed: bool = False


IssueJob = Job[IssueWork, p.Issued]


class Ids:
    """Token ids: 16 random bytes each."""

    def __init__(self) -> None:
        self._left: list[bytes] = []

    def next(self) -> bytes:
        """Return the next id."""
        if not self._left:
            drawn = os.urandom(ID_BYTES * _DRAW)
            self._left = [drawn[at : at + ID_BYTES] for at in range(0, len(drawn), ID_BYTES)]
        return self._left.pop()


class Issuance:
    """Works off the `issue` channel."""

    def __init__(self, inventory: Inventory, book: Book, verifier: CapabilityVerifier, trail: AuditTrail) -> None:
        """Take what an issue needs."""
        self._book = book
        self._verifier = verifier
        self._trail = trail
        self._metrics = inventory.metrics
        self._wall = inventory.clock.wall
        self._ids = Ids()
        self._issued = inventory.metrics.counter("tokens_issued_total", "Tokens issued.")

    async def run(self, child: Child, channel: Channel[IssueJob]) -> None:
        """Work until the channel is closed and empty."""
        await JobLoop("issuance", channel, self.issue, self._metrics).run(child.clock.monotonic)

    async def issue(self, work: IssueWork) -> p.Issued:
        """Issue: policy, keys and epoch are read in one step, and whoever was revoked meanwhile issues nothing."""
        held = await self._held(work)
        root = root_of(work.request, held, self._book.view.value, int(self._wall()), self._ids.next())
        signed = await self._book.sign(root)
        if held.version != self._book.trust.version:
            # Something was revoked or rotated while the key store worked: what may no longer issue hands out nothing.
            await self._held(work)
        caveats = tuple(map(str, root.caveats))
        self._trail.note(
            "issue",
            tid=root.tid.hex(),
            rid=signed.chain()[0][:ID_BYTES].hex(),
            by=held.root.tid.hex(),
            by_sub=held.root.sub,
            sub=root.sub,
            tenant=root.owner,
            traffic_class=root.class_,
            kid=root.kid,
            epoch=root.epoch,
            aud=root.aud,
            exp=root.exp,
            caveats=caveats,
            **lineage_facts(root),
        )
        self._issued.value += 1
        return p.Issued(encode(signed), root.kid, root.alg, root.epoch, root.exp, caveats, root.tid.hex())

    async def _held(self, work: IssueWork) -> JudgedToken:
        opened = self._verifier.open(work.capability)
        held = opened if isinstance(opened, JudgedToken) else await opened
        # Judged once more on what may have changed while it waited; for whom a token is meant never does.
        self._verifier.judge(held, work.context, COVERED | _AUDIENCE if work.relayed else COVERED)
        return held
