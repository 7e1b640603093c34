"""The `[mailbox]` table.

Its defaults, what contradicts itself is refused, and what is called live takes effect at once.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.config import Apply, ConfigFaults, Sources, load, node_schema
from penstock.contracts.mailbox import Nack, Recv, Send
from penstock.kernel.backoff import FullJitter
from penstock.services.mailbox.config import TABLE, MailboxOptions, ShardRules
from tests.services.mailbox.worlds import make_engine, running

SCHEMA = node_schema(TABLE)


def options(*sets: str) -> MailboxOptions:
    return MailboxOptions.from_settings(load(SCHEMA, Sources(sets=sets)))


def test_defaults_of_the_table_are_those_of_the_options() -> None:
    read = options("node.amnesia=true")

    assert replace(read, listener=None) == MailboxOptions(engine="memory")


@pytest.mark.parametrize(
    ("sets", "blamed"),
    [
        (("mailbox.backoff_base=10s", "mailbox.backoff_max=9s"), "mailbox.backoff_max"),
        (("mailbox.visibility_ms_min=6000",), "mailbox.default_visibility"),
        (("mailbox.default_visibility=3m",), "mailbox.t_replay"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(sets: tuple[str, ...], blamed: str) -> None:
    with pytest.raises(ConfigFaults) as caught:
        options(*sets)

    assert blamed in str(caught.value)


def test_only_what_the_service_takes_over_is_called_live() -> None:
    own = {"ready_shards", "default_visibility", "backoff_base", "backoff_max"}
    # The listener and the node look after these.
    others = {key.name for key in TABLE.keys if key.inherits} | {"drain_deadline"}

    assert {key.name for key in TABLE.keys if key.apply is Apply.LIVE} - others == own


async def test_live_settings_hold_from_the_moment_they_are_applied(tmp_path: Path) -> None:
    first = MailboxOptions(rules=ShardRules(backoff=FullJitter(3600.0, cap_s=3600.0)))
    async with running(make_engine("memory", tmp_path), first) as mailbox:
        changed = ShardRules(backoff=FullJitter(0.001, cap_s=0.001))
        mailbox.apply(replace(first, rules=changed, default_visibility_ms=9000))
        await mailbox.api.send(Send("orders", b"x"))
        (message,) = (await mailbox.api.recv(Recv("orders", wait_ms=5000))).messages
        answer = await mailbox.api.nack(Nack(message.msg_id, message.receipt))
        assert answer.visible_in_ms <= 1
        assert mailbox.state.options.default_visibility_ms == 9000
        mailbox.apply(replace(first, rules=changed, ready_shards=3))
        while len(mailbox.state.shards) != 3:  # noqa: ASYNC110 - nothing tells us
            await asyncio.sleep(0.01)

        assert {shard.rules for shard in mailbox.state.shards} == {changed}
