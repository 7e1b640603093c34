"""The query protocol: the operation and its fields in a form or a query string, the answer in XML; pure.

A list is spelled by numbered names: `AttributeName.1`, `AttributeName.2`. A map is a list of pairs: `Attribute.1.Name`
and `Attribute.1.Value`. The names are first put into a tree by their dots, and then read by the operation's fields.
"""

from __future__ import annotations

import base64
import re
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

from penstock.services.interop.providers.decoding import decode_base64
from penstock.services.interop.sqs.operations import OPERATIONS, FieldKind, SqsField, SqsOperation
from penstock.services.interop.sqs.refusals import SqsRefusal, bad_value, in_older_words, invalid, missing

CONTENT_TYPE: Final = b"text/xml"
FIELDS_MAX: Final = 2000
_DEPTH_MAX: Final = 8
_NAMESPACE: Final = "http://queue.amazonaws.com/doc/2012-11-05/"
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
_ESCAPED: Final = re.compile('[&<>"\r]')
_ESCAPES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#xD;"}
Tree: TypeAlias = "dict[str, str | Tree]"


def decode_form(text: bytes) -> Tree:
    """Read a form or query string into a tree; a name that comes twice is refused."""
    try:
        pairs = parse_qsl(text.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX)
    except ValueError as exc:
        raise SqsRefusal("MalformedQueryString", "The query string contains a syntax error.") from exc
    tree: Tree = {}
    for name, value in pairs:
        _plant(tree, name.split(".", _DEPTH_MAX), value)
    return tree


def _plant(tree: Tree, parts: list[str], value: str) -> None:
    for part in parts[:-1]:
        below = tree.setdefault(part, {})
        if isinstance(below, str):
            raise SqsRefusal("MalformedQueryString", "A name is used for a value and for a list.")
        tree = below
    if parts[-1] in tree:
        raise SqsRefusal("MalformedQueryString", "A name came twice.")
    tree[parts[-1]] = value


def operation_of(tree: Tree) -> SqsOperation:
    """Find the operation that `Action` names."""
    name = tree.get("Action")
    if not isinstance(name, str) or not name:
        raise SqsRefusal("MissingAction", "The request is missing an Action parameter.")
    if name not in OPERATIONS:
        raise not_valid_here(name)
    return OPERATIONS[name]


def not_valid_here(name: str) -> SqsRefusal:
    """Refuse an operation that there is not, or not at the address of a queue."""
    return SqsRefusal("InvalidAction", f"The action {name[:80]} is not valid for this endpoint.")


def decode_query(operation: SqsOperation, tree: Tree) -> dict[str, Any]:
    """Read an operation's fields out of the tree; others are ignored."""
    return _read_fields(operation.takes, tree)


def _read_fields(fields: tuple[SqsField, ...], tree: Tree) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in fields:
        raw = tree.get(field.query_name, tree.get(field.name))
        if raw is not None:
            found[field.name] = _read(field, raw)
        elif field.required:
            raise missing(field.name)
    return found


def _read(field: SqsField, raw: str | Tree) -> Any:  # noqa: ANN401 - by the field's kind
    match field.kind:
        case FieldKind.TEXT | FieldKind.WHOLE | FieldKind.FLAG | FieldKind.BYTES:
            return _read_value(field, raw)
        case FieldKind.TEXTS | FieldKind.BLOBS:
            return [_text(field, each) for each in _numbered(field, raw)]
        case FieldKind.MAP:
            return {name: _text(field, value) for name, value in _pairs(field, raw)}
        case FieldKind.STRUCTS_BY_NAME:
            return {name: _read_fields(field.fields, _tree(field, value)) for name, value in _pairs(field, raw)}
        case FieldKind.STRUCTS:
            return [_read_fields(field.fields, _tree(field, each)) for each in _numbered(field, raw)]


def _read_value(field: SqsField, raw: str | Tree) -> object:
    text = _text(field, raw)
    if field.kind is FieldKind.WHOLE:
        if not _WHOLE.fullmatch(text):
            raise bad_value(text[:80], field.name, "Must be a whole number.")
        return int(text)
    if field.kind is FieldKind.BYTES:
        data = decode_base64(text.encode("utf-8"))
        if data is None:
            raise invalid(f"The field {field.name} is not base64.")
        return data
    return text


