"""The files an engine writes. A file of one object is named by every call and open only while the call lasts.

A call that was given up may still be running on its thread. It can then do no harm: it names a file, and holds no
descriptor that somebody else could close or reuse. Packs are read and written too often for that, so they stay open: a
`StorageFile` is closed when the last one who uses it lets it go, never while a call is at work on it.
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
# Read what is in memory, and do not wait for the disk. Where the system cannot say so, a thread reads.
_NOWAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)


class NotPlain(OSError):
    """What has this name is no plain file: a link, a pipe, a directory. Nobody here made it."""


class FileStamp(NamedTuple):
    """What changes when a file does: equal stamps mean that nobody wrote to it in between."""

    size: int
    inode: int
    modified_ns: int
    changed_ns: int


class StorageFile(Protocol):
    """A file that stays open, addressed by offset. It is closed with its last reference."""

    def read(self, offset: int, size: int) -> bytes:
        """Read so many bytes, fewer at the end of the file."""
        ...

    def read_now(self, offset: int, size: int) -> bytes | None:
        """Do the same if it needs no waiting for the disk; None otherwise."""
        ...

    def write(self, offset: int, data: bytes) -> None:
        """Write all of these bytes here."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to this size."""
        ...

    def sync(self) -> None:
        """Make the contents durable."""
        ...

    def size(self) -> int:
        """Tell the size."""
        ...

    def has_name(self) -> bool:
        """Tell whether the file still has a name: without one, what is written to it is lost at its close."""
        ...


class StorageDisk(Protocol):
    """A tree of files; paths are relative and written with `/`. A name that is not there is FileNotFoundError."""

    def open(self, path: str, *, new: bool = False) -> StorageFile:
        """Open a file that is there, or make a `new` one; `NotPlain` when it is none."""
        ...

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


class RealStorageFile:
    """A descriptor of its own."""

    __slots__ = ("_descriptor",)

    def __init__(self, path: Path, flags: int) -> None:
        """Open it; what took a file's place must neither lead elsewhere nor make a thread wait, as a pipe would."""
        self._descriptor = -1
        descriptor = os.open(path, flags | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise NotPlain(errno.EINVAL, "not a plain file")
        self._descriptor = descriptor

    def read(self, offset: int, size: int) -> bytes:
        """Read so many bytes, fewer at the end of the file."""
        pieces = []
        while size > 0 and (piece := os.pread(self._descriptor, size, offset)):
            pieces.append(piece)
            offset, size = offset + len(piece), size - len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def read_now(self, offset: int, size: int) -> bytes | None:
        """Do the same if all of it is in memory; a page that is not makes this None, and so does the file's end."""
        if _NOWAIT is None:
            return None
        content = bytearray(size)
        try:
            count = os.preadv(self._descriptor, [content], offset, _NOWAIT)
        except OSError:
            # Not in memory, or the file system cannot tell. A thread asks again and learns of a real fault.
            return None
        return bytes(content) if count == size else None

    def write(self, offset: int, data: bytes) -> None:
        """Write all of these bytes here."""
        _write_all(self._descriptor, offset, data)

    def truncate(self, size: int) -> None:
        """Cut the file to this size."""
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        """Make the contents durable."""
        _sync(self._descriptor)

    def size(self) -> int:
        """Tell the size."""
        return os.fstat(self._descriptor).st_size

    def has_name(self) -> bool:
        """Tell whether any name is left."""
        return os.fstat(self._descriptor).st_nlink > 0

    def __del__(self) -> None:
        """Close with the last reference: nobody can be at work on it then."""
        if self._descriptor >= 0:
            # lint: allow PK016 the close of a file whose bytes were synced, or only read, has nothing to wait for
            os.close(self._descriptor)


class RealStorageDisk:
    """The files under one directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def open(self, path: str, *, new: bool = False) -> RealStorageFile:
        """Open a file that is there, or make a new one."""
        return RealStorageFile(self._root / path, os.O_CREAT | os.O_EXCL if new else 0)

    def write(self, path: str, offset: int, data: bytes | memoryview, *, new: bool = False, sync: bool = False) -> None:
        """Write all of these bytes here."""
        flags = os.O_WRONLY | (os.O_CREAT | os.O_EXCL if new else 0)
        with _opened(self._root / path, flags) as descriptor:
            _write_all(descriptor, offset, data)
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


def _write_all(descriptor: int, offset: int, data: bytes | memoryview) -> None:
    rest = memoryview(data)
    while rest:
        count = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[count:], offset + count


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    # What took a file's place must neither lead elsewhere nor make a thread wait, as a pipe would.
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
