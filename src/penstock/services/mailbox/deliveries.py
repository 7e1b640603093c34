"""From leased messages to the answer that carries them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from penstock.contracts import mailbox as m
from penstock.kernel.errors import PenstockError
from penstock.services.mailbox.jobs import RecvJob
from penstock.services.mailbox.ledger import Now
from penstock.services.mailbox.rows import MessageRow
from penstock.services.mailbox.topics import Message

if TYPE_CHECKING:
    from penstock.services.mailbox.state import MailboxState


class Deliveries:
    """Puts payloads to leased messages; a lease whose answer cannot leave is undone."""

    def __init__(self, room: MailboxState, spawn: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        """Read missing payloads in a task made by `spawn`."""
        self._room = room
        self._spawn = spawn

    def deliver(self, job: RecvJob, now: Now) -> None:
        """Answer at once when every payload is in RAM."""
        if len(job.got) > 1:
            job.got.sort(key=_seq)
        cached = self._room.ledger.cache.get
        rows = [cached(message.seq) for message, _ in job.got]
        here = [row for row in rows if row is not None]
        if len(here) == len(rows):
            self._answer(job, here, now)
        else:
            self._fetch(job, rows)

    def _fetch(self, job: RecvJob, rows: list[MessageRow | None]) -> None:
        try:
            self._spawn(self._deliver_later(job, rows))
        except PenstockError as error:
            job.fail(error)
            self._room.give_back(job.got)

    async def _deliver_later(self, job: RecvJob, rows: list[MessageRow | None]) -> None:
        room = self._room
        missing = [message.seq for (message, _), row in zip(job.got, rows, strict=True) if row is None]
        try:
            found = await room.ask(room.engine.rows, missing)
        except PenstockError as error:
            job.fail(error)
            room.give_back(job.got)
            return
        now = room.now()
        slot = job.got[0][0].slot
        rows = [row or found.get(message.seq) for (message, _), row in zip(job.got, rows, strict=True)]
        for (message, gen), row in zip(job.got, rows, strict=True):
            if row is None:
                room.shard_of(message.slot).spoiled(message, gen, now, room.writer.batch)
        job.got = [leased for leased, row in zip(job.got, rows, strict=True) if row is not None]
        if job.got:
            self._answer(job, [row for row in rows if row is not None], now)
        else:
            self._ask_again(job, slot)
        room.look_after_all()

    def _ask_again(self, job: RecvJob, slot: int) -> None:
        """Go back to the shard: all that was leased turned out to be damaged."""
        job.path = [slot % len(self._room.shards)]
        try:
            self._room.worker_of(slot).work.try_send(job)
        except PenstockError as error:
            job.fail(error)

    def _answer(self, job: RecvJob, rows: list[MessageRow], now: Now) -> None:
        if job.promise.done:
            self._room.give_back(job.got)
            return
        shards = len(self._room.shards)
        envelopes = [_envelope(message, row, now, shards) for (message, _), row in zip(job.got, rows, strict=True)]
        job.topic.recvs += len(envelopes)
        job.deliver(m.Received(tuple(envelopes)))


def _seq(leased: tuple[Message, int]) -> int:
    return leased[0].seq


def _envelope(message: Message, row: MessageRow, now: Now, shards: int) -> m.Envelope:
    """Write down a lease; by position, in the order of the contract, because this is done for every message."""
    topic, address = message.lane.topic, row.address
    chain = row.chain(topic.name, topic.chain_start, address)
    return m.Envelope(
        row.msg_id, message.receipt, topic.name, row.ts, row.payload, row.attrs, row.corr_id, row.slot % shards, message.attempts,
        now.wall + round(message.until - now.mono), address, chain, row.key, row.idem_key, row.redriven_from,
    )  # fmt: skip
