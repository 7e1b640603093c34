"""The dispatcher: turns contract values into jobs for the workers. It checks and routes; it decides nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from blake3 import blake3

from penstock.contracts import mailbox as m
from penstock.contracts.mailbox_rules import ATTRS_BYTES_MAX, ATTRS_MAX
from penstock.kernel.errors import Busy, Integrity, NotFound, OverLimit, PenstockError
from penstock.net.promise import Promise
from penstock.services.mailbox.ids import MessageName, slot_of
from penstock.services.mailbox.jobs import (
    BatchPromise,
    RecvJob,
    RequestMeta,
    SendBatchJob,
    SendItem,
    SendJob,
    SendRun,
    SettleBatchJob,
    SettleItem,
    SettleJob,
)
from penstock.services.mailbox.shard import RecvQuery
from penstock.services.mailbox.topics import Topic

if TYPE_CHECKING:
    from penstock.services.mailbox.state import MailboxState

D = TypeVar("D", SendItem, SendRun)
Refused = Mapping[int, PenstockError]
Named = tuple[m.Settlement, MessageName | None]

# An answer to recv holds no more payload than this, or one message.
ANSWER_BYTES_MAX: Final = 4 << 20
_DRAINING = "The mailbox is draining."


class Dispatcher:
    """Makes jobs and hands them to the worker that owns the slot."""

    def __init__(self, room: MailboxState) -> None:
        """Work for this mailroom."""
        self._room = room
        self._payload_bytes_max = room.options.payload_bytes_max

    # --- send

    def _check(self, send: m.Send) -> bytes:
        """Raise what is wrong with a message; returns the digest of its payload."""
        payload = send.payload
        if len(payload) > self._payload_bytes_max:
            raise OverLimit(f"The payload is above {self._payload_bytes_max} bytes.", limit="payload_bytes")
        if send.attrs:
            _check_attrs(send.attrs)
        digest = blake3(payload).digest()
        if send.payload_hash is not None and send.payload_hash[3:] != digest.hex():
            self._room.integrity["payload_hash"].value += 1
            raise Integrity("The payload does not match its payload_hash.", reason="payload_hash")
        return digest

    def _slot(self, send: m.Send) -> int:
        topic = self._room.ledger.topics.get(send.topic) if send.key is None else None
        return slot_of(send.topic, send.key) if topic is None else topic.slot

    def send(self, send: m.Send, meta: RequestMeta) -> Promise:
        """Store one message; the promise is kept when it is durable."""
        self.check_intake()
        job = SendJob(send, self._slot(send), self._check(send), meta)
        self._room.worker_of(job.slot).offer(job)
        return job.promise

    def send_batch(self, batch: Sequence[m.Send], meta: RequestMeta, refused: Refused) -> BatchPromise:
        """Store many, each on its own but those refused already: one job a worker, and one answer for all."""
        self.check_intake()
        bulk = BatchPromise(len(batch), meta.codec)
        groups: dict[int, list[SendItem | SendRun]] = {}
        run: SendRun | None = None
        for place, send in enumerate(batch):
            try:
                if place in refused:
                    raise refused[place]
                digest = self._check(send)
            except PenstockError as error:
                bulk.put(place, meta.codec.refused_send(error))
                continue
            if send.idem_key is not None or send.key is not None or send.delay_ms:
                run = None
                self._group(groups, self._draft(send, digest, bulk, meta)).place = place
                continue
            if run is None or run.topic != send.topic:
                run = self._group(groups, SendRun(send.topic, self._slot(send), bulk, meta))
            run.sends.append(send)
            run.sums.append(digest)
            run.places.append(place)
        self._offer_all(groups, bulk, meta)
        return bulk

    def _draft(self, send: m.Send, digest: bytes, bulk: BatchPromise, meta: RequestMeta) -> SendItem:
        draft = SendItem(send, self._slot(send), digest, meta)
        draft.bulk = bulk
        return draft

    def _group(self, groups: dict[int, list[SendItem | SendRun]], part: D) -> D:
        groups.setdefault(self._room.worker_of(part.slot).index, []).append(part)
        return part

    def _offer_all(self, groups: dict[int, list[SendItem | SendRun]], bulk: BatchPromise, meta: RequestMeta) -> None:
        for index, parts in groups.items():
            try:
                self._room.workers[index].offer(SendBatchJob(parts, bulk, meta))
            except PenstockError as error:
                for part in parts:
                    part.refuse(error)

    def check_intake(self) -> None:
        """Refuse new sends and receives while draining or being cut into other shards."""
        room = self._room
        if room.draining or room.switching:
            raise Busy(_DRAINING if room.draining else "The shards are being rebound.", queue="work")
        room.check_ready()

    # --- recv

    def recv(self, recv: m.Recv, meta: RequestMeta, owner: object = None) -> RecvJob:
        """Ask the shards of a topic for messages."""
        self.check_intake()
        room = self._room
        room.options.rules.check_visibility(recv.visibility_ms)
        topic = room.ledger.topic(recv.topic)
        bytes_max = min(recv.max_bytes or ANSWER_BYTES_MAX, ANSWER_BYTES_MAX)
        want = RecvQuery(recv.max_messages, recv.visibility_ms, bytes_max, owner)
        job = RecvJob(want, topic, recv.wait_ms, meta)
        job.path = self._path(topic)
        try:
            room.workers[job.path[-1] % len(room.workers)].offer(job)
        except Busy:
            room.idle(topic)
            raise
        return job

    def _path(self, topic: Topic) -> list[int]:
        """Name the shards to ask, in rotating order: all that may have something of the topic."""
        lanes = [*topic.lanes] or [topic.slot % len(self._room.shards)]
        if len(lanes) > 1:
            lanes = _rotated(lanes, topic.turn)
            topic.turn += 1
        return lanes

    # --- settlements

    def settle(self, value: m.Settlement, name: MessageName | None, meta: RequestMeta) -> Promise:
        """Ack, nack or extend one message; `name` is what its msg_id says."""
        job = SettleJob(value, _known(name), meta)
        self._hand_over(job.name.slot, job)
        return job.promise

    def settle_batch(self, values: Sequence[Named], meta: RequestMeta, refused: Refused) -> BatchPromise:
        """Settle many, each on its own but those refused already."""
        bulk = BatchPromise(len(values), meta.codec)
        groups: dict[int, list[SettleItem]] = {}
        for place, (value, name) in enumerate(values):
            try:
                if place in refused:
                    raise refused[place]
                item = SettleItem(value, _known(name), place)
            except PenstockError as error:
                bulk.put(place, meta.codec.refused_settle(error))
                continue
            groups.setdefault(self._room.worker_of(item.name.slot).index, []).append(item)
        for items in groups.values():
            job = SettleBatchJob(items, bulk, meta)
            try:
                self._hand_over(items[0].name.slot, job)
            except PenstockError as error:
                for item in items:
                    item.refuse(error)
        return bulk

    def _hand_over(self, slot: int, job: SettleJob | SettleBatchJob) -> None:
        self._room.check_ready()
        if self._room.switching:
            raise Busy("The shards are being rebound.", queue="work")
        self._room.worker_of(slot).work.try_send(job)

    def topic_of(self, name: MessageName | None) -> str | None:
        """Say which topic a message in RAM belongs to; None when it is not in RAM."""
        if name is None:
            return None
        message = self._room.shard_of(name.slot).messages.get(name.seq)
        return None if message is None else message.lane.topic.name

    def gave_out(self, name: MessageName, receipt: str) -> bool:
        """Tell whether a receipt is one that this mailbox made for this message, now or in an earlier life."""
        read = self._room.ledger.receipts.read(receipt)
        return read is not None and read[0] == name.seq


def _check_attrs(attrs: dict[str, str]) -> None:
    if len(attrs) > ATTRS_MAX:
        raise OverLimit(f"A message has at most {ATTRS_MAX} attrs.", limit="attrs")
    if sum(len(name.encode()) + len(value.encode()) for name, value in attrs.items()) > ATTRS_BYTES_MAX:
        raise OverLimit(f"The attrs are above {ATTRS_BYTES_MAX} bytes.", limit="attrs_bytes")


def _known(name: MessageName | None) -> MessageName:
    if name is None:
        raise NotFound("There is no such message.")
    return name


def _rotated(shards: list[int], turn: int) -> list[int]:
    start = turn % len(shards)
    return shards[start:] + shards[:start]
