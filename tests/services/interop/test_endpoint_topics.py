"""The topics of endpoints remember claims for a week, whatever else a person sets, and however it is changed."""

from __future__ import annotations

import msgspec
import pytest

from penstock.contracts import mailbox as m
from penstock.kernel.clock import SYSTEM
from penstock.kernel.errors import DownstreamUnavailable
from penstock.services.interop.endpoint_topics import DEDUP, with_claims
from penstock.testing.contracts.memory_mailbox import MemoryMailbox
from tests.services.interop.test_service import live
from tests.services.interop.worlds import bridge

pytestmark = pytest.mark.real_loop

TOPIC = "webhooks/github"


def test_settings_of_a_person_stay_but_for_what_a_repeat_gets():
    own = m.TopicSettings(max_attempts=9, tags={"a": "b"}, dedup=m.DedupSettings(window_s=60, mode="conflict"))

    assert with_claims(m.TopicSettings()).dedup == DEDUP
    assert with_claims(own) == msgspec.structs.replace(own, dedup=m.DedupSettings(window_s=60, mode="first_wins"))
    assert (DEDUP.window_s, DEDUP.mode, DEDUP.on_full) == (604_800, "first_wins", "oldest_out")


async def test_topic_has_its_settings_before_its_first_event():
    async with bridge() as world:
        await world.mailbox.put_settings(m.PutSettings(TOPIC, m.TopicSettings(max_attempts=9)))
        await world.http.hook("github", live("github"))
        settings = world.mailbox.state.settings

    assert settings[TOPIC] == m.TopicSettings(max_attempts=9, dedup=DEDUP)
    assert set(settings) == {TOPIC}


async def test_repeat_with_other_content_gets_the_first_message_also_after_a_person_dropped_the_settings():
    async with bridge() as world:
        first = (await world.http.hook("stripe", live("stripe", b'{"id":"evt_1","n":1}'))).json()
        again = (await world.http.hook("stripe", live("stripe", b'{"id":"evt_1","n":2}'))).json()
        await world.mailbox.delete_settings(m.DeleteSettings("webhooks/stripe"))
        dropped = await world.http.hook("stripe", live("stripe", b'{"id":"evt_1","n":3}'))
        settings = world.mailbox.state.settings["webhooks/stripe"]

    assert (again["duplicate"], again["msg_id"]) == (True, first["msg_id"])
    assert (dropped.status, dropped.json()["msg_id"]) == (202, first["msg_id"])
    assert settings.dedup == DEDUP


async def test_keeper_mends_the_settings_of_topics_in_use():
    async with bridge() as world:
        await world.http.hook("github", live("github"))
        await world.mailbox.delete_settings(m.DeleteSettings(TOPIC))
        await world.service.topics._look(TOPIC)
        mended = world.mailbox.state.settings[TOPIC]

    assert mended.dedup == DEDUP


class NoSettings(MemoryMailbox):
    """A mailbox whose settings cannot be written."""

    async def put_settings(self, request, call=None):
        raise DownstreamUnavailable("told to")


async def test_without_the_settings_nothing_is_sent():
    mailbox = NoSettings(SYSTEM)
    async with bridge(mailbox=mailbox) as world:
        answer = await world.http.hook("github", live("github"))

    assert (answer.status, len(mailbox.state.messages)) == (503, 0)
