"""Bodies on their way in: collected for a handler, streamed to one, inflated, or thrown away."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from penstock.kernel.errors import Canceled, OverLimit, PenstockError, forget_where
from penstock.net.server.pausing import paused
from penstock.net.server.wheel import NEVER
from penstock.wire.http1.head import CHUNKED
from penstock.wire.inflate import Inflater
from penstock.wire.plain_words import size_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from penstock.net.message import Request
    from penstock.net.server.core import Core
    from penstock.net.server.endpoint import Endpoint
    from penstock.net.server.exchange import Exchange
    from penstock.net.server.route import Route

PIECE_BYTES: Final = 64 * 1024
HELD_BYTES_MAX: Final = 2 * PIECE_BYTES
DISCARD_BYTES_MAX: Final = 64 * 1024
INFLATE_STEPS_A_TURN: Final = 3
# A body slower than this over all its length is not waited for.
BODY_BYTES_A_SECOND_MIN: Final = 16 * 1024


class BodySink(Protocol):
    """Where a connection puts the body it is reading."""

    # True while nothing more may be read: the consumer is behind, or work on the body goes on.
    blocked: bool
    # The client waits for 100 Continue.
    awaits_continue: bool
    # When the body has to be whole, however steadily it arrives.
    due: float

    def feed(self, piece: bytes) -> None:
        """Take the next piece."""
        ...


def too_large(limit_bytes: int, route: Route, table: str, announced: int | None = None) -> OverLimit:
    """Make the refusal of a body, with its size where the client has announced it, and the setting that bounds it.

    `table` is where the listener's own settings are.
    """
    setting = route.body_setting or f"{table}.limits.max_body_bytes"
    size = "is" if announced is None else f"of {size_text(announced)} is"
    facts = {} if announced is None else {"actual": announced}
    said = f"The body {size} over the limit of {size_text(limit_bytes)} ({setting})."
    refusal = OverLimit(said, limit="body", limit_value=limit_bytes, setting=setting, **facts)
    if route.body_advice:
        refusal.facts["hint"] = route.body_advice
    return refusal


def with_setting(error: PenstockError, route: Route, table: str) -> PenstockError:
    """Say which setting a limit of a body is: whoever reads the bytes knows the limit, and the route its name."""
    limit = error.facts.get("limit")
    if "setting" in error.facts or limit not in _BODY_LIMITS:
        return error
    if limit == "inflate_ratio":
        error.facts["setting"] = f"{table}.limits.decompress_ratio_cap"
        return error
    named = too_large(int(str(error.facts["limit_value"])), route, table)
    if limit == "body":
        return named
    error.facts.update((name, named.facts[name]) for name in ("setting", "hint") if name in named.facts)
    return error


_BODY_LIMITS: Final = frozenset({"body", "inflate_bytes", "inflate_ratio"})


class CollectedBody:
    """A body gathered whole; the cap holds while it arrives, whatever Content-Length said."""

    __slots__ = ("_data", "awaits_continue", "began", "blocked", "core", "due", "endpoint", "request")

    def __init__(self, request: Request, endpoint: Endpoint, core: Core) -> None:
        """Take nothing from the byte budget yet: it is taken as the bytes arrive, not when they are announced."""
        self.request = request
        self.endpoint = endpoint
        self.core = core
        self.blocked = False
        self.awaits_continue = request.head.expects_continue
        # One buffer, because a list of tiny pieces would need many times the memory that the budget counts.
        self._data = bytearray()
        self.begin(request.received_at)

    def begin(self, now: float) -> None:
        """Start the deadline of the whole body. It grows with the length: announced, or as the chunks arrive."""
        self.began = now
        self._earn(max(0, self.request.head.length))

    def _earn(self, body_bytes: int) -> None:
        self.due = self.began + self.core.options.read_timeout_s + body_bytes / BODY_BYTES_A_SECOND_MIN

    @property
    def wire_bytes(self) -> int:
        """Return how much of the body arrived."""
        return len(self._data)

    def feed(self, piece: bytes) -> None:
        """Keep a piece, and take its size from the byte budget."""
        total = len(self._data) + len(piece)
        if total > self.endpoint.body_bytes_max:
            raise too_large(self.endpoint.body_bytes_max, self.request.route, self.core.settings_table)
        self.core.hold(self.request, total)
        self._data += piece
        if self.request.head.length == CHUNKED:
            self._earn(total)

    def whole(self) -> bytes:
        """Return the body."""
        return bytes(self._data)


class InflatingBody:
    """A collected body being inflated, a few steps a turn, so that a large one does not hold the loop."""

    __slots__ = (
        "_core", "_held_bytes", "_inflater", "_pieces", "_steps", "awaits_continue", "blocked", "due", "endpoint",
        "request",
    )  # fmt: skip

    def __init__(self, collected: CollectedBody, encoding: bytes, ratio_cap: int) -> None:
        """Start inflating; raises `Unsupported` for an unknown encoding."""
        self._core = collected.core
        self._held_bytes = collected.wire_bytes
        self.due = NEVER
        self.request = collected.request
        self.endpoint = collected.endpoint
        self.blocked = True
        self.awaits_continue = False
        bytes_max = collected.endpoint.body_bytes_max
        self._inflater = Inflater(encoding, ratio_cap=ratio_cap, bytes_max=bytes_max)
        self._steps: Iterator[bytes] = self._inflater.feed(collected.whole())
        self._pieces: list[bytes] = []

    def feed(self, piece: bytes) -> None:
        """Never called: the body is complete before it is inflated."""
        raise RuntimeError(f"{len(piece)} bytes after the end of the body")

    def turn(self) -> bool:
        """Do one turn's steps; return whether the body is whole."""
        for _ in range(INFLATE_STEPS_A_TURN):
            step = next(self._steps, None)
            if step is None:
                self._inflater.finish()
                return True
            if step:
                self._held_bytes += len(step)
                self._core.hold(self.request, self._held_bytes)
                self._pieces.append(step)
        return False

    def whole(self) -> bytes:
        """Return the inflated body."""
        return b"".join(self._pieces)


