"""The sending side of a ShardWorker: claims on idem_keys, and rows for the open batch.

A send without idem_key is stored at once. One with an idem_key may have to wait: for the commit of an earlier send of
the same key, or for the disk, when the key was used before. While it waits it stands in `claims.pending`; whoever
ends that wait (the commit loop, or `look_up` here) also answers everybody who joined it.
"""

from __future__ import annotations

from struct import unpack
from typing import TYPE_CHECKING

from penstock.kernel.errors import Busy, Conflict, PenstockError
from penstock.services.mailbox.claims import claim_name, content_sum
from penstock.services.mailbox.ids import make_msg_id, make_msg_ids
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
    from penstock.services.mailbox.disk_waits import DiskWaits
    from penstock.services.mailbox.shards.topics import Topic
    from penstock.services.mailbox.state import MailboxParts

OneSend = SendJob | SendItem


class SendIntake:
    """Turns sends into rows of the open batch."""

    def __init__(self, parts: MailboxParts, waits: DiskWaits) -> None:
        self._state = parts.state
        self._ledger = parts.state.ledger
        self._claims = parts.state.claims
        self._rng = parts.state.rng
        self._writer = parts.writer
        self._reader = parts.reader
        self._dispatcher = parts.dispatcher
        self._waits = waits

    def send_batch(self, job: SendBatchJob, now: Now) -> None:
        """Store the messages of a job, each on its own."""
        for part in job.value:
            if isinstance(part, SendRun):
                self._send_run(part, now)
            else:
                self.send(part, now)

    def _send_run(self, run: SendRun, now: Now) -> None:
        """Store a run in one go, if there is room for all of it."""
        ledger, batch, sends = self._ledger, self._writer.batch, run.sends
        count, size = len(sends), run.bytes
        if not ledger.take_rooms(count, size):
            for item in run.items():
                self.send(item, now)
            return
        topic = self._topic(run.topic)
        topic.incoming += count
        number, slot, corr_id, wall, first = topic.id, run.slot, run.meta.corr_id, now.wall, ledger.seq + 1
        nonces = unpack(f"{count}H", self._rng.randbytes(2 * count))
        names = make_msg_ids(wall, first, slot, nonces)
        for seq, (send, total, nonce, name) in enumerate(zip(sends, run.sums, nonces, names, strict=True), first):
            row = MessageRow(
                seq, slot, number, None, wall, None if send.ttl_ms is None else wall + send.ttl_ms, nonce, corr_id,
                None, send.attrs, total, send.payload, None, 0, name,
            )  # fmt: skip
            run.rows.append(row)
        ledger.seq += count
        batch.rows += run.rows
        batch.bytes += size
        batch.stored.append(run)

    def _topic(self, name: str) -> Topic:
        """Return a topic that is about to get a message: at its first one it gets a number."""
        topic = self._ledger.topics.get(name) or self._ledger.topic(name)
        if not topic.id:
            self._writer.batch.topics.append((self._ledger.number(topic), topic.name))
        return topic

    def send(self, send: OneSend, now: Now) -> None:
        """Store one message, or let it wait for the outcome of an earlier one with its idem_key."""
        try:
            # A redriven message is a new one: its idem_key was spent by the first.
            unclaimed = send.value.idem_key is None or send.redrive is not None
            if unclaimed or self._claim(send, send.value.idem_key or "", now):
                self._store(send, now)
        except PenstockError as error:
            send.refuse(error)

    def _claim(self, send: OneSend, idem_key: str, now: Now) -> bool:
        """Claim the idem_key; False when the outcome of an earlier claim has to be waited for."""
        claims = self._claims
        name = send.claim_name = claim_name(send.value.topic, idem_key)
        waiting = claims.pending.get(name)
        if waiting is not None:
            waiting.append(send)
            return False
        number = claims.find(name)
        if number is not None:
            self._waits.start(self._look_up(name, number), lambda error: self._refuse_pending(name, error))
            claims.pending[name] = [send]
            return False
        if claims.full(now):
            raise Busy("Too many idem_keys are remembered.", limit="dedup")
        return True

    async def _look_up(self, name: bytes, number: int) -> None:
        """Judge the sends that wait for a claim which the disk holds."""
        claim = await self._reader.ask(self._reader.reads.claim, number)
        sends, now = self._claims.pending.pop(name, []), self._state.now()
        if claim is not None and self._claims.is_good(claim, name, now):
            for send in sends:
                answer_repeat(send, claim, len(self._state.shards))
            return
        self._claims.lapse(name)
        for send in sends:
            self.send(send, now)
        self._dispatcher.wake_all()

    def _refuse_pending(self, name: bytes, error: PenstockError) -> None:
        """Release a claim that could not be looked up, and everybody who waits for it: the next send asks again."""
        refuse_all(self._claims.pending.pop(name, []), error)

    def _store(self, send: OneSend, now: Now) -> None:
        ledger, batch, value = self._ledger, self._writer.batch, send.value
        if send.redrive is None:
            ledger.take_room(len(value.payload))
        topic = self._topic(value.topic)
        topic.incoming += 1
        ledger.seq = seq = ledger.seq + 1
        wall, slot, nonce = now.wall, send.slot, int(self._rng.random() * 65536)
        send.row = row = MessageRow(
            seq, slot, topic.id, value.key, wall, None if value.ttl_ms is None else wall + value.ttl_ms, nonce,
            send.corr_id, value.idem_key, value.attrs, send.payload_hash, value.payload,
            None if send.redrive is None else send.redrive[0].msg_id, 0, make_msg_id(wall, seq, slot, nonce),
        )  # fmt: skip
        batch.insert(row)
        if send.redrive is not None:
            batch.redriven[seq] = send.redrive[0].seq
        if value.delay_ms:
            send.until = now.mono + value.delay_ms
            batch.states[seq] = MessageState(seq, KIND_DELAYED, wall + value.delay_ms, 0, 0, (), value.delay_ms)
        if send.claim_name:
            send.claim = self._make_claim(send, row)
            batch.claims.append(send.claim)
        batch.stored.append(send)

    def _make_claim(self, send: OneSend, row: MessageRow) -> IdemClaim:
        """Claim the idem_key in the message's own commit; whoever sends it meanwhile shares the fate of this one."""
        self._claims.pending[send.claim_name] = []
        number = self._claims.number(Now(0.0, row.ts))
        content = content_sum(send.value, send.payload_hash)
        return IdemClaim(number, send.claim_name, content, row.name, row.slot, row.ts)


def answer_repeat(send: OneSend, claim: IdemClaim, shards: int) -> None:
    """Answer a send whose idem_key is taken."""
    if content_sum(send.value, send.payload_hash) != claim.content:
        send.refuse(Conflict("The idem_key was used for another message.", msg_id=claim.msg_id))
    elif send.strict:
        send.refuse(Conflict("This message was sent before.", msg_id=claim.msg_id, duplicate=True))
    else:
        send.answer(claim.msg_id, claim.slot % shards, duplicate=True)
