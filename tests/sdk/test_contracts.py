"""The contracts' own suites through the SDK and the real listeners: the same promises hold over JSON and HTTP."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from penstock.kernel.inventory import Inventory
from penstock.net.server.listener import Listener
from penstock.sdk.calling import Caller, SdkOptions
from penstock.sdk.discovery import Discovery
from penstock.sdk.http_mailbox import HttpMailbox
from penstock.sdk.http_passport import HttpPassport
from penstock.testing.transport import memory_pair
from tests.contracts.suite_mailbox import LongPollSuite
from tests.contracts.suite_passport import PassportSuite
from tests.contracts.worlds import World
from tests.services.mailbox.test_http import LISTENER
from tests.services.mailbox.worlds import mailbox_options, make_engine
from tests.services.mailbox.worlds import running as running_mailbox
from tests.services.passport.kit import options, running

# The suites count on refusals to come back at once: what the SDK repeats is tested elsewhere.
ONCE = SdkOptions(tries_max=1, timeout_s=30.0)


def caller_of(service: str, listener: Listener) -> Caller:
    """Reach a listener over a memory transport."""

    async def dial(_origin, connection) -> None:
        memory_pair(connection, listener.connection())

    return Caller(service, Discovery(ports={service: 1}, token=""), Inventory("client"), ONCE, dial)


class PatientMailbox(HttpMailbox):
    """The contract over HTTP, but a redrive is waited for: the suite looks at once, and 202 only promises."""

    def __init__(self, caller: Caller, reprocessor) -> None:
        super().__init__(caller)
        self._reprocessor = reprocessor

    async def reprocess(self, request, *call):
        answer = await super().reprocess(request, *call)
        while self._reprocessor.open:  # noqa: ASYNC110 - nothing tells us
            await asyncio.sleep(0.001)
        return answer


class TestMailboxOverHttp(LongPollSuite):
    @asynccontextmanager
    async def world(self, **wishes: object) -> AsyncIterator[World]:
        with tempfile.TemporaryDirectory() as directory:
            chosen = mailbox_options(wishes, listener=replace(LISTENER, host=None))
            async with running_mailbox(make_engine("memory", Path(directory)), chosen) as service:
                caller = caller_of("mailbox", service.listener)
                async with caller:
                    yield World(PatientMailbox(caller, service.reprocessor), service, asyncio.sleep)


class TestPassportOverHttp(PassportSuite):
    def world(self) -> AbstractAsyncContextManager[World]:
        return self._world()

    @asynccontextmanager
    async def _world(self) -> AsyncIterator[World]:
        async with running(options()) as world:
            caller = caller_of("passport", world.service.listener)
            async with caller:
                yield World(HttpPassport(caller), world, asyncio.sleep)
