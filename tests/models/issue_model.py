"""Minting on the real code of the passport: Issuance, Book, RevocationWorker and KmsGate, with keys from fixed seeds.

The key store signs in a thread, so a policy that arrives, a revocation or a rotation may come in between.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from penstock import weave
from penstock.capability.token import ED25519, TokenRoot, encode
from penstock.capability.verifier import CapabilityVerifier
from penstock.contracts import passport as p
from penstock.contracts.capability import RequestContext
from penstock.kernel.channel import Channel, Full
from penstock.kernel.child import ChildSpec, Drain
from penstock.kernel.clock import LoopClock
from penstock.kernel.errors import Closed
from penstock.kernel.inventory import Inventory
from penstock.kernel.log import Log
from penstock.kernel.metrics import Metrics
from penstock.kernel.restart import RestartPolicy
from penstock.kernel.supervisor import Supervisor, SupervisorOptions
from penstock.kernel.worker import Job
from penstock.services.passport.audit import Walked
from penstock.services.passport.book import Book
from penstock.services.passport.core import root_of
from penstock.services.passport.issuance import Issuance, IssueWork
from penstock.services.passport.kms import KmsGate, KmsLimits
from penstock.services.passport.kms_local import LocalKms, SealedKey, _load
from penstock.services.passport.policy import Descriptor, Limits
from penstock.services.passport.revocation import RevocationWorker
from penstock.services.passport.store import MemoryStore
from tests.models.drain_model import Middle

IGNORES = (
    CapabilityVerifier,  # it keeps judgements to be fast; what it judges by is in the book
    ChildSpec,
    Executor,
    Inventory,
    Log,
    Metrics,
    MemoryStore,
    RestartPolicy,
    SupervisorOptions,
)
"""They count, list, cache or never change; nothing of the future depends on them."""

WALL_S = 1_800_000_000.0


class FixedKms(LocalKms):
    """The embedded key store with keys from fixed seeds, asked in a thread as a module would be."""

    def __init__(self) -> None:
        super().__init__()
        self.made = 0

    def rotate(self, algs: tuple[str, ...], now_s: int) -> None:
        self.made += 1
        fresh = [_load(SealedKey(alg, bytes([self.made]) * 32, bytes(32), now_s)) for alg in algs]
        self._hold(key for alg in algs for key in self._generations(alg, fresh))

    def _hold(self, keys) -> None:
        super()._hold(keys)
        self.inline = False


class Trail:
    """Takes what would go to the audit."""

    signed = 0

    def begin(self, walked: Walked, last_lines: bytes = b"") -> None:
        """Begin."""

    def note(self, action: str, **facts: object) -> None:
        """Take it."""

    async def note_durably(self, action: str, **facts: object) -> None:
        """Take it."""


def fixed_bytes(count: int) -> bytes:
    """Stand for os.urandom: other bytes at each call, the same in every run with the same steps."""
    loop: Any = asyncio.get_running_loop()
    loop.drawn = getattr(loop, "drawn", 0) + 1
    drawn: int = loop.drawn
    return drawn.to_bytes(4, "big") * (count // 4)


@dataclass
class Mint:
    """The jobs, and what is seen of them."""

    book: Book
    jobs: dict[int, Job] = field(default_factory=dict)
    signed_by: dict[int, str] = field(default_factory=dict)
    kids: list[str] = field(default_factory=list)

    def watch(self) -> None:
        """See which key each job is to be signed by."""
        book: Any = self.book
        plain = book.sign

        async def sign(root: TokenRoot) -> str:
            if root.sub.startswith("user"):
                self.signed_by[int(root.sub.removeprefix("user"))] = root.kid
            return await plain(root)

        book.sign = sign

    def generation(self) -> int:
        """Count the keys that were in force so far."""
        kid = self.book.view.value.signing[ED25519]
        if kid not in self.kids:
            self.kids.append(kid)
        return self.kids.index(kid) + 1

    def state_of(self, number: int) -> str:
        """Tell where a job is."""
        reply = self.jobs[number].reply
        if reply.done():
            return "refused" if reply.cancelled() or reply.exception() is not None else "issued"
        return "signing" if number in self.signed_by else "queued"

    def view(self) -> dict[str, object]:
        """Show the state in the words of Issue.tla."""
        generation = self.generation()
        return {
            "job": {number: self.state_of(number) for number in self.jobs},
            "key": {n: self.kids.index(self.signed_by[n]) + 1 if n in self.signed_by else 0 for n in self.jobs},
            "decided": set(self.signed_by),
            "policy": self.book.view.value.policy is not None,
            "revoked": bool(self.book.state.kept),
            "generation": generation,
        }


class SeenIssuance(Issuance):
    """Shows where it is between two jobs: a worker may answer one and take the next in one step of the loop."""

    async def issue(self, work: IssueWork) -> p.Issued:
        weave.shown()
        return await super().issue(work)


class HastyIssuance(Issuance):
    """Hands out what was signed without judging once more: the planted bug."""

    async def issue(self, work: IssueWork) -> p.Issued:
        weave.shown()
        held = await self._held(work)
        root = root_of(work.request, held, self._book.view.value, int(self._wall()), self._ids.next())
        signed = await self._book.sign(root)
        return p.Issued(encode(signed), root.kid, root.alg, root.epoch, root.exp, ())


class StaleIssuance(Issuance):
    """Takes the key that was in force when the job came, not when it is decided: the other planted bug."""

    async def issue(self, work: IssueWork) -> p.Issued:
        weave.shown()
        view = self._book.view.value
        held = await self._held(work)
        await asyncio.sleep(0.001)
        root = root_of(work.request, held, view, int(self._wall()), self._ids.next())
        signed = await self._book.sign(root)
        return p.Issued(encode(signed), root.kid, root.alg, root.epoch, root.exp, ())


ISSUANCES = {"": SeenIssuance, "hasty": HastyIssuance, "stale": StaleIssuance}


def ask(channel: Channel, change: p.Revoke | p.Rotate) -> None:
    """Ask the writer for a change, as the listener does; one that stops refuses."""
    with suppress(Closed):
        channel.try_send(Job(change))


async def issue(changes: tuple[str, ...], *, jobs: int = 2, planted: str = "") -> list[str]:
    """Ask for tokens while the changes happen at any moment; every job is answered."""
    inventory = Inventory("svc-passport", LoopClock(WALL_S))
    kms = KmsGate(inventory, FixedKms(), KmsLimits())
    book = Book(inventory, MemoryStore(), kms, Limits())
    trail: Any = Trail()
    verifier = CapabilityVerifier(book.trust, inventory.clock)
    mint = Mint(book)
    asked = inventory.channel("issue", Job, capacity=4, full=Full.REFUSE)
    changed = inventory.channel("revoke", Job, capacity=4, full=Full.REFUSE)
    issuance = ISSUANCES[planted](inventory, book, verifier, trail)
    writer = RevocationWorker(inventory, book, trail)
    specs = [
        ChildSpec(
            "writer", lambda child: writer.run(child, changed), announces=True, drain=Drain.FINISH, consumes=(changed,)
        ),
        ChildSpec(
            "issuance", lambda child: issuance.run(child, asked), instances=jobs, drain=Drain.FINISH, consumes=(asked,)
        ),
    ]
    boss = Supervisor(inventory, specs, SupervisorOptions(drain_deadline_s=60.0), rng=Middle())
    with weave.still():
        await boss.start()
    mint.watch()
    request = RequestContext(aud="svc-passport", op="issue")
    for number in range(1, jobs + 1):
        work = IssueWork(p.Issue(f"user{number}", "svc-mailbox"), book.operator_token, request)
        mint.jobs[number] = Job(work)
    weave.view(mint.view)
    happening = {
        "policy": partial(book.adopt, Descriptor(version=1)),
        "revoke": partial(ask, changed, p.Revoke(tid=book.state.operator_ids[0], force=True)),
        "rotate": partial(ask, changed, p.Rotate()),
    }
    if "policy" not in changes:
        book.adopt(Descriptor(version=1))
        weave.shown()
    for change in changes:
        weave.event(happening[change])
    await asyncio.sleep(0)
    for job in mint.jobs.values():
        asked.try_send(job)
    await asyncio.wait([job.reply for job in mint.jobs.values()])
    with weave.still():
        await boss.drain()
    return [mint.state_of(number) for number in mint.jobs]
