"""What crosses the `work` channel: sends, receives, settlements and the operator's commands, each with its answer.

A job is answered through a `Promise`: whoever waits is told in the step that brings the answer. A request for one
message is one job. A batch becomes one job for each worker that has a part in it; the parts share one `BatchPromise`,
which is kept when every message of the batch has its result.

What a job wrote into the open `Batch` is not answered before it is durable. So a job keeps what it will answer with
(its row, its result), stands in `batch.stored` or `batch.settled`, and hears from the commit loop: `committed` or
`fail`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from penstock.contracts import mailbox as m
from penstock.kernel.deadline import Deadline
from penstock.kernel.errors import PenstockError, forget_where
from penstock.kernel.lifecycle import Shutdown
from penstock.kernel.worker import Job
from penstock.net.promise import Promise
from penstock.services.mailbox.claims import IdemClaims
from penstock.services.mailbox.codec import VALUES, AnswerCodec
from penstock.services.mailbox.ids import MessageName
from penstock.services.mailbox.rows import DeadRow, IdemClaim, Loaded, MessageRow
from penstock.services.mailbox.shards.shard import RecvQuery
from penstock.services.mailbox.shards.topics import Message, Topic

V = TypeVar("V")

ACKED: Final = m.Acked()
SettleAnswer = m.Acked | m.Nacked | m.Extended
# The place of a settlement in its batch, the settlement, and what its msg_id says.
PlacedSettlement = tuple[int, m.Settlement, MessageName]


class RequestMeta:
    """What travels with a request beside its value."""

    __slots__ = ("codec", "corr_id", "deadline", "rejudge", "shutdown", "strict")

    def __init__(
        self, corr_id: str = "", deadline: Deadline | None = None, codec: AnswerCodec = VALUES, *, strict: bool = False
    ) -> None:
        """`codec` writes the answers; `strict` makes a duplicate send a 409."""
        self.corr_id = corr_id
        self.deadline = deadline
        self.codec = codec
        self.strict = strict
        # Says why a request that waits may not go on: its capability may expire or be revoked meanwhile.
        self.rejudge: Callable[[], PenstockError | None] | None = None
        # That of the listener which a request that waits came through: it may be a gateway's, which drains earlier.
        self.shutdown: Shutdown | None = None


class PromiseJob(Job[V, Any], Generic[V]):
    """A job that is answered through a promise; no future is made unless somebody awaits it."""

    __slots__ = ("codec", "promise")

    def __init__(self, value: V, promise: Promise, meta: RequestMeta) -> None:
        """Answer through `promise`; the jobs of one batch share one."""
        self.value = value
        self.deadline = meta.deadline
        self.corr_id = meta.corr_id
        self.taken = False
        self.codec = meta.codec
        self.promise = promise

    def take(self) -> bool:
        """Claim the job for a worker; False when its sender withdrew it first."""
        if self.promise.done:
            return False
        self.taken = True
        return True

    def withdraw(self) -> bool:
        """Take the job back because nobody waits any more; False once a worker has it."""
        if self.taken or self.promise.done:
            return False
        self.promise.cancel()
        return True

    def done(self, result: object) -> None:
        """Answer; an answer nobody waits for any more is dropped."""
        self.promise.resolve(result)

    def fail(self, error: PenstockError) -> None:
        """Answer with an error."""
        self.promise.resolve(forget_where(error))


class BatchPromise(Promise):
    """The answer to a batch: complete when every item has its result, in its place."""

    __slots__ = ("_codec", "left", "results")

    def __init__(self, count: int, codec: AnswerCodec) -> None:
        super().__init__()
        self._codec = codec
        self.left = count
        self.results: list[Any] = [None] * count
        if not count:
            self.resolve(codec.many(()))

    def put(self, place: int, result: object) -> None:
        """Take the result of one item; the last one completes the answer."""
        self.results[place] = result
        self.ended(1)

    def ended(self, count: int) -> None:
        """Note that so many results were put in their places."""
        self.left -= count
        if not self.left:
            self.resolve(self._codec.many(self.results))


class SendJob(PromiseJob[m.Send]):
    """One message on its way in."""

    __slots__ = ("claim", "claim_name", "claims", "payload_hash", "row", "slot", "strict", "until")

    # Only items of batches are redriven.
    redrive = None

    def __init__(self, send: m.Send, slot: int, payload_hash: bytes, meta: RequestMeta) -> None:
        super().__init__(send, Promise(), meta)
        self.slot = slot
        self.payload_hash = payload_hash
        # A duplicate is a 409 instead of an answer with a flag.
        self.strict = meta.strict
        # Set where it claims an idem_key: the ledger, and the claim's name in it.
        self.claims: IdemClaims
        self.claim_name = b""
        # What intake put into the batch: the row, the end of its delay (monotonic ms), the claim on its idem_key.
        self.row: MessageRow
        self.until = 0.0
        self.claim: IdemClaim | None = None

    def answer(self, msg_id: str, shard: int, *, duplicate: bool = False) -> None:
        """Say where the message is."""
        self.promise.resolve(self.codec.sent(msg_id, duplicate, shard))

    def refuse(self, error: PenstockError) -> None:
        """Say why it is not stored."""
        self.promise.resolve(forget_where(error))


class SendItem:
    """One message of a batch on its way in, and where its answer goes."""

    __slots__ = (
        "bulk", "claim", "claim_name", "claims", "codec", "corr_id", "deadline", "payload_hash", "place", "redrive",
        "row", "slot", "strict", "until", "value",
    )  # fmt: skip

    def __init__(self, send: m.Send, slot: int, payload_hash: bytes, meta: RequestMeta) -> None:
        """Hold what was checked; its place in the answer is set when it is handed over."""
        self.value = send
        self.slot = slot
        self.payload_hash = payload_hash
        self.corr_id = meta.corr_id
        self.deadline = meta.deadline
        self.codec = meta.codec
        self.strict = meta.strict
        self.bulk: BatchPromise
        self.place = 0
        self.claims: IdemClaims
        self.claim_name = b""
        # As in `SendJob`.
        self.row: MessageRow
        self.until = 0.0
        self.claim: IdemClaim | None = None
        # The dead letter that this message takes the place of, in the same commit.
        self.redrive: tuple[MessageRow, DeadRow] | None = None

    def answer(self, msg_id: str, shard: int, *, duplicate: bool = False) -> None:
        """Say where the message is."""
        self.bulk.put(self.place, self.codec.sent_item(msg_id, duplicate, shard))

    def refuse(self, error: PenstockError) -> None:
        """Say why it is not stored; the others of its batch are not touched."""
        self.bulk.put(self.place, self.codec.refused_send(error))

    def fail(self, error: PenstockError) -> None:
        """Answer the whole batch with an error: nobody knows what became of it."""
        self.bulk.resolve(forget_where(error))


def refuse_all(sends: list[Any], error: PenstockError) -> None:
    """Refuse sends that wait for the outcome of another; each is refused once, whoever asks for it."""
    while sends:
        sends.pop().refuse(error)


class SendRun:
    """Messages of a batch that follow each other, of one topic, un-keyed and undelayed; all have an idem_key or none.

    They are stored and answered together. Nearly every message of a batch is part of a run. A run with an idem_key
    that may have been used before is taken apart.
    """

    __slots__ = (
        "bulk", "bytes", "claimed", "claiming", "claims", "deadline", "meta", "places", "rows", "sends", "slot", "sums",
        "topic",
    )  # fmt: skip

    def __init__(self, topic: str, slot: int, bulk: BatchPromise, meta: RequestMeta, *, claiming: bool) -> None:
        self.topic = topic
        self.slot = slot
        # Its messages have idem_keys.
        self.claiming = claiming
        self.bulk = bulk
        self.meta = meta
        self.deadline = meta.deadline
        # Of all payloads together.
        self.bytes = 0
        self.sends: list[m.Send] = []
        self.sums: list[bytes] = []
        self.places: list[int] = []
        # What intake put into the batch: the rows, and the claims on their idem_keys with the ledger they belong to.
        self.rows: list[MessageRow] = []
        self.claimed: list[IdemClaim] = []
        self.claims: IdemClaims

    def answer(self, shard: int) -> None:
        """Say where the messages are."""
        self.meta.codec.sent_run(self.bulk.results, self.places, [row.name for row in self.rows], shard)
        self.bulk.ended(len(self.places))

    def refuse(self, error: PenstockError) -> None:
        """Say why none of them is stored."""
        for place in self.places:
            self.bulk.put(place, self.meta.codec.refused_send(error))

    def fail(self, error: PenstockError) -> None:
        """Answer the whole batch with an error: nobody knows what became of it."""
        self.bulk.resolve(forget_where(error))

    def items(self) -> list[SendItem]:
        """Take the run apart: each message on its own."""
        items = []
        for send, total, place in zip(self.sends, self.sums, self.places, strict=True):
            item = SendItem(send, self.slot, total, self.meta)
            item.bulk, item.place = self.bulk, place
            items.append(item)
        return items


class SendBatchJob(PromiseJob[list[SendItem | SendRun]]):
    """Messages of one batch for one worker, in order."""

    __slots__ = ()


class RecvPromise(Promise):
    """A receiver's answer: whoever parked the receiver hears when it is answered or gone."""

    __slots__ = ("on_over",)

    def __init__(self) -> None:
        super().__init__()
        self.on_over: Callable[[], None] | None = None

    def resolve(self, result: object) -> None:
        """Stop waiting, then tell the follower."""
        if self.on_over is not None:
            self._leave()
        Promise.resolve(self, result)

    def cancel(self) -> None:
        """Stop waiting: nobody wants the answer any more."""
        self._leave()
        super().cancel()

    def _leave(self) -> None:
        if self.on_over is not None:
            on_over, self.on_over = self.on_over, None
            on_over()


