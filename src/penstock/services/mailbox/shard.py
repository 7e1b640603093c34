"""The shard: the state machine of its messages. Commands and `now` in; what to persist goes into a batch. Pure.

```
            send committed                  recv                     ack committed
   (none) ----------------> READY, DELAYED ------> LEASED(gen) -----------------------> gone
                              ^     | until          | nack, lapse: attempts left -> DELAYED or READY
                              +-----+                | last attempt, ttl, integrity -> dead letter
```
An end of lease takes effect when its commit is done; until then the message is SETTLING and belongs to nobody.
What must be read from the disk is asked for in `wanted`, and comes back by the `*_loaded` methods.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

from penstock.contracts.mailbox_rules import SETTLED_OR_UNKNOWN, STALE_RECEIPT
from penstock.kernel.backoff import MAILBOX, FullJitter, Rng
from penstock.kernel.errors import Conflict, Malformed, NotFound
from penstock.services.mailbox.batch import Batch
from penstock.services.mailbox.ids import MessageName
from penstock.services.mailbox.ledger import MailboxLedger, Now, lease_state
from penstock.services.mailbox.rows import (
    KIND_DELAYED,
    KIND_LEASED,
    KIND_READY,
    DeadRow,
    MessageRow,
    MessageState,
)
from penstock.services.mailbox.topics import DELAYED, LEASED, READY, SETTLING, WRITTEN, Lane, Message, Topic
from penstock.services.mailbox.window import Window

_FIRST_SEEN: Final = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardRules:
    """What the shard decides by."""

    max_attempts: int = 5
    backoff: FullJitter = MAILBOX
    visibility_ms_min: int = 250
    # Topics, or prefixes that end in `*`, and what becomes of their messages when their time to live is over.
    on_expiry: tuple[tuple[str, str], ...] = ()

    def drops(self, topic: str) -> bool:
        """Tell whether a topic's expired messages are dropped instead of dead-lettered; the longest match decides."""
        matches = [
            (len(name), verdict)
            for name, verdict in self.on_expiry
            if topic == name or (name.endswith("*") and topic.startswith(name[:-1]))
        ]
        return bool(matches) and max(matches)[1] == "drop"

    def check_visibility(self, visibility_ms: int) -> None:
        """Refuse a lease that is shorter than the shortest."""
        if visibility_ms < self.visibility_ms_min:
            raise Malformed(f"Expected `int` >= {self.visibility_ms_min} - at `$.visibility_ms`")


class RecvQuery(NamedTuple):
    """What a receiver asks for."""

    max_messages: int
    visibility_ms: int
    max_bytes: int | None
    # The stream whose credit the leases use, if any.
    owner: Any = None


class StoredTrace(NamedTuple):
    """What the engine knows of a message that is not in RAM."""

    kind: str  # acked, purged, here, none
    gen: int = 0
    msg_id: str = ""


