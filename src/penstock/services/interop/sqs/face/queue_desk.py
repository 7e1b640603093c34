"""The operations on queues: make, find, list, set, tag, permit, purge, delete."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from penstock.contracts.mailbox import GetTopic, Purge, TopicStats
from penstock.kernel.deadline import timeout
from penstock.kernel.errors import NotFound
from penstock.services.interop.sqs.attributes import (
    READ_ONLY,
    check_attributes,
    check_together,
    effective,
    merged,
    read_redrive,
    select,
)
from penstock.services.interop.sqs.checks import check_page, check_permission, check_tags
from penstock.services.interop.sqs.face.backing import denied
from penstock.services.interop.sqs.face.message_desk import queue_path
from penstock.services.interop.sqs.face.registry import QueueBook, edited
from penstock.services.interop.sqs.handles import read_page, write_page
from penstock.services.interop.sqs.names import PathQueue, QueueName, check_name, queue_url, read_arn
from penstock.services.interop.sqs.queues import Permission, QueueRecord, with_permission, without_permission
from penstock.services.interop.sqs.refusals import SqsRefusal, bad_value, invalid, missing, no_queue

if TYPE_CHECKING:
    from penstock.kernel.inventory import Inventory
    from penstock.services.interop.sqs.face.asked import SqsAsked
    from penstock.services.interop.sqs.face.backing import SqsBacking
    from penstock.services.interop.sqs.face.registry import LiveQueue, QueueRegistry

CALL_S: Final = 5.0
_TAGS_MAX: Final = 50
_NO_STATS: Final = TopicStats("", 0, 0, 0, 0, 0, 0.0)
_COUNTS: Final = {
    "ApproximateNumberOfMessages": "ready",
    "ApproximateNumberOfMessagesNotVisible": "inflight",
    "ApproximateNumberOfMessagesDelayed": "delayed",
}
_RECENTLY: Final = "You must wait 60 seconds after deleting a queue before you can create another with the same name."
# Queues remembered for the cooldowns; beyond, the oldest is forgotten.
_REMEMBERED_MAX: Final = 4096
Answer = dict[str, Any]


class QueueDesk:
    """Does what is asked of queues."""

    def __init__(
        self, inventory: Inventory, backing: SqsBacking, registry: QueueRegistry, *, account: str, cooldown_s: float
    ) -> None:
        """Take the account that all queues belong to, and how long a name or a purge rests."""
        self._backing = backing
        self._registry = registry
        self._account = account
        self._cooldown_s = cooldown_s
        self._wall: Callable[[], float] = inventory.clock.wall
        self._monotonic: Callable[[], float] = inventory.clock.monotonic
        # When each queue was deleted or purged; only with a cooldown.
        self._deleted: dict[QueueName, float] = {}
        self._purged: dict[QueueName, float] = {}

    def _now_s(self) -> int:
        return int(self._wall())

    def _queue(self, asked: SqsAsked) -> LiveQueue:
        return self._registry.find(queue_path(asked), asked.region, self._account)

    def _url(self, asked: SqsAsked, record: QueueRecord) -> str:
        return queue_url(asked.base, record.queue, self._account, first=record.first)

    @staticmethod
    def _allow(asked: SqsAsked, op: str, topic: str) -> None:
        if not asked.key.allows(op, topic):
            raise denied(asked.key.id, op, topic)

    # --- making and finding -------------------------------------------------------------------------------------------

    async def create(self, asked: SqsAsked) -> Answer:
        """CreateQueue; the same queue with the same attributes is a success."""
        name, given = asked.fields["QueueName"], asked.fields.get("Attributes", {})
        fifo = _wants_fifo(given)
        queue = QueueName(asked.region, check_name(name, fifo=fifo))
        attributes = check_attributes(given, fifo=fifo)
        check_together(attributes)
        tags = check_tags(asked.fields.get("tags", {}), name)
        self._rested(self._deleted, queue, "QueueDeletedRecently", _RECENTLY)
        now_s = self._now_s()

        def decide(book: QueueBook) -> QueueRecord:
            known = book.get(queue)
            if known is not None:
                return _same(known.record, attributes)
            first = book.takes_short_name(queue.name)
            record = QueueRecord(queue, first, now_s, now_s, merged({}, attributes), tags)
            self._allow(asked, "admin", record.topic)
            self._check_redrive(asked, book, record)
            return record

        made = await self._registry.change(queue, decide, asked.corr_id)
        assert made is not None
        return {"QueueUrl": self._url(asked, made.record)}

    def _check_redrive(self, asked: SqsAsked, book: QueueBook, record: QueueRecord) -> None:
        """Refuse a dead-letter queue that is not there, is of another type, or may not be used by this key.

        A queue may be its own, as with AWS: then its messages are delivered without end.
        """
        policy = record.attributes.get("RedrivePolicy")
        if not policy:
            return
        arn, _ = read_redrive(policy)
        target = book.get(read_arn(arn))
        shown = policy[:200]
        if target is None:
            raise bad_value(shown, "RedrivePolicy", "Dead letter target does not exist.")
        if target.record.queue == record.queue:
            return
        if target.fifo != record.fifo:
            what = "FIFO" if record.fifo else "standard"
            said = f"Dead-letter queue must be same type of queue as the source: {what}."
            raise bad_value(shown, "RedrivePolicy", said)
        if record.queue in _chain(book, target):
            raise bad_value(shown, "RedrivePolicy", "Dead-letter queues must not form a circle.")
        self._allow(asked, "admin", target.topic)

    async def get_url(self, asked: SqsAsked) -> Answer:
        """GetQueueUrl."""
        name, owner = asked.fields["QueueName"], asked.fields.get("QueueOwnerAWSAccountId", "")
        found = self._registry.find(PathQueue("", name), asked.region, self._account)
        if owner not in ("", self._account) or found.record.queue.region != asked.region:
            raise no_queue()
        return {"QueueUrl": self._url(asked, found.record)}

    async def list(self, asked: SqsAsked) -> Answer:
        """ListQueues: those of the caller's region, by name."""
        prefix = asked.fields.get("QueueNamePrefix", "")
        own = (live for live in self._registry.book if live.record.queue.region == asked.region)
        named = (live for live in own if live.record.queue.name.startswith(prefix))
        return self._page(asked, (live for live in named if asked.key.allows("recv", live.topic)), "QueueUrls")

    async def list_sources(self, asked: SqsAsked) -> Answer:
        """ListDeadLetterSourceQueues: the queues whose dead letters come here."""
        target = self._queue(asked).record.queue
        found = [live for live in self._registry.book if live.record.dead_letter_queue() == target]
        return self._page(asked, found, "queueUrls")

    def _page(self, asked: SqsAsked, found: Iterable[LiveQueue], name: str) -> Answer:
        size = check_page(asked.fields)
        after = read_page(asked.fields["NextToken"]) if asked.fields.get("NextToken") else ""
        named = sorted((live.record.queue.name, live) for live in found if live.record.queue.name > after)
        page = named[:size]
        answer: Answer = {name: [self._url(asked, live.record) for _, live in page]}
        if len(named) > len(page) and "MaxResults" in asked.fields:
            answer["NextToken"] = write_page(page[-1][0])
        return answer

    # --- attributes ---------------------------------------------------------------------------------------------------

    async def get_attributes(self, asked: SqsAsked) -> Answer:
        """GetQueueAttributes."""
        live = self._queue(asked)
        self._allow(asked, "recv", live.topic)
        names = asked.fields.get("AttributeNames", ())
        known = effective(live.record.attributes, fifo=live.fifo) | {
            "CreatedTimestamp": str(live.record.created_s),
            "LastModifiedTimestamp": str(live.record.modified_s),
            "QueueArn": live.record.queue.arn(self._account),
        }
        if any(name.strip() == "All" or name.strip() in _COUNTS for name in names):
            known |= await self._counts(asked, live)
        return {"Attributes": select(names, known)}

    async def _counts(self, asked: SqsAsked, live: LiveQueue) -> dict[str, str]:
        call = await self._backing.call(asked.key, "recv", live.topic, asked.corr_id)
        try:
            async with timeout("sqs_call", CALL_S):
                stats = await self._backing.mailbox.topic(GetTopic(live.topic), call)
        except NotFound:
            stats = _NO_STATS
        return {name: str(getattr(stats, count)) for name, count in _COUNTS.items()}

    async def set_attributes(self, asked: SqsAsked) -> Answer:
        """SetQueueAttributes; an empty policy removes it."""
        live = self._queue(asked)
        given = asked.fields["Attributes"]
        for name in given:
            if name.strip() in READ_ONLY:
                raise SqsRefusal("InvalidAttributeName", f"Unknown Attribute {name.strip()}.")
        changes = check_attributes(given, fifo=live.fifo)

        def edit(record: QueueRecord) -> QueueRecord:
            attributes = merged(record.attributes, changes)
            check_together(attributes)
            return edited(record, attributes=attributes, modified_s=self._now_s())

        await self._edit(asked, live, edit)
        return {}

    async def _edit(self, asked: SqsAsked, live: LiveQueue, edit: Callable[[QueueRecord], QueueRecord]) -> None:
        self._allow(asked, "admin", live.topic)
        queue = live.record.queue

        def decide(book: QueueBook) -> QueueRecord:
            known = book.get(queue)
            if known is None:
                raise no_queue()
            record = edit(known.record)
            if record.attributes.get("RedrivePolicy") != known.record.attributes.get("RedrivePolicy"):
                self._check_redrive(asked, book, record)
            return record

        await self._registry.change(queue, decide, asked.corr_id)

    # --- tags and permissions -----------------------------------------------------------------------------------------

    async def list_tags(self, asked: SqsAsked) -> Answer:
        """ListQueueTags."""
        live = self._queue(asked)
        self._allow(asked, "recv", live.topic)
        return {"Tags": live.record.tags}

    async def tag(self, asked: SqsAsked) -> Answer:
        """TagQueue."""
        live = self._queue(asked)
        name = live.record.queue.name
        given = check_tags(asked.fields["Tags"], name)
        if not given:
            raise missing("Tags")

        def edit(record: QueueRecord) -> QueueRecord:
            return edited(record, tags=check_tags({**record.tags, **given}, name))

        await self._edit(asked, live, edit)
        return {}

    async def untag(self, asked: SqsAsked) -> Answer:
        """UntagQueue."""
        gone = frozenset(asked.fields["TagKeys"])
        if not gone:
            raise invalid("Tag keys must be between 1 and 128 characters in length.")

        def edit(record: QueueRecord) -> QueueRecord:
            return edited(record, tags={name: value for name, value in record.tags.items() if name not in gone})

        await self._edit(asked, self._queue(asked), edit)
        return {}

    async def add_permission(self, asked: SqsAsked) -> Answer:
        """AddPermission: kept in the policy and shown, not enforced."""
        check_permission(asked.fields)
        fields = asked.fields
        permission = Permission(fields["Label"], tuple(fields["AWSAccountIds"]), tuple(fields["Actions"]))

        def edit(record: QueueRecord) -> QueueRecord:
            policy = with_permission(record, permission, self._account)
            if policy is None:
                raise bad_value(permission.label, "Label", "Already exists.")
            return edited(record, attributes=merged(record.attributes, {"Policy": policy}))

        await self._edit(asked, self._queue(asked), edit)
        return {}

    async def remove_permission(self, asked: SqsAsked) -> Answer:
        """RemovePermission."""
        label = asked.fields["Label"]

        def edit(record: QueueRecord) -> QueueRecord:
            policy = without_permission(record, label, self._account)
            if policy is None:
                where = " on existing policy" if record.attributes.get("Policy") else ""
                raise bad_value(label[:80], "Label", f"can't find label{where}.")
            return edited(record, attributes=merged(record.attributes, {"Policy": policy}))

        await self._edit(asked, self._queue(asked), edit)
        return {}

    # --- purge and delete ---------------------------------------------------------------------------------------------

    async def purge(self, asked: SqsAsked) -> Answer:
        """PurgeQueue: what waits or is leased is gone when this answers."""
        live = self._queue(asked)
        said = f"Only one PurgeQueue operation on {live.record.queue.name} is allowed every 60 seconds."
        self._rested(self._purged, live.record.queue, "PurgeQueueInProgress", said)
        call = await self._backing.call(asked.key, "admin", live.topic, asked.corr_id)
        async with timeout("sqs_call", CALL_S):
            await self._backing.mailbox.purge(Purge(live.topic), call)
        self._rest(self._purged, live.record.queue)
        return {}

    async def delete(self, asked: SqsAsked) -> Answer:
        """DeleteQueue, with everything in it."""
        live = self._queue(asked)
        self._allow(asked, "admin", live.topic)
        await self._registry.change(live.record.queue, lambda _book: None, asked.corr_id)
        self._rest(self._deleted, live.record.queue)
        return {}

    def _rest(self, resting: dict[QueueName, float], queue: QueueName) -> None:
        if self._cooldown_s:
            if len(resting) >= _REMEMBERED_MAX:
                resting.pop(next(iter(resting)))
            resting[queue] = self._monotonic()

    def _rested(self, resting: dict[QueueName, float], queue: QueueName, name: str, said: str) -> None:
        since = resting.get(queue)
        if since is not None and self._monotonic() < since + self._cooldown_s:
            raise SqsRefusal(name, said)


def _wants_fifo(given: dict[str, str]) -> bool:
    """Tell whether a FIFO queue is meant; a name that ends like one does not say it."""
    return any(name.strip() == "FifoQueue" and value.lower() == "true" for name, value in given.items())


def _same(record: QueueRecord, given: dict[str, str]) -> QueueRecord:
    """Take a queue that exists for the one that is to be made, unless what is said about it differs."""
    known = record.effective()
    for name, value in given.items():
        if known.get(name, "") != value:
            said = f"A queue already exists with the same name and a different value for attribute {name}"
            raise SqsRefusal("QueueNameExists", said)
    return record


def _chain(book: QueueBook, start: LiveQueue) -> list[QueueName]:
    """Follow dead letters from queue to queue."""
    found: list[QueueName] = []
    live: LiveQueue | None = start
    while live is not None and live.record.queue not in found:
        found.append(live.record.queue)
        target = live.record.dead_letter_queue()
        live = None if target is None else book.get(target)
    return found
