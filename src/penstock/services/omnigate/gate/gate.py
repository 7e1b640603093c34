"""The gate: quotas, class, fair queue, capability, policy, decided in the callback that ends the headers.

A request that finds a free slot continues in the same callback, without a task. One that must wait is held with its
body unread; when it is next in the fair queue, a callback of the gate lets it continue. A request that exceeds a
quota, finds its queue full or has no right to what it asks is refused with prebuilt bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from penstock.capability.judged_token import JudgedToken
from penstock.kernel.errors import Backpressure, Busy, PenstockError, Unauthenticated, forget_where
from penstock.kernel.scope import Scope
from penstock.net.server.admission import HELD, Outcome, Refusal
from penstock.services.omnigate.fair.entry import EntryState
from penstock.services.omnigate.fair.limits import WINDOW_S, AdaptiveLimit, FixedLimit
from penstock.services.omnigate.fair.queue import ArrivalOutcome as Arrival
from penstock.services.omnigate.fair.queue import FairMeasures, FairQueue
from penstock.services.omnigate.gate.check import CapabilityCheck
from penstock.services.omnigate.gate.classes import (
    ANON,
    AUTHED,
    STRICT,
    UNPROVEN,
    VERIFY,
    AdmissionRule,
    RouteProfile,
    RouteProfiles,
    with_verify,
)
from penstock.services.omnigate.gate.quotas import GatewayQuotas
from penstock.services.omnigate.gate.ticket import GateTicket

if TYPE_CHECKING:
    from penstock.capability.verifier import CapabilityVerifier
    from penstock.kernel.inventory import Inventory
    from penstock.net.message import Request
    from penstock.net.server.route import Route
    from penstock.services.omnigate.config import FairOptions, QuotaOptions
    from penstock.services.omnigate.fair.entry import TrafficClass

DISPATCHES_A_TURN: Final = 32
VERIFICATIONS_A_TURN: Final = 2
"""Signatures are checked on the loop: so few a turn that a flood of tokens leaves it to others."""
_SHEDDING_S: Final = 1.0

PolicyCheck = Callable[["Request", GateTicket], Refusal | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class GateOptions:
    """What can be tuned."""

    fair: FairOptions
    quotas: QuotaOptions
    region: str = ""


class AdmissionGate:
    """Decides who comes in, and when."""

    def __init__(
        self,
        inventory: Inventory,
        rules: Mapping[Route, AdmissionRule],
        options: GateOptions,
        *,
        verifier: CapabilityVerifier | None,
        policy: PolicyCheck | None = None,
    ) -> None:
        """Take everything as data. Without a verifier nobody is asked for a capability: for `insecure_dev` alone."""
        fair = options.fair
        self.monotonic = inventory.clock.monotonic
        now = self.monotonic()
        self.quotas = GatewayQuotas(inventory, options.quotas, now)
        self._most = fair.max_inflight
        self.limit = self._make_limit(now, adaptive=fair.adaptive)
        measures = FairMeasures(
            weights=with_verify(fair.weights),
            capacity=fair.work_capacity,
            quantum_bytes=fair.quantum_bytes,
            max_parked=fair.max_parked,
            own_slots={VERIFY: fair.verify_inflight},
        )
        self.queue = FairQueue(measures, self.limit.value)
        self.degraded = False
        """Set by readiness: writes are shed first."""
        self._asking = None if verifier is None else CapabilityCheck(verifier, options.region)
        self._policy = policy
        self._made = RouteProfiles()
        self._lanes = {route: self._made.make(route.path, rule) for route, rule in rules.items()}
        self._verify = self.queue.classes[VERIFY]
        # Twice as many: whoever is proven lets the next one in before its own task is over.
        self._scope = Scope("verify", 2 * fair.verify_inflight, inventory.metrics)
        self._awake = False
        self._adjust_at = now + WINDOW_S
        self._strained_at = now - _SHEDDING_S
        self._make_refusals()

    def _make_limit(self, now: float, *, adaptive: bool) -> AdaptiveLimit | FixedLimit:
        return AdaptiveLimit(self._most, now) if adaptive else FixedLimit(self._most)

    def _make_refusals(self) -> None:
        self._shed = Refusal(Backpressure("The gateway is degraded and takes no writes for now."))
        self._scarce = Refusal(Backpressure("The class is nearly full and takes no writes for now.", queue="work"))
        self._missing = Refusal(Unauthenticated("No capability was given.", reason="missing"))
        self._full = {name: Refusal(_class_full(name, each.capacity)) for name, each in self.queue.classes.items()}
        hint = "Allow more time by X-Deadline-Ms, or wait for Retry-After and ask again; nothing was done."
        late = "Its turn would come after its deadline."
        self._hopeless = Refusal(Busy(late, queue="work", why="deadline", hint=hint))

    # --- the end of the headers ------------------------------------------------------------------------

    def admit(self, request: Request) -> Outcome:
        """Decide: None goes on, a refusal is answered, HELD waits. The listener's admission hook."""
        lane = self._lanes.get(request.route) or self._lane(request.route)
        if self.degraded and lane.rule.write:
            return self._shed
        asking = self._asking
        holds = asking is not None and not lane.rule.signed and b"authorization" in request.headers
        # On the node's own routes a good token is not held to the quota of all; one that is not good is, below.
        if not (holds and lane.rule.own) and not self.quotas.all.try_take(request.received_at):
            return self.quotas.all_used
        if asking is None:
            return self._admit_unproven(request, lane, AUTHED)
        if holds:
            return self._admit_holder(request, lane, asking)
        if lane.rule.open:
            return self._admit_unproven(request, lane, ANON)
        return self._charge_address(request) or self._missing

    def _lane(self, route: Route) -> RouteProfile:
        lane = self._lanes[route] = self._made.make(route.path, STRICT)
        return lane

    def _charge_address(self, request: Request) -> Refusal | None:
        """Take from the quota of an address; users of a Unix socket have none."""
        if request.peer.uid is not None:
            return None
        address = self.quotas.address(request.peer)
        return None if self.quotas.per_ip.take(address, request.received_at) else self.quotas.ip_used

    def _pardon_address(self, request: Request) -> None:
        if request.peer.uid is None:
            self.quotas.per_ip.give_back(self.quotas.address(request.peer))

    def pardon(self, request: Request) -> None:
        """Give back what a request paid as a stranger's: the service behind it knows who sent it."""
        self.quotas.all.give_back()
        self._pardon_address(request)

    def _charge_all(self, request: Request, lane: RouteProfile) -> Refusal | None:
        """Take from the quota of all requests what `admit` left to be taken: the token is not known to be good."""
        return None if not lane.rule.own or self.quotas.all.try_take(request.received_at) else self.quotas.all_used

    def _charge_stranger(self, request: Request, lane: RouteProfile) -> Refusal | None:
        return self._charge_all(request, lane) or self._charge_address(request)

    def _charge_capability(self, request: Request, standing: JudgedToken, now: float) -> bool:
        """Take from the quota of a capability, by its root: a narrower copy has no quota of its own.

        Who comes by a Unix socket has none.
        """
        return request.peer.uid is not None or self.quotas.per_cap.take(standing.grant.tid, now)

    def _admit_unproven(self, request: Request, lane: RouteProfile, class_name: str, token: str = "") -> Outcome:
        """Admit by address: who has no token, and who has one that is still to be verified."""
        refusal = self._charge_address(request)
        if refusal is not None:
            return refusal
        ticket = GateTicket(self, request, lane)
        ticket.token = token
        return self._enter(ticket, request, class_name, self.quotas.address(request.peer))

    def _admit_holder(self, request: Request, lane: RouteProfile, asking: CapabilityCheck) -> Outcome:
        """Admit a request with a token: a known one by its tenant's class, an unknown one waits to be verified."""
        try:
            token, digest = asking.name(request)
            standing = asking.peek(digest)
        except PenstockError as error:
            return self._charge_stranger(request, lane) or Refusal(forget_where(error))
        if standing is None:
            return self._charge_all(request, lane) or self._admit_unproven(request, lane, VERIFY, token)
        if not lane.rule.own and not self._charge_capability(request, standing, request.received_at):
            return self.quotas.cap_used
        ticket = GateTicket(self, request, lane)
        return self._enter(ticket, request, _identify(ticket, standing), standing.grant.tenant, standing)

    def _enter(
        self, ticket: GateTicket, request: Request, class_name: str, key: Hashable, standing: JudgedToken | None = None
    ) -> Outcome:
        """Take a slot and go on, or a place and wait."""
        class_ = self.queue.classes[class_name]
        if class_.scarce and ticket.lane.rule.write:
            return self._shed_scarce(class_, request)
        arrival = self.queue.arrive(ticket, class_, key, self.monotonic())
        if arrival is Arrival.RUNS:
            request.ticket = ticket
            return self._authorise(ticket, request, standing)
        if arrival is Arrival.WAITS:
            request.ticket = ticket
            self._strained_at = request.received_at
            self.wake()
            return HELD
        self._strained_at = request.received_at
        return self._full[class_name] if arrival is Arrival.FULL else self._hopeless

    def _shed_scarce(self, class_: TrafficClass, request: Request) -> Refusal:
        """Keep the last places of a class for reads. Only its own writes pay: one class's flood is not another's."""
        class_.dropped += 1
        self._strained_at = request.received_at
        return self._scarce

    # --- capability and policy -------------------------------------------------------------------------

    def _authorise(self, ticket: GateTicket, request: Request, standing: JudgedToken | None) -> Refusal | None:
        """Ask capability, then policy, of a request that has its slot; a no gives the slot back at once."""
        refusal: Refusal | None = None
        try:
            if standing is not None and self._asking is not None:
                self._asking.allow(standing, request, ticket.lane)
            if self._policy is not None:
                refusal = self._policy(request, ticket)
        except PenstockError as error:
            refusal = Refusal(forget_where(error))
        ticket.request = None
        if refusal is not None:
            ticket.ended(0, answered=False)
        return refusal

    # --- the gate's own turn ---------------------------------------------------------------------------

    def wake(self) -> None:
        """Make sure that somebody looks at the queue soon, if there is anything to look at."""
        if not self._awake and (self.queue.waiting or self._verify.waiting):
            self._awake = True
            # lint: allow PK006 one turn at a time, asked for only while somebody waits; it changes nothing after the
            # end
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """Let the next ones go on, so many a turn: the loop belongs to others too."""
        self._awake = False
        queue, left, left_to_verify = self.queue, DISPATCHES_A_TURN, VERIFICATIONS_A_TURN
        queue.limit = self.limit.value
        while left and (entry := queue.next()) is not None:
            left -= 1
            self._go_on(cast("GateTicket", entry))
        while left_to_verify and (entry := queue.next_of(self._verify)) is not None:
            left_to_verify -= 1
            self._prove(cast("GateTicket", entry))
        if not (left and left_to_verify):
            self.wake()

    def _go_on(self, ticket: GateTicket) -> None:
        """Let a ticket that waited use its slot; one that was never judged is judged now, on what holds now."""
        ticket.started = self.monotonic()
        request, outcome = ticket.request, None
        if request is not None:
            outcome = self._judge_late(ticket, request)
        if outcome is not HELD:
            _tell(ticket, outcome)

    def _judge_late(self, ticket: GateTicket, request: Request) -> Outcome:
        """Judge a request after its wait; a token that was forgotten meanwhile is verified once more."""
        if ticket.grant is None or self._asking is None:
            return self._authorise_told(ticket, request, None)
        token, digest = self._asking.name(request)
        try:
            standing = self._asking.peek(digest)
        except PenstockError as error:
            return Refusal(forget_where(error))
        if standing is not None:
            return self._authorise_told(ticket, request, standing)
        self._leave(ticket)
        ticket.token = token
        return self._wait_again(ticket, request, VERIFY, self.quotas.address(request.peer))

    def _authorise_told(self, ticket: GateTicket, request: Request, standing: JudgedToken | None) -> Refusal | None:
        """Judge for somebody who waits to be told."""
        waiter = ticket.waiter
        refusal = self._authorise(ticket, request, standing)
        ticket.waiter = waiter
        return refusal

    # --- tokens that are not known ---------------------------------------------------------------------

    def _prove(self, ticket: GateTicket) -> None:
        """Check signatures for a ticket of the verify class; those that leave the loop are waited for in a task."""
        assert self._asking is not None, "without a verifier nothing is to be verified"
        began = ticket.started = self.monotonic()
        try:
            proof = self._asking.open(ticket.token)
            if isinstance(proof, JudgedToken):
                self._proven(ticket, began)
            else:
                self._scope.start(self._await_proof(ticket, proof, began))
        except PenstockError as error:
            self._disproved(ticket, error, began)

    async def _await_proof(self, ticket: GateTicket, proof: Awaitable[JudgedToken], began: float) -> None:
        try:
            await proof
        except PenstockError as error:
            self._disproved(ticket, error, began)
            return
        self._proven(ticket, began)

    def _proven(self, ticket: GateTicket, began: float) -> None:
        """Let a verified request come in again, now by its tenant's class; its address is not charged for it."""
        request = ticket.request
        if request is None or self._asking is None:
            return
        ticket.worked(self.monotonic() - began)
        self._pardon_address(request)
        self._leave(ticket)
        try:
            _, digest = self._asking.name(request)
            standing = self._asking.peek(digest)
        except PenstockError as error:
            _tell(ticket, Refusal(forget_where(error)))
            return
        ticket.token = ""
        outcome: Outcome = self._hopeless
        own = ticket.lane.rule.own
        if standing is not None and not own and not self._charge_capability(request, standing, self.monotonic()):
            outcome = self.quotas.cap_used
        elif standing is not None:
            outcome = self._wait_again(ticket, request, _identify(ticket, standing), standing.grant.tenant, standing)
        if outcome is not HELD:
            _tell(ticket, outcome)

    def _disproved(self, ticket: GateTicket, error: PenstockError, began: float) -> None:
        """Refuse; the address stays charged, and so does its share of the verify class."""
        ticket.worked(self.monotonic() - began)
        _tell(ticket, Refusal(forget_where(error)))

    def _leave(self, ticket: GateTicket) -> None:
        """Leave a class for another one: settled here, new there."""
        self.queue.end(ticket, ticket.settle())
        ticket.renew()

    def _wait_again(
        self, ticket: GateTicket, request: Request, class_name: str, key: Hashable, standing: JudgedToken | None = None
    ) -> Outcome:
        waiter = ticket.waiter
        outcome = self._enter(ticket, request, class_name, key, standing)
        ticket.waiter = waiter
        return outcome

    # --- housekeeping ----------------------------------------------------------------------------------

    def sample(self, ticket: GateTicket, now: float) -> None:
        """Take an answered request into the latency averages, and move the limit when it is time to."""
        if ticket.steers:
            self.limit.sample(ticket.lane.latency, now - ticket.started, ticket.started)
            if now >= self._adjust_at:
                self._adjust(now)

    def _adjust(self, now: float) -> None:
        self._adjust_at = now + WINDOW_S
        self.limit.adjust(now, running=self.queue.running, waiting=self.queue.waiting)
        self.queue.limit = self.limit.value

    def tick(self, now: float) -> None:
        """Do what time asks for: measure the pace, refuse whom it cannot help, forget whom nobody remembers."""
        self._adjust(now)
        self.queue.tick(now)
        self.quotas.turn(now)
        for entry in list(self.queue.hopeless(now)):
            if entry.state is EntryState.WAITING:
                entry.class_.dropped += 1
                _tell(cast("GateTicket", entry), self._hopeless)
        self.wake()

    def follow_routes(self, rules: Mapping[Route, AdmissionRule]) -> None:
        """Go by other rules from now on; a route that stays keeps what was learned of it."""
        self._lanes = {
            route: self._lanes.get(route) or self._made.make(route.path, rule) for route, rule in rules.items()
        }

    def apply(self, quotas: QuotaOptions, *, adaptive: bool | None = None) -> None:
        """Follow the settings."""
        self.quotas.apply(quotas)
        if adaptive is not None and adaptive is not isinstance(self.limit, AdaptiveLimit):
            now = self.monotonic()
            self.limit.next_window(now)
            self.limit = self._make_limit(now, adaptive=adaptive)
            self.queue.limit = self.limit.value
            self.wake()

    @property
    def headroom(self) -> float:
        """Return how much is free in the fullest class of verified callers.

        What nobody has proven does not count: a flood of strangers must not take the gateway out of a balancer's hands.
        """
        classes = self.queue.classes.items()
        return min(1 - each.waiting / each.capacity for name, each in classes if name not in UNPROVEN)

    @property
    def scarce(self) -> list[str]:
        """Name the classes whose last places are kept for reads."""
        return [name for name, each in self.queue.classes.items() if each.scarce]

    @property
    def shedding(self) -> bool:
        """Tell whether anybody had to wait or was refused in the last second."""
        return self.monotonic() - self._strained_at < _SHEDDING_S

    async def close(self) -> None:
        """Drop verifications under way; whoever waited for them is gone with the listener."""
        await self._scope.close()


def _class_full(name: str, capacity: int) -> Busy:
    said = f"As many requests of the class {name} wait as may: {capacity} (omnigate.channels.work)."
    return Busy(
        said,
        queue="work",
        traffic_class=name,
        limit="class_queue",
        limit_value=capacity,
        setting="omnigate.channels.work",
    )


def _identify(ticket: GateTicket, standing: JudgedToken) -> str:
    """Write down who a ticket belongs to; return the class that gives it."""
    grant = ticket.grant = standing.grant
    ticket.tenant = grant.tenant
    return ticket.lane.rule.class_name or grant.class_


def _tell(ticket: GateTicket, refusal: Refusal | None) -> None:
    """Tell whoever waits for a ticket; a refusal ends it."""
    waiter, ticket.waiter = ticket.waiter, None
    if refusal is not None:
        ticket.ended(0, answered=False)
    if waiter is not None:
        waiter(refusal)
