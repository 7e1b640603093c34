"""What crosses the `work` channel: sends, receives, settlements and the operator's commands, each with its reply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.contracts import mailbox as m
from penstock.kernel.deadline import Deadline
from penstock.kernel.errors import PenstockError
from penstock.kernel.worker import Job
from penstock.services.mailbox.ids import MessageName
from penstock.services.mailbox.rows import Dead, Row
from penstock.services.mailbox.shard import Want
from penstock.services.mailbox.topics import Message, Topic

ACK: Final = 0
NACK: Final = 1
EXTEND: Final = 2


class Draft:
    """One message on its way in, and where its answer goes."""

    __slots__ = ("corr_id", "job", "name", "payload_hash", "place", "redrive", "send", "slot", "strict", "topic")

    def __init__(self, send: m.Send, slot: int, payload_hash: bytes, corr_id: str) -> None:
        """Hold what was checked; topic and job are set when it is handed over."""
        self.send = send
        self.slot = slot
        self.payload_hash = payload_hash
        self.corr_id = corr_id
        # A duplicate is a 409 instead of an answer with a flag.
        self.strict = False
        self.topic: Topic
        self.job: SendJob
        self.place = 0
        self.name = b""
        # The dead letter that this message takes the place of, in the same commit.
        self.redrive: tuple[Row, Dead] | None = None


class SendJob(Job[list[Draft], Any]):
    """One or many messages for one worker."""

    __slots__ = ("left", "results")

    def __init__(self, drafts: list[Draft], results: list[Any] | None, deadline: Deadline | None, corr_id: str) -> None:
        """With `results` every message is answered in its place; without, the one message is the answer."""
        super().__init__(drafts, deadline=deadline, corr_id=corr_id)
        self.results = results
        self.left = len(drafts)
        for draft in drafts:
            draft.job = self

    def answer(self, draft: Draft, sent: m.Sent) -> None:
        """Answer one message."""
        if self.results is None:
            self.done(sent)
        else:
            self.results[draft.place] = m.SendResult(msg_id=sent.msg_id, duplicate=sent.duplicate, shard=sent.shard)
            self._count()

    def refuse(self, draft: Draft, error: PenstockError) -> None:
        """Refuse one message; the others of its batch are not touched."""
        if self.results is None:
            self.fail(error)
        else:
            self.results[draft.place] = m.SendResult(code=error.code, detail=error.detail)
            self._count()

    def _count(self) -> None:
        self.left -= 1
        if not self.left:
            self.done(self.results)


class RecvJob(Job[Want, Any]):
    """A receiver that goes from shard to shard of its topic, and may then wait."""

    __slots__ = ("got", "path", "render", "topic", "wait_ms")

    def __init__(self, want: Want, topic: Topic, wait_ms: int, deadline: Deadline | None, corr_id: str) -> None:
        """Ask a topic; `path` names the shards still to be asked."""
        super().__init__(want, deadline=deadline, corr_id=corr_id)
        self.topic = topic
        self.wait_ms = wait_ms
        self.path: list[int] = []
        self.got: list[tuple[Message, int]] = []
        self.render: Callable[[m.Received], Any] | None = None

    def deliver(self, received: m.Received) -> None:
        """Answer with what was leased."""
        self.done(received if self.render is None else self.render(received))


class Settle:
    """One settlement, and where its answer goes."""

    __slots__ = ("job", "kind", "name", "place", "value")

    def __init__(self, kind: int, value: m.Settlement, name: MessageName) -> None:
        """Name the message by what its msg_id says."""
        self.kind = kind
        self.value: Any = value
        self.name = name
        self.job: SettleJob
        self.place = 0


class SettleJob(Job[list[Settle], Any]):
    """One or many settlements for one worker."""

    __slots__ = ("left", "results")

    def __init__(self, items: list[Settle], results: list[Any] | None, deadline: Deadline | None, corr_id: str) -> None:
        """With `results` every item is answered in its place; without, the one item is the answer."""
        super().__init__(items, deadline=deadline, corr_id=corr_id)
        self.results = results
        self.left = len(items)
        for item in items:
            item.job = self

    def answer(self, item: Settle, value: m.Acked | m.Nacked | m.Extended) -> None:
        """Answer one settlement."""
        if self.results is None:
            self.done(value)
        else:
            self.results[item.place] = settle_result(value)
            self._count()

    def refuse(self, item: Settle, error: PenstockError) -> None:
        """Refuse one settlement; the others of its batch are not touched."""
        if self.results is None:
            self.fail(error)
        else:
            self.results[item.place] = settle_refusal(error)
            self._count()

    def _count(self) -> None:
        self.left -= 1
        if not self.left:
            self.done(self.results)


class PurgeJob(Job[list[Row], int]):
    """Messages of one slice of a purge that belong to one worker."""

    __slots__ = ()


Work = SendJob | RecvJob | SettleJob | PurgeJob


def settle_result(value: m.Acked | m.Nacked | m.Extended) -> m.SettleResult:
    """Write an answer as an item of a batch."""
    if isinstance(value, m.Nacked):
        return m.SettleResult(
            ok=True, attempt=value.attempt, visible_in_ms=value.visible_in_ms, dead_lettered=value.dead_lettered
        )
    if isinstance(value, m.Extended):
        return m.SettleResult(ok=True, receipt=value.receipt, visible_until=value.visible_until)
    return m.SettleResult(ok=True)


def settle_refusal(error: PenstockError) -> m.SettleResult:
    """Write a refusal as an item of a batch."""
    reason = error.facts.get("reason")
    if isinstance(reason, str):
        return m.SettleResult(code=error.code, detail=error.detail, reason=reason)
    return m.SettleResult(code=error.code, detail=error.detail)
