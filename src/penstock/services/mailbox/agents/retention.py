"""Retention: removes expired messages, old dead letters, settled receipts, old claims and empty topics, in slices.

It runs twice a second. Messages with a time to live may all expire together, as fast as they were sent; then it goes on
without a pause until none is left. Each step is short, so that others are served in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.kernel.child import Child
from penstock.kernel.errors import PenstockError
from penstock.kernel.log import Log
from penstock.kernel.scope import Scope
from penstock.services.mailbox.engines.inspection import only_indexes
from penstock.services.mailbox.rows import Loaded, MessageRow
from penstock.services.mailbox.shards.topics import Topic

if TYPE_CHECKING:
    from penstock.services.mailbox.engines.engine import Engine
    from penstock.services.mailbox.state import MailboxParts

TICK_S: Final = 0.5
_PASS_MS: Final = 60_000.0
_SLICE: Final = 1000
# How many expired messages are read at once, how many are ended in one step, and how many reads follow each other
# before the other kinds have their turn.
_EXPIRED_SLICE: Final = 4000
_EXPIRED_STEP: Final = 250
_EXPIRED_READS: Final = 10
_TRIMS_MAX: Final = 20
_QUIET_TRIM_S: Final = 5.0
_CHECK_EVERY_S: Final = 86_400.0


class Retention:
    """Removes one slice of each kind, twice a second."""

    def __init__(self, parts: MailboxParts, engine: Engine) -> None:
        self._state = parts.state
        self._ledger = parts.state.ledger
        self._guard = parts.state.redrive_guard
        self._reader = parts.reader
        self._engine = engine
        self._reads = parts.reader.reads
        self._writer = parts.writer
        self._dispatcher = parts.dispatcher
        self._log = Log(parts.inventory.service)
        metrics = parts.inventory.metrics
        self._dropped = {
            why: metrics.counter("dlq_dropped_total", "Dead letters removed by retention or the operator.", reason=why)
            for why in ("age", "share")
        }
        self._check_at = 0.0
        # How many commits there were at the last trim that began, and when the next one is due without another.
        self._trimmed_commits = -1
        self._trim_at = 0.0
        # The last topic of which it was looked whether it is empty.
        self._looked_at = ""
        self._scope: Scope | None = None
        # Where the next read of messages that waited too long goes on, and when (monotonic ms) the next pass begins.
        self._waited_after = 0
        self._waited_again_at = 0.0

    async def run(self, child: Child) -> None:
        """Tick until the service drains."""
        self._check_at = child.clock.monotonic()
        self._scope = child.scope("storage_check", 1)
        more = False
        while not await child.shutdown.sleep(0.0 if more else TICK_S):
            more = False
            if not self._state.ready:
                continue
            self._check_now_and_then(child.clock.monotonic())
            try:
                more = await self._tick(child.clock.monotonic())
            except PenstockError as error:
                self._log.warning("retention.failed", detail=error.detail)
        # A check may take long; the drain does not wait for it.
        await self._scope.close()

    def _check_now_and_then(self, now_s: float) -> None:
        """Look for damage at start and daily; before all else, because what is damaged may make the rest fail."""
        if now_s >= self._check_at and self._scope is not None:
            self._check_at = now_s + _CHECK_EVERY_S
            self._scope.start(self._check())

    async def _tick(self, now_s: float) -> bool:
        """Do a part of everything; True when more messages have expired than were ended."""
        self._state.rates.sample(self._ledger.topics, self._ledger.topic_names, now_s)
        more = await self._expire()
        await self._bound_dead()
        self._state.claims.forget(self._state.now())
        self._state.judge_dedup()
        await self._trim(now_s)
        now = self._state.now()
        topics = self._some_topics()
        self._state.shares.count(topics)
        if not self._looked_at:
            self._state.shares.walked()
        for topic in topics:
            if self._state.may_forget(topic, now) and self._ledger.forget_idle(topic) and topic.id:
                self._writer.batch.topics_gone.append(topic.id)
        return more

    def _some_topics(self) -> list[Topic]:
        """Take the next topics in turn, so that each is looked at however many there are."""
        names = self._ledger.topic_names.page(self._looked_at, "", _SLICE)
        self._looked_at = names[-1] if len(names) == _SLICE else ""
        return [self._ledger.topics[name] for name in names]

    async def _expire(self) -> bool:
        """End messages whose time to live is over, and those that waited too long; True when there are more."""
        for _ in range(_EXPIRED_READS):
            if await self._expire_some() < _EXPIRED_SLICE:
                return False
        return True

    async def _expire_some(self) -> int:
        """End what one read finds; returns how many messages that are."""
        state = self._state
        with state.tracked() as shards:
            found = await self._overdue()
            if found:
                # A commit may be on the disk and not applied yet: wait until it is, so that the shard knows these
                # messages.
                await self._writer.flushed()
            for start in range(0, len(found), _EXPIRED_STEP):
                if state.shards is not shards:
                    break
                now = state.now()
                for row, stored in found[start : start + _EXPIRED_STEP]:
                    state.shard_of(row.slot).expire(row, stored, now, self._writer.batch)
                self._dispatcher.wake_all()
                # So no commit ends more than these, and the next read does not find them again.
                await self._writer.flushed()
        return len(found)

    async def _overdue(self) -> list[Loaded]:
        """Read messages whose time to live is over, and those that waited longer than `retention.ready`."""
        if not self._ledger.messages:
            return []  # an empty mailbox is not asked twice a second
        wait_s = self._state.options.ready_retention_s
        found = await self._reader.ask(self._reads.expired, self._state.now().wall, _EXPIRED_SLICE)
        if wait_s and len(found) < _EXPIRED_SLICE and self._state.now().mono >= self._waited_again_at:
            found += await self._waited_too_long(round(wait_s * 1000), _EXPIRED_SLICE - len(found))
        return found

    async def _waited_too_long(self, wait_ms: int, limit: int) -> list[Loaded]:
        """Read messages that are too old, but not those of topics that keep theirs for a time of their own.

        Where there are such topics their messages would be read over and over: each read goes on behind the last one,
        and a pass through all of them is made once a minute.
        """
        before = self._state.now().wall - wait_ms
        found = await self._reader.ask(self._reads.waiting_since, before, limit, self._waited_after)
        own = {topic.id for topic in self._state.configured if topic.settings.retention_s is not None}
        self._waited_after = found[-1][0].seq if own and found else 0
        if own and not found:
            self._waited_again_at = self._state.now().mono + _PASS_MS
        return [each for each in found if each[0].topic not in own]

    async def _bound_dead(self) -> None:
        """Remove the oldest dead letters when they are too old, or take more than their share."""
        options = self._state.options
        if not self._ledger.dead:
            return
        over = self._over()
        crowded = over != (0, 0)
        before = 1 << 62 if crowded else self._state.now().wall - round(options.dlq_retention_s * 1000)
        mark = self._guard.mark()
        found = await self._reader.ask(self._reads.dead_old, before, _SLICE)
        if crowded:
            found = _enough(found, *over)
        taken = self._guard.take([row.seq for row in found], mark)
        try:
            if taken:
                await self._drop([row for row in found if row.seq in taken], "share" if crowded else "age")
        finally:
            self._guard.ended(taken)

    def _over(self) -> tuple[int, int]:
        """Say by how many messages and bytes the dead letters are above their share."""
        ledger, share = self._ledger, self._state.options.dlq_share
        messages = ledger.dead - int(share * ledger.bounds.backlog_messages)
        return max(0, messages), max(0, ledger.dead_bytes - int(share * ledger.bounds.backlog_bytes))

    async def _drop(self, found: list[MessageRow], why: str) -> None:
        """Remove dead letters; each is written down before it goes."""
        await self._reader.note(self._log_of(found, why))
        self._dropped[why].value += len(found)
        self._log.warning("dlq.dropped", count=len(found), why=why)
        self._writer.batch.dead_gone += found
        # The next look must not find them again.
        await self._writer.flushed()

    def _log_of(self, found: list[MessageRow], why: str) -> list[dict[str, object]]:
        topics, at = self._ledger.by_id, self._state.now().wall
        names = {row.topic: topics[row.topic].name if row.topic in topics else "" for row in found}
        return [
            {"at_ms": at, "action": "dlq.dropped", "why": why, "topic": names[row.topic], "msg_id": row.msg_id}
            for row in found
        ]

    async def _trim(self, now_s: float) -> None:
        """Forget settled receipts and claims. While nothing is committed they can only be old: that has time."""
        commits = self._writer.commits
        if commits == self._trimmed_commits and now_s < self._trim_at:
            return
        self._trimmed_commits, self._trim_at = commits, now_s + _QUIET_TRIM_S
        before = self._state.now().wall - round(self._state.options.t_replay_s * 1000)
        floors, memory, engine = self._state.claims.floors, self._state.options.ack_memory, self._engine
        for _ in range(_TRIMS_MAX):
            if not await self._writer.between(lambda: engine.trim(before, memory, floors)):
                return
        self._trimmed_commits = -1  # there is more: the next tick goes on

    async def _check(self) -> None:
        """Look for damage in the background. Damaged indexes are rebuilt; any other damage shuts the `storage` gate."""
        faults = await self._reader.check_storage()
        if faults and only_indexes(faults) and await self._writer.between(self._engine.rebuild):
            self._log.warning("storage.reindexed", faults=faults)
            self._state.integrity["file"].value += len(faults)
            faults = await self._reader.check_storage()
        self._reader.storage.set(is_open=not faults, why="; ".join(faults)[:200])
        if faults:
            self._state.integrity["file"].value += len(faults)
            self._log.error("storage.damaged", faults=faults)


def _enough(found: list[MessageRow], messages: int, size_bytes: int) -> list[MessageRow]:
    """Return the first dead letters that together are at least so many messages and bytes."""
    total = 0
    for place, row in enumerate(found):
        if place >= messages and total >= size_bytes:
            return found[:place]
        total += row.size
    return found
