"""Which queues there are. The one writer of their records.

A queue's record lies in the settings of its topic, in the mailbox. The registry reads all of them at start and keeps
them in RAM; from then on only it changes them. Every change is a job of one channel with one worker, which decides by
what is in RAM, writes the topic's settings, and only then changes what is in RAM. So two callers that make the same
queue at the same time are one after the other, and nobody sees a queue that is not stored.

Until the records are read, nothing is known and everything is refused as unavailable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.contracts.mailbox import DeleteTopic, GetSettings, GetTopics, PutSettings
from penstock.kernel.channel import Full
from penstock.kernel.deadline import timeout
from penstock.kernel.errors import NotFound, NotReady, PenstockError
from penstock.kernel.log import Log
from penstock.kernel.memo import Memo
from penstock.kernel.worker import Job, JobLoop
from penstock.services.interop.sqs.deliveries import SendingQueue
from penstock.services.interop.sqs.names import PathQueue, QueueName, read_queue_url
from penstock.services.interop.sqs.queues import TOPICS, QueueRecord, record_of, settings_of
from penstock.services.interop.sqs.refusals import SqsRefusal, no_queue

if TYPE_CHECKING:
    from penstock.contracts.call import Call
    from penstock.kernel.channel import Channel
    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory
    from penstock.services.interop.sqs.checks import QueueRules
    from penstock.services.interop.sqs.face.backing import SqsBacking
    from penstock.services.interop.sqs.face.key_ring import KeyRing

CALL_S: Final = 5.0
# How soon the queues are read again after that failed: at first, and in the end.
_SOON_S: Final = 0.02
_AGAIN_S: Final = 1.0
_CHANGES: Final = 256
_FOUND_MAX: Final = 4096


class LiveQueue:
    """A queue's record, and what every message of it needs, worked out once."""

    __slots__ = ("by_group", "fifo", "record", "rules", "sending", "topic", "wait_s")

    def __init__(self, record: QueueRecord) -> None:
        values = record.effective()
        self.record = record
        self.topic: str = record.topic
        self.fifo: bool = record.fifo
        self.rules: QueueRules = record.rules()
        self.wait_s = int(values["ReceiveMessageWaitTimeSeconds"])
        self.by_group = values.get("DeduplicationScope") == "messageGroup"
        self.sending = SendingQueue(self.topic, self.fifo, self.by_group)


# Decides by what there is; raises a refusal, or returns the new record, or None to remove the queue.
Decide = Callable[["QueueBook"], QueueRecord | None]


@dataclass(frozen=True, slots=True)
class QueueChange:
    """What somebody wants done to one queue."""

    queue: QueueName
    decide: Decide


ChangeJob = Job[QueueChange, "LiveQueue | SqsRefusal | None"]


class QueueBook:
    """The queues in RAM."""

    def __init__(self) -> None:
        self._queues: dict[QueueName, LiveQueue] = {}
        # Which region's queue has the short topic and address of a name.
        self._first: dict[str, QueueName] = {}
        # What URLs meant to callers of a region, until a queue comes or goes.
        self.found: Memo[tuple[str, str], LiveQueue] = Memo(_FOUND_MAX)

    def __iter__(self) -> Iterator[LiveQueue]:
        return iter(self._queues.values())

    def get(self, queue: QueueName) -> LiveQueue | None:
        """Return a queue by its region and name."""
        return self._queues.get(queue)

    def find(self, path: PathQueue, region: str) -> LiveQueue | None:
        """Return the queue that a URL or a bare name means to a caller of this region."""
        if path.region:
            return self._queues.get(QueueName(path.region, path.name))
        own = self._queues.get(QueueName(region, path.name))
        first = self._first.get(path.name)
        # A URL without a region is that of the first queue of its name; a bare name is the caller's own.
        if path.account and first is not None:
            return self._queues.get(first)
        return own if own is not None or first is None else self._queues.get(first)

    def takes_short_name(self, name: str) -> bool:
        """Tell whether the short topic of a name is free."""
        return name not in self._first

    def by_topic(self, topic: str) -> LiveQueue | None:
        """Return the queue of a topic."""
        return next((live for live in self if live.topic == topic), None)

    def put(self, record: QueueRecord) -> LiveQueue:
        """Take a record, in place of the queue's last one."""
        self.found.clear()
        live = self._queues[record.queue] = LiveQueue(record)
        if record.first:
            self._first[record.queue.name] = record.queue
        return live

    def drop(self, queue: QueueName) -> None:
        """Forget a queue."""
        self.found.clear()
        gone = self._queues.pop(queue, None)
        if gone is not None and gone.record.first:
            self._first.pop(queue.name, None)

    def dead_letter_topic(self, record: QueueRecord) -> str | None:
        """Return the topic that a queue's dead letters go to; None when it has none, or that queue is gone."""
        wanted = record.dead_letter_queue()
        found = None if wanted is None else self._queues.get(wanted)
        return None if found is None else found.topic