class Shard(Window):
    """One shard's messages. Its worker is its only caller."""

    def __init__(self, place: tuple[int, int], ledger: MailboxLedger, rules: ShardRules, rng: Rng) -> None:
        """Start empty, as shard `place[0]` of `place[1]`."""
        super().__init__(*place, ledger)
        self.rules = rules
        self._rng = rng
        self.reorder_depth_max = 0
        self._first_seen: deque[int] = deque(maxlen=_FIRST_SEEN)
        # Told of every message that was moved to the dead letters.
        self.on_buried: Callable[[Message, str], None] | None = None

    # --- recv

    def lease(self, lane: Lane, want: RecvQuery, now: Now, batch: Batch) -> list[Message]:
        """Lease what is deliverable, in order of seq."""
        ledger, messages, ready, size = self.ledger, self.messages, lane.ready, 0
        lane.used = now.mono
        if lane.stalled:
            self.reads.retry_keys(lane)
        room = min(want.max_messages, ledger.bounds.global_inflight - ledger.inflight)
        got: list[Message] = []
        if room <= 0 and (ready or lane.backlog.more or lane.topic.key_backlog.more):
            ledger.starved[lane.topic] = None
        while ready and len(got) < room:
            message = messages.get(ready[0])
            if message is None or message.state != READY:
                heappop(ready)
                continue
            if message.expires is not None and message.expires <= now.wall:
                heappop(ready)
                self._expire(message, now, batch)
                continue
            size += message.size
            if got and want.max_bytes is not None and size > want.max_bytes:
                break
            heappop(ready)
            message.state = LEASED  # at once: the heap may name it twice, if it left RAM and came back
            got.append(message)
        if got:
            self._lease(got, want, now)
        if lane.backlog.more and room > 0 and len(ready) < self.refill_below:
            self.reads.want_window(lane)
        return got

    def _lease(self, got: list[Message], want: RecvQuery, now: Now) -> None:
        ledger, riders, leases, make = self.ledger, self.ledger.riders, self.leases, self.ledger.receipts.make
        until, gen = now.mono + want.visibility_ms, ledger.gen
        for message in got:
            gen += 1
            seq = message.seq
            if not message.attempts and message.key is None and not message.until:
                self._watch_order(seq)
            message.attempts += 1
            message.gen = gen
            message.receipt = make(message.slot, seq, gen)
            message.until, message.span = until, want.visibility_ms
            message.owner = want.owner
            heappush(leases, (until, seq, gen))
            riders.pop(seq, None)
            riders[seq] = message
        ledger.gen = gen
        ledger.inflight += len(got)
        got[0].lane.topic.inflight += len(got)
        if want.owner is not None:
            want.owner.leased(len(got))

    def _watch_order(self, seq: int) -> None:
        """Note how many un-keyed messages overtook this one on their first delivery."""
        seen = self._first_seen
        if seen and seq < seen[-1]:
            depth = sum(1 for other in seen if other > seq)
            self.reorder_depth_max = max(self.reorder_depth_max, depth)
        seen.append(seq)

    def undo(self, message: Message, gen: int) -> None:
        """Take a lease back whose answer never left: the message returns to its place, the attempt is not counted."""
        if not self._still(message, gen):
            return
        self._unlease(message)
        message.attempts, message.receipt = message.attempts - 1, ""
        if message.bare:
            message.until = WRITTEN
        else:
            # The disk may have this lease, or the delay before it, and shall hear that both are over: so long it stays.
            self.ledger.riders[message.seq] = message
        self._make_ready(message)

    def spoiled(self, message: Message, gen: int, now: Now, batch: Batch) -> None:
        """End a lease whose stored bytes do not match their hash; they were not delivered."""
        if self._still(message, gen):
            self._end_attempt(message, "integrity", 0.0, now, batch)

    def _still(self, message: Message, gen: int) -> bool:
        """Tell whether a lease is still that lease; one of before the engine was opened again is of no account."""
        return message.state == LEASED and message.gen == gen and self.messages.get(message.seq) is message

    def _unlease(self, message: Message) -> None:
        self.ledger.inflight -= 1
        self.ledger.riders.pop(message.seq, None)
        message.lane.topic.inflight -= 1
        if message.owner is not None:
            owner, message.owner = message.owner, None
            owner.settled()

    # --- settlements

    def ack(self, name: MessageName, receipt: str, now: Now, batch: Batch) -> bool:
        """Settle for good; False when the message is not in RAM and the engine has to be asked."""
        message = self._leased(name, receipt, now)
        if message is None:
            known = self.messages.get(name.seq)
            repeated = known is not None and known.acking and known.receipt == receipt and _is(known, name)
            return repeated or self._refuse(name)
        self._unlease(message)
        message.state = SETTLING
        message.acking = True
        batch.remove(message.seq, bare=message.bare)
        batch.acked.append((message.seq, message.gen, now.wall))
        batch.after.append((self._acked, message))
        return True

    def _acked(self, message: Message) -> None:
        message.lane.topic.acks += 1
        self._leave(message)

    def nack(self, name: MessageName, receipt: str, cause: NackCause, now: Now, batch: Batch) -> Message | None:
        """End the lease; the message waits, or is dead after its last attempt. None: ask the engine."""
        message = self._leased(name, receipt, now)
        if message is None:
            self._refuse(name)
            return None
        delay_ms = cause.delay_ms
        if delay_ms is None:
            delay_ms = int(self.rules.backoff.delay(message.attempts - 1, self._rng) * 1000)
        text = "nack" if cause.reason is None else f"rejected:{cause.reason}"
        self._end_attempt(message, text, now.mono + delay_ms if delay_ms else 0.0, now, batch)
        return message

    def extend(self, name: MessageName, receipt: str, visibility_ms: int, now: Now, batch: Batch) -> Message | None:
        """Move the end of a lease; the receipt stays the same. None: ask the engine."""
        self.rules.check_visibility(visibility_ms)
        message = self._leased(name, receipt, now)
        if message is None:
            self._refuse(name)
            return None
        message.until = now.mono + visibility_ms
        message.span = visibility_ms
        heappush(self.leases, (message.until, message.seq, message.gen))
        message.bare = False
        batch.states[message.seq] = lease_state(message, now)
        return message

    def _leased(self, name: MessageName, receipt: str, now: Now) -> Message | None:
        """Find the message this receipt is good for: until the deadline, whenever the scanner comes by."""
        message = self.messages.get(name.seq)
        if message is None or message.receipt != receipt or message.state != LEASED or message.until <= now.mono:
            return None
        return message if _is(message, name) else None

    def _refuse(self, name: MessageName) -> bool:
        """Refuse a settlement of a message that is here; False when it is not."""
        message = self.messages.get(name.seq)
        if message is None:
            return False
        if not _is(message, name):
            raise NotFound("There is no such message.")
        raise Conflict("The receipt is no longer good.", reason=STALE_RECEIPT)

    def judge(self, trace: StoredTrace, name: MessageName, msg_id: str, receipt: str) -> None:
        """Decide on a settlement by what the engine knows; returns only for a repeated ack."""
        ours = self.ledger.receipts.read(receipt)
        known = ours is not None and ours[0] == name.seq
        if trace.kind == "acked" and ours == (name.seq, trace.gen):
            return
        if trace.kind == "acked" or (trace.kind == "here" and trace.msg_id == msg_id):
            raise Conflict("The receipt is no longer good.", reason=STALE_RECEIPT)
        if trace.kind == "none" and known:
            raise Conflict("The message was settled long ago, or never was.", reason=SETTLED_OR_UNKNOWN)
        raise NotFound("There is no such message.")

    # --- the end of an attempt

    def _end_attempt(self, message: Message, cause: str, until: float, now: Now, batch: Batch) -> None:
        self._unlease(message)
        message.history = (*message.history, (now.wall, cause))
        if message.attempts >= self.rules.max_attempts:
            self._bury(message, "max_attempts" if cause == "nack" else cause, now, batch)
            return
        message.state = SETTLING
        message.until = until
        self._hold_back(message)
        kind, at = (KIND_DELAYED, now.wall_of(until)) if until else (KIND_READY, 0)
        span = round(until - now.mono) if until else 0
        message.bare = False
        batch.states[message.seq] = MessageState(message.seq, kind, at, message.attempts, 0, message.history, span)
        batch.after.append((self._returned, message))

    def _hold_back(self, message: Message) -> None:
        """Make empty answers wait: they would be wrong while this message is on its way back."""
        message.lane.topic.pending += 1

    def _returned(self, message: Message) -> None:
        message.lane.topic.pending -= 1
        if message.seq not in self.messages:
            self.woken[message.lane.topic] = None
        elif message.until:
            self._delay(message)
        else:
            self._make_ready(message)

    def _bury(self, message: Message, reason: str, now: Now, batch: Batch) -> None:
        message.state = SETTLING
        self._hold_back(message)
        batch.bury(DeadRow(message.seq, reason, now.wall, message.attempts, message.history))
        batch.after.append((self._buried, (message, reason)))

    def _buried(self, moved: tuple[Message, str]) -> None:
        message, reason = moved
        topic, ledger = message.lane.topic, self.ledger
        topic.pending -= 1
        topic.dead += 1
        ledger.dead += 1
        ledger.dead_bytes += message.size
        # It leaves the window but not the backlog: dead letters count.
        ledger.messages += 1
        ledger.bytes += message.size
        topic.bytes += message.size
        self._leave(message)
        if self.on_buried is not None:
            self.on_buried(message, reason)

    def _expire(self, message: Message, now: Now, batch: Batch) -> None:
        # One that merely waited too long is never just gone.
        if message.expires is not None and message.expires <= now.wall and self.rules.drops(message.lane.topic.name):
            self.ledger.dropped += 1
            self._purge(message, now, batch)
            return
        if message.state == DELAYED:
            message.lane.topic.delayed -= 1
        self._bury(message, "ttl", now, batch)

    # --- time

    def next_due(self) -> float:
        """Say when time next has something to do here; what is already over counts as well."""
        leases, messages = self.leases, self.messages
        while leases and not _holds(messages.get(leases[0][1]), leases[0]):
            heappop(leases)
        due = leases[0][0] if leases else math.inf
        if self.delays and self.delays[0][0] < due:
            due = self.delays[0][0]
        return min(due, self.disk_due)

    def due(self, now: Now, batch: Batch, limit: int = 512) -> None:
        """End the leases that lapsed and the delays that are over."""
        for _ in range(limit):
            if self.next_due() > now.mono:
                return
            if self.leases and self.leases[0][0] <= now.mono:
                self._lapse(self.messages[heappop(self.leases)[1]], now, batch)
            elif self.delays and self.delays[0][0] <= now.mono:
                self._undelay(heappop(self.delays)[1])
            else:
                self.want_due()
                return

    def _lapse(self, message: Message, now: Now, batch: Batch) -> None:
        self.ledger.lapsed += 1
        self._end_attempt(message, "visibility", 0.0, now, batch)

    def expire(self, row: MessageRow, state: MessageState | None, now: Now, batch: Batch) -> None:
        """Bury an expired message, in the window or not; a leased one waits for the end of its lease."""
        message = self.messages.get(row.seq)
        if self._is_new(row.seq) and (state is None or state.kind != KIND_LEASED):
            message = self.adopt(row, state, now)
        if message is not None and message.state in (READY, DELAYED):
            self._expire(message, now, batch)

    # --- purge

    def purge(self, row: MessageRow, state: MessageState | None, now: Now, batch: Batch) -> bool:
        """Remove a message in any state but dead; the receipt of a leased one then finds nothing."""
        message = self.messages.get(row.seq)
        if self._is_new(row.seq):
            # Every lease is in RAM: if the disk still has one, it is over.
            waits = state is not None and state.kind == KIND_DELAYED
            message = self.adopt(row, state if waits else None, now)
        if message is None or message.state == SETTLING:
            return False
        self._purge(message, now, batch)
        return True

    def _purge(self, message: Message, now: Now, batch: Batch) -> None:
        if message.state == LEASED:
            self._unlease(message)
            batch.acked.append((message.seq, -1, now.wall))
        elif message.state == DELAYED:
            message.lane.topic.delayed -= 1
        message.state = SETTLING
        batch.remove(message.seq)
        batch.after.append((self._leave, message))


class NackCause(NamedTuple):
    """Why a consumer gave a message back, and for how long."""

    reason: str | None
    delay_ms: int | None


def _is(message: Message, name: MessageName) -> bool:
    return message.nonce == name.nonce and message.ts == name.ts and message.slot == name.slot


def _holds(message: Message | None, entry: tuple[float, int, int]) -> bool:
    """Tell whether a deadline in the heap is still that of its lease."""
    until, _, gen = entry
    return message is not None and message.state == LEASED and message.gen == gen and message.until == until


__all__ = ["NackCause", "RecvQuery", "Shard", "ShardRules", "StoredTrace", "Topic"]
