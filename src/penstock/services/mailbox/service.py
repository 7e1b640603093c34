"""The wiring of svc-mailbox: what it is made of, as child specs in start order."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.capability.verifier import CapabilityVerifier
from penstock.kernel.channel import Full
from penstock.kernel.child import Child, ChildSpec, Drain
from penstock.kernel.errors import Busy
from penstock.kernel.restart import RestartPolicy
from penstock.kernel.supervisor import SupervisorOptions
from penstock.net.server.listener import Listener
from penstock.net.server.listener_config import listener_options
from penstock.net.server.stranger_quota import known_by
from penstock.services.mailbox.agents.cap_cache_refresher import CapCacheRefresher
from penstock.services.mailbox.agents.checkpointer import Checkpointer
from penstock.services.mailbox.agents.dead_letter_mover import DeadLetterMover
from penstock.services.mailbox.agents.rebalancer import Rebalancer
from penstock.services.mailbox.agents.reprocessor import Redrive, Reprocessor
from penstock.services.mailbox.agents.retention import Retention
from penstock.services.mailbox.agents.visibility_scanner import ScannerAlarm, VisibilityScanner
from penstock.services.mailbox.api import MailboxApi
from penstock.services.mailbox.authority import MailboxAuthority
from penstock.services.mailbox.commit_loop import CommitLoop
from penstock.services.mailbox.dispatch import Dispatcher
from penstock.services.mailbox.engine_reader import EngineReader, pause
from penstock.services.mailbox.engines.memory import MemoryEngine
from penstock.services.mailbox.engines.sqlite import SqliteEngine
from penstock.services.mailbox.jobs import Work
from penstock.services.mailbox.routes import MailboxRoutes
from penstock.services.mailbox.shard_worker import ShardWorker
from penstock.services.mailbox.state import MailboxParts, MailboxState
from penstock.services.mailbox.writer import Writer

if TYPE_CHECKING:
    from penstock.contracts.capability import Verifier
    from penstock.kernel.channel import Channel
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.limiter import ByteBudget
    from penstock.services.mailbox.config import MailboxOptions
    from penstock.services.mailbox.engines.engine import Engine

SERVICE: Final = "svc-mailbox"
_LINGER_STEP_S: Final = 0.02
# The share of the drain in which settlements are still taken; the rest is for flushing and closing.
_LINGER_SHARE: Final = 0.6


class MailboxService:
    """One writer, a worker for each shard, the agents beside them, a listener in front."""

    def __init__(  # noqa: PLR0913 - what it is made of, most of it by name
        self,
        inventory: Inventory,
        options: MailboxOptions,
        budget: ByteBudget | None = None,
        *,
        verifier: Verifier | None = None,
        trim_capabilities: Callable[[], object] = lambda: None,
        engine: Engine | None = None,
    ) -> None:
        """Declare everything; nothing runs yet. Without a verifier nothing is checked: for `insecure_dev` alone."""
        self._inventory = inventory
        self._options = options
        self.inventory = inventory
        self.engine = engine or make_engine(options)
        self.state = state = MailboxState(inventory, options)
        self.reader = EngineReader(inventory, self.engine, state)
        self.writer = Writer(inventory, self.engine, state)
        self.dispatcher = Dispatcher(state, self.writer)
        self.parts = parts = MailboxParts(inventory, state, self.reader, self.writer, self.dispatcher, ScannerAlarm())
        self._commits = CommitLoop(parts, self.engine)
        self.events = self._commits.events
        self.dispatcher.workers = [self._worker(index, parts) for index in range(options.ready_shards)]
        self.shards = inventory.watch("ready_shards", options.ready_shards, producers="config", consumers="rebalancer")
        self.authority = authority = MailboxAuthority(verifier)
        reproc = inventory.channel(
            "reproc", Redrive, capacity=options.reproc_capacity, full=Full.REFUSE, producers="operator",
            consumers="dlq_reprocessor",
        )  # fmt: skip
        self.reprocessor = Reprocessor(parts, reproc)
        self.api = MailboxApi(parts, authority, self.reprocessor)
        self._checkpointer = Checkpointer(parts, self.engine)
        self._mover = DeadLetterMover(parts)
        self._scanner = VisibilityScanner(parts)
        self._retention = Retention(parts, self.engine)
        self._rebalancer = Rebalancer(parts, self.shards)
        self._refresher = CapCacheRefresher(inventory, authority, trim_capabilities, options.cap_cache_ttl_s)
        self._intake = inventory.health.gate("intake", is_open=True)
        self.routes = MailboxRoutes(parts, self.api, authority).routes()
        self.listener: Listener | None = None
        if options.listener is not None:
            busy = Busy("The mailbox is draining.", queue="work")
            settings = listener_options(options.listener)
            self.listener = Listener(
                inventory, settings, self.routes, budget=budget, draining_error=busy,
                admission=None if verifier is None else authority.admit_head,
                known=known_by(verifier) if isinstance(verifier, CapabilityVerifier) else None,
            )  # fmt: skip
        self._declare_saturation()

    def _worker(self, index: int, parts: MailboxParts) -> ShardWorker:
        inventory, options = self._inventory, self._options
        work: Channel[Work] = inventory.channel(
            "work", Work, capacity=options.shard_capacity, full=Full.REFUSE, producers="listener, requeue",
            consumers="shard_worker", shard=index,
        )  # fmt: skip
        requeue = inventory.channel(
            "requeue", int, capacity=options.requeue_capacity, full=Full.REFUSE, producers="visibility_scanner",
            consumers="shard_worker", shard=index,
        )  # fmt: skip
        return ShardWorker(index, parts, work, requeue)

    def _declare_saturation(self) -> None:
        metrics, dispatcher = self._inventory.metrics, self.dispatcher
        for worker in dispatcher.workers:
            shard = str(worker.index)
            for queue, channel in (("work", worker.work), ("requeue", worker.requeue)):
                metrics.gauge("saturation", "Depth over capacity.", read=_depth(channel), queue=queue, shard=shard)
            text = "How many un-keyed messages overtook one on first delivery, at most."
            metrics.gauge("reorder_depth_max", text, read=partial(_reorder, dispatcher, worker.index), shard=shard)

    def children(self) -> list[ChildSpec]:
        """List what this service runs, in start order; it stops in reverse."""
        workers = self.dispatcher.workers
        children = [
            # First, so that it ends last: whatever the others still persist is committed.
            ChildSpec(
                "writer",
                self._commits.run,
                critical=True,
                drain=Drain.FINISH,
                announces=True,
                # The third failure within a minute: the disk is not to be trusted, the gate stays shut.
                policy=RestartPolicy(crashes_max=2),
            ),
            ChildSpec(
                "shard_worker",
                self._run_worker,
                instances=len(workers),
                critical=True,
                drain=Drain.FINISH,
                consumes=lambda index: (workers[index].work, workers[index].requeue),
            ),
            ChildSpec("visibility_scanner", self._scanner.run, critical=True),
            ChildSpec("dlq_reprocessor", self.reprocessor.run, consumes=(self.reprocessor.reproc,)),
            ChildSpec("dead_letter_mover", self._mover.run),
            ChildSpec("checkpointer", self._checkpointer.run),
            ChildSpec("retention", self._retention.run),
            ChildSpec("cap_cache_refresher", self._refresher.run),
            ChildSpec("rebalancer", self._rebalancer.run),
        ]
        if self.listener is not None:
            # Last: it starts when everything behind it runs, and stops taking work first.
            children.append(
                ChildSpec("listener", self._run_listener, critical=True, drain=Drain.STOP_INTAKE, announces=True)
            )
        return children

    def supervision(self) -> SupervisorOptions:
        """Say how long the drain may take, and how long opening the engine."""
        return SupervisorOptions(drain_deadline_s=self._options.drain_deadline_s, start_deadline_s=60.0)

    def _run_worker(self, child: Child) -> Coroutine[Any, Any, None]:
        return self.dispatcher.workers[child.index].run(child)

    async def close(self) -> None:
        """End the engine's threads, after the supervisor ended everything else."""
        await self.reader.close()
        await self._checkpointer.close()
        await self.writer.close()

    def apply(self, options: MailboxOptions) -> None:
        """Take over what may change while it runs: the number of shards, the usual lease, and the backoff of nacks."""
        self._options = replace(self._options, drain_deadline_s=options.drain_deadline_s)
        self.state.retune(options)
        self.shards.set(options.ready_shards)

    def stop_intake(self) -> None:
        """Refuse new sends and receives, end streams and long polls; settlements are still taken."""
        self.state.draining = True
        self._intake.set(is_open=False, why="draining")
        self.state.end_waits()

    async def _run_listener(self, child: Child) -> None:
        """Serve; when asked to drain, go on taking settlements for a while before the listener refuses everything."""
        listener = self.listener
        assert listener is not None
        await listener.start(child)
        try:
            child.announce()
            await child.shutdown.wait()
            self.stop_intake()
            await self._linger(child)
            listener.stop_intake(child.shutdown.until)
            await listener.quiet()
            child.quiet()
            await child.shutdown.stopped()
        finally:
            await listener.close()

    async def _linger(self, child: Child) -> None:
        """Wait while there are leases that may still be settled."""
        until = child.clock.monotonic() + self._options.drain_deadline_s * _LINGER_SHARE
        while self.state.ledger.inflight and child.clock.monotonic() < until:
            await pause(_LINGER_STEP_S)


def _depth(channel: Channel[Any]) -> Callable[[], float]:
    return lambda: channel.depth / channel.capacity


def _reorder(dispatcher: Dispatcher, index: int) -> float:
    return max((shard.reorder_depth_max for shard in dispatcher.shards_of(index)), default=0)


def make_engine(options: MailboxOptions) -> Engine:
    """Make the engine the options name."""
    if options.engine == "memory" or options.data_dir is None:
        return MemoryEngine(os.urandom(32))
    mark = options.data_dir.with_name(f"{options.data_dir.name}.lived")
    return SqliteEngine(options.data_dir, fsync=options.fsync, wal_bytes=options.wal_bytes, outer_mark=mark)
