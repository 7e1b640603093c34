"""The ShardWorker: takes jobs in bunches, lets the shard decide, puts what to persist into the open batch.

A worker is the only consumer of its `work` and `requeue` channels, so the jobs of a shard are done in order. Nothing
in a bunch awaits. What has to wait for the disk (a payload, a claim, the trace of a message that is gone) goes into a
task of `DiskWaits`; what only has to become durable waits in the batch for the commit loop; a receiver that finds
nothing is parked in `Waiters`. When a bunch is done the worker wakes itself: see `wake`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.contracts import mailbox as m
from penstock.kernel.channel import Channel
from penstock.kernel.child import Child
from penstock.kernel.errors import Busy, Closed, Conflict, Internal, PenstockError, Timeout
from penstock.kernel.log import Log
from penstock.services.mailbox.deliveries import Deliveries
from penstock.services.mailbox.disk_waits import DiskWaits
from penstock.services.mailbox.intake import SendIntake
from penstock.services.mailbox.jobs import (
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
from penstock.services.mailbox.shards.reading import Loader
from penstock.services.mailbox.shards.shard import NackCause, RecvQuery, Shard
from penstock.services.mailbox.shards.topics import Message, Topic
from penstock.services.mailbox.shards.window import Leased

if TYPE_CHECKING:
    from penstock.services.mailbox.shards.reading import ReadRequest
    from penstock.services.mailbox.state import MailboxParts

OneSettlement = SettleJob | SettleItem

_BUNCH: Final = 512


class ShardWorker:
    """One worker and its two channels. It serves the shards whose number leaves `index` when divided by the workers."""

    def __init__(self, index: int, parts: MailboxParts, work: Channel[Work], requeue: Channel[int]) -> None:
        self.index = index
        self.work = work
        self.requeue = requeue
        # Sends and receives leave an eighth of the channel to settlements.
        self.settle_reserve = max(1, work.capacity // 8)
        self._state = parts.state
        self._ledger = parts.state.ledger
        self._waiters = parts.state.waiters
        self._writer = parts.writer
        self._reader = parts.reader
        self._dispatcher = parts.dispatcher
        self._alarm = parts.alarm
        self._metrics = parts.inventory.metrics
        self._log = Log(parts.inventory.service)
        self._running = False
        self._waits = DiskWaits()
        self._loader = Loader(parts)
        self._deliveries = Deliveries(parts, self._waits)
        intake = SendIntake(parts, self._waits)
        self._do: dict[type, Callable[[Any, Now], None]] = {
            SendJob: intake.send,
            SendBatchJob: intake.send_batch,
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

    # --- its life

    async def run(self, child: Child) -> None:
        """Work until the channels are closed and empty."""
        waits = self._waits.begin(child)
        requeue = child.scope("requeue", 1)
        requeue.start(self._run_requeue())
        self._running = True
        writer = self._writer
        self.wake()
        while True:
            try:
                jobs = await self.work.recv_many(_BUNCH)
            except Closed:
                break
            self._bunch(jobs)
            if writer.full:
                await writer.has_room()
        await waits.join()
        await requeue.join()

    async def _run_requeue(self) -> None:
        while True:
            try:
                index = await self.requeue.recv()
            except Closed:
                return
            while self._end_some(index):
                # A slice a turn, so that the loop serves others too.
                await asyncio.sleep(0)
                await self._writer.has_room()

    def _end_some(self, index: int) -> bool:
        """End some leases and delays that are over in a shard; tell whether there are more."""
        state = self._state
        if not state.ready or index >= len(state.shards):
            return False
        shard, now = state.shards[index], state.now()
        shard.due(now, self._writer.batch)
        self.wake()
        return shard.window.next_due() <= now.mono

    def _bunch(self, jobs: list[Work]) -> None:
        state = self._state
        now = state.now()
        seconds = now.mono / 1000
        for job in jobs:
            if not job.take():
                self._abandon(job)
                continue
            try:
                if job.deadline is not None and job.deadline.at <= seconds:
                    raise Timeout("mailbox_queue", budget_s=job.deadline.budget_s)
                state.check_ready()
                self._do[type(job)](job, now)
            except PenstockError as error:
                job.fail(error)
                self._abandon(job)
            except Exception as error:  # noqa: BLE001  # lint: allow PK015 the boundary of one job
                self._failed(job, error)
                self._abandon(job)
        self.wake()

    def _abandon(self, job: Work) -> None:
        """Undo the leases of a receiver that will not see them, and forget a topic that only it asked for."""
        if isinstance(job, RecvJob):
            self._dispatcher.give_back(job.got)
            self._state.forget_idle(job.topic)

    def _failed(self, job: Work, error: Exception) -> None:
        job.fail(Internal())
        kind = type(error).__name__
        self._metrics.counter("job_failures_total", "Jobs that raised.", worker="shard_worker", type=kind).value += 1
        self._log.error("job.failed", error=error, worker="shard_worker", corr_id=job.corr_id)

    def wake(self) -> None:
        """Serve the receivers of notified topics, begin the reads that are wanted, and wake the writer."""
        if not self._running:
            return  # not started yet; `run` does this first of all
        for shard in self._dispatcher.shards_of(self.index):
            window = shard.window
            while window.notified:
                notified, window.notified = window.notified, {}
                for topic in notified:
                    if topic.waiters:
                        self.serve(topic, shard)
            if window.reads.wanted:
                self._begin_reads(shard)
        self._writer.wake()

    def _begin_reads(self, shard: Shard) -> None:
        """Begin the reads a shard wants; those for which there is no place begin when others end."""
        reads = shard.window.reads
        wanted, reads.wanted = reads.wanted, []
        for place, request in enumerate(wanted):
            try:
                self._begin_read(shard, request)
            except Busy:
                reads.wanted = wanted[place:]
                return

    def _begin_read(self, shard: Shard, request: ReadRequest) -> None:
        self._waits.start(self._loader.load(shard, request), lambda _: self._loader.cut_off(shard, request))

    # --- recv

    def _recv(self, job: RecvJob, now: Now) -> None:
        shards = self._state.shards
        shard = shards[job.path.pop() % len(shards)]
        batch, want = self._writer.batch, job.value
        topic = job.topic = self._ledger.topic(job.topic.name)
        window = shard.window
        lane = topic.lanes.get(shard.index) or window.lane(topic)
        if window.leases and window.leases[0][0] <= now.mono:
            shard.due(now, batch)
        if job.got:
            want = _rest(want, job.got)
        got = shard.lease(lane, want, now, batch)
        if got:
            self._add(job, got)
        if len(job.got) < job.value.max_messages:
            if job.path and not _has_its_bytes(job):
                self._pass_on(job)
                return
            if topic.key_backlog.more:
                window.reads.want_keys(topic)
            if topic.group_backlog.more:
                window.reads.want_groups(topic)
        self._finish_recv(job, now)

    def _add(self, job: RecvJob, leased: list[Leased]) -> None:
        """Give a receiver what was leased for it; what several shards gave is put in order.

        Messages of one key stay together where a receive takes several of them: a key is of one shard alone.
        """
        if not job.got:
            job.got = leased
        elif job.topic.settings.key_batch > 1:
            job.got = [*job.got, *leased]
        else:
            job.got = sorted([*job.got, *leased], key=_seq)
        self._alarm.wake(leased[0][0].until)

    def _pass_on(self, job: RecvJob) -> None:
        """Ask the next shard of the topic; when its worker is full, what was got is the answer."""
        try:
            self._dispatcher.worker_of(job.path[-1]).work.try_send(job)
        except PenstockError:
            if not job.got:
                raise
            self._finish_recv(job, self._state.now())

    def _finish_recv(self, job: RecvJob, now: Now) -> None:
        if job.got:
            self._deliveries.deliver(job, now)
        elif self._ledger.inflight_full and job.value.owner is None:
            job.deliver(m.Received((), inflight_full=True))
            self._state.forget_idle(job.topic)
        else:
            self._park(job)

    def _park(self, job: RecvJob) -> None:
        """Let a receiver wait; but a shard that it asked on its way may have got something since."""
        state, topic = self._state, job.topic
        patient = job.may_wait and not state.draining
        busy = [index for index, lane in topic.lanes.items() if lane.busy]
        if not (patient or busy or topic.pending):
            job.deliver(m.Received(()))
            state.forget_idle(topic)
            return
        self._waiters.park(job, patient=patient)
        for index in busy:
            state.shards[index].window.notify(topic)
        if busy:
            self._dispatcher.wake_all()

    def serve(self, topic: Topic, shard: Shard) -> None:
        """Give what is ready to those who wait, the longest waiting first."""
        lane, waiters = topic.lanes.get(shard.index), self._waiters
        now: Now | None = None
        while lane is not None and (waiter := waiters.first(topic)) is not None:
            now = now or self._state.now()
            got = shard.lease(lane, waiter.job.value, now, self._writer.batch)
            if not got:
                break
            waiters.claim(topic)
            waiter.job.got = []
            self._add(waiter.job, got)
            self._deliveries.deliver(waiter.job, now)
        if topic.waiters:
            # While nothing more may be leased, nothing more is read: RAM may have no room for it either.
            if topic.key_backlog.more and not self._ledger.inflight_full:
                shard.window.reads.want_keys(topic)
            if topic.group_backlog.more and not self._ledger.inflight_full:
                shard.window.reads.want_groups(topic)
            if waiters.impatient and not self._state.notified(topic):
                waiters.settle(topic)

    # --- settlements

    def _settle(self, job: OneSettlement, now: Now) -> None:
        try:
            self._judge(job, now)
        except PenstockError as error:
            if isinstance(job.value, m.Ack) and self._state.shard_of(job.name.slot).is_coming_back(
                job.name, job.value.receipt
            ):
                self._waits.start(self._settle_when_back(job), job.refuse)
            else:
                job.refuse(error)

    def _settle_batch(self, job: SettleBatchJob, now: Now) -> None:
        """Settle many; the acks among them in one go."""
        items = job.value
        if items and isinstance(items[0][1], m.Ack):
            shard, batch = self._state.shard_of(items[0][2].slot), self._writer.batch
            # A batch is of one kind: all of them are acks.
            job.acked, items = shard.ack_all(items, now, batch)  # type: ignore[arg-type, assignment]
            if job.acked:
                batch.settled.append(job)
        for item in items:
            self._settle(SettleItem(item, job.promise, job.codec), now)

    def _judge(self, item: OneSettlement, now: Now) -> None:
        name, value = item.name, item.value
        shard, batch = self._state.shard_of(name.slot), self._writer.batch
        if isinstance(value, m.Ack):
            decided = shard.ack(name, value.receipt, now, batch)
        elif isinstance(value, m.Extend):
            message = shard.extend(name, value.receipt, value.visibility_ms, now, batch)
            decided = message is not None
            if message is not None:
                if value.visibility_ms:
                    self._alarm.wake(message.until)
                item.result = m.Extended(value.receipt, now.wall + value.visibility_ms)
        else:
            cause = NackCause(value.reason, value.delay_ms, value.error, value.uncounted, value.final)
            message = shard.nack(name, value.receipt, cause, now, batch)
            decided = message is not None
            if message is not None:
                item.result = self._nacked(message, value, now)
        if decided:
            batch.settled.append(item)
        else:
            self._waits.start(self._trace(item, shard), item.refuse)

    def _nacked(self, message: Message, nack: m.Nack, now: Now) -> m.Nacked:
        dead = nack.final or (not nack.uncounted and self._state.options.rules.last_attempt(message))
        visible_in_ms = 0 if dead or not message.until else round(message.until - now.mono)
        return m.Nacked(message.attempts, visible_in_ms, dead)

    async def _trace(self, item: OneSettlement, shard: Shard) -> None:
        """Judge a settlement of a message that is not in RAM."""
        trace = await self._reader.ask(self._reader.reads.trace, item.name.seq)
        if trace.kind == "here" and await self._adopt(item, shard):
            self._settle(item, self._state.now())
            self._dispatcher.wake_all()
            return
        shard.judge(trace, item.name, item.value.msg_id, item.value.receipt)
        if not isinstance(item.value, m.Ack):
            raise Conflict("The receipt is no longer good.", reason="stale_receipt")
        item.committed()

    async def _settle_when_back(self, job: OneSettlement) -> None:
        """Acknowledge a message whose end of lease is on its way to the disk, when it is there."""
        await self._writer.flushed()
        self._settle(job, self._state.now())
        self._dispatcher.wake_all()

    async def _adopt(self, item: OneSettlement, shard: Shard) -> bool:
        """Take a message that waits on the disk into RAM, where its topic lets a receipt of any lease settle it."""
        seq = item.name.seq
        if not self._dispatcher.gave_out(item.name, item.value.receipt):
            return False
        found = await self._reader.ask(self._reader.reads.one, seq)
        topic = None if found is None else self._ledger.by_id.get(found[0].topic)
        if found is None or topic is None or topic.settings.receipts != "any" or found[0].msg_id != item.value.msg_id:
            return False
        if seq not in shard.messages and shard is self._state.shard_of(item.name.slot):
            shard.adopt(*found, self._state.now())
        return seq in shard.messages

    # --- purge

    def _purge(self, job: PurgeJob, now: Now) -> None:
        batch = self._writer.batch
        job.purged = sum(self._state.shard_of(row.slot).purge(row, state, now, batch) for row, state in job.value)
        batch.settled.append(job)


def _seq(leased: Leased) -> int:
    return leased[0].seq


def _rest(want: RecvQuery, got: list[Leased]) -> RecvQuery:
    """Say what is still wanted of a receiver's next shard."""
    taken = sum(message.size for message, _ in got)
    bytes_max = None if want.max_bytes is None else max(0, want.max_bytes - taken)
    return want._replace(max_messages=want.max_messages - len(got), max_bytes=bytes_max)


def _has_its_bytes(job: RecvJob) -> bool:
    """Tell whether a receiver has as many bytes as it may get."""
    return bool(job.got) and _rest(job.value, job.got).max_bytes == 0
