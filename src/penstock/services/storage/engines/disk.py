"""The files an engine writes, each call whole in itself: nothing stays open between two calls.

A call that was given up may still be running on its thread. It can then do no harm: it names a file, and holds no
descriptor that somebody else could close or reuse.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, Protocol

# macOS has no fdatasync.
_sync: Final = getattr(os, "fdatasync", os.fsync)


class NotPlain(OSError):
    """What has this name is no plain file: a link, a pipe, a directory. Nobody here made it."""


class FileStamp(NamedTuple):
    """What changes when a file does: equal stamps mean that nobody wrote to it in between."""

    size: int
    inode: int
    modified_ns: int
    changed_ns: int


class StorageDisk(Protocol):
    """A tree of files; paths are relative and written with `/`. A name that is not there is FileNotFoundError."""

    def write(self, path: str, offset: int, data: bytes | memoryview, *, new: bool = False, sync: bool = False) -> None:
        """Write into a file that is there, or make a `new` one; with `sync` its contents are durable on return."""
        ...

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Read so many bytes, fewer at the end of the file."""
        ...

    def stamp(self, path: str) -> FileStamp:
        """Look at a file without reading it; `NotPlain` when it is none."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file another name in one step, replacing what has it."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a name."""
        ...

    def files(self, path: str) -> Iterator[tuple[str, int]]:
        """List the files of a directory with their sizes."""
        ...

    def make_dir(self, path: str) -> None:
        """Make a directory; one that is there already is fine."""
        ...

    def sync_dir(self, path: str) -> None:
        """Make the names of a directory durable."""
        ...


class RealStorageDisk:
    """The files under one directory."""

    def __init__(self, root: Path) -> None:
        """Work below this directory."""
        self._root = root

    def write(self, path: str, offset: int, data: bytes | memoryview, *, new: bool = False, sync: bool = False) -> None:
        """Write all of these bytes here."""
        flags = os.O_WRONLY | (os.O_CREAT | os.O_EXCL if new else 0)
        with _opened(self._root / path, flags) as descriptor:
            rest = memoryview(data)
            while rest:
                count = os.pwrite(descriptor, rest, offset)
                rest, offset = rest[count:], offset + count
            if sync:
                _sync(descriptor)

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Read so many bytes, fewer at the end of the file."""
        with _opened(self._root / path, os.O_RDONLY) as descriptor:
            return os.pread(descriptor, size, offset)

    def stamp(self, path: str) -> FileStamp:
        """Look at a file without reading it."""
        found = (self._root / path).lstat()
        if not stat.S_ISREG(found.st_mode):
            raise NotPlain(errno.EINVAL, "not a plain file")
        return FileStamp(found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns)

    def rename(self, old: str, new: str) -> None:
        """Give a file another name in one step, replacing what has it."""
        (self._root / old).replace(self._root / new)

    def unlink(self, path: str) -> None:
        """Remove a name."""
        (self._root / path).unlink()

    def files(self, path: str) -> Iterator[tuple[str, int]]:
        """List the files of a directory with their sizes."""
        with os.scandir(self._root / path) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    yield entry.name, entry.stat(follow_symlinks=False).st_size

    def make_dir(self, path: str) -> None:
        """Make a directory, and what it lies in."""
        (self._root / path).mkdir(mode=0o700, parents=True, exist_ok=True)

    def sync_dir(self, path: str) -> None:
        """Make the names of a directory durable."""
        with _opened(self._root / path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
            os.fsync(descriptor)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    # What took a file's place must neither lead elsewhere nor make a thread wait, as a pipe would.
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
