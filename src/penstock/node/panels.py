"""What single services add to the operator's page; here, because the page and a service know nothing of each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.admin.panel import Column, Panel, Rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.services.mailbox.service import MailboxService
    from penstock.services.mailbox.topics import Topic
    from penstock.services.omnigate.service import OmnigateService

_TOPIC_COLUMNS = (
    Column("topic", "topic"),
    Column("ready", "ready", "count"),
    Column("inflight", "in flight", "count"),
    Column("delayed", "delayed", "count"),
    Column("dead", "dead", "bad"),
    Column("bytes", "size", "bytes"),
)


def mailbox_topics(service: MailboxService) -> Panel:
    """Count the mailbox's topics; those with dead letters first, then those with the most messages."""

    def source() -> Rows:
        return _topics(service.room.books.topics.values())

    return Panel("mailbox-topics", "Mailbox topics", source, columns=_TOPIC_COLUMNS, empty="No messages.", rows_max=50)


def _topics(topics: Iterable[Topic]) -> Rows:
    kept = [topic for topic in topics if topic.living or topic.dead]
    return [_topic(topic) for topic in sorted(kept, key=lambda topic: (-topic.dead, -topic.living, topic.name))]


def _topic(topic: Topic) -> dict[str, object]:
    return {
        "topic": topic.name,
        "ready": max(0, topic.living - topic.inflight - topic.delayed),
        "inflight": topic.inflight,
        "delayed": topic.delayed,
        "dead": topic.dead,
        "bytes": topic.bytes,
    }


_CLASS_COLUMNS = (
    Column("class", "class"),
    Column("weight", "weight", "count"),
    Column("running", "running", "count"),
    Column("waiting", "waiting", "count"),
    Column("places", "places", "count"),
    Column("tenants", "tenants", "count"),
    Column("refused", "refused", "bad"),
)


def traffic_classes(service: OmnigateService) -> Panel:
    """Show who shares the gateway: each class with its weight, what runs and waits, and what found no place."""

    def source() -> Rows:
        classes = service.gate.queue.classes.values()
        return [
            {
                "class": each.name,
                "weight": each.weight,
                "running": each.running,
                "waiting": each.waiting,
                "places": each.capacity,
                "tenants": len(each.tenants),
                "refused": each.dropped,
            }
            for each in sorted(classes, key=lambda each: (-each.waiting, -each.weight, each.name))
        ]

    return Panel("gateway-classes", "Traffic classes at the gateway", source, columns=_CLASS_COLUMNS)
