"""The mailbox as a plain state machine in RAM: commands and `now` in, answers out. It waits for nothing.

It scans instead of indexing, because it is there to be right and readable: a peer for tests and for services that
are built beside the mailbox, not an engine.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from penstock.contracts.handler_error import HandlerError
from penstock.contracts.mailbox import (
    Ack,
    Attempt,
    DedupSettings,
    Extend,
    MessageOrigin,
    Nack,
    Recv,
    Send,
    Sent,
    Settlement,
    State,
    TopicSettings,
)
from penstock.contracts.mailbox_rules import (
    NOT_LEASED,
    PAYLOAD_BYTES_MAX,
    SETTLED_OR_UNKNOWN,
    STALE_RECEIPT,
    content_of,
    dead_letter_attrs,
    hash_chain,
    reason_matches,
    size_of,
)
from penstock.kernel.backoff import MAILBOX, Rng
from penstock.kernel.errors import Busy, Conflict, NotFound, OverLimit
from penstock.wire.ids import UUID7_RANDOM_BITS, address_of, uuid7

SECTIONS: Final = 64
USUAL_VISIBILITY_MS: Final = 5000
_USUAL: Final = TopicSettings()


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryMailboxOptions:
    """Bounds and times of the mailbox, as the service's own."""

    ready_shards: int = 8
    max_attempts: int = 5
    t_replay_s: float = 300.0
    backlog_messages_max: int = 1_000_000
    backlog_bytes_max: int = 1 << 30
    global_inflight: int = 8192
    dedup_entries: int = 1_000_000


@dataclass(frozen=True, slots=True)
class MemoryNow:
    """One instant on both clocks, in milliseconds: deadlines by the first, what is shown by the second."""

    mono_ms: float
    wall_ms: int


@dataclass(eq=False, slots=True)
class MemoryMessage:
    """One message; the state machine alone changes it."""

    seq: int
    msg_id: str
    sent: Send
    ts: int
    corr_id: str
    payload_hash: str
    expires_ms: float | None
    until_ms: float
    """Ready from then on (waiting), or leased until then (leased)."""
    attempts: int = 0
    receipt: str | None = None
    dead: str | None = None
    dead_at: int = 0
    redriven_from: str | None = None
    history: list[Attempt] = field(default_factory=list)
    first_at: int = 0
    receipts: set[str] = field(default_factory=set)
    """Of all its leases; one of them is good where the topic takes any."""

    @property
    def hash_chain(self) -> str:
        """Bind the message's parts."""
        return hash_chain(self.sent.topic, self.ts, self.sent.idem_key, self.payload_hash, self.sent.attrs)

    def state(self, now: MemoryNow) -> State:
        """Say where the message is."""
        if self.dead is not None:
            return "dlq"
        if self.receipt is not None:
            return "inflight"
        return "delayed" if self.until_ms > now.mono_ms else "ready"


@dataclass(frozen=True, slots=True)
class _Claim:
    content: tuple[object, ...]
    answer: Sent
    until_ms: float


