"""What an OAP/1 endpoint serves and within which bounds: its options and counters as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.contracts.call import Call
from penstock.contracts.method import Method, Methods
from penstock.kernel.errors import NotReady, PenstockError
from penstock.kernel.inventory import Inventory
from penstock.kernel.metrics import Counter, Metrics
from penstock.net.oap.connection import FrameTimeouts
from penstock.wire.oap.frame import FRAME_BYTES_MAX
from penstock.wire.oap.hello import MAX_INFLIGHT
from penstock.wire.oap.stream import REQUEST_BYTES_MAX

Handle = Callable[[Method, Any, Call], Any]
"""`handle(method, value, call)` returns the answer, a Future of it, or a coroutine for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OapService:
    """One contract served: its table and who answers."""

    methods: Methods
    handle: Handle
    on_event: Callable[[object], None] | None = None


def _draining() -> PenstockError:
    return NotReady("The service is draining.", phase="draining")


@dataclass(frozen=True, kw_only=True, slots=True)
class OapServerOptions:
    """Where to listen and within which bounds."""

    # What its bounds are called; a service with two endpoints gives each its own.
    name: str = "oap"
    uds_path: Path | None = None
    host: str = ""
    port: int = 0
    # Peers on the Unix socket: our own user and these.
    uds_allow_uids: tuple[int, ...] = ()
    max_conns: int = 64
    max_inflight: int = MAX_INFLIGHT
    max_frame: int = FRAME_BYTES_MAX
    request_bytes_max: int = REQUEST_BYTES_MAX
    # The longest a request may take when its caller gives it no deadline, or a longer one.
    request_deadline_s: float = 30.0
    waits: FrameTimeouts = field(default_factory=FrameTimeouts)
    draining_error: Callable[[], PenstockError] = _draining


class OapCounters:
    """What the endpoint counts; each series is looked up once and then is one integer addition."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._answers: dict[tuple[int, int, int], Counter] = {}
        self.timeouts = {
            op: metrics.counter("io_timeouts_total", "I/O deadlines that passed.", op=f"oap_{op}")
            for op in ("read", "write", "idle")
        }
        self.events_lost = metrics.counter("oap_events_lost_total", "Events a slow or unable peer did not get.")

    def answered(self, methods: Methods, method: Method, status: int) -> None:
        """Count an answer by method and status."""
        key = (methods.app_proto_id, method.code, status)
        counter = self._answers.get(key)
        if counter is None:
            name = f"{methods.service}.{method.name}"
            counter = self._answers[key] = self._metrics.counter(
                "oap_requests_total", "OAP/1 requests answered.", method=name, status=str(status)
            )
        counter.value += 1

    def refused(self, error: PenstockError) -> None:
        """Count what was refused before it reached a method."""
        self._metrics.counter("rejected_total", "Requests refused.", reason=error.reason).value += 1

    def failed(self, error: BaseException) -> None:
        """Count a handler's bug."""
        kind = type(error).__name__
        self._metrics.counter("job_failures_total", "Jobs that raised.", worker="oap_request", type=kind).value += 1


def declare(inventory: Inventory, options: OapServerOptions) -> OapCounters:
    """List the endpoint's bounds in the inventory and return its counters."""
    name = options.name
    inventory.limit(f"{name}_conns", options.max_conns, "one more is answered Busy and closed")
    inventory.limit(f"{name}_window", options.max_inflight, "open requests a connection, one more: Busy")
    inventory.timeout(f"{name}_read", options.waits.read_s, "answer timeout, close")
    inventory.timeout(f"{name}_write", options.waits.write_s, "close")
    inventory.timeout(f"{name}_idle", options.waits.idle_s, "close")
    inventory.timeout(f"{name}_request", options.request_deadline_s, "Timeout")
    return OapCounters(inventory.metrics)
