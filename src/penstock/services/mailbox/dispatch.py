"""The dispatcher: turns contract values into jobs and hands each to the worker of its shard. Here a 429 is made.

It checks what needs no state but bounds and hashes, and refuses while the service drains or the shards are cut anew. It
also knows all workers, so whoever changed the state wakes them through it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from blake3 import blake3

from penstock.contracts import mailbox as m
from penstock.contracts.mailbox_rules import ATTRS_BYTES_MAX, ATTRS_MAX, payload_too_large, size_of
from penstock.kernel.errors import Busy, Integrity, NotFound, OverLimit, PenstockError
from penstock.net.promise import Promise
from penstock.services.mailbox.ids import MessageName, slot_of
from penstock.services.mailbox.jobs import (
    BatchPromise,
    PlacedSettlement,
    RecvJob,
    RequestMeta,
    SendBatchJob,
    SendItem,
    SendJob,
    SendRun,
    SettleBatchJob,
    SettleJob,
)
from penstock.services.mailbox.shards.shard import RecvQuery, Shard
from penstock.services.mailbox.shards.topics import NO_SETTINGS, Message, Topic

if TYPE_CHECKING:
    from penstock.services.mailbox.shard_worker import ShardWorker
    from penstock.services.mailbox.state import MailboxState
    from penstock.services.mailbox.writer import Writer

D = TypeVar("D", SendItem, SendRun)
Refused = Mapping[int, PenstockError]
Groups = dict[int, list[SendItem | SendRun]]

# An answer to recv holds no more payload than this, or one message.
ANSWER_BYTES_MAX: Final = 4 << 20
_DRAINING = "The mailbox is draining."


class Dispatcher:
    """Stands in front of the workers."""

    def __init__(self, state: MailboxState, writer: Writer) -> None:
        self._state = state
        self._ledger = state.ledger
        self._writer = writer
        self._payload_bytes_max = state.options.payload_bytes_max
        self._shares = state.shares
        # Topics that nobody has set up may be used.
        self._auto = state.options.topics_auto
        # Filled by the service; as many as there were shards at start, whatever number there is now.
        self.workers: list[ShardWorker] = []

    # --- the workers

    def worker(self, shard: int) -> ShardWorker:
        """Return the worker that serves a shard."""
        return self.workers[shard % len(self.workers)]

    def worker_of(self, slot: int) -> ShardWorker:
        """Return the worker that serves the shard of a slot."""
        return self.workers[slot % len(self._state.shards) % len(self.workers)]

    def shards_of(self, worker: int) -> list[Shard]:
        """Return the shards that a worker serves now."""
        return self._state.shards[worker :: len(self.workers)]

    def wake_all(self) -> None:
        """Wake every worker that has something to do, and the writer."""
        if self._ledger.starved:
            self._serve_starved()
        for shard in self._state.shards:
            window = shard.window
            if window.notified or window.reads.wanted:
                self.worker(shard.index).wake()
        self._writer.wake()

    def _serve_starved(self) -> None:
        """Offer free leases to the topics that went without, in turn, before others take them."""
        ledger, shards = self._ledger, self._state.shards
        while ledger.starved and not ledger.inflight_full:
            topic = next(iter(ledger.starved))
            del ledger.starved[topic]
            for index in list(topic.lanes):
                self.worker(index).serve(topic, shards[index])

    def notify(self, topic: Topic) -> None:
        """Let every shard look at the receivers of a topic, also where its lanes were made anew."""
        self._state.home_lane(topic)
        for index in list(topic.lanes):
            self._state.shards[index].window.notify(topic)
            self.worker(index).wake()

    def give_back(self, leased: list[tuple[Message, int]]) -> None:
        """Undo leases that their receiver will never see."""
        if leased:
            self._state.undo(leased)
            self.wake_all()

    @property
    def quiet(self) -> bool:
        """Tell whether nothing is queued, being read or on its way to the disk."""
        queued = any(worker.work.depth or worker.requeue.depth for worker in self.workers)
        reading = any(len(shard.window.reads.tracker) for shard in self._state.shards)
        return not (queued or reading or self._writer.batch or self._writer.busy or self._state.claims.pending)

    def check_intake(self) -> None:
        """Refuse new sends and receives while draining or being cut into other shards."""
        state = self._state
        if state.draining or state.switching:
            raise Busy(_DRAINING if state.draining else "The shards are being rebound.", queue="work")
        state.check_ready()

    # --- send

    def send(self, send: m.Send, meta: RequestMeta) -> Promise:
        """Store one message; the promise is kept when it is durable."""
        self.check_intake()
        job = SendJob(send, self._slot(send), self._check(send), meta)
        self.worker_of(job.slot).offer(job)
        return job.promise

    def _slot(self, send: m.Send) -> int:
        return self.slot_for(send.topic, send.key)

    def slot_for(self, name: str, key: str | None) -> int:
        """Place a message, by the rule that its topic began with."""
        topic = self._ledger.topics.get(name)
        if topic is None:
            return slot_of(name, key)
        return topic.slot if key is None else slot_of(name, key, topic.form)

    def _check(self, send: m.Send) -> bytes:
        """Raise what is wrong with a message; returns the digest of its payload."""
        size, most = size_of(send), self._payload_bytes_max
        topic = self._ledger.topics.get(send.topic)
        if topic is not None and topic.tenant in self._shares.crowding:
            raise Busy("This tenant has its share of the backlog.", limit="tenant_share")
        if topic is not None and topic.settings.max_payload is not None:
            most = topic.settings.max_payload
        elif not self._auto:
            self._check_exists(topic)
        if size > most:
            raise payload_too_large(size, most)
        if send.attrs:
            _check_attrs(send.attrs)
        return self._digest(send)

    def _digest(self, send: m.Send) -> bytes:
        """Return the digest of a payload, if it is the one that the sender says."""
        digest = blake3(send.payload).digest()
        if send.payload_hash is not None and send.payload_hash[3:] != digest.hex():
            self._state.integrity["payload_hash"].value += 1
            raise Integrity("The payload does not match its payload_hash.", reason="payload_hash")
        return digest

    def send_batch(self, batch: Sequence[m.Send], meta: RequestMeta, refused: Refused) -> BatchPromise:
        """Store many, each on its own but those refused already: one job a worker, and one answer for all."""
        self.check_intake()
        bulk = BatchPromise(len(batch), meta.codec)
        groups: Groups = {}
        run: SendRun | None = None
        bytes_max = self._payload_bytes_max
        topic, is_plain, hasher = "", False, blake3()
        for place, send in enumerate(batch):
            try:
                if place in refused:
                    raise refused[place]
                if send.topic != topic:
                    topic = send.topic
                    is_plain = self._is_plain(topic)
                if send.attrs or send.meta is not None or not is_plain or len(send.payload) > bytes_max:
                    digest = self._check(send)
                elif send.payload_hash is not None:
                    digest = self._digest(send)
                else:
                    hasher.reset()
                    hasher.update(send.payload)
                    digest = hasher.digest()
            except PenstockError as error:
                bulk.put(place, meta.codec.refused_send(error))
                continue
            if (
                not is_plain or send.key is not None or send.delay_ms or send.group is not None
                or send.meta is not None or send.origin is not None
            ):  # fmt: skip
                run = None
                item = self._group(groups, SendItem(send, self._slot(send), digest, meta))
                item.bulk, item.place = bulk, place
                continue
            claiming = send.idem_key is not None
            if run is None or run.topic != send.topic or run.claiming is not claiming:
                run = self._group(groups, SendRun(send.topic, self._slot(send), bulk, meta, claiming=claiming))
            run.bytes += len(send.payload)
            run.sends.append(send)
            run.sums.append(digest)
            run.places.append(place)
        for index, parts in groups.items():
            try:
                self.workers[index].offer(SendBatchJob(parts, bulk, meta))
            except PenstockError as error:
                for part in parts:
                    part.refuse(error)
        return bulk

    def _is_plain(self, name: str) -> bool:
        """Tell whether a topic has no settings, so that what holds for all holds for its messages."""
        topic = self._ledger.topics.get(name)
        return self._auto and not self._shares.crowding and (topic is None or topic.settings is NO_SETTINGS)

    def usable(self, name: str) -> bool:
        """Tell whether a topic may be sent to."""
        topic = self._ledger.topics.get(name)
        return self._auto or (topic is not None and topic.configured)

    def _check_exists(self, topic: Topic | None) -> None:
        """Refuse a topic that nobody has set up, where only those may be used."""
        if topic is None or not topic.configured:
            raise NotFound("There is no such topic: mailbox.topics.auto is off, so it needs settings first.")

    def _group(self, groups: Groups, part: D) -> D:
        groups.setdefault(self.worker_of(part.slot).index, []).append(part)
        return part

    # --- recv

    def recv(self, recv: m.Recv, meta: RequestMeta, owner: object = None) -> RecvJob:
        """Ask the shards of a topic for messages."""
        self.check_intake()
        if not self._auto:
            self._check_exists(self._ledger.topics.get(recv.topic))
        topic = self._ledger.topic(recv.topic)
        visibility_ms = self._visibility_ms(recv.visibility_ms, topic)
        bytes_max = min(recv.max_bytes or ANSWER_BYTES_MAX, ANSWER_BYTES_MAX)
        job = RecvJob(RecvQuery(recv.max_messages, visibility_ms, bytes_max, owner), topic, recv.wait_ms, meta)
        job.path = self._path(topic)
        try:
            self.worker(job.path[-1]).offer(job)
        except Busy:
            self._state.forget_idle(topic)
            raise
        return job

    def _visibility_ms(self, asked: int | None, topic: Topic) -> int:
        """Say how long a lease lasts: as asked for, else as the topic says, else as usual."""
        options = self._state.options
        if asked is not None:
            options.rules.check_visibility(asked)
            return asked
        own = topic.settings.visibility_ms
        return options.default_visibility_ms if own is None else own

    def _path(self, topic: Topic) -> list[int]:
        """Name the shards to ask, the first of them last: all that may have something of the topic, in rotating order.

        Where one receive takes several messages of a key, the shard with the oldest one comes first. Its answer then
        begins with the longest waiting key, and no key waits behind younger ones.
        """
        lanes = [*topic.lanes] or [topic.slot % len(self._state.shards)]
        if len(lanes) > 1 and topic.settings.key_batch > 1:
            return sorted(lanes, key=lambda index: topic.lanes[index].oldest, reverse=True)
        if len(lanes) > 1:
            start = topic.turn % len(lanes)
            lanes = lanes[start:] + lanes[:start]
            topic.turn += 1
        return lanes

    # --- settlements

    def settle(self, value: m.Settlement, name: MessageName | None, meta: RequestMeta) -> Promise:
        """Ack, nack or extend one message; `name` is what its msg_id says."""
        if name is None:
            raise NotFound("There is no such message.")
        job = SettleJob(value, name, meta)
        self._hand_over(job, name.slot)
        return job.promise

    def settle_batch(
        self, values: Sequence[m.Settlement], names: Sequence[MessageName | None], meta: RequestMeta, refused: Refused
    ) -> BatchPromise:
        """Settle many, each on its own but those refused already: one job a shard, and one answer for all."""
        bulk = BatchPromise(len(values), meta.codec)
        shards = len(self._state.shards)
        groups: dict[int, list[PlacedSettlement]] = {}
        for place, (value, name) in enumerate(zip(values, names, strict=True)):
            if name is None or place in refused:
                error = refused.get(place) or NotFound("There is no such message.")
                bulk.put(place, meta.codec.refused_settle(error))
                continue
            shard = name.slot % shards
            if shard in groups:
                groups[shard].append((place, value, name))
            else:
                groups[shard] = [(place, value, name)]
        for shard, items in groups.items():
            job = SettleBatchJob(items, bulk, meta)
            try:
                self._hand_over(job, shard)
            except PenstockError as error:
                job.refuse(error)
        return bulk

    def _hand_over(self, job: SettleJob | SettleBatchJob, slot: int) -> None:
        self._state.check_ready()
        if self._state.switching:
            raise Busy("The shards are being rebound.", queue="work")
        self.worker_of(slot).work.try_send(job)

    def topics_of(self, names: Sequence[MessageName | None]) -> list[str | None]:
        """Say which topic each message belongs to; None for one that is not in RAM."""
        shards = self._state.shards
        topics: list[str | None] = []
        for name in names:
            message = None if name is None else shards[name.slot % len(shards)].messages.get(name.seq)
            topics.append(None if message is None else message.lane.topic.name)
        return topics

    def gave_out(self, name: MessageName, receipt: str) -> bool:
        """Tell whether a receipt is one that this mailbox made for this message, now or in an earlier life."""
        read = self._ledger.receipts.read(receipt)
        return read is not None and read[0] == name.seq


def _check_attrs(attrs: dict[str, str]) -> None:
    if len(attrs) > ATTRS_MAX:
        raise OverLimit(f"A message has at most {ATTRS_MAX} attrs.", limit="attrs")
    if sum(len(name.encode()) + len(value.encode()) for name, value in attrs.items()) > ATTRS_BYTES_MAX:
        raise OverLimit(f"The attrs are above {ATTRS_BYTES_MAX} bytes.", limit="attrs_bytes")
