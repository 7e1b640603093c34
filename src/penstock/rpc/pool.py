"""One peer over as many OAP/1 connections as its calls need: each connection carries a bounded number of calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from penstock.contracts.call import NOBODY, Call
from penstock.contracts.method import Methods
from penstock.kernel.errors import Busy
from penstock.net.oap.client import OapClient


class OapCaller(Protocol):
    """Whoever carries a call to a peer: a client, or a pool of them."""

    async def call(self, methods: Methods, name: str, value: object, call: Call = NOBODY) -> Any:  # noqa: ANN401
        """Ask and wait for the answer."""


class OapPool:
    """Fills one connection before it opens the next. A connection that is idle for long closes itself."""

    def __init__(self, make: Callable[[], OapClient], *, connections_max: int) -> None:
        self._make = make
        self._connections_max = connections_max
        self._clients: list[OapClient] = []

    async def call(self, methods: Methods, name: str, value: object, call: Call = NOBODY) -> Any:  # noqa: ANN401
        """Call on the first connection that takes another call; `Busy` at once if none does."""
        return await self._free().call(methods, name, value, call)

    def _free(self) -> OapClient:
        for client in self._clients:
            if not client.full:
                return client
        if len(self._clients) >= self._connections_max:
            raise Busy("As many calls are under way as the peer takes.", queue="oap_calls")
        self._clients.append(client := self._make())
        return client

    async def close(self) -> None:
        """Fail what is under way and close every connection."""
        for client in self._clients:
            await client.close()
