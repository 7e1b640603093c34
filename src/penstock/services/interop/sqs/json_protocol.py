"""AWS JSON 1.0: the operation in a header, the fields in a JSON object; pure."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Final, Required, TypedDict

import msgspec

from penstock.services.interop.providers.decoding import decode_base64
from penstock.services.interop.sqs.operations import OPERATIONS, FieldKind, SqsField, SqsOperation
from penstock.services.interop.sqs.refusals import SqsRefusal, missing

CONTENT_TYPE: Final = b"application/x-amz-json-1.0"
_TARGET: Final = "AmazonSQS."
_encode: Final = msgspec.json.Encoder().encode
_WHOLE_MAX: Final = (1 << 63) - 1


def operation_of(target: bytes) -> SqsOperation:
    """Find the operation that X-Amz-Target names."""
    prefix, _, name = target.decode("ascii", "replace").partition(".")
    found = OPERATIONS.get(name)
    if f"{prefix}." != _TARGET or found is None:
        raise SqsRefusal("InvalidAction", "The action or operation requested is not valid.")
    return found


def decode_json(operation: SqsOperation, body: bytes) -> dict[str, Any]:
    """Read a request's fields; names that the operation does not know are ignored, as AWS does.

    Nearly every request is as its operation's type says, and is read and checked in one go. Only another one is looked
    at field by field: it has a null, which is as good as nothing, or bytes, or a fault that has to be named.
    """
    try:
        found: dict[str, Any] = _TYPED[operation.name](body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return read_fields_of(operation, body)
    return found


def read_fields_of(operation: SqsOperation, body: bytes) -> dict[str, Any]:
    """Read a request field by field."""
    try:
        members = msgspec.json.decode(body or b"{}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise _unreadable() from exc
    if not isinstance(members, dict):
        raise _unreadable()
    return _read_fields(operation.takes, members)


def _unreadable(name: str = "") -> SqsRefusal:
    what = f"The field {name} has the wrong type." if name else "The body is not a JSON object."
    return SqsRefusal("SerializationException", what)


def _read_fields(fields: tuple[SqsField, ...], members: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in fields:
        value = members.get(field.name)
        if value is not None:
            found[field.name] = _read(field, value)
        elif field.required:
            raise missing(field.name)
    return found


def _read(field: SqsField, value: Any) -> Any:  # noqa: ANN401 - whatever the document holds
    match field.kind:
        case FieldKind.TEXT if isinstance(value, str):
            return value
        case FieldKind.WHOLE if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _WHOLE_MAX:
            return value
        case FieldKind.BYTES if isinstance(value, str):
            return _read_bytes(field, value)
        case FieldKind.TEXTS | FieldKind.BLOBS if _is_texts(value):
            return value
        case FieldKind.MAP if isinstance(value, dict) and _is_texts(list(value.values())):
            return value
        case FieldKind.STRUCTS_BY_NAME if isinstance(value, dict):
            return {name: _read_struct(field, each) for name, each in value.items()}
        case FieldKind.STRUCTS if isinstance(value, list):
            return [_read_struct(field, each) for each in value]
        case _:
            raise _unreadable(field.name)


def _is_texts(value: Any) -> bool:  # noqa: ANN401 - whatever the document holds
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _read_struct(field: SqsField, value: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever the document holds
    if not isinstance(value, dict):
        raise _unreadable(field.name)
    return _read_fields(field.fields, value)


def _read_bytes(field: SqsField, text: str) -> bytes:
    data = decode_base64(text.encode("utf-8"))
    if data is None:
        raise _unreadable(field.name)
    return data


# --- requests as types ------------------------------------------------------------------------------------------------

_NO_BYTES: Final = Annotated[str, msgspec.Meta(max_length=0)]
_TYPES: Final[dict[FieldKind, Any]] = {
    FieldKind.TEXT: str,
    FieldKind.WHOLE: Annotated[int, msgspec.Meta(ge=-_WHOLE_MAX, le=_WHOLE_MAX)],
    # Bytes are read field by field, by the one strict reader of base64.
    FieldKind.BYTES: _NO_BYTES,
    FieldKind.TEXTS: list[str],
    FieldKind.BLOBS: list[str],
    FieldKind.MAP: dict[str, str],
}


def _typed(name: str, fields: tuple[SqsField, ...]) -> Any:  # noqa: ANN401 - a type that is made here
    members = {field.name: Required[_type(field)] if field.required else _type(field) for field in fields}
    return TypedDict(name, members, total=False)  # type: ignore[operator]


def _type(field: SqsField) -> Any:  # noqa: ANN401 - a type that is made here
    if field.kind is FieldKind.STRUCTS:
        return list[_typed(field.name, field.fields)]  # type: ignore[misc]
    if field.kind is FieldKind.STRUCTS_BY_NAME:
        return dict[str, _typed(field.name, field.fields)]  # type: ignore[misc]
    return _TYPES[field.kind]


_TYPED: Final = {
    name: msgspec.json.Decoder(_typed(name, operation.takes)).decode for name, operation in OPERATIONS.items()
}


# --- answers ---------------------------------------------------------------------------------------------------------


def encode_json(operation: SqsOperation, answer: dict[str, Any]) -> bytes:
    """Write an answer; empty members are left out. An operation that answers nothing has an empty object."""
    return _encode(_write_fields(operation.answers, answer))


def encode_written(answer: dict[str, Any]) -> bytes:
    """Write an answer that was made without empty members, and of nothing but what its operation answers."""
    return _encode(answer)


def _write_fields(fields: tuple[SqsField, ...], answer: dict[str, Any]) -> dict[str, Any]:
    written = {}
    for field in fields:
        value = answer.get(field.name)
        if value is None or (value in ([], {}) and field.kind is not FieldKind.STRUCTS):
            continue
        if value == [] and field.name not in ("Successful", "Results"):
            continue
        written[field.name] = _write(field, value)
    return written


def _write(field: SqsField, value: Any) -> Any:  # noqa: ANN401 - by the field's kind
    match field.kind:
        case FieldKind.STRUCTS:
            return [_write_fields(field.fields, each) for each in value]
        case FieldKind.STRUCTS_BY_NAME:
            return {name: _write_fields(field.fields, each) for name, each in value.items()}
        case FieldKind.BYTES:
            return base64.b64encode(value).decode("ascii")
        case _:
            return value


def encode_json_refusal(refusal: SqsRefusal) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Write an error: the body, and the field that carries its older code."""
    body = _encode({"__type": f"com.amazonaws.sqs#{refusal.name}", "message": refusal.message})
    return body, [(b"x-amzn-query-error", f"{refusal.legacy};{refusal.fault}".encode("ascii"))]
