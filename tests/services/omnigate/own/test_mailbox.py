"""The mailbox through the gateway: how long a poll may take, and what is tried again."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

from penstock.contracts import mailbox as m
from penstock.contracts.call import Call
from penstock.kernel.clock import LoopClock
from penstock.kernel.errors import DownstreamUnavailable
from penstock.kernel.inventory import Inventory
from penstock.services.omnigate.own.downstream import Downstream, DownstreamOptions
from penstock.services.omnigate.own.mailbox import LONG_POLL_EXTRA_S, GatewayMailboxRoutes
from tests.net.server.listener_kit import post, serving


class Ill:
    """A mailbox that answers what asks for nothing long, and never those who wait; its sends fail."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def recv(self, recv: m.Recv, _call: Call) -> m.Received:
        """Have nothing, or say nothing."""
        self.asked.append("recv")
        if recv.topic == "down":
            raise DownstreamUnavailable("Gone.")
        if recv.wait_ms:
            await asyncio.get_running_loop().create_future()
        return m.Received(())

    async def send(self, _send: m.Send, _call: Call) -> m.Sent:
        """Fail."""
        self.asked.append("send")
        raise DownstreamUnavailable("Gone.")


def site(ill: Ill) -> Any:
    """Serve the routes in front of it."""
    inventory = Inventory("omnigate", LoopClock())
    downstream = Downstream(inventory, DownstreamOptions(service="svc-mailbox"))
    return serving(GatewayMailboxRoutes(cast("m.Mailbox", ill), downstream).routes())


async def test_a_poll_that_is_not_answered_ends_two_seconds_after_it_asked_to() -> None:
    async with site(Ill()) as served:
        client = served.connect()
        began = asyncio.get_running_loop().time()
        client.send(post("/v1/mailbox/orders/recv", json.dumps({"wait_ms": 1000}).encode()))
        answer = await client.answer()
        took_s = asyncio.get_running_loop().time() - began

    assert (answer.status, answer.json()["op"]) == (504, "rpc")
    assert 1.0 + LONG_POLL_EXTRA_S <= took_s < 1.1 + LONG_POLL_EXTRA_S


async def test_a_recv_is_never_tried_again_and_a_send_only_with_its_key() -> None:
    asked: dict[str, int] = {}
    for name, path, field in (
        ("recv", "/v1/mailbox/down/recv", ()),
        ("send", "/v1/mailbox/down", ()),
        ("keyed", "/v1/mailbox/down", ("Idempotency-Key: one",)),
    ):
        ill = Ill()
        async with site(ill) as served:
            client = served.connect()
            client.send(post(path, b"{}", *field))
            await client.answer()
        asked[name] = len(ill.asked)

    assert asked == {"recv": 1, "send": 1, "keyed": 3}
