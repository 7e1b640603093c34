"""What time takes away: expired messages, old dead letters, settled receipts, claims, empty topics. In slices."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from penstock.kernel.child import Child
from penstock.kernel.errors import PenstockError
from penstock.kernel.log import Log
from penstock.kernel.scope import Scope
from penstock.services.mailbox.topics import Topic

if TYPE_CHECKING:
    from penstock.services.mailbox.mailroom import Mailroom

TICK_S: Final = 0.5
_SLICE: Final = 1000
_TRIMS_MAX: Final = 20
_CHECK_EVERY_S: Final = 86_400.0
_RATE_WINDOW_S: Final = 60.0


class Rates:
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

    def of(self, topic: Topic) -> tuple[float, float, float]:
        """Return the rates of one topic: sent, received, acked."""
        if not self._samples:
            return 0.0, 0.0, 0.0
        since, counts = self._samples[0]
        before = counts.get(topic.name, (0, 0, 0))
        seconds = max(1.0, self._samples[-1][0] - since)
        now = (topic.sends, topic.recvs, topic.acks)
        sent, received, acked = (round(max(0, n - b) / seconds, 3) for n, b in zip(now, before, strict=True))
        return sent, received, acked


class Retention:
    """One slice of each kind at a time, twice a second."""

    def __init__(self, room: Mailroom) -> None:
        """Look after this mailroom."""
        self._room = room
        self._log = Log(room.inventory.service)
        metrics = room.inventory.metrics
        self._dropped = {
            why: metrics.counter("dlq_dropped_total", "Dead letters removed by retention.", reason=why)
            for why in ("age", "share")
        }
        self._gate = room.inventory.health.gate("storage", is_open=True)
        self._check_at = 0.0
        self._scope: Scope | None = None

    async def run(self, child: Child) -> None:
        """Tick until the service drains."""
        self._check_at = child.clock.monotonic()
        self._scope = child.scope("storage_check", 1)
        while not await child.shutdown.sleep(TICK_S):
            if not self._room.writer.ready:
                continue
            try:
                await self._tick(child.clock.monotonic())
            except PenstockError as error:
                self._log.warning("retention.failed", detail=error.detail)
        # A check may take long; what is left of it does not hold the drain up.
        await self._scope.close()

    async def _tick(self, now_s: float) -> None:
        room = self._room
        room.rates.sample(room.books.topics, now_s)
        await self._expire()
        await self._bound_dead()
        room.claims.forget(room.now())
        await self._trim()
        for topic in list(room.books.topics.values())[:_SLICE]:
            if room.books.forget_idle(topic) and topic.id:
                room.writer.batch.topics_gone.append(topic.id)
        if now_s >= self._check_at and self._scope is not None:
            self._check_at = now_s + _CHECK_EVERY_S
            self._scope.start(self._check())

    async def _expire(self) -> None:
        room = self._room
        for shard in room.shards:
            shard.begin_scan()
        try:
            found = await room.ask(room.engine.expired, room.now().wall, _SLICE)
            now = room.now()
            for row, state in found:
                room.shard_of(row.slot).expire(row, state, now, room.writer.batch)
        finally:
            for shard in room.shards:
                shard.scan_ended()
        room.look_after_all()

    async def _bound_dead(self) -> None:
        """Remove the oldest dead letters when they are too old, or take more than their share."""
        room, books, options = self._room, self._room.books, self._room.options
        if not books.dead:
            return
        old = room.now().wall - round(options.dlq_retention_s * 1000)
        crowded = (
            books.dead > options.dlq_share * books.bounds.backlog_messages
            or books.dead_bytes > options.dlq_share * books.bounds.backlog_bytes
        )
        over = books.dead - int(options.dlq_share * books.bounds.backlog_messages)
        limit = min(_SLICE, max(over, 1)) if crowded else _SLICE
        found = await room.ask(room.engine.dead_old, 1 << 62 if crowded else old, limit)
        if not found:
            return
        self._dropped["share" if crowded else "age"].value += len(found)
        self._log.warning("dlq.dropped", count=len(found), why="share" if crowded else "age")
        batch = room.writer.batch
        for seq, topic, size in found:
            batch.dead_gone.append(seq)
            batch.after.append((room.dead_gone, (topic, size)))
        room.writer.kick()

    async def _trim(self) -> None:
        room = self._room
        before = room.now().wall - round(room.options.t_replay_s * 1000)
        floor, memory, engine = room.claims.floor, room.options.ack_memory, room.engine
        for _ in range(_TRIMS_MAX):
            if not await room.writer.between(lambda: engine.trim(before, memory, floor)):
                return

    async def _check(self) -> None:
        """Look for damage in the background; what is found shuts the gate and is never passed over."""
        faults = await self._room.check_storage()
        self._gate.set(is_open=not faults, why="; ".join(faults)[:200])
        if faults:
            self._room.integrity["file"].value += len(faults)
            self._log.error("storage.damaged", faults=faults)
