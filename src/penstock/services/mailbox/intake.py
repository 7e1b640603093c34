"""The sending side of a ShardWorker: claims on idem_keys, and rows for the open batch.

A send without idem_key is stored at once. One with an idem_key may have to wait: for the commit of an earlier send of
the same key, or for the disk, when the key was used before. While it waits it stands in `claims.pending`; whoever
ends that wait (the commit loop, or `look_up` here) also answers everybody who joined it.
"""

from __future__ import annotations

from struct import unpack
from typing import TYPE_CHECKING

from penstock.contracts.mailbox_rules import size_of
from penstock.kernel.errors import Busy, Conflict, PenstockError
from penstock.services.mailbox.claims import claim_name, claim_names, content_sum
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
    TopicRow,
)
from penstock.services.mailbox.shards.topics import NO_SETTINGS, Topic

if TYPE_CHECKING:
    from penstock.contracts import mailbox as m
    from penstock.services.mailbox.claims import IdemClaims
    from penstock.services.mailbox.disk_waits import DiskWaits
    from penstock.services.mailbox.state import MailboxParts, MailboxState

OneSend = SendJob | SendItem


class SendIntake:
    """Turns sends into rows of the open batch."""

    def __init__(self, parts: MailboxParts, waits: DiskWaits) -> None:
        self._state = parts.state
        self._ledger = parts.state.ledger
        self._ledgers = parts.state.claims
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
        """Store a run in one go, if there is room for all of it and every idem_key is new; else one by one."""
        names = self._new_names(run) if run.claiming else []
        if names is None or not self._ledger.take_rooms(len(run.sends), run.bytes):
            for item in run.items():
                self.send(item, now)
            return
        topic = self._topic(run.topic)
        self._store_run(run, topic, now)
        if names:
            self._claim_run(run, topic, names, now)

    def _store_run(self, run: SendRun, topic: Topic, now: Now) -> None:
        ledger, batch, sends, count = self._ledger, self._writer.batch, run.sends, len(run.sends)
        topic.incoming += count
        number, slot, corr_id, wall, first = topic.id, run.slot, run.meta.corr_id, now.wall, ledger.seq + 1
        nonces = unpack(f"{count}H", self._rng.randbytes(2 * count))
        names = make_msg_ids(wall, first, slot, nonces)
        for seq, (send, total, nonce, name) in enumerate(zip(sends, run.sums, nonces, names, strict=True), first):
            row = MessageRow(
                seq, slot, number, None, wall, None if send.ttl_ms is None else wall + send.ttl_ms, nonce, corr_id,
                send.idem_key, send.attrs, total, send.payload, None, 0, name,
            )  # fmt: skip
            run.rows.append(row)
        ledger.seq += count
        batch.rows += run.rows
        batch.bytes += run.bytes
        batch.stored.append(run)

    def _new_names(self, run: SendRun) -> list[bytes] | None:
        """Name the claims of a run; None when one may be taken, or each has to be judged on its own."""
        topic = self._ledger.topics.get(run.topic) or Topic(0, run.topic)
        if topic.settings is not NO_SETTINGS:
            return None
        claims = run.claims = self._ledgers.usual
        share = claims.entries_max * self._state.options.tenant_share
        if topic.tenant is not None and claims.live + len(run.sends) > share:
            return None
        names = claim_names(topic.name, (send.idem_key for send in run.sends), topic.generation)
        return names if claims.all_new(names) else None

    def _claim_run(self, run: SendRun, topic: Topic, names: list[bytes], now: Now) -> None:
        """Claim the idem_keys of a run in its own commit; whoever sends one meanwhile shares its fate."""
        claims, wall, slot, count = run.claims, now.wall, run.slot, len(names)
        self._state.note_claim(topic, now)
        if topic.tenant is not None:
            claims.shares.note(topic.tenant, wall, claims.window_ms, count)
        numbers = range(first := claims.number(now, count), first + count)
        run.claimed = [
            IdemClaim(number, name, content_sum(send, row.payload_hash), row.name, slot, wall)
            for number, name, send, row in zip(numbers, names, run.sends, run.rows, strict=True)
        ]
        claims.pending.update((name, []) for name in names)
        self._writer.batch.claims += run.claimed

    def _topic(self, name: str) -> Topic:
        """Return a topic that is about to get a message: at its first one it gets a number."""
        topic = self._ledger.topics.get(name) or self._ledger.topic(name)
        if not topic.id:
            self._writer.batch.topics.append(TopicRow(self._ledger.number(topic), topic.name, topic.form))
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
        # A topic that is not there yet is only made when its message is stored.
        topic = self._ledger.topics.get(send.value.topic) or Topic(0, send.value.topic)
        claims = send.claims = self._ledgers.of(topic.settings)
        name = send.claim_name = claim_name(topic.name, idem_key, topic.generation)
        waiting = claims.pending.get(name)
        if waiting is not None:
            waiting.append(send)
            return False
        number = claims.find(name)
        if number is not None:
            self._waits.start(self._look_up(claims, name, number), lambda error: _refuse_pending(claims, name, error))
            claims.pending[name] = [send]
            return False
        if topic.tenant is not None:
            self._take_share(claims, topic.tenant, now)
        if claims.full(now):
            self._make_room(claims, topic, now)
        return True

    def _take_share(self, claims: IdemClaims, tenant: str, now: Now) -> None:
        """Refuse a tenant that has claimed its share of a ledger which is filling up."""
        most = claims.entries_max * self._state.options.tenant_share
        full = claims.live >= most and claims.shares.full(tenant, most, now.wall, claims.window_ms)
        if full and self._state.options.tenant_share < 1:
            raise Busy("This tenant has its share of the idem_keys that are remembered.", limit="dedup_share")
        claims.shares.note(tenant, now.wall, claims.window_ms)

    def _make_room(self, claims: IdemClaims, topic: Topic, now: Now) -> None:
        """Forget the oldest claim, where the topic wants that; otherwise the send is refused."""
        dedup = topic.settings.dedup
        if dedup is None or dedup.on_full == "refuse":
            raise Busy("Too many idem_keys are remembered.", limit="dedup")
        claims.evict(now)

    async def _look_up(self, claims: IdemClaims, name: bytes, number: int) -> None:
        """Judge the sends that wait for a claim which the disk holds."""
        claim = await self._reader.ask(self._reader.reads.claim, number)
        sends, now = claims.pending.pop(name, []), self._state.now()
        if claim is not None and claims.is_good(claim, name, now):
            for send in sends:
                answer_repeat(send, claim, self._state)
            return
        claims.lapse(name)
        for send in sends:
            self.send(send, now)
        self._dispatcher.wake_all()

    def _store(self, send: OneSend, now: Now) -> None:
        ledger, batch, value = self._ledger, self._writer.batch, send.value
        if send.redrive is None:
            ledger.take_room(size_of(value))
        topic = self._topic(value.topic)
        topic.incoming += 1
        delay_ms, ttl_ms = value.delay_ms, value.ttl_ms
        if topic.settings is not NO_SETTINGS:
            delay_ms, ttl_ms = _times(value, topic.settings)
        ledger.seq = seq = ledger.seq + 1
        wall, slot, nonce = now.wall, send.slot, int(self._rng.random() * 65536)
        send.row = row = MessageRow(
            seq, slot, topic.id, value.key, wall, None if ttl_ms is None else wall + ttl_ms, nonce,
            send.corr_id, value.idem_key, value.attrs, send.payload_hash, value.payload,
            None if send.redrive is None else send.redrive[0].msg_id, 0, make_msg_id(wall, seq, slot, nonce),
            value.group, value.meta, None if value.origin is None else (value.origin.msg_id, value.origin.ts),
        )  # fmt: skip
        batch.insert(row)
        if send.redrive is not None:
            batch.redriven[seq] = send.redrive[0].seq
        if delay_ms:
            send.until = now.mono + delay_ms
            batch.states[seq] = MessageState(seq, KIND_DELAYED, wall + delay_ms, 0, 0, (), delay_ms)
        if send.claim_name:
            send.claim = self._make_claim(send, row)
            batch.claims.append(send.claim)
        batch.stored.append(send)

    def _make_claim(self, send: OneSend, row: MessageRow) -> IdemClaim:
        """Claim the idem_key in the message's own commit; whoever sends it meanwhile shares the fate of this one."""
        self._state.note_claim(self._ledger.topic(send.value.topic), Now(0.0, row.ts))
        send.claims.pending[send.claim_name] = []
        number = send.claims.number(Now(0.0, row.ts))
        content = content_sum(send.value, send.payload_hash)
        return IdemClaim(number, send.claim_name, content, row.name, row.slot, row.ts)


