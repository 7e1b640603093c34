"""A small file layer over real files; `simdisk` has the same over a disk that can lose power.

Code that must survive a crash writes through `Disk`. In production that is `RealDisk`; in a test it is `SimDisk`,
which remembers what was made durable. POSIX promises little and so does it: only `fsync` keeps a file's bytes, only
`fsync_dir` keeps a directory's names, and a failed fsync loses what it was asked to keep.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol


class DiskFile(Protocol):
    """An open file, addressed by offset."""

    def read(self, offset: int, size: int) -> bytes:
        """Read up to `size` bytes from here."""
        ...

    def write(self, offset: int, data: bytes) -> None:
        """Write these bytes here; a gap before them reads as zeros."""
        ...

    def append(self, data: bytes) -> int:
        """Write these bytes at the end; tell where they begin."""
        ...

    def truncate(self, size: int) -> None:
        """Cut or extend to this size."""
        ...

    def size(self) -> int:
        """Tell the size."""
        ...

    def fsync(self) -> None:
        """Make the contents durable; until then they may be lost."""
        ...

    def close(self) -> None:
        """Give the file back; makes nothing durable."""
        ...


class Disk(Protocol):
    """A tree of files; paths are relative and written with `/`."""

    def open(self, path: str) -> DiskFile:
        """Open for reading and writing; a file that is not there is made, empty."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file another name in one step, replacing what has it."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a name."""
        ...

    def listdir(self, path: str = "") -> list[str]:
        """List the names in a directory, sorted."""
        ...

    def mkdir(self, path: str) -> None:
        """Make a directory; one that is there already is fine."""
        ...

    def fsync_dir(self, path: str = "") -> None:
        """Make the names of a directory durable: creations, renames and removals."""
        ...


class RealFile:
    """A file of the operating system."""

    def __init__(self, path: Path) -> None:
        """Open it, or make it."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._closed = False

    def read(self, offset: int, size: int) -> bytes:
        """Read up to `size` bytes from here."""
        return os.pread(self._fd, size, offset)

    def write(self, offset: int, data: bytes) -> None:
        """Write all of these bytes here."""
        rest = memoryview(data)
        while rest:
            count = os.pwrite(self._fd, rest, offset)
            rest, offset = rest[count:], offset + count

    def append(self, data: bytes) -> int:
        """Write these bytes at the end; tell where they begin."""
        offset = self.size()
        self.write(offset, data)
        return offset

    def truncate(self, size: int) -> None:
        """Cut or extend to this size."""
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        """Tell the size."""
        return os.fstat(self._fd).st_size

    def fsync(self) -> None:
        """Make the contents durable."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Give the descriptor back; a second call does nothing."""
        if not self._closed:
            self._closed = True
            os.close(self._fd)


class RealDisk:
    """The files under one directory."""

    def __init__(self, root: Path) -> None:
        """Work below this directory, which must exist."""
        self._root = root

    def open(self, path: str) -> RealFile:
        """Open for reading and writing; a file that is not there is made, empty."""
        return RealFile(self._root / path)

    def rename(self, old: str, new: str) -> None:
        """Give a file another name in one step, replacing what has it."""
        (self._root / old).replace(self._root / new)

    def unlink(self, path: str) -> None:
        """Remove a name."""
        (self._root / path).unlink()

    def listdir(self, path: str = "") -> list[str]:
        """List the names in a directory, sorted."""
        return sorted(entry.name for entry in (self._root / path).iterdir())

    def mkdir(self, path: str) -> None:
        """Make a directory; one that is there already is fine."""
        (self._root / path).mkdir(exist_ok=True)

    def fsync_dir(self, path: str = "") -> None:
        """Make the names of a directory durable."""
        fd = os.open(self._root / path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
