"""What every process sets once: thread switch interval, garbage collector, and a watch over the loop.

A pool thread that holds the GIL makes the loop wait one switch interval; the default of 5 ms is an age. A
full collection over many long-lived objects stops the loop too, so what exists after start is frozen out.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
import threading
import time
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from penstock.kernel.log import Log

if TYPE_CHECKING:
    from penstock.kernel.child import Child
    from penstock.kernel.metrics import Histogram, Metrics

SWITCH_INTERVAL_S: Final = 0.0005
GC_THRESHOLDS: Final = (50_000, 20, 50)
SLOW_STEP_S: Final = 0.050
TICK_S: Final = 0.1
# A slow step hides between two ticks: to see one of 50 ms the ticks must be much closer than that.
DEBUG_TICK_S: Final = 0.01
_LAG_BUCKETS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
_FD_RESERVE: Final = 256


def tune_process() -> None:
    """Set the switch interval and the collector's thresholds; call before the services are built."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*GC_THRESHOLDS)


def freeze_after_start() -> None:
    """Take everything that exists now out of later collections; call once the node is ready."""
    gc.collect()
    gc.freeze()


def raise_fd_limit(wanted: int) -> int:
    """Raise the descriptor limit as far as allowed; return how many connections fit below it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # Refused where the system has a lower bound of its own; then the present limit counts.
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return wanted if soft == resource.RLIM_INFINITY else min(wanted, max(1, soft - _FD_RESERVE))


class GcPauses:
    """Measures how long collections stop the process."""

    def __init__(self, metrics: Metrics) -> None:
        self._pauses = metrics.histogram("gc_pause_seconds", "Stops by the garbage collector.", buckets=_LAG_BUCKETS_S)
        self._began = 0.0
        gc.callbacks.append(self._on_gc)

    def _on_gc(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self._pauses.observe(time.perf_counter() - self._began)

    def remove(self) -> None:
        """Unhook."""
        gc.callbacks.remove(self._on_gc)


class LoopWatch:
    """A child that measures how late the loop is; in debug mode it also says what held it up."""

    def __init__(self, metrics: Metrics, *, debug: bool = False) -> None:
        """Declare the histogram; a debug watch adds one sampling thread."""
        self._lag: Histogram = metrics.histogram("loop_lag_seconds", "Lateness of the loop.", buckets=_LAG_BUCKETS_S)
        self._slow = metrics.counter("loop_slow_steps_total", "Steps that held the loop longer than 50 ms.")
        self._log = Log(metrics.service)
        self._debug = debug
        self._tick_s = DEBUG_TICK_S if debug else TICK_S
        self._beat = time.monotonic()
        self._stop = threading.Event()

    async def run(self, child: Child) -> None:
        """Tick until shutdown; the lateness of a tick is the time somebody else held the loop."""
        if self._debug:
            self._stop = threading.Event()  # a new one for each run: the last run's is set
            self._start_sampler()
        loop = asyncio.get_running_loop()
        try:
            while not child.shutdown.draining:
                due = loop.time() + self._tick_s
                self._beat = time.monotonic()
                await child.shutdown.sleep(self._tick_s)
                self._observe(max(0.0, loop.time() - due))
        finally:
            self._stop.set()

    def _observe(self, late_s: float) -> None:
        self._lag.observe(late_s)
        # The step began at most one tick before this one was due.
        if late_s > SLOW_STEP_S - (self._tick_s if self._debug else 0.0):
            self._slow.value += 1

    def _start_sampler(self) -> None:
        watched = threading.get_ident()
        # lint: allow PK007 it must run while the loop does not, and there is exactly one
        threading.Thread(target=self._sample, args=(watched, self._stop), name="loop-watch", daemon=True).start()

    def _sample(self, thread_id: int, stop: threading.Event) -> None:
        """Look at the loop's thread from outside; say once for each late beat what it is doing."""
        told = 0.0
        while not stop.wait(SLOW_STEP_S / 10):
            beat = self._beat
            if beat != told and time.monotonic() - beat > self._tick_s + SLOW_STEP_S:
                told = beat
                frame = sys._current_frames().get(thread_id)
                self._log.warning("loop.slow_step", stack="".join(traceback.format_stack(frame)))
