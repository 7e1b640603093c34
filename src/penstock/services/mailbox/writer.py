"""The one writer: gathers what the steps of the mailbox persist into batches, and commits them one at a time.

There is always one open `Batch`, into which any step puts what it wants written. `next_batch` closes it when somebody
woke the writer, and `commit` writes it on the engine's thread. While that runs the next batch fills: the slower the
disk, the larger the batches. The commit loop is the only caller of these two, and applies what `commit` returns.

A batch of a few jobs is written on the loop itself while the disk is fast: the way to the thread and back would take
more CPU than the commit, and longer. The log is copied into the database beside the commits (`agents.checkpointer`),
and what is left of it then between two commits, after the answers of the first have left.

A lease does not start a commit. For its first 8 ms no commit includes it, because most leases are acked by then and
need not be written at all. After that it joins the next commit, and at 10 ms (`lease_flush_ms`) it starts one. Until
it is written it is called a rider.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.kernel.errors import PenstockError
from penstock.kernel.log import Log
from penstock.kernel.sync_pace import SyncPace
from penstock.services.mailbox.batch import Batch, Committed
from penstock.services.mailbox.engine_reader import finish
from penstock.services.mailbox.engines.engine import DiskFull, Engine, EngineContents, EngineFailed
from penstock.services.mailbox.engines.thread import engine_thread

if TYPE_CHECKING:
    from penstock.kernel.clock import Clock
    from penstock.kernel.inventory import Inventory
    from penstock.services.mailbox.state import MailboxState

_OPEN_S: Final = 60.0
_COMMIT_S: Final = 30.0
_CLOSE_S: Final = 10.0
_IDLE_S: Final = 0.05
_TEND_S: Final = 1.0
_DELAYS_MAX: Final = 16_384
# For this share of the time that a lease may stay unwritten, the writer hopes for its ack.
_HELD_SHARE: Final = 0.8
_BATCH_ROWS_MAX: Final = 4096
# A batch up to this size may be written on the loop. One that comes in a turn of 64 connections, or of the tasks of a
# program, is within it; it holds the loop for about half a millisecond.
_LOOP_JOBS_MAX: Final = 64
_LOOP_BYTES_MAX: Final = 64 << 10
_BATCH_BYTES_MAX: Final = 16 << 20


class Writer:
    """Owns the open batch and the engine's one writing thread."""

    def __init__(self, inventory: Inventory, engine: Engine, state: MailboxState) -> None:
        self.batch = Batch()
        self.thread = engine_thread(inventory, engine, "mailbox_writer", 1)
        # A batch was taken and is not applied yet.
        self.busy = False
        self._engine = engine
        # How fast the syncs of the disk have been.
        self._pace = SyncPace()
        self._state = state
        self._ledger = state.ledger
        self._clock: Clock = inventory.clock
        self._lease_flush_s = state.options.lease_flush_s
        self._log = Log(inventory.service)
        self._disk = inventory.health.gate("disk", is_open=True)
        self._woken = asyncio.Event()
        # The log has grown so much that the checkpointer has something to do.
        self.log_grown = asyncio.Event()
        self._ending = False
        # The last wait ended because nobody woke the writer.
        self._quiet = False
        # When (monotonic) the engine is to look after its files again.
        self._tend_at = 0.0
        # Commits begun so far: while it stands still, nothing was settled.
        self.commits = 0
        self._rider_timer: asyncio.TimerHandle | None = None
        # Somebody wants to see every lease on the disk.
        self._all_ride = False
        # Workers that wait until the open batch has room.
        self._crowd: list[asyncio.Future[None]] = []
        # Calls to make on the thread between two batches.
        self._calls: list[tuple[Callable[[], bool], asyncio.Future[bool]]] = []
        self._declare(inventory)

    def _declare(self, inventory: Inventory) -> None:
        metrics = inventory.metrics
        inventory.timeout("mailbox.commit", _COMMIT_S, "503 downstream_unavailable, outcome unknown")
        self._commits = metrics.counter("commits_total", "Group commits.")
        self._committed = metrics.counter("committed_messages_total", "Messages stored by group commits.")
        self._commit_s = metrics.histogram("commit_seconds", "How long a group commit takes.")
        self._slow_commits = metrics.counter("slow_commits_total", "Group commits that took over 2 ms, or failed.")
        for name, label in (("wal_bytes", "wal_bytes"), ("checkpoint_s", "checkpoint_seconds")):
            if hasattr(self._engine, name):
                metrics.gauge(label, "Of the engine's log.", read=partial(getattr, self._engine, name))

    # --- for every step that changed the batch

    def wake(self) -> None:
        """Commit what there is: a batch at once, leases alone within their few milliseconds."""
        if self.batch:
            self._woken.set()
        elif self._ledger.riders:
            self._time_riders()

    def _time_riders(self) -> None:
        """See that the leases are written in time, by any commit or by one of their own."""
        if self._rider_timer is None:
            now = self._state.now()
            left_s = self._lease_flush_s - (now.mono - self._ledger.oldest_rider(now)) / 1000
            self._rider_timer = asyncio.get_running_loop().call_later(
                max(0.0, left_s), self._flush_riders
            )  # lint: allow PK006 at most one, cancelled when the writer stops

    def _flush_riders(self) -> None:
        self._rider_timer = None
        if self._ledger.riders:
            self._woken.set()

    @property
    def full(self) -> bool:
        """Tell whether the open batch has no room: a slow disk must show as a full channel, not as memory."""
        batch = self.batch
        return batch.waiting >= _BATCH_ROWS_MAX or batch.bytes >= _BATCH_BYTES_MAX

    async def has_room(self) -> None:
        """Wait until the open batch was handed over."""
        while self.full and self._state.ready:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._crowd.append(future)
            await future

    async def flushed(self) -> None:
        """Wait until everything handed in so far is durable, or nobody knows whether it is."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._all_ride = True
        self.batch.flushes.append(done)
        self._woken.set()
        await done

    async def between(self, call: Callable[[], bool]) -> bool:
        """Run a call on the writer's thread between two batches; False when the engine is gone meanwhile."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._calls.append((call, future))
        self._woken.set()
        return await future

    # --- for the commit loop

    async def open(self) -> EngineContents:
        """Open the engine and read what it holds. Raises Corrupt."""
        contents = await self.thread.run("mailbox_open", _OPEN_S, self._engine.open, _DELAYS_MAX)
        self._tell_room()
        return contents

    async def close_engine(self) -> None:
        """Close the engine in good order."""
        await self.thread.run("mailbox_close", _CLOSE_S, self._engine.close)

    def end(self, *, ending: bool = True) -> None:
        """Commit what is left, and then return no more batches."""
        self._ending = ending
        if ending:
            self._woken.set()

    async def next_batch(self) -> Batch | None:
        """Wait until there is something to commit, and close the open batch; None at the end."""
        self.busy = False
        if self._engine.checkpoint_due:
            await self.thread.run("mailbox_checkpoint", _COMMIT_S, self._engine.checkpoint)
        while True:
            if not (self._woken.is_set() or self._ending):
                await self._idle()
            self._woken.clear()
            if self._calls:
                await self._make_calls()
            # One turn for what has arrived already: fewer, larger commits, measured a tenth less CPU a message.
            await asyncio.sleep(0)
            batch = self.take()
            if batch:
                self.busy = True
                return batch
            if self._ending:
                return None
            await self._tend_when_due()

    async def commit(self, batch: Batch) -> Committed:
        """Write a batch; what went wrong is part of what is returned."""
        before = self._clock.monotonic()
        committed = await self._commit(batch)
        self._tell_room()
        if self._engine.copy_due:
            self.log_grown.set()
        if committed.error is None:
            self._commits.value += 1
            self._committed.value += len(batch.rows)
            self._commit_s.observe(self._clock.monotonic() - before)
        return committed

    async def _commit(self, batch: Batch) -> Committed:
        batch.at_ms = self._state.now().wall
        try:
            self._engine.prepare(batch)
            await self._write(batch)
        except DiskFull:
            return await self._commit_without_rows(batch)
        except EngineFailed as error:
            return Committed(batch, error=error)
        except PenstockError as error:
            return Committed(batch, error=EngineFailed(f"The commit did not end: {error.detail}", outcome="unknown"))
        return Committed(batch)

    async def _write(self, batch: Batch) -> None:
        """Commit on the loop or on the thread, and learn how fast the disk is."""
        small = batch.waiting <= _LOOP_JOBS_MAX and batch.bytes <= _LOOP_BYTES_MAX
        self.commits += 1
        try:
            if small and self._pace.fast and self._engine.durable and not self._engine.full:
                self._engine.commit(batch)
            else:
                await self.thread.run("mailbox_commit", _COMMIT_S, self._engine.commit, batch)
        finally:
            self._slow_commits.value += self._pace.note(self._engine.commit_s)

    async def _commit_without_rows(self, batch: Batch) -> Committed:
        """Commit the rest of a batch whose messages did not fit, with the help of the reserve."""
        self._log.warning("disk.full", refused=len(batch.rows))
        refused = batch.drop_rows()
        try:
            await self.thread.run("mailbox_commit", _COMMIT_S, self._engine.commit, batch)
        except PenstockError:
            return Committed(batch, refused, EngineFailed("Not even settlements find room.", outcome="unknown"))
        return Committed(batch, refused)

    async def _idle(self) -> None:
        """Wait for work; a quiet moment is used to tidy up."""
        if not await self._woken_within(_IDLE_S) and not self.batch and not self._ending and self._state.ready:
            await self.thread.run("mailbox_idle", _COMMIT_S, self._engine.idle)
            while not self._has_work():
                self._woken.clear()
                if self._engine.durable:
                    await self._woken_within(max(0.0, self._tend_at - self._clock.monotonic()))
                else:
                    await self._woken.wait()
                await self._tend_when_due()

    async def _woken_within(self, seconds: float) -> bool:
        """Wait until somebody wakes the writer; False when nobody does for so long."""
        self._quiet = False
        timer = asyncio.get_running_loop().call_later(
            seconds, self._fall_quiet
        )  # lint: allow PK006 only ends the wait below
        await self._woken.wait()
        timer.cancel()
        return not self._quiet

    def _fall_quiet(self) -> None:
        self._quiet = True
        self._woken.set()

    async def _tend_when_due(self) -> None:
        """Have the engine look after its files, once a second while nothing is committed.

        The time is kept, and not counted anew after each wait: others have small calls made here more often than once
        a second, and would put it off for ever.
        """
        now = self._clock.monotonic()
        if self._engine.durable and now >= self._tend_at and self._state.ready:
            self._tend_at = now + _TEND_S
            await self.thread.run("mailbox_tend", _COMMIT_S, self._engine.tend)
            self._tell_room()

    def _tell_room(self) -> None:
        """Say in readiness when the disk has no room for messages."""
        full = self._engine.full
        self._disk.set(
            is_open=True, degraded=full, why="full: messages are refused, settlements are taken" if full else ""
        )

    def _has_work(self) -> bool:
        return bool(self.batch or self._calls or self._ending or self._ledger.riders)

    async def _make_calls(self) -> None:
        calls, self._calls = self._calls, []
        try:
            for call, future in calls:
                more = await self.thread.run("mailbox_between", _COMMIT_S, call)
                if not future.done():
                    future.set_result(more)
        finally:
            _answer_no(calls)

    def take(self) -> Batch:
        """Close the open batch, with the leases that are old enough, and begin another."""
        batch, self.batch = self.batch, Batch()
        if self._ledger.riders:
            self._take_riders(batch)
        crowd, self._crowd = self._crowd, []
        for future in crowd:
            finish(future)
        return batch

    def _take_riders(self, batch: Batch) -> None:
        now = self._state.now()
        held_ms = 0.0 if self._all_ride or self._ending else self._lease_flush_s * 1000 * _HELD_SHARE
        self._all_ride = False
        states, batch.over = self._ledger.lease_states(now, now.mono - held_ms)
        for seq, state in states.items():
            batch.states.setdefault(seq, state)
        if self._ledger.riders:
            self._time_riders()

    def stop(self) -> Batch:
        """Give up what was handed in: the engine is not open any more. Returns what will never be written."""
        batch = self.take()
        if self._rider_timer is not None:
            self._rider_timer.cancel()
            self._rider_timer = None
        calls, self._calls = self._calls, []
        _answer_no(calls)
        return batch

    async def close(self) -> None:
        """End the thread."""
        await self.thread.close()


def _answer_no(calls: list[tuple[Callable[[], bool], asyncio.Future[bool]]]) -> None:
    for _, future in calls:
        if not future.done():
            future.set_result(False)
