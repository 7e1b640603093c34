"""The simulated disk: knows what is durable, loses the rest with the power, and fails where it is told to."""

from __future__ import annotations

import errno
import posixpath
from typing import TYPE_CHECKING

from penstock.testing import leaks

if TYPE_CHECKING:
    import random

SECTOR_BYTES = 512
"""What a disk writes in one piece: a torn write is torn between sectors."""

_Change = tuple[int, bytes | None]
"""Bytes written at an offset, or None for a truncation to that size."""


def _error(code: int, path: str) -> OSError:
    return OSError(code, errno.errorcode[code], path)


class _Inode:
    """A file's bytes: as the program sees them, and as the disk would have them after a power loss."""

    def __init__(self) -> None:
        self.live = bytearray()
        self.durable = bytearray()
        self.unsynced: list[_Change] = []
        self.torn_bytes = 0

    def change(self, change: _Change) -> None:
        _apply(self.live, change)
        self.unsynced.append(change)

    def sync(self) -> None:
        for change in self.unsynced:
            _apply(self.durable, change)
        self.unsynced.clear()

    def lose_power(self, rng: random.Random | None) -> None:
        for change in _survivors(self.unsynced, self.torn_bytes, rng):
            _apply(self.durable, change)
        self.unsynced.clear()
        self.torn_bytes = 0
        self.live = bytearray(self.durable)


def _apply(content: bytearray, change: _Change) -> None:
    offset, data = change
    size = offset + len(data or b"")
    if len(content) < size:
        content.extend(bytes(size - len(content)))
    if data is None:
        del content[offset:]
    else:
        content[offset:size] = data


def _survivors(changes: list[_Change], torn_bytes: int, rng: random.Random | None) -> list[_Change]:
    """Choose what of the changes nobody synced reached the disk all the same."""
    if rng is not None:
        return [piece for change in changes for piece in _sectors(change) if rng.random() < 0.5]
    kept: list[_Change] = []
    for offset, data in changes:
        if torn_bytes <= 0:
            break
        kept.append((offset, data if data is None else data[:torn_bytes]))
        torn_bytes -= len(data or b"")
    return kept


def _sectors(change: _Change) -> list[_Change]:
    """Cut a write where the disk may tear it."""
    offset, data = change
    if data is None:
        return [change]
    first = SECTOR_BYTES - offset % SECTOR_BYTES
    starts = [0, *range(first, len(data), SECTOR_BYTES)]
    return [(offset + start, data[start:stop]) for start, stop in zip(starts, [*starts[1:], len(data)], strict=True)]


class SimFile:
    """An open file of the simulated disk; dead after a power loss, as its process would be."""

    def __init__(self, disk: SimDisk, path: str, inode: _Inode) -> None:
        """Hold this inode; whatever name it has later."""
        self._disk = disk
        self._path = path
        self._inode = inode
        self._boot = disk.boots
        self._closed = False
        leaks.track(f"file {path}", lambda: not self._closed and self._boot == disk.boots)

    def _live(self) -> bytearray:
        if self._closed:
            raise ValueError(f"{self._path} is closed")
        if self._boot != self._disk.boots:
            raise _error(errno.EIO, self._path)
        return self._inode.live

    def read(self, offset: int, size: int) -> bytes:
        """Read up to `size` bytes from here."""
        return bytes(self._live()[offset : offset + size])

    def write(self, offset: int, data: bytes) -> None:
        """Write these bytes here; a full disk takes the first of them and then refuses."""
        self._live()
        taken = self._disk.take_room(len(data))
        self._inode.change((offset, bytes(data[:taken])))
        if taken < len(data):
            raise _error(errno.ENOSPC, self._path)

    def append(self, data: bytes) -> int:
        """Write these bytes at the end; tell where they begin."""
        offset = self.size()
        self.write(offset, data)
        return offset

    def truncate(self, size: int) -> None:
        """Cut or extend to this size."""
        self._live()
        self._inode.change((size, None))

    def size(self) -> int:
        """Tell the size."""
        return len(self._live())

    def fsync(self) -> None:
        """Make the contents durable, unless this fsync is to fail: then they never will be by a later one."""
        self._live()
        if self._disk.fsync_fails(self._path):
            self._inode.unsynced.clear()
            raise _error(errno.EIO, self._path)
        self._inode.sync()

    def close(self) -> None:
        """Give the file back; makes nothing durable."""
        self._closed = True


