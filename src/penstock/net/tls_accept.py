"""Accepting TLS clients: a place under the caps is taken at the accept, not after a handshake that may never come."""

from __future__ import annotations

import socket
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.kernel.deadline import timeout
from penstock.kernel.errors import Busy
from penstock.kernel.scope import Scope
from penstock.net.connection import Connection
from penstock.net.message import Peer
from penstock.net.wheel import NEVER

if TYPE_CHECKING:
    import asyncio
    import ssl

    from penstock.net.core import Core
    from penstock.net.listener_options import ListenerOptions

ACCEPTS_A_TURN: Final = 8
# How long a listener without descriptors leaves the queue of newcomers alone.
ACCEPT_PAUSE_S: Final = 1.0
RESOLVE_S: Final = 5.0


class Handshake:
    """A client that holds a place and has not shown a handshake yet. It speaks no HTTP: it is cut without a word."""

    __slots__ = ("idle_since", "peer", "sock", "task")

    def __init__(self, sock: socket.socket, peer: Peer, now: float) -> None:
        """Count as idle from the accept on, as a silent client of a plain port does."""
        # Ours to close until the loop has it.
        self.sock: socket.socket | None = sock
        self.peer = peer
        self.idle_since = now
        self.task: asyncio.Task[None] | None = None

    def close_if_idle(self) -> None:
        """Give the place to somebody else."""
        self.abort()

    def abort(self) -> None:
        """End the handshake."""
        if self.task is not None:
            self.task.cancel()

    def drop(self) -> None:
        """Close a socket that the loop never got."""
        sock, self.sock = self.sock, None
        if sock is not None:
            sock.close()


class SecureServer:
    """What `asyncio.Server` is to plain sockets: it listens from the start until `close`."""

    def __init__(self, core: Core, context: ssl.SSLContext, sockets: list[socket.socket]) -> None:
        """Start accepting on sockets that listen already."""
        self.sockets = tuple(sockets)
        self._core = core
        self._context = context
        self._scope = Scope("handshake", 2 * core.options.max_conns, core.metrics)
        self._closed = False
        # The wheel's: when to look for newcomers again after a pause.
        self.due = NEVER
        self.slot = 0
        self._listen()

    def close(self) -> None:
        """Accept nobody any more; who was accepted stays."""
        if self._closed:
            return
        self._closed = True
        self.due = NEVER
        self._core.wheel.forget(self)
        for listening in self.sockets:
            self._core.loop.remove_reader(listening)
            listening.close()

    def _listen(self) -> None:
        for listening in self.sockets:
            self._core.loop.add_reader(listening, self._accept, listening)

    def _pause(self) -> None:
        """Leave newcomers in the queue: without descriptors the loop would only spin on them."""
        for listening in self.sockets:
            self._core.loop.remove_reader(listening)
        self.due = self._core.loop.time() + ACCEPT_PAUSE_S
        self._core.wheel.watch(self)

    def expire(self, now: float) -> None:
        """Look for newcomers again; the wheel calls this."""
        if now >= self.due:
            self.due = NEVER
            self._listen()

    def _accept(self, listening: socket.socket) -> None:
        """Take a few newcomers; the others get the next turn."""
        for _ in range(ACCEPTS_A_TURN):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._core.log.error("listener.accept_failed", error=error)
                self._pause()
                return
            self._admit(sock, Peer(address[0], address[1], None, secure=True))

    def _admit(self, sock: socket.socket, peer: Peer) -> None:
        """Give a place and start the handshake, or hang up: there is no answer before the keys are agreed on."""
        core = self._core
        sock.setblocking(False)
        held = Handshake(sock, peer, core.monotonic())
        if core.caps.enter(held, held.idle_since) is not None:
            self._end(held)
            return
        # The caps are the bound; one that was cut to make room is still here for a moment.
        self._scope.limit = 2 * core.options.max_conns
        try:
            held.task = self._scope.start(self._shake_hands(held, sock))
        except Busy:
            self._end(held)
            return
        held.task.add_done_callback(lambda _task: self._end(held))

    async def _shake_hands(self, held: Handshake, sock: socket.socket) -> None:
        """Run the handshake under the read deadline; the connection takes the place over when it is done."""
        core, held.sock = self._core, None
        try:
            await core.loop.connect_accepted_socket(
                partial(Connection, core, held),
                sock,
                ssl=self._context,
                ssl_handshake_timeout=core.options.read_timeout_s,
            )
        except OSError:
            # A client that speaks no TLS, an older one, or none in time: nothing of ours, and nobody to tell.
            return

    def _end(self, held: Handshake) -> None:
        self._core.caps.leave(held)
        held.drop()


async def listen_tcp(loop: asyncio.AbstractEventLoop, options: ListenerOptions, host: str) -> list[socket.socket]:
    """Listen on every address of a host, or on none."""
    async with timeout("resolve", RESOLVE_S):
        found = await loop.getaddrinfo(host or None, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            sock = socket.socket(family, socket.SOCK_STREAM)
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
