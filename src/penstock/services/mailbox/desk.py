"""The desk: turns contract values into jobs for the workers. It checks and routes; it decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from penstock.contracts import mailbox as m
from penstock.contracts.mailbox_rules import ATTRS_BYTES_MAX, ATTRS_MAX, check_batch
from penstock.kernel.deadline import Deadline
from penstock.kernel.errors import Busy, Integrity, NotFound, OverLimit, PenstockError
from penstock.services.mailbox.ids import MessageName, read_msg_id, slot_of
from penstock.services.mailbox.jobs import (
    ACK,
    EXTEND,
    NACK,
    Draft,
    RecvJob,
    SendJob,
    Settle,
    SettleJob,
    settle_refusal,
)
from penstock.services.mailbox.shard import Want
from penstock.services.mailbox.topics import Topic

if TYPE_CHECKING:
    from penstock.services.mailbox.mailroom import Mailroom

_KINDS = {m.Ack: ACK, m.Nack: NACK, m.Extend: EXTEND}
_DRAINING = "The mailbox is draining."


class Bearings:
    """What travels with a request beside its value."""

    __slots__ = ("corr_id", "deadline", "strict")

    def __init__(self, corr_id: str = "", deadline: Deadline | None = None, *, strict: bool = False) -> None:
        """`strict` makes a duplicate send a 409."""
        self.corr_id = corr_id
        self.deadline = deadline
        self.strict = strict


class Desk:
    """Makes jobs and hands them to the worker that owns the slot."""

    def __init__(self, room: Mailroom) -> None:
        """Work for this mailroom."""
        self._room = room
        self._payload_bytes_max = room.options.payload_bytes_max

    # --- send

    def draft(self, send: m.Send, corr_id: str) -> Draft:
        """Check one message and place it; raises what is wrong with it."""
        payload = send.payload
        if len(payload) > self._payload_bytes_max:
            raise OverLimit(f"The payload is above {self._payload_bytes_max} bytes.", limit="payload_bytes")
        if send.attrs:
            _check_attrs(send.attrs)
        digest = blake3(payload).digest()
        if send.payload_hash is not None and send.payload_hash[3:] != digest.hex():
            self._room.integrity["payload_hash"].value += 1
            raise Integrity("The payload does not match its payload_hash.", reason="payload_hash")
        if send.key is not None:
            slot = slot_of(send.topic, send.key)
        else:
            topic = self._room.books.topics.get(send.topic)
            slot = slot_of(send.topic, None) if topic is None else topic.slot
        return Draft(send, slot, digest, corr_id)

    def send(self, send: m.Send, bearings: Bearings) -> asyncio.Future[m.Sent]:
        """Store one message; the future holds when it is durable."""
        self.check_intake()
        draft = self.draft(send, bearings.corr_id)
        draft.strict = bearings.strict
        job = SendJob([draft], None, bearings.deadline, bearings.corr_id)
        self._room.worker_of(draft.slot).offer(job)
        return job.reply

    def send_batch(self, batch: Sequence[m.Send], bearings: Bearings) -> list[SendJob]:
        """Store many, each on its own: one job a worker, and all of them write into the same results."""
        self.check_intake()
        check_batch(tuple(batch))
        results: list[Any] = [None] * len(batch)
        groups: dict[int, list[Draft]] = {}
        for place, send in enumerate(batch):
            try:
                draft = self.draft(send, bearings.corr_id)
            except PenstockError as error:
                results[place] = m.SendResult(code=error.code, detail=error.detail)
                continue
            draft.place, draft.strict = place, bearings.strict
            groups.setdefault(self._room.worker_of(draft.slot).index, []).append(draft)
        return [self._offer_group(index, drafts, results, bearings) for index, drafts in groups.items()] or [
            _answered(results, bearings)
        ]

    def _offer_group(self, index: int, drafts: list[Draft], results: list[Any], bearings: Bearings) -> SendJob:
        job = SendJob(drafts, results, bearings.deadline, bearings.corr_id)
        try:
            self._room.workers[index].offer(job)
        except PenstockError as error:
            for draft in drafts:
                job.refuse(draft, error)
        return job

    def check_intake(self) -> None:
        """Refuse new sends and receives while draining or being cut into other shards."""
        room = self._room
        if room.draining or room.switching:
            raise Busy(_DRAINING if room.draining else "The shards are being rebound.", queue="work")
        room.check_ready()

    # --- recv

    def recv(self, recv: m.Recv, bearings: Bearings, owner: object = None) -> RecvJob:
        """Ask the shards of a topic for messages."""
        self.check_intake()
        room = self._room
        topic = room.books.topic(recv.topic)
        want = Want(recv.max_messages, recv.visibility_ms, recv.max_bytes, owner)
        job = RecvJob(want, topic, recv.wait_ms, bearings.deadline, bearings.corr_id)
        job.path = self._path(topic)
        room.workers[job.path[-1] % len(room.workers)].offer(job)
        return job

    def _path(self, topic: Topic) -> list[int]:
        """Name the shards to ask, in rotating order: all that may have something of the topic."""
        home = topic.slot % len(self._room.shards)
        lanes = [*topic.lanes]
        if home not in topic.lanes and (topic.cold or not lanes):
            # Nobody has looked yet whether un-keyed messages of an earlier life lie on the disk.
            lanes.append(home)
        if len(lanes) > 1:
            lanes = _rotated(lanes, topic.turn)
            topic.turn += 1
        return lanes

    # --- settlements

    def settle(self, value: m.Settlement, bearings: Bearings) -> asyncio.Future[Any]:
        """Ack, nack or extend one message."""
        item = Settle(_KINDS[type(value)], value, _name(value.msg_id))
        job = SettleJob([item], None, bearings.deadline, bearings.corr_id)
        self._hand_over(item.name.slot, job)
        return job.reply

    def settle_batch(self, values: Sequence[m.Settlement], bearings: Bearings) -> list[SettleJob]:
        """Settle many, each on its own."""
        check_batch(tuple(values))
        results: list[Any] = [None] * len(values)
        groups: dict[int, list[Settle]] = {}
        for place, value in enumerate(values):
            try:
                item = Settle(_KINDS[type(value)], value, _name(value.msg_id))
            except PenstockError as error:
                results[place] = settle_refusal(error)
                continue
            item.place = place
            groups.setdefault(self._room.worker_of(item.name.slot).index, []).append(item)
        jobs = []
        for items in groups.values():
            job = SettleJob(items, results, bearings.deadline, bearings.corr_id)
            try:
                self._hand_over(items[0].name.slot, job)
            except PenstockError as error:
                for item in items:
                    job.refuse(item, error)
            jobs.append(job)
        if not jobs:
            empty = SettleJob([], results, bearings.deadline, bearings.corr_id)
            empty.done(results)
            jobs.append(empty)
        return jobs

    def _hand_over(self, slot: int, job: SettleJob) -> None:
        self._room.check_ready()
        if self._room.switching:
            raise Busy("The shards are being rebound.", queue="work")
        self._room.worker_of(slot).work.try_send(job)

    def topic_of(self, msg_id: str) -> str | None:
        """Say which topic a message in RAM belongs to; None when it is not in RAM."""
        name = read_msg_id(msg_id)
        if name is None:
            return None
        message = self._room.shard_of(name.slot).messages.get(name.seq)
        return None if message is None else message.lane.topic.name


def _answered(results: list[Any], bearings: Bearings) -> SendJob:
    job = SendJob([], results, bearings.deadline, bearings.corr_id)
    job.done(results)
    return job


def _check_attrs(attrs: dict[str, str]) -> None:
    if len(attrs) > ATTRS_MAX:
        raise OverLimit(f"A message has at most {ATTRS_MAX} attrs.", limit="attrs")
    if sum(len(name.encode()) + len(value.encode()) for name, value in attrs.items()) > ATTRS_BYTES_MAX:
        raise OverLimit(f"The attrs are above {ATTRS_BYTES_MAX} bytes.", limit="attrs_bytes")


def _name(msg_id: str) -> MessageName:
    name = read_msg_id(msg_id)
    if name is None:
        raise NotFound("There is no such message.")
    return name


def _rotated(shards: list[int], turn: int) -> list[int]:
    start = turn % len(shards)
    return shards[start:] + shards[:start]
