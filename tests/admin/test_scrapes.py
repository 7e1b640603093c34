"""A flood of scrapes without a token takes only its own address's share; the operator is never counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from penstock.admin.scrapes import SCRAPES_DEPTH, SCRAPES_RPS, ScrapeQuota
from penstock.kernel.inventory import Inventory
from penstock.net.message import Peer
from penstock.net.server.route import Route
from penstock.testing import VirtualClock

METRICS = Route(method="GET", path="/metrics", handler=dict)
STATUS = Route(method="GET", path="/status", handler=dict)


@dataclass(frozen=True)
class Asked:
    """As much of a request as the quota looks at."""

    host: str = "192.0.2.1"
    route: Route = METRICS
    operator: bool = False

    @property
    def peer(self) -> Peer:
        return Peer(self.host, 1, None, secure=False)


def quota(clock: VirtualClock) -> ScrapeQuota:
    return ScrapeQuota(Inventory("node", clock=clock), "admin", is_operator=lambda asked: cast("Any", asked).operator)


def served(under: ScrapeQuota, request: Asked, count: int) -> int:
    return sum(under.admit(request) is None for _ in range(count))  # type: ignore[arg-type]


def test_an_address_reads_a_burst_and_then_a_few_pages_a_second() -> None:
    clock = VirtualClock()
    under = quota(clock)

    assert served(under, Asked(), 500) == SCRAPES_DEPTH
    clock.advance(1.0)
    assert served(under, Asked(), 500) == SCRAPES_RPS
    assert under.refused == 1000 - SCRAPES_DEPTH - SCRAPES_RPS


def test_other_addresses_the_operator_and_other_routes_are_not_counted() -> None:
    under = quota(VirtualClock())
    served(under, Asked(), 500)

    assert served(under, Asked("192.0.2.2"), 5) == 5
    assert served(under, Asked(operator=True), 100) == 100
    assert served(under, Asked(route=STATUS), 100) == 100
