"""A file layer under SQLite that fails where it is told to."""

from __future__ import annotations

import apsw


class Faults:
    """What shall go wrong."""

    def __init__(self) -> None:
        self.failing_syncs = 0
        self.room_bytes: int | None = None


class _File(apsw.VFSFile):
    def __init__(self, faults: Faults, inherit: str, filename, flags) -> None:
        self._faults = faults
        super().__init__(inherit, filename, flags)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        if self._faults.failing_syncs:
            self._faults.failing_syncs -= 1
            raise apsw.IOError("the disk does not answer")
        super().xSync(flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        faults = self._faults
        if faults.room_bytes is not None:
            growth = max(0, offset + len(data) - self.xFileSize())
            if growth > faults.room_bytes:
                raise apsw.FullError("no room")
            faults.room_bytes -= growth
        super().xWrite(data, offset)


class FaultyVfs(apsw.VFS):
    """Register under a name; every file opened through it obeys `faults`."""

    def __init__(self, name: str) -> None:
        self.faults = Faults()
        self.name = name
        super().__init__(name, "")

    def xOpen(self, name, flags):  # noqa: N802 - SQLite's name
        return _File(self.faults, "", name, flags)


class VfsRoom:
    """A reserve on the same make-believe disk."""

    def __init__(self, faults: Faults, size_bytes: int) -> None:
        self._faults = faults
        self._size_bytes = size_bytes
        self.held = False

    def keep(self) -> bool:
        room = self._faults.room_bytes
        if not self.held and (room is None or room >= self._size_bytes):
            self._faults.room_bytes = None if room is None else room - self._size_bytes
            self.held = True
        return self.held

    def release(self) -> None:
        if self.held and self._faults.room_bytes is not None:
            self._faults.room_bytes += self._size_bytes
        self.held = False
