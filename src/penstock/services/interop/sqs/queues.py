"""A queue as it is remembered: a record in the tags of its topic's settings, which lives and dies with them; pure.

A queue is a topic with settings. What SQS knows of it beyond those (its region, its attributes as they were set, its
tags, its moves) is written as JSON into four tags. Whoever changes a queue writes the whole record anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from penstock.contracts.mailbox import DedupSettings, TopicSettings
from penstock.services.interop.sqs.attributes import effective, read_redrive, topic_settings
from penstock.services.interop.sqs.checks import QueueRules
from penstock.services.interop.sqs.names import QueueName, read_arn, topic_of

TOPICS: Final = "sqs/"
_QUEUE: Final = "sqs.queue"
_ATTRIBUTES: Final = "sqs.attributes"
_TAGS: Final = "sqs.tags"
_MOVES: Final = "sqs.moves"
_encode: Final = msgspec.json.Encoder().encode


class MoveRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One move of messages out of a queue, as it stands."""

    id: str
    started_ms: int
    # Empty: each message goes back to the queue it came from.
    destination: str = ""
    rate: int = 0
    status: str = "RUNNING"
    moved: int = 0
    to_move: int = 0
    failure: str = ""


class _Header(msgspec.Struct, frozen=True):
    """What the first tag holds."""

    region: str
    name: str
    first: bool
    created_s: int
    modified_s: int


class QueueRecord(msgspec.Struct, frozen=True):
    """Everything that is remembered of one queue."""

    queue: QueueName
    # Whether its region was the first to make the name.
    first: bool
    created_s: int
    modified_s: int
    attributes: dict[str, str] = {}
    tags: dict[str, str] = {}
    # Newest first.
    moves: tuple[MoveRecord, ...] = ()

    @property
    def topic(self) -> str:
        """Return the topic behind the queue."""
        return topic_of(self.queue, first=self.first)

    @property
    def fifo(self) -> bool:
        """Tell whether the queue keeps order."""
        return self.queue.is_fifo

    def effective(self) -> dict[str, str]:
        """Return the attributes with their defaults."""
        return effective(self.attributes, fifo=self.fifo)

    def rules(self) -> QueueRules:
        """Return what the queue demands of a message."""
        values = self.effective()
        content = values.get("ContentBasedDeduplication") == "true"
        return QueueRules(self.fifo, content, int(values["MaximumMessageSize"]))

    def dead_letter_queue(self) -> QueueName | None:
        """Return where its dead letters go."""
        policy = self.attributes.get("RedrivePolicy")
        return read_arn(read_redrive(policy)[0]) if policy else None


def tags_of(record: QueueRecord) -> dict[str, str]:
    """Write a record as the tags of its topic."""
    header = _Header(*record.queue, record.first, record.created_s, record.modified_s)
    parts = {_QUEUE: header, _ATTRIBUTES: record.attributes, _TAGS: record.tags, _MOVES: record.moves}
    return {name: _encode(part).decode("utf-8") for name, part in parts.items()}


def record_of(tags: Mapping[str, str]) -> QueueRecord | None:
    """Read a record; None when the topic is no queue."""
    try:
        header = msgspec.json.decode(tags[_QUEUE], type=_Header)
        return QueueRecord(
            QueueName(header.region, header.name),
            header.first,
            header.created_s,
            header.modified_s,
            msgspec.json.decode(tags[_ATTRIBUTES], type=dict[str, str]),
            msgspec.json.decode(tags[_TAGS], type=dict[str, str]),
            msgspec.json.decode(tags[_MOVES], type=tuple[MoveRecord, ...]),
        )
    except (KeyError, msgspec.MsgspecError):
        return None


def settings_of(record: QueueRecord, dead_letter_topic: str | None) -> TopicSettings:
    """Say what the topic behind a queue has to be set to."""
    wanted = topic_settings(record.attributes, fifo=record.fifo, dead_letter_topic=dead_letter_topic)
    if dead_letter_topic == record.topic:
        # Back into the same queue is no end.
        wanted |= {"max_attempts": 0, "dead_letter_to": None}
    dedup = wanted.pop("dedup", None)
    return TopicSettings(**wanted, dedup=None if dedup is None else DedupSettings(**dedup), tags=tags_of(record))


# --- permissions: kept in the policy and shown, not enforced ---------------------------------------------------------


class Permission(msgspec.Struct, frozen=True):
    """Which accounts may do what."""

    label: str
    accounts: tuple[str, ...]
    actions: tuple[str, ...]


def _policy(record: QueueRecord, account: str) -> dict[str, Any]:
    stored = record.attributes.get("Policy")
    if stored:
        policy: dict[str, Any] = json.loads(stored)
        return policy
    return {"Version": "2008-10-17", "Id": f"{record.queue.arn(account)}/SQSDefaultPolicy", "Statement": []}


def with_permission(record: QueueRecord, permission: Permission, account: str) -> str | None:
    """Return the policy with one more statement; None when the label is taken."""
    policy = _policy(record, account)
    statements = policy.setdefault("Statement", [])
    if any(each.get("Sid") == permission.label for each in statements):
        return None
    principals = [f"arn:aws:iam::{each}:root" for each in permission.accounts]
    actions = [f"SQS:{each}" for each in permission.actions]
    statements.append(
        {
            "Sid": permission.label,
            "Effect": "Allow",
            "Principal": {"AWS": principals[0] if len(principals) == 1 else principals},
            "Action": actions[0] if len(actions) == 1 else actions,
            "Resource": record.queue.arn(account),
        }
    )
    return json.dumps(policy)


def without_permission(record: QueueRecord, label: str, account: str) -> str | None:
    """Return the policy without a statement, empty when none is left; None when there is no such label."""
    policy = _policy(record, account)
    kept = [each for each in policy.get("Statement", []) if each.get("Sid") != label]
    if len(kept) == len(policy.get("Statement", [])):
        return None
    policy["Statement"] = kept
    return json.dumps(policy) if kept else ""
