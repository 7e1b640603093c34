"""What an admitted request holds, from its arrival to its end: a place, a slot, or a place among the parked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from penstock.kernel.errors import Busy
from penstock.services.omnigate.fair.costs import LEAST_COST, spent
from penstock.services.omnigate.fair.entry import EntryState, QueueEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from penstock.contracts.capability import Grant
    from penstock.net.message import Request
    from penstock.net.server.admission import Refusal
    from penstock.services.omnigate.gate.classes import RouteProfile
    from penstock.services.omnigate.gate.gate import AdmissionGate


PAYMENT_BYTES: Final = 1 << 20
"""What a stream may pass on a turn: then it is charged, and waits if others do."""


class GateTicket(QueueEntry):
    """One request at the gate. The listener ends it, once, whatever the end; handlers may park it meanwhile."""

    __slots__ = (
        "_bytes_seen", "_gate", "_paid_bytes", "_polls", "_served_s", "_slot", "_turn_over", "_worked_s", "grant",
        "lane", "length", "request", "started", "tenant", "token",
        "waiter",
    )  # fmt: skip

    def __init__(self, gate: AdmissionGate, request: Request, lane: RouteProfile) -> None:
        # Written out, not by super(): one is made for every request.
        self.after = self.before = None
        self.state = EntryState.NEW
        self.charged = self.generation = 0
        self.due = request.received_at + request.timeout_s
        self._gate = gate
        self.lane = lane
        # Kept until it is decided; after that a ticket knows nothing of its request, which knows the ticket.
        self.request: Request | None = request
        self.length = request.head.length
        self.cost = lane.cost.expect(self.length)
        self.grant: Grant | None = None
        # Proven, so empty for the anonymous, whose share goes by address.
        self.tenant = ""
        # Only while it is to be verified.
        self.token = ""
        self._bytes_seen = 0
        # Where the next payment is due, and whether the last one used up its turn.
        self._paid_bytes = PAYMENT_BYTES
        self._turn_over = False
        self.started = request.received_at
        self.waiter: Callable[[Refusal | None], None] | None = None
        self._served_s = 0.0
        self._worked_s = 0.0
        self._polls = False
        self._slot: asyncio.Future[None] | None = None

    @property
    def relayed(self) -> bool:
        """Say that the request was judged and charged here."""
        return True

    @property
    def class_name(self) -> str:
        """Return the traffic class it shares in."""
        return self.class_.name

    @property
    def is_parked(self) -> bool:
        """Tell whether it waits without a slot."""
        return self.state is EntryState.PARKED or self.state is EntryState.RETURNING

    @property
    def bytes_seen(self) -> int:
        """Return the bytes that passed so far, both ways."""
        return self._bytes_seen

    @bytes_seen.setter
    def bytes_seen(self, count: int) -> None:
        """Count bytes of a stream; every so many are paid for at once, and then it is the others' turn."""
        self._bytes_seen = count
        if count >= self._paid_bytes:
            self._paid_bytes = count + PAYMENT_BYTES
            self._turn_over = True
            self._gate.queue.pay(self, self.settle(), self._gate.monotonic())

    def worked(self, seconds: float) -> None:
        """Charge own work that its bytes do not show: hashing a body, rendering a view."""
        self._worked_s += seconds

    def vouched(self, request: Request) -> None:
        """Note that the service behind has found out who asks: the request is no stranger's."""
        self._gate.pardon(request)

    # --- parking ---------------------------------------------------------------------------------------

    def park(self) -> bool:
        """Give the slot back while waiting for something to send; False means too many do: answer at once."""
        if not self._set_aside():
            return False
        self._polls = True
        return True

    def unpark(self) -> asyncio.Future[None] | None:
        """Ask for a slot again: None when it is there at once, else a future to wait for.

        One that was never given back is there, unless a payment was made meanwhile and somebody waits: whoever
        streams on and on takes turns like everybody. A cancelled wait loses nothing: the end of the request gives
        back the place, or the slot it became, and cancels whoever still waits.
        """
        over, self._turn_over = self._turn_over, False
        if over and self.state is EntryState.RUNNING and self._gate.queue.waiting:
            self._stand_back()
        elif self.step_back():
            return None
        future = self._slot = asyncio.get_running_loop().create_future()
        self.waiter = lambda _refusal: None if future.done() else future.set_result(None)
        return future

    def step_aside(self) -> None:
        """Give the slot back while the body arrives: a slow sender holds nobody up."""
        if not self._set_aside():
            raise Busy("Too many requests wait for their bodies.", limit="max_parked")

    def step_back(self) -> bool:
        """Take a slot again; False when `waiter` will be told."""
        if self.state is not EntryState.PARKED:
            return True
        # The turn it had was charged already; this one only has to be short.
        self.cost = LEAST_COST
        if not self._gate.queue.unpark(self):
            self._gate.wake()
            return False
        self.started = self._gate.monotonic()
        return True

    def _stand_back(self) -> None:
        """Let whoever waits go first: the turn was used up, and paid for."""
        gate = self._gate
        self._served_s += gate.monotonic() - self.started
        self.cost = LEAST_COST
        gate.queue.rejoin(self)
        gate.wake()

    def _set_aside(self) -> bool:
        if self.state is not EntryState.RUNNING or not self._gate.queue.park(self):
            return False
        self._served_s += self._gate.monotonic() - self.started
        self._gate.wake()
        return True

    # --- the end ---------------------------------------------------------------------------------------

    def answering(self) -> None:
        """Take the latency of a streamed answer at its first byte; how long a client takes to read is not latency."""
        self._gate.sample(self, self._gate.monotonic())
        self._polls = True

    def ended(self, seen_bytes: int, *, answered: bool) -> None:
        """Settle and give back what is held; the second time does nothing."""
        state = self.state
        if state is EntryState.OVER:
            return
        gate = self._gate
        if answered and state is EntryState.RUNNING:
            gate.sample(self, gate.monotonic())
        self._bytes_seen += seen_bytes
        cost = self.settle()
        if answered:
            self.lane.cost.learn(self.length, cost)
        gate.queue.end(self, cost)
        self.waiter = self.request = None
        if self._slot is not None:
            # Nobody is to wait for a slot that will never come.
            self._slot.cancel()
        gate.wake()

    def settle(self) -> int:
        """Return what it cost until now."""
        if self.state is EntryState.RUNNING:
            now = self._gate.monotonic()
            self._served_s += now - self.started
            self.started = now
        return spent(self._bytes_seen, self._served_s, self._worked_s)

    def renew(self) -> None:
        """Start over in another class, owing nothing; what it cost so far was settled where it was."""
        self.state = EntryState.NEW
        self.charged = 0
        self._served_s = self._worked_s = 0.0
        self.started = self._gate.monotonic()

    @property
    def steers(self) -> bool:
        """Tell whether its latency says something about a downstream: one that was parked waited for other things."""
        return self.lane.rule.downstream and not self._polls


def tenant_of(request: Request) -> Hashable:
    """Name for whom a request is worked on: its tenant at the gate, else its address."""
    ticket = request.ticket
    return ticket.owner.key if isinstance(ticket, GateTicket) else request.peer.host
