"""A listener behind a gate, in memory: tokens to send, handlers that answer when told, and counts of who did what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from penstock.kernel.clock import LoopClock
from penstock.kernel.inventory import Inventory
from penstock.net.message import Request, Response
from penstock.net.server.listener import Listener, ListenerOptions
from penstock.net.server.route import Route
from penstock.services.omnigate.agents.housekeeping import Housekeeping
from penstock.services.omnigate.config import FairOptions, QuotaOptions
from penstock.services.omnigate.gate.classes import AdmissionRule
from penstock.services.omnigate.gate.gate import AdmissionGate, GateOptions
from tests.capability.kit import Issuer
from tests.net.server.listener_kit import RawClient, Site, settle

OFF = QuotaOptions(default_rps=0, burst_rps=1, per_ip_rps=0, per_cap_rps=0)
AUD = ("omnigate",)


class Work:
    """Handlers whose answers come when the test says so."""

    def __init__(self) -> None:
        self.seen: list[Request] = []
        self.bodies: list[bytes] = []
        self.replies: list[asyncio.Future[Any]] = []
        self.policy_asked = 0

    def now(self, request: Request) -> dict[str, Any]:
        self.seen.append(request)
        self.bodies.append(request.body)
        return {"path": request.path, "bytes": len(request.body)}

    def later(self, request: Request) -> asyncio.Future[Any]:
        self.seen.append(request)
        self.bodies.append(request.body)
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.replies.append(reply)
        return reply

    def answer(self, *, count: int = 1) -> None:
        """Answer the oldest requests that wait."""
        for _ in range(count):
            reply = self.replies.pop(0)
            if not reply.done():
                reply.set_result({"ok": True})


class GateSite(Site):
    """A site with its gate."""

    gate: AdmissionGate
    work: Work
    issuer: Issuer
    housekeeping: Housekeeping

    def classes(self) -> dict[str, tuple[int, int]]:
        """Return (waiting, running) of every class that has either."""
        rows = self.gate.queue.classes.items()
        return {name: (each.waiting, each.running) for name, each in rows if each.waiting or each.running}

    async def ask(self, path: str = "/later", *fields: str) -> RawClient:
        """Send a GET on a connection of its own."""
        client = self.connect()
        client.send("\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *fields, "", ""]).encode())
        await settle()
        return client

    def bearer(self, **fields: Any) -> str:
        """Make a field with a fresh token."""
        return "Authorization: Bearer " + self.issuer.token(aud=AUD, **fields)

    async def known(self, **fields: Any) -> str:
        """Make a field with a token that the gate knows already."""
        field = self.bearer(**fields)
        self.issuer.verifier.open(field.removeprefix("Authorization: Bearer "))
        return field


def routes(work: Work) -> dict[Route, AdmissionRule]:
    """Make the routes: open ones and ones that need a capability, answered now or later."""
    return {
        Route(method="GET", path="/now", handler=work.now): AdmissionRule(op="get"),
        Route(method="POST", path="/now", handler=work.now): AdmissionRule(op="put", write=True),
        Route(method="GET", path="/later", handler=work.later): AdmissionRule(op="get"),
        Route(method="POST", path="/later", handler=work.later): AdmissionRule(op="put"),
        Route(method="GET", path="/open", handler=work.later): AdmissionRule(open=True),
        Route(method="POST", path="/open", handler=work.later): AdmissionRule(open=True),
        Route(method="GET", path="/open/now", handler=work.now): AdmissionRule(open=True),
        Route(method="POST", path="/open/write", handler=work.now): AdmissionRule(open=True, write=True),
        Route(method="GET", path="/t/{topic}", handler=work.now): AdmissionRule(
            op="recv", topic_param="topic", audiences=("omnigate", "svc-mailbox")
        ),
    }


@asynccontextmanager
async def gated(
    quotas: QuotaOptions = OFF,
    more: Mapping[Route, AdmissionRule] | None = None,
    *,
    policy: Any = None,
    options: dict[str, Any] | None = None,
    pool: Any = None,
    checked: bool = True,
    **fair: Any,
) -> AsyncIterator[GateSite]:
    """Run a listener behind a gate; quotas are off and the limit is fixed unless the test says otherwise."""
    inventory = Inventory("omnigate", LoopClock())
    inventory.health.gate("test", is_open=True)
    work, issuer = Work(), Issuer(pool=pool)
    rules = {**routes(work), **(more or {})}

    def asked(request: Request, ticket: Any) -> Any:
        work.policy_asked += 1
        return None if policy is None else policy(request, ticket)

    fair_options = FairOptions(**{"adaptive": False, **fair})
    gate = AdmissionGate(
        inventory,
        rules,
        GateOptions(fair=fair_options, quotas=quotas),
        verifier=issuer.verifier if checked else None,
        policy=asked,
    )
    settings = ListenerOptions(**{"host": None, "request_deadline_s": 2.0, **(options or {})})
    listener = Listener(inventory, settings, rules, admission=gate.admit)
    site = GateSite(listener, inventory, [])
    site.gate, site.work, site.issuer = gate, work, issuer
    site.housekeeping = Housekeeping(inventory, gate)
    await listener.start()
    try:
        yield site
    finally:
        for client in site.clients:
            client.transport.abort()
        for reply in work.replies:
            reply.cancel()
        await listener.close()
        await gate.close()
        await settle()
    check_nothing_is_held(gate)


def check_nothing_is_held(gate: AdmissionGate) -> None:
    """Demand that every ticket was settled: no slot, place or parked one is left."""
    queue = gate.queue
    assert (queue.waiting, queue.running, queue.parked) == (0, 0, 0)
    for each in queue.classes.values():
        assert (each.waiting, each.running, each.rounds.waiting) == (0, 0, 0), each.name
        assert all(not tenant.live and not tenant.parked for tenant in each.tenants.values())


def json_answer(_request: Request) -> Response:
    """Answer something that is no JSON 200."""
    return Response(201, b"made", b"text/plain")
