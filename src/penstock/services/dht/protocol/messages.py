"""The payloads of requests and answers. Pure.

Requests: FIND_* `{0 target}`, PROVIDE `{0 record}`, STORE `{0 key, 1 value, 2 sigs}`, PING `{}`, DOWN_HINT `{0 id}`.
Answers: `{0 code, 1 contacts, 2 records, 3 accepted, 4 reason}`, with what the opcode has of them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.kernel.errors import Malformed
from penstock.services.dht.core.contact import Contact, read_contact
from penstock.services.dht.core.ids import from_bytes, to_bytes
from penstock.services.dht.core.record import ProviderRecord
from penstock.services.dht.protocol.envelope import array_head
from penstock.wire import cbor

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTACTS_MAX: Final = 32
RECORDS_MAX: Final = 64
REASON_CHARS_MAX: Final = 64


class AnswerCode(enum.IntEnum):
    """How a request was answered."""

    OK = 1000
    BAD_VERSION = 1400
    FRAME_TOO_LARGE = 1413
    QUOTA_EXCEEDED = 1429
    BAD_SIGNATURE = 1440
    STALE_RECORD = 1441
    NOT_READY = 1450
    BUSY = 1501
    TIMEOUT = 1508


class DhtAnswer(NamedTuple):
    """An answer as it was read; records are still to be parsed and verified."""

    code: int
    contacts: list[Contact] = []  # noqa: RUF012 - never changed
    records: list[object] = []  # noqa: RUF012 - never changed
    accepted: bool = False
    reason: str = ""


EMPTY: Final = b"\xa0"
PONG: Final = cbor.encode({0: int(AnswerCode.OK)})
_FOUND_HEAD: Final = b"\xa2\x00" + cbor.encode(int(AnswerCode.OK)) + b"\x01"
_VALUE_HEAD: Final = b"\xa3\x00" + cbor.encode(int(AnswerCode.OK)) + b"\x01"
_TARGET_HEAD: Final = b"\xa1\x00\x58\x20"


def find_request(target: int) -> bytes:
    """Ask for the nearest nodes, or the records, of a target."""
    return _TARGET_HEAD + to_bytes(target)


def find_answer(contacts: Sequence[Contact], records: Sequence[ProviderRecord] = ()) -> bytes:
    """Answer a FIND: contacts and records were encoded when they came in and are only put together."""
    named = b"".join([array_head(len(contacts)), *[contact.wire for contact in contacts]])
    if not records:
        return _FOUND_HEAD + named
    return b"".join([_VALUE_HEAD, named, b"\x02", array_head(len(records)), *[record.raw for record in records]])


def provide_request(record: ProviderRecord) -> bytes:
    """Ask a peer to keep a record."""
    return b"\xa1\x00" + record.raw


def provide_answer(code: AnswerCode, *, accepted: bool, reason: str = "") -> bytes:
    """Say whether a record is kept."""
    return cbor.encode({0: int(code), 3: int(accepted), 4: reason})


def refusal_answer(code: AnswerCode, reason: str = "") -> bytes:
    """Refuse a request."""
    return cbor.encode({0: int(code), 4: reason})


def id_request(node_id: int) -> bytes:
    """Name a node, as a DOWN_HINT does."""
    return _TARGET_HEAD + to_bytes(node_id)


def read_target(payload: bytes) -> int:
    """Read the target of a FIND or the id of a hint."""
    if len(payload) == 36 and payload.startswith(_TARGET_HEAD):
        return int.from_bytes(payload[4:], "big")
    return from_bytes(_fields(payload).get(0))


def read_record_value(payload: bytes) -> object:
    """Read the record of a PROVIDE, still unparsed."""
    return _fields(payload).get(0)


def read_answer(payload: bytes, *, group_private: bool = False) -> DhtAnswer:
    """Read an answer; one that is too long, or names what is no contact, is Malformed as a whole.

    Most answers are a list of contacts that were named before. Their bytes are looked up instead of read, as long as
    they have the usual shape; whatever has not is left to the general decoder, which alone decides what is malformed.
    """
    return _read_usual(payload, group_private) or _read_any(payload, group_private=group_private)


def _read_usual(payload: bytes, group_private: bool) -> DhtAnswer | None:  # noqa: FBT001 - handed on by position
    if not payload.startswith((_FOUND_HEAD, _VALUE_HEAD)) or len(payload) <= len(_FOUND_HEAD):
        return None
    at = len(_FOUND_HEAD)
    count = payload[at] - 0x80
    if not 0 <= count < 24:
        return None
    at += 1
    contacts: list[Contact] = []
    for _ in range(count):
        end = _contact_end(payload, at)
        if end is None:
            return None
        contacts.append(_contact_of(payload[at:end], group_private))
        at = end
    if payload[0] == _FOUND_HEAD[0]:
        return DhtAnswer(AnswerCode.OK, contacts) if at == len(payload) else None
    if payload[at : at + 1] != b"\x02":
        return None
    records = cbor.decode(payload[at + 1 :])
    return (
        DhtAnswer(AnswerCode.OK, contacts, list[object](records))
        if type(records) is list and len(records) <= RECORDS_MAX
        else None
    )


def _contact_end(payload: bytes, at: int) -> int | None:
    """Return where a contact of the usual shape ends: an id, a host of at most 23 characters, a port above 255."""
    if payload[at : at + 3] != b"\x83\x58\x20" or len(payload) < at + 40:
        return None
    host = payload[at + 35] - 0x60
    end = at + 36 + host + 3
    return end if 0 < host < 24 and len(payload) >= end and payload[end - 3] == 0x19 else None


@lru_cache(maxsize=8192)
def _contact_of(wire: bytes, group_private: bool) -> Contact:  # noqa: FBT001 - part of the cache's key
    return read_contact(cbor.decode(wire), group_private=group_private)


def _read_any(payload: bytes, *, group_private: bool) -> DhtAnswer:
    fields = _fields(payload)
    code, contacts, records = fields.get(0), fields.get(1, []), fields.get(2, [])
    accepted, reason = fields.get(3, 0), fields.get(4, "")
    if type(code) is not int or type(contacts) is not list or type(records) is not list:
        raise _bad("an answer has a code, contacts and records")
    if len(contacts) > CONTACTS_MAX or len(records) > RECORDS_MAX or type(reason) is not str:
        raise _bad("an answer has few contacts and records")
    named = [read_contact(each, group_private=group_private) for each in contacts]
    return DhtAnswer(code, named, list[object](records), accepted == 1, reason[:REASON_CHARS_MAX])


def _fields(payload: bytes) -> dict[int, cbor.Value]:
    fields = cbor.decode(payload)
    if type(fields) is not dict:
        raise _bad("a payload is a map")
    return fields


def unique(contacts: Iterable[Contact], without: int) -> list[Contact]:
    """Return the contacts of an answer once each, without one id: nobody is told about himself."""
    return list({contact.id: contact for contact in contacts if contact.id != without}.values())


def _bad(why: str) -> Malformed:
    return Malformed(f"This is no DHT message: {why}.", reason="bad_payload")
