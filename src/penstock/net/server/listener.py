"""The HTTP listener of a service, from binding to the last answer.

A listener is made of data: options, routes and hooks. `start` binds the sockets and makes a `Core`, which all
connections share. An `Acceptor` takes clients and makes a `Connection` for each; `ConnectionCaps` says whether there
is a place. The connection reads requests and finds their route; the admission hook admits, refuses or holds each; the
route's handler answers.

It ends in three steps. `stop_intake` refuses new work but leaves the socket open, because /readyz must still answer
with a 503. It also tells the requests that wait for something to come, by their `shutdown`: a long poll answers with
what it has, a stream ends. Bodies that are still arriving have a share of the drain's time. `quiet` waits until every
admitted request is answered. `close` closes the sockets and whatever is left. As a supervised child it does this in
order (`run`); options may change meanwhile (`reconfigure`).
"""

from __future__ import annotations

import asyncio
import math
import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.kernel.errors import PenstockError
from penstock.kernel.lifecycle import Phase
from penstock.net.server.admission import Admission, ProblemWords, Refusal
from penstock.net.server.bind import CannotBind, bind, place_of, tls_context
from penstock.net.server.caps import HEALTH_HEAD_S, HEALTH_PLACES, ConnectionCaps
from penstock.net.server.connection import Connection
from penstock.net.server.core import (
    UNANSWERED_MAX,
    Core,
    ListenerMemos,
    declare_metrics,
    default_version,
)
from penstock.net.server.listener_options import ListenerOptions
from penstock.net.server.pages import ServicePages
from penstock.net.server.stranger_quota import Known, StrangerQuota
from penstock.net.server.tls_accept import SecureServer

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable
    from pathlib import Path

    from penstock.kernel.child import Child
    from penstock.kernel.health import Judged
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.limiter import ByteBudget
    from penstock.net.server.accept import Acceptor
    from penstock.net.server.route import Route

_DEADLINES = (
    ("read", "read_timeout_s", "408, then close"),
    ("write", "write_timeout_s", "connection is cut"),
    ("idle", "idle_timeout_s", "close"),
    ("request", "request_deadline_s", "504"),
)

# The share of a drain's time in which bodies may still arrive; the rest is for answering them.
BODIES_SHARE: Final = 2 / 3

__all__ = ["CannotBind", "Listener", "ListenerOptions"]


