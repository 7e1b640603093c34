"""The mailbox as a plain state machine in RAM: commands and `now` in, answers out. It waits for nothing.

It scans instead of indexing, because it is there to be right and readable: a peer for tests and for services that
are built beside the mailbox, not an engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from penstock.contracts.mailbox import Ack, Attempt, Extend, Nack, Recv, Send, Sent, Settlement, State
from penstock.contracts.mailbox_rules import SETTLED_OR_UNKNOWN, STALE_RECEIPT, content_of, hash_chain
from penstock.kernel.backoff import MAILBOX, Rng
from penstock.kernel.errors import Busy, Conflict, NotFound
from penstock.wire.ids import UUID7_RANDOM_BITS, address_of, uuid7

SLOTS: Final = 4096


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
        self._acked: dict[str, tuple[str, float]] = {}

    # --- send

    def send(self, send: Send, corr_id: str, now: MemoryNow) -> Sent:
        """Store a message once; raises Busy when a bound is reached and Conflict for another content."""
        if send.idem_key is not None and (claim := self._claims.get((send.topic, send.idem_key))) is not None:
            if claim.content != content_of(send):
                raise Conflict("The idem_key was used for another message.", msg_id=claim.answer.msg_id)
            return Sent(claim.answer.msg_id, True, claim.answer.shard)
        self._check_room(send)
        message = self._add(send, corr_id, now)
        answer = Sent(message.msg_id, False, self.shard(send))
        if send.idem_key is not None:
            until_ms = now.mono_ms + self.options.t_replay_s * 1000
            self._claims[send.topic, send.idem_key] = _Claim(content_of(send), answer, until_ms)
        return answer

    def _check_room(self, send: Send) -> None:
        options = self.options
        if len(self.messages) >= options.backlog_messages_max:
            raise Busy("The backlog is full.", limit="backlog_messages")
        if self.bytes + len(send.payload) > options.backlog_bytes_max:
            raise Busy("The backlog is full.", limit="backlog_bytes")
        if send.idem_key is not None and len(self._claims) >= options.dedup_entries:
            raise Busy("Too many idem_keys are remembered.", limit="dedup")

    def _add(self, send: Send, corr_id: str, now: MemoryNow, redriven_from: str | None = None) -> MemoryMessage:
        self._seq += 1
        message = MemoryMessage(
            seq=self._seq,
            msg_id=uuid7(now.wall_ms, self._random_bits()),
            sent=send,
            ts=now.wall_ms,
            corr_id=corr_id,
            payload_hash=address_of(send.payload),
            expires_ms=None if send.ttl_ms is None else now.mono_ms + send.ttl_ms,
            until_ms=now.mono_ms + send.delay_ms,
            redriven_from=redriven_from,
        )
        self.messages[message.msg_id] = message
        self.bytes += len(send.payload)
        return message

    def _random_bits(self) -> int:
        """Draw 53 bits and fill up with the seq, so that ids of one millisecond differ whatever is drawn."""
        spare = UUID7_RANDOM_BITS - 53
        return int(self._rng.random() * (1 << 53)) << spare | self._seq & (1 << spare) - 1

    def shard(self, send: Send) -> int:
        """Return the shard of a message, which follows from its slot: a hash of topic and key that never changes."""
        name = send.topic if send.key is None else f"{send.topic}\0{send.key}"
        slot = int(address_of(name.encode())[3:11], 16) % SLOTS
        return slot % self.options.ready_shards

    # --- recv

    def lease(self, recv: Recv, now: MemoryNow) -> list[MemoryMessage]:
        """Lease what is deliverable: in order, at most one of each key, the first of each key first."""
        leased: list[MemoryMessage] = []
        room = min(recv.max_messages, self.options.global_inflight - self.inflight())
        size = 0
        for message in self._deliverable(recv.topic, now):
            size += len(message.sent.payload)
            if len(leased) >= room or (leased and recv.max_bytes is not None and size > recv.max_bytes):
                break
            message.attempts += 1
            message.until_ms = now.mono_ms + recv.visibility_ms
            message.receipt = f"{message.seq}.{message.attempts}.{int(self._rng.random() * (1 << 53)):x}"
            leased.append(message)
        return leased

    def _deliverable(self, topic: str, now: MemoryNow) -> Iterator[MemoryMessage]:
        held: set[str] = set()
        for message in self.of(topic):
            key = message.sent.key
            if message.dead is not None or key in held:
                continue
            if key is not None:
                held.add(key)
            if message.state(now) == "ready":
                yield message

    def inflight(self) -> int:
        """Count the leased messages of all topics."""
        return sum(message.receipt is not None for message in self.messages.values())

    # --- settlements

    def ack(self, ack: Ack, now: MemoryNow) -> None:
        """Remove the message. The same receipt may be used again for a while."""
        if self._acked.get(ack.msg_id, ("", 0.0))[0] == ack.receipt:
            return
        message = self.leased(ack)
        self._remove(message)
        self._acked[ack.msg_id] = (ack.receipt, now.mono_ms + self.options.t_replay_s * 1000)

    def nack(self, nack: Nack, now: MemoryNow) -> MemoryMessage:
        """End the lease; the message waits out its delay, or is dead after its last attempt."""
        message = self.leased(nack)
        cause = "nack" if nack.reason is None else f"rejected:{nack.reason}"
        delay_ms = nack.delay_ms
        if delay_ms is None:
            delay_ms = int(MAILBOX.delay(message.attempts - 1, self._rng) * 1000)
        self._end_attempt(message, cause, now)
        message.until_ms = now.mono_ms + delay_ms
        return message

    def extend(self, extend: Extend, now: MemoryNow) -> MemoryMessage:
        """Move the end of the lease; the receipt stays the same."""
        message = self.leased(extend)
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

    def _end_attempt(self, message: MemoryMessage, cause: str, now: MemoryNow) -> None:
        message.receipt = None
        message.history.append(Attempt(now.wall_ms, cause))
        if message.attempts >= self.options.max_attempts:
            self._bury(message, "max_attempts" if cause == "nack" else cause, now)

    def _bury(self, message: MemoryMessage, reason: str, now: MemoryNow) -> None:
        """Make it a dead letter; if it is one already, the first reason stays."""
        if message.dead is None:
            message.dead = reason
            message.dead_at = now.wall_ms

    def _remove(self, message: MemoryMessage) -> None:
        del self.messages[message.msg_id]
        self.bytes -= len(message.sent.payload)

    # --- time

    def advance(self, now: MemoryNow) -> None:
        """End leases, expire messages and forget old claims, up to `now`. Called before every command."""
        for message in self.messages.values():
            if message.receipt is not None and message.until_ms <= now.mono_ms:
                self._end_attempt(message, "visibility", now)
            if message.expires_ms is not None and message.expires_ms <= now.mono_ms and message.receipt is None:
                self._bury(message, "ttl", now)
        self._claims = {name: claim for name, claim in self._claims.items() if claim.until_ms > now.mono_ms}
        self._acked = {msg_id: ack for msg_id, ack in self._acked.items() if ack[1] > now.mono_ms}

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
        return len(living)

    def dead(self, topic: str | None, reason: str | None) -> list[MemoryMessage]:
        """List dead letters, oldest first."""
        return [
            message
            for message in self.messages.values()
            if message.dead is not None and topic in (None, message.sent.topic) and reason in (None, message.dead)
        ]

    def redrive(self, message: MemoryMessage, to: str | None, now: MemoryNow) -> None:
        """Send a dead letter again as a new message, in one step: never in both places, never in neither."""
        sent = replace(message.sent, topic=to or message.sent.topic, delay_ms=0, ttl_ms=None)
        self._remove(message)
        self._add(sent, message.corr_id, now, message.msg_id)
