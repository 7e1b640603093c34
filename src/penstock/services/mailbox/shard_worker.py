"""The ShardWorker: the only one who changes its shards. Takes jobs in bunches, lets the shard decide, persists, answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from penstock.contracts import mailbox as m
from penstock.kernel.channel import Channel
from penstock.kernel.child import Child
from penstock.kernel.errors import Busy, Closed, Conflict, Internal, PenstockError, Timeout
from penstock.kernel.log import Log
from penstock.kernel.scope import Scope
from penstock.services.mailbox.deliveries import Deliveries
from penstock.services.mailbox.intake import SendIntake
from penstock.services.mailbox.jobs import (
    ACKED,
    PurgeJob,
    RecvJob,
    SendBatchJob,
    SendJob,
    SettleBatchJob,
    SettleItem,
    SettleJob,
    Work,
)
from penstock.services.mailbox.ledger import Now
from penstock.services.mailbox.reading import load
from penstock.services.mailbox.shard import NackCause, RecvQuery, Shard
from penstock.services.mailbox.state import empty
from penstock.services.mailbox.topics import Message, Topic

if TYPE_CHECKING:
    from penstock.services.mailbox.state import MailboxState

Settlement = SettleJob | SettleItem

_BUNCH: Final = 512
_LOADS_MAX: Final = 4096


class ShardWorker:
    """One worker and its two channels."""

    def __init__(self, index: int, room: MailboxState, work: Channel[Work], requeue: Channel[int]) -> None:
        """Own the shards whose number leaves `index` when divided by the number of workers."""
        self.index = index
        self.work = work
        self.requeue = requeue
        # Sends and receives leave an eighth of the channel to those who settle.
        self.settle_reserve = max(1, work.capacity // 8)
        self._room = room
        self._log = Log(room.inventory.service)
        self._scope: Scope | None = None
        self._deliveries = Deliveries(room, self.spawn)
        self._intake = SendIntake(room, self.spawn)
        self._do: dict[type, Callable[[Any, Now], None]] = {
            SendJob: self._intake.send,
            SendBatchJob: self._intake.send_batch,
            RecvJob: self._recv,
            SettleJob: self._settle,
            SettleBatchJob: self._settle_batch,
            PurgeJob: self._purge,
        }

    def offer(self, job: SendJob | SendBatchJob | RecvJob) -> None:
        """Take a send or a receive, or say Busy: some places are kept for settlements."""
        work = self.work
        if work.depth >= work.capacity - self.settle_reserve:
            work.dropped += 1
            raise Busy(f"channel {work.name} is full", queue="work")
        work.try_send(job)

    def shards(self) -> list[Shard]:
        """Return the shards that are this worker's now."""
        return self._room.shards[self.index :: len(self._room.workers)]

    # --- its life

    async def run(self, child: Child) -> None:
        """Work until the channels are closed and empty."""
        self._scope = child.scope("mailbox_load", _LOADS_MAX)
        requeue = child.scope("requeue", 1)
        requeue.start(self._run_requeue())
        writer = self._room.writer
        self.look_after()
        while True:
            try:
                jobs = await self.work.recv_many(_BUNCH)
            except Closed:
                break
            self._bunch(jobs)
            if writer.full:
                await writer.room()
        await self._scope.join()
        await requeue.join()

    async def _run_requeue(self) -> None:
        while True:
            try:
                index = await self.requeue.recv()
            except Closed:
                return
            while self._end_some(index):
                # A slice a turn: the loop belongs to others too.
                await asyncio.sleep(0)
                await self._room.writer.room()

    def _end_some(self, index: int) -> bool:
        """End some of what is over in a shard; tell whether there is more."""
        room = self._room
        if not room.writer.ready or index >= len(room.shards):
            return False
        shard, now = room.shards[index], room.now()
        shard.due(now, room.writer.batch)
        self.look_after()
        return shard.next_due() <= now.mono

    def _bunch(self, jobs: list[Work]) -> None:
        room = self._room
        now = room.now()
        seconds = now.mono / 1000
        for job in jobs:
            if not job.take():
                self._abandon(job)
                continue
            try:
                if job.deadline is not None and job.deadline.at <= seconds:
                    raise Timeout("mailbox_queue", budget_s=job.deadline.budget_s)
                room.check_ready()
                self._do[type(job)](job, now)
            except PenstockError as error:
                job.fail(error)
                self._abandon(job)
            except Exception as error:  # noqa: BLE001  # lint: allow PK015 the boundary of one job
                self._failed(job, error)
                self._abandon(job)
        self.look_after()

    def _abandon(self, job: Work) -> None:
        """Give back what a receiver had got on its way, when it will not see it; forget what only it asked for."""
        if isinstance(job, RecvJob):
            self._room.give_back(job.got)
            self._room.idle(job.topic)

    def _failed(self, job: Work, error: Exception) -> None:
        job.fail(Internal())
        metrics = self._room.inventory.metrics
        kind = type(error).__name__
        metrics.counter("job_failures_total", "Jobs that raised.", worker="shard_worker", type=kind).value += 1
        self._log.error("job.failed", error=error, worker="shard_worker", corr_id=job.corr_id)

    def look_after(self) -> None:
        """Do what the last steps made possible: serve those who wait, read what is wanted, commit."""
        if self._scope is None:
            return  # not started yet; `run` looks first of all
        room = self._room
        for shard in self.shards():
            while shard.woken:
                woken, shard.woken = shard.woken, {}
                for topic in woken:
                    self.serve(topic, shard)
            if shard.reads.wanted:
                self._read(shard)
        room.writer.see_to_it()

    def _read(self, shard: Shard) -> None:
        """Begin the reads a shard wants; those for which there is no place begin when others end."""
        wanted, shard.reads.wanted = shard.reads.wanted, []
        for place, each in enumerate(wanted):
            try:
                self.spawn(load(self._room, shard, each))
            except Busy:
                shard.reads.wanted = wanted[place:]
                return

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something that has to wait for the engine."""
        assert self._scope is not None
        self._scope.start(work)

    # --- recv

    def _recv(self, job: RecvJob, now: Now) -> None:
        room = self._room
        shard = room.shards[job.path.pop() % len(room.shards)]
        batch, want = room.writer.batch, job.value
        topic = job.topic = room.ledger.topic(job.topic.name)
        lane = topic.lanes.get(shard.index) or shard.lane(topic)
        if shard.leases and shard.leases[0][0] <= now.mono:
            shard.due(now, batch)
        if job.got:
            want = _rest(want, job.got)
        got = shard.lease(lane, want, now, batch)
        if got:
            job.got += [(message, message.gen) for message in got]
            self._hint(got[0].until)
        if len(job.got) < job.value.max_messages:
            if job.path and not _sated(job):
                self._pass_on(job)
                return
            if topic.key_backlog.more:
                shard.reads.want_keys(topic)
        self._finish_recv(job, now)

    def _hint(self, until: float) -> None:
        on_deadline = self._room.on_deadline
        if on_deadline is not None:
            on_deadline(until)

    def _pass_on(self, job: RecvJob) -> None:
        """Ask the next shard of the topic; when its worker is full, what was got is the answer."""
        room = self._room
        try:
            room.workers[job.path[-1] % len(room.shards) % len(room.workers)].work.try_send(job)
        except PenstockError:
            if not job.got:
                raise
            self._finish_recv(job, room.now())

    def _finish_recv(self, job: RecvJob, now: Now) -> None:
        room = self._room
        if job.got:
            self._deliveries.deliver(job, now)
        elif room.ledger.sated and job.value.owner is None:
            empty(job, full=True)
            room.idle(job.topic)
        else:
            self._park(job)

    def _park(self, job: RecvJob) -> None:
        """Let a receiver wait; but a shard that it asked on its way may have got something since."""
        room, topic = self._room, job.topic
        patient = bool(job.wait_ms) and not room.draining
        stirring = [index for index, lane in topic.lanes.items() if lane.ready or lane.stalled or lane.backlog.unread]
        if not (patient or stirring or topic.pending):
            empty(job)
            room.idle(topic)
            return
        room.waiters.park(job, patient=patient)
        for index in stirring:
            room.shards[index].woken[topic] = None
        if stirring:
            room.look_after_all()

    def serve(self, topic: Topic, shard: Shard) -> None:
        """Give what is ready to those who wait, the longest waiting first."""
        room = self._room
        lane = topic.lanes.get(shard.index)
        now: Now | None = None
        while lane is not None and (waiter := room.waiters.first(topic)) is not None:
            now = now or room.now()
            got = shard.lease(lane, waiter.job.value, now, room.writer.batch)
            if not got:
                break
            room.waiters.claim(topic)
            waiter.job.got = [(message, message.gen) for message in got]
            self._hint(got[0].until)
            self._deliveries.deliver(waiter.job, now)
        if topic.waiters:
            # While nothing more may be leased, nothing more is read: RAM may have no room for it either.
            if topic.key_backlog.more and not room.ledger.sated:
                shard.reads.want_keys(topic)
            if room.waiters.impatient and not room.stirs(topic):
                room.waiters.settle(topic)

    # --- settlements

    def _settle(self, job: SettleJob, now: Now) -> None:
        self._settle_one(job, now)
        self._room.writer.batch.failed.append(job.fail)

    def _settle_batch(self, job: SettleBatchJob, now: Now) -> None:
        """Settle many; the acks among them are answered together."""
        room, batch = self._room, self._room.writer.batch
        acked: list[SettleItem] = []
        for item in job.value:
            try:
                shard, value = room.shard_of(item.name.slot), item.value
                if isinstance(value, m.Ack) and shard.ack(item.name, value.receipt, now, batch):
                    acked.append(item)
                else:
                    self._settle_one(item, now)
            except PenstockError as error:
                item.refuse(error)
        if acked:
            batch.after.append((job.answer_acks, acked))
        batch.failed.append(job.fail)

    def _settle_one(self, item: Settlement, now: Now) -> None:
        try:
            self._judge(item, now)
        except PenstockError as error:
            item.refuse(error)

    def _judge(self, item: Settlement, now: Now) -> None:
        room, name, value = self._room, item.name, item.value
        shard, batch = room.shard_of(name.slot), room.writer.batch
        if isinstance(value, m.Ack):
            if shard.ack(name, value.receipt, now, batch):
                batch.after.append((item.answer, ACKED))
                return
        elif isinstance(value, m.Extend):
            message = shard.extend(name, value.receipt, value.visibility_ms, now, batch)
            if message is not None:
                self._hint(message.until)
                batch.after.append((item.answer, m.Extended(value.receipt, now.wall_of(message.until))))
                return
        else:
            message = shard.nack(name, value.receipt, NackCause(value.reason, value.delay_ms), now, batch)
            if message is not None:
                batch.after.append((item.answer, self._nacked(message, now)))
                if message.until:
                    # Not before: the scanner would look for the delay while it is on its way to the disk.
                    batch.after.append((self._hint, message.until))
                return
        self.spawn(self._trace(item, shard))

    def _nacked(self, message: Message, now: Now) -> m.Nacked:
        dead = message.attempts >= self._room.options.rules.max_attempts
        visible_in_ms = 0 if dead or not message.until else round(message.until - now.mono)
        return m.Nacked(message.attempts, visible_in_ms, dead)

    async def _trace(self, item: Settlement, shard: Shard) -> None:
        """Judge a settlement of a message that is not in RAM."""
        room = self._room
        try:
            trace = await room.ask(room.engine.trace, item.name.seq)
            shard.judge(trace, item.name, item.value.msg_id, item.value.receipt)
            if not isinstance(item.value, m.Ack):
                raise Conflict("The receipt is no longer good.", reason="stale_receipt")
            item.answer(ACKED)
        except PenstockError as error:
            item.refuse(error)

    # --- purge

    def _purge(self, job: PurgeJob, now: Now) -> None:
        room = self._room
        purged = sum(room.shard_of(row.slot).purge(row, state, now, room.writer.batch) for row, state in job.value)
        room.writer.batch.after.append((job.done, purged))
        room.writer.batch.failed.append(job.fail)


def _rest(want: RecvQuery, got: list[tuple[Message, int]]) -> RecvQuery:
    """Say what is still wanted of a receiver's next shard."""
    taken = sum(message.size for message, _ in got)
    bytes_max = None if want.max_bytes is None else max(0, want.max_bytes - taken)
    return want._replace(max_messages=want.max_messages - len(got), max_bytes=bytes_max)


def _sated(job: RecvJob) -> bool:
    """Tell whether a receiver has as many bytes as it may get."""
    return bool(job.got) and _rest(job.value, job.got).max_bytes == 0