def _text(field: SqsField, raw: str | Tree) -> str:
    if not isinstance(raw, str):
        raise invalid(f"The field {field.query_name} is not a single value.")
    return raw


def _tree(field: SqsField, raw: str | Tree) -> Tree:
    if isinstance(raw, str):
        raise invalid(f"The field {field.query_name} is not a list.")
    return raw


def _numbered(field: SqsField, raw: str | Tree) -> list[str | Tree]:
    """Return the items by their numbers; a single unnumbered value is a list of one."""
    if isinstance(raw, str):
        return [raw] if raw else []
    below = raw.get("member")
    items = below if isinstance(below, dict) else raw
    if not all(number.isascii() and number.isdigit() and len(number) <= 9 for number in items):
        raise invalid(f"The items of {field.query_name} are not numbered.")
    return [items[number] for number in sorted(items, key=int)]


def _pairs(field: SqsField, raw: str | Tree) -> list[tuple[str, str | Tree]]:
    name, value = field.pair
    found: list[tuple[str, str | Tree]] = []
    for each in _numbered(field, raw):
        entry = _tree(field, each)
        found.append((_text(field, entry.get(name, {})), entry.get(value, "")))
    return found


# --- answers ---------------------------------------------------------------------------------------------------------


def escape(text: str) -> str:
    """Write a text so that an XML reader gets exactly it back; a bare carriage return would become a newline."""
    return _ESCAPED.sub(lambda found: _ESCAPES[found[0]], text) if _ESCAPED.search(text) else text


def encode_query(operation: SqsOperation, answer: dict[str, Any], request_id: str) -> bytes:
    """Write an answer as XML."""
    name = operation.name
    inside = _write_fields(operation.answers, answer)
    result = (f"<{name}Result>{inside}</{name}Result>" if inside else f"<{name}Result/>") if operation.answers else ""
    tail = f"<ResponseMetadata><RequestId>{escape(request_id)}</RequestId></ResponseMetadata>"
    return _document(f"{name}Response", result + tail)


def encode_query_refusal(refusal: SqsRefusal, request_id: str) -> bytes:
    """Write an error as XML."""
    if refusal.name == "UnknownOperationException":
        return b"<UnknownOperationException/>"
    said = escape(in_older_words(refusal).message)
    code, message = f"<Code>{refusal.legacy}</Code>", f"<Message>{said}</Message>"
    error = f"<Error><Type>{refusal.fault}</Type>{code}{message}<Detail/></Error>"
    return _document("ErrorResponse", f"{error}<RequestId>{escape(request_id)}</RequestId>")


def _document(name: str, inside: str) -> bytes:
    return f'<?xml version="1.0"?><{name} xmlns="{_NAMESPACE}">{inside}</{name}>'.encode()


def _write_fields(fields: tuple[SqsField, ...], answer: dict[str, Any]) -> str:
    return "".join(_write(field, answer[field.name]) for field in fields if answer.get(field.name) is not None)


def _write(field: SqsField, value: Any) -> str:  # noqa: ANN401 - by the field's kind
    name, (key, half) = field.query_name, field.pair
    match field.kind:
        case FieldKind.TEXTS | FieldKind.BLOBS:
            return "".join(f"<{name}>{escape(each)}</{name}>" for each in value)
        case FieldKind.MAP:
            return "".join(
                f"<{name}><{key}>{escape(k)}</{key}><{half}>{escape(v)}</{half}></{name}>" for k, v in value.items()
            )
        case FieldKind.STRUCTS:
            return "".join(f"<{name}>{_write_fields(field.fields, each)}</{name}>" for each in value)
        case FieldKind.STRUCTS_BY_NAME:
            return "".join(
                f"<{name}><{key}>{escape(k)}</{key}><{half}>{_write_fields(field.fields, v)}</{half}></{name}>"
                for k, v in value.items()
            )
        case _:
            return f"<{name}>{_write_value(value)}</{name}>"


def _write_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return escape(str(value))
