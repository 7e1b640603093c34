"""What all connections of one listener share: the receive buffer, the routes, the counters and the rules."""

from __future__ import annotations

from contextvars import Context
from typing import TYPE_CHECKING, Final
from weakref import ref

import msgspec

from penstock import __version__
from penstock.kernel.errors import Busy, Internal, NotReady, PenstockError
from penstock.kernel.lifecycle import Shutdown
from penstock.kernel.limiter import TokenBucket
from penstock.kernel.log import Log
from penstock.kernel.memo import Memo
from penstock.kernel.scope import Scope
from penstock.net.corr_id import CorrIds
from penstock.net.hosts import HostRules, is_loopback
from penstock.net.message import Response
from penstock.net.server.admission import Admission, ProblemWords, Refusal
from penstock.net.server.answer import AnswerHeads
from penstock.net.server.endpoint import NOT_READY_HELP, Endpoint
from penstock.net.server.route import Route, Router
from penstock.net.server.ticket import NO_TICKET
from penstock.net.server.wheel import NEVER, TimerWheel
from penstock.wire.http1.head import METHODS, HeadMemo
from penstock.wire.http1.request import HEADS_KEPT, start_lines
from penstock.wire.plain_words import size_text

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from penstock.kernel.inventory import Inventory
    from penstock.kernel.limiter import ByteShare
    from penstock.kernel.metrics import Counter, Metrics
    from penstock.net.message import Peer, Request
    from penstock.net.server.caps import ConnectionCaps
    from penstock.net.server.listener_options import ListenerOptions
    from penstock.net.server.stranger_quota import StrangerQuota
    from penstock.wire.http1.head import HttpHead, StartLine

BUFFER_BYTES: Final = 16 * 1024
BODY_BUFFER_BYTES: Final = 64 * 1024
# Requests of one connection that may wait for their answers; then reading pauses.
UNANSWERED_MAX: Final = 8
_MATCHES_KEPT: Final = 1024
REFUSAL_LINES_RPS: Final = 10
encode_json: Final = msgspec.json.Encoder().encode


class RouteMatch(HeadMemo):
    """The route that a request line leads to; remembered, because clients repeat the same few lines."""

    __slots__ = ("always_open", "endpoint", "params", "refused_as", "refused_counters", "route", "shutdown")

    def __init__(self, core: Core, route: Route, params: dict[str, str]) -> None:
        """Hold the route and its compiled form; health pages are open whatever admission says."""
        endpoint = core.endpoints[route]
        self.always_open = endpoint in core.always_open
        self.route = route
        self.shutdown = core.shutdown
        self.params = params
        self.endpoint = endpoint
        # The last refusal of this line and its counters: under overload the same refusal repeats.
        self.refused_as: Refusal | None = None
        self.refused_counters: list[Counter] = []

    def count_refusal(self, refusal: Refusal) -> None:
        """Count a refusal; the counters are looked up only when it is another one than last time."""
        if refusal is not self.refused_as:
            self.refused_as = refusal
            self.refused_counters = self.endpoint.refusal_counters(self.route.method, refusal.labels)
        for counter in self.refused_counters:
            counter.value += 1


class ListenerMemos:
    """What a listener remembers of requests. It is kept when the listener restarts, as its inventory rows are."""

    __slots__ = ("heads", "matches")

    def __init__(self, inventory: Inventory, name: str) -> None:
        """List the memos; request lines are remembered for the whole process, and listed by each listener."""
        # Heads that were read and passed their checks.
        self.heads: Memo[bytes, HttpHead] = inventory.memo(f"{name}.heads", Memo(HEADS_KEPT))
        self.matches: Memo[StartLine, RouteMatch] = inventory.memo(f"{name}.matches", Memo(_MATCHES_KEPT))
        inventory.memo(f"{name}.request_lines", start_lines)


