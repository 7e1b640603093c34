"""The engine's disk on the test kit's simulated one, which loses what was not synced; and one that stops at a call."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from penstock.services.storage.engines.disk import FileStamp
from penstock.testing.simdisk import SimDisk


class SimFiles:
    """Each call opens, acts and closes, as the real disk does."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk

    def _need(self, path: str) -> None:
        if posixpath.basename(path) not in self.disk.listdir(posixpath.dirname(path)):
            raise FileNotFoundError(path)

    def write(self, path: str, offset: int, data: bytes, *, new: bool = False, sync: bool = False) -> None:
        if not new:
            self._need(path)
        file = self.disk.open(path)
        try:
            file.write(offset, bytes(data))
            if sync:
                file.fsync()
        finally:
            file.close()

    def read(self, path: str, offset: int, size: int) -> bytes:
        self._need(path)
        file = self.disk.open(path)
        try:
            return file.read(offset, size)
        finally:
            file.close()

    def stamp(self, path: str) -> FileStamp:
        self._need(path)
        file = self.disk.open(path)
        try:
            return FileStamp(file.size(), 0, 0, 0)
        finally:
            file.close()

    def rename(self, old: str, new: str) -> None:
        self._need(old)
        self.disk.rename(old, new)

    def unlink(self, path: str) -> None:
        self._need(path)
        self.disk.unlink(path)

    def files(self, path: str) -> Iterator[tuple[str, int]]:
        for name in self.disk.listdir(path):
            yield name, self.stamp(f"{path}/{name}").size

    def make_dir(self, path: str) -> None:
        self.disk.mkdir(path)

    def sync_dir(self, path: str) -> None:
        self.disk.fsync_dir(path)


class PowerLoss(BaseException):
    """The machine stops here."""


class Stopping:
    """A disk that lets so many calls through, and then stops in the middle of the machine's work."""

    def __init__(self, disk: SimFiles, calls: int) -> None:
        self._disk = disk
        self.left = calls

    def __getattr__(self, name: str):
        call = getattr(self._disk, name)

        def counted(*args: object, **kwargs: object):
            self.left -= 1
            if self.left < 0:
                raise PowerLoss
            return call(*args, **kwargs)

        return counted
