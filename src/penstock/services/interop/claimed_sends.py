"""Puts events into the mailbox so that one claim is one message: the only place that knows how the mailbox does that.

The claim travels as the message's `idem_key`, so claim and message are one durable step. A topic with `first_wins`
answers a repeat with the first msg_id. The mailbox of today has one mode only: a repeat with other content is refused
as a conflict that names the first msg_id. Both are understood here, and both mean: a duplicate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import UNSET

from penstock.contracts.call import Call
from penstock.contracts.mailbox import Mailbox, Send, SendBatch, SendResult
from penstock.kernel.errors import Conflict, DownstreamUnavailable, PenstockError


class Claimed(NamedTuple):
    """What became of an event: the message's id, and whether an earlier delivery made it."""

    msg_id: str
    duplicate: bool


async def send_claimed(mailbox: Mailbox, sends: Sequence[Send], call: Call) -> list[Claimed | PenstockError]:
    """Send events of one topic in one batch; each has its own outcome."""
    sent = await mailbox.send_batch(SendBatch(tuple(sends)), call)
    return [await _outcome(mailbox, send, result, call) for send, result in zip(sends, sent.results, strict=True)]


async def _outcome(mailbox: Mailbox, send: Send, result: SendResult, call: Call) -> Claimed | PenstockError:
    if isinstance(result.msg_id, str):
        return Claimed(result.msg_id, duplicate=result.duplicate is True)
    code = "internal" if result.code is UNSET else str(result.code)
    if code == Conflict.code and send.idem_key is not None:
        return await _first(mailbox, send, call)
    return DownstreamUnavailable("svc-mailbox did not take the event.", reason=code)


async def _first(mailbox: Mailbox, send: Send, call: Call) -> Claimed | PenstockError:
    """Ask for the first message of a claim: the refusal of a single send names it, that of a batch does not."""
    try:
        sent = await mailbox.send(send, call)  # lint: allow PK009 BridgeCalls holds the deadline
    except Conflict as conflict:
        return Claimed(str(conflict.facts.get("msg_id", "")), duplicate=True)
    return Claimed(sent.msg_id, duplicate=sent.duplicate)
