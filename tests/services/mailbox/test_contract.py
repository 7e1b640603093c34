"""The mailbox contract's own suite on the real service, on every engine, directly and over OAP/1."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from tests.contracts.suite_mailbox import LongPollSuite
from tests.contracts.worlds import World
from tests.services.mailbox.worlds import mailbox_over_oap, mailbox_world


class TestMemory(LongPollSuite):
    def world(self, **options: object) -> AbstractAsyncContextManager[World]:
        return mailbox_world("memory", **options)


class TestSqlite(LongPollSuite):
    def world(self, **options: object) -> AbstractAsyncContextManager[World]:
        return mailbox_world("sqlite", **options)


class TestSqliteOverOap(LongPollSuite):
    def world(self, **options: object) -> AbstractAsyncContextManager[World]:
        return mailbox_over_oap("sqlite", **options)
