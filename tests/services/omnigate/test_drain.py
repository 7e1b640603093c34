"""What waits behind the gateway does not hold up a drain: it is answered at once, and the stop is clean."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.contracts.mailbox import Recv, Send
from penstock.contracts.mailbox_rules import METHODS
from penstock.kernel.clock import LoopClock
from penstock.kernel.drain import DrainReport
from penstock.kernel.inventory import Inventory
from penstock.kernel.root import Root, Staged
from penstock.kernel.supervisor import Supervisor
from penstock.net.message import Request
from penstock.net.oap.client import OapClient, OapClientOptions
from penstock.net.oap.server import OapServer
from penstock.net.oap.service import OapServerOptions
from penstock.net.server.listener import Listener, ListenerOptions
from penstock.net.server.route import Route
from penstock.rpc.oap import Stub, serve
from penstock.services.mailbox.config import MailboxOptions
from penstock.services.mailbox.engines.memory import MemoryEngine
from penstock.services.mailbox.service import MailboxService
from penstock.services.omnigate.config import FairOptions, OmnigateOptions
from penstock.services.omnigate.own.mounted import MountedService
from penstock.services.omnigate.service import GatewayBackends, OmnigateService
from penstock.testing.transport import memory_pair
from tests.net.server.listener_kit import RawClient, Site, post, settle
from tests.services.omnigate.gate.kit import OFF

WAIT = b'{"wait_ms": 20000}'
TOPIC_WAIT = b'{"topic": "orders", "wait_ms": 20000}'


class Slow:
    """A service whose one route answers when it is told to."""

    def __init__(self) -> None:
        self.reply: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        self.routes = [Route(method="POST", path="/v1/topics/x/slow", handler=self._answer, op="send")]

    def _answer(self, _request: Request) -> asyncio.Future[dict[str, str]]:
        return self.reply


@dataclass
class Node:
    """A gateway before a mailbox, under one root, as a node has them."""

    site: Site
    root: Root
    mailbox: MailboxService
    gateway: OmnigateService
    slow: Slow

    async def ask(self, path: str, body: bytes) -> RawClient:
        """Send a request through the gateway, and let it begin to wait."""
        client = self.site.connect()
        client.send(post(path, body))
        await settle(100)
        return client

    async def drain(self) -> tuple[dict[str, DrainReport], float]:
        """Drain everything; returns the reports, and how long it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        reports = await self.root.drain()
        return {report.service: report for report in reports}, loop.time() - began


@asynccontextmanager
async def beside(mailbox: MailboxService) -> AsyncIterator[Any]:
    """Reach the mailbox as a gateway in another process does."""
    server = OapServer(Inventory("svc"), OapServerOptions(), [serve(METHODS, mailbox.api)])

    async def dial(protocol: Any) -> Any:
        connection = protocol()
        return memory_pair(connection, server.protocol())[0], connection

    client = OapClient(Inventory("caller"), OapClientOptions(call_timeout_s=30.0), dial=dial)
    await server.start()
    try:
        yield Stub(client, METHODS)
    finally:
        await client.close()
        await server.close()


@asynccontextmanager
async def node(*, elsewhere: bool = False, slots: int = 8) -> AsyncIterator[Node]:
    """Run both; the mailbox is called in the process, or as if it were in another one."""
    own = Inventory("svc-mailbox", LoopClock(1_700_000_000.0))
    mailbox, slow = MailboxService(own, MailboxOptions(), engine=MemoryEngine(bytes(32))), Slow()
    async with beside(mailbox) as stub:
        mounted = [] if elsewhere else [MountedService(name="svc-mailbox", routes=mailbox.routes)]
        inventory = Inventory("omnigate", LoopClock())
        gateway = OmnigateService(
            inventory,
            OmnigateOptions(fair=FairOptions(max_inflight=slots, adaptive=False), quotas=OFF),
            behind=GatewayBackends(
                mailbox=stub if elsewhere else mailbox.api,
                mounted=(*mounted, MountedService(name="svc-slow", routes=slow.routes)),
            ),
        )
        gateway.listener = Listener(
            inventory, ListenerOptions(host=None, half_close=False), gateway.routes, admission=gateway.gate.admit
        )
        supervisors = [
            Staged(Supervisor(inventory, gateway.children(), gateway.supervision()), 1),
            Staged(Supervisor(own, mailbox.children(), mailbox.supervision()), 2),
        ]
        root = Root(supervisors, Inventory("node").metrics, exit_on_fatal=False)
        await root.start()
        try:
            yield Node(Site(gateway.listener, inventory, []), root, mailbox, gateway, slow)
        finally:
            await root.drain()
            await gateway.close()
            await mailbox.close()