class QueueRegistry:
    """Reads the records at start, answers who asks, and writes every change."""

    def __init__(self, inventory: Inventory, backing: SqsBacking, keys: KeyRing) -> None:
        """Declare the channel of changes and the gate."""
        self._backing = backing
        self._keys = keys
        self._metrics = inventory.metrics
        self._log = Log(inventory.service)
        self._book = QueueBook()
        self._loaded = False
        self.changes: Channel[ChangeJob] = inventory.channel(
            "sqs_changes", Job, capacity=_CHANGES, full=Full.REFUSE, producers="listener", consumers="sqs_registry"
        )
        inventory.timeout("sqs_registry", CALL_S, "503 ServiceUnavailable")
        inventory.metrics.gauge("sqs_queues", "Queues of the SQS face.", read=lambda: len(list(self._book)))
        # Told when a queue's moves may have changed: whoever carries them out looks again.
        self.on_moves: Callable[[], None] = lambda: None

    @property
    def book(self) -> QueueBook:
        """Return the queues; refused until they are read."""
        if not self._loaded:
            raise NotReady("The queues are not read yet.", phase="opening")
        return self._book

    @property
    def loaded(self) -> bool:
        """Tell whether the queues are known."""
        return self._loaded

    def find(self, path: PathQueue, region: str, account: str) -> LiveQueue:
        """Return the queue that a caller means, or say that it does not exist."""
        found = self.book.find(path, region)
        if found is None or path.account not in ("", account):
            raise no_queue()
        return found

    def find_url(self, url: str, region: str, account: str) -> LiveQueue:
        """Return the queue that a QueueUrl means to a caller of this region."""
        found = self.book.found.get((url, region))
        if found is None:
            found = self.find(read_queue_url(url), region, account)
            self.book.found.put((url, region), found)
        return found

    async def change(self, queue: QueueName, decide: Decide, corr_id: str = "") -> LiveQueue | None:
        """Have a change decided and written; returns the queue as it is then. Who may ask for it was checked before."""
        if not self._loaded:
            raise NotReady("The queues are not read yet.", phase="opening")
        job: ChangeJob = Job(QueueChange(queue, decide), corr_id=corr_id)
        self.changes.try_send(job)
        try:
            async with timeout("sqs_registry", CALL_S):
                outcome = await job.reply
        except asyncio.CancelledError:
            job.withdraw()
            raise
        if isinstance(outcome, SqsRefusal):
            raise outcome
        return outcome

    # --- the worker ---------------------------------------------------------------------------------------------------

    async def run(self, child: Child) -> None:
        """Open the keys, announce, read the queues, then work changes off until the channel is closed."""
        await self._keys.open()
        child.announce()
        wait_s = _SOON_S
        while not self._loaded and not child.shutdown.draining:
            try:
                await self._load()
            except PenstockError as error:
                # While a node starts, the bridge's own token comes a moment later: nothing to speak of.
                if wait_s >= _AGAIN_S:
                    self._log.warning("sqs_registry.unread", reason=error.code)
                await child.shutdown.sleep(wait_s)
                wait_s = min(2 * wait_s, _AGAIN_S)
        await JobLoop("sqs_registry", self.changes, self._work, self._metrics).run(child.clock.monotonic)

    async def _load(self) -> None:
        mailbox, book = self._backing.mailbox, QueueBook()
        call = await self._backing.own_call("recv", TOPICS)
        cursor: str | None = None
        while True:
            async with timeout("sqs_registry", CALL_S):
                listed = await mailbox.topics(GetTopics(cursor=cursor, prefix=TOPICS), call)
            for stats in listed.topics:
                await self._load_one(book, stats.topic, call)
            cursor = listed.cursor
            if cursor is None:
                break
        self._book, self._loaded = book, True
        self.on_moves()

    async def _load_one(self, book: QueueBook, topic: str, call: Call) -> None:
        try:
            async with timeout("sqs_registry", CALL_S):
                shown = await self._backing.mailbox.settings(GetSettings(topic), call)
        except NotFound:
            return
        record = record_of(shown.settings.tags)
        if record is not None and record.topic == topic:
            book.put(record)

    async def _work(self, change: QueueChange) -> LiveQueue | SqsRefusal | None:
        try:
            record = change.decide(self._book)
        except SqsRefusal as refusal:
            return refusal
        if record is None:
            await self._remove(change)
            return None
        live = self._book.get(change.queue)
        if live is not None and live.record == record:
            return live
        return await self._write(record)

    async def _write(self, record: QueueRecord) -> LiveQueue:
        settings = settings_of(record, self._book.dead_letter_topic(record))
        call = await self._backing.own_call("admin", TOPICS)
        async with timeout("sqs_registry", CALL_S):
            await self._backing.mailbox.put_settings(PutSettings(record.topic, settings), call)
        live = self._book.put(record)
        self.on_moves()
        return live

    async def _remove(self, change: QueueChange) -> None:
        live = self._book.get(change.queue)
        if live is not None:
            call = await self._backing.own_call("admin", TOPICS)
            async with timeout("sqs_registry", CALL_S):
                await self._backing.mailbox.delete_topic(DeleteTopic(live.topic), call)
            self._book.drop(change.queue)


def edited(record: QueueRecord, **changes: object) -> QueueRecord:
    """Return a record with some of its fields changed."""
    return msgspec.structs.replace(record, **changes)
