"""One topic's settings and one message, as the page asks for them: what is not there is null, and no refusal.

By the public API a topic without settings and a message that is gone are 404. The page cannot know beforehand which it
will be, and a page that is only looked at must not add to the refusals that it shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from penstock.contracts import mailbox as m
from penstock.contracts.call import Call
from penstock.kernel.errors import Malformed, NotFound
from penstock.net.server.route import Route

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.net.message import Request
    from penstock.services.mailbox.config import MailboxOptions
    from penstock.services.mailbox.service import MailboxService


class TopicDefaults(msgspec.Struct, frozen=True):
    """What holds for a topic where its settings say nothing; the fields are named as those of the settings."""

    max_attempts: int
    visibility_ms: int
    delay_ms: int
    retention_s: int
    on_expiry: Literal["dlq", "drop"]
    max_payload: int
    key_batch: int
    dedup: m.DedupSettings


class TopicSetup(msgspec.Struct, frozen=True):
    """The settings of a topic, null where it has none of its own, and what holds where they say nothing."""

    settings: m.TopicSettings | None
    defaults: TopicDefaults


class MessageFound(msgspec.Struct, frozen=True):
    """A message with its payload; null where the topic does not have it."""

    message: m.Peeked | None


class TopicLookup:
    """Answers for one topic."""

    def __init__(self, service: MailboxService, token: Callable[[], str]) -> None:
        """Look as the operator, whose token `token` returns."""
        self._service = service
        self._token = token

    def routes(self) -> tuple[Route, ...]:
        """Describe the routes."""
        settings = Route(
            method="GET",
            path="/topics/{topic}/settings",
            handler=self._settings,
            answer=TopicSetup,
            summary="The settings of a topic, null where it has none, with the defaults.",
            errors=("not_ready",),
        )
        message = Route(
            method="GET",
            path="/topics/{topic}/messages/{msg_id}",
            handler=self._message,
            answer=MessageFound,
            summary="One message with its payload, whatever its state; null where it is not in the topic.",
            errors=("malformed", "not_ready"),
        )
        return settings, message

    def _settings(self, request: Request) -> TopicSetup:
        state, name = self._service.state, request.params["topic"]
        state.check_ready()
        topic = state.ledger.topics.get(name)
        settings = None if topic is None or not topic.configured else topic.settings
        return TopicSetup(settings, defaults_of(name, state.options))

    async def _message(self, request: Request) -> MessageFound:
        try:
            asked = msgspec.convert({**request.params, "payload": True}, m.Peek)
        except msgspec.ValidationError as exc:
            raise Malformed(str(exc)) from exc
        try:
            found = await self._service.api.peek(asked, Call(capability=self._token(), corr_id=request.corr_id))
        except NotFound:
            return MessageFound(None)
        return MessageFound(found.messages[0])


def defaults_of(name: str, options: MailboxOptions) -> TopicDefaults:
    """Return what the configuration says for a topic of this name. Pure."""
    return TopicDefaults(
        max_attempts=options.rules.max_attempts,
        visibility_ms=options.default_visibility_ms,
        delay_ms=0,
        retention_s=round(options.ready_retention_s),
        on_expiry="drop" if options.rules.drops(name) else "dlq",
        max_payload=options.payload_bytes_max,
        key_batch=1,
        dedup=m.DedupSettings(window_s=round(options.t_replay_s), entries=options.dedup_entries),
    )
