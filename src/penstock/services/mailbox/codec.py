"""Two ways to write answers: `VALUES` of the contract for the framed protocol, `JSON` bytes for HTTP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from penstock.contracts import mailbox as m
from penstock.contracts.plain_payloads import plain_json
from penstock.kernel.errors import PenstockError
from penstock.net.message import Response, WrittenJson
from penstock.services.mailbox.bodies import ReceivedOut

_encode: Final = msgspec.json.Encoder().encode
_FULL: Final = ((b"X-Inflight-Full", b"1"),)
_ACKED: Final = WrittenJson(_encode(m.Acked()))
_ACKED_ITEM: Final = m.SettleResult(ok=True)
_NONE: Final = WrittenJson(b'{"messages":[]}')
Settled = m.Acked | m.Nacked | m.Extended


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerCodec:
    """One way to write every answer of the hot routes, alone or as an item of a batch."""

    sent: Callable[[str, bool, int], Any]
    received: Callable[[m.Received], Any]
    settled: Callable[[Settled], Any]
    sent_item: Callable[[str, bool, int], Any]
    # Writes the answers of messages that were stored together into the results of their batch.
    sent_run: Callable[[list[Any], Sequence[int], Sequence[str], int], None]
    refused_send: Callable[[PenstockError], Any]
    settled_item: Callable[[Settled], Any]
    refused_settle: Callable[[PenstockError], Any]
    many: Callable[[Sequence[Any]], Any]


def _sent_item(msg_id: str, duplicate: bool, shard: int) -> m.SendResult:  # noqa: FBT001 - the contract's order
    return m.SendResult(msg_id=msg_id, duplicate=duplicate, shard=shard)


def _sent_run(results: list[Any], places: Sequence[int], names: Sequence[str], shard: int) -> None:
    for place, name in zip(places, names, strict=True):
        results[place] = m.SendResult(msg_id=name, duplicate=False, shard=shard)


def _refused_send(error: PenstockError) -> m.SendResult:
    return m.SendResult(code=error.code, detail=error.detail)


def _settled_item(value: Settled) -> m.SettleResult:
    if isinstance(value, m.Acked):
        return _ACKED_ITEM
    if isinstance(value, m.Extended):
        return m.SettleResult(ok=True, receipt=value.receipt, visible_until=value.visible_until)
    return m.SettleResult(
        ok=True, attempt=value.attempt, visible_in_ms=value.visible_in_ms, dead_lettered=value.dead_lettered
    )


def _refused_settle(error: PenstockError) -> m.SettleResult:
    reason = error.facts.get("reason")
    if isinstance(reason, str):
        return m.SettleResult(code=error.code, detail=error.detail, reason=reason)
    return m.SettleResult(code=error.code, detail=error.detail)


def _as_it_is(value: Any) -> Any:  # noqa: ANN401 - typed by its caller
    return value


VALUES: Final = AnswerCodec(
    sent=m.Sent,
    received=_as_it_is,
    settled=_as_it_is,
    sent_item=_sent_item,
    sent_run=_sent_run,
    refused_send=_refused_send,
    settled_item=_settled_item,
    refused_settle=_refused_settle,
    many=_as_it_is,
)


# A msg_id has nothing in it that JSON would escape.
def _write_sent_item(msg_id: str, duplicate: bool, shard: int) -> bytes:  # noqa: FBT001 - the contract's order
    flag = "true" if duplicate else "false"
    return f'{{"msg_id":"{msg_id}","duplicate":{flag},"shard":{shard}}}'.encode()


def _write_sent(msg_id: str, duplicate: bool, shard: int) -> WrittenJson:  # noqa: FBT001 - the contract's order
    return WrittenJson(_write_sent_item(msg_id, duplicate, shard))


def _write_sent_run(results: list[Any], places: Sequence[int], names: Sequence[str], shard: int) -> None:
    """Write the answers of a run. If its places follow each other, they become one text, in the first place."""
    if places[-1] - places[0] != len(places) - 1:
        for place, name in zip(places, names, strict=True):
            results[place] = _write_sent_item(name, False, shard)
        return
    end = f'","duplicate":false,"shard":{shard}}}'
    text = (end + ',{"msg_id":"').join(names)
    results[places[0]] = f'{{"msg_id":"{text}{end}'.encode()


def _write_received(received: m.Received) -> WrittenJson | Response:
    if received.inflight_full:
        return Response(200, _encode(ReceivedOut(received.messages)), headers=_FULL)
    return WrittenJson(_encode(ReceivedOut(received.messages))) if received.messages else _NONE


def _write_text(received: m.Received) -> WrittenJson | Response:
    """Write `payload` beside `payload_b64` of the messages that are text or JSON."""
    if not any(message.attrs for message in received.messages):
        return _write_received(received)
    data = b'{"messages":[%b]}' % b",".join(map(_write_envelope, received.messages))
    return Response(200, data, headers=_FULL) if received.inflight_full else WrittenJson(data)


def _write_envelope(message: m.Envelope) -> bytes:
    written, plain = _encode(message), plain_json(message.payload, message.attrs)
    return written if plain is None else b'%b,"payload":%b}' % (written[:-1], plain)


def _write_settled(value: Settled) -> WrittenJson:
    return _ACKED if isinstance(value, m.Acked) else WrittenJson(_encode(value))


def _write_settled_item(value: Settled) -> bytes:
    return _ACKED if isinstance(value, m.Acked) else _encode(_settled_item(value))


def _write_many(results: Sequence[bytes | None]) -> WrittenJson:
    # The places of a run but its first are empty: their answers stand in the first.
    return WrittenJson(b'{"results":[%b]}' % b",".join(filter(None, results)))


JSON: Final = AnswerCodec(
    sent=_write_sent,
    received=_write_received,
    settled=_write_settled,
    sent_item=_write_sent_item,
    sent_run=_write_sent_run,
    refused_send=lambda error: _encode(_refused_send(error)),
    settled_item=_write_settled_item,
    refused_settle=lambda error: _encode(_refused_settle(error)),
    many=_write_many,
)
JSON_TEXT: Final = replace(JSON, received=_write_text)
