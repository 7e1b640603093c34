"""The 23 operations as data: what each takes and answers, and its fields' names in the query protocol; pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class FieldKind(Enum):
    """What a field holds."""

    TEXT = "text"
    WHOLE = "whole"
    FLAG = "flag"
    BYTES = "bytes"
    TEXTS = "texts"
    # A list of bytes: reserved by AWS, and refused where it comes.
    BLOBS = "blobs"
    # Texts by name; the query protocol spells it as numbered names and values.
    MAP = "map"
    # Structures by name.
    STRUCTS_BY_NAME = "structs_by_name"
    # A list of structures.
    STRUCTS = "structs"


@dataclass(frozen=True, slots=True)
class SqsField:
    """One field of a request or an answer."""

    name: str
    kind: FieldKind = FieldKind.TEXT
    required: bool = False
    # Its name in the query protocol, where a list is a repeated name in the singular.
    query: str = ""
    # How the query protocol calls the two halves of a map's entry.
    pair: tuple[str, str] = ("Name", "Value")
    fields: tuple[SqsField, ...] = ()

    @property
    def query_name(self) -> str:
        """Return the field's name in the query protocol."""
        return self.query or self.name


@dataclass(frozen=True, slots=True)
class SqsOperation:
    """One operation: its name, what it takes, what it answers."""

    name: str
    takes: tuple[SqsField, ...]
    answers: tuple[SqsField, ...] = ()

    @property
    def on_messages(self) -> bool:
        """Tell whether it is an operation on messages; the answers of those are made without empty members."""
        return "Message" in self.name and "Move" not in self.name

    @property
    def asked_at_queue(self) -> bool:
        """Tell whether it may be asked at the address of a queue: it is asked of one queue, or for the URL of one."""
        return self.name == "GetQueueUrl" or any(field.name == "QueueUrl" for field in self.takes)


def _text(name: str, query: str = "") -> SqsField:
    return SqsField(name, query=query)


def _needed(name: str, kind: FieldKind = FieldKind.TEXT) -> SqsField:
    return SqsField(name, kind, required=True)


def _whole(name: str) -> SqsField:
    return SqsField(name, FieldKind.WHOLE)


def _texts(name: str, query: str, *, required: bool = False) -> SqsField:
    return SqsField(name, FieldKind.TEXTS, required, query)


_URL: Final = _needed("QueueUrl")
_ATTRIBUTE: Final = (
    _needed("DataType"),
    _text("StringValue"),
    SqsField("BinaryValue", FieldKind.BYTES),
    _texts("StringListValues", "StringListValue"),
    SqsField("BinaryListValues", FieldKind.BLOBS, query="BinaryListValue"),
)
_MESSAGE_ATTRIBUTES: Final = SqsField(
    "MessageAttributes", FieldKind.STRUCTS_BY_NAME, query="MessageAttribute", fields=_ATTRIBUTE
)
_SYSTEM_ATTRIBUTES: Final = SqsField(
    "MessageSystemAttributes", FieldKind.STRUCTS_BY_NAME, query="MessageSystemAttribute", fields=_ATTRIBUTE
)
_ATTRIBUTES: Final = SqsField("Attributes", FieldKind.MAP, query="Attribute")
_TAG_PAIR: Final = ("Key", "Value")
_SENDING: Final = (
    _needed("MessageBody"),
    _whole("DelaySeconds"),
    _MESSAGE_ATTRIBUTES,
    _SYSTEM_ATTRIBUTES,
    _text("MessageDeduplicationId"),
    _text("MessageGroupId"),
)
_SENT: Final = (
    _text("MessageId"),
    _text("MD5OfMessageBody"),
    _text("MD5OfMessageAttributes"),
    _text("MD5OfMessageSystemAttributes"),
    _text("SequenceNumber"),
)
_FAILED: Final = SqsField(
    "Failed",
    FieldKind.STRUCTS,
    query="BatchResultErrorEntry",
    fields=(_text("Id"), SqsField("SenderFault", FieldKind.FLAG), _text("Code"), _text("Message")),
)
_MESSAGE: Final = (
    _text("MessageId"),
    _text("ReceiptHandle"),
    _text("MD5OfBody"),
    _text("Body"),
    _ATTRIBUTES,
    _text("MD5OfMessageAttributes"),
    _MESSAGE_ATTRIBUTES,
)
_MOVE: Final = (
    _text("TaskHandle"),
    _text("Status"),
    _text("SourceArn"),
    _text("DestinationArn"),
    _whole("MaxNumberOfMessagesPerSecond"),
    _whole("ApproximateNumberOfMessagesMoved"),
    _whole("ApproximateNumberOfMessagesToMove"),
    _text("FailureReason"),
    _whole("StartedTimestamp"),
)


