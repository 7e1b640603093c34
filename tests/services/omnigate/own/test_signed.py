"""Signed routes at the gateway: an operator's own routes come first, and take the place of all of them."""

from __future__ import annotations

import pytest

from penstock.kernel.clock import LoopClock
from penstock.kernel.inventory import Inventory
from penstock.net.server.route import Route
from penstock.services.omnigate.config import OmnigateOptions
from penstock.services.omnigate.own.signed import SignedService, mount_signed
from penstock.services.omnigate.proxy.live_routes import NewRoute
from penstock.services.omnigate.service import GatewayBackends, OmnigateService

PATHS = ("/", "/sqs", "/000000000000/{queue}", "/queue/{region}/000000000000/{queue}")
SIGNED = SignedService(
    name="svc-interop",
    routes=[Route(method="POST", path=path, handler=lambda _request: None, op="sqs", open=True) for path in PATHS],
)


def served(gateway: OmnigateService) -> int:
    return sum(route.op == "sqs" for route in gateway.routes)


@pytest.mark.parametrize(
    ("prefixes", "count"),
    [
        ([], 4),
        ([("shop",)], 4),
        ([("shop",), ("sqs",)], 0),
        ([("queue", "x")], 0),
        ([("000000000000",)], 0),
        ([()], 0),
    ],
)
def test_a_configured_prefix_in_their_way_keeps_signed_routes_off(prefixes: list[tuple[str, ...]], count: int) -> None:
    assert len(mount_signed(SIGNED, prefixes)) == count


def test_without_a_service_nothing_is_signed() -> None:
    assert mount_signed(None, [("shop",)]) == {}


async def test_a_route_that_is_added_takes_their_place_and_gives_it_back() -> None:
    inventory, beside = Inventory("omnigate", LoopClock()), (NewRoute("/shop", ("http://127.0.0.1:1",)).route(),)
    gateway = OmnigateService(inventory, OmnigateOptions(routes=beside), behind=GatewayBackends(signed=SIGNED))
    counts = [served(gateway)]
    gateway.live_routes.add(NewRoute("/", ("http://127.0.0.1:1",)))
    counts.append(served(gateway))
    gateway.live_routes.remove("/")
    counts.append(served(gateway))
    await gateway.close()

    assert counts == [4, 0, 4]
