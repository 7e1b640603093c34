"""From leased messages to the answer that carries them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blake3 import blake3
from msgspec.structs import replace

from penstock.contracts import mailbox as m
from penstock.kernel.errors import PenstockError
from penstock.net.tracing import TRACER
from penstock.services.mailbox.ids import MessageName
from penstock.services.mailbox.jobs import RecvJob
from penstock.services.mailbox.ledger import NAMES_MAX, Now
from penstock.services.mailbox.rows import MessageRow, chain_head
from penstock.services.mailbox.shards.topics import Message
from penstock.services.mailbox.tracing import tell_deliveries

if TYPE_CHECKING:
    from penstock.services.mailbox.disk_waits import DiskWaits
    from penstock.services.mailbox.state import MailboxParts

# The constructor of a tuple, without the one of the named tuple around it.
_new: Final = tuple.__new__


class Deliveries:
    """Puts payloads to leased messages; a lease whose answer cannot leave is undone."""

    def __init__(self, parts: MailboxParts, waits: DiskWaits) -> None:
        self._state = parts.state
        self._ledger = parts.state.ledger
        self._reader = parts.reader
        self._writer = parts.writer
        self._dispatcher = parts.dispatcher
        self._waits = waits

    def deliver(self, job: RecvJob, now: Now) -> None:
        """Answer at once when every payload is in RAM; otherwise read those that are missing first."""
        rows = self._ledger.cache.get_all([message.seq for message, _ in job.got])
        if None not in rows:
            self._answer(job, rows, now)  # type: ignore[arg-type]  # none of them is None
            return
        try:
            self._waits.start(self._deliver_later(job, rows), lambda error: self._give_up(job, error))
        except PenstockError as error:
            self._give_up(job, error)

    def _give_up(self, job: RecvJob, error: PenstockError) -> None:
        """Undo the leases of a receiver whose messages could not be read."""
        job.fail(error)
        self._dispatcher.give_back(job.got)

    async def _deliver_later(self, job: RecvJob, rows: list[MessageRow | None]) -> None:
        missing = [message.seq for (message, _), row in zip(job.got, rows, strict=True) if row is None]
        found = await self._reader.ask(self._reader.reads.rows, missing)
        now = self._state.now()
        whole: list[MessageRow] = []
        got, job.got = job.got, []
        for (message, gen), cached in zip(got, rows, strict=True):
            row = cached or found.get(message.seq)
            if row is None:
                self._state.shard_of(message.slot).spoiled(message, gen, now, self._writer.batch)
            else:
                job.got.append((message, gen))
                whole.append(row)
        if whole:
            self._answer(job, whole, now)
        else:
            self._ask_again(job, got[0][0].slot)
        self._dispatcher.wake_all()

    def _ask_again(self, job: RecvJob, slot: int) -> None:
        """Go back to the shard: all that was leased turned out to be damaged."""
        job.path = [slot % len(self._state.shards)]
        try:
            self._dispatcher.worker_of(slot).work.try_send(job)
        except PenstockError as error:
            job.fail(error)

    def _answer(self, job: RecvJob, rows: list[MessageRow], now: Now) -> None:
        if job.promise.done:
            self._dispatcher.give_back(job.got)
            return
        if TRACER.sink is not None:
            tell_deliveries(job.corr_id, job.topic.name, rows)
        job.topic.recvs += len(rows)
        self._ledger.delivered += len(rows)
        names = self._ledger.names
        if len(names) >= NAMES_MAX:
            names.clear()
        job.deliver(m.Received(_envelopes(job.got, rows, now, len(self._state.shards), names)))


def _envelopes(
    leased: list[tuple[Message, int]], rows: list[MessageRow], now: Now, shards: int, names: dict[str, MessageName]
) -> tuple[m.Envelope, ...]:
    """Write down leases of one topic, and remember what their msg_ids say.

    By position, in the order of the contract, because this is done for every message.
    """
    topic = leased[0][0].lane.topic
    name, start, wall, mono = topic.name, topic.chain_start, now.wall, now.mono
    hasher = blake3()
    envelopes = []
    ts, plain_head = -1, b""
    for (message, _), row in zip(leased, rows, strict=True):
        address = "b3:" + row.payload_hash.hex()
        if row.attrs:
            chain = row.chain(name, start, address)
        else:
            if row.idem_key is not None:
                head = chain_head(start, row.ts, row.idem_key)
            elif row.ts == ts:
                # The same for all messages of the topic that were sent in one millisecond.
                head = plain_head
            else:
                ts, head = row.ts, chain_head(start, row.ts)
                plain_head = head
            # One hasher for all: to make one costs more than to use it.
            hasher.reset()
            hasher.update(head + address.encode())
            chain = "b3:" + hasher.digest().hex()
        msg_id = row.name or row.msg_id
        names[msg_id] = _new(MessageName, (row.ts, row.seq, row.slot, row.nonce))
        envelope = m.Envelope(
            msg_id, message.receipt, name, row.ts, row.payload, row.attrs, row.corr_id, row.slot % shards,
            message.attempts, wall + round(message.until - mono), address, chain, row.key, row.idem_key,
            row.redriven_from, message.first_at,
        )  # fmt: skip
        if row.group is not None or row.meta is not None or row.origin is not None:
            envelope = _with_more(envelope, row)
        envelopes.append(envelope)
    return tuple(envelopes)


def _with_more(envelope: m.Envelope, row: MessageRow) -> m.Envelope:
    """Add what few messages have."""
    origin_id, origin_ts = row.origin or (None, None)
    return replace(envelope, group=row.group, meta=row.meta, origin_id=origin_id, origin_ts=origin_ts)
