"""Message bodies and attributes: what is legal, how they travel inside penstock, what a receiver asked for; pure."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from blake3 import blake3

from penstock.services.interop.providers.claims import length_prefixed
from penstock.services.interop.sqs.refusals import SqsRefusal, invalid, unknown_attribute

ATTRIBUTES_MAX: Final = 10
SYSTEM_NAMES: Final = frozenset(
    {
        "SenderId",
        "SentTimestamp",
        "ApproximateReceiveCount",
        "ApproximateFirstReceiveTimestamp",
        "SequenceNumber",
        "MessageDeduplicationId",
        "MessageGroupId",
        "AWSTraceHeader",
        "DeadLetterQueueSourceArn",
    }
)
ENCODING: Final = "penstock.encoding"
_ALL: Final = frozenset({"All", "*", ".*"})
_ILLEGAL: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LEGAL_ASCII: Final = bytes((0x09, 0x0A, 0x0D, *range(0x20, 0x80)))
# Letters of any script: AWS takes them, whatever its message says.
_NAME: Final = re.compile(r"[\w.-]{1,256}")
_TYPE: Final = re.compile(r"(String|Number|Binary)(\..+)?", re.ASCII | re.DOTALL)
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?", re.ASCII)
_TYPE_CHARS_MAX: Final = 256


def is_legal(text: str) -> bool:
    """Tell whether every character may stand in XML 1.0."""
    if text.isascii():
        return not text.encode("ascii").translate(None, _LEGAL_ASCII)
    return _ILLEGAL.search(text) is None


def check_body(body: str) -> str:
    """Take a message's body."""
    if not body:
        raise SqsRefusal("MissingRequiredParameterException", "The request must contain the parameter MessageBody.")
    if not is_legal(body):
        raise SqsRefusal(
            "InvalidMessageContents",
            "Invalid characters found. Valid unicode characters are "
            "#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
        )
    return body