class Listener:
    """HTTP/1.1 on a TCP address, a Unix socket, or both."""

    def __init__(  # noqa: PLR0913 - three things every listener has, and six hooks by name
        self,
        inventory: Inventory,
        options: ListenerOptions,
        routes: Iterable[Route],
        *,
        admission: Admission | None = None,
        budget: ByteBudget | None = None,
        health: Judged | None = None,
        draining_error: PenstockError | None = None,
        known: Known | None = None,
        problem_words: ProblemWords | None = None,
    ) -> None:
        """Take everything as data; nothing is bound before `start`.

        With `known`, which tells whether a request's token is good already, each address has a quota of 401 answers.
        `problem_words` writes the refusals of requests whose clients read another format than problem details.
        """
        self.options = options
        self._inventory = inventory
        self._routes = tuple(routes)
        self._strangers = None if known is None else StrangerQuota(inventory, options.name, known)
        self._admission = _both(self._strangers, admission)
        self._budget = budget
        self._health = inventory.health if health is None else health
        self._draining_error = draining_error
        self._problem_words = problem_words
        self._servers: list[Acceptor] = []
        self._core: Core | None = None
        self._bound_port = 0
        version = options.server_version or default_version()
        # What the listener answers itself: health, version, description.
        self._pages = ServicePages(self._health, version, lambda: self.phase, self._routes)
        self.own_routes = self._pages.routes
        self._memos = ListenerMemos(inventory, options.name)
        self._declare()

    def _declare(self) -> None:
        """List limits and deadlines in the inventory: nothing that can refuse or cut is anonymous."""
        options, inventory, name = self.options, self._inventory, self.options.name
        inventory.limit(f"{name}.max_conns", options.max_conns, "full: idle longest is closed, else 429", self._live)
        inventory.limit(
            f"{name}.max_conns_per_ip",
            options.per_ip,
            "full: 429 busy; 0 = off",
            lambda: {"capacity": self.options.per_ip},
        )
        inventory.limit(
            f"{name}.health_conns",
            HEALTH_PLACES,
            "beyond max_conns, for /healthz and /readyz only; full: 429 busy",
            lambda: {"in_use": 0 if self._core is None else len(self._core.caps.for_health)},
        )
        inventory.timeout(f"{name}.health_head", HEALTH_HEAD_S, "beyond max_conns: 429, then close")
        inventory.limit(
            f"{name}.body_bytes",
            options.body_bytes_max,
            "more: 413 over_limit",
            lambda: {"capacity": self.options.body_bytes_max},
        )
        inventory.limit(f"{name}.unanswered", UNANSWERED_MAX, "a connection; more: reading pauses")
        for op, field, effect in _DEADLINES:
            live = partial(self._seconds, field)
            inventory.timeout(f"{name}.{op}", getattr(options, field), effect, live)
        declare_metrics(inventory.metrics, (*self._routes, *self.own_routes))
        inventory.metrics.gauge("inflight_requests", "Admitted and not answered.", read=lambda: self.inflight)
        inventory.metrics.gauge("open_connections", "Connections that hold a place.", read=self._connections)

    def _seconds(self, field: str) -> dict[str, object]:
        return {"seconds": getattr(self.options, field)}

    def _connections(self) -> int:
        return 0 if self._core is None else len(self._core.caps.held)

    def _live(self) -> dict[str, object]:
        held = 0 if self._core is None else len(self._core.caps.held)
        return {"capacity": self.options.max_conns, "in_use": held, "inflight": self.inflight}

    # --- start -----------------------------------------------------------------------------------------

    async def start(self, child: Child | None = None) -> None:
        """Bind; raise `CannotBind` with one clear sentence when that fails."""
        core = self._core = self._make_core()
        if child is not None:
            core.scope = child.scope("request", self.options.tasks_max)
        try:
            self._servers = await bind(core, self._as_before(self.options))
        except BaseException:
            await self.close()
            raise
        self._bound_port = next((place[1] for place in self.addresses if isinstance(place, tuple)), 0)

    def _as_before(self, options: ListenerOptions) -> ListenerOptions:
        """After a crash, use the port again that the system chose the first time: clients know no other."""
        return replace(options, port=self._bound_port) if options.port == 0 and self._bound_port else options

    async def reconfigure(self, options: ListenerOptions) -> None:
        """Take new options while running. A changed address is bound before the old one is let go.

        Connections stay; those of the old address are served to their end. When the new address cannot be
        bound, `CannotBind` is raised and nothing has changed. A certificate is read again, under the same name too;
        connections keep theirs, and one that cannot be used is `CertificateRefused`.
        """
        core, old = self._core, self.options
        if core is not None:
            if place_of(options) != place_of(old):
                servers = await bind(core, options)
                self._let_go(old, keep=options.uds_path)
                self._servers = servers
            else:
                self._renew(tls_context(options))
            core.apply(options)
        self.options = options

    def _renew(self, context: ssl.SSLContext | None) -> None:
        for server in self._servers:
            if context is not None and isinstance(server, SecureServer):
                server.renew(context)

    def _let_go(self, old: ListenerOptions, keep: Path | None) -> None:
        """Stop listening at the old address."""
        for server in self._servers:
            server.close()
        if old.uds_path is not None and old.uds_path != keep:
            old.uds_path.unlink(missing_ok=True)

    def _make_core(self) -> Core:
        options = self.options
        core = Core(self._inventory, options, asyncio.get_running_loop(), self._memos)
        uids = frozenset({os.getuid()}) if options.uds_allow_uids is None else options.uds_allow_uids
        core.caps = ConnectionCaps(
            places=options.max_conns,
            per_address=options.per_ip,
            reserved=options.reserved_conns if options.uds_path is not None else 0,
            uids=uids,
            table=core.settings_table,
        )
        core.admission = self._admission
        core.strangers = self._strangers
        core.problem_words = self._problem_words
        core.budget = None if self._budget is None else self._budget.share()
        if self._draining_error is not None:
            core.draining_refusal = Refusal(self._draining_error)
        core.serve(self._routes, self.own_routes)
        core.apply(options)
        return core

    def serve(self, routes: Iterable[Route]) -> None:
        """Serve other routes from now on. Requests under way finish on the old table."""
        self._routes = tuple(routes)
        declare_metrics(self._inventory.metrics, self._routes)
        self._pages.describe((*self._routes, *self.own_routes))
        if self._core is not None:
            self._core.serve(self._routes, self.own_routes)

    # --- while it runs ---------------------------------------------------------------------------------

    def connection(self) -> Connection:
        """Make the protocol of one more connection, for a transport that does not come from our sockets."""
        if self._core is None:
            raise RuntimeError("the listener is not started")
        return Connection(self._core)

    @property
    def addresses(self) -> list[tuple[str, int] | str]:
        """Return where it listens: (host, port) for TCP, a path for a Unix socket."""
        names = [sock.getsockname() for server in self._servers for sock in server.sockets]
        return [name if isinstance(name, str) else (name[0], name[1]) for name in names]

    @property
    def port(self) -> int:
        """Return the TCP port it listens on."""
        return next(address[1] for address in self.addresses if isinstance(address, tuple))

    @property
    def phase(self) -> str:
        """Return `running` or `draining`."""
        return "draining" if self._core is None or self._core.draining else "running"

    @property
    def inflight(self) -> int:
        """Return how many admitted requests are not answered."""
        return 0 if self._core is None else self._core.inflight

    # --- the end ---------------------------------------------------------------------------------------

    def stop_intake(self, until: float = math.inf) -> None:
        """Refuse new work from now on, and end the waits. The socket stays open: /readyz has to say 503 to somebody."""
        core = self._core
        if core is None or core.draining:
            return
        core.draining = True
        now = core.monotonic()
        core.bodies_due = now + (until - now) * BODIES_SHARE
        core.admission = lambda _request: core.draining_refusal
        for connection in tuple(core.caps.held):
            connection.hear_drain()
        core.shutdown.request(Phase.DRAINING)

    async def quiet(self) -> None:
        """Wait until every admitted request is answered; call `stop_intake` first. The drain's deadline ends this."""
        core = self._core
        while core is not None and core.inflight:
            done = core.loop.create_future()
            core.on_quiet = partial(_finish, done)
            try:
                await done
            finally:
                core.on_quiet = None

    async def close(self) -> None:
        """Close the socket and every connection; safe to call twice."""
        core, self._core = self._core, None
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()
        if core is None:
            return
        core.ended = True
        core.log.info("listener.closed", unanswered=core.inflight, connections=len(core.caps.held))
        for connection in core.caps.all:
            connection.abort()
        core.wheel.close()
        await core.scope.close()
        # Each of these ends by itself: a new connection is aborted in its first step, a closing has its own deadline.
        await core.accepting.join()
        await core.closings.join()
        if self.options.uds_path is not None and servers:
            self.options.uds_path.unlink(missing_ok=True)

    async def run(self, child: Child) -> None:
        """Live as a supervised child: bind, announce, serve; when asked to drain, stop intake and become quiet."""
        await self.start(child)
        try:
            child.announce()
            await child.shutdown.wait()
            self.stop_intake(child.shutdown.until)
            await self.quiet()
            child.quiet()
            await child.shutdown.stopped()
        finally:
            await self.close()


def _both(strangers: StrangerQuota | None, admission: Admission | None) -> Admission | None:
    """Ask the quota of the address first: what it refuses costs no judgement."""
    if strangers is None or admission is None:
        return admission if strangers is None else strangers.admit
    return lambda request: strangers.admit(request) or admission(request)


def _finish(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
