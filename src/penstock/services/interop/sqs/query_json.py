"""Answers of the query protocol as JSON, for a client that asks for it by `Accept: application/json`; pure.

The document has the elements of the XML as members. Lists have AWS's own names, a map is a list of pairs, and a member
without a value is null. This is what AWS answers, API Gateway's integrations above all.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock.services.interop.sqs.operations import FieldKind, SqsField, SqsOperation
from penstock.services.interop.sqs.refusals import SqsRefusal, in_older_words

CONTENT_TYPE: Final = b"application/json"
_RENAMED: Final = {"Messages": "messages", "QueueUrls": "queueUrls"}
_encode: Final = msgspec.json.Encoder().encode


def is_wanted(accept: bytes) -> bool:
    """Tell whether a client prefers JSON: by the first kind that its Accept field names."""
    return accept.partition(b",")[0].partition(b";")[0].strip() == CONTENT_TYPE


def encode_query_json(operation: SqsOperation, answer: dict[str, Any], request_id: str) -> bytes:
    """Write an answer."""
    response: dict[str, Any] = {"ResponseMetadata": {"RequestId": request_id}}
    if operation.answers:
        response[f"{operation.name}Result"] = _write_fields(operation.answers, answer)
    return _encode({f"{operation.name}Response": response})


def encode_query_json_refusal(refusal: SqsRefusal, request_id: str) -> bytes:
    """Write an error."""
    said = in_older_words(refusal)
    error = {"Code": said.legacy, "Message": said.message, "Type": said.fault}
    return _encode({"Error": error, "RequestId": request_id})


def _write_fields(fields: tuple[SqsField, ...], answer: dict[str, Any]) -> dict[str, Any]:
    return {_RENAMED.get(field.name, field.name): _write(field, answer.get(field.name)) for field in fields}


def _write(field: SqsField, value: Any) -> Any:  # noqa: ANN401 - by the field's kind
    if value is None:
        return None
    key, half = field.pair
    match field.kind:
        case FieldKind.MAP:
            return [{key: name, half: each} for name, each in value.items()]
        case FieldKind.STRUCTS_BY_NAME:
            return [{key: name, half: _write_fields(field.fields, each)} for name, each in value.items()]
        case FieldKind.STRUCTS:
            return [_write_fields(field.fields, each) for each in value]
        case _:
            # The encoder writes bytes as base64.
            return value