def _refuse_pending(claims: IdemClaims, name: bytes, error: PenstockError) -> None:
    """Release a claim that could not be looked up, and everybody who waits for it: the next send asks again."""
    refuse_all(claims.pending.pop(name, []), error)


def _times(send: m.Send, settings: m.TopicSettings) -> tuple[int, int | None]:
    """Say how long a message is delayed and lives: as it says itself, or as its topic does."""
    delay_ms = send.delay_ms if send.delay_ms is not None else settings.delay_ms or 0
    if send.ttl_ms is not None or settings.retention_s is None:
        return delay_ms, send.ttl_ms
    return delay_ms, settings.retention_s * 1000


def _first_wins(send: OneSend, state: MailboxState) -> bool:
    topic = state.ledger.topics.get(send.value.topic)
    dedup = None if topic is None else topic.settings.dedup
    return dedup is not None and dedup.mode == "first_wins"


def answer_repeat(send: OneSend, claim: IdemClaim, state: MailboxState) -> None:
    """Answer a send whose idem_key is taken."""
    shards = len(state.shards)
    if content_sum(send.value, send.payload_hash) != claim.content and not _first_wins(send, state):
        send.refuse(Conflict("The idem_key was used for another message.", msg_id=claim.msg_id))
    elif send.strict:
        send.refuse(Conflict("This message was sent before.", msg_id=claim.msg_id, duplicate=True))
    else:
        send.answer(claim.msg_id, claim.slot % shards, duplicate=True)
