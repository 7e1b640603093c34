"""The sending side of a ShardWorker: claims on idem_keys, rows for the batch, answers when it is durable."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.contracts import mailbox as m
from penstock.kernel.errors import Busy, Conflict, PenstockError
from penstock.services.mailbox.books import Now
from penstock.services.mailbox.claims import claim_name, content_sum
from penstock.services.mailbox.ids import make_msg_id
from penstock.services.mailbox.jobs import Draft, SendJob
from penstock.services.mailbox.rows import KIND_DELAYED, Claim, Row, State

if TYPE_CHECKING:
    from penstock.services.mailbox.mailroom import Mailroom

NOTHING: Final[list[Any]] = []


class Intake:
    """Turns drafts into rows of the open batch."""

    def __init__(self, room: Mailroom, spawn: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        """Look claims up in a task made by `spawn`."""
        self._room = room
        self._spawn = spawn

    def send(self, job: SendJob, now: Now) -> None:
        """Store the messages of a job, each on its own."""
        before = len(self._room.writer.batch.rows)
        for draft in job.value:
            self._send_one(draft, now)
        # The drafts hold the job: without this every job would be a cycle, and wait for the garbage collector.
        job.value = NOTHING
        if len(self._room.writer.batch.rows) > before:
            self._room.writer.batch.unsent.append(job.fail)

    def _send_one(self, draft: Draft, now: Now) -> None:
        try:
            # A redriven message is a new one: its idem_key was spent by the first.
            unclaimed = draft.send.idem_key is None or draft.redrive is not None
            if unclaimed or self._claim(draft, draft.send.idem_key or "", now):
                self._store(draft, now)
        except PenstockError as error:
            draft.job.refuse(draft, error)

    def _claim(self, draft: Draft, idem_key: str, now: Now) -> bool:
        """Claim the idem_key; False when the outcome of an earlier claim has to be waited for."""
        claims = self._room.claims
        name = draft.name = claim_name(draft.send.topic, idem_key)
        waiting = claims.pending.get(name)
        if waiting is not None:
            waiting.append(draft)
            return False
        number = claims.find(name)
        if number is not None:
            claims.pending[name] = []
            self._spawn(self._look_up(draft, number))
            return False
        if claims.full(now):
            raise Busy("Too many idem_keys are remembered.", limit="dedup")
        return True

    async def _look_up(self, draft: Draft, number: int) -> None:
        """Judge a draft by the claim that the disk holds."""
        room = self._room
        claim: Claim | None = None
        try:
            claim = await room.ask(room.engine.claim, number)
        except PenstockError as error:
            for each in (draft, *room.claims.pending.pop(draft.name, ())):
                each.job.refuse(each, error)
            return
        drafts = (draft, *room.claims.pending.pop(draft.name, ()))
        now = room.now()
        if claim is not None and room.claims.is_good(claim, draft.name, now):
            for each in drafts:
                self._repeat(each, claim)
            return
        room.claims.lapse(draft.name)
        for each in drafts:
            self._send_one(each, now)
            room.writer.batch.unsent.append(each.job.fail)
        room.look_after_all()

    def _repeat(self, draft: Draft, claim: Claim) -> None:
        """Answer a send whose idem_key is taken."""
        if content_sum(draft.send, draft.payload_hash) != claim.content:
            fault = Conflict("The idem_key was used for another message.", msg_id=claim.msg_id)
            draft.job.refuse(draft, fault)
        elif draft.strict:
            draft.job.refuse(draft, Conflict("This message was sent before.", msg_id=claim.msg_id, duplicate=True))
        else:
            shard = claim.slot % len(self._room.shards)
            draft.job.answer(draft, m.Sent(claim.msg_id, True, shard))

    def _store(self, draft: Draft, now: Now) -> None:
        room, send = self._room, draft.send
        books, batch = room.books, room.writer.batch
        size = len(send.payload)
        if draft.redrive is None:
            books.take_room(size)
        topic = books.topics.get(send.topic) or books.topic(send.topic)
        if not topic.id:
            batch.topics.append((books.number(topic), topic.name))
        topic.incoming += 1
        row = Row(
            seq=books.next_seq(),
            slot=draft.slot,
            topic=topic.id,
            key=send.key,
            ts=now.wall,
            expires=None if send.ttl_ms is None else now.wall + send.ttl_ms,
            nonce=int(room.rng.random() * 65536),
            corr_id=draft.corr_id,
            idem_key=send.idem_key,
            attrs=send.attrs,
            payload_hash=draft.payload_hash,
            payload=send.payload,
            redriven_from=None if draft.redrive is None else draft.redrive[0].msg_id,
        )
        batch.insert(row)
        if draft.redrive is not None:
            dead = draft.redrive[0]
            batch.redriven[row.seq] = dead.seq
            batch.after.append((room.redriven, (row, dead.topic, size)))
        until = 0.0
        if send.delay_ms:
            until = now.mono + send.delay_ms
            batch.states[row.seq] = State(row.seq, KIND_DELAYED, now.wall + send.delay_ms, 0, 0, (), send.delay_ms)
        shard = draft.slot % len(room.shards)
        batch.after.append((room.shards[shard].stored, (row, until)))
        sent = m.Sent(make_msg_id(row.ts, row.seq, row.slot, row.nonce), False, shard)
        if draft.name:
            self._make_claim(draft, row, sent.msg_id)
        batch.after.append((_sent, (row, draft, sent)))

    def _make_claim(self, draft: Draft, row: Row, msg_id: str) -> None:
        """Claim the idem_key in the message's own commit; who comes meanwhile shares its fate."""
        room = self._room
        claims, batch = room.claims, room.writer.batch
        waiting: list[Draft] = []
        claims.pending[draft.name] = waiting
        number = claims.number(Now(0.0, row.ts))
        content = content_sum(draft.send, draft.payload_hash)
        claim = Claim(number, draft.name, content, msg_id, row.slot, row.ts)
        batch.claims.append(claim)
        batch.after.append((self._claimed, (row, claim)))
        batch.failed.append(partial(_refuse_all, waiting))

    def _claimed(self, made: tuple[Row, Claim]) -> None:
        claims, claim = self._room.claims, made[1]
        claims.made(claim)
        for draft in claims.pending.pop(claim.name, ()):
            self._repeat(draft, claim)


def _refuse_all(drafts: list[Draft], error: PenstockError) -> None:
    for draft in drafts:
        draft.job.refuse(draft, error)


def _sent(done: tuple[Row, Draft, m.Sent]) -> None:
    _, draft, sent = done
    draft.job.answer(draft, sent)
