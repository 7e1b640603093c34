"""What an admitted request holds, from its arrival to its end: a place, a slot, or a place among the parked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.kernel.errors import Busy
from penstock.services.omnigate.fair.costs import LEAST_COST, spent
from penstock.services.omnigate.fair.entry import Entry, State

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.contracts.capability import Grant
    from penstock.net.admission import Refusal
    from penstock.net.message import Request
    from penstock.services.omnigate.classes import Lane
    from penstock.services.omnigate.gate import Gate


class Ticket(Entry):
    """One request at the gate. The listener ends it, once, whatever the end; handlers may park it meanwhile."""

    __slots__ = (
        "_gate", "_polls", "_served_s", "_slot", "_worked_s", "bytes_seen", "grant", "lane", "length", "request", "started", "tenant", "token",
        "waiter",
    )  # fmt: skip

    def __init__(self, gate: Gate, request: Request, lane: Lane) -> None:
        """Hold nothing yet."""
        # Written out, not by super(): one is made for every request.
        self.after = self.before = None
        self.state = State.NEW
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
        self.bytes_seen = 0
        self.started = request.received_at
        self.waiter: Callable[[Refusal | None], None] | None = None
        self._served_s = 0.0
        self._worked_s = 0.0
        self._polls = False
        self._slot: asyncio.Future[None] | None = None

    @property
    def class_name(self) -> str:
        """Return the traffic class it shares in."""
        return self.class_.name

    @property
    def is_parked(self) -> bool:
        """Tell whether it waits without a slot."""
        return self.state is State.PARKED or self.state is State.RETURNING

    def worked(self, seconds: float) -> None:
        """Charge own work that its bytes do not show: hashing a body, rendering a view."""
        self._worked_s += seconds

    # --- parking ---------------------------------------------------------------------------------------

    def park(self) -> bool:
        """Give the slot back while waiting for something to send; False means too many do: answer at once."""
        if not self._set_aside():
            return False
        self._polls = True
        return True

    def unpark(self) -> asyncio.Future[None] | None:
        """Ask for a slot again: None when it is there at once, else a future to wait for.

        A cancelled wait loses nothing: the end of the request gives back the place, or the slot it became, and cancels
        whoever still waits.
        """
        if self.step_back():
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
        if self.state is not State.PARKED:
            return True
        # The turn it had was charged already; this one only has to be short.
        self.cost = LEAST_COST
        if not self._gate.queue.unpark(self):
            self._gate.wake()
            return False
        self.started = self._gate.monotonic()
        return True

    def _set_aside(self) -> bool:
        if self.state is not State.RUNNING or not self._gate.queue.park(self):
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
        if state is State.OVER:
            return
        gate = self._gate
        if answered and state is State.RUNNING:
            gate.sample(self, gate.monotonic())
        self.bytes_seen += seen_bytes
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
        if self.state is State.RUNNING:
            now = self._gate.monotonic()
            self._served_s += now - self.started
            self.started = now
        return spent(self.bytes_seen, self._served_s, self._worked_s)

    def renew(self) -> None:
        """Start over in another class, owing nothing; what it cost so far was settled where it was."""
        self.state = State.NEW
        self.charged = 0
        self._served_s = self._worked_s = 0.0
        self.started = self._gate.monotonic()

    @property
    def steers(self) -> bool:
        """Tell whether its latency says something about a downstream: one that was parked waited for other things."""
        return self.lane.rule.downstream and not self._polls
