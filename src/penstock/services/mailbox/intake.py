"""The sending side of a ShardWorker: claims on idem_keys, rows for the batch, answers when it is durable."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.kernel.errors import Busy, Conflict, PenstockError
from penstock.services.mailbox.claims import claim_name, content_sum
from penstock.services.mailbox.ids import make_msg_id
from penstock.services.mailbox.jobs import (
    SendBatchJob,
    SendItem,
    SendJob,
    SendRun,
    refuse_all,
)
from penstock.services.mailbox.ledger import Now
from penstock.services.mailbox.rows import (
    KIND_DELAYED,
    IdemClaim,
    MessageRow,
    MessageState,
)

if TYPE_CHECKING:
    from penstock.services.mailbox.state import MailboxState
    from penstock.services.mailbox.topics import Topic

Incoming = SendJob | SendItem


class SendIntake:
    """Turns drafts into rows of the open batch."""

    def __init__(self, room: MailboxState, spawn: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        """Look claims up in a task made by `spawn`."""
        self._room = room
        self._spawn = spawn

    def send(self, job: SendJob, now: Now) -> None:
        """Store the message of a job."""
        batch = self._room.writer.batch
        before = len(batch.rows)
        self._send_one(job, now)
        if len(batch.rows) > before:
            batch.unsent.append(job.fail)

    def send_batch(self, job: SendBatchJob, now: Now) -> None:
        """Store the messages of a job, each on its own."""
        batch = self._room.writer.batch
        before = len(batch.rows)
        for part in job.value:
            if isinstance(part, SendRun):
                self._send_run(part, now)
            else:
                self._send_one(part, now)
        if len(batch.rows) > before:
            batch.unsent.append(job.fail)

    def _send_run(self, run: SendRun, now: Now) -> None:
        """Store a run in one go, if there is room for all of it."""
        room = self._room
        ledger, batch = room.ledger, room.writer.batch
        size = sum(len(send.payload) for send in run.sends)
        if not ledger.take_rooms(len(run.sends), size):
            for draft in run.drafts():
                self._send_one(draft, now)
            return
        topic = self._topic(run.topic)
        topic.incoming += len(run.sends)
        number, slot, corr_id, wall, random = topic.id, run.slot, run.meta.corr_id, now.wall, room.rng.random
        rows: list[MessageRow] = []
        for seq, (send, total) in enumerate(zip(run.sends, run.sums, strict=True), ledger.seq + 1):
            nonce = int(random() * 65536)
            row = MessageRow(
                seq=seq, slot=slot, topic=number, key=None, ts=wall, nonce=nonce, corr_id=corr_id, idem_key=None,
                expires=None if send.ttl_ms is None else wall + send.ttl_ms, attrs=send.attrs, payload_hash=total,
                payload=send.payload, name=make_msg_id(wall, seq, slot, nonce),
            )  # fmt: skip
            rows.append(row)
        ledger.seq += len(rows)
        batch.rows += rows
        batch.bytes += size
        batch.stored.append((self._run_stored, (run, rows)))

    def _run_stored(self, done: tuple[SendRun, list[MessageRow]]) -> None:
        run, rows = done
        shards = self._room.shards
        shard = run.slot % len(shards)
        shards[shard].run_stored(rows)
        run.answer([row.name for row in rows], shard)

    def _topic(self, name: str) -> Topic:
        """Return a topic that is about to get a message: at its first one it gets a number."""
        ledger = self._room.ledger
        topic = ledger.topics.get(name) or ledger.topic(name)
        if not topic.id:
            self._room.writer.batch.topics.append((ledger.number(topic), topic.name))
        return topic

    def _send_one(self, draft: Incoming, now: Now) -> None:
        try:
            # A redriven message is a new one: its idem_key was spent by the first.
            unclaimed = draft.value.idem_key is None or draft.redrive is not None
            if unclaimed or self._claim(draft, draft.value.idem_key or "", now):
                self._store(draft, now)
        except PenstockError as error:
            draft.refuse(error)

    def _claim(self, draft: Incoming, idem_key: str, now: Now) -> bool:
        """Claim the idem_key; False when the outcome of an earlier claim has to be waited for."""
        claims = self._room.claims
        name = draft.name = claim_name(draft.value.topic, idem_key)
        waiting = claims.pending.get(name)
        if waiting is not None:
            waiting.append(draft)
            return False
        number = claims.find(name)
        if number is not None:
            self._spawn(self._look_up(draft, number))
            claims.pending[name] = []
            return False
        if claims.full(now):
            raise Busy("Too many idem_keys are remembered.", limit="dedup")
        return True

    async def _look_up(self, draft: Incoming, number: int) -> None:
        """Judge a draft by the claim that the disk holds."""
        room = self._room
        claim: IdemClaim | None = None
        try:
            claim = await room.ask(room.engine.claim, number)
        except PenstockError as error:
            for each in (draft, *room.claims.pending.pop(draft.name, ())):
                each.refuse(error)
            return
        drafts: tuple[Incoming, ...] = (draft, *room.claims.pending.pop(draft.name, ()))
        now = room.now()
        if claim is not None and room.claims.is_good(claim, draft.name, now):
            for each in drafts:
                self._repeat(each, claim)
            return
        room.claims.lapse(draft.name)
        for each in drafts:
            self._send_one(each, now)
            room.writer.batch.unsent.append(each.fail)
        room.look_after_all()

    def _repeat(self, draft: Incoming, claim: IdemClaim) -> None:
        """Answer a send whose idem_key is taken."""
        if content_sum(draft.value, draft.payload_hash) != claim.content:
            draft.refuse(Conflict("The idem_key was used for another message.", msg_id=claim.msg_id))
        elif draft.strict:
            draft.refuse(Conflict("This message was sent before.", msg_id=claim.msg_id, duplicate=True))
        else:
            draft.answer(claim.msg_id, claim.slot % len(self._room.shards), duplicate=True)

    def _store(self, draft: Incoming, now: Now) -> None:
        room, send = self._room, draft.value
        ledger, batch = room.ledger, room.writer.batch
        size = len(send.payload)
        if draft.redrive is None:
            ledger.take_room(size)
        topic = self._topic(send.topic)
        topic.incoming += 1
        ledger.seq = seq = ledger.seq + 1
        nonce = int(room.rng.random() * 65536)
        msg_id = make_msg_id(now.wall, seq, draft.slot, nonce)
        row = MessageRow(
            seq=seq,
            slot=draft.slot,
            topic=topic.id,
            key=send.key,
            ts=now.wall,
            expires=None if send.ttl_ms is None else now.wall + send.ttl_ms,
            nonce=nonce,
            corr_id=draft.corr_id,
            idem_key=send.idem_key,
            attrs=send.attrs,
            payload_hash=draft.payload_hash,
            payload=send.payload,
            redriven_from=None if draft.redrive is None else draft.redrive[0].msg_id,
            name=msg_id,
        )
        batch.insert(row)
        if draft.redrive is not None:
            dead = draft.redrive[0]
            batch.redriven[row.seq] = dead.seq
            batch.stored.append((room.redriven, (row, dead.topic, size)))
        until = 0.0
        if send.delay_ms:
            until = now.mono + send.delay_ms
            batch.states[row.seq] = MessageState(
                row.seq, KIND_DELAYED, now.wall + send.delay_ms, 0, 0, (), send.delay_ms
            )
        if draft.name:
            self._make_claim(draft, row)
        batch.stored.append((self._stored, (row, until, draft)))

    def _stored(self, done: tuple[MessageRow, float, Incoming]) -> None:
        """Let a message whose commit is done be delivered, and answer its sender."""
        row, until, draft = done
        shards = self._room.shards
        shard = row.slot % len(shards)
        shards[shard].stored(row, until)
        if until and self._room.on_deadline is not None:
            self._room.on_deadline(until)
        draft.answer(row.name, shard)

    def _make_claim(self, draft: Incoming, row: MessageRow) -> None:
        """Claim the idem_key in the message's own commit; who comes meanwhile shares its fate."""
        room = self._room
        claims, batch = room.claims, room.writer.batch
        waiting: list[Incoming] = []
        claims.pending[draft.name] = waiting
        number = claims.number(Now(0.0, row.ts))
        content = content_sum(draft.value, draft.payload_hash)
        claim = IdemClaim(number, draft.name, content, row.name, row.slot, row.ts)
        batch.claims.append(claim)
        batch.stored.append((self._claimed, claim))
        batch.failed.append(partial(refuse_all, waiting))

    def _claimed(self, claim: IdemClaim) -> None:
        claims = self._room.claims
        claims.made(claim)
        for draft in claims.pending.pop(claim.name, ()):
            self._repeat(draft, claim)