def _entries(query: str, *fields: SqsField) -> SqsField:
    return SqsField("Entries", FieldKind.STRUCTS, required=True, query=query, fields=(_needed("Id"), *fields))


def _succeeded(query: str, *fields: SqsField) -> SqsField:
    return SqsField("Successful", FieldKind.STRUCTS, query=query, fields=(_text("Id"), *fields))


_ALL: Final = (
    SqsOperation(
        "AddPermission",
        (
            _URL,
            _needed("Label"),
            _texts("AWSAccountIds", "AWSAccountId", required=True),
            _texts("Actions", "ActionName", required=True),
        ),
    ),
    SqsOperation("CancelMessageMoveTask", (_needed("TaskHandle"),), (_whole("ApproximateNumberOfMessagesMoved"),)),
    SqsOperation(
        "ChangeMessageVisibility",
        (_URL, _needed("ReceiptHandle"), _needed("VisibilityTimeout", FieldKind.WHOLE)),
    ),
    SqsOperation(
        "ChangeMessageVisibilityBatch",
        (
            _URL,
            _entries("ChangeMessageVisibilityBatchRequestEntry", _needed("ReceiptHandle"), _whole("VisibilityTimeout")),
        ),
        (_succeeded("ChangeMessageVisibilityBatchResultEntry"), _FAILED),
    ),
    SqsOperation(
        "CreateQueue",
        (_needed("QueueName"), _ATTRIBUTES, SqsField("tags", FieldKind.MAP, query="Tag", pair=_TAG_PAIR)),
        (_text("QueueUrl"),),
    ),
    SqsOperation("DeleteMessage", (_URL, _needed("ReceiptHandle"))),
    SqsOperation(
        "DeleteMessageBatch",
        (_URL, _entries("DeleteMessageBatchRequestEntry", _needed("ReceiptHandle"))),
        (_succeeded("DeleteMessageBatchResultEntry"), _FAILED),
    ),
    SqsOperation("DeleteQueue", (_URL,)),
    SqsOperation("GetQueueAttributes", (_URL, _texts("AttributeNames", "AttributeName")), (_ATTRIBUTES,)),
    SqsOperation("GetQueueUrl", (_needed("QueueName"), _text("QueueOwnerAWSAccountId")), (_text("QueueUrl"),)),
    SqsOperation(
        "ListDeadLetterSourceQueues",
        (_URL, _text("NextToken"), _whole("MaxResults")),
        (_texts("queueUrls", "QueueUrl"), _text("NextToken")),
    ),
    SqsOperation(
        "ListMessageMoveTasks",
        (_needed("SourceArn"), _whole("MaxResults")),
        (SqsField("Results", FieldKind.STRUCTS, query="ListMessageMoveTasksResultEntry", fields=_MOVE),),
    ),
    SqsOperation("ListQueueTags", (_URL,), (SqsField("Tags", FieldKind.MAP, query="Tag", pair=_TAG_PAIR),)),
    SqsOperation(
        "ListQueues",
        (_text("QueueNamePrefix"), _text("NextToken"), _whole("MaxResults")),
        (_texts("QueueUrls", "QueueUrl"), _text("NextToken")),
    ),
    SqsOperation("PurgeQueue", (_URL,)),
    SqsOperation(
        "ReceiveMessage",
        (
            _URL,
            _texts("AttributeNames", "AttributeName"),
            _texts("MessageSystemAttributeNames", "MessageSystemAttributeName"),
            _texts("MessageAttributeNames", "MessageAttributeName"),
            _whole("MaxNumberOfMessages"),
            _whole("VisibilityTimeout"),
            _whole("WaitTimeSeconds"),
            _text("ReceiveRequestAttemptId"),
        ),
        (SqsField("Messages", FieldKind.STRUCTS, query="Message", fields=_MESSAGE),),
    ),
    SqsOperation("RemovePermission", (_URL, _needed("Label"))),
    SqsOperation("SendMessage", (_URL, *_SENDING), _SENT),
    SqsOperation(
        "SendMessageBatch",
        (_URL, _entries("SendMessageBatchRequestEntry", *_SENDING)),
        (_succeeded("SendMessageBatchResultEntry", *_SENT), _FAILED),
    ),
    SqsOperation("SetQueueAttributes", (_URL, SqsField("Attributes", FieldKind.MAP, required=True, query="Attribute"))),
    SqsOperation(
        "StartMessageMoveTask",
        (_needed("SourceArn"), _text("DestinationArn"), _whole("MaxNumberOfMessagesPerSecond")),
        (_text("TaskHandle"),),
    ),
    SqsOperation("TagQueue", (_URL, SqsField("Tags", FieldKind.MAP, required=True, query="Tag", pair=_TAG_PAIR))),
    SqsOperation("UntagQueue", (_URL, _texts("TagKeys", "TagKey", required=True))),
)
OPERATIONS: Final = {operation.name: operation for operation in _ALL}
