"""The connections to one origin, on the real pool of the client: three callers, one place, sockets of the model.

A caller may be cancelled, the peer may hang up, and the client may be closed, at any moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from penstock import weave
from penstock.kernel.errors import Canceled, DownstreamUnavailable
from penstock.kernel.metrics import Counter, Metrics
from penstock.net.calls.call import ClientOptions
from penstock.net.calls.connection import ClientConnection
from penstock.net.calls.origin import HttpOrigin
from penstock.net.calls.pool import ClientShared, OriginPool
from penstock.net.calls.waiting import ClientTimeouts

IGNORES = (ClientOptions, ClientTimeouts, Counter, HttpOrigin, Metrics)


class Socket(asyncio.Transport):
    """A transport that can only be closed."""

    def __init__(self, protocol: ClientConnection) -> None:
        super().__init__()
        self._protocol = protocol
        self._closing = False

    def is_closing(self) -> bool:
        return self._closing

    def abort(self) -> None:
        if not self._closing:
            self._closing = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    close = abort


class Peer:
    """Answers whoever dials, a turn later; counts its sockets."""

    def __init__(self) -> None:
        self.sockets: list[Socket] = []
        self.closed = False
        self.dialled_late = 0

    async def __call__(self, _origin: HttpOrigin, connection: ClientConnection) -> None:
        self.dialled_late += self.closed
        await asyncio.sleep(0)
        socket = Socket(connection)
        self.sockets.append(socket)
        connection.connection_made(socket)

    def open_sockets(self) -> int:
        """Count the sockets that are not closed."""
        return sum(not socket.is_closing() for socket in self.sockets)

    def hang_up(self) -> None:
        """Close what is open, as a peer does."""
        for socket in self.sockets:
            socket.abort()


class ForgetfulPool(OriginPool):
    """Gives nothing back that was handed to a caller who gives up: the planted bug."""

    __slots__ = ()

    def _give_up(self, waiter: Any) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)


async def connections(happens: tuple[str, ...], *, planted: bool = False) -> str:
    """Let three callers use one place; nobody waits for ever, no place is lost, and a closed client dials no more."""
    peer = Peer()
    options = ClientOptions(service="svc", connections_max=1, waiters_max=4, idle_s=5.0)
    shared = ClientShared(options, Metrics("client"), peer)
    # Nothing is read here, and every state is compared with all its bytes.
    shared.buffer = bytearray(8)
    pool = (ForgetfulPool if planted else OriginPool)(HttpOrigin("http", "peer", 80, b"peer"), shared)
    weave.always(lambda: peer.open_sockets() <= 1, "one connection at a time")

    async def call() -> str:
        try:
            connection = await pool.acquire()
        except (Canceled, DownstreamUnavailable) as error:
            return type(error).__name__
        try:
            await asyncio.sleep(0)
        finally:
            pool.release(connection)
        return "done"

    callers = [asyncio.ensure_future(call()) for _ in range(3)]

    def cut() -> None:
        peer.closed = True
        pool.cut()

    events: dict[str, Callable[..., object]] = {"cancel": callers[1].cancel, "cut": cut, "hang up": peer.hang_up}
    for what in happens:
        weave.event(events[what])
    await asyncio.wait(callers)
    assert not peer.dialled_late, "a closed client dials"
    assert pool.quiet, f"{pool.connections} places, {pool.idle} idle, {pool.waiting} wait"
    cut()
    await pool.emptied()
    assert peer.open_sockets() == 0, "a socket is left open"
    return ", ".join("cancelled" if caller.cancelled() else caller.result() for caller in callers)
