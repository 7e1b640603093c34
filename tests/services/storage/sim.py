"""The engine's disk on the test kit's simulated one, which loses what was not synced; and one that stops at a call."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from penstock.services.storage.engines.disk import FileStamp, StorageDisk
from penstock.services.storage.engines.engine import ObjectEngine
from penstock.services.storage.engines.packs import Packs
from penstock.testing.simdisk import SimDisk


class HeldSimFile:
    """A file of the simulated disk that stays open until its last reference goes."""

    def __init__(self, disk: SimDisk, path: str) -> None:
        self._file = disk.open(path)
        self._named = lambda: posixpath.basename(path) in disk.listdir(posixpath.dirname(path))

    def read(self, offset: int, size: int) -> bytes:
        return self._file.read(offset, size)

    def read_now(self, offset: int, size: int) -> bytes | None:
        content = self._file.read(offset, size)
        return content if len(content) == size else None

    def write(self, offset: int, data: bytes) -> None:
        self._file.write(offset, data)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def sync(self) -> None:
        self._file.fsync()

    def size(self) -> int:
        return self._file.size()

    def has_name(self) -> bool:
        return self._named()

    def __del__(self) -> None:
        self._file.close()  # lint: allow PK016 closing a simulated file only notes it


class SimFiles:
    """Each call opens, acts and closes, as the real disk does."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk

    def _need(self, path: str) -> None:
        if posixpath.basename(path) not in self.disk.listdir(posixpath.dirname(path)):
            raise FileNotFoundError(path)

    def open(self, path: str, *, new: bool = False) -> HeldSimFile:
        if not new:
            self._need(path)
        return HeldSimFile(self.disk, path)

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


def engine_on(disk: StorageDisk) -> ObjectEngine:
    """Make an engine that fills its packs only a little ahead: what is simulated or copied is then small."""
    engine = ObjectEngine(disk, packed_max=1000)
    engine.packs = Packs(disk, engine.index, ahead_bytes=3000)
    return engine


class PowerLoss(BaseException):
    """The machine stops here."""


class Stopping:
    """A disk that lets so many calls through, and then stops in the middle of the machine's work."""

    def __init__(self, disk: SimFiles, calls: int) -> None:
        self._disk = disk
        self.left = calls

    def __getattr__(self, name: str):
        call = getattr(self._disk, name)
        return lambda *args, **kwargs: self.counted(call, *args, **kwargs)

    def open(self, path: str, *, new: bool = False):
        return StoppingFile(self, self.counted(self._disk.open, path, new=new))

    def counted(self, call, *args: object, **kwargs: object):
        self.left -= 1
        if self.left < 0:
            raise PowerLoss
        return call(*args, **kwargs)


class StoppingFile:
    """An open file of such a disk: its calls count too."""

    def __init__(self, disk: Stopping, file: HeldSimFile) -> None:
        self._disk = disk
        self._file = file

    def __getattr__(self, name: str):
        call = getattr(self._file, name)
        return lambda *args, **kwargs: self._disk.counted(call, *args, **kwargs)
