"""The passport contract on the real service, in RAM and in a directory, called directly and over OAP/1."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from penstock.contracts.passport import METHODS
from penstock.kernel.inventory import Inventory
from penstock.net.oap.client import OapClient, OapClientOptions
from penstock.net.oap.server import OapServer
from penstock.net.oap.service import OapServerOptions
from penstock.rpc.oap import Stub, serve
from penstock.testing.transport import memory_pair
from tests.contracts.suite_passport import PassportSuite
from tests.contracts.worlds import World
from tests.services.passport.kit import options, running


class TestPassportService(PassportSuite):
    def world(self) -> AbstractAsyncContextManager[World]:
        return self._world(None)

    @asynccontextmanager
    async def _world(self, data_dir: Path | None) -> AsyncIterator[World]:
        async with running(options(data_dir)) as world:
            yield World(world.api, world, asyncio.sleep)


class TestPassportServiceOnDisk(TestPassportService):
    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path: Path) -> None:
        self._tmp_path = tmp_path

    def world(self) -> AbstractAsyncContextManager[World]:
        return self._world(self._tmp_path)


class TestPassportServiceOverOap(PassportSuite):
    @asynccontextmanager
    async def world(self) -> AsyncIterator[World]:
        async with running() as world:
            server = OapServer(Inventory("svc"), OapServerOptions(), [serve(METHODS, world.api)])

            async def dial(protocol):
                connection = protocol()
                return memory_pair(connection, server.protocol())[0], connection

            client = OapClient(Inventory("caller"), OapClientOptions(call_timeout_s=30.0), dial=dial)
            await server.start()
            try:
                yield World(Stub(client, METHODS), world, asyncio.sleep)
            finally:
                await client.close()
                await server.close()
