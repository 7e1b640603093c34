"""The storage contract's own suite on the real service, on every engine, directly and over OAP/1."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from tests.contracts.suite_storage import StorageSuite
from tests.contracts.worlds import World
from tests.services.storage.worlds import storage_over_oap, storage_world


class TestMemory(StorageSuite):
    def world(self, **options: object) -> AbstractAsyncContextManager[World]:
        return storage_world("memory", **options)


class TestFiles(StorageSuite):
    def world(self, **options: object) -> AbstractAsyncContextManager[World]:
        return storage_world("files", **options)


class TestFilesOverOap(StorageSuite):
    def world(self, **options: object) -> AbstractAsyncContextManager[World]:
        return storage_over_oap("files", **options)
