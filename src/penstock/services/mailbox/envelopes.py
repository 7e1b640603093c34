"""From leased messages to the answer that carries them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from penstock.contracts import mailbox as m
from penstock.kernel.errors import PenstockError
from penstock.services.mailbox.books import Now
from penstock.services.mailbox.jobs import RecvJob
from penstock.services.mailbox.rows import Row
from penstock.services.mailbox.topics import Message

if TYPE_CHECKING:
    from penstock.services.mailbox.mailroom import Mailroom


class Deliveries:
    """Puts payloads to leased messages; a lease whose answer cannot leave is undone."""

    def __init__(self, room: Mailroom, spawn: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        """Read missing payloads in a task made by `spawn`."""
        self._room = room
        self._spawn = spawn

    def deliver(self, job: RecvJob, now: Now) -> None:
        """Answer at once when every payload is in RAM."""
        if len(job.got) > 1:
            job.got.sort(key=_seq)
        cache = self._room.books.cache
        rows = {message.seq: cache.get(message.seq) for message, _ in job.got}
        missing = [seq for seq, row in rows.items() if row is None]
        if missing:
            self._spawn(self._deliver_later(job, rows, missing))
        else:
            self._answer(job, rows, now)

    async def _deliver_later(self, job: RecvJob, rows: dict[int, Row | None], missing: list[int]) -> None:
        room = self._room
        try:
            rows.update(await room.ask(room.engine.rows, missing))
        except PenstockError as error:
            self._undo(job)
            job.fail(error)
            return
        now = room.now()
        slot = job.got[0][0].slot
        for message, gen in job.got:
            if rows.get(message.seq) is None:
                room.shard_of(message.slot).spoiled(message, gen, now, room.writer.batch)
        job.got = [(message, gen) for message, gen in job.got if rows.get(message.seq) is not None]
        if job.got:
            self._answer(job, rows, now)
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

    def _answer(self, job: RecvJob, rows: dict[int, Row | None], now: Now) -> None:
        if job.reply.done():
            self._undo(job)
            return
        room = self._room
        count = len(room.shards)
        envelopes = [
            _envelope(message, row, now, count) for message, _ in job.got if (row := rows[message.seq]) is not None
        ]
        job.topic.recvs += len(envelopes)
        job.deliver(m.Received(tuple(envelopes)))

    def _undo(self, job: RecvJob) -> None:
        for message, gen in job.got:
            self._room.shard_of(message.slot).undo(message, gen)


def _seq(leased: tuple[Message, int]) -> int:
    return leased[0].seq


def _envelope(message: Message, row: Row, now: Now, shards: int) -> m.Envelope:
    topic = message.lane.topic.name
    return m.Envelope(
        msg_id=row.msg_id,
        receipt=message.receipt,
        topic=topic,
        ts=row.ts,
        payload=row.payload,
        attrs=row.attrs,
        corr_id=row.corr_id,
        shard=row.slot % shards,
        attempt=message.attempts,
        visible_until=now.wall_of(message.until),
        payload_hash=row.address,
        hash_chain=row.chain(topic),
        key=row.key,
        idem_key=row.idem_key,
        redriven_from=row.redriven_from,
    )