def check_attributes(attributes: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Take message attributes; each has a legal name, a type and one value of that type."""
    if len(attributes) > ATTRIBUTES_MAX:
        raise invalid(
            f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum [{ATTRIBUTES_MAX}]."
        )
    return {name: _check_attribute(name, value) for name, value in attributes.items()}


def _check_attribute(name: str, value: Mapping[str, Any]) -> dict[str, Any]:
    reserved = name.lower().startswith(("aws.", "amazon."))
    if not _NAME.fullmatch(name) or name.startswith(".") or name.endswith(".") or ".." in name or reserved:
        raise invalid(
            f"The message attribute name '{name[:256]}' is invalid. Attribute name can contain A-Z, a-z, 0-9, "
            "underscore (_), hyphen (-), and period (.) characters."
        )
    kind = value["DataType"]
    found = _TYPE.fullmatch(kind)
    if found is None or len(kind) > _TYPE_CHARS_MAX or not is_legal(kind):
        raise invalid(
            f"The message attribute '{name}' has an invalid message attribute type, "
            "the set of supported type prefixes is Binary, Number, and String."
        )
    if value.get("StringListValues") or value.get("BinaryListValues"):
        raise SqsRefusal("UnsupportedOperation", "Message attribute list values are not supported.")
    member = "BinaryValue" if found[1] == "Binary" else "StringValue"
    if not value.get(member):
        raise invalid(f"Message (user) attribute '{name}' must contain a non-empty value of type '{kind}'.")
    if member == "StringValue" and not is_legal(value[member]):
        raise invalid(f"Invalid characters found in the value of message attribute '{name}'.")
    if found[1] == "Number" and not _NUMBER.fullmatch(value[member]):
        raise invalid(f"Could not cast message attribute '{name}' value to number.")
    return {"DataType": kind, member: value[member]}


def check_system_attributes(attributes: Mapping[str, Mapping[str, Any]]) -> str:
    """Take what a sender may say about the message itself: a trace header, or nothing."""
    for name, value in attributes.items():
        if name != "AWSTraceHeader":
            raise invalid(f"Message system attribute name '{name[:256]}' is invalid.")
        if value["DataType"] != "String" or not value.get("StringValue"):
            raise invalid("The message system attribute 'AWSTraceHeader' must be a non-empty String.")
    trace: str = attributes.get("AWSTraceHeader", {}).get("StringValue", "")
    return trace


def size_of(body: str, attributes: Mapping[str, Mapping[str, Any]]) -> int:
    """Return the bytes that count against the limit: body, and names, types and values of the attributes."""
    length = len(body) if body.isascii() else len(body.encode("utf-8"))
    if not attributes:
        return length
    return length + sum(_attribute_bytes(name, value) for name, value in attributes.items())


def _attribute_bytes(name: str, value: Mapping[str, Any]) -> int:
    data = value.get("BinaryValue") or value.get("StringValue", "").encode("utf-8")
    return len(name.encode("utf-8")) + len(value["DataType"].encode("utf-8")) + len(data)


# --- how a message travels -------------------------------------------------------------------------------------------


class MessageMeta(msgspec.Struct, frozen=True):
    """What SQS carries with a message beside its body; native consumers need not look at it."""

    # By name: the type and the value.
    attributes: dict[str, tuple[str, str | bytes]] = {}
    trace: str = ""


class _Packed(msgspec.Struct, array_like=True):
    """The meta on its way: text and bytes apart, because one reader cannot expect either."""

    texts: dict[str, tuple[str, str]] = {}
    blobs: dict[str, tuple[str, bytes]] = {}
    trace: str = ""


_NO_META: Final = MessageMeta()
_NO_ATTRIBUTES: Final[dict[str, tuple[str, str | bytes]]] = {}
_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(_Packed).decode


def pack_meta(meta: MessageMeta) -> bytes | None:
    """Write the meta; None when there is nothing to carry, so that a plain body may be as long as a message."""
    if not meta.attributes and not meta.trace:
        return None
    texts = {name: (kind, value) for name, (kind, value) in meta.attributes.items() if isinstance(value, str)}
    blobs = {name: (kind, value) for name, (kind, value) in meta.attributes.items() if isinstance(value, bytes)}
    return _pack(_Packed(texts, blobs, meta.trace))


def unpack_meta(data: bytes | None) -> MessageMeta:
    """Read the meta; a message of a native producer has none, or one that is not ours."""
    if not data:
        return _NO_META
    try:
        found = _unpack(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _NO_META
    return MessageMeta({**found.texts, **found.blobs}, found.trace)


def carried(attributes: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, str | bytes]]:
    """Turn checked attributes into what the meta carries."""
    return {
        name: (value["DataType"], value.get("BinaryValue") or value["StringValue"])
        for name, value in attributes.items()
    }


def shown(attributes: Mapping[str, tuple[str, str | bytes]]) -> dict[str, dict[str, Any]]:
    """Turn what the meta carries into attributes as they are answered."""
    return {
        name: {"DataType": kind, "BinaryValue" if isinstance(value, bytes) else "StringValue": value}
        for name, (kind, value) in attributes.items()
    }


class ShownBody(NamedTuple):
    """A payload as an SQS body, and the attribute that says how it is encoded, if it had to be."""

    text: str
    # The text as UTF-8.
    data: bytes
    attributes: Mapping[str, tuple[str, str | bytes]]


def body_of(payload: bytes) -> ShownBody:
    """Return a payload as text; one that is no legal text comes as base64, and says so."""
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if text and is_legal(text):
        return ShownBody(text, payload, _NO_ATTRIBUTES)
    data = base64.b64encode(payload)
    return ShownBody(data.decode("ascii"), data, {ENCODING: ("String", "base64")})


# --- what a receiver asked for ---------------------------------------------------------------------------------------


def select_attributes(names: Iterable[str], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message attributes asked for: all, by name, or by the beginning of the name."""
    wanted = tuple(names)
    if not _ALL.isdisjoint(wanted):
        return dict(attributes)
    starts = tuple(name[:-2] for name in wanted if name.endswith(".*"))
    return {name: value for name, value in attributes.items() if name in wanted or (starts and name.startswith(starts))}


def check_system_names(names: Iterable[str]) -> frozenset[str]:
    """Return which system attributes are asked for."""
    wanted = frozenset(name.strip() for name in names)
    for name in wanted:
        if name != "All" and name not in SYSTEM_NAMES:
            raise unknown_attribute(name)
    return SYSTEM_NAMES if "All" in wanted else wanted


# --- order and repeats -----------------------------------------------------------------------------------------------


def effective_dedup_id(body: str, dedup_id: str) -> str:
    """Return what tells a FIFO message apart: the id it was sent with, else the SHA-256 of its body, as AWS does."""
    return dedup_id or hashlib.sha256(body.encode("utf-8")).hexdigest()


def fifo_idem_key(body: str, dedup_id: str, *, group: str) -> str:
    """Return the key of a FIFO message; `group` is empty unless repeats count by group."""
    told_by = effective_dedup_id(body, dedup_id)
    return blake3(length_prefixed(group.encode("utf-8"), told_by.encode("utf-8"))).hexdigest()


def sequence_number(seq: int) -> str:
    """Write a message's place in its queue: twenty digits, so that texts sort as numbers do."""
    return f"{seq:020d}"
