"""What time takes away: expired messages, old dead letters, settled receipts, claims, empty topics. In slices."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from penstock.kernel.child import Child
from penstock.kernel.errors import PenstockError
from penstock.kernel.log import Log
from penstock.kernel.scope import Scope
from penstock.services.mailbox.engines.inspection import only_indexes
from penstock.services.mailbox.rows import MessageRow
from penstock.services.mailbox.topics import Topic

if TYPE_CHECKING:
    from penstock.services.mailbox.state import MailboxState

TICK_S: Final = 0.5
_SLICE: Final = 1000
_TRIMS_MAX: Final = 20
_CHECK_EVERY_S: Final = 86_400.0
_RATE_WINDOW_S: Final = 60.0


class TopicRates:
    """Messages a second over the last minute, from samples of the topics' counts."""

    def __init__(self) -> None:
        """Start without samples."""
        self._samples: deque[tuple[float, dict[str, tuple[int, int, int]]]] = deque()

    def sample(self, topics: dict[str, Topic], now_s: float) -> None:
        """Note the counts, every few seconds."""
        if self._samples and now_s - self._samples[-1][0] < 5.0:
            return
        counts = {name: (t.sends, t.recvs, t.acks) for name, t in topics.items() if t.sends or t.recvs or t.acks}
        self._samples.append((now_s, counts))
        while len(self._samples) > 2 and now_s - self._samples[1][0] >= _RATE_WINDOW_S:
            self._samples.popleft()

    def of(self, topic: Topic, now_s: float) -> tuple[float, float, float]:
        """Return the rates of one topic up to now: sent, received, acked."""
        if not self._samples:
            return 0.0, 0.0, 0.0
        since, counts = self._samples[0]
        before = counts.get(topic.name, (0, 0, 0))
        seconds = max(1.0, now_s - since)
        now = (topic.sends, topic.recvs, topic.acks)
        sent, received, acked = (round(max(0, n - b) / seconds, 3) for n, b in zip(now, before, strict=True))
        return sent, received, acked


