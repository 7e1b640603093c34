"""The tour's overload: three classes ask for more than the gateway can serve, and share it by their weights."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from penstock.cli.tour.context import TourContext
from penstock.cli.tour.node import TourNode
from penstock.contracts.capability import TrafficClass
from penstock.kernel.errors import PenstockError
from penstock.kernel.inventory import Inventory
from penstock.kernel.scope import Scope
from penstock.net.calls.client import ClientOptions, HttpClient
from penstock.net.message import Request
from penstock.net.server.listener import Listener, ListenerOptions
from penstock.net.server.route import Route
from penstock.sdk import Client

WEIGHTS: Final[dict[TrafficClass, int]] = {"anon": 1, "authed": 5, "internal": 10}
_PATH: Final = "/work"
_SLOTS: Final = 8
_WORK_S: Final = 0.02
# So many that every class always has somebody waiting, and no more than its queue holds for one tenant.
_CALLERS: Final[dict[TrafficClass, int]] = {"anon": 14, "authed": 40, "internal": 80}
_SECONDS: Final = 4.0
# Shares of a few are no shares. A machine whose cores are taken needs longer for enough of them.
_SERVED_MIN: Final = 600
_SECONDS_MAX: Final = 30.0
_SHARE_OFF_BY: Final = 0.5
_CONFIG: Final = """
[omnigate]
default_deadline = "30s"
[omnigate.quotas]
default_rps = 0
per_ip_rps = 0
per_cap_rps = 0
[omnigate.fair_queue]
max_inflight = {slots}
quantum_bytes = "4KiB"
adaptive = false
[[omnigate.routes]]
prefix = "{path}"
upstream = ["http://127.0.0.1:{port}"]
"""


async def overload(tour: TourContext, _client: Client) -> None:
    """Start a gateway in front of a slow service, and have the callers of all classes ask at once."""
    async with _slow_service() as port:
        with TemporaryDirectory() as directory:
            config = Path(directory) / "tour.toml"
            config.write_text(_CONFIG.format(slots=_SLOTS, port=port, path=_PATH), encoding="ascii")
            with TourNode(arguments=("--config", str(config))) as node:
                began = asyncio.get_running_loop().time()
                done, refused = await _everybody(node)
                elapsed_s = asyncio.get_running_loop().time() - began
    total = done.total()
    for name, weight in WEIGHTS.items():
        wanted = weight / sum(WEIGHTS.values())
        share = done[name] / max(1, total)
        tour.told(
            f"{_CALLERS[name]} callers of class {name} (weight {weight}) all the time",
            f"{done[name]} served, {share:.0%} of {total}",
            ok=abs(share - wanted) <= _SHARE_OFF_BY * wanted,
            should=f"about {wanted:.0%}",
        )
    capacity = _SLOTS / _WORK_S
    tour.told(
        f"all that for {elapsed_s:.0f} s, of a service that can do {capacity:g} a second",
        f"{total / elapsed_s:.0f} a second, {refused.total()} refused",
        ok=total >= _SERVED_MIN,
        should=f"at least {_SERVED_MIN} within {_SECONDS_MAX:g} s",
    )


@asynccontextmanager
async def _slow_service() -> AsyncIterator[int]:
    async def work(_request: Request) -> dict[str, bool]:
        await asyncio.sleep(_WORK_S)
        return {"done": True}

    options = ListenerOptions(max_conns_per_ip=1024)
    listener = Listener(Inventory("tour_service"), options, [Route(method="GET", path=_PATH, handler=work)])
    await listener.start()
    try:
        yield listener.port
    finally:
        await listener.close()


async def _everybody(node: TourNode) -> tuple[Counter[str], Counter[str]]:
    """Have every class ask without pause for a while; count what was served and what was refused."""
    done, refused = Counter[str](), Counter[str]()
    async with Client(node.place) as operator:
        fields = {name: await _fields(operator, name) for name in WEIGHTS}
        url = operator.place.url("omnigate") + _PATH
        bounds = ClientOptions(service="omnigate", connections_max=sum(_CALLERS.values()), tries_max=1)
        callers = Scope("caller", sum(_CALLERS.values()), operator.inventory.metrics)
        clock = asyncio.get_running_loop().time
        began = clock()

        async def call(name: str) -> None:
            while clock() < began + (_SECONDS if done.total() >= _SERVED_MIN else _SECONDS_MAX):
                try:
                    answer = await http.request("GET", url, headers=fields[name])  # type: ignore[index]
                    (done if answer.status == 200 else refused)[name] += 1
                except PenstockError:
                    refused[name] += 1

        async with HttpClient(Inventory("tour"), bounds) as http:
            try:
                for name, count in _CALLERS.items():
                    for _ in range(count):
                        callers.start(call(name))
                await callers.join()
            finally:
                await callers.close()
    return done, refused


async def _fields(operator: Client, name: TrafficClass) -> list[tuple[bytes, bytes]]:
    """Return the header fields of a caller of this class: none, or a token that carries the class."""
    if name == "anon":
        return []
    issued = await operator.passport.issue(f"tour-{name}", "omnigate", traffic_class=name, tenant=f"tour-{name}")
    return [(b"Authorization", b"Bearer " + issued.token.encode("ascii"))]
