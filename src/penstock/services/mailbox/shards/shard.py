"""The shard: decides what may happen to its messages. Commands and `now` in; what to persist goes into a batch. Pure.

```
            send committed                  recv                     ack committed
   (none) ----------------> READY, DELAYED ------> LEASED(gen) -----------------------> gone
                              ^     | until          | nack, lapse: attempts left -> DELAYED or READY
                              +-----+                | last attempt, ttl, integrity -> dead letter
```

A lease takes effect at once and is written later, with some commit. The end of a lease takes effect when its commit
is done: until then the message is SETTLING and belongs to nobody. So every end comes in two halves. The first half
(`ack`, `nack`, `due`, `purge`, ...) judges the command, puts what to write into the batch, and adds the message to
`batch.ended` or `batch.buried`. The second half (`ended`, `buried`) is called by the commit loop and moves the
message.

Who may call a shard: any synchronous step on the loop. Workers lease and settle, the commit loop stores and ends, the
retention expires, reads arrive. No step awaits, so each sees and leaves a whole shard. What RAM holds is kept by
`window`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop
from itertools import islice
from typing import Any, Final, NamedTuple

from penstock.contracts import mailbox as m
from penstock.contracts.handler_error import HandlerError, join_cause, plain_cause
from penstock.contracts.mailbox_rules import NOT_LEASED, SETTLED_OR_UNKNOWN, STALE_RECEIPT
from penstock.kernel.backoff import MAILBOX, FullJitter, Rng
from penstock.kernel.errors import Conflict, Malformed, NotFound
from penstock.services.mailbox.batch import Batch
from penstock.services.mailbox.ids import MessageName
from penstock.services.mailbox.ledger import MailboxLedger, Now, lease_state
from penstock.services.mailbox.rows import (
    ANY_GEN,
    KIND_DELAYED,
    KIND_LEASED,
    KIND_READY,
    PURGED_GEN,
    DeadRow,
    MessageRow,
    MessageState,
    StoredTrace,
    remember_end,
)
from penstock.services.mailbox.shards.topics import (
    ACK,
    DELAYED,
    LEASED,
    NO_SETTINGS,
    PURGE,
    READY,
    RETURN,
    SETTLING,
    WRITTEN,
    Lane,
    Message,
    Topic,
)
from penstock.services.mailbox.shards.window import Leased, Window

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
        """Refuse a lease that is shorter than the shortest; 0 returns the message at once."""
        if visibility_ms and visibility_ms < self.visibility_ms_min:
            raise Malformed(f"visibility_ms must be 0 or at least {self.visibility_ms_min}.")

    def last_attempt(self, message: Message) -> bool:
        """Tell whether a message has had all its attempts; 0 is endless."""
        own = message.lane.topic.settings.max_attempts
        most = self.max_attempts if own is None else own
        return 0 < most <= message.attempts


class RecvQuery(NamedTuple):
    """What a receiver asks for."""

    max_messages: int
    visibility_ms: int
    max_bytes: int | None
    # The stream whose credit the leases use, if any.
    owner: Any = None


class NackCause(NamedTuple):
    """Why a consumer gave a message back, and for how long."""

    reason: str | None
    delay_ms: int | None
    error: HandlerError | None = None
    uncounted: bool = False
    final: bool = False

    @property
    def text(self) -> str:
        """Return what the attempt ended of, as the history and the dead letter say it."""
        if self.reason is None:
            return "rejected" if self.final else "nack"
        return f"rejected:{self.reason}"


class _Choice:
    """The messages that one receive takes from a lane, within its room and its bytes."""

    __slots__ = ("_bytes_max", "_room", "_size", "messages")

    def __init__(self, room: int, bytes_max: int | None) -> None:
        self._room = room
        self._bytes_max = bytes_max
        self._size = 0
        self.messages: list[Message] = []

    @property
    def full(self) -> bool:
        """Tell whether no more may be taken."""
        return len(self.messages) >= self._room

    def add(self, run: list[Message]) -> bool:
        """Take as much of a run as fits, in order; False when not even its first message does."""
        taken = 0
        for message in run:
            size = self._size + message.size
            if self.full or (self.messages and self._bytes_max is not None and size > self._bytes_max):
                break
            self._size = size
            message.state = LEASED
            self.messages.append(message)
            taken += 1
        return taken > 0


# The place of an ack in its batch, the ack, and what its msg_id says.
PlacedAck = tuple[int, m.Ack, MessageName]


class Shard:
    """One shard's messages, and the rules they move by."""

    def __init__(self, index: int, ledger: MailboxLedger, rules: ShardRules, rng: Rng) -> None:
        self.index = index
        self.rules = rules
        self.window = Window(index, ledger)
        # The window's own dict, by a shorter way.
        self.messages = self.window.messages
        self.ledger = ledger
        self._rng = rng
        # How many un-keyed messages overtook one on their first delivery, at most.
        self.reorder_depth_max = 0
        self._first_seen: deque[int] = deque(maxlen=_FIRST_SEEN)

    # --- recv

    def lease(self, lane: Lane, want: RecvQuery, now: Now, batch: Batch) -> list[Leased]:
        """Lease what is deliverable, in order of seq; returns each message with the generation of its lease."""
        ledger, window, messages, ready, size = self.ledger, self.window, self.messages, lane.ready, 0
        lane.used = now.mono
        if lane.stalled:
            window.reads.retry_keys(lane)
        room = min(want.max_messages, ledger.bounds.global_inflight - ledger.inflight)
        got: list[Message] = []
        topic = lane.topic
        if topic.settings is not NO_SETTINGS or lane.lines or topic.group_backlog.more:
            return self._lease_by_settings(lane, room, want, now, batch)
        if room <= 0 and (ready or lane.backlog.more or topic.key_backlog.more):
            ledger.starved[topic] = None
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
        leased = self._lease(got, want, now) if got else []
        if lane.backlog.more and room > 0 and len(ready) < window.refill_below:
            window.reads.want_window(lane)
        return leased

    def _lease_by_settings(self, lane: Lane, room: int, want: RecvQuery, now: Now, batch: Batch) -> list[Leased]:
        """Lease from a lane whose topic has settings or groups: by turns where it is fair, several of a key at once."""
        topic, window = lane.topic, self.window
        if topic.settings.paused:
            return []
        if room <= 0 and (lane.busy or topic.key_backlog.more or topic.group_backlog.more):
            self.ledger.starved[topic] = None
        got = _Choice(room, want.max_bytes)
        if room > 0:
            self._choose(lane, got, now, batch)
            window.refill(lane)
        return self._lease(got.messages, want, now) if got.messages else []

    def _choose(self, lane: Lane, got: _Choice, now: Now, batch: Batch) -> None:
        """Take from each line in turn what may be delivered, until there is enough."""
        turns, lines = lane.turns, lane.lines
        if lane.ready:
            turns.setdefault("")
        while turns and not got.full:
            group = next(iter(turns))
            del turns[group]
            heap = lines[group].ready if group else lane.ready
            message = self._first(heap, now, batch)
            if message is None:
                lane.drop_line(group)
                continue
            run = self._run(message, lane, now)
            if not got.add(run):
                turns[group] = None
                return
            heappop(heap)
            if heap:
                # Behind the others: each line gives one message, or one run of a key, a turn.
                turns[group] = None
            elif group:
                lane.drop_line(group)

    def _first(self, heap: list[int], now: Now, batch: Batch) -> Message | None:
        """Return the first message of a heap that may be delivered; those before it leave the heap."""
        while heap:
            message = self.messages.get(heap[0])
            if message is not None and message.state == READY:
                if message.expires is None or message.expires > now.wall:
                    return message
                heappop(heap)
                self._expire(message, now, batch)
                continue
            heappop(heap)
        return None

    def _run(self, message: Message, lane: Lane, now: Now) -> list[Message]:
        """Return a message and, of its key, as many that follow it as one receive may take."""
        run = [message]
        queue = None if message.key is None else lane.keys.get(message.key)
        most = lane.topic.settings.key_batch
        if queue is None or most == 1:
            return run
        for follower in islice(queue.followers, most - 1):
            if follower.state != READY or (follower.expires is not None and follower.expires <= now.wall):
                return run
            run.append(follower)
        if len(run) < most and queue.backlog.unread and message.key is not None:
            self.window.reads.want_key(lane, message.key, queue)
        return run

    def _lease(self, got: list[Message], want: RecvQuery, now: Now) -> list[Leased]:
        ledger, riders = self.ledger, self.ledger.riders
        until, span, owner, wall = now.mono + want.visibility_ms, want.visibility_ms, want.owner, now.wall
        leased: list[Leased] = list(zip(got, range(ledger.gen + 1, ledger.gen + 1 + len(got)), strict=True))
        receipts = ledger.receipts.make_all([(message.slot, message.seq, gen) for message, gen in leased])
        fresh: list[int] = []
        for (message, gen), receipt in zip(leased, receipts, strict=True):
            seq = message.seq
            if not message.attempts and message.key is None and not message.until:
                fresh.append(seq)
            message.attempts += 1
            if not message.first_at:
                message.first_at = wall
            message.gen = gen
            message.receipt = receipt
            message.until, message.span = until, span
            message.owner = owner
            # Last, also when an older state of it still has to be written.
            if seq in riders:
                del riders[seq]
            riders[seq] = message
        if fresh:
            self._watch_order(fresh)
        self.window.add_leases(until, leased)
        ledger.gen += len(got)
        ledger.inflight += len(got)
        got[0].lane.topic.inflight += len(got)
        if owner is not None:
            owner.leased(len(got))
        return leased

    def _watch_order(self, seqs: list[int]) -> None:
        """Note how many un-keyed messages overtook one of these on their first delivery; they are in order."""
        seen = self._first_seen
        for seq in seqs:
            if not seen or seq > seen[-1]:
                break
            depth = sum(1 for other in seen if other > seq)
            self.reorder_depth_max = max(self.reorder_depth_max, depth)
        seen.extend(seqs)

    def undo(self, message: Message, gen: int) -> None:
        """Take a lease back whose answer never left: the message returns to its place, the attempt is not counted."""
        if not self._still_leased(message, gen):
            return
        self._unlease(message)
        message.attempts, message.receipt = message.attempts - 1, ""
        if message.bare:
            message.until = WRITTEN
        else:
            # The disk may have this lease, or the delay before it. It stays in RAM until the disk knows that both are
            # over.
            self.ledger.riders[message.seq] = message
        self.window.make_ready(message)

    def spoiled(self, message: Message, gen: int, now: Now, batch: Batch) -> None:
        """End a lease whose stored bytes do not match their hash; they were not delivered."""
        if self._still_leased(message, gen):
            self._end_attempt(message, "integrity", 0.0, now, batch)

    def _still_leased(self, message: Message, gen: int) -> bool:
        """Tell whether a lease is the same still; one from before the engine was opened again does not count."""
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
        """Acknowledge a message: it will not be delivered again.

        False: it is not in RAM, the engine has to be asked.
        """
        message = self._leased(name, receipt, now) or self._held(name, receipt)
        if message is None:
            known = self.messages.get(name.seq)
            repeated = (
                known is not None and known.ending == ACK and _is(known, name)
                and (known.receipt == receipt or self._takes_any(known, receipt))
            )  # fmt: skip
            return repeated or self._refuse(name)
        gen = _acked_gen(message)
        if message.state == LEASED:
            self._unlease(message)
        else:
            self._stop_waiting(message)
        message.state, message.ending = SETTLING, ACK
        batch.remove(message.seq, bare=message.bare)
        batch.acked.append((message.seq, gen, now.wall))
        batch.ended.append(message)
        return True

    def _held(self, name: MessageName, receipt: str) -> Message | None:
        """Find the living message that a receipt of any of its leases settles, where its topic allows that."""
        message = self.messages.get(name.seq)
        if message is None or message.state == SETTLING or not _is(message, name):
            return None
        return message if self._takes_any(message, receipt) else None

    def is_coming_back(self, name: MessageName, receipt: str) -> bool:
        """Tell whether a message is between two leases, and the receipt will be good for it when it is back."""
        message = self.messages.get(name.seq)
        if message is None or message.state != SETTLING or message.ending != RETURN or not _is(message, name):
            return False
        return self._takes_any(message, receipt)

    def _takes_any(self, message: Message, receipt: str) -> bool:
        if message.lane.topic.settings.receipts != "any":
            return False
        read = self.ledger.receipts.read(receipt)
        return read is not None and read[0] == message.seq

    def _stop_waiting(self, message: Message) -> None:
        """Take a message that nobody has leased away from those that wait; heaps skip it by its state."""
        if message.state == DELAYED:
            message.lane.topic.delayed -= 1
        self.ledger.riders.pop(message.seq, None)

    def adopt(self, row: MessageRow, state: MessageState | None, now: Now) -> None:
        """Hold a message in RAM for a settlement of it: its topic takes a receipt of any lease."""
        if self.window.is_new(row.seq):
            waits = state is not None and state.kind == KIND_DELAYED
            self.window.adopt(row, state if waits else _untried(state), now)

    def ack_all(self, acks: Iterable[PlacedAck], now: Now, batch: Batch) -> tuple[list[int], list[PlacedAck]]:
        """Acknowledge many messages in one go; returns the places of those that were, and the acks for `ack`."""
        messages, riders, (mono, wall) = self.messages, self.ledger.riders, now
        gone, acked, states, usual = batch.gone, batch.acked, batch.states, NO_SETTINGS
        run: list[Message] = []
        places: list[int] = []
        others: list[PlacedAck] = []
        for each in acks:
            place, ack, (ts, seq, slot, nonce) = each
            message = messages.get(seq)
            if (
                message is None or message.receipt != ack.receipt or message.state != LEASED or message.until <= mono
                or message.nonce != nonce or message.ts != ts or message.slot != slot
            ):  # fmt: skip
                others.append(each)
                continue
            riders.pop(seq, None)
            topic = message.lane.topic
            topic.inflight -= 1
            if message.owner is not None:
                owner, message.owner = message.owner, None
                owner.settled()
            message.state, message.ending = SETTLING, ACK
            gone.append(seq)
            if not message.bare:
                states[seq] = None
            acked.append((seq, message.gen if topic.settings is usual else _acked_gen(message), wall))
            run.append(message)
            places.append(place)
        self.ledger.inflight -= len(run)
        if run:
            batch.acked_runs.append(run)
        return places, others

    def nack(self, name: MessageName, receipt: str, cause: NackCause, now: Now, batch: Batch) -> Message | None:
        """End the lease; the message waits, or is dead: after its last attempt, or when the consumer says so.

        None: ask the engine.
        """
        message = self._in_flight(name, receipt, now)
        if message is None:
            return None
        delay_ms = cause.delay_ms
        if delay_ms is None:
            delay_ms = int(self.rules.backoff.delay(message.attempts - 1, self._rng) * 1000)
        until = now.mono + delay_ms if delay_ms else 0.0
        if cause.uncounted:
            # Not the message's fault: it waits as if it had not been delivered.
            self._unlease(message)
            message.attempts -= 1
            self._return(message, until, now, batch)
            return message
        self._end_attempt(message, join_cause(cause.text, cause.error), until, now, batch, final=cause.final)
        return message

    def extend(self, name: MessageName, receipt: str, visibility_ms: int, now: Now, batch: Batch) -> Message | None:
        """Move the end of a lease; the receipt stays the same. None: ask the engine."""
        self.rules.check_visibility(visibility_ms)
        message = self._in_flight(name, receipt, now)
        if message is None:
            return None
        if not visibility_ms:
            self._lapse(message, now, batch)
            return message
        message.until = now.mono + visibility_ms
        message.span = visibility_ms
        self.window.add_leases(message.until, [(message, message.gen)])
        message.bare = False
        batch.states[message.seq] = lease_state(message, now)
        return message

    def _in_flight(self, name: MessageName, receipt: str, now: Now) -> Message | None:
        """Find the leased message that a nack or an extension is for. None: ask the engine."""
        message = self._leased(name, receipt, now)
        if message is not None:
            return message
        held = self._held(name, receipt)
        if held is None:
            self._refuse(name)
            return None
        if held.state != LEASED or held.until <= now.mono:
            raise Conflict("The message is not leased at the moment.", reason=NOT_LEASED)
        return held

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
        if trace.kind == "acked" and known and (ours == (name.seq, trace.gen) or trace.gen == ANY_GEN):
            return
        if trace.kind == "acked" or (trace.kind == "here" and trace.msg_id == msg_id):
            raise Conflict("The receipt is no longer good.", reason=STALE_RECEIPT)
        if trace.kind == "none" and known:
            raise Conflict("The message was settled long ago, or never was.", reason=SETTLED_OR_UNKNOWN)
        raise NotFound("There is no such message.")

    # --- the end of an attempt

    def _end_attempt(  # noqa: PLR0913 - the message, and what is known of the end of its attempt
        self, message: Message, cause: str, until: float, now: Now, batch: Batch, *, final: bool = False
    ) -> None:
        self._unlease(message)
        message.history = remember_end(message.history, now.wall, cause)
        if final or self.rules.last_attempt(message):
            reason = plain_cause(cause)
            self._bury(message, "max_attempts" if reason == "nack" else reason, now, batch)
            return
        self._return(message, until, now, batch)

    def _return(self, message: Message, until: float, now: Now, batch: Batch) -> None:
        """Have a message wait again, until a time or at once."""
        message.state, message.ending = SETTLING, RETURN
        message.until = until
        # An empty answer would be wrong while this message is on its way back.
        message.lane.topic.pending += 1
        kind, at = (KIND_DELAYED, now.wall_of(until)) if until else (KIND_READY, 0)
        span = round(until - now.mono) if until else 0
        message.bare = False
        batch.states[message.seq] = MessageState(
            message.seq, kind, at, message.attempts, 0, message.history, span, message.first_at
        )
        batch.ended.append(message)

    def _bury(self, message: Message, reason: str, now: Now, batch: Batch) -> None:
        message.state = SETTLING
        message.lane.topic.pending += 1
        batch.bury(message, DeadRow(message.seq, reason, now.wall, message.attempts, message.history))

    def _expire(self, message: Message, now: Now, batch: Batch) -> None:
        # One that merely waited too long is never just gone.
        if message.expires is not None and message.expires <= now.wall and self._drops(message.lane.topic):
            self.ledger.dropped += 1
            self._purge(message, now, batch)
            return
        if message.state == DELAYED:
            message.lane.topic.delayed -= 1
        self._bury(message, "ttl", now, batch)

    def _drops(self, topic: Topic) -> bool:
        own = topic.settings.on_expiry
        return self.rules.drops(topic.name) if own is None else own == "drop"

    # --- what a commit made true

    def ended(self, message: Message) -> None:
        """Move a message whose end is durable: out of RAM, or back among those that wait."""
        if message.ending != RETURN:
            if message.ending == ACK:
                message.lane.topic.acks += 1
                self.ledger.acked += 1
            self.window.leave(message)
            return
        message.ending = 0
        topic = message.lane.topic
        topic.pending -= 1
        if message.seq not in self.messages:
            self.window.notify(topic)
        elif message.until:
            self.window.delay(message)
        else:
            self.window.make_ready(message)

    def acked_all(self, messages: list[Message]) -> None:
        """Take messages out of RAM whose acks are durable."""
        for message in messages:
            message.lane.topic.acks += 1
        self.ledger.acked += len(messages)
        self.window.leave_all(messages)

    def buried(self, message: Message) -> None:
        """Take a message out of RAM that is durably a dead letter; it stays in the backlog."""
        topic, ledger = message.lane.topic, self.ledger
        topic.pending -= 1
        topic.dead += 1
        topic.bytes += message.size
        ledger.dead += 1
        ledger.died += 1
        ledger.dead_bytes += message.size
        ledger.messages += 1
        ledger.bytes += message.size
        self.window.leave(message)

    # --- time

    def due(self, now: Now, batch: Batch, limit: int = 512) -> None:
        """End the leases that lapsed and the delays that are over."""
        window = self.window
        for _ in range(limit):
            if window.next_due() > now.mono:
                return
            if window.leases and window.leases[0][0] <= now.mono:
                self._lapse(window.take_lease(), now, batch)
            elif window.delays and window.delays[0][0] <= now.mono:
                window.undelay()
            else:
                window.want_due()
                return

    def _lapse(self, message: Message, now: Now, batch: Batch) -> None:
        self.ledger.lapsed += 1
        self._end_attempt(message, "visibility", 0.0, now, batch)

    def expire(self, row: MessageRow, state: MessageState | None, now: Now, batch: Batch) -> None:
        """Bury an expired message, in RAM or not; a leased one waits for the end of its lease."""
        message = self.messages.get(row.seq)
        if self.window.is_new(row.seq) and (state is None or state.kind != KIND_LEASED):
            message = self.window.adopt(row, state, now)
        if message is not None and message.state in (READY, DELAYED) and self._is_over(message, now):
            self._expire(message, now, batch)

    def _is_over(self, message: Message, now: Now) -> bool:
        """Tell whether a message may go: a topic with a retention of its own keeps its messages that long."""
        own = message.lane.topic.settings.retention_s
        return own is None or (message.expires is not None and message.expires <= now.wall)

    # --- purge

    def purge(self, row: MessageRow, state: MessageState | None, now: Now, batch: Batch) -> bool:
        """Remove a message in any state but dead; the receipt of a leased one then finds nothing."""
        message = self.messages.get(row.seq)
        if self.window.is_new(row.seq):
            # Every lease is in RAM: if the disk still has one, it is over.
            waits = state is not None and state.kind == KIND_DELAYED
            message = self.window.adopt(row, state if waits else None, now)
        if message is None or message.state == SETTLING:
            return False
        self._purge(message, now, batch)
        return True

    def _purge(self, message: Message, now: Now, batch: Batch) -> None:
        if message.state == LEASED:
            self._unlease(message)
            batch.acked.append((message.seq, PURGED_GEN, now.wall))
        elif message.state == DELAYED:
            message.lane.topic.delayed -= 1
        message.state, message.ending = SETTLING, PURGE
        batch.remove(message.seq)
        batch.ended.append(message)


def _acked_gen(message: Message) -> int:
    """Return what is remembered of an ack: the generation of its lease, or that any receipt may repeat it."""
    return ANY_GEN if message.lane.topic.settings.receipts == "any" else message.gen


def _untried(state: MessageState | None) -> MessageState | None:
    """Leave a lease out: every lease is in RAM, so one that only the disk has is over."""
    return None if state is None or state.kind == KIND_LEASED else state


def _is(message: Message, name: MessageName) -> bool:
    return message.nonce == name.nonce and message.ts == name.ts and message.slot == name.slot