class UnreadBody:
    """The body of a request that is held at a gate: neither it nor what follows is read."""

    __slots__ = ("awaits_continue", "blocked", "due", "exchange")

    def __init__(self, exchange: Exchange) -> None:
        """Block reading until the gate has decided."""
        self.exchange = exchange
        self.due = NEVER
        self.blocked = True
        # Its 100 Continue comes with admission.
        self.awaits_continue = False

    def feed(self, piece: bytes) -> None:
        """Never called: a blocked body is not fed."""
        raise RuntimeError(f"{len(piece)} bytes were read of a body that waits")


class DiscardedBody:
    """The body of a request that was answered already."""

    __slots__ = ("awaits_continue", "blocked", "due")

    def __init__(self) -> None:
        """Take no deadline of its own: one read deadline covers all of the body."""
        self.due = NEVER
        self.blocked = False
        self.awaits_continue = False

    def feed(self, piece: bytes) -> None:
        """Throw a piece away."""


class BodyStream:
    """A body handed to its handler while it arrives; at most two pieces wait, then reading pauses."""

    __slots__ = (
        "_bytes_max", "_ended", "_error", "_held", "_held_bytes", "_inflater", "_on_room", "_seen_bytes", "_table",
        "_waiter",
        "awaits_continue", "blocked", "due", "request",
    )  # fmt: skip

    def __init__(self, request: Request, bytes_max: int, on_room: Callable[[], None], table: str = "http") -> None:
        """`on_room` is called when the consumer caught up and reading may go on; `table` is for a refusal."""
        self.request = request
        self._table = table
        self._bytes_max = bytes_max
        self._on_room = on_room
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._seen_bytes = 0
        self._ended = False
        self._error: PenstockError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._inflater: Inflater | None = None
        self.blocked = False
        # The handler sets the pace too, so the request's own deadline bounds the body.
        self.due = NEVER
        self.awaits_continue = request.head.expects_continue

    @property
    def room_bytes(self) -> int:
        """Return how much may be read now, so that two pieces are all it ever holds; never nothing."""
        return max(1, HELD_BYTES_MAX - self._held_bytes)

    def inflate(self, inflater: Inflater) -> None:
        """Inflate the pieces as the handler takes them."""
        self._inflater = inflater

    def feed(self, piece: bytes) -> None:
        """Hold a piece for the handler."""
        self._seen_bytes += len(piece)
        if self._seen_bytes > self._bytes_max:
            raise too_large(self._bytes_max, self.request.route, self._table)
        self.request.ticket.bytes_seen += len(piece)
        self._held.append(piece)
        self._held_bytes += len(piece)
        self.blocked = self._held_bytes >= HELD_BYTES_MAX
        self._wake()

    def end(self, error: PenstockError | None = None) -> None:
        """Say that the body is whole, or why it never will be."""
        if not self._ended:
            self._ended, self._error = True, None if error is None else forget_where(error)
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield pieces of at most 64 KiB. One handler reads it, once; what it leaves is discarded."""
        while (piece := await self._next()) is not None:
            if self._inflater is None:
                yield piece
                continue
            for number, step in enumerate(self._inflated(self._inflater, piece), 1):
                if step:
                    # The gate charges for what was inflated too, not only for what was received.
                    self.request.ticket.bytes_seen += len(step)
                    yield step
                if not number % INFLATE_STEPS_A_TURN:
                    # Let the loop turn: many steps may give no output, and the handler may never wait.
                    await asyncio.sleep(0)
        if self._inflater is not None:
            self._inflater.finish()

    def _inflated(self, inflater: Inflater, piece: bytes) -> Iterator[bytes]:
        try:
            yield from inflater.feed(piece)
        except PenstockError as error:
            raise with_setting(error, self.request.route, self._table) from None

    async def _next(self) -> bytes | None:
        while not self._held:
            if self._error is not None:
                raise self._error
            if self._ended:
                return None
            await paused(self.request.ticket, self._more())
        return self._take()

    async def _more(self) -> None:
        """Wait for bytes; the connection's read deadline ends this wait, and so does the end of the connection."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _take(self) -> bytes:
        piece = self._pop()
        self._held_bytes -= len(piece)
        if self.blocked and self._held_bytes < PIECE_BYTES:
            self.blocked = False
            self._on_room()
        return piece

    def _pop(self) -> bytes:
        """Take what comes first: small pieces together, a large one in parts; nothing else is copied."""
        held = self._held
        if len(held[0]) > PIECE_BYTES:
            piece = held[0]
            held[0] = piece[PIECE_BYTES:]
            return piece[:PIECE_BYTES]
        count = size = 0
        for piece in held:
            size += len(piece)
            if size > PIECE_BYTES:
                break
            count += 1
        taken = held[:count]
        del held[:count]
        return taken[0] if count == 1 else b"".join(taken)


def gone() -> PenstockError:
    """Return the error that a handler sees when the client left in the middle of its body."""
    return Canceled("The client went away.")
