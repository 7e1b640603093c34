"""What must hold between any two steps of a mailbox.

Every count recomputed, every message within reach, nobody kept waiting.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import apsw

from penstock.services.mailbox.engines.memory import MemoryEngine
from penstock.services.mailbox.rows import KIND_DELAYED, KIND_LEASED, KIND_READY
from penstock.services.mailbox.service import MailboxService
from penstock.services.mailbox.shards.topics import (
    DELAYED,
    LEASED,
    READY,
    Message,
    Topic,
)


class Stored:
    """What the engine holds: of each living message its topic, key, size and kind of state.

    Of each dead one topic and size.
    """

    def __init__(self, engine) -> None:
        if isinstance(engine, MemoryEngine):
            kind = engine._kind
            self.living = {
                seq: (row.topic, row.key, row.size, kind(seq), row.slot, row.group) for seq, row in engine._rows.items()
            }
            self.dead = {seq: (row.topic, row.size) for seq, (row, _) in engine._dead.items()}
            self.topics = {number: row.name for number, row in engine._topics.items()}
            return
        db = apsw.Connection(str(engine.path), flags=apsw.SQLITE_OPEN_READONLY)
        rows = db.execute(
            "SELECT m.seq, topic, key, grp, size, coalesce(s.kind, 0), slot FROM msg m LEFT JOIN st s USING (seq)"
        )
        self.living = {
            seq: (topic, key and key.decode(), *rest, group and group.decode())
            for seq, topic, key, group, *rest in rows
        }
        self.dead = {seq: (topic, size) for seq, topic, size in db.execute("SELECT seq, topic, size FROM dead")}
        self.topics = dict(db.execute("SELECT id, name FROM topic"))
        db.close()


def check_ram(mailbox: MailboxService) -> None:
    """Check what holds at any moment, whatever is under way."""
    ledger = mailbox.state.ledger
    messages = [message for shard in mailbox.state.shards for message in shard.messages.values()]
    leased = Counter(message.lane.topic.name for message in messages if message.state == LEASED)
    assert ledger.resident == len(messages)
    assert ledger.inflight == leased.total()
    waiting = [waiter for topic in ledger.topics.values() for waiter in topic.waiters]
    assert mailbox.state.waiters.count == len(waiting)
    assert mailbox.state.waiters.impatient == sum(not waiter.patient for waiter in waiting)
    assert ledger.inflight <= ledger.bounds.global_inflight
    for name, topic in ledger.topics.items():
        assert (topic.name, topic.inflight) == (name, leased[name])
        assert topic.pending >= 0
        assert topic.incoming >= 0
        assert not topic.id or ledger.by_id[topic.id] is topic
        assert all(waiter.job.topic is topic for waiter in topic.waiters)
    for shard in mailbox.state.shards:
        assert min(shard.window.reads.tracker._reading) >= 0
        for message in shard.messages.values():
            assert message.lane is ledger.topics[message.lane.topic.name].lanes[shard.index]
    _check_credit(messages)
    check_nobody_waits_in_vain(mailbox)


def _check_credit(messages: list[Message]) -> None:
    owned = Counter(message.owner for message in messages if message.owner is not None and message.state == LEASED)
    for credit, count in owned.items():
        assert count == credit.used <= credit.limit


def check_nobody_waits_in_vain(mailbox: MailboxService) -> None:
    """Check that no receiver waits beside a message it could have; what is woken is served within the same step."""
    if mailbox.state.ledger.starved or not mailbox.state.ready:
        return
    for shard in mailbox.state.shards:
        for message in shard.messages.values():
            topic = message.lane.topic
            if message.state == READY and topic.waiters and _first(message) and not topic.settings.paused:
                raise AssertionError(
                    f"{topic.name}: a receiver waits beside message {message.seq} of shard {shard.index}"
                )


def _first(message: Message) -> bool:
    """Tell whether nothing of its key is before a message."""
    if message.key is None:
        return True
    line = message.lane.keys.get(message.key)
    return line is not None and line.head is message


def check_all(mailbox: MailboxService) -> None:
    """Check everything against the disk. Nothing may be queued, being read or on its way there."""
    check_ram(mailbox)
    stored, ledger = Stored(mailbox.engine), mailbox.state.ledger
    assert ledger.messages == len(stored.living) + len(stored.dead)
    assert ledger.bytes == sum(row[2] for row in stored.living.values()) + sum(size for _, size in stored.dead.values())
    assert (ledger.dead, ledger.dead_bytes) == (len(stored.dead), sum(size for _, size in stored.dead.values()))
    for topic in ledger.topics.values():
        _check_topic(topic, stored)
    assert {row[0] for row in (*stored.living.values(), *stored.dead.values())} <= ledger.by_id.keys()
    assert stored.topics.items() >= {(number, topic.name) for number, topic in ledger.by_id.items() if topic.living}
    _check_reach(mailbox, stored)


def _check_topic(topic: Topic, stored: Stored) -> None:
    living = [row for row in stored.living.values() if row[0] == topic.id]
    dead = [size for number, size in stored.dead.values() if number == topic.id]
    assert (topic.living, topic.dead) == (len(living), len(dead))
    assert topic.bytes == sum(row[2] for row in living) + sum(dead)
    assert (topic.incoming, topic.pending) == (0, 0)
    assert topic.delayed == sum(row[3] == KIND_DELAYED for row in living)


def _check_reach(mailbox: MailboxService, stored: Stored) -> None:
    """Check that every living message is in a line of RAM, or that somebody will look for it on the disk."""
    resident = {seq: (shard, message) for shard in mailbox.state.shards for seq, message in shard.messages.items()}
    assert resident.keys() <= stored.living.keys()
    for seq, (number, key, _, kind, slot, group) in stored.living.items():
        topic, shard = mailbox.state.ledger.by_id[number], mailbox.state.shard_of(slot)
        lane = topic.lanes.get(shard.index)
        if seq in resident:
            _check_resident(shard, lane, resident[seq][1], kind)
        elif key is not None:
            line = None if lane is None else lane.keys.get(key)
            assert topic.key_backlog.more if line is None else line.backlog.more
        elif kind == KIND_DELAYED:
            assert min(each.window.disk_due for each in mailbox.state.shards) < float("inf")
        elif group is not None:
            line = None if lane is None else lane.lines.get(group)
            assert topic.group_backlog.more if line is None else line.backlog.more
            assert line is None or (seq > line.tail and (line.backlog.reading or group in lane.hungry))
        else:
            assert kind != KIND_LEASED
            assert lane is not None
            assert lane.backlog.more
            assert seq > lane.tail


def _check_resident(shard, lane, message: Message, kind: int) -> None:
    assert kind == {READY: KIND_READY, LEASED: KIND_LEASED, DELAYED: KIND_DELAYED}[message.state]
    if message.key is not None:
        line = lane.keys.get(message.key)
        if line is None:
            # A lease or delay that was kept by itself: the scan of keys will find out who is the first of its key.
            assert lane.topic.key_backlog.more
            return
        # One that was kept by itself joins its key's queue when that is read on.
        assert line.head is message or message in line.followers or line.backlog.more
        if line.head is not message:
            return
    if message.state == READY:
        fair = message.group is not None and lane.topic.settings.fair_by is not None
        assert (lane.lines[message.group].ready if fair else lane.ready).count(message.seq) >= 1
        assert not fair or message.group in lane.turns
    elif message.state == LEASED:
        watched = [lease for until, _, together in shard.window.leases if until == message.until for lease in together]
        assert (message, message.gen) in watched
    else:
        assert (message.until, message.seq) in shard.window.delays


async def settled(mailbox: MailboxService) -> None:
    """Wait until nothing is under way."""
    for _ in range(200):
        await mailbox.writer.flushed()
        await asyncio.sleep(0.001)
        if mailbox.dispatcher.quiet and not mailbox.state.ledger.riders:
            return
    raise AssertionError("the mailbox does not come to rest")
