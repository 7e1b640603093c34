"""The state of the mailbox in RAM, and who owns it.

The loop owns it: any synchronous step on the loop may change it, and no step awaits while it does. There are no
locks, and none are needed. Everything here can be rebuilt from the engine (`open`), and is, whenever the engine is
opened.

| part | what it holds |
|---|---|
| `ledger` | counts and bounds, the topics with their lanes, cached payloads, leases still to be written |
| `claims` | which idem_keys are taken |
| `redrive_guard` | dead letters that somebody is moving just now |
| `shares` | tenants that are above their share of the backlog |
| `forwarding` | topics whose dead letters shall go to another topic |
| `shards` | the messages in RAM; see `shard` for what each step may do with them |
| `waiters` | receivers that wait for a message |

What is *not* here runs beside it and changes it: the workers and agents (synchronously, between their awaits), and the
commit loop, which applies what the writer made durable.

Two words are used for telling somebody that there is something to do. `notify(topic)` only marks, in a shard's
window, that the receivers of a topic have to be looked at. `wake()` makes somebody act: a worker serves the notified
topics of its shards, begins their reads and wakes the writer; the writer commits; the scanner looks at the deadlines;
a stream looks at its credit.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.kernel.clock import boot_id, uptime
from penstock.kernel.errors import NotReady
from penstock.kernel.log import Log
from penstock.services.mailbox.agents.forwarding import ForwardingTopics
from penstock.services.mailbox.claims import WINDOWS_MAX, DedupLedgers
from penstock.services.mailbox.ids import Receipts
from penstock.services.mailbox.jobs import refuse_all
from penstock.services.mailbox.ledger import NAMES_MAX, MailboxLedger, Now
from penstock.services.mailbox.redrive_guard import RedriveGuard
from penstock.services.mailbox.shards.backlog import Backlog
from penstock.services.mailbox.shards.shard import Shard
from penstock.services.mailbox.shards.topics import (
    NO_SETTINGS,
    Lane,
    Message,
    Topic,
    TopicRates,
)
from penstock.services.mailbox.shares import BacklogShares
from penstock.services.mailbox.steady_clock import ClockStamp, SteadyClock, starting_time
from penstock.services.mailbox.waiters import Waiters

if TYPE_CHECKING:
    from penstock.contracts import mailbox as m
    from penstock.kernel.clock import Clock
    from penstock.kernel.inventory import Inventory
    from penstock.services.mailbox.agents.visibility_scanner import ScannerAlarm
    from penstock.services.mailbox.config import MailboxOptions
    from penstock.services.mailbox.dispatch import Dispatcher
    from penstock.services.mailbox.engine_reader import EngineReader
    from penstock.services.mailbox.engines.engine import EngineContents
    from penstock.services.mailbox.stream import StreamCredit
    from penstock.services.mailbox.writer import Writer

_WARM_TOPICS: Final = 64
_pack: Final = msgspec.msgpack.Encoder().encode


class MailboxState:
    """Everything that the steps of the mailbox read and change."""

    def __init__(self, inventory: Inventory, options: MailboxOptions) -> None:
        self.options = options
        self.ledger = MailboxLedger(options.bounds)
        self.claims = DedupLedgers(options.dedup_entries, options.t_replay_s * 1000)
        self.redrive_guard = RedriveGuard()
        self.forwarding = ForwardingTopics()
        self.shares = BacklogShares(options.bounds, options.tenant_share)
        # The topics that have settings of their own, each with the size of those.
        self.configured: dict[Topic, int] = {}
        self.settings_bytes = 0
        self.rates = TopicRates()
        self.rng = random.Random()  # noqa: S311 - jitter and nonces, no secret
        self.shards = self._cut(options.ready_shards)
        self.waiters = Waiters(options.bounds.waiters, self.forget_idle)
        # Of every stream that is open.
        self.credits: set[StreamCredit] = set()
        # The engine is open. Set by the commit loop alone, like the reason why it stays shut.
        self.ready = False
        self.damage = ""
        # Set by the service when it drains, and by the rebalancer while it cuts the shards anew.
        self.draining = False
        self.switching = False
        self._clock: Clock = inventory.clock
        self._log = Log(inventory.service)
        # The wall clock of stored times: no step of the system's clock makes a message older or younger.
        self.steady = SteadyClock(self._clock.monotonic() * 1000, self._system_ms())
        self._clock_continued = False
        self._declare(inventory)

    def _cut(self, count: int) -> list[Shard]:
        return [Shard(index, self.ledger, self.options.rules, self.rng) for index in range(count)]

    def _declare(self, inventory: Inventory) -> None:
        options, ledger, claims, metrics = self.options, self.ledger, self.claims, inventory.metrics
        bounds = options.bounds
        limits: tuple[tuple[str, int, str, Callable[[], int]], ...] = (
            ("backlog_messages", bounds.backlog_messages, "full: 429 busy", lambda: ledger.messages),
            ("backlog_bytes", bounds.backlog_bytes, "full: 429 busy", lambda: ledger.bytes),
            ("global_inflight", bounds.global_inflight, "full: recv answers empty", lambda: ledger.inflight),
            ("window_messages", bounds.window_messages, "full: left on the disk", lambda: ledger.resident),
            ("cache_bytes", bounds.cache_bytes, "oldest out", lambda: ledger.cache.bytes),
            ("dedup_entries", claims.usual.entries_max, "full: 429 busy", lambda: claims.usual.live),
            ("dedup_windows", WINDOWS_MAX, "full: 413 over_limit", lambda: len(list(claims)) - 1),
            ("topic_settings", options.topic_settings_max, "full: 413 over_limit", lambda: len(self.configured)),
            ("msg_id_memo", NAMES_MAX, "full: forgotten, and read again", lambda: len(ledger.names)),
            ("waiters", bounds.waiters, "full: 429 busy", lambda: self.waiters.count),
        )
        for name, limit, full, read in limits:
            inventory.limit(name, limit, full, partial(_in_use, read))
        metrics.gauge("backlog_messages", "Messages stored, dead ones included.", read=lambda: ledger.messages)
        metrics.gauge("backlog_bytes", "Payload bytes stored.", read=lambda: ledger.bytes)
        metrics.gauge("inflight_messages", "Messages leased.", read=lambda: ledger.inflight)
        metrics.gauge("dlq_messages", "Dead letters.", read=lambda: ledger.dead)
        metrics.gauge("resident_messages", "Messages in RAM.", read=lambda: ledger.resident)
        metrics.gauge("dedup_claims", "Live claims on idem_keys.", read=lambda: claims.live)
        evicted = metrics.watched("dedup_evicted_total", "Claims on idem_keys forgotten before their time: no room.")
        evicted.append(lambda: claims.evicted)
        self._dedup_gate = inventory.health.gate("dedup", is_open=True)
        self.integrity = {
            reason: metrics.counter("integrity_fail_total", "Hashes that did not match.", reason=reason)
            for reason in ("payload_hash", "row", "state", "wal", "file")
        }
        lapses = metrics.watched("io_timeouts_total", "Deadlines that passed.", op="recv")
        lapses.append(lambda: ledger.lapsed)
        expired = metrics.watched("expired_dropped_total", "Expired messages of topics that want them dropped.")
        expired.append(lambda: ledger.dropped)

    # --- where and when

    def now(self) -> Now:
        """Name this instant on both clocks: the monotonic one, and the steady wall clock of stored times."""
        mono = self._clock.monotonic() * 1000
        return Now(mono, int(mono + self.steady.offset))

    def rejudge(self) -> None:
        """End every long poll and stream whose capability was revoked or has expired."""
        self.waiters.rejudge()
        for credit in list(self.credits):
            if credit.rejudge is not None and credit.rejudge() is not None:
                credit.wake()

    def follow_clock(self) -> None:
        """Let stored times follow a corrected system clock, slowly; a step is told of once."""
        mono, wall = self._clock.monotonic() * 1000, self._system_ms()
        stepped = self.steady.stepped_ms(mono, wall)
        self.steady.follow(mono, wall)
        if stepped:
            self._log.warning("clock.stepped", by_s=round(stepped / 1000, 1))

    def _system_ms(self) -> float:
        return self._clock.wall() * 1000  # lint: allow PK012 leases, delays and ages are stored as wall time

    def _continue_clock(self, before: ClockStamp | None) -> None:
        """Go on from the last stored time of the life before; once a process, the clock then runs by itself."""
        if not self._clock_continued:
            self._clock_continued = True
            start, away = starting_time(before, ClockStamp(self._system_ms(), uptime() * 1000, boot_id()))
            self.steady = SteadyClock(self._clock.monotonic() * 1000, start)
            if away:
                self._log.warning("clock.stepped", by_s=round(away / 1000, 1), while_="down")

    def shard_of(self, slot: int) -> Shard:
        """Return the shard that has a slot now."""
        return self.shards[slot % len(self.shards)]

    def home_lane(self, topic: Topic) -> Lane:
        """Return the lane that holds a topic's un-keyed messages: they all live in one shard."""
        return self.shard_of(topic.slot).window.lane(topic)

    def check_ready(self) -> None:
        """Refuse work while the engine is not open, or its files are damaged."""
        if not self.ready:
            raise NotReady(self.damage or "The engine is not open.", phase="opening")

    def nearest_due(self) -> float:
        """Say when (monotonic ms) the next deadline of any shard is."""
        return min((shard.window.next_due() for shard in self.shards), default=math.inf)

    def notified(self, topic: Topic) -> bool:
        """Tell whether a shard has been notified of a topic and has not looked at its receivers yet."""
        return any(topic in self.shards[index].window.notified for index in topic.lanes)

    def forget_idle(self, topic: Topic) -> None:
        """Forget a topic that was only asked for; one that had messages is forgotten in its time."""
        if not topic.id:
            self.ledger.forget_idle(topic)

    @contextmanager
    def tracked(self) -> Iterator[list[Shard]]:
        """Let every shard remember what leaves while somebody reads messages of any shard and acts on them."""
        shards = self.shards
        begun = [(shard.window.reads.tracker, shard.window.reads.tracker.begin()) for shard in shards]
        try:
            yield shards
        finally:
            for tracker, generation in begun:
                tracker.end(generation)

    def undo(self, leased: list[tuple[Message, int]]) -> None:
        """Undo leases that their receiver will never see; those that ended otherwise stay so."""
        for message, gen in leased:
            self.shard_of(message.slot).undo(message, gen)

    # --- what topics are set to

    def set_up(self, topic: Topic, settings: m.TopicSettings | None) -> None:
        """Let settings hold for a topic from now on, or the service's own again."""
        was_fair = topic.settings.fair_by
        self._note_settings(topic, settings)
        self.claims.bound(each.settings for each in self.configured)
        self.forwarding.add(topic)
        if topic.settings.fair_by != was_fair:
            for index, lane in topic.lanes.items():
                self.shards[index].window.regroup(lane)

    def _note_settings(self, topic: Topic, settings: m.TopicSettings | None) -> None:
        self.settings_bytes -= self.configured.pop(topic, 0)
        topic.settings, topic.configured = settings or NO_SETTINGS, settings is not None
        if settings is not None:
            self.configured[topic] = size = settings_size(settings)
            self.settings_bytes += size

    def raise_generation(self, topic: Topic) -> bool:
        """Forget the idem_keys of a topic: claims made from now on have other names. False when there are none."""
        now = self.now()
        if topic.claimed_until <= now.wall and not topic.configured:
            return False
        topic.generation = max(topic.generation + 1, now.wall)
        return True

    def note_claim(self, topic: Topic, now: Now) -> None:
        """Note that a claim of a topic may be in its window from now on."""
        topic.claimed_until = now.wall + self.claims.of(topic.settings).window_ms

    def may_forget(self, topic: Topic, now: Now) -> bool:
        """Tell whether nothing is lost with a topic's generation: without it, claims of before a purge hold again."""
        return not topic.generation or topic.claimed_until <= now.wall

    def judge_dedup(self) -> None:
        """Say in readiness when idem_keys were forgotten before their time."""
        short = self.claims.short_of_room(self.now())
        self._dedup_gate.set(
            is_open=True, degraded=bool(short), why=f"forgotten early: {', '.join(short)}" if short else ""
        )

    # --- the engine was opened, the shards are cut anew

    def open(self, contents: EngineContents) -> None:
        """Rebuild everything in RAM from what the engine holds."""
        self._continue_clock(contents.before)
        ledger, now = self.ledger, self.now()
        owned = [message for shard in self.shards for message in shard.messages.values() if message.owner is not None]
        ledger.clear()
        self.configured, self.settings_bytes = {}, 0
        ledger.begin(contents.boot, Receipts(contents.key))
        ledger.seq = contents.seq
        ledger.topic_number = contents.topic_number
        self.shards = self._cut(len(self.shards))
        self._restore_topics(contents)
        self._restore_states(contents, now)
        self._restore_owners(owned)
        for sends in [sends for claims in self.claims for sends in claims.pending.values()]:
            refuse_all(sends, NotReady("The engine was opened again.", phase="reopening"))
        self.claims.clear()
        self.claims.restore(contents.claims)
        self.claims.bound(each.settings for each in self.configured)
        for topic in self.configured:
            self.forwarding.add(topic)
        # Keys and groups are looked for before anybody asks, so that none waits behind the backlog of another.
        for topic in [topic for topic in ledger.topics.values() if topic.key_backlog.more][:_WARM_TOPICS]:
            self.shards[0].window.reads.want_keys(topic)
        for topic in [topic for topic in ledger.topics.values() if topic.group_backlog.more][:_WARM_TOPICS]:
            self.shards[0].window.reads.want_groups(topic)

    def _restore_topics(self, contents: EngineContents) -> None:
        ledger = self.ledger
        for stored in contents.topics:
            topic = ledger.adopt_topic(stored.id, stored.name, stored.form)
            self._note_settings(topic, stored.settings)
            topic.generation = stored.generation
            # Nobody knows when its last claim was made.
            self.note_claim(topic, self.now())
            topic.living, topic.bytes = stored.plain + stored.grouped + stored.keyed, stored.bytes
            topic.delayed, topic.dead = stored.delayed, stored.dead
            topic.key_backlog.more = stored.keyed > 0
            topic.group_backlog.more = stored.grouped > 0
            if stored.plain:
                self.home_lane(topic).backlog.more = True
            ledger.messages += topic.living + stored.dead
            ledger.bytes += stored.bytes
            ledger.dead += stored.dead
            ledger.dead_bytes += stored.dead_bytes

    def _restore_states(self, contents: EngineContents, now: Now) -> None:
        for row, state in contents.states:
            if state is not None:
                self.shard_of(row.slot).window.restore(row, state, now)
        if contents.later is not None:
            self.shards[0].window.disk_due = now.mono + max(0, contents.later - now.wall)

    def _restore_owners(self, owned: list[Message]) -> None:
        """Let streams keep the leases that survived, and give them back the credit of those that did not."""
        for old in owned:
            message = self.shard_of(old.slot).messages.get(old.seq)
            if message is not None and message.gen == old.gen:
                message.owner = old.owner
            else:
                old.owner.settled()

    def rebind(self, shards: int) -> None:
        """Cut the same slots into another number of shards. Nothing may be queued or uncommitted."""
        messages = [message for shard in self.shards for message in shard.messages.values()]
        disk_due = min(shard.window.disk_due for shard in self.shards)
        self.shards = self._cut(shards)
        self.shards[0].window.disk_due = disk_due
        for topic in self.ledger.topics.values():
            topic.lanes.clear()
            topic.inflight = 0
            topic.key_backlog, topic.group_backlog = Backlog(more=True), Backlog(more=True)
            self.home_lane(topic).backlog.more = True
        self.ledger.resident = self.ledger.inflight = 0
        for message in messages:
            self.shard_of(message.slot).window.take_over(message)

    def retune(self, options: MailboxOptions) -> None:
        """Decide by other rules from now on; what runs already keeps its deadline."""
        self.options = replace(self.options, default_visibility_ms=options.default_visibility_ms, rules=options.rules)
        for shard in self.shards:
            shard.rules = options.rules

    def end_waits(self) -> None:
        """Answer every parked receiver, and wake the streams that wait for credit: the service drains."""
        self.waiters.end_all(list(self.ledger.topics.values()))
        for credit in self.credits:
            credit.wake()


def settings_size(settings: m.TopicSettings) -> int:
    """Return how large settings are where they are stored."""
    return len(_pack(settings))


def _in_use(read: Callable[[], int]) -> dict[str, object]:
    return {"in_use": read()}


@dataclass(frozen=True, slots=True)
class MailboxParts:
    """What the mailbox is made of. Workers and agents are given this, and keep the parts they use."""

    inventory: Inventory
    state: MailboxState
    reader: EngineReader
    writer: Writer
    dispatcher: Dispatcher
    alarm: ScannerAlarm