class RecvJob(PromiseJob[RecvQuery]):
    """A receiver. It asks the shards of its topic one after the other, until it has enough or none is left."""

    __slots__ = ("got", "path", "rejudge", "shutdown", "topic", "wait_ms")

    promise: RecvPromise

    def __init__(self, want: RecvQuery, topic: Topic, wait_ms: int, meta: RequestMeta) -> None:
        super().__init__(want, RecvPromise(), meta)
        self.topic = topic
        self.wait_ms = wait_ms
        self.rejudge = meta.rejudge
        self.shutdown = meta.shutdown
        # The shards still to be asked, the next one last.
        self.path: list[int] = []
        # What it has leased so far, each with the generation of its lease.
        self.got: list[tuple[Message, int]] = []

    @property
    def may_wait(self) -> bool:
        """Tell whether it asked to wait for a message, and whoever it came through does not drain."""
        return bool(self.wait_ms) and not (self.shutdown is not None and self.shutdown.draining)

    def deliver(self, received: m.Received) -> None:
        """Answer with what was leased."""
        self.promise.resolve(self.codec.received(received))


class SettleJob(PromiseJob[m.Settlement]):
    """One settlement."""

    __slots__ = ("name", "result")

    def __init__(self, value: m.Settlement, name: MessageName, meta: RequestMeta) -> None:
        super().__init__(value, Promise(), meta)
        # What its msg_id says.
        self.name = name
        # The answer, once the shard has decided.
        self.result: SettleAnswer = ACKED

    def committed(self) -> None:
        """Answer: the settlement is durable."""
        self.promise.resolve(self.codec.settled(self.result))

    def refuse(self, error: PenstockError) -> None:
        """Say why it is not settled."""
        self.promise.resolve(forget_where(error))


