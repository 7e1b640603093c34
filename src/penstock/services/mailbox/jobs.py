"""What crosses the `work` channel: sends, receives, settlements and the operator's commands, each with its answer.

An answer is a promise: whoever waits is told in the very step that brings it. What serves one message and what serves a
batch are two kinds of job with the same words, because nearly all jobs serve one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Generic, TypeVar

from penstock.contracts import mailbox as m
from penstock.kernel.deadline import Deadline
from penstock.kernel.errors import PenstockError, forget_where
from penstock.kernel.worker import Job
from penstock.net.promise import Promise
from penstock.services.mailbox.codec import VALUES, AnswerCodec
from penstock.services.mailbox.ids import MessageName
from penstock.services.mailbox.rows import DeadRow, MessageRow
from penstock.services.mailbox.shard import RecvQuery
from penstock.services.mailbox.topics import Message, Topic
from penstock.services.mailbox.window import Loaded

V = TypeVar("V")


ACKED: Final = m.Acked()


class RequestMeta:
    """What travels with a request beside its value."""

    __slots__ = ("codec", "corr_id", "deadline", "strict")

    def __init__(
        self, corr_id: str = "", deadline: Deadline | None = None, codec: AnswerCodec = VALUES, *, strict: bool = False
    ) -> None:
        """`codec` says how answers are written; `strict` makes a duplicate send a 409."""
        self.corr_id = corr_id
        self.deadline = deadline
        self.codec = codec
        self.strict = strict


class PromiseJob(Job[V, Any], Generic[V]):
    """A job that is answered through a promise; no future is made unless somebody awaits it."""

    __slots__ = ("codec", "promise")

    def __init__(self, value: V, promise: Promise, meta: RequestMeta) -> None:
        """Take the request's meta; the jobs of one batch share its promise."""
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


async def kept(promise: Promise) -> Any:  # noqa: ANN401 - typed by its caller
    """Wait for an answer and raise it if it is an error. Who stops waiting withdraws what nobody has taken yet."""
    if not promise.done:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        promise.follow(partial(_wake, future))
        try:
            await future
        except asyncio.CancelledError:
            promise.cancel()
            raise
    if isinstance(promise.result, PenstockError):
        raise promise.result
    return promise.result


def _wake(future: asyncio.Future[None], _result: object) -> None:
    if not future.done():
        future.set_result(None)


class BatchPromise(Promise):
    """The answer to a batch: complete when every item has its result, in its place."""

    __slots__ = ("_codec", "left", "results")

    def __init__(self, count: int, codec: AnswerCodec) -> None:
        """Wait for so many results."""
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

    __slots__ = ("name", "payload_hash", "slot", "strict")

    # Only drafts are redriven.
    redrive = None

    def __init__(self, send: m.Send, slot: int, payload_hash: bytes, meta: RequestMeta) -> None:
        """Hold what was checked."""
        super().__init__(send, Promise(), meta)
        self.slot = slot
        self.payload_hash = payload_hash
        # A duplicate is a 409 instead of an answer with a flag.
        self.strict = meta.strict
        self.name = b""

    def answer(self, msg_id: str, shard: int, *, duplicate: bool = False) -> None:
        """Say where the message is."""
        self.promise.resolve(self.codec.sent(msg_id, duplicate, shard))

    def refuse(self, error: PenstockError) -> None:
        """Say why it is not stored."""
        self.promise.resolve(forget_where(error))


class SendItem:
    """One message of a batch on its way in, and where its answer goes."""

    __slots__ = ("bulk", "codec", "corr_id", "name", "payload_hash", "place", "redrive", "slot", "strict", "value")

    def __init__(self, send: m.Send, slot: int, payload_hash: bytes, meta: RequestMeta) -> None:
        """Hold what was checked; its place in the answer is set when it is handed over."""
        self.value = send
        self.slot = slot
        self.payload_hash = payload_hash
        self.corr_id = meta.corr_id
        self.codec = meta.codec
        self.strict = meta.strict
        self.bulk: BatchPromise
        self.place = 0
        self.name = b""
        # The dead letter that this message takes the place of, in the same commit.
        self.redrive: tuple[MessageRow, DeadRow] | None = None

    def answer(self, msg_id: str, shard: int, *, duplicate: bool = False) -> None:
        """Say where the message is."""
        self.bulk.put(self.place, self.codec.sent_item(msg_id, duplicate, shard))

    def refuse(self, error: PenstockError) -> None:
        """Say why it is not stored; the others of its batch are not touched."""
        self.bulk.put(self.place, self.codec.refused_send(error))

    def fail(self, error: PenstockError) -> None:
        """Answer the whole batch with an error: what became of it nobody knows."""
        self.bulk.resolve(forget_where(error))


def refuse_all(drafts: list[Any], error: PenstockError) -> None:
    """Refuse drafts that wait for the outcome of another; each is refused once, whoever asks for it."""
    while drafts:
        drafts.pop().refuse(error)


