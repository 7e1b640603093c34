"""Admission against drain on the real gate of omnigate: its queue, its tickets and its turn of the loop.

The connections are the model's own: each asks for admission, waits if it is held, works, and ends its ticket.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from penstock import weave
from penstock.kernel.clock import LoopClock
from penstock.kernel.errors import Busy
from penstock.kernel.inventory import Inventory
from penstock.kernel.metrics import Metrics
from penstock.net import problem
from penstock.net.message import Peer, Request
from penstock.net.server.admission import HELD, Refusal
from penstock.net.server.route import Route
from penstock.services.omnigate.config import FairOptions, QuotaOptions
from penstock.services.omnigate.fair.entry import TrafficClass
from penstock.services.omnigate.fair.pace import TurnRate
from penstock.services.omnigate.fair.queue import FairQueue
from penstock.services.omnigate.gate.classes import AUTHED, AdmissionRule, RouteProfile
from penstock.services.omnigate.gate.gate import AdmissionGate, GateOptions
from penstock.services.omnigate.gate.quotas import GatewayQuotas

IGNORES = (Inventory, Metrics, GatewayQuotas, RouteProfile, TurnRate, Refusal)
"""They count, list, learn latencies or never change; quotas are off here."""

QUOTAS_OFF = QuotaOptions(default_rps=0, burst_rps=1, per_ip_rps=0, per_cap_rps=0)
REFUSED = Refusal(Busy("not now"))
ROUTE = Route(method="GET", path="/", handler=lambda _: {})


class ForgetfulGate(AdmissionGate):
    """Looks at the queue only when somebody arrives, not when a slot falls free: the planted bug."""

    def wake(self) -> None:
        if self.arriving:
            super().wake()

    arriving = False

    def admit(self, request: Request):
        self.arriving = True
        outcome = super().admit(request)
        self.arriving = False
        return outcome


class OvertakingQueue(FairQueue):
    """Gives a free slot to whoever arrives, before those who wait: the other planted bug."""

    __slots__ = ()

    def _passes(self, class_: TrafficClass) -> bool:
        return self.running < self.limit


def request_from(number: int) -> Request:
    """Make a request as it stands when its headers have ended."""
    request: Any = Request.__new__(Request)
    request.route, request.headers, request.ticket = ROUTE, {}, None
    request.peer = Peer(f"10.0.0.{number}", 1, None, secure=False)
    request.received_at, request.timeout_s = asyncio.get_running_loop().time(), 30.0
    request.head = SimpleNamespace(length=0)
    made: Request = request
    return made


@dataclass
class Door:
    """The gate, and where each request is."""

    gate: AdmissionGate
    state: dict[int, str]
    phase: str = "running"
    waits: dict[int, asyncio.Future[Refusal | None]] = field(default_factory=dict)
    tickets: dict[int, Any] = field(default_factory=dict)

    def view(self) -> dict[str, object]:
        """Show the state in the words of Gate.tla."""
        return {"state": dict(self.state), "phase": self.phase}

    async def connect(self, number: int) -> None:
        """Be one request from its arrival to its end."""
        request = request_from(number)
        await asyncio.sleep(0)
        outcome = self.gate.admit(request) if self.phase == "running" else REFUSED
        if outcome is HELD:
            self.state[number] = "waiting"
            outcome = await self._told(number, request)
        elif outcome is None:
            self.state[number] = "running"
        if outcome is not None:
            self.state[number] = "refused" if self.state[number] == "out" else "over"
            return
        await asyncio.sleep(0)
        self.state[number] = "over"
        request.ticket.ended(0, answered=True)

    async def _told(self, number: int, request: Request) -> Refusal | None:
        wait = self.waits[number] = asyncio.get_running_loop().create_future()

        def tell(refusal: Refusal | None) -> None:
            self.state[number] = "running" if refusal is None else "over"
            # The gate may let several go on in one turn.
            weave.shown()
            if not wait.done():
                wait.set_result(refusal)

        request.ticket.waiter = tell
        self.tickets[number] = request.ticket
        return await wait

    def leave(self, number: int) -> None:
        """Have a client go away, if it waits at this moment."""
        if self.state[number] == "waiting":
            self.state[number] = "over"
            self.tickets[number].ended(0, answered=False)
            self.waits[number].set_result(REFUSED)

    def drain(self) -> None:
        """Refuse from now on."""
        if self.phase == "running":
            self.phase = "draining"


async def gate(requests: int, *, leaver: int = 0, planted: str = "") -> str:
    """Let requests come, one client go, and the gateway drain, each at any moment; nothing is held at the end."""
    # Each refusal asks to come back after a random while.
    problem._jitter.seed(0)
    inventory = Inventory("omnigate", LoopClock())
    fair = FairOptions(weights={AUTHED: 1}, max_inflight=1, adaptive=False, work_capacity=4)
    made = ForgetfulGate if planted == "forgets" else AdmissionGate
    admission = made(
        inventory, {ROUTE: AdmissionRule(open=True)}, GateOptions(fair=fair, quotas=QUOTAS_OFF), verifier=None
    )
    if planted == "overtakes":
        admission.queue.__class__ = OvertakingQueue
    class_ = admission.queue.classes[AUTHED]
    class_.capacity = 2
    door = Door(admission, dict.fromkeys(range(1, requests + 1), "out"))
    weave.view(door.view)
    weave.always(lambda: admission.queue.running <= 1, "one slot")
    weave.event(door.drain)
    if leaver:
        weave.event(door.leave, leaver)
    connections = [asyncio.ensure_future(door.connect(number)) for number in door.state]
    await asyncio.wait(connections)
    for connection in connections:
        connection.result()
    door.drain()
    weave.shown()
    door.phase = "stopped"
    queue = admission.queue
    assert (queue.running, queue.waiting, queue.parked, class_.waiting) == (0, 0, 0, 0), "something is held"
    await admission.close()
    return "".join(sorted(state[0] for state in door.state.values()))
