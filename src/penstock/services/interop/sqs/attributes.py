"""Queue attributes: what may be set, what it means for the topic behind, and what is shown; pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from penstock.services.interop.sqs.names import read_arn
from penstock.services.interop.sqs.refusals import SqsRefusal, unknown_attribute

MAX_BYTES: Final = 1 << 20
_META_BYTES: Final = 1024
_DEDUP_S: Final = 300
_FIFO_BATCH: Final = 10
_WHOLE: Final = re.compile(r"[0-9]{1,9}")
_RECEIVES_MAX: Final = 1000
_PERMISSIONS: Final = ("allowAll", "denyAll", "byQueue")
DEFAULTS: Final[Mapping[str, str]] = {
    "DelaySeconds": "0",
    "MaximumMessageSize": str(MAX_BYTES),
    "MessageRetentionPeriod": "345600",
    "ReceiveMessageWaitTimeSeconds": "0",
    "VisibilityTimeout": "30",
    "SqsManagedSseEnabled": "true",
}
FIFO_DEFAULTS: Final[Mapping[str, str]] = {
    "FifoQueue": "true",
    "ContentBasedDeduplication": "false",
    "DeduplicationScope": "queue",
    "FifoThroughputLimit": "perQueue",
}
# What the queue counts or is; it can be asked for and not set.
READ_ONLY: Final = frozenset(
    {
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesNotVisible",
        "ApproximateNumberOfMessagesDelayed",
        "CreatedTimestamp",
        "LastModifiedTimestamp",
        "QueueArn",
    }
)


def _refuse(name: str) -> SqsRefusal:
    return SqsRefusal("InvalidAttributeValue", f"Invalid value for the parameter {name}.")


def _whole(low: int, high: int) -> Callable[[str, str], str]:
    def check(name: str, value: str) -> str:
        if not _WHOLE.fullmatch(value) or not low <= int(value) <= high:
            raise _refuse(name)
        return str(int(value))

    return check


def _one_of(*choices: str) -> Callable[[str, str], str]:
    def check(name: str, value: str) -> str:
        if value not in choices:
            raise _refuse(name)
        return value

    return check


def _flag(name: str, value: str) -> str:
    if value.lower() not in ("true", "false"):
        raise _refuse(name)
    return value.lower()


def _kept(_name: str, value: str) -> str:
    return value


def _object(name: str, value: str) -> dict[str, Any]:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError) as exc:
        raise _refuse(name) from exc
    if not isinstance(found, dict):
        raise _refuse(name)
    return found


def _policy(name: str, value: str) -> str:
    if value:
        _object(name, value)
    return value


def _redrive(name: str, value: str) -> str:
    """Take the policy; a count that came as text is shown as the number it is."""
    if not value:
        return value
    _, count = read_redrive(value)
    return json.dumps({**_object(name, value), "maxReceiveCount": count})


def read_redrive(value: str) -> tuple[str, int]:
    """Return where dead letters go, and after how many receives."""
    name = "RedrivePolicy"
    policy = _object(name, value)
    arn, count = policy.get("deadLetterTargetArn"), policy.get("maxReceiveCount")
    if isinstance(count, str) and _WHOLE.fullmatch(count):
        count = int(count)
    if not isinstance(arn, str) or isinstance(count, bool) or not isinstance(count, int):
        raise SqsRefusal(
            "InvalidParameterValueException",
            f"Value {value[:200]} for parameter {name} is invalid. Reason: Redrive policy does not contain mandatory "
            "attributes: deadLetterTargetArn, maxReceiveCount.",
        )
    if not 1 <= count <= _RECEIVES_MAX:
        raise SqsRefusal(
            "InvalidParameterValueException",
            f"Value {value[:200]} for parameter {name} is invalid. Reason: Invalid value for maxReceiveCount: {count}, "
            "valid values are from 1 to 1000 both inclusive.",
        )
    read_arn(arn)
    return arn, count


def _redrive_allow(name: str, value: str) -> str:
    if not value:
        return value
    policy = _object(name, value)
    arns = policy.get("sourceQueueArns", [])
    wrong = policy.get("redrivePermission", "allowAll") not in _PERMISSIONS or not isinstance(arns, list)
    if wrong or len(arns) > 10 or bool(arns) != (policy.get("redrivePermission") == "byQueue"):
        raise _refuse(name)
    return value


_CHECKS: Final[Mapping[str, Callable[[str, str], str]]] = {
    "DelaySeconds": _whole(0, 900),
    "MaximumMessageSize": _whole(1024, MAX_BYTES),
    "MessageRetentionPeriod": _whole(60, 1_209_600),
    "ReceiveMessageWaitTimeSeconds": _whole(0, 20),
    "VisibilityTimeout": _whole(0, 43_200),
    "Policy": _policy,
    "RedrivePolicy": _redrive,
    "RedriveAllowPolicy": _redrive_allow,
    "FifoQueue": _flag,
    "ContentBasedDeduplication": _flag,
    "DeduplicationScope": _one_of("queue", "messageGroup"),
    "FifoThroughputLimit": _one_of("perQueue", "perMessageGroupId"),
    # Stored and echoed, not enforced.
    "KmsMasterKeyId": _kept,
    "KmsDataKeyReusePeriodSeconds": _whole(60, 86_400),
    "SqsManagedSseEnabled": _flag,
}
_ONE_ENCRYPTION: Final = (
    "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS SSE."
)
_FIFO_ONLY: Final = frozenset(FIFO_DEFAULTS)
KNOWN: Final = frozenset(_CHECKS) | READ_ONLY


def check_attributes(given: Mapping[str, str], *, fifo: bool) -> dict[str, str]:
    """Take attributes that somebody sets; names are trimmed, values brought to one spelling."""
    found = {}
    for raw, value in given.items():
        name = raw.strip()
        check = _CHECKS.get(name)
        if check is None:
            raise unknown_attribute(name)
        if name in _FIFO_ONLY and not fifo:
            raise _only_fifo(name)
        found[name] = check(name, value)
    if found.get("FifoQueue", "true") != "true":
        said = "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported."
        raise SqsRefusal("InvalidAttributeValue", said)
    if found.get("KmsMasterKeyId") and found.get("SqsManagedSseEnabled") == "true":
        raise SqsRefusal("InvalidAttributeName", _ONE_ENCRYPTION)
    return found


def _only_fifo(name: str) -> SqsRefusal:
    """Refuse an attribute that only FIFO queues have; AWS knows two of them by name."""
    if name not in ("DeduplicationScope", "FifoThroughputLimit"):
        return unknown_attribute(name)
    return SqsRefusal("InvalidAttributeName", f"You can specify the {name} only when FifoQueue is set to true.")


def check_together(stored: Mapping[str, str]) -> None:
    """Refuse attributes that cannot be together."""
    effective = {**FIFO_DEFAULTS, **stored}
    per_group = effective["FifoThroughputLimit"] == "perMessageGroupId"
    if per_group and effective["DeduplicationScope"] != "messageGroup":
        raise _refuse("DeduplicationScope")


def merged(stored: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """Put changes over what is stored; an empty policy removes it."""
    return {name: value for name, value in {**stored, **changes}.items() if value}


def effective(stored: Mapping[str, str], *, fifo: bool) -> dict[str, str]:
    """Return every attribute that has a value, with the defaults."""
    values = {**DEFAULTS, **(FIFO_DEFAULTS if fifo else {}), **stored}
    if not values.get("KmsMasterKeyId"):
        # It says how long a key is used, and there is none.
        values.pop("KmsDataKeyReusePeriodSeconds", None)
    return values


def select(names: Iterable[str], everything: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes asked for; what nobody knows is refused, what has no value is left out."""
    wanted = [name.strip() for name in names]
    if "All" in wanted:
        return dict(everything)
    for name in wanted:
        if name not in KNOWN:
            raise unknown_attribute(name)
    return {name: everything[name] for name in wanted if name in everything}


def topic_settings(stored: Mapping[str, str], *, fifo: bool, dead_letter_topic: str | None) -> dict[str, Any]:
    """Say what the topic behind a queue has to be set to."""
    values = effective(stored, fifo=fifo)
    attempts = read_redrive(values["RedrivePolicy"])[1] if values.get("RedrivePolicy") else 0
    settings: dict[str, Any] = {
        "max_attempts": attempts,
        "visibility_ms": int(values["VisibilityTimeout"]) * 1000,
        "delay_ms": int(values["DelaySeconds"]) * 1000,
        "retention_s": int(values["MessageRetentionPeriod"]),
        "on_expiry": "drop",
        # Names and types of attributes take a few bytes more on their way than they count.
        "max_payload": min(int(values["MaximumMessageSize"]) + _META_BYTES, MAX_BYTES),
        "dead_letter_to": dead_letter_topic,
    }
    if not fifo:
        return {**settings, "receipts": "any", "fair_by": "group"}
    dedup = {"mode": "first_wins", "window_s": _DEDUP_S}
    return {**settings, "receipts": "strict", "key_batch": _FIFO_BATCH, "dedup": dedup}
