"""The topics of endpoints: each remembers claims for seven days, and events are sent so that one claim is one message.

The claim of an event travels as its message's `idem_key`, so claim and message are one durable step. An event differs
from delivery to delivery (its time does, and its labels may), so its topic must answer a repeat with the first message
whatever the content: `first_wins`. The bridge gives every endpoint's topic these settings before it sends the first
event there, looks after them once a minute, and leaves everything else a person has set as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec import UNSET

from penstock.contracts.mailbox import (
    DedupSettings,
    GetSettings,
    Mailbox,
    PutSettings,
    Send,
    SendBatch,
    SendResult,
    TopicSettings,
)
from penstock.kernel.errors import Conflict, DownstreamUnavailable, NotFound, NotReady, PenstockError
from penstock.kernel.log import Log
from penstock.services.interop.authority import Purpose

if TYPE_CHECKING:
    from penstock.contracts.call import Call
    from penstock.kernel.child import Child
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.snapshot import Snapshot
    from penstock.services.interop.authority import BridgeAuthority
    from penstock.services.interop.calls import BridgeCalls
    from penstock.services.interop.endpoints import Endpoints

LOOK_S: Final = 60.0
# As long as providers go on trying. A full memory of claims must not refuse a webhook: the oldest claims go.
DEDUP: Final = DedupSettings(window_s=7 * 86_400, mode="first_wins", on_full="oldest_out")


class Claimed(NamedTuple):
    """What became of an event: the message's id, and whether an earlier delivery made it."""

    msg_id: str
    duplicate: bool


def with_claims(settings: TopicSettings) -> TopicSettings:
    """Return settings under which a repeat gets the first message; a person's own window stays."""
    dedup = settings.dedup
    wanted = DEDUP if dedup is None else msgspec.structs.replace(dedup, mode="first_wins")
    return msgspec.structs.replace(settings, dedup=wanted)


class EndpointTopics:
    """Keeps the settings, and sends events."""

    def __init__(
        self, inventory: Inventory, mailbox: Mailbox | None, calls: BridgeCalls, authority: BridgeAuthority
    ) -> None:
        """Take the mailbox, the discipline of its calls, and by what right it is asked."""
        self._mailbox = mailbox
        self._calls = calls
        self._authority = authority
        self._log = Log(inventory.service)
        # Topics that were seen to have the settings; forgotten when a person changed them.
        self._kept: set[str] = set()

    # --- sending -----------------------------------------------------------------------------------------------------

    async def send_events(self, sends: Sequence[Send], call: Call) -> list[Claimed | PenstockError]:
        """Send events of one topic in one batch; each has its own outcome."""
        topic = sends[0].topic
        if topic not in self._kept:
            await self.keep(topic, call.corr_id)
        results = await self._send(sends, call)
        if any(result.code == Conflict.code for result in results):
            # Somebody has changed the settings meanwhile: what has its claim already is asked for again.
            self._kept.discard(topic)
            await self.keep(topic, call.corr_id)
            results = await self._send(sends, call)
        return [_outcome(result) for result in results]

    async def _send(self, sends: Sequence[Send], call: Call) -> tuple[SendResult, ...]:
        mailbox = self._present()
        sent = await self._calls.call("send", lambda: mailbox.send_batch(SendBatch(tuple(sends)), call))
        return sent.results

    def _present(self) -> Mailbox:
        if self._mailbox is None:
            raise NotReady("svc-mailbox does not run here.", phase="absent", service="svc-mailbox")
        return self._mailbox

    # --- settings ----------------------------------------------------------------------------------------------------

    async def run(self, child: Child, endpoints: Snapshot[Endpoints]) -> None:
        """Look after the topics of all endpoints once a minute; what fails is tried again then, or by the next send."""
        while not await child.shutdown.sleep(LOOK_S):
            for topic in sorted({endpoint.topic for endpoint in endpoints.value.values()} & self._kept):
                await self._look(topic)

    async def _look(self, topic: str) -> None:
        try:
            await self.keep(topic)
        except PenstockError as error:
            self._kept.discard(topic)
            self._log.warning("topic.unsettled", topic=topic, reason=error.code)

    async def keep(self, topic: str, corr_id: str = "") -> None:
        """See that a topic remembers claims as it must."""
        mailbox, calls = self._present(), self._calls
        found = await self._found(topic, corr_id)
        wanted = with_claims(found)
        if wanted != found:
            put, call = PutSettings(topic, wanted), await self._call("admin", topic, wanted.dead_letter_to, corr_id)
            await calls.call("put_settings", lambda: mailbox.put_settings(put, call))
            self._log.info("topic.settled", topic=topic, window_s=wanted.dedup.window_s if wanted.dedup else 0)
        self._kept.add(topic)

    async def _found(self, topic: str, corr_id: str) -> TopicSettings:
        mailbox, call = self._present(), await self._call("recv", topic, None, corr_id)
        try:
            shown = await self._calls.call("settings", lambda: mailbox.settings(GetSettings(topic), call))
        except NotFound:
            return TopicSettings()
        return shown.settings

    async def _call(self, op: str, topic: str, also: str | None, corr_id: str) -> Call:
        named = topic if also is None else f"{topic},{also}"
        return await self._authority.call(Purpose("interop:topics", "svc-mailbox", op, named), corr_id)


def _outcome(result: SendResult) -> Claimed | PenstockError:
    if isinstance(result.msg_id, str):
        return Claimed(result.msg_id, duplicate=result.duplicate is True)
    code = "internal" if result.code is UNSET else str(result.code)
    return DownstreamUnavailable("svc-mailbox did not take the event.", reason=code)