class SendRun:
    """Messages of a batch that follow each other, of one topic and with nothing special: stored and answered together."""

    __slots__ = ("bulk", "meta", "places", "sends", "slot", "sums", "topic")

    def __init__(self, topic: str, slot: int, bulk: BatchPromise, meta: RequestMeta) -> None:
        """Start empty."""
        self.topic = topic
        self.slot = slot
        self.bulk = bulk
        self.meta = meta
        self.sends: list[m.Send] = []
        self.sums: list[bytes] = []
        self.places: list[int] = []

    def answer(self, names: list[str], shard: int) -> None:
        """Say where the messages are."""
        results, sent = self.bulk.results, self.meta.codec.sent_item
        for place, name in zip(self.places, names, strict=True):
            results[place] = sent(name, False, shard)
        self.bulk.ended(len(names))

    def refuse(self, error: PenstockError) -> None:
        """Say why none of them is stored."""
        for place in self.places:
            self.bulk.put(place, self.meta.codec.refused_send(error))

    def drafts(self) -> list[SendItem]:
        """Take the run apart: each message on its own."""
        drafts = []
        for send, total, place in zip(self.sends, self.sums, self.places, strict=True):
            draft = SendItem(send, self.slot, total, self.meta)
            draft.bulk, draft.place = self.bulk, place
            drafts.append(draft)
        return drafts


class SendBatchJob(PromiseJob[list[SendItem | SendRun]]):
    """Messages of one batch for one worker, in order."""

    __slots__ = ()


class RecvPromise(Promise):
    """A receiver's answer: whoever parked the receiver hears when it is answered or gone."""

    __slots__ = ("on_over",)

    def __init__(self) -> None:
        """Start unparked."""
        super().__init__()
        self.on_over: Callable[[], None] | None = None

    def resolve(self, result: object) -> None:
        """Leave the line, then tell the follower."""
        if self.on_over is not None:
            self._leave()
        Promise.resolve(self, result)

    def cancel(self) -> None:
        """Leave the line: nobody waits any more."""
        self._leave()
        super().cancel()

    def _leave(self) -> None:
        if self.on_over is not None:
            on_over, self.on_over = self.on_over, None
            on_over()


class RecvJob(PromiseJob[RecvQuery]):
    """A receiver that goes from shard to shard of its topic, and may then wait."""

    __slots__ = ("got", "path", "topic", "wait_ms")

    promise: RecvPromise

    def __init__(self, want: RecvQuery, topic: Topic, wait_ms: int, meta: RequestMeta) -> None:
        """Ask a topic; `path` names the shards still to be asked."""
        super().__init__(want, RecvPromise(), meta)
        self.topic = topic
        self.wait_ms = wait_ms
        self.path: list[int] = []
        self.got: list[tuple[Message, int]] = []

    def deliver(self, received: m.Received) -> None:
        """Answer with what was leased."""
        self.promise.resolve(self.codec.received(received))


class SettleJob(PromiseJob[m.Settlement]):
    """One settlement."""

    __slots__ = ("name",)

    def __init__(self, value: m.Settlement, name: MessageName, meta: RequestMeta) -> None:
        """Name the message by what its msg_id says."""
        super().__init__(value, Promise(), meta)
        self.name = name

    def answer(self, value: m.Acked | m.Nacked | m.Extended) -> None:
        """Say what came of it."""
        self.promise.resolve(self.codec.settled(value))

    def refuse(self, error: PenstockError) -> None:
        """Say why it is not settled."""
        self.promise.resolve(forget_where(error))


class SettleItem:
    """One settlement of a batch, and where its answer goes."""

    __slots__ = ("bulk", "codec", "name", "place", "value")

    def __init__(self, value: m.Settlement, name: MessageName, place: int) -> None:
        """Name the message by what its msg_id says."""
        self.value = value
        self.name = name
        self.place = place
        self.bulk: BatchPromise
        self.codec: AnswerCodec

    def answer(self, value: m.Acked | m.Nacked | m.Extended) -> None:
        """Say what came of it."""
        self.bulk.put(self.place, self.codec.settled_item(value))

    def refuse(self, error: PenstockError) -> None:
        """Say why it is not settled; the others of its batch are not touched."""
        self.bulk.put(self.place, self.codec.refused_settle(error))


class SettleBatchJob(PromiseJob[list[SettleItem]]):
    """Settlements of one batch for one worker."""

    __slots__ = ()

    promise: BatchPromise

    def __init__(self, items: list[SettleItem], bulk: BatchPromise, meta: RequestMeta) -> None:
        """Answer through the batch."""
        super().__init__(items, bulk, meta)
        for item in items:
            item.bulk, item.codec = bulk, meta.codec

    def answer_acks(self, items: list[SettleItem]) -> None:
        """Say that these were acked."""
        results, acked = self.promise.results, self.codec.settled_item(ACKED)
        for item in items:
            results[item.place] = acked
        self.promise.ended(len(items))


class PurgeJob(PromiseJob[list[Loaded]]):
    """Messages of one slice of a purge that belong to one worker."""

    __slots__ = ()

    def __init__(self, rows: list[Loaded]) -> None:
        """Remove these."""
        super().__init__(rows, Promise(), RequestMeta())


Work = SendJob | SendBatchJob | RecvJob | SettleJob | SettleBatchJob | PurgeJob
