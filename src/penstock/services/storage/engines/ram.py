"""Files in memory, for a node that keeps nothing: the same engine writes them, and forgets them with the process."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from penstock.services.storage.engines.disk import FileStamp


class RamStorageFile:
    """A file of the dict below that somebody holds.

    It copies slices: a view would keep the other side from growing it.
    """

    __slots__ = ("_content",)

    def __init__(self, content: bytearray) -> None:
        """Share these bytes with the disk."""
        self._content = content

    def read(self, offset: int, size: int) -> bytes:
        """Read so many bytes, fewer at the end of the file."""
        return bytes(self._content[offset : offset + size])

    def read_now(self, offset: int, size: int) -> bytes | None:
        """Do the same: nothing here has to be waited for."""
        content = self.read(offset, size)
        return content if len(content) == size else None

    def write(self, offset: int, data: bytes) -> None:
        """Write all of these bytes here."""
        self._content[offset : offset + len(data)] = data

    def truncate(self, size: int) -> None:
        """Cut the file to this size."""
        del self._content[size:]

    def sync(self) -> None:
        """Do nothing: nothing is ever more durable than the process."""

    def size(self) -> int:
        """Tell the size."""
        return len(self._content)

    def has_name(self) -> bool:
        """Say yes: only this process could take the name away."""
        return True


class RamStorageDisk:
    """A dict of files. Each call changes one of them in one step, so threads need no lock."""

    def __init__(self) -> None:
        self._files: dict[str, bytearray] = {}
        self._writes = count(1)
        self._stamps: dict[str, int] = {}

    def open(self, path: str, *, new: bool = False) -> RamStorageFile:
        """Open a file that is there, or make a new one."""
        content = self._files.setdefault(path, bytearray()) if new else self._find(path)
        self._stamps.setdefault(path, next(self._writes))
        return RamStorageFile(content)

    def write(self, path: str, offset: int, data: bytes | memoryview, *, new: bool = False, sync: bool = False) -> None:
        """Write all of these bytes here; nothing is ever more durable than the process."""
        content = self._files.setdefault(path, bytearray()) if new else self._find(path)
        content[offset : offset + len(data)] = data
        self._stamps[path] = next(self._writes)

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Read so many bytes, fewer at the end of the file."""
        with memoryview(self._find(path)) as view:
            return bytes(view[offset : offset + size])

    def stamp(self, path: str) -> FileStamp:
        """Look at a file without reading it."""
        content = self._find(path)
        return FileStamp(len(content), id(content), self._stamps[path], 0)

    def rename(self, old: str, new: str) -> None:
        """Give a file another name in one step, replacing what has it."""
        content = self._find(old)
        self._files[new], self._stamps[new] = content, next(self._writes)
        self.unlink(old)

    def unlink(self, path: str) -> None:
        """Remove a name."""
        self._find(path)
        del self._files[path], self._stamps[path]

    def files(self, path: str) -> Iterator[tuple[str, int]]:
        """List the files of a directory with their sizes."""
        start = f"{path}/"
        for name, content in list(self._files.items()):
            if name.startswith(start):
                yield name.removeprefix(start), len(content)

    def make_dir(self, path: str) -> None:
        """Do nothing: a name is all it takes."""

    def sync_dir(self, path: str) -> None:
        """Do nothing: there is nowhere to sync to."""

    def _find(self, path: str) -> bytearray:
        if (content := self._files.get(path)) is None:
            raise FileNotFoundError(path)
        return content
