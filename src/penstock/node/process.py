"""The life of the process: loop, signals, start, ready, drain, exit code."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from penstock.kernel.bus import ShutdownRequested
from penstock.kernel.lifecycle import Phase, StopRequests
from penstock.kernel.log import Log
from penstock.kernel.runtime import freeze_after_start, tune_process
from penstock.node.otel import start_exporting

if TYPE_CHECKING:
    from penstock.kernel.drain import DrainReport
from penstock.node.build import Node

OK: Final = 0
FAILED: Final = 1
BAD_CONFIG: Final = 2
CANNOT_BIND: Final = 3
NOT_READY: Final = 4

_log = Log("node")


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeEnding:
    """How the drain of a whole node went."""

    reports: Sequence[DrainReport]
    # Why whatever was late was cut off: the limit of the node, or of a service in it, or a second signal.
    cause: Literal["deadline", "signal"]
    limit_s: float

    @property
    def cut(self) -> list[str]:
        """Name what was cut off: `svc-echo/worker[0]`."""
        return [f"{report.service}/{name}" for report in self.reports for name in report.aborted]


@dataclass(frozen=True, slots=True)
class Hooks:
    """Who wants to hear of the node's life."""

    ready: Callable[[Node], None]
    phase: Callable[[str, str], None]
    stopped: Callable[[NodeEnding], None]


def new_loop() -> asyncio.AbstractEventLoop:
    """Make a uvloop where there is one, the standard loop elsewhere."""
    try:
        import uvloop  # noqa: PLC0415 - optional, and only here
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(make: Callable[[], Node], hooks: Hooks) -> int:
    """Run a node from start to end on a loop of its own; returns the exit code."""
    tune_process()
    # Before the services are built: their listeners ask once whether requests are to be traced.
    end_exporting = start_exporting()
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(_live(make, hooks))
    finally:
        end_exporting()


async def _live(make: Callable[[], Node], hooks: Hooks) -> int:
    node = make()
    life = _Life(node)
    node.root.on_phase = lambda service, phase: hooks.phase(service, phase.value)
    life.listen_to_signals()
    try:
        await node.root.start()
        node.started()
        try:
            hooks.ready(node)
            freeze_after_start()
            await node.root.stop_requested.wait()
        finally:
            # Whatever ended the wait: what was admitted is finished.
            ending = await _drain(node, life)  # lint: allow PK014 bounded by node.drain_deadline
    finally:
        node.forget()
    hooks.stopped(ending)
    return FAILED if ending.cut or node.root.fatal else OK


async def _drain(node: Node, life: _Life) -> NodeEnding:
    """Drain; however long the services may take one after the other, the node as a whole has its own limit."""
    limit_s = node.settings.value.seconds("node.drain_deadline")
    limit = asyncio.get_running_loop().call_later(limit_s, node.root.hurry)  # lint: allow PK006 cancelled below
    try:
        reports = await node.root.drain()
        await node.close()
    finally:
        limit.cancel()
    return NodeEnding(reports=reports, cause="signal" if life.was_hurried else "deadline", limit_s=limit_s)


class _Life:
    """Turns signals into what the root shall do."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._requests = StopRequests()
        self._loop = asyncio.get_running_loop()
        # Whether somebody cut the drain short.
        self.was_hurried = False

    def listen_to_signals(self) -> None:
        for name in ("SIGTERM", "SIGINT"):
            self._loop.add_signal_handler(getattr(signal, name), self._stop, name)
        self._loop.add_signal_handler(signal.SIGHUP, self._reload)

    def _stop(self, name: str) -> None:
        asked = self._requests.receive(name, self._loop.time())
        if asked is Phase.DRAINING:
            _log.info("shutdown", cause=name)
            self._node.bus.publish(ShutdownRequested(name))
            self._node.root.stop_requested.set()
        elif asked is Phase.ABORTING:
            _log.warning("shutdown.impatient", cause=name)
            self.was_hurried = True
            self._node.root.hurry()
        elif name == "SIGINT":
            # One pressed twice by accident must not cut the drain; one that was meant is pressed again.
            _log.warning("shutdown.under_way", cause=name, hint="press Ctrl-C once more in a second to cut it short")

    def _reload(self) -> None:
        self._node.watcher.ask("SIGHUP")
