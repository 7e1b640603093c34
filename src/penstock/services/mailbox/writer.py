"""The one writer: gathers what the shards persist into batches and commits them, one at a time, on one thread.

While a batch is being committed the next one fills: the slower the disk, the larger the batches. Answers leave
when their batch is durable. Leases ride: they start no commit of their own until they are 10 ms old, and those that
are acked before a commit takes them along are never written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from penstock.kernel.child import Child
from penstock.kernel.errors import NotReady, PenstockError
from penstock.kernel.log import Log
from penstock.services.mailbox.batch import Batch
from penstock.services.mailbox.engines.engine import (
    Corrupt,
    DiskFull,
    Engine,
    EngineContents,
    EngineFailed,
)
from penstock.services.mailbox.ledger import MailboxLedger, Now, Over

if TYPE_CHECKING:
    from penstock.kernel.clock import Clock
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.pool import Pool

P = ParamSpec("P")
R = TypeVar("R")

_COMMIT_S: Final = 30.0
_IDLE_S: Final = 0.05
# So much of the time a lease may stay unwritten is spent on hoping for its ack.
_HELD_SHARE: Final = 0.8
_BATCH_ROWS_MAX: Final = 4096
_BATCH_BYTES_MAX: Final = 16 << 20


class EngineThread:
    """Runs engine calls: on a pool's thread, or right here for an engine that never blocks."""

    def __init__(self, pool: Pool | None) -> None:
        """Without a pool every call is made at once."""
        self._pool = pool

    async def run(self, op: str, seconds: float, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Make the call within so many seconds."""
        if self._pool is None:
            return call(*args, **kwargs)
        return await self._pool.run(op, seconds, call, *args, **kwargs)

    async def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            await self._pool.close()


class Writer:
    """Owns the open batch and the engine's life."""

    def __init__(
        self, inventory: Inventory, ledger: MailboxLedger, engine: Engine, thread: EngineThread, *, lease_flush_s: float
    ) -> None:
        """Wait for `run`; until then everything is refused."""
        self._ledger = ledger
        self._engine = engine
        self._thread = thread
        self._clock: Clock = inventory.clock
        self._lease_flush_s = lease_flush_s
        self._log = Log(inventory.service)
        self._gate = inventory.health.gate("engine")
        self.batch = Batch()
        self.ready = False
        # Told what the engine holds, each time it was opened.
        self.on_open: Callable[[EngineContents], None] | None = None
        # Told where and what is damaged, when the engine refuses its files.
        self.on_damage: Callable[[str, str], None] | None = None
        self.damage = ""
        self.on_applied: Callable[[], None] | None = None
        self.on_rows_refused: Callable[[Batch], None] | None = None
        # Told which leases and delays the disk knows to be over.
        self.on_over_written: Callable[[list[Over]], None] | None = None
        self.on_stopped: Callable[[PenstockError], None] | None = None
        self._some = asyncio.Event()
        self._ending = False
        self.busy = False
        self._rider: asyncio.TimerHandle | None = None
        # Somebody wants to see every lease on the disk.
        self._all_ride = False
        self._room: list[asyncio.Future[None]] = []
        self._tasks: list[tuple[Callable[[], bool], asyncio.Future[bool]]] = []
        self._declare(inventory)

    def _declare(self, inventory: Inventory) -> None:
        metrics = inventory.metrics
        inventory.timeout("mailbox.commit", _COMMIT_S, "503 downstream_unavailable, outcome unknown")
        self._commits = metrics.counter("commits_total", "Group commits.")
        self._committed = metrics.counter("committed_messages_total", "Messages stored by group commits.")
        self._commit_s = metrics.histogram("commit_seconds", "How long a group commit takes.")
        for name, label in (("wal_bytes", "wal_bytes"), ("checkpoint_s", "checkpoint_seconds")):
            if hasattr(self._engine, name):
                metrics.gauge(label, "Of the engine's log.", read=partial(getattr, self._engine, name))

    def now(self) -> Now:
        """Name this instant on both clocks."""
        clock = self._clock
        wall = clock.wall()  # lint: allow PK012 leases, delays and ages are stored as wall time
        return Now(clock.monotonic() * 1000, int(wall * 1000))

    # --- what the workers do

    def kick(self) -> None:
        """Commit what is in the batch, as soon as the thread is free."""
        if not self._some.is_set():
            self._some.set()

    def see_to_it(self) -> None:
        """Commit what there is: at once, or with the leases if there is nothing else."""
        if self.batch:
            self.kick()
        elif self._ledger.riders:
            self.ride()

    def ride(self) -> None:
        """See to it that leases are written within their few milliseconds, by any commit or by one of their own."""
        if self._rider is None:
            now = self.now()
            left_s = self._lease_flush_s - (now.mono - self._ledger.oldest_rider(now)) / 1000
            self._rider = asyncio.get_running_loop().call_later(
                max(0.0, left_s), self._flush_riders
            )  # lint: allow PK006 at most one, cancelled when the writer stops

    def _flush_riders(self) -> None:
        self._rider = None
        if self._ledger.riders:
            self.kick()

    @property
    def full(self) -> bool:
        """Tell whether the open batch has no room: a slow disk must show as a full channel, not as memory."""
        batch = self.batch
        return batch.waiting >= _BATCH_ROWS_MAX or batch.bytes >= _BATCH_BYTES_MAX

    async def room(self) -> None:
        """Wait until the open batch was handed over."""
        while self.full and self.ready:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._room.append(future)
            await future

    async def between(self, call: Callable[[], bool]) -> bool:
        """Run a call on the writer's thread between two batches; False when the engine is gone meanwhile."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._tasks.append((call, future))
        self.kick()
        return await future

    async def paused(self, seconds: float) -> None:
        """Wait a moment while commits go on."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(seconds, _finish, future)  # lint: allow PK006 only ends a pause
        await future

    async def flushed(self) -> None:
        """Wait until everything handed in so far is durable."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._all_ride = True
        self.batch.after.append((_finish, done))
        self.batch.failed.append(lambda _: _finish(done))
        self.kick()
        await done

    # --- its life

    async def run(self, child: Child) -> None:
        """Open the engine and commit until the service is drained. An engine that failed ends this run."""
        try:
            opened = await self._thread.run("mailbox_open", 60.0, self._engine.open, 16_384)
        except Corrupt as damage:
            await self._stay_shut(child, damage)
            return
        # What was handed in while nothing was open belongs to shards that are no more.
        self._fail(self._take(), NotReady("The engine was not open.", phase="reopening"))
        if self.on_open is not None:
            self.on_open(opened)
        self.ready, self.damage = True, ""
        self._gate.set(is_open=True, degraded=not self._engine.durable, why="" if self._engine.durable else "ram only")
        child.announce()
        forget = child.shutdown.on_drain(self._end)
        try:
            await self._work(child)
        finally:
            forget()
            self._stop(NotReady("The engine is not open.", phase="reopening"))
            await self._thread.run("mailbox_close", 10.0, self._engine.close)

    async def _stay_shut(self, child: Child, damage: Corrupt) -> None:
        """Hold everything back until somebody has looked at the files; the service answers, and says why it is not ready."""
        self.damage = damage.detail
        self._gate.set(is_open=False, why=damage.detail)
        if self.on_damage is not None:
            self.on_damage(str(damage.facts.get("where", "file")), damage.detail)
        child.announce()
        await child.shutdown.wait()

    def _end(self) -> None:
        self._ending = True
        self.kick()

    async def _work(self, child: Child) -> None:
        self._ending = child.shutdown.draining
        while True:
            if self._ending:
                self.kick()
            if not self._some.is_set():
                await self._idle()
            self._some.clear()
            await self._run_tasks()
            # One turn for what has arrived already: fewer, larger commits, measured a tenth less CPU a message.
            await asyncio.sleep(0)
            batch = self._take()
            if batch:
                self.busy = True
                await self._commit(batch)
                self.busy = False
            elif self._ending:
                return

    async def _idle(self) -> None:
        """Wait for work; a quiet moment is used to tidy up."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(_IDLE_S, self._some.set)  # lint: allow PK006 only ends the wait below
        await self._some.wait()
        timed_out = loop.time() >= timer.when()
        timer.cancel()
        if timed_out and not self.batch and not self._ending and self.ready:
            await self._thread.run("mailbox_idle", _COMMIT_S, self._engine.idle)
            if not self._wanted():
                self._some.clear()
                await self._some.wait()

    def _wanted(self) -> bool:
        return bool(self.batch or self._tasks or self._ending or self._ledger.riders)

    async def _run_tasks(self) -> None:
        tasks, self._tasks = self._tasks, []
        try:
            for call, future in tasks:
                more = await self._thread.run("mailbox_between", _COMMIT_S, call)
                if not future.done():
                    future.set_result(more)
        finally:
            _answer_no(tasks)

    def _take(self) -> Batch:
        batch, self.batch = self.batch, Batch()
        if self._ledger.riders:
            self._take_riders(batch)
        room, self._room = self._room, []
        for future in room:
            _finish(future)
        return batch

    def _take_riders(self, batch: Batch) -> None:
        """Let leases ride. The youngest wait for a later commit, within their few milliseconds: most are acked by then."""
        now = self.now()
        held_ms = 0.0 if self._all_ride or self._ending else self._lease_flush_s * 1000 * _HELD_SHARE
        self._all_ride = False
        states, over = self._ledger.lease_states(now, now.mono - held_ms)
        for seq, state in states.items():
            batch.states.setdefault(seq, state)
        if over and self.on_over_written is not None:
            batch.after.append((self.on_over_written, over))
        if self._ledger.riders:
            self.ride()

    async def _commit(self, batch: Batch) -> None:
        before = self._clock.monotonic()
        try:
            self._engine.prepare(batch)
            await self._thread.run("mailbox_commit", _COMMIT_S, self._engine.commit, batch)
        except DiskFull as error:
            await self._commit_settlements(batch, error)
        except EngineFailed as error:
            self._fail(batch, error)
            raise
        except PenstockError as error:
            failed = EngineFailed(f"The commit did not end: {error.detail}", outcome="unknown")
            self._fail(batch, failed)
            raise failed from error
        except BaseException:
            # A bug, or cut off by the end of a drain: nobody knows what became of it, but everybody hears that.
            self._fail(batch, EngineFailed("The commit did not end.", outcome="unknown"))
            raise
        self._commits.value += 1
        self._committed.value += len(batch.rows)
        self._commit_s.observe(self._clock.monotonic() - before)
        try:
            for call, value in (*batch.stored, *batch.after):
                call(value)
        except BaseException:
            # Durable, but not applied: RAM is rebuilt from the disk, and nobody is left without an answer.
            self._fail(batch, EngineFailed("The commit was not applied.", outcome="unknown"))
            raise
        if self.on_applied is not None:
            self.on_applied()

    async def _commit_settlements(self, batch: Batch, error: DiskFull) -> None:
        """Refuse the messages of a batch that did not fit, and commit the rest with the help of the reserve."""
        self._log.warning("disk.full", refused=len(batch.rows))
        if self.on_rows_refused is not None:
            self.on_rows_refused(batch)
        refused, batch.unsent = batch.unsent, []
        batch.rows, batch.claims, batch.stored, batch.statements = [], [], [], None
        for fail in refused:
            fail(error)
        try:
            await self._thread.run("mailbox_commit", _COMMIT_S, self._engine.commit, batch)
        except PenstockError as exc:
            failed = EngineFailed("Not even settlements find room.", outcome="unknown")
            self._fail(batch, failed)
            raise failed from exc

    def _fail(self, batch: Batch, error: PenstockError) -> None:
        for fail in (*batch.unsent, *batch.failed):
            fail(error)

    def _stop(self, error: PenstockError) -> None:
        """Refuse what is in the open batch; its shards are rebuilt from the disk."""
        self.ready = False
        self._gate.set(is_open=False)
        batch = self._take()
        self._fail(batch, error)
        if self._rider is not None:
            self._rider.cancel()
            self._rider = None
        tasks, self._tasks = self._tasks, []
        _answer_no(tasks)
        if self.on_stopped is not None:
            self.on_stopped(error)


def _answer_no(tasks: list[tuple[Callable[[], bool], asyncio.Future[bool]]]) -> None:
    for _, future in tasks:
        if not future.done():
            future.set_result(False)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
