"""Opaque texts that clients hand back: receipt handles, handles of move tasks, and page tokens; pure."""

from __future__ import annotations

import base64
from typing import Final, NamedTuple

import msgspec

from penstock.services.interop.providers.decoding import decode_base64
from penstock.services.interop.sqs.refusals import SqsRefusal, invalid

_VERSION: Final = "1"


class ReceiptHandle(NamedTuple):
    """Which message of which topic was received, and the receipt that settles it."""

    topic: str
    msg_id: str
    receipt: str


def write_handle(handle: ReceiptHandle) -> str:
    """Write a receipt handle."""
    return base64.b64encode("\n".join((_VERSION, *handle)).encode("utf-8")).decode("ascii")


def foreign_handle(text: str) -> SqsRefusal:
    """Refuse a handle that is not one of this queue."""
    return SqsRefusal(
        "ReceiptHandleIsInvalid", f'The input receipt handle "{text[:200]}" is not a valid receipt handle.'
    )


def read_handle(text: str) -> ReceiptHandle:
    """Read a receipt handle; one that we did not write is refused."""
    data = decode_base64(text.encode("utf-8")) or b""
    parts = data.decode("utf-8", "replace").split("\n")
    if len(parts) != 4 or parts[0] != _VERSION or not all(parts):
        raise foreign_handle(text)
    return ReceiptHandle(*parts[1:])


class MoveTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which move of messages is meant."""

    taskId: str  # noqa: N815 - the name on the wire
    sourceArn: str  # noqa: N815 - the name on the wire


def write_task(task: MoveTask) -> str:
    """Write the handle of a move task."""
    return base64.b64encode(msgspec.json.encode(task)).decode("ascii")


def read_task(text: str) -> MoveTask:
    """Read the handle of a move task."""
    try:
        return msgspec.json.decode(decode_base64(text.encode("utf-8")) or b"", type=MoveTask)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise invalid("Value for parameter TaskHandle is invalid.") from exc


def write_page(last: str) -> str:
    """Write the token of the page after this name."""
    return base64.b64encode(last.encode("utf-8")).decode("ascii")


def read_page(token: str) -> str:
    """Read the name after which a page begins."""
    data = decode_base64(token.encode("utf-8"))
    if not data:
        raise invalid("Value for parameter NextToken is invalid.")
    return data.decode("utf-8", "replace")
