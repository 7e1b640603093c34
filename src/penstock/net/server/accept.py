"""Accepts TCP clients. When the process is out of descriptors it pauses, counts that, and tries again.

The loops' own servers do neither then: uvloop closes each new connection without a trace, and asyncio fills the log.
"""

from __future__ import annotations

import socket
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.kernel.deadline import timeout
from penstock.kernel.errors import Busy
from penstock.net.server.connection import Connection
from penstock.net.server.wheel import NEVER

if TYPE_CHECKING:
    import asyncio

    from penstock.net.server.core import Core
    from penstock.net.server.listener_options import ListenerOptions

ACCEPTS_A_TURN_MAX: Final = 32
# An accept that finds the queue empty costs more than another turn of the loop. So several are taken at a time only
# after this many turns in a row have each found somebody.
_TURNS_ALONE: Final = 8
# How long a listener without descriptors leaves the queue of newcomers alone.
ACCEPT_PAUSE_S: Final = 0.1
RESOLVE_S: Final = 5.0


class Acceptor:
    """Listens on sockets from the start until `close`, in place of `asyncio.Server`."""

    def __init__(self, core: Core, sockets: list[socket.socket]) -> None:
        """Start accepting on sockets that listen already."""
        self.sockets = tuple(sockets)
        self._core = core
        self._make = partial(Connection, core)
        self._closed = False
        # Turns in a row that took all they were allowed to.
        self._full_turns = 0
        # True from the first accept that failed to the next that did not, so that a failure is logged once.
        self._starved = False
        # For the wheel: when to accept again after a pause.
        self.due = NEVER
        self.slot = 0
        self._listen()

    def close(self) -> None:
        """Stop accepting; connections that were accepted stay."""
        if self._closed:
            return
        self._closed = True
        self.due = NEVER
        self._core.wheel.forget(self)
        for listening in self.sockets:
            self._core.loop.remove_reader(listening)
            listening.close()

    def _listen(self) -> None:
        # Connections run in the context they were accepted in. In a fresh one they do not inherit the deadline of the
        # code that binds, or whose timer ends a pause.
        for listening in self.sockets:
            Context().run(self._core.loop.add_reader, listening, self._accept, listening)

    def _pause(self, error: OSError) -> None:
        """Stop accepting for a moment: without descriptors each turn of the loop would fail again."""
        self._core.accept_pauses.value += 1
        if not self._starved:
            self._starved = True
            self._core.log.error("listener.accept_failed", error=error)
        for listening in self.sockets:
            self._core.loop.remove_reader(listening)
        self.due = self._core.loop.time() + ACCEPT_PAUSE_S
        self._core.wheel.watch(self)

    def expire(self, now: float) -> None:
        """Accept again; the wheel calls this when the pause is over."""
        if now >= self.due:
            self.due = NEVER
            self._listen()

    def _accept(self, listening: socket.socket) -> None:
        """Accept one client, or several if many are waiting; the rest get the next turn."""
        for _ in range(self._allowance()):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                self._full_turns = 0
                return
            except OSError as error:
                self._pause(error)
                return
            if self._starved:
                self._starved = False
                self._core.log.info("listener.accepts_again")
            sock.setblocking(False)
            self._admit(sock, address)
        self._full_turns += 1

    def _allowance(self) -> int:
        """Return how many may be accepted in this turn: it doubles while every turn uses all it may."""
        return 1 << min(max(0, self._full_turns - _TURNS_ALONE), ACCEPTS_A_TURN_MAX.bit_length() - 1)

    def _admit(self, sock: socket.socket, address: tuple[str, int] | str) -> None:
        """Hand an accepted socket to the loop; its connection takes a place under the caps itself."""
        try:
            self._core.accepting.start(self._hand_over(sock))
        except Busy:
            sock.close()

    async def _hand_over(self, sock: socket.socket) -> None:
        try:
            await self._core.loop.connect_accepted_socket(self._make, sock)
        except OSError:
            # The client closed before its connection was made.
            sock.close()


async def listen_tcp(loop: asyncio.AbstractEventLoop, options: ListenerOptions, host: str) -> list[socket.socket]:
    """Listen on every address of a host, or on none."""
    async with timeout("resolve", RESOLVE_S):
        found = await loop.getaddrinfo(host or None, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            # Named, because accepted sockets take it over, and one that is not known to be TCP is left with its delay.
            sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            sockets.append(sock)
            _listen_at(sock, address, options)
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def _listen_at(sock: socket.socket, address: tuple[object, ...], options: ListenerOptions) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if options.reuse_port:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sock.bind(address)
    sock.listen(options.backlog)