class SettleItem:
    """One settlement of a batch that is not a plain ack, and where its answer goes."""

    __slots__ = ("bulk", "codec", "name", "place", "result", "value")

    def __init__(self, placed: PlacedSettlement, bulk: BatchPromise, codec: AnswerCodec) -> None:
        self.place, self.value, self.name = placed
        self.bulk = bulk
        self.codec = codec
        self.result: SettleAnswer = ACKED

    def committed(self) -> None:
        """Answer: the settlement is durable."""
        self.bulk.put(self.place, self.codec.settled_item(self.result))

    def refuse(self, error: PenstockError) -> None:
        """Say why it is not settled; the others of its batch are not touched."""
        self.bulk.put(self.place, self.codec.refused_settle(error))

    def fail(self, error: PenstockError) -> None:
        """Answer the whole batch with an error: nobody knows what became of it."""
        self.bulk.resolve(forget_where(error))


class SettleBatchJob(PromiseJob[list[PlacedSettlement]]):
    """Settlements of one batch for one shard."""

    __slots__ = ("acked",)

    promise: BatchPromise

    def __init__(self, items: list[PlacedSettlement], bulk: BatchPromise, meta: RequestMeta) -> None:
        super().__init__(items, bulk, meta)
        # The places of those that were acked at once.
        self.acked: list[int] = []

    def committed(self) -> None:
        """Answer: the acks are durable."""
        results, acked = self.promise.results, self.codec.settled_item(ACKED)
        for place in self.acked:
            results[place] = acked
        self.promise.ended(len(self.acked))

    def refuse(self, error: PenstockError) -> None:
        """Say why none of them is settled."""
        for place, _, _ in self.value:
            self.promise.put(place, self.codec.refused_settle(error))


class PurgeJob(PromiseJob[list[Loaded]]):
    """Messages of one slice of a purge that belong to one worker."""

    __slots__ = ("purged",)

    def __init__(self, rows: list[Loaded]) -> None:
        super().__init__(rows, Promise(), RequestMeta())
        self.purged = 0

    def committed(self) -> None:
        """Answer with how many were removed."""
        self.promise.resolve(self.purged)


class SettingsJob(PromiseJob[m.TopicSettings | None]):
    """Settings of a topic, or a new generation of its claims, on their way to the disk."""

    __slots__ = ()

    def __init__(self, settings: m.TopicSettings | None, meta: RequestMeta) -> None:
        super().__init__(settings, Promise(), meta)

    def committed(self) -> None:
        """Answer: they are durable."""
        self.promise.resolve(self.value)


Work = SendJob | SendBatchJob | RecvJob | SettleJob | SettleBatchJob | PurgeJob
# What may stand in a batch.
Stored = SendJob | SendItem | SendRun
Settled = SettleJob | SettleItem | SettleBatchJob | PurgeJob | SettingsJob
