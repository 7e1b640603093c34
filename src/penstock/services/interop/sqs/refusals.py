"""The errors of the SQS protocol: each with the name, the older code and the status that AWS gives it; pure."""

from __future__ import annotations

from typing import Final, NamedTuple


class _Kind(NamedTuple):
    """How one error is written. `legacy` is its code in the query protocol and in `x-amzn-query-error`."""

    legacy: str
    status: int = 400


_OLD: Final = "AWS.SimpleQueueService."
KINDS: Final = {
    "QueueDoesNotExist": _Kind(_OLD + "NonExistentQueue"),
    "QueueNameExists": _Kind("QueueAlreadyExists"),
    "QueueDeletedRecently": _Kind(_OLD + "QueueDeletedRecently"),
    "PurgeQueueInProgress": _Kind(_OLD + "PurgeQueueInProgress", 403),
    "UnsupportedOperation": _Kind(_OLD + "UnsupportedOperation"),
    "MessageNotInflight": _Kind(_OLD + "MessageNotInflight"),
    "BatchEntryIdsNotDistinct": _Kind(_OLD + "BatchEntryIdsNotDistinct"),
    "BatchRequestTooLong": _Kind(_OLD + "BatchRequestTooLong"),
    "EmptyBatchRequest": _Kind(_OLD + "EmptyBatchRequest"),
    "InvalidBatchEntryId": _Kind(_OLD + "InvalidBatchEntryId"),
    "TooManyEntriesInBatchRequest": _Kind(_OLD + "TooManyEntriesInBatchRequest"),
    "InvalidAttributeName": _Kind("InvalidAttributeName"),
    "InvalidAttributeValue": _Kind("InvalidAttributeValue"),
    "InvalidMessageContents": _Kind("InvalidMessageContents"),
    "InvalidIdFormat": _Kind("InvalidIdFormat"),
    "InvalidAddress": _Kind("InvalidAddress", 404),
    "OverLimit": _Kind("OverLimit", 403),
    "ReceiptHandleIsInvalid": _Kind("ReceiptHandleIsInvalid", 404),
    "ResourceNotFoundException": _Kind("ResourceNotFoundException", 404),
    "InvalidParameterValueException": _Kind("InvalidParameterValue"),
    "InvalidParameterCombinationException": _Kind("InvalidParameterCombination"),
    "MissingRequiredParameterException": _Kind("MissingParameter"),
    "InvalidAction": _Kind("InvalidAction"),
    "UnknownOperationException": _Kind("UnknownOperationException", 404),
    "MissingAction": _Kind("MissingAction"),
    "MalformedQueryString": _Kind("MalformedQueryString"),
    "SerializationException": _Kind("SerializationException"),
    "RequestThrottled": _Kind("RequestThrottled", 429),
    "ServiceUnavailable": _Kind("ServiceUnavailable", 503),
    "InternalFailure": _Kind("InternalFailure", 500),
    "AccessDeniedException": _Kind("AccessDenied", 403),
    "MissingAuthenticationToken": _Kind("MissingAuthenticationToken", 403),
    "InvalidClientTokenId": _Kind("InvalidClientTokenId", 403),
    "SignatureDoesNotMatch": _Kind("SignatureDoesNotMatch", 403),
    "IncompleteSignature": _Kind("IncompleteSignature", 403),
    "RequestExpired": _Kind("RequestExpired", 403),
}


class SqsRefusal(Exception):
    """A request that is answered with an error of the SQS protocol."""

    def __init__(self, name: str, message: str) -> None:
        """Take a name of the table and a sentence for the caller."""
        super().__init__(message)
        self.name = name
        self.message = message
        self.legacy, self.status = KINDS[name]

    @property
    def fault(self) -> str:
        """Say whose fault it is."""
        return "Receiver" if self.status >= 500 else "Sender"


def bad_value(value: object, parameter: str, reason: str) -> SqsRefusal:
    """Refuse a parameter's value in the words AWS uses."""
    return SqsRefusal(
        "InvalidParameterValueException", f"Value {value} for parameter {parameter} is invalid. Reason: {reason}"
    )


def invalid(message: str) -> SqsRefusal:
    """Refuse a parameter whose message is its own."""
    return SqsRefusal("InvalidParameterValueException", message)


def missing(parameter: str) -> SqsRefusal:
    """Refuse a request without a parameter that it needs."""
    return SqsRefusal("MissingRequiredParameterException", f"The request must contain the parameter {parameter}.")


def no_queue() -> SqsRefusal:
    """Refuse a request for a queue that is not there."""
    return SqsRefusal("QueueDoesNotExist", "The specified queue does not exist.")


def in_older_words(refusal: SqsRefusal) -> SqsRefusal:
    """Return a refusal as the query protocol says it: AWS has other words there for one of them."""
    if refusal.name == "QueueDoesNotExist":
        return SqsRefusal(refusal.name, "The specified queue does not exist for this wsdl version.")
    return refusal


def unknown_attribute(name: str) -> SqsRefusal:
    """Refuse the name of an attribute."""
    return SqsRefusal("InvalidAttributeName", f"Unknown Attribute {name}.")
