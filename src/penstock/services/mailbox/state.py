"""What the workers of the mailbox share: shards, the writer, the engine's readers, claims and waiting receivers."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from penstock.contracts import mailbox as m
from penstock.kernel.errors import NotReady, PenstockError
from penstock.kernel.log import Log
from penstock.services.mailbox.audit import append_lines
from penstock.services.mailbox.backlog import Backlog
from penstock.services.mailbox.batch import Batch
from penstock.services.mailbox.claims import IdemClaims
from penstock.services.mailbox.engines.engine import (
    Corrupt,
    DiskFull,
    Engine,
    EngineContents,
)
from penstock.services.mailbox.ids import Receipts
from penstock.services.mailbox.jobs import RecvJob, refuse_all
from penstock.services.mailbox.ledger import MailboxLedger, Now, Over
from penstock.services.mailbox.redrive_guard import RedriveGuard
from penstock.services.mailbox.retention import TopicRates
from penstock.services.mailbox.rows import MessageRow
from penstock.services.mailbox.shard import Shard
from penstock.services.mailbox.topics import Lane, Message, Topic
from penstock.services.mailbox.waiters import Waiters
from penstock.services.mailbox.writer import EngineThread, Writer

if TYPE_CHECKING:
    from penstock.kernel.broadcast import Broadcast
    from penstock.kernel.inventory import Inventory
    from penstock.services.mailbox.config import MailboxOptions
    from penstock.services.mailbox.shard_worker import ShardWorker
    from penstock.services.mailbox.stream import StreamCredit

P = ParamSpec("P")
R = TypeVar("R")

_READ_S: Final = 5.0
_WARM_TOPICS: Final = 64
_CHECK_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class MailboxEvent:
    """Something an observer may want to know; telemetry, lost when the observer is slow."""

    kind: str
    topic: str = ""
    reason: str = ""
    count: int = 1


class MailboxState:
    """One per service. Everything here is touched by the loop alone."""

    def __init__(self, inventory: Inventory, options: MailboxOptions, engine: Engine) -> None:
        """Put the parts together; nothing runs yet."""
        self.inventory = inventory
        self.options = options
        self.engine = engine
        self.ledger = MailboxLedger(options.bounds)
        self.claims = IdemClaims(options.dedup_entries, options.t_replay_s * 1000)
        self.rng = random.Random()  # noqa: S311 - jitter and nonces, no secret
        self.workers: list[ShardWorker] = []
        self.draining = False
        self.switching = False
        self.storage = inventory.health.gate("storage", is_open=True)
        pooled = engine.name != "memory"
        self.reading = EngineThread(inventory.pool("mailbox_reads", threads=1, capacity=4096) if pooled else None)
        self._checking = EngineThread(inventory.pool("mailbox_check", threads=1, capacity=1) if pooled else None)
        self.writing = EngineThread(inventory.pool("mailbox_writer", threads=1, capacity=1) if pooled else None)
        self.writer = Writer(inventory, self.ledger, engine, self.writing, lease_flush_s=options.lease_flush_s)
        self.writer.on_open = self._opened
        self.writer.on_damage = self._damaged
        self.writer.on_applied = self.look_after_all
        self.writer.on_rows_refused = self._rows_refused
        self.writer.on_over_written = self._over_written
        self.writer.on_stopped = self._stopped
        self.waiters = Waiters(options.bounds.waiters, self.idle)
        self.events: Broadcast[MailboxEvent] = inventory.broadcast(
            "events", MailboxEvent, producers="shard_worker", consumers="anyone"
        )
        self.shards = self._cut(options.ready_shards)
        self.rates = TopicRates()
        self.redrive_guard = RedriveGuard()
        # Of every stream that is open.
        self.credits: set[StreamCredit] = set()
        # Told of a deadline that may be nearer than the one the scanner sleeps until.
        self.on_deadline: Callable[[float], None] | None = None
        self._declare(inventory)

    def _cut(self, count: int) -> list[Shard]:
        return [self._shard(index, count) for index in range(count)]

    def _shard(self, index: int, count: int) -> Shard:
        shard = Shard((index, count), self.ledger, self.options.rules, self.rng)
        shard.on_buried = self._buried
        return shard

    def _declare(self, inventory: Inventory) -> None:
        bounds, ledger, metrics = self.options.bounds, self.ledger, inventory.metrics
        inventory.limit(
            "backlog_messages", bounds.backlog_messages, "full: 429 busy", lambda: {"in_use": ledger.messages}
        )
        inventory.limit("backlog_bytes", bounds.backlog_bytes, "full: 429 busy", lambda: {"in_use": ledger.bytes})
        inventory.limit(
            "global_inflight", bounds.global_inflight, "full: recv answers empty", lambda: {"in_use": ledger.inflight}
        )
        inventory.limit(
            "window_messages", bounds.window_messages, "full: left on the disk", lambda: {"in_use": ledger.resident}
        )
        inventory.limit("cache_bytes", bounds.cache_bytes, "oldest out", lambda: {"in_use": ledger.cache.bytes})
        inventory.limit(
            "dedup_entries", self.claims.entries_max, "full: 429 busy", lambda: {"in_use": self.claims.live}
        )
        inventory.limit("waiters", bounds.waiters, "full: 429 busy", lambda: {"in_use": self.waiters.count})
        inventory.timeout("mailbox.read", _READ_S, "503")
        metrics.gauge("backlog_messages", "Messages stored, dead ones included.", read=lambda: ledger.messages)
        metrics.gauge("backlog_bytes", "Payload bytes stored.", read=lambda: ledger.bytes)
        metrics.gauge("inflight_messages", "Messages leased.", read=lambda: ledger.inflight)
        metrics.gauge("dlq_messages", "Dead letters.", read=lambda: ledger.dead)
        metrics.gauge("resident_messages", "Messages in RAM.", read=lambda: ledger.resident)
        metrics.gauge("dedup_claims", "Live claims on idem_keys.", read=lambda: self.claims.live)
        self.integrity = {
            reason: metrics.counter("integrity_fail_total", "Hashes that did not match.", reason=reason)
            for reason in ("payload_hash", "row", "state", "wal", "file")
        }
        lapses = metrics.watched("io_timeouts_total", "Deadlines that passed.", op="recv")
        lapses.append(lambda: ledger.lapsed)
        expired = metrics.watched("expired_dropped_total", "Expired messages of topics that want them dropped.")
        expired.append(lambda: ledger.dropped)
        self._dead_total = {
            reason: metrics.counter("dlq_moved_total", "Messages dead-lettered, by reason.", reason=reason)
            for reason in ("visibility", "rejected", "max_attempts", "integrity", "ttl")
        }

    # --- where things are

    def now(self) -> Now:
        """Name this instant."""
        return self.writer.now()

    def shard_of(self, slot: int) -> Shard:
        """Return the shard that has a slot now."""
        return self.shards[slot % len(self.shards)]

    def home_lane(self, topic: Topic) -> Lane:
        """Return the lane that holds a topic's un-keyed messages: they all live in one shard."""
        return self.shard_of(topic.slot).lane(topic)

    def worker_of(self, slot: int) -> ShardWorker:
        """Return the one worker that may touch a slot's messages now."""
        return self.workers[slot % len(self.shards) % len(self.workers)]

    def check_ready(self) -> None:
        """Refuse work while the engine is not open, or its files are damaged."""
        if not self.writer.ready:
            raise NotReady(self.writer.damage or "The engine is not open.", phase="opening")

    async def ask(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Ask the engine, on the readers' thread."""
        self.check_ready()
        try:
            found = await self.reading.run("mailbox_read", _READ_S, call, *args, **kwargs)
        except Corrupt as damage:
            self._damaged("file", damage.detail)
            raise
        self._count_damage()
        return found

    def _damaged(self, where: str, detail: str) -> None:
        """Say what cannot be read: it is never passed over in silence, and said once."""
        if where != "wal" and not self.storage.open:
            return
        self.integrity[where if where == "wal" else "file"].value += 1
        self.storage.set(is_open=where == "wal", degraded=True, why=detail[:200])
        Log(self.inventory.service).error("storage.damaged", where=where, detail=detail)

    async def check_storage(self) -> list[str]:
        """Look for damage, on a thread that nobody else waits for."""
        return await self._checking.run("mailbox_check", _CHECK_S, self.engine.check)

    async def note(self, records: list[dict[str, object]]) -> None:
        """Write into the audit, and wait until it is on the disk."""
        path = self.options.audit_path
        if path is not None:
            await self.reading.run("mailbox_audit", _READ_S, append_lines, path, records)

    def _count_damage(self) -> None:
        for reason, name in (("row", "damaged"), ("state", "damaged_states")):
            damaged: list[int] = getattr(self.engine, name, [])
            if damaged:
                self.integrity[reason].value += len(damaged)
                Log(self.inventory.service).error("integrity.fail", reason=reason, seqs=damaged[:10])
                damaged.clear()

    @contextmanager
    def scanning(self) -> Iterator[list[Shard]]:
        """Let every shard remember what leaves while somebody reads for it and acts on what he read."""
        shards = self.shards
        begun = [(shard.reads.tracker, shard.reads.tracker.begin()) for shard in shards]
        try:
            yield shards
        finally:
            for tracker, generation in begun:
                tracker.end(generation)

    # --- the engine came, committed, went

    def _opened(self, opened: EngineContents) -> None:
        """Rebuild everything in RAM from what the engine holds."""
        ledger, now = self.ledger, self.now()
        owned = [message for shard in self.shards for message in shard.messages.values() if message.owner is not None]
        ledger.clear()
        ledger.begin(opened.boot, Receipts(opened.key))
        ledger.seq = opened.seq
        ledger.topic_number = opened.topic_number
        self.shards = self._cut(len(self.shards))
        for stored in opened.topics:
            topic = ledger.adopt_topic(stored.id, stored.name)
            topic.living, topic.bytes = stored.plain + stored.keyed, stored.bytes
            topic.delayed, topic.dead = stored.delayed, stored.dead
            topic.key_backlog.more = stored.keyed > 0
            if stored.plain:
                self.home_lane(topic).backlog.more = True
            ledger.messages += stored.plain + stored.keyed + stored.dead
            ledger.bytes += stored.bytes
            ledger.dead += stored.dead
            ledger.dead_bytes += stored.dead_bytes
        self._restore_states(opened, now)
        self._restore_owners(owned)
        for drafts in self.claims.pending.values():
            refuse_all(drafts, NotReady("The engine was opened again.", phase="reopening"))
        self.claims.clear(opened.claims_next)
        self.claims.restore(opened.claims)
        self._count_damage()
        if opened.damage:
            self._damaged("wal", opened.damage)
        # Keys are looked for before anybody asks, so that none waits behind the backlog of another.
        for topic in [topic for topic in ledger.topics.values() if topic.key_backlog.more][:_WARM_TOPICS]:
            self.shards[0].reads.want_keys(topic)
        self.look_after_all()
        for topic in [topic for topic in ledger.topics.values() if topic.waiters]:
            self.rouse(topic)

    def _restore_owners(self, owned: list[Message]) -> None:
        """Let streams keep the leases that survived, and give them back the credit of those that did not."""
        for old in owned:
            message = self.shard_of(old.slot).messages.get(old.seq)
            if message is not None and message.gen == old.gen:
                message.owner = old.owner
            else:
                old.owner.settled()

    def _restore_states(self, opened: EngineContents, now: Now) -> None:
        for row, state in opened.states:
            if state is not None:
                self.shard_of(row.slot).restore(row, state, now)
        if opened.later is not None:
            self.shards[0].disk_due = now.mono + max(0, opened.later - now.wall)

    def rebind(self, shards: int) -> None:
        """Cut the same slots into another number of shards. Nothing may be queued or uncommitted."""
        states = [message for shard in self.shards for message in shard.messages.values()]
        disk_due = min(shard.disk_due for shard in self.shards)
        self.shards = self._cut(shards)
        self.shards[0].disk_due = disk_due
        for topic in self.ledger.topics.values():
            topic.lanes.clear()
            topic.inflight = 0
            topic.key_backlog = Backlog(more=True)
            self.home_lane(topic).backlog.more = True
        self.ledger.resident = self.ledger.inflight = 0
        for message in states:
            self.shard_of(message.slot).take_over(message)

    def retune(self, options: MailboxOptions) -> None:
        """Decide by other rules from now on; what runs already keeps its deadline."""
        self.options = replace(self.options, default_visibility_ms=options.default_visibility_ms, rules=options.rules)
        for shard in self.shards:
            shard.rules = options.rules

    def look_after_all(self) -> None:
        """Let every worker do what the last steps made possible."""
        self._serve_starved()
        for shard in self.shards:
            if shard.woken or shard.reads.wanted:
                self.workers[shard.index % len(self.workers)].look_after()
        self.writer.see_to_it()

    def _serve_starved(self) -> None:
        """Offer what may be leased again to the topics that went without, in turn, and before it is taken by others."""
        ledger = self.ledger
        while ledger.starved and not ledger.sated:
            topic = next(iter(ledger.starved))
            del ledger.starved[topic]
            for index in list(topic.lanes):
                self.workers[index % len(self.workers)].serve(topic, self.shards[index])

    def stirs(self, topic: Topic) -> bool:
        """Tell whether a shard has yet to look what it has for those who wait for a topic."""
        return any(topic in self.shards[index].woken for index in topic.lanes)

    def give_back(self, leased: list[tuple[Message, int]]) -> None:
        """Undo leases that their receiver will never see; those that ended otherwise stay so."""
        for message, gen in leased:
            self.shard_of(message.slot).undo(message, gen)
        if leased:
            self.look_after_all()

    def wake(self, topic: Topic) -> None:
        """Let every shard look whether it has something for those who wait for a topic."""
        for index in list(topic.lanes):
            shard = self.shards[index]
            shard.woken[topic] = None
            self.workers[index % len(self.workers)].look_after()

    def rouse(self, topic: Topic) -> None:
        """Look everywhere for those who wait for a topic whose lanes were made anew."""
        self.home_lane(topic)
        self.wake(topic)

    def _stopped(self, error: PenstockError) -> None:
        """Answer who waits for nothing but what was under way: it is not, any more."""
        for topic in list(self.ledger.topics.values()):
            self.waiters.refuse(topic, error)

    def _over_written(self, over: list[Over]) -> None:
        for each in over:
            self.shard_of(each[0].slot).reads.tracker.over_written(each)

    def _rows_refused(self, batch: Batch) -> None:
        for row in batch.rows:
            self.ledger.give_room(len(row.payload))
            self.ledger.by_id[row.topic].incoming -= 1
        refused = {row.seq for row in batch.rows}
        for dead in batch.redriven:
            self.ledger.messages += 1
            self.ledger.bytes += next(len(row.payload) for row in batch.rows if row.seq == dead)
        batch.redriven = {}
        batch.states = {seq: state for seq, state in batch.states.items() if seq not in refused}
        for claim in batch.claims:
            refuse_all(self.claims.pending.pop(claim.name, []), DiskFull())

    @property
    def quiet(self) -> bool:
        """Tell whether nothing is queued, being read or on its way to the disk."""
        queued = any(worker.work.depth or worker.requeue.depth for worker in self.workers)
        reading = any(len(shard.reads.tracker) for shard in self.shards)
        return not (queued or reading or self.writer.batch or self.writer.busy or self.claims.pending)

    def dead_gone(self, gone: tuple[int, int]) -> None:
        """Note that a dead letter (its topic and size) was removed."""
        self._dead_left(*gone)
        self.ledger.give_room(gone[1])

    def redriven(self, moved: tuple[MessageRow, int, int]) -> None:
        """Note that a dead letter became a message again; it never left the backlog."""
        self._dead_left(moved[1], moved[2])

    def _dead_left(self, number: int, size: int) -> None:
        topic = self.ledger.by_id.get(number)
        self.ledger.dead -= 1
        self.ledger.dead_bytes -= size
        if topic is not None:
            topic.dead -= 1
            topic.bytes -= size

    def _buried(self, message: Message, reason: str) -> None:
        kind = reason.partition(":")[0]
        self._dead_total[kind].value += 1
        self.events.publish(MailboxEvent("mailbox.dlq.moved", message.lane.topic.name, kind))

    def idle(self, topic: Topic) -> None:
        """Forget a topic that was only asked for; one that had messages is forgotten in its time."""
        if not topic.id:
            self.ledger.forget_idle(topic)

    # --- the end

    def end_waits(self) -> None:
        """Answer every parked receiver, and wake the streams that wait for credit: the service drains."""
        self.waiters.end_all(list(self.ledger.topics.values()))
        for credit in self.credits:
            credit.wake()

    async def close(self) -> None:
        """End the threads."""
        await self.reading.close()
        await self._checking.close()
        await self.writing.close()

    def nearest_due(self) -> float:
        """Say when time next has something to do in any shard."""
        return min((shard.next_due() for shard in self.shards), default=math.inf)


def empty(job: RecvJob, *, full: bool = False) -> None:
    """Answer a receiver with nothing."""
    job.deliver(m.Received((), inflight_full=full))
