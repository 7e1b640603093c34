"""The commit loop: takes batches from the writer, has them committed, and applies what came of them to the state.

This is the one place where a commit becomes visible. For every batch, in one synchronous step: messages that were
stored become deliverable, messages whose lease ended leave or come back, dead letters are counted, and every job that
waited gets its answer, which goes out on its socket in this very step. Then the workers are woken.

What can go wrong, and what the jobs hear:

| what | what happens |
|---|---|
| the disk is full | the sends of the batch get 507, the rest of it is committed; the loop goes on |
| the commit fails | all jobs of the batch get 503, `outcome: unknown`; the loop ends, the supervisor starts it again |
| applying fails | the same; it is a bug, and the batch is durable |
| the files are damaged | nothing is served until somebody has looked at them; the loop waits for the end |

Each start opens the engine and rebuilds the state from it. So what RAM believed about a batch of unknown outcome is
gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.kernel.child import Child
from penstock.kernel.errors import NotReady, PenstockError
from penstock.net.tracing import TRACER, now_ns
from penstock.services.mailbox.batch import Batch, Committed, RefusedRows
from penstock.services.mailbox.engine_reader import finish
from penstock.services.mailbox.engines.engine import Corrupt, DiskFull, Engine, EngineContents, EngineFailed
from penstock.services.mailbox.intake import answer_repeat
from penstock.services.mailbox.jobs import SendRun, refuse_all
from penstock.services.mailbox.shards.topics import DELAYED
from penstock.services.mailbox.tracing import tell_commit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.kernel.broadcast import Broadcast
    from penstock.services.mailbox.claims import IdemClaims
    from penstock.services.mailbox.jobs import Stored
    from penstock.services.mailbox.rows import IdemClaim
    from penstock.services.mailbox.shards.topics import Message
    from penstock.services.mailbox.state import MailboxParts


SEND_SECONDS: Final = "From the end of a send's headers, at whichever door, to its commit; each message stored counts."


@dataclass(frozen=True, slots=True)
class MailboxEvent:
    """Something an observer may want to know; telemetry, lost when the observer is slow."""

    kind: str
    topic: str = ""
    reason: str = ""
    count: int = 1


class CommitLoop:
    """Runs as the child `writer`: the only caller of `Writer.next_batch` and `Writer.commit`."""

    def __init__(self, parts: MailboxParts, engine: Engine) -> None:
        inventory = parts.inventory
        self._state = parts.state
        self._ledger = parts.state.ledger
        self._writer = parts.writer
        self._reader = parts.reader
        self._dispatcher = parts.dispatcher
        self._alarm = parts.alarm
        self._durable = engine.durable
        self._gate = inventory.health.gate("engine")
        self.events: Broadcast[MailboxEvent] = inventory.broadcast(
            "events", MailboxEvent, producers="writer", consumers="anyone"
        )
        self._dead_total = {
            reason: inventory.metrics.counter("dlq_moved_total", "Messages dead-lettered, by reason.", reason=reason)
            for reason in ("visibility", "rejected", "max_attempts", "integrity", "ttl")
        }
        self._monotonic = inventory.clock.monotonic
        self._send_s = inventory.metrics.histogram("send_seconds", SEND_SECONDS)

    # --- its life

    async def run(self, child: Child) -> None:
        """Open the engine and commit until the service is drained. An engine that failed ends this run."""
        try:
            contents = await self._writer.open()
        except Corrupt as damage:
            await self._stay_shut(child, damage)
            return
        self._open(contents)
        child.announce()
        self._writer.end(ending=child.shutdown.draining)
        forget = child.shutdown.on_drain(self._writer.end)
        try:
            await self._commit_all()
        finally:
            forget()
            self._stop(NotReady("The engine is not open.", phase="reopening"))
            await self._writer.close_engine()  # lint: allow PK014 the writer bounds it

    def _open(self, contents: EngineContents) -> None:
        # What was handed in while nothing was open belongs to shards that are no more.
        self._fail(self._writer.take(), NotReady("The engine was not open.", phase="reopening"))
        self._state.open(contents)
        self._reader.count_damage()
        if contents.damage:
            self._reader.report("wal", contents.damage)
        self._dispatcher.wake_all()
        for topic in [topic for topic in self._ledger.topics.values() if topic.waiters]:
            self._dispatcher.notify(topic)
        self._state.ready, self._state.damage = True, ""
        self._gate.set(is_open=True, degraded=not self._durable, why="" if self._durable else "ram only")

    async def _stay_shut(self, child: Child, damage: Corrupt) -> None:
        """Serve nothing until somebody has looked at the files; the service answers, and says why it is not ready."""
        self._state.damage = damage.detail
        self._gate.set(is_open=False, why=damage.detail)
        self._reader.report(str(damage.facts.get("where", "file")), damage.detail)
        child.announce()
        await child.shutdown.wait()

    def _stop(self, error: PenstockError) -> None:
        """Refuse what is in the open batch, and those who would only wait for what was under way: it will not end."""
        self._state.ready = False
        self._gate.set(is_open=False)
        self._fail(self._writer.stop(), error)
        for topic in list(self._ledger.topics.values()):
            self._state.waiters.refuse(topic, error)

    async def _commit_all(self) -> None:
        while (batch := await self._writer.next_batch()) is not None:
            start_ns = now_ns() if TRACER.sink is not None else 0
            try:
                committed = await self._writer.commit(batch)  # lint: allow PK009 the writer bounds it
            except BaseException:
                # A bug, or cut off by the end of a drain: nobody knows what became of it, but everybody hears that.
                self._fail(batch, EngineFailed("The commit did not end.", outcome="unknown"))
                raise
            if start_ns and committed.error is None:
                # Before the answers: they end the spans that the commit belongs to.
                tell_commit(batch, start_ns)
            self.apply(committed)

    # --- what came of a batch

    def apply(self, committed: Committed) -> None:
        """Make a commit visible: change the state, answer everybody who waited for it, and wake the workers."""
        batch, refused, error = committed
        if refused is not None:
            self._refuse_rows(refused)
        if error is not None:
            self._fail(batch, error)
            raise error
        try:
            self._apply_stored(batch)
            self._apply_ended(batch)
        except BaseException:
            # Durable, but not applied: RAM is rebuilt from the disk, and nobody is left without an answer.
            self._fail(batch, EngineFailed("The commit was not applied.", outcome="unknown"))
            raise
        self._dispatcher.wake_all()

    def _apply_stored(self, batch: Batch) -> None:
        """Let stored messages be delivered, and answer their senders."""
        shards, now = self._state.shards, self._monotonic()
        for send in batch.stored:
            if send.deadline is not None:
                # One without a deadline has nobody who waits: a dead letter that is sent back, say.
                self._send_s.observe_many(now - send.deadline.since, _messages(send))
            shard = send.slot % len(shards)
            if isinstance(send, SendRun):
                shards[shard].window.stored_run(send.rows)
                if send.claimed:
                    self._claimed(send.claims, send.claimed)
                send.answer(shard)
                continue
            if send.redrive is not None:
                # The dead letter became a message again; it never left the backlog.
                self._dead_left(send.redrive[0].topic, send.redrive[0].size)
            if send.claim is not None:
                self._claimed(send.claims, (send.claim,))
            window = shards[shard].window
            if send.row.key is None and not send.until and send.row.group is None and send.row.meta is None:
                window.stored_run((send.row,))
            else:
                window.stored(send.row, send.until)
                if send.until:
                    self._alarm.wake(send.until)
            send.answer(send.row.name, shard)

    def _claimed(self, ledger: IdemClaims, claims: Sequence[IdemClaim]) -> None:
        """Remember claims, and answer the repeats that came while they were on their way to the disk."""
        pending = ledger.pending
        ledger.made(claims)
        for claim in claims:
            for repeat in pending.pop(claim.name, ()):
                answer_repeat(repeat, claim, self._state)

    def _apply_ended(self, batch: Batch) -> None:
        """Let messages whose end is durable leave or come back, and answer who settled them."""
        shards = self._state.shards
        count = len(shards)
        for message in batch.ended:
            shards[message.slot % count].ended(message)
            if message.state == DELAYED:
                # Not before: the scanner would look for the delay while it is on its way to the disk.
                self._alarm.wake(message.until)
        for messages in batch.acked_runs:
            shards[messages[0].slot % count].acked_all(messages)
        for message, reason in batch.buried:
            shards[message.slot % count].buried(message)
            self._count_buried(message, reason)
        for row in batch.dead_gone:
            self._dead_left(row.topic, row.size)
            self._ledger.give_room(row.size)
        for over in batch.over:
            shards[over[0].slot % count].window.reads.tracker.over_written(over)
        for job in batch.settled:
            job.committed()
        for future in batch.flushes:
            finish(future)

    def _dead_left(self, number: int, size: int) -> None:
        topic = self._ledger.by_id.get(number)
        self._ledger.dead -= 1
        self._ledger.dead_bytes -= size
        if topic is not None:
            topic.dead -= 1
            topic.bytes -= size

    def _count_buried(self, message: Message, reason: str) -> None:
        kind = reason.partition(":")[0]
        self._dead_total[kind].value += 1
        self._state.forwarding.add(message.lane.topic)
        self.events.publish(MailboxEvent("mailbox.dlq.moved", message.lane.topic.name, kind))

    def _refuse_rows(self, refused: RefusedRows) -> None:
        """Give the room of refused messages back, and tell their senders that the disk is full."""
        ledger, error = self._ledger, DiskFull()
        for row in refused.rows:
            if row.seq not in refused.redriven:
                # A redriven one took no room: it stays what it was, a dead letter.
                ledger.give_room(row.size)
            ledger.by_id[row.topic].incoming -= 1
        self._refuse_claims(refused.stored, error)
        for send in refused.stored:
            send.fail(error)

    def _refuse_claims(self, stored: list[Stored], error: PenstockError) -> None:
        for send in stored:
            claimed = send.claimed if isinstance(send, SendRun) else [send.claim]
            for claim in filter(None, claimed):
                refuse_all(send.claims.pending.pop(claim.name, []), error)

    def _fail(self, batch: Batch, error: PenstockError) -> None:
        """Answer everybody who waited for a batch that will not be applied."""
        for send in batch.stored:
            send.fail(error)
        self._refuse_claims(batch.stored, error)
        for job in batch.settled:
            job.fail(error)
        for future in batch.flushes:
            finish(future)


def _messages(send: Stored) -> int:
    return len(send.rows) if isinstance(send, SendRun) else 1
