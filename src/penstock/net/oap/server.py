"""The OAP/1 endpoint of a service: a listener on a Unix socket or TCP that dispatches by method table."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Final

import msgspec

from penstock.contracts.method import Methods
from penstock.kernel.child import Child
from penstock.kernel.deadline import no_deadline, timeout
from penstock.kernel.errors import Timeout
from penstock.kernel.inventory import Inventory
from penstock.kernel.log import Log
from penstock.kernel.resource import Resource
from penstock.kernel.scope import Scope
from penstock.net.oap.service import OapServerOptions, OapService, declare
from penstock.net.oap.serving import OapServerConnection
from penstock.net.server.bind import CannotBind
from penstock.net.server.unix import listen_unix, remove_socket
from penstock.wire.oap.frame import EVENT, Frame
from penstock.wire.oap.stream import Budget

BIND_S: Final = 5.0


class OapServer(Resource):
    """Listens, keeps the connections, drains them. One for each service process."""

    def __init__(
        self,
        inventory: Inventory,
        options: OapServerOptions,
        services: Sequence[OapService],
        *,
        budget: Budget | None = None,
    ) -> None:
        """Declare the endpoint; nothing is bound before `start`."""
        self.options = options
        self.budget = budget
        self.services = {service.methods.app_proto_id: service for service in services}
        self.connections: set[OapServerConnection] = set()
        self.draining = False
        self.log = Log(inventory.service)
        self.allowed_uids = frozenset((os.geteuid(), *options.uds_allow_uids))
        self.counters = declare(inventory, options)
        self._metrics = inventory.metrics
        self._scope: Scope | None = None
        self._server: asyncio.Server | None = None
        self._inode = 0
        # Set whenever a request or a connection ends while somebody waits for the end of all of them.
        self._ended = asyncio.Event()

    # --- life

    async def start(self, scope: Scope | None = None) -> None:
        """Bind; a request that needs a task gets it in `scope`, or in a scope of our own."""
        self._scope = scope or Scope("oap_request", self._max_tasks, self._metrics)
        # One that comes back after a crash takes work again.
        self.draining = False
        loop, options = asyncio.get_running_loop(), self.options
        async with timeout("oap_bind", BIND_S):
            # Connections run in the context of their server: the time it had to bind must not become theirs.
            with no_deadline():
                if options.uds_path is not None:
                    sock = listen_unix(options.uds_path)
                    self._inode = options.uds_path.lstat().st_ino
                    self._server = await loop.create_unix_server(self.protocol, sock=sock)
                elif options.host:
                    self._server = await loop.create_server(self.protocol, options.host, options.port)
        self.opened(f"oap server {options.uds_path or options.host or 'in memory'}")

    @property
    def _max_tasks(self) -> int:
        """Each request may need a task: what all windows together can open."""
        return self.options.max_conns * self.options.max_inflight

    def protocol(self) -> OapServerConnection:
        """Make the protocol of one accepted connection; also for transports that are no sockets."""
        return OapServerConnection(self)

    @property
    def port(self) -> int:
        """Return the TCP port that was bound."""
        if self._server is None:
            raise RuntimeError("the server is not bound")
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def scope(self) -> Scope:
        """Return where requests run; only after `start`."""
        if self._scope is None:
            raise RuntimeError("the server is not started")
        return self._scope

    @property
    def open_requests(self) -> int:
        """Return how many requests have no answer yet."""
        return sum(connection.table.inbound for connection in self.connections)

    async def run(self, child: Child) -> None:
        """Live as a supervised child: bind, announce, serve, stop intake, say quiet, close last."""
        try:
            await self.start(child.scope("oap_request", self._max_tasks))
        except OSError as exc:
            where = self.options.uds_path or f"{self.options.host}:{self.options.port}"
            raise CannotBind(f"cannot listen on {where}: {exc.strerror or exc}") from exc
        try:
            child.announce()
            await child.shutdown.wait()
            self.stop_intake()
            await self.quiet()
            child.quiet()
            await child.shutdown.stopped()
        finally:
            await self.close()

    def stop_intake(self) -> None:
        """Refuse new requests with the draining error; open ones are finished. The socket stays open."""
        self.draining = True

    async def quiet(self) -> None:
        """Wait until no admitted request is left; whoever asks brings the deadline."""
        while self.open_requests:
            self._ended.clear()
            await self._ended.wait()

    async def _release(self) -> None:
        self.draining = True
        if self._server is not None:
            self._server.close()
        for connection in tuple(self.connections):
            connection.linger()
        try:
            async with timeout("oap_close", self.options.waits.write_s):
                while self.connections:
                    self._ended.clear()
                    await self._ended.wait()
        except Timeout:
            for connection in tuple(self.connections):
                connection.abort()
        finally:
            if self.options.uds_path is not None:
                remove_socket(self.options.uds_path, self._inode)
            await self.scope.close()

    # --- for the connections

    def admit(self, connection: OapServerConnection) -> bool:
        """Count a connection in; False when it is one too many and is only told so."""
        full = len(self.connections) >= self.options.max_conns
        self.connections.add(connection)
        return not full

    def gone(self, connection: OapServerConnection) -> None:
        """Count a connection out."""
        self.connections.discard(connection)
        self.settled()

    def settled(self) -> None:
        """Note that a request has its answer."""
        if self.draining:
            self._ended.set()

    # --- events

    def publish(self, methods: Methods, event: object) -> int:
        """Push an event to every peer; one that is behind loses it. Returns how many did."""
        frame = event_frame(methods, event)
        lost = sum(not connection.send_event(frame) for connection in tuple(self.connections))
        self.counters.events_lost.value += lost
        return lost


def event_frame(methods: Methods, event: object) -> Frame:
    """Encode an event of a contract; it has to fit one frame."""
    code = methods.event_code(event)
    return Frame(EVENT, 0, code=code, app_proto_id=methods.app_proto_id, payload=msgspec.msgpack.encode(event))
