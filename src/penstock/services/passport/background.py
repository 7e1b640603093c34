"""The small agents: Bus Subscriber, Config Watcher, the heartbeat, and the sampler that feeds readiness."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.contracts import passport as p
from penstock.kernel.bus import ConfigUpdated, KernelEvent
from penstock.kernel.errors import Busy, Closed, Lagging, PenstockError
from penstock.kernel.log import Log
from penstock.kernel.worker import Job
from penstock.services.passport.revocation import OperatorOwed

if TYPE_CHECKING:
    from penstock.capability.verifier import CapabilityVerifier, PqMode
    from penstock.kernel.broadcast import Broadcast
    from penstock.kernel.channel import Channel
    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory
    from penstock.services.passport.book import Book
    from penstock.services.passport.issuance import IssueJob
    from penstock.services.passport.kms import KmsGate
    from penstock.services.passport.policy import Limits
    from penstock.services.passport.registry import RegistrySync
    from penstock.services.passport.revocation import Change, RevokeJob

SAMPLE_S: Final = 0.25
BEAT_S: Final = 1.0
FULL_AT: Final = 0.8
ROTATE_AGAIN_S: Final = 60.0
RENEW_AGAIN_S: Final = 5.0
_DAY_S: Final = 24 * 3600


class PassportBusSubscriber:
    """Follows the `policy` broadcast: the verifier demands what the policy demands."""

    def __init__(self, inventory: Inventory, book: Book, verifier: CapabilityVerifier) -> None:
        self._book = book
        self._verifier = verifier
        self._log = Log(inventory.service)
        self._updates = inventory.metrics.counter("policy_update_total", "Changes of policy, floors and keys heard.")

    async def run(self, child: Child) -> None:
        """Listen until the service drains; who lags reads the book, which is the truth anyway."""
        receiver = self._book.events.subscribe()
        scope = child.scope("bus_subscriber", 1)
        task = scope.start(self._listen(receiver.recv))
        try:
            await child.shutdown.wait()
        finally:
            task.cancel()
            receiver.close()

    async def _listen(self, recv: Callable[[], Awaitable[object]]) -> None:
        while True:
            try:
                await recv()
            except Lagging as lagging:
                self._updates.value += 1
                self._log.warning("bus.lagged", subscriber="bus_subscriber", bus="policy", lost=lagging.skipped)
            except Closed:
                return
            self._follow()

    def _follow(self) -> None:
        self._updates.value += 1
        mode = self._book.limits.pq_mode
        if self._verifier.options.pq_mode != mode:
            self._verifier.options = replace(self._verifier.options, pq_mode=cast("PqMode", mode))
            self._book.trust.swap()


class PassportConfigWatcher:
    """Takes the live settings over when the configuration changes: no restart, one swap."""

    def __init__(
        self,
        book: Book,
        bus: Broadcast[KernelEvent] | None,
        limits: Callable[[], Limits],
        revoke: Channel[RevokeJob],
    ) -> None:
        """Read the limits from `limits` whenever the bus says so; new keys are asked for through `revoke`."""
        self._book = book
        self._revoke = revoke
        self._bus = bus
        self._limits = limits
        self._log = Log("svc-passport")

    async def run(self, child: Child) -> None:
        """Listen until the service drains."""
        if self._bus is None:
            await child.shutdown.wait()
            return
        receiver = self._bus.subscribe()
        scope = child.scope("config_watcher", 1)
        task = scope.start(self._listen(receiver.recv))
        try:
            await child.shutdown.wait()
        finally:
            task.cancel()
            receiver.close()

    async def _listen(self, recv: Callable[[], Awaitable[object]]) -> None:
        while True:
            try:
                event = await recv()
            except Lagging as lagging:
                self._log.warning("bus.lagged", subscriber="config_watcher", bus="events", lost=lagging.skipped)
                event = ConfigUpdated(0)
            except Closed:
                return
            if isinstance(event, ConfigUpdated):
                self.follow()

    def follow(self) -> None:
        """Go by the present settings; an algorithm that has no key yet is given one by the one writer of keys."""
        if self._limits() != self._book.limits:
            self._book.adopt(limits=self._limits())
        if self._book.lacks_keys:
            # Where the line is full now, the sampler asks again.
            with suppress(Busy, Closed):
                self._revoke.try_send(Job(p.Rotate()))


class TrustHeartbeat:
    """Says once a second, in the file that verifiers read, that the issuer lives: a file alone cannot tell."""

    def __init__(self, inventory: Inventory, book: Book) -> None:
        """Take the book, which owns the file."""
        self._book = book
        self._log = Log(inventory.service)

    async def run(self, child: Child) -> None:
        """Beat until the service ends."""
        while not await child.shutdown.sleep(BEAT_S):
            await self.beat()

    async def beat(self) -> None:
        """Beat once; verifiers that miss five in a row stop writing."""
        try:
            await self._book.beat()
        except PenstockError as error:
            self._log.warning("passport.no_heartbeat", reason=str(error))


@dataclass(frozen=True, slots=True)
class Seen:
    """What readiness depends on."""

    kms: KmsGate
    registry: RegistrySync
    issue: Channel[IssueJob]
    revoke: Channel[RevokeJob]


class ReadySampler:
    """Feeds the gates of `/readyz` from sampled depths and states.

    Asks for what is due: new keys, the operator's token.
    """

    def __init__(self, inventory: Inventory, book: Book, seen: Seen, *, rotation_days: int) -> None:
        """Declare the gates, all shut until somebody has looked."""
        self._book = book
        self._seen = seen
        self._queues: dict[str, Channel[Any]] = {"issue_queue": seen.issue, "revoke_queue": seen.revoke}
        self._rotation_s = rotation_days * _DAY_S
        self._rotate_after = 0.0
        self._renew_after = 0.0
        self._wall = inventory.clock.wall
        self._log = Log(inventory.service)
        self._gates = {name: inventory.health.gate(name) for name in ("kms", "registry", "policy", *self._queues)}

    async def run(self, child: Child) -> None:
        """Sample four times a second."""
        while True:
            self.sample()
            self._rotate_if_old()
            self._renew_if_owed()
            if await child.shutdown.sleep(SAMPLE_S):
                return

    def sample(self) -> None:
        """Look at everything once."""
        policy = self._book.view.value.policy
        failing = self._seen.registry.failures_in_a_row > 0
        self._gates["kms"].set(
            is_open=self._book.is_open and self._seen.kms.usable, why="" if self._seen.kms.usable else "breaker"
        )
        why = "" if policy is not None else f"no policy: {self._seen.registry.refused_as or 'none was fetched yet'}"
        self._gates["registry"].set(is_open=policy is not None, degraded=failing, why=why)
        self._gates["policy"].set(is_open=policy is not None, why=why)
        for name, queue in self._queues.items():
            self._gates[name].set(is_open=queue.depth < FULL_AT * queue.capacity)

    def _rotate_if_old(self) -> None:
        state = self._book.state
        born = [key.nbf for key in state.keys if key.kid in state.signing.values()]
        now = self._wall()
        lacking = self._book.is_open and self._book.lacks_keys
        if now < self._rotate_after or not (lacking or (born and now - min(born) >= self._rotation_s)):
            return
        self._rotate_after = now + (RENEW_AGAIN_S if lacking else ROTATE_AGAIN_S)
        self._ask(p.Rotate())

    def _renew_if_owed(self) -> None:
        """Ask for the operator's token that a failing key store did not give.

        Not while the change itself is on its way.
        """
        now = self._wall()
        if not self._book.owes_operator:
            self._renew_after = now + RENEW_AGAIN_S
        elif now >= self._renew_after:
            self._renew_after = now + RENEW_AGAIN_S
            self._ask(OperatorOwed())

    def _ask(self, change: Change) -> None:
        try:
            self._seen.revoke.try_send(Job(change))
        except PenstockError as error:
            self._log.warning("change.put_off", reason=error.code)
