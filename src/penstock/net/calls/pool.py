"""The connections to one origin: a bounded number, kept for reuse, with a bounded queue of callers that wait for one.

A caller takes an idle connection, dials a new one while there is a free place, or waits in line. A connection that
comes back goes to the caller that has waited longest, else it stays idle for `idle_s`. One that broke, was given back
unfinished, or has unread bytes on it is closed, and its place goes to the next caller, who dials. So a place is never
lost, and none is idle while somebody waits.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable

from penstock.kernel.deadline import no_deadline, timeout
from penstock.kernel.errors import Busy, Canceled, DownstreamUnavailable, Timeout
from penstock.kernel.metrics import Counter, Metrics
from penstock.net.calls.call import ClientOptions
from penstock.net.calls.connection import BUFFER_BYTES, ClientConnection
from penstock.net.calls.origin import HttpOrigin
from penstock.net.calls.waiting import ClientTimeouts

# Connects a protocol to an origin; raises OSError when nobody listens there.
Dial = Callable[[HttpOrigin, ClientConnection], Awaitable[None]]


class SocketDial:
    """Dial by the loop: TCP, TLS or a Unix socket."""

    __slots__ = ("_tls",)

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        """Take the TLS context; the default one reads the system's authorities, so it is made on first use."""
        self._tls = tls

    async def __call__(self, origin: HttpOrigin, connection: ClientConnection) -> None:
        """Connect; the caller bounds it. The connection is kept for others, so its deadline does not go with it."""
        loop = asyncio.get_running_loop()
        if origin.scheme == "https" and self._tls is None:
            self._tls = ssl.create_default_context()
        tls = self._tls if origin.scheme == "https" else None
        with no_deadline():
            if origin.scheme == "unix":
                # lint: allow PK009 the pool holds the deadline
                await loop.create_unix_connection(lambda: connection, origin.host)
            else:
                # lint: allow PK009 the pool holds the deadline
                await loop.create_connection(lambda: connection, origin.host, origin.port, ssl=tls)


class ClientShared:
    """What all pools of a client use together: options, counters, the dialler, the receive buffer."""

    __slots__ = ("acquire_timeouts", "buffer", "connect_timeouts", "dial", "options", "refused", "timeouts")

    def __init__(self, options: ClientOptions, metrics: Metrics, dial: Dial | None = None) -> None:

        def breaches(op: str) -> Counter:
            return metrics.counter("io_timeouts_total", "Waits that outlasted their deadline.", op=op)

        self.options = options
        self.buffer = bytearray(BUFFER_BYTES)
        self.connect_timeouts = breaches("connect")
        self.acquire_timeouts = breaches("acquire")
        self.timeouts = ClientTimeouts(
            options.write_timeout_s, options.read_timeout_s, breaches("write"), breaches("read")
        )
        self.refused = 0
        refusals = metrics.watched("queue_dropped_total", "Items refused or dropped.", queue="client_waiters")
        refusals.append(lambda: self.refused)
        self.dial = dial or SocketDial(options.tls)


