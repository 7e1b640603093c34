"""A service in another process: where it is, and the connections to it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from penstock.contracts.call import NOBODY, Call
from penstock.contracts.method import Methods
from penstock.kernel.backoff import Doubling
from penstock.kernel.errors import Malformed
from penstock.kernel.inventory import Inventory
from penstock.net.calls.origin import parse_url
from penstock.net.oap.client import OapClient, OapClientOptions
from penstock.rpc.pool import OapPool
from penstock.wire.oap.hello import MAX_INFLIGHT

_SCHEME: Final = "oap:"
# Who calls has a breaker, and that is the patience there is: a peer that comes back is found at the next call.
_SOON: Final = Doubling(0.010, 0.020, cap_s=0.050)


def oap_place(address: str) -> OapClientOptions:
    """Read `oap:/socket` or `oap://host:port`."""
    where = address.removeprefix(_SCHEME)
    if where == address or not where.startswith("/"):
        raise Malformed(f"{address!r} is neither oap:/socket nor oap://host:port")
    if not where.startswith("//"):
        return OapClientOptions(uds_path=Path(where))
    origin, path = parse_url(f"http:{where}")
    if path != "/" or not where.endswith(f":{origin.port}"):
        raise Malformed(f"{address!r} is not oap://host:port")
    return OapClientOptions(host=origin.host, port=origin.port)


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteOptions:
    """How many calls of which length at once."""

    calls_max: int
    call_timeout_s: float
    # Calls that wait at the peer for something to happen.
    polls_max: int = 0
    poll_timeout_s: float = 30.0
    # What is said while there is no such socket, where nobody may have meant to be.
    absent: str = ""


class Remote:
    """The connections to one service. Long polls have connections of their own, so that they hold up no other call."""

    def __init__(self, inventory: Inventory, place: OapClientOptions, options: RemoteOptions) -> None:
        self._inventory = inventory
        # One try: whoever calls decides about another.
        self._place = replace(place, tries_max=1, backoff=_SOON, absent=options.absent)
        self._calls = self._pool(options.calls_max, options.call_timeout_s)
        self._polls = self._pool(options.polls_max, options.poll_timeout_s)

    def _pool(self, calls_max: int, timeout_s: float) -> OapPool:
        options = replace(self._place, call_timeout_s=timeout_s)
        connections_max = math.ceil(calls_max / MAX_INFLIGHT)
        return OapPool(lambda: OapClient(self._inventory, options), connections_max=connections_max)

    async def call(self, methods: Methods, name: str, value: object, call: Call = NOBODY) -> Any:  # noqa: ANN401
        """Call and wait for the answer; a value with `wait_ms` is a long poll and uses the connections for those."""
        pool = self._polls if getattr(value, "wait_ms", 0) else self._calls
        return await pool.call(methods, name, value, call)

    async def close(self) -> None:
        """Fail what is under way and close every connection."""
        await self._calls.close()
        await self._polls.close()
