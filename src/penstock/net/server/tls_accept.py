"""Accepts TLS clients. A place under the caps is taken at the accept, because a handshake may never come."""

from __future__ import annotations

import socket
from functools import partial
from typing import TYPE_CHECKING

from penstock.kernel.errors import Busy
from penstock.net.message import Peer
from penstock.net.server.accept import Acceptor
from penstock.net.server.caps import HEALTH_HEAD_S
from penstock.net.server.connection import Connection

if TYPE_CHECKING:
    import asyncio
    import ssl

    from penstock.net.server.core import Core


class Handshake:
    """A client that holds a place while its handshake runs. It cannot be answered yet, so it is cut in silence."""

    __slots__ = ("idle_since", "peer", "seconds", "sock", "task")

    def __init__(self, sock: socket.socket, peer: Peer, now: float, seconds: float) -> None:
        """Count as idle from the accept on, so that it can be closed to make room."""
        # Closed here until the loop owns it.
        self.sock: socket.socket | None = sock
        self.peer = peer
        self.idle_since = now
        # How long the handshake may take.
        self.seconds = seconds
        self.task: asyncio.Task[None] | None = None

    def close_if_idle(self) -> None:
        """Give the place to somebody else."""
        self.abort()

    def hear_drain(self) -> None:
        """End: nothing was asked yet."""
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


class SecureServer(Acceptor):
    """An acceptor whose clients do a TLS handshake first."""

    def __init__(self, core: Core, sockets: list[socket.socket], context: ssl.SSLContext) -> None:
        """Start accepting on sockets that listen already."""
        self._context = context
        super().__init__(core, sockets)

    def renew(self, context: ssl.SSLContext) -> None:
        """Show another certificate to whoever comes from now on."""
        self._context = context

    def _admit(self, sock: socket.socket, address: tuple[str, int] | str) -> None:
        """Give a place and start the handshake, or hang up: there is no answer before the keys are agreed on."""
        core = self._core
        peer = Peer(str(address[0]), int(address[1]), None, secure=True)
        held = Handshake(sock, peer, core.monotonic(), core.options.read_timeout_s)
        refusal = core.caps.enter(held, held.idle_since)
        if refusal is not None and not core.caps.enter_for_health(held, refusal):
            self._end(held)
            return
        if refusal is not None:
            held.seconds = HEALTH_HEAD_S
        try:
            held.task = core.accepting.start(self._shake_hands(held, sock))
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
                ssl_handshake_timeout=held.seconds,
            )
        except OSError:
            # The client speaks no TLS 1.3, or not in time; there is no way to answer it.
            return

    def _end(self, held: Handshake) -> None:
        self._core.caps.leave(held)
        held.drop()