class MemoryMailboxState:
    """Every message of the mailbox, in order of seq."""

    def __init__(self, options: MemoryMailboxOptions, rng: Rng) -> None:
        self.options = options
        self._rng = rng
        self._seq = 0
        self.messages: dict[str, MemoryMessage] = {}
        self.bytes = 0
        self._claims: dict[tuple[str, str], _Claim] = {}
        self._acked: dict[str, tuple[frozenset[str], float]] = {}
        self.settings: dict[str, TopicSettings] = {}
        self.generations: dict[str, int] = {}
        # The groups of each topic in the order of their turns: the one that was served last is last.
        # What `advance` has to move, and where to, or remove when it has looked at everything.
        self._moving: dict[str, str] = {}
        self._dropping: list[MemoryMessage] = []
        self._served: dict[tuple[str, str | None], int] = {}
        self._turn = 0

    def settings_of(self, topic: str) -> TopicSettings:
        """Return what a topic is set to; without settings of its own nothing is."""
        return self.settings.get(topic, _USUAL)

    # --- send

    def send(self, send: Send, corr_id: str, now: MemoryNow) -> Sent:
        """Store a message once; raises Busy when a bound is reached and Conflict for another content."""
        dedup = self.settings_of(send.topic).dedup or DedupSettings(round(self.options.t_replay_s))
        if send.idem_key is not None and (claim := self._claims.get((send.topic, send.idem_key))) is not None:
            if claim.content != content_of(send) and dedup.mode == "conflict":
                raise Conflict("The idem_key was used for another message.", msg_id=claim.answer.msg_id)
            return Sent(claim.answer.msg_id, True, claim.answer.shard)
        self._check_room(send)
        message = self._add(send, corr_id, now)
        answer = Sent(message.msg_id, False, self.shard(send))
        if send.idem_key is not None:
            until_ms = now.mono_ms + dedup.window_s * 1000
            self._claims[send.topic, send.idem_key] = _Claim(content_of(send), answer, until_ms)
        return answer

    def _check_room(self, send: Send) -> None:
        options = self.options
        if len(self.messages) >= options.backlog_messages_max:
            raise Busy("The backlog is full.", limit="backlog_messages")
        if self.bytes + size_of(send) > options.backlog_bytes_max:
            raise Busy("The backlog is full.", limit="backlog_bytes")
        most = self.settings_of(send.topic).max_payload or PAYLOAD_BYTES_MAX
        if size_of(send) > most:
            raise OverLimit(f"The payload is above {most} bytes.", limit="payload_bytes")
        if send.idem_key is not None:
            self._check_dedup(self.settings_of(send.topic).dedup)

    def _check_dedup(self, dedup: DedupSettings | None) -> None:
        """Make room for one more claim of a window, or say that there is none."""
        most = self.options.dedup_entries if dedup is None else dedup.entries or self.options.dedup_entries
        mine = [name for name in self._claims if self.settings_of(name[0]).dedup == dedup]
        if len(mine) < most:
            return
        if dedup is None or dedup.on_full == "refuse":
            raise Busy("Too many idem_keys are remembered.", limit="dedup")
        del self._claims[mine[0]]

    def _add(self, send: Send, corr_id: str, now: MemoryNow, redriven_from: str | None = None) -> MemoryMessage:
        self._seq += 1
        settings = self.settings_of(send.topic)
        kept_ms = None if settings.retention_s is None else settings.retention_s * 1000
        ttl_ms = kept_ms if send.ttl_ms is None else send.ttl_ms
        message = MemoryMessage(
            seq=self._seq,
            msg_id=uuid7(now.wall_ms, self._random_bits()),
            sent=send,
            ts=now.wall_ms,
            corr_id=corr_id,
            payload_hash=address_of(send.payload),
            expires_ms=None if ttl_ms is None else now.mono_ms + ttl_ms,
            until_ms=now.mono_ms + ((settings.delay_ms or 0) if send.delay_ms is None else send.delay_ms),
            redriven_from=redriven_from,
        )
        self.messages[message.msg_id] = message
        self.bytes += size_of(send)
        return message

    def _random_bits(self) -> int:
        """Draw 53 bits and fill up with the seq, so that ids of one millisecond differ whatever is drawn."""
        spare = UUID7_RANDOM_BITS - 53
        return int(self._rng.random() * (1 << 53)) << spare | self._seq & (1 << spare) - 1

    def shard(self, send: Send) -> int:
        """Return the shard of a message, which follows from its slot: a hash of topic and key that never changes."""
        name = send.topic if send.key is None else f"{send.topic}\0{send.key}"
        section = int(address_of(send.topic.encode())[3:11], 16) % SECTIONS
        slot = section << 6 | int(address_of(name.encode())[11:15], 16) % SECTIONS
        return slot % self.options.ready_shards

    # --- recv

    def lease(self, recv: Recv, now: MemoryNow) -> list[MemoryMessage]:
        """Lease what is deliverable: in order, of each key the first ones, groups in turn where the topic is fair."""
        leased: list[MemoryMessage] = []
        room = min(recv.max_messages, self.options.global_inflight - self.inflight())
        settings, size = self.settings_of(recv.topic), 0
        own_ms = USUAL_VISIBILITY_MS if settings.visibility_ms is None else settings.visibility_ms
        visibility_ms = own_ms if recv.visibility_ms is None else recv.visibility_ms
        for message in () if settings.paused else self._in_turn(recv.topic, now):
            size += size_of(message.sent)
            if len(leased) >= room or (leased and recv.max_bytes is not None and size > recv.max_bytes):
                break
            message.attempts += 1
            message.first_at = message.first_at or now.wall_ms
            message.until_ms = now.mono_ms + visibility_ms
            message.receipt = f"{message.seq}.{message.attempts}.{int(self._rng.random() * (1 << 53)):x}"
            message.receipts.add(message.receipt)
            leased.append(message)
        return leased

    def _in_turn(self, topic: str, now: MemoryNow) -> Iterator[MemoryMessage]:
        """Return what may be delivered in its order; where the topic is fair, one of each group a turn."""
        found = list(self._deliverable(topic, now))
        if self.settings_of(topic).fair_by is None:
            yield from found
            return
        groups: dict[str | None, deque[MemoryMessage]] = {}
        for message in found:
            groups.setdefault(message.sent.group, deque()).append(message)
        while groups:
            group = min(groups, key=lambda name: self._served.get((topic, name), 0))
            self._turn += 1
            self._served[topic, group] = self._turn
            key, most = groups[group][0].sent.key, self.settings_of(topic).key_batch
            for _ in range(1 if key is None else most):
                if groups[group] and groups[group][0].sent.key == key:
                    yield groups[group].popleft()
            if not groups[group]:
                del groups[group]

    def _deliverable(self, topic: str, now: MemoryNow) -> Iterator[MemoryMessage]:
        held: Counter[str] = Counter()
        most = self.settings_of(topic).key_batch
        for message in self.of(topic):
            key = message.sent.key
            if message.dead is not None or (key is not None and held[key] >= most):
                continue
            ready = message.state(now) == "ready"
            if key is not None:
                held[key] += 1 if ready else most
            if ready:
                yield message

    def inflight(self) -> int:
        """Count the leased messages of all topics."""
        return sum(message.receipt is not None for message in self.messages.values())

    # --- settlements

    def ack(self, ack: Ack, now: MemoryNow) -> None:
        """Remove the message. The same receipt may be used again for a while."""
        if ack.receipt in self._acked.get(ack.msg_id, (frozenset(), 0.0))[0]:
            return
        message = self._held(ack) or self.leased(ack)
        self._remove(message)
        good = message.receipts if self._takes_any(message) else {ack.receipt}
        self._acked[ack.msg_id] = (frozenset(good), now.mono_ms + self.options.t_replay_s * 1000)

    def _takes_any(self, message: MemoryMessage) -> bool:
        return self.settings_of(message.sent.topic).receipts == "any"

    def _held(self, settlement: Settlement) -> MemoryMessage | None:
        """Find the living message that a receipt of any of its leases settles, where its topic allows that."""
        message = self.messages.get(settlement.msg_id)
        if message is None or message.dead is not None or not self._takes_any(message):
            return None
        return message if settlement.receipt in message.receipts else None

    def _in_flight(self, settlement: Settlement) -> MemoryMessage:
        message = self._held(settlement)
        if message is None:
            return self.leased(settlement)
        if message.receipt is None:
            raise Conflict("The message is not leased at the moment.", reason=NOT_LEASED)
        return message

    def nack(self, nack: Nack, now: MemoryNow) -> MemoryMessage:
        """End the lease; the message waits out its delay, or is dead: after its last attempt, or when it is final."""
        message = self._in_flight(nack)
        unsaid = "rejected" if nack.final else "nack"
        cause = unsaid if nack.reason is None else f"rejected:{nack.reason}"
        delay_ms = nack.delay_ms
        if delay_ms is None:
            delay_ms = int(MAILBOX.delay(message.attempts - 1, self._rng) * 1000)
        if nack.uncounted:
            message.receipt = None
            message.attempts -= 1
        else:
            self._end_attempt(message, cause, now, nack.error, final=nack.final)
        message.until_ms = now.mono_ms + delay_ms
        return message

    def extend(self, extend: Extend, now: MemoryNow) -> MemoryMessage:
        """Move the end of the lease; the receipt stays the same."""
        message = self._in_flight(extend)
        if not extend.visibility_ms:
            self._end_attempt(message, "visibility", now)
        message.until_ms = now.mono_ms + extend.visibility_ms
        return message

    def leased(self, settlement: Settlement) -> MemoryMessage:
        """Find the message a receipt is good for; a stale one is a Conflict, an unknown message NotFound."""
        message = self.messages.get(settlement.msg_id)
        if message is None:
            if settlement.msg_id in self._acked:
                raise Conflict("The message was settled by another receipt.", reason=SETTLED_OR_UNKNOWN)
            raise NotFound("There is no such message.")
        if message.receipt is None or message.receipt != settlement.receipt:
            raise Conflict("The receipt is no longer good.", reason=STALE_RECEIPT)
        return message

    def _end_attempt(
        self,
        message: MemoryMessage,
        cause: str,
        now: MemoryNow,
        error: HandlerError | None = None,
        *,
        final: bool = False,
    ) -> None:
        message.receipt = None
        message.history[:] = [Attempt(each.at, each.cause) for each in message.history]
        message.history.append(Attempt(now.wall_ms, cause, None if error is None else error.bounded()))
        del message.history[16:-16]
        own = self.settings_of(message.sent.topic).max_attempts
        most = self.options.max_attempts if own is None else own
        if final or 0 < most <= message.attempts:
            self._bury(message, "max_attempts" if cause == "nack" else cause, now)

    def _bury(self, message: MemoryMessage, reason: str, now: MemoryNow) -> None:
        """Make it a dead letter; if it is one already, the first reason stays."""
        if message.dead is not None:
            return
        message.dead = reason
        message.dead_at = now.wall_ms
        target = self.settings_of(message.sent.topic).dead_letter_to
        if target is not None and reason != "ttl":
            self._moving[message.msg_id] = target

    def _expire(self, message: MemoryMessage, now: MemoryNow) -> None:
        if self.settings_of(message.sent.topic).on_expiry == "drop":
            self._dropping.append(message)
        else:
            self._bury(message, "ttl", now)

    def _remove(self, message: MemoryMessage) -> None:
        del self.messages[message.msg_id]
        self.bytes -= size_of(message.sent)

    # --- time

    def advance(self, now: MemoryNow) -> None:
        """End leases, expire messages and forget old claims, up to `now`. Called before every command."""
        for message in self.messages.values():
            if message.receipt is not None and message.until_ms <= now.mono_ms:
                self._end_attempt(message, "visibility", now)
            if message.expires_ms is not None and message.expires_ms <= now.mono_ms and message.receipt is None:
                self._expire(message, now)
        self.move(now)
        self._claims = {name: claim for name, claim in self._claims.items() if claim.until_ms > now.mono_ms}
        self._acked = {msg_id: ack for msg_id, ack in self._acked.items() if ack[1] > now.mono_ms}

    def move(self, now: MemoryNow) -> None:
        """Let dead letters go where their topic sends them, and expired messages of a topic that drops them go."""
        while self._dropping:
            self._remove(self._dropping.pop())
        moving, self._moving = self._moving, {}
        for msg_id, target in moving.items():
            message = self.messages[msg_id]
            said = dead_letter_attrs(
                message.sent.topic, message.dead or "", message.attempts, [(a.at, a.cause) for a in message.history]
            )
            attrs = {**message.sent.attrs, **said}
            self.redrive(message, target, now, attrs=attrs, idem_key=message.msg_id)

    def next_due_ms(self, topic: str, now: MemoryNow) -> float | None:
        """Say when the next message of a topic may become ready by itself."""
        dues = [m.until_ms for m in self.of(topic) if m.dead is None and m.until_ms > now.mono_ms]
        return min(dues, default=None)

    # --- the rest

    def of(self, topic: str) -> list[MemoryMessage]:
        """List a topic's messages in order of seq, dead ones too."""
        return [message for message in self.messages.values() if message.sent.topic == topic]

    def purge(self, topic: str) -> int:
        """Remove what waits or is leased; dead letters stay, they are evidence."""
        living = [message for message in self.of(topic) if message.dead is None]
        for message in living:
            self._remove(message)
        self.generations[topic] = self.generations.get(topic, 0) + 1
        self._claims = {name: claim for name, claim in self._claims.items() if name[0] != topic}
        return len(living)

    def delete(self, topic: str) -> int:
        """Remove a topic whole."""
        self.settings.pop(topic, None)
        gone = self.purge(topic)
        dead = self.of(topic)
        for message in dead:
            self._remove(message)
        return gone + len(dead)

    def leads_back(self, topic: str, target: str | None) -> bool:
        """Tell whether dead letters sent to the target would come back."""
        while target is not None and target != topic:
            target = self.settings_of(target).dead_letter_to
        return target is not None

    def dead(self, topic: str | None, reason: str | None) -> list[MemoryMessage]:
        """List dead letters, oldest first."""
        return [
            message
            for message in self.messages.values()
            if message.dead is not None and topic in (None, message.sent.topic) and reason_matches(reason, message.dead)
        ]

    def forget(self, message: MemoryMessage) -> None:
        """Remove a dead letter for good."""
        self._remove(message)

    def redrive(self, message: MemoryMessage, to: str | None, now: MemoryNow, **changes: object) -> None:
        """Send a dead letter again as a new message, in one step: never in both places, never in neither."""
        origin = message.sent.origin or MessageOrigin(message.msg_id, message.ts)
        sent = replace(message.sent, topic=to or message.sent.topic, delay_ms=0, ttl_ms=None, origin=origin, **changes)
        self._remove(message)
        self._add(sent, message.corr_id, now, message.msg_id)
