"""Topic settings on the real service: the contract's suite on both engines, and what only the service can show."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from tests.contracts.suite_mailbox_settings import TopicSettingsSuite
from tests.contracts.worlds import World
from tests.services.mailbox.worlds import mailbox_world


class TestSettingsInMemory(TopicSettingsSuite):
    def world(self, **options: object) -> AbstractAsyncContextManager[World]:
        return mailbox_world("memory", **options)


class TestSettingsOnSqlite(TopicSettingsSuite):
    def world(self, **options: object) -> AbstractAsyncContextManager[World]:
        return mailbox_world("sqlite", **options)
