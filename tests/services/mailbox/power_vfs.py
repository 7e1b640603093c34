"""A file layer under SQLite that writes down everything: so that the power can be lost afterwards, at any moment.

Writes go through to real files and into one log, in order, with the syncs and the notes of whoever runs the load.
`lose_power` builds what a disk would hold if the power had gone at an entry of that log: what was synced, and of the
rest any sectors.
"""

from __future__ import annotations

import itertools
import random
import threading
from pathlib import Path
from typing import Any

import apsw

SECTOR_BYTES = 512
Entry = tuple[Any, ...]


class PowerVfs(apsw.VFS):
    """Register under a name; every file opened through it is written down in `log`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.log: list[Entry] = []
        self.failing_syncs = 0
        self._inodes: dict[str, tuple[int, int]] = {}
        # The engine writes, copies and inspects on threads of their own: what is done and what is written down about it
        # is one step.
        self.one_step = threading.RLock()
        super().__init__(name, "")

    def xOpen(self, name, flags):  # noqa: N802 - SQLite's name
        file = _File(self, name, flags)
        if file.path.endswith((".db", "-wal")):
            self._adopt(file.path)
        return file

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 - SQLite's name
        super().xDelete(filename, syncdir)
        self.log.append(("gone", str(filename)))

    def _adopt(self, path: str) -> None:
        """Take over what the engine wrote and synced past us: it makes its logs itself."""
        with self.one_step:
            stat = Path(path).stat()
            inode, size = self._inodes.get(path, (0, 0))
            if inode != stat.st_ino:
                self.log.append(("adopt", path, Path(path).read_bytes()))
            elif stat.st_size > size:
                self.log.append(("extend", path, stat.st_size))
            self._inodes[path] = (stat.st_ino, stat.st_size)

    def grown(self, path: str, size: int) -> None:
        inode, known = self._inodes.get(path, (0, 0))
        self._inodes[path] = (inode, max(known, size))

    def note(self, *words: str) -> None:
        """Write down what the load knows by now."""
        self.log.append(("note", *words))


class _File(apsw.VFSFile):
    def __init__(self, vfs: PowerVfs, name, flags) -> None:
        self._vfs = vfs
        self.path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        with self._vfs.one_step:
            self._vfs.log.append(("write", self.path, offset, bytes(data)))
            self._vfs.grown(self.path, offset + len(data))
            super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:  # noqa: N802 - SQLite's name
        with self._vfs.one_step:
            self._vfs.log.append(("write", self.path, size, None))
            super().xTruncate(size)
            self._vfs._inodes[self.path] = (self._vfs._inodes[self.path][0], size)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        with self._vfs.one_step:
            if self._vfs.failing_syncs:
                self._vfs.failing_syncs -= 1
                self._vfs.log.append(("lost", self.path))
                raise apsw.IOError("the disk does not answer")
            super().xSync(flags)
            self._vfs.log.append(("sync", self.path))


class _Image:
    """What the disk surely has of a file, and what it may have."""

    def __init__(self) -> None:
        self.durable = bytearray()
        self.unsynced: list[tuple[int, bytes | None]] = []

    def settle(self, changes: list[tuple[int, bytes | None]]) -> None:
        for offset, data in changes:
            if data is None:
                del self.durable[offset:]
            else:
                self.durable.extend(bytes(max(0, offset - len(self.durable))))
                self.durable[offset : offset + len(data)] = data


def lose_power(log: list[Entry], at: int, rng: random.Random, mode: str) -> dict[str, bytes]:
    """Return the files as they are found after the power went at entry `at`."""
    images: dict[str, _Image] = {}
    for kind, path, *rest in log[:at]:
        if kind == "note":
            continue
        if kind == "gone":
            images.pop(path, None)
            continue
        image = images.setdefault(path, _Image())
        if kind == "write":
            image.unsynced.append((rest[0], rest[1]))
        elif kind == "sync":
            image.settle(image.unsynced)
            image.unsynced = []
        elif kind == "lost":
            image.unsynced = []
        elif kind == "extend":
            image.durable.extend(bytes(rest[0] - len(image.durable)))
        else:
            image.durable, image.unsynced = bytearray(rest[0]), []
    for image in images.values():
        image.settle(_survivors(image.unsynced, rng, mode))
    return {path: bytes(image.durable) for path, image in images.items()}


def _survivors(changes: list[tuple[int, bytes | None]], rng: random.Random, mode: str):
    sectors = [piece for change in changes for piece in _sectors(*change)]
    if mode == "none":
        return []
    if mode == "torn":
        return sectors[: rng.randrange(len(sectors) + 1)]
    share = rng.random()
    return [piece for piece in sectors if rng.random() < share]


def _sectors(offset: int, data: bytes | None) -> list[tuple[int, bytes | None]]:
    """Cut a write where a disk may tear it."""
    if data is None:
        return [(offset, None)]
    cuts = [0, *range(SECTOR_BYTES - offset % SECTOR_BYTES, len(data), SECTOR_BYTES), len(data)]
    return [(offset + a, data[a:b]) for a, b in itertools.pairwise(cuts)]
