"""Topic settings on the mailbox in RAM, directly and over OAP/1."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from penstock.contracts.mailbox_rules import METHODS
from penstock.testing.contracts.memory_mailbox import MemoryMailbox
from tests.contracts.suite_mailbox import mailbox_options
from tests.contracts.suite_mailbox_settings import TopicSettingsSuite
from tests.contracts.worlds import World, over_memory


class TestSettingsOverMemory(TopicSettingsSuite):
    def world(self, **options: object) -> AbstractAsyncContextManager[World]:
        return over_memory(lambda clock: MemoryMailbox(clock, mailbox_options(options)), METHODS)