class Core:
    """One per listener. Connections read it on every request, so everything here is looked up once."""

    __slots__ = (
        "__weakref__", "accept_pauses", "accepting", "admission", "always_open", "bodies_due", "body_buffer",
        "body_view", "budget", "buffer",
        "buffer_view", "caps", "clock", "closings", "context", "corr_ids", "draining", "draining_refusal", "ended",
        "endpoints", "heads", "hosts", "idle_timeout_s", "inflight", "known_heads", "log", "loop", "matches",
        "metrics", "monotonic", "on_quiet", "options", "options_route", "problem_words", "refusal_lines", "router",
        "scope", "settings_table", "shutdown", "strangers", "timeouts", "unmatched", "unsaid", "wheel",
    )  # fmt: skip

    def __init__(
        self, inventory: Inventory, options: ListenerOptions, loop: asyncio.AbstractEventLoop, memos: ListenerMemos
    ) -> None:
        """Take the service's clock and metrics, and the listener's memos; routes come by `serve`."""
        self.options = options
        self.idle_timeout_s = options.idle_timeout_s
        self.loop = loop
        # Turns that are asked for run in this context, so that they do not inherit the deadline of the code that asked.
        self.context = Context()
        self.clock = inventory.clock
        self.monotonic: Callable[[], float] = inventory.clock.monotonic
        self.metrics = inventory.metrics
        self.log = Log(inventory.service)
        # Where the settings of this listener are: those of a service have its short name.
        self.settings_table = "admin" if inventory.service == "node" else inventory.service.removeprefix("svc-")
        # One buffer serves every connection: filling and reading it is one synchronous step of the loop.
        self.buffer = bytearray(BUFFER_BYTES)
        self.buffer_view = memoryview(self.buffer)
        self.body_buffer = bytearray(BODY_BUFFER_BYTES)
        self.body_view = memoryview(self.body_buffer)
        self.corr_ids = CorrIds(inventory.clock.wall)
        self.heads = AnswerHeads(inventory.clock.wall)
        self.wheel = TimerWheel(loop)
        self.hosts = HostRules(loopback=False)
        self.scope = Scope("request", options.tasks_max, inventory.metrics)
        # Tasks from the accept until the loop has the connection, or the handshake is done. The caps bound them; twice
        # as many, because one that was cut to make room is still here for a moment.
        self.accepting = Scope("accept", 2 * options.max_conns, inventory.metrics)
        self.accept_pauses = _accept_pauses(inventory.metrics)
        # Tasks that close streams which are never sent; not in `scope`, so that there is a place when that is full.
        self.closings = Scope("stream_close", UNANSWERED_MAX * options.max_conns, inventory.metrics)
        self.admission: Admission | None = None
        # Writes refusals for clients of another protocol than ours.
        self.problem_words: ProblemWords | None = None
        self.budget: ByteShare | None = None
        # Counts 401 answers by address, where the service has told how a good token is known.
        self.strangers: StrangerQuota | None = None
        self.caps: ConnectionCaps
        self.refusal_lines = TokenBucket("refusal_lines", rate=REFUSAL_LINES_RPS, depth=100, now=self.monotonic())
        self.unsaid = 0
        self.draining = False
        # When bodies that are still arriving have to be whole, because the listener drains.
        self.bodies_due = NEVER
        # The same for requests that wait for something to come: they hear of the drain, and are answered at once.
        self.shutdown = Shutdown(options.name)
        # The listener was closed: a connection that is still being made is aborted.
        self.ended = False
        self.draining_refusal = Refusal(NotReady("The service is draining.", phase="draining"))
        self.always_open: frozenset[Endpoint] = frozenset()
        self.inflight = 0
        self.on_quiet: Callable[[], None] | None = None
        self.unmatched = self._endpoint(None)
        self.timeouts = _timeouts(self.metrics)
        self.known_heads = memos.heads
        self.matches = memos.matches
        self.serve((), ())

    def serve(self, routes: Iterable[Route], own: Iterable[Route]) -> None:
        """Compile the routes; `own` are the listener's and stay open while draining."""
        # The route does not hold the core, so that a closed listener's core is freed when it is let go. A full
        # collection, which would find a cycle, hardly ever comes.
        core = ref(self)
        self.options_route = Route(
            method="OPTIONS", path="*", handler=lambda request: _tell_options(core, request), open=True
        )
        own = (*own, self.options_route)
        self.router = Router((*routes, *own), self.log.service)
        self.endpoints = {route: self._endpoint(route) for route in self.router.routes}
        self.matches.clear()
        self.known_heads.clear()
        self.always_open = frozenset(self.endpoints[route] for route in own)

    def apply(self, options: ListenerOptions) -> None:
        """Follow the options; what was compiled from the old ones is changed in place, because requests hold it."""
        self.options = options
        self.idle_timeout_s = options.idle_timeout_s
        self.hosts = HostRules(
            loopback=is_loopback(options.host),
            names=options.allowed_hosts,
            origins=options.allowed_origins,
            table=self.settings_table,
        )
        # A head that passed the old rules has to pass the new ones.
        self.known_heads.clear()
        self.caps.resize(options.max_conns, options.per_ip)
        self.accepting.limit = 2 * options.max_conns
        self.closings.limit = UNANSWERED_MAX * options.max_conns
        for endpoint in (self.unmatched, *self.endpoints.values()):
            endpoint.limit(body_bytes_max=options.body_bytes_max, timeout_s=options.request_deadline_s)

    def find(self, head: HttpHead) -> RouteMatch:
        """Find the route of a request line and keep it; OPTIONS is answered here, unless a route takes it itself."""
        segments = head.target.segments
        if head.method == "OPTIONS" and (head.target.path == "*" or self.router.leaves_options(segments)):
            route, params = self.options_route, dict[str, str]()
        else:
            route, params = self.router.match(head.method, segments)
        return self.matches.put(head.start, RouteMatch(self, route, params))

    def _endpoint(self, route: Route | None) -> Endpoint:
        options = self.options
        return Endpoint(
            route, self.metrics, body_bytes_max=options.body_bytes_max, timeout_s=options.request_deadline_s
        )

    def count_stranger(self, status: int, peer: Peer) -> None:
        """Count a 401 against the quota of its address."""
        if status == 401 and self.strangers is not None:
            self.strangers.count(peer)

    def note_refusal(self, path: str, labels: tuple[int, str, str | None], corr: bytes) -> None:
        """Log what was refused and why, one line each.

        Not under overload, where the counters tell enough, and not more than a reader can take: a client that asks
        nonsense in a loop must not fill a disk, or the pipe to whoever reads the log.
        """
        status, reason, _ = labels
        if status in (429, 503):
            return
        if not self.refusal_lines.try_take(self.monotonic()):
            self.unsaid += 1
            return
        unsaid = {"unsaid": self.unsaid} if self.unsaid else {}
        self.unsaid = 0
        corr_id = corr.decode("ascii")
        self.log.info("request.refused", route=path, status=status, reason=reason, corr_id=corr_id, **unsaid)

    def failed(self, error: BaseException, corr: bytes) -> PenstockError:
        """Turn a bug into `internal`: it is logged here, and nothing of it leaks but the corr_id."""
        self.log.error("request.failed", error=error, corr_id=corr.decode("ascii"))
        self.metrics.counter(
            "job_failures_total", "Jobs that raised.", worker="listener", type=type(error).__name__
        ).value += 1
        return Internal()

    def hold(self, request: Request, total: int) -> None:
        """Make a request hold at least `total` bytes of the budget, or raise `Busy`."""
        missing = total - request.held_bytes
        if self.budget is None or missing <= 0:
            return
        if not self.budget.try_take(missing):
            raise _no_bytes(budget=self.budget.capacity)
        request.held_bytes += missing

    def check_room(self, length: int) -> None:
        """Raise `Busy` for an announced body that would not fit if it came now; nothing is taken for it yet."""
        budget = self.budget
        if budget is not None and length > budget.capacity - budget.in_use:
            raise _no_bytes(budget=budget.capacity)

    def let_go(self, request: Request) -> None:
        """Give back the bytes that a request holds, if any."""
        if request.held_bytes and self.budget is not None:
            self.budget.give(request.held_bytes)
        request.held_bytes = 0

    def release(self, request: Request, answer_bytes: int = -1) -> None:
        """Note that an admitted request is answered, with so many bytes, or gone."""
        if request.held_bytes:
            self.let_go(request)
        if request.ticket is not NO_TICKET:
            request.ticket.ended(len(request.body) + max(0, answer_bytes), answered=answer_bytes >= 0)
        self.arrived()

    def arrived(self) -> None:
        """Count a request out: its body is here and was handed on, or the request is over. A drain waits for others."""
        self.inflight -= 1
        if not self.inflight and self.on_quiet is not None:
            self.on_quiet()