@pytest.mark.parametrize(
    ("path", "body", "elsewhere"),
    [
        ("/v1/recv", TOPIC_WAIT, False),
        ("/v1/mailbox/orders/recv", WAIT, False),
        ("/v1/mailbox/orders/recv", WAIT, True),
    ],
)
async def test_a_poll_that_waits_is_answered_empty_as_soon_as_the_gateway_drains(
    path: str, body: bytes, elsewhere: bool
) -> None:
    async with node(elsewhere=elsewhere) as running:
        clients = [await running.ask(path, body) for _ in range(3)]
        parked = running.mailbox.state.waiters.count
        reports, took_s = await running.drain()
        answers = [(await client.gone())[0] for client in clients]

    assert parked == 3
    assert [(answer.status, answer.json()) for answer in answers] == [(200, {"messages": []})] * 3
    assert [report.clean for report in reports.values()] == [True, True], reports
    assert took_s < 0.1


async def test_a_stream_ends_with_its_last_line_as_soon_as_the_gateway_drains() -> None:
    async with node() as running:
        await running.mailbox.api.send(Send("orders", b"x"))
        waits_for_message = await running.ask("/v1/recv/stream", b'{"topic": "idle"}')
        waits_for_credit = await running.ask("/v1/recv/stream", b'{"topic": "orders", "max_inflight": 1}')
        reports, _ = await running.drain()
        bodies = [(await client.gone())[0].body for client in (waits_for_message, waits_for_credit)]

    assert [json.loads(body.splitlines()[-1]) for body in bodies] == [{"end": "draining"}] * 2
    assert [report.clean for report in reports.values()] == [True, True], reports
    assert reports["omnigate"].elapsed_s < 0.1


@pytest.mark.parametrize(("path", "body"), [("/v1/recv", TOPIC_WAIT), ("/v1/mailbox/orders/recv", WAIT)])
async def test_a_poll_that_gets_its_slot_while_the_gateway_drains_does_not_wait(path: str, body: bytes) -> None:
    async with node(slots=1) as running:
        first = await running.ask("/v1/topics/x/slow", b"")
        held = await running.ask(path, body)
        asyncio.get_running_loop().call_later(1.0, running.slow.reply.set_result, {"slow": "done"})
        reports, took_s = await running.drain()
        answers = [(await client.gone())[0] for client in (first, held)]

    assert [(answer.status, answer.json()) for answer in answers] == [(200, {"slow": "done"}), (200, {"messages": []})]
    assert [report.clean for report in reports.values()] == [True, True], reports
    assert 1.0 <= took_s < 1.1


@pytest.mark.parametrize("turns", range(8))
async def test_no_message_is_taken_along_by_a_poll_that_the_drain_ends(turns: int) -> None:
    """A message that arrives with the drain is handed over, or stays for somebody else."""
    async with node() as running:
        client = await running.ask("/v1/mailbox/orders/recv", WAIT)
        sending = asyncio.ensure_future(running.mailbox.api.send(Send("orders", b"x")))
        assert running.gateway.listener is not None
        await settle(turns)
        running.gateway.listener.stop_intake()
        await sending
        answer = await client.answer()
        await settle(100)
        left = await running.mailbox.api.recv(Recv("orders"))

    assert len(answer.json()["messages"]) + len(left.messages) == 1


async def test_a_request_whose_service_is_slow_is_answered_before_the_drain_ends() -> None:
    async with node() as running:
        client = await running.ask("/v1/topics/x/slow", b"")
        idle = running.site.connect()
        asyncio.get_running_loop().call_later(2.0, running.slow.reply.set_result, {"slow": "done"})
        reports, _ = await running.drain()
        answers = await client.gone()
        await idle.gone()

    assert [(answer.status, answer.json()) for answer in answers] == [(200, {"slow": "done"})]
    assert [report.clean for report in reports.values()] == [True, True], reports


async def test_a_request_that_outlives_the_drain_is_told_so_and_the_report_is_not_clean() -> None:
    async with node() as running:
        client = await running.ask("/v1/topics/x/slow", b"")
        reports, took_s = await running.drain()
        answers = await client.gone()

    assert [(answer.status, answer.json()["code"]) for answer in answers] == [(503, "canceled")]
    assert not reports["omnigate"].clean
    assert reports["svc-mailbox"].clean
    assert took_s >= 3.0
