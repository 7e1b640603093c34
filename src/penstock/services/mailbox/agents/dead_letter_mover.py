"""The DeadLetterMover: takes dead letters of a topic with `dead_letter_to` to the topic that shall have them.

A message that had its last attempt first becomes a dead letter of its own topic, in one durable step, as always. Then
this agent stores it as a new message of the other topic and removes the dead letter, both in one commit. So a crash at
any moment leaves exactly one of the two; what is still dead in its source is found again at the next start. Where the
other topic cannot take it (the disk is full, or it must be set up first and was not) the message stays a dead letter,
and is tried again later. Messages that died of age stay where they are: nobody failed on them.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from penstock.contracts import mailbox as m
from penstock.contracts.mailbox_rules import dead_letter_attrs
from penstock.kernel.child import Child
from penstock.kernel.errors import PenstockError
from penstock.kernel.log import Log
from penstock.services.mailbox.agents.reprocessor import send_back
from penstock.services.mailbox.engines.engine import DeadPage
from penstock.services.mailbox.jobs import RequestMeta, SendItem
from penstock.services.mailbox.rows import DeadRow, MessageRow

if TYPE_CHECKING:
    from penstock.services.mailbox.shards.topics import Topic
    from penstock.services.mailbox.state import MailboxParts

SLICE: Final = 100
AGAIN_S: Final = 5.0
_TTL: Final = "ttl"


class DeadLetterMover:
    """Looks after the topics that `state.forwarding` names."""

    def __init__(self, parts: MailboxParts) -> None:
        self._state = parts.state
        self._guard = parts.state.redrive_guard
        self._reader = parts.reader
        self._dispatcher = parts.dispatcher
        self._log = Log(parts.inventory.service)
        text = "Messages that went to another topic after their last attempt."
        self._moved = parts.inventory.metrics.counter("dlq_forwarded_total", text)
        self._woken = asyncio.Event()

    async def run(self, child: Child) -> None:
        """Move dead letters until the service drains; what is left stays one."""
        self._state.forwarding.on_change = self._woken.set
        # The engine may have been opened before: what it found is named already.
        self._woken.set()
        forget = child.shutdown.on_drain(self._woken.set)
        try:
            while not child.shutdown.draining:
                await self._woken.wait()
                self._woken.clear()
                await self._work(child)
        finally:
            forget()

    async def _work(self, child: Child) -> None:
        """Work off what is named; what could not be moved is named again after a pause."""
        stuck = []
        for topic in self._state.forwarding.take():
            try:
                if not await self._move_all(topic, child):
                    stuck.append(topic)
            except PenstockError as error:
                self._log.warning("dead_letter_to.failed", topic=topic.name, detail=error.detail)
                stuck.append(topic)
        if stuck and not await child.shutdown.sleep(AGAIN_S):
            for topic in stuck:
                self._state.forwarding.add(topic)

    async def _move_all(self, topic: Topic, child: Child) -> bool:
        """Move the dead letters of a topic, slice by slice; False when some could not be moved."""
        page, whole = DeadPage(topic.id, None, 0, SLICE), True
        while not child.shutdown.draining and topic.settings.dead_letter_to is not None:
            mark = self._guard.mark()
            found = await self._reader.ask(self._reader.reads.dead, page)
            if not found:
                return whole
            taken = self._guard.take([row.seq for row, dead in found if dead.reason != _TTL and not row.damaged], mark)
            try:
                moved = await self._move([each for each in found if each[0].seq in taken], topic)
            finally:
                self._guard.ended(taken)
            whole = whole and moved == len(taken)
            page = replace(page, after=found[-1][0].seq)
        return whole

    async def _move(self, found: list[tuple[MessageRow, DeadRow]], topic: Topic) -> int:
        target = topic.settings.dead_letter_to
        if not found or target is None or not self._dispatcher.usable(target):
            return 0
        items = [self._item(row, dead, topic, target) for row, dead in found]
        moved, _ = await send_back(self._dispatcher, items, RequestMeta())
        self._moved.value += moved
        return moved

    def _item(self, row: MessageRow, dead: DeadRow, topic: Topic, target: str) -> SendItem:
        said = dead_letter_attrs(topic.name, dead.reason, dead.attempts, dead.history)
        send = m.Send(
            target, row.payload, attrs={**row.attrs, **said}, key=row.key, idem_key=row.msg_id, delay_ms=0,
            group=row.group, meta=row.meta, origin=m.MessageOrigin(*(row.origin or (row.msg_id, row.ts))),
        )  # fmt: skip
        item = SendItem(send, self._dispatcher.slot_for(target, row.key), row.payload_hash, RequestMeta(row.corr_id))
        item.redrive = (row, dead)
        return item
