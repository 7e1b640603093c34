"""From an operation's fields to a checked request; refusals have the codes and words that AWS clients know; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from penstock.services.interop.sqs.handles import ReceiptHandle, read_handle
from penstock.services.interop.sqs.messages import (
    check_attributes,
    check_body,
    check_system_attributes,
    check_system_names,
    size_of,
)
from penstock.services.interop.sqs.refusals import SqsRefusal, bad_value, invalid, missing

BATCH_MAX: Final = 10
BATCH_BYTES_MAX: Final = 1 << 20
VISIBILITY_S_MAX: Final = 43_200
_DELAY_S_MAX: Final = 900
_WAIT_S_MAX: Final = 20
_PAGE_MAX: Final = 1000
_MOVES_A_SECOND_MAX: Final = 500
_TAGS_MAX: Final = 50
_ENTRY_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)
_PRINTABLE_ID: Final = re.compile(r"[!-~]{1,128}", re.ASCII)
_LABEL: Final = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)
_ACCOUNT: Final = re.compile(r"[0-9]{12}", re.ASCII)
_WRONG_TYPE: Final = "The request include parameter that is not valid for this queue type."
_ACTIONS_MAX: Final = 7
_GRANTABLE: Final = frozenset(
    {
        "*",
        "ChangeMessageVisibility",
        "DeleteMessage",
        "GetQueueAttributes",
        "GetQueueUrl",
        "ListDeadLetterSourceQueues",
        "PurgeQueue",
        "ReceiveMessage",
        "SendMessage",
    }
)
_NO_NAMES: Final[frozenset[str]] = frozenset()
_NONE: Final[Mapping[str, Any]] = MappingProxyType({})
T = TypeVar("T")
Given = Mapping[str, Any]


class QueueRules(NamedTuple):
    """What a queue demands of a message."""

    fifo: bool = False
    content_dedup: bool = False
    bytes_max: int = 1 << 20


class CheckedSend(NamedTuple):
    """One message that may be sent."""

    body: str
    delay_s: int | None = None
    attributes: Mapping[str, dict[str, Any]] = _NONE
    trace: str = ""
    dedup_id: str = ""
    group: str = ""
    size: int = 0


def check_send(given: Given, rules: QueueRules) -> CheckedSend:
    """Check one message."""
    body = check_body(given.get("MessageBody", ""))
    said = given.get("MessageAttributes")
    attributes = check_attributes(said) if said else _NONE
    system = given.get("MessageSystemAttributes")
    trace = check_system_attributes(system) if system else ""
    size = size_of(body, attributes)
    if size > rules.bytes_max:
        raise invalid(
            f"One or more parameters are invalid. Reason: Message must be shorter than {rules.bytes_max} bytes."
        )
    delay_s = _delay(given.get("DelaySeconds"), rules)
    group, dedup_id = _printable(given, "MessageGroupId"), _printable(given, "MessageDeduplicationId")
    if rules.fifo:
        _check_fifo(group, dedup_id, rules)
    elif dedup_id:
        raise bad_value(dedup_id, "MessageDeduplicationId", _WRONG_TYPE)
    return CheckedSend(body, delay_s, attributes, trace, dedup_id, group, size)


def _delay(delay_s: int | None, rules: QueueRules) -> int | None:
    if delay_s is None:
        return None
    if not 0 <= delay_s <= _DELAY_S_MAX:
        raise bad_value(delay_s, "DelaySeconds", "DelaySeconds must be >= 0 and <= 900.")
    if rules.fifo:
        if delay_s:
            raise bad_value(delay_s, "DelaySeconds", _WRONG_TYPE)
        return None
    return delay_s


def _printable(given: Given, name: str) -> str:
    value = given.get(name)
    if value is None:
        return ""
    if not _PRINTABLE_ID.fullmatch(value):
        raise bad_value(
            value[:200], name, f"{name} can only include alphanumeric and punctuation characters. 1 to 128 in length."
        )
    return str(value)


def _check_fifo(group: str, dedup_id: str, rules: QueueRules) -> None:
    if not group:
        raise missing("MessageGroupId")
    if not dedup_id and not rules.content_dedup:
        raise invalid(
            "The queue should either have ContentBasedDeduplication enabled "
            "or MessageDeduplicationId provided explicitly"
        )


# --- batches ---------------------------------------------------------------------------------------------------------


class BatchItem(NamedTuple):
    """One entry of a batch: its id, and what it became."""

    id: str
    value: Any


def batch_failure(item_id: str, refusal: SqsRefusal) -> dict[str, Any]:
    """Write the failure of one entry."""
    return {
        "Id": item_id,
        "SenderFault": refusal.status < 500,
        "Code": refusal.legacy,
        "Message": refusal.message,
    }


def check_entries(entries: list[Given], kind: str) -> list[Given]:
    """Check what concerns a batch as a whole: how many entries, and their ids."""
    if not entries:
        raise SqsRefusal("EmptyBatchRequest", f"There should be at least one {kind} in the request.")
    if len(entries) > BATCH_MAX:
        raise SqsRefusal(
            "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {BATCH_MAX}. You have sent {len(entries)}.",
        )
    seen: set[str] = set()
    for entry in entries:
        if not _ENTRY_ID.fullmatch(entry["Id"]):
            raise SqsRefusal(
                "InvalidBatchEntryId",
                "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
                "It can be at most 80 letters long.",
            )
        if entry["Id"] in seen:
            raise SqsRefusal("BatchEntryIdsNotDistinct", f"Id {entry['Id']} repeated.")
        seen.add(entry["Id"])
    return entries


def each_entry(entries: list[Given], check: Callable[[Given], object]) -> list[BatchItem]:
    """Check every entry on its own: a bad one fails alone."""
    found = []
    for entry in entries:
        try:
            found.append(BatchItem(entry["Id"], check(entry)))
        except SqsRefusal as refusal:
            found.append(BatchItem(entry["Id"], refusal))
    return found


def check_send_batch(entries: list[Given], rules: QueueRules) -> list[BatchItem]:
    """Check a batch of messages; all of them together are bounded too."""
    check_entries(entries, "SendMessageBatchRequestEntry")
    total = sum(_entry_bytes(entry) for entry in entries)
    if total > BATCH_BYTES_MAX:
        raise SqsRefusal(
            "BatchRequestTooLong",
            f"Batch requests cannot be longer than {BATCH_BYTES_MAX} bytes. You have sent {total} bytes.",
        )
    if rules.fifo:
        # AWS refuses the whole batch for these two.
        for entry in entries:
            if not entry.get("MessageGroupId"):
                raise invalid("The request must contain the parameter MessageGroupId.")
            _check_fifo(entry["MessageGroupId"], entry.get("MessageDeduplicationId", ""), rules)
    return each_entry(entries, lambda entry: check_send(entry, rules))


def _entry_bytes(entry: Given) -> int:
    return size_of(entry.get("MessageBody", ""), entry.get("MessageAttributes", {}))


# --- receiving and settling ------------------------------------------------------------------------------------------


class CheckedReceive(NamedTuple):
    """A receive that may be done. None means: as the queue is set."""

    messages_max: int = 1
    visibility_s: int | None = None
    wait_s: int | None = None
    system_names: frozenset[str] = _NO_NAMES
    attribute_names: tuple[str, ...] = ()


def check_receive(given: Given) -> CheckedReceive:
    """Check a receive."""
    count = given.get("MaxNumberOfMessages", 1)
    if not 1 <= count <= BATCH_MAX:
        raise bad_value(count, "MaxNumberOfMessages", "Must be between 1 and 10, if provided.")
    wait_s = given.get("WaitTimeSeconds")
    if wait_s is not None and not 0 <= wait_s <= _WAIT_S_MAX:
        raise bad_value(wait_s, "WaitTimeSeconds", "Must be >= 0 and <= 20, if provided.")
    visibility_s = given.get("VisibilityTimeout")
    if visibility_s is not None:
        _visibility(visibility_s)
    _printable(given, "ReceiveRequestAttemptId")
    names = [*given.get("AttributeNames", ()), *given.get("MessageSystemAttributeNames", ())]
    system_names = check_system_names(names) if names else _NO_NAMES
    return CheckedReceive(count, visibility_s, wait_s, system_names, tuple(given.get("MessageAttributeNames", ())))


def _visibility(visibility_s: int) -> int:
    if not 0 <= visibility_s <= VISIBILITY_S_MAX:
        raise bad_value(visibility_s, "VisibilityTimeout", "VisibilityTimeout must be an integer between 0 and 43200")
    return visibility_s


class CheckedVisibility(NamedTuple):
    """A lease that is to end so many seconds from now."""

    handle: ReceiptHandle
    visibility_s: int


def check_visibility(given: Given) -> CheckedVisibility:
    """Check a change of visibility, alone or of a batch."""
    if "VisibilityTimeout" not in given:
        raise missing("VisibilityTimeout")
    return CheckedVisibility(read_handle(given["ReceiptHandle"]), _visibility(given["VisibilityTimeout"]))


def check_delete(given: Given) -> ReceiptHandle:
    """Check a deletion, alone or of a batch."""
    return read_handle(given["ReceiptHandle"])


# --- lists, tags, permissions, moves ---------------------------------------------------------------------------------


def check_page(given: Given) -> int:
    """Return how many rows a page has."""
    count = given.get("MaxResults")
    if count is None:
        if given.get("NextToken"):
            raise invalid("The request must contain MaxResults when it contains NextToken.")
        return _PAGE_MAX
    if not 1 <= count <= _PAGE_MAX:
        raise bad_value(count, "MaxResults", "MaxResults must be an integer between 1 and 1000.")
    return int(count)


def check_tags(tags: Mapping[str, str], queue: str) -> dict[str, str]:
    """Check the tags of a queue."""
    if len(tags) > _TAGS_MAX:
        raise invalid(f"Too many tags added for queue {queue[:80]}.")
    for key, value in tags.items():
        if not 1 <= len(key) <= 128 or key.lower().startswith("aws:") or len(value) > 256:
            raise invalid(f"The tag {key[:128]} is not valid: a key has 1 to 128 characters, a value at most 256.")
    return dict(tags)


def check_permission(given: Given) -> None:
    """Check a permission; it is stored and shown, not enforced."""
    if not _LABEL.fullmatch(given["Label"]):
        raise invalid("Label can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
    if not given["Actions"]:
        raise missing("Actions")
    if len(given["Actions"]) > _ACTIONS_MAX:
        raise SqsRefusal("OverLimit", f"{len(given['Actions'])} Actions were found, maximum allowed is {_ACTIONS_MAX}.")
    accounts = given["AWSAccountIds"]
    if not accounts or not all(_ACCOUNT.fullmatch(each) for each in accounts):
        raise bad_value(str(accounts)[:200], "PrincipalId", "Unable to verify.")
    for action in given["Actions"]:
        if action not in _GRANTABLE:
            owner_only = "Only the queue owner is allowed to invoke this action."
            raise bad_value(f"SQS:{action[:80]}", "ActionName", owner_only)


def check_move_rate(given: Given) -> int | None:
    """Return how many messages a second a move may take."""
    rate = given.get("MaxNumberOfMessagesPerSecond")
    if rate is not None and not 1 <= rate <= _MOVES_A_SECOND_MAX:
        raise bad_value(rate, "MaxNumberOfMessagesPerSecond", "Must be between 1 and 500.")
    return rate


def check_move_page(given: Given) -> int:
    """Return how many moves are listed."""
    count = given.get("MaxResults", 1)
    if not 1 <= count <= BATCH_MAX:
        raise bad_value(count, "MaxResults", "MaxResults must be an integer between 1 and 10.")
    return int(count)