class Retention:
    """One slice of each kind at a time, twice a second."""

    def __init__(self, room: MailboxState) -> None:
        """Look after this mailroom."""
        self._room = room
        self._log = Log(room.inventory.service)
        metrics = room.inventory.metrics
        self._dropped = {
            why: metrics.counter("dlq_dropped_total", "Dead letters removed by retention.", reason=why)
            for why in ("age", "share")
        }
        self._check_at = 0.0
        self._topics: list[Topic] = []
        self._scope: Scope | None = None

    async def run(self, child: Child) -> None:
        """Tick until the service drains."""
        self._check_at = child.clock.monotonic()
        self._scope = child.scope("storage_check", 1)
        while not await child.shutdown.sleep(TICK_S):
            if not self._room.writer.ready:
                continue
            self._check_now_and_then(child.clock.monotonic())
            try:
                await self._tick(child.clock.monotonic())
            except PenstockError as error:
                self._log.warning("retention.failed", detail=error.detail)
        # A check may take long; what is left of it does not hold the drain up.
        await self._scope.close()

    def _check_now_and_then(self, now_s: float) -> None:
        """Look for damage at start and daily; before all else, because what is damaged may make the rest fail."""
        if now_s >= self._check_at and self._scope is not None:
            self._check_at = now_s + _CHECK_EVERY_S
            self._scope.start(self._check())

    async def _tick(self, now_s: float) -> None:
        room = self._room
        room.rates.sample(room.ledger.topics, now_s)
        await self._expire()
        await self._bound_dead()
        room.claims.forget(room.now())
        await self._trim()
        for topic in self._some_topics():
            if room.ledger.forget_idle(topic) and topic.id:
                room.writer.batch.topics_gone.append(topic.id)

    def _some_topics(self) -> list[Topic]:
        """Take the next topics in turn, so that each is looked at however many there are."""
        if not self._topics:
            self._topics = list(self._room.ledger.topics.values())
        some, self._topics = self._topics[:_SLICE], self._topics[_SLICE:]
        return some

    async def _expire(self) -> None:
        """End messages whose time to live is over, and those that waited for longer than anything may."""
        room, wait_s = self._room, self._room.options.ready_retention_s
        with room.scanning() as shards:
            found = await room.ask(room.engine.expired, room.now().wall, _SLICE)
            if wait_s:
                found += await room.ask(room.engine.waiting_since, room.now().wall - round(wait_s * 1000), _SLICE)
            if found:
                # The disk may show what its shard has not heard of yet: a commit that is done and not applied.
                await room.writer.flushed()
            now = room.now()
            for row, state in found if room.shards is shards else ():
                room.shard_of(row.slot).expire(row, state, now, room.writer.batch)
        room.look_after_all()

    async def _bound_dead(self) -> None:
        """Remove the oldest dead letters when they are too old, or take more than their share."""
        room, options = self._room, self._room.options
        if not room.ledger.dead:
            return
        over = self._over()
        crowded = over != (0, 0)
        before = 1 << 62 if crowded else room.now().wall - round(options.dlq_retention_s * 1000)
        mark = room.redrive_guard.mark()
        found = await room.ask(room.engine.dead_old, before, _SLICE)
        if crowded:
            found = _enough(found, *over)
        taken = room.redrive_guard.take([row.seq for row in found], mark)
        try:
            if taken:
                await self._drop([row for row in found if row.seq in taken], "share" if crowded else "age")
        finally:
            room.redrive_guard.ended(taken)

    def _over(self) -> tuple[int, int]:
        """Say by how many messages and bytes the dead letters are above their share."""
        ledger, share = self._room.ledger, self._room.options.dlq_share
        messages = ledger.dead - int(share * ledger.bounds.backlog_messages)
        return max(0, messages), max(0, ledger.dead_bytes - int(share * ledger.bounds.backlog_bytes))

    async def _drop(self, found: list[MessageRow], why: str) -> None:
        """Remove dead letters; each is written down before it goes."""
        room = self._room
        await room.note(self._log_of(found, why))
        self._dropped[why].value += len(found)
        self._log.warning("dlq.dropped", count=len(found), why=why)
        batch = room.writer.batch
        for row in found:
            batch.dead_gone.append(row.seq)
            batch.after.append((room.dead_gone, (row.topic, row.size)))
        room.writer.kick()
        # The next look must not find them again.
        await room.writer.flushed()

    def _log_of(self, found: list[MessageRow], why: str) -> list[dict[str, object]]:
        topics, at = self._room.ledger.by_id, self._room.now().wall
        names = {row.topic: topics[row.topic].name if row.topic in topics else "" for row in found}
        return [
            {"at_ms": at, "action": "dlq.dropped", "why": why, "topic": names[row.topic], "msg_id": row.msg_id}
            for row in found
        ]

    async def _trim(self) -> None:
        room = self._room
        before = room.now().wall - round(room.options.t_replay_s * 1000)
        floor, memory, engine = room.claims.floor, room.options.ack_memory, room.engine
        for _ in range(_TRIMS_MAX):
            if not await room.writer.between(lambda: engine.trim(before, memory, floor)):
                return

    async def _check(self) -> None:
        """Look for damage in the background: indexes are made anew, what is left shuts the gate and is never passed over."""
        room = self._room
        faults = await room.check_storage()
        if faults and only_indexes(faults) and await room.writer.between(room.engine.rebuild):
            self._log.warning("storage.reindexed", faults=faults)
            room.integrity["file"].value += len(faults)
            faults = await room.check_storage()
        room.storage.set(is_open=not faults, why="; ".join(faults)[:200])
        if faults:
            room.integrity["file"].value += len(faults)
            self._log.error("storage.damaged", faults=faults)


def _enough(found: list[MessageRow], messages: int, size_bytes: int) -> list[MessageRow]:
    """Cut a list where as many messages and bytes are gone as there are too many."""
    total = 0
    for place, row in enumerate(found):
        if place >= messages and total >= size_bytes:
            return found[:place]
        total += row.size
    return found