class OriginPool:
    """Hands connections out, takes them back, and lets the longest waiting caller go first.

    A place is one connection, from before it is dialled until it is lost. While anybody waits, no connection is idle
    and no place is free: whatever comes back goes straight to the head of the queue.
    """

    __slots__ = ("_closed", "_emptied", "_idle", "_live", "_places", "_shared", "_sweep", "_waiters", "origin")

    def __init__(self, origin: HttpOrigin, shared: ClientShared) -> None:
        self.origin = origin
        self._shared = shared
        self._places = 0
        self._closed = False
        # The longest idle first. Callers take from the other end, so what a burst left over grows old and expires.
        self._idle: deque[ClientConnection] = deque()  # bounded by the places
        self._live: set[ClientConnection] = set()
        self._waiters: deque[asyncio.Future[ClientConnection | None]] = deque()  # bounded by waiters_max
        self._sweep: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Future[None] | None = None

    @property
    def quiet(self) -> bool:
        """Tell whether nobody uses or awaits a connection."""
        return self._places == len(self._idle) and not self._waiters

    @property
    def connections(self) -> int:
        """Return how many connections there are, idle ones included."""
        return self._places

    @property
    def idle(self) -> int:
        """Return how many connections wait for a call."""
        return len(self._idle)

    @property
    def full(self) -> bool:
        """Tell whether a caller that finds no idle connection has to wait in line."""
        return self._places >= self._shared.options.connections_max

    @property
    def waiting(self) -> int:
        """Return how many callers wait for a connection."""
        return len(self._waiters)

    async def acquire(self) -> ClientConnection:
        """Return a connection that may be written to at once: kept, new, or handed over by another caller."""
        self._check_open()
        return self.take_idle() or await self._dial_or_queue()

    def take_idle(self) -> ClientConnection | None:
        """Return a kept connection if there is one: what a call without a task starts with."""
        idle = self._idle
        while idle:
            kept = idle.pop()
            if kept.usable and not kept.has_unread:
                return kept
            self._drop(kept)
        return None

    async def fresh(self) -> ClientConnection:
        """Return a new connection although some are idle: one of them just proved dead, and the others may be too."""
        self._check_open()
        if self._idle and self._places >= self._shared.options.connections_max:
            self._drop(self._idle.popleft())
        return await self._dial_or_queue()

    def release(self, connection: ClientConnection) -> None:
        """Take a connection back; one whose call is not over, or was its last, is closed."""
        if self._closed or not connection.recycle():
            self._drop(connection)
            return
        waiter = self._next_waiter()
        if waiter is not None:
            waiter.set_result(connection)
        else:
            self._keep(connection)

    @property
    def live(self) -> int:
        """Return how many connections are open."""
        return len(self._live)

    def cut(self) -> None:
        """Close everything now: nobody gets a connection any more, and whoever uses or awaits one is told."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        while (waiter := self._next_waiter()) is not None:
            waiter.set_exception(_shut())
        for connection in tuple(self._live):
            connection.fail(_shut())

    async def emptied(self) -> None:
        """Wait, after `cut`, until every socket is closed."""
        if self._live:
            self._emptied = asyncio.get_running_loop().create_future()
            await self._emptied

    # --- dialling

    async def _dial_or_queue(self) -> ClientConnection:
        if self._places < self._shared.options.connections_max:
            self._places += 1
            return await self._dial()
        handed = await self._queue()
        if handed is None:
            return await self._dial()
        if handed.usable and not handed.has_unread:
            return handed
        # It died between two turns of the loop, or the peer said more than it was asked for.
        self._drop(handed)
        return await self.acquire()

    async def _dial(self) -> ClientConnection:
        """Connect on a place that is counted already; give the place back if that fails or is cancelled."""
        connection = ClientConnection(self._shared.buffer, self._shared.timeouts, self._lost)
        self._live.add(connection)
        try:
            # A place may have been handed over in the same turn of the loop in which the client was closed.
            self._check_open()
            await self._connect(connection)
            self._check_open()
            if not connection.usable:
                raise DownstreamUnavailable(f"{self._shared.options.service} hung up at once.", status=502)
        except BaseException:
            self._drop(connection)
            self._forget(connection)
            raise
        return connection

    async def _connect(self, connection: ClientConnection) -> None:
        try:
            async with timeout("connect", self._shared.options.connect_timeout_s):
                await self._shared.dial(self.origin, connection)
        except Timeout:
            self._shared.connect_timeouts.value += 1
            raise
        except (OSError, UnicodeError) as exc:
            raise DownstreamUnavailable(f"{self._shared.options.service} is out of reach: {_reason(exc)}.") from exc

    # --- places

    def _drop(self, connection: ClientConnection) -> None:
        """Close a connection and pass its place on, once."""
        connection.abort()
        if connection.placed:
            connection.placed = False
            self._free_place()

    def _free_place(self) -> None:
        waiter = self._next_waiter()
        if waiter is not None:
            waiter.set_result(None)
        else:
            self._places -= 1

    def _lost(self, connection: ClientConnection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)
        self._drop(connection)
        self._forget(connection)

    def _forget(self, connection: ClientConnection) -> None:
        self._live.discard(connection)
        if not self._live and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    # --- waiting for a place

    async def _queue(self) -> ClientConnection | None:
        """Wait in line; what was already handed to a caller that gives up goes to the next one."""
        options = self._shared.options
        if len(self._waiters) >= options.waiters_max:
            self._shared.refused += 1
            raise Busy(f"Too many calls wait for {options.service}.", queue="client_waiters")
        waiter: asyncio.Future[ClientConnection | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with timeout("acquire", options.timeout_s):
                return await waiter
        except BaseException as exc:
            self._shared.acquire_timeouts.value += isinstance(exc, Timeout)
            self._give_up(waiter)
            raise

    def _give_up(self, waiter: asyncio.Future[ClientConnection | None]) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        if not waiter.done() or waiter.cancelled() or waiter.exception() is not None:
            return
        handed = waiter.result()
        if handed is None:
            self._free_place()
        else:
            self.release(handed)

    def _next_waiter(self) -> asyncio.Future[ClientConnection | None] | None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                return waiter
        return None

    # --- idle connections

    def _keep(self, connection: ClientConnection) -> None:
        connection.idle_until = asyncio.get_running_loop().time() + self._shared.options.idle_s
        self._idle.append(connection)
        if self._sweep is None:
            self._arm(connection.idle_until)

    def _arm(self, at: float) -> None:
        # lint: allow PK006 one timer a pool, taken off the loop by cut()
        self._sweep = asyncio.get_running_loop().call_at(at, self._expire)

    def _expire(self) -> None:
        """Close what was idle too long, and come back when the next one is due."""
        now = asyncio.get_running_loop().time()
        self._sweep = None
        while self._idle and self._idle[0].idle_until <= now:
            self._drop(self._idle.popleft())
        if self._idle:
            self._arm(self._idle[0].idle_until)

    def _check_open(self) -> None:
        if self._closed:
            raise _shut()


def _shut() -> Canceled:
    return Canceled("The client was closed.")


def _reason(exc: OSError | UnicodeError) -> str:
    """Say why in the system's words, without the address that asyncio adds to them."""
    if isinstance(exc, UnicodeError):
        return "the host name is not one"
    if isinstance(exc, ssl.SSLError):
        return f"TLS failed ({exc.reason or type(exc).__name__})"
    if isinstance(exc, socket.gaierror):
        return "the host name does not resolve"
    return os.strerror(exc.errno) if exc.errno else type(exc).__name__