class SimDisk:
    """Files in memory, with the faults of a disk on demand."""

    def __init__(self) -> None:
        """Begin with an empty root directory, durable."""
        self.boots = 0
        """How often the power was lost; a file opened before is dead."""
        self._names: dict[str, _Inode] = {}
        self._durable_names: dict[str, _Inode] = {}
        self._dirs = {""}
        self._durable_dirs = {""}
        self._failing_fsyncs: dict[str | None, int] = {}
        self._room_bytes: int | None = None

    # -- the Disk contract -------------------------------------------------------------------------------------

    def open(self, path: str) -> SimFile:
        """Open for reading and writing; a file that is not there is made, empty."""
        self._need_dir(posixpath.dirname(path))
        return SimFile(self, path, self._names.setdefault(path, _Inode()))

    def rename(self, old: str, new: str) -> None:
        """Give a file another name in one step, replacing what has it; durable by `fsync_dir`."""
        self._need_dir(posixpath.dirname(new))
        inode = self._inode(old)
        del self._names[old]
        self._names[new] = inode

    def unlink(self, path: str) -> None:
        """Remove a name; durable by `fsync_dir`."""
        self._inode(path)
        del self._names[path]

    def listdir(self, path: str = "") -> list[str]:
        """List the names in a directory, sorted."""
        self._need_dir(path)
        entries = [*self._names, *(self._dirs - {""})]
        return sorted(posixpath.basename(entry) for entry in entries if posixpath.dirname(entry) == path)

    def mkdir(self, path: str) -> None:
        """Make a directory; durable by `fsync_dir` of its parent."""
        self._need_dir(posixpath.dirname(path))
        self._dirs.add(path)

    def fsync_dir(self, path: str = "") -> None:
        """Make the names of a directory durable, unless this fsync is to fail."""
        self._need_dir(path)
        if self.fsync_fails(path):
            raise _error(errno.EIO, path)
        kept = {name: inode for name, inode in self._durable_names.items() if posixpath.dirname(name) != path}
        here = {name: inode for name, inode in self._names.items() if posixpath.dirname(name) == path}
        self._durable_names = kept | here
        self._durable_dirs |= {name for name in self._dirs if posixpath.dirname(name) == path}

    def _inode(self, path: str) -> _Inode:
        if path not in self._names:
            raise _error(errno.ENOENT, path)
        return self._names[path]

    def _need_dir(self, path: str) -> None:
        if path not in self._dirs:
            raise _error(errno.ENOENT, path)

    # -- faults ------------------------------------------------------------------------------------------------

    def power_loss(self, rng: random.Random | None = None) -> None:
        """Lose everything not made durable; with an rng, any subset of unsynced sectors may have been written."""
        self.boots += 1
        self._dirs = set(self._durable_dirs)
        self._names = {
            name: inode for name, inode in self._durable_names.items() if posixpath.dirname(name) in self._dirs
        }
        for inode in set(self._names.values()):
            inode.lose_power(rng)

    def torn_tail(self, path: str, kept_bytes: int) -> None:
        """Let the first bytes of what is unsynced in this file survive the next power loss."""
        self._inode(path).torn_bytes = kept_bytes

    def flip_bit(self, path: str, bit: int) -> None:
        """Flip one bit on the disk, as a decaying sector would."""
        inode = self._inode(path)
        for content in (inode.live, inode.durable):
            if bit // 8 < len(content):
                content[bit // 8] ^= 1 << bit % 8

    def fail_fsync(self, path: str | None = None, times: int = 1) -> None:
        """Let the next fsyncs of this file or directory fail, or of any when no path is given."""
        self._failing_fsyncs[path] = times

    def disk_full(self, room_bytes: int | None = 0) -> None:
        """Leave room for this many bytes more; None gives the room back."""
        self._room_bytes = room_bytes

    def fsync_fails(self, path: str) -> bool:
        """Tell whether this fsync is to fail, and count it."""
        for key in (path, None):
            if self._failing_fsyncs.get(key, 0) > 0:
                self._failing_fsyncs[key] -= 1
                return True
        return False

    def take_room(self, size: int) -> int:
        """Use room for these bytes; tell for how many there was some."""
        if self._room_bytes is None:
            return size
        taken = min(size, self._room_bytes)
        self._room_bytes -= taken
        return taken