def _tell_options(held: ref[Core], request: Request) -> Response:
    """Name the methods of a path, or of the listener."""
    core = held()
    assert core is not None, "its own request holds it"
    allowed = core.router.allowed(request.segments) if request.path != "*" else sorted(METHODS)
    return Response(204, content_type=b"", headers=[(b"Allow", ", ".join(allowed).encode("ascii"))])


def _no_bytes(budget: int) -> Busy:
    said = f"The node holds as many bytes of bodies and answers as it may: {size_text(budget)}."
    return Busy(said, limit="node_bytes", limit_value=budget, setting="node.body_bytes")


def _timeouts(metrics: Metrics) -> dict[str, Counter]:
    ops = ("read", "write", "idle", "request", "rpc", "stream")
    return {op: metrics.counter("io_timeouts_total", "Deadlines that passed.", op=op) for op in ops}


def _accept_pauses(metrics: Metrics) -> Counter:
    return metrics.counter("accept_pauses_total", "Moments in which no newcomer could be accepted.")


def declare_metrics(metrics: Metrics, routes: Iterable[Route]) -> None:
    """Declare what a listener counts before it runs: a series that begins with its first event misses that event."""
    _timeouts(metrics)
    _accept_pauses(metrics)
    metrics.declare("counter", "rejected_total", "Requests refused, by reason.", "reason")
    metrics.declare("counter", "job_failures_total", "Jobs that raised.", "worker", "type")
    metrics.declare(
        "counter", "busy_rejections_total", "Work refused because a bounded place was full.", "endpoint", "queue"
    )
    metrics.declare("counter", "not_ready_total", NOT_READY_HELP, "phase")
    for route in routes:
        Endpoint(route, metrics, body_bytes_max=0, timeout_s=0.0)


def default_version() -> str:
    """Return the package's version."""
    return __version__
