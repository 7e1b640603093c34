"""The `[storage]` table and the options read from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config import (
    Apply,
    Derived,
    Key,
    Kind,
    channel_key,
    listener_settings,
    oap_key,
    service_drain,
    service_table,
)

if TYPE_CHECKING:
    from penstock.config import ListenerSettings, Settings

PORT_OFFSET = 3
_FILES_BYTES = 10 << 30
_RAM_BYTES = 256 << 20


def _quota(engine: str, amnesia: bool) -> int:  # noqa: FBT001 computed from keys by position
    return _RAM_BYTES if amnesia or engine == "memory" else _FILES_BYTES


def _count(name: str, default: int, text: str, *, high: int = 1 << 16, unit: str) -> Key:
    return Key(name, Kind.INT, default, low=1, high=high, unit=unit, apply=Apply.RESTART, help=text)


TABLE = service_table(
    "storage",
    port_offset=PORT_OFFSET,
    keys=(
        oap_key(),
        Key(
            "engine",
            Kind.CHOICE,
            "files",
            choices=("files", "memory"),
            apply=Apply.RESTART,
            help="Where objects are kept. `memory` forgets them with the process; `--amnesia` uses it.",
        ),
        Key(
            "dir",
            Kind.PATH,
            None,
            apply=Apply.RESTART,
            help="The directory of the objects. Empty: `objects` in the data directory.",
        ),
        Key(
            "max_bytes",
            Kind.SIZE,
            Derived(("storage.engine", "node.amnesia"), _quota, "10GiB; 256MiB in memory"),
            low="1KiB",
            zero_off=True,
            apply=Apply.RESTART,
            help="Bytes of all objects together. Full: 507 `over_limit`, `limit: storage`.",
        ),
        Key(
            "put_max_bytes",
            Kind.SIZE,
            "64MiB",
            low="1KiB",
            high="1GiB",
            apply=Apply.RESTART,
            help="The largest object, on the wire and inflated.",
        ),
        Key(
            "public_read",
            Kind.BOOL,
            default=False,
            apply=Apply.RESTART,
            help="Let anyone who knows an address read the object, without a capability.",
        ),
        _count("puts_max", 128, "Objects being taken in at once. Full: 429 `busy`.", unit="puts"),
        _count("gets_max", 512, "Objects being read at once. Full: 429 `busy`.", unit="gets"),
        _count("uploads_max", 64, "Uploads in pieces that are unfinished. Full: 429 `busy`.", unit="uploads"),
        Key(
            "upload_idle",
            Kind.DURATION,
            "5m",
            low="1s",
            high="1h",
            apply=Apply.RESTART,
            help="An upload in pieces that nobody goes on with is thrown away after this.",
        ),
        Key(
            "transfer_deadline",
            Kind.DURATION,
            "10m",
            low="1s",
            high="1h",
            apply=Apply.RESTART,
            help="A put is answered within this, however slowly its body arrives.",
        ),
        _count(
            "packed_max",
            1 << 22,
            "Small objects that lie in packs, 30 to 60 bytes of memory each. Beyond it each gets a file of its own.",
            high=1 << 28,
            unit="objects",
        ),
        _count("committers", 8, "Syncs of large objects that may run at once.", high=64, unit="threads"),
        _count("io_threads", 2, "Threads that read, and as many that write what is not yet whole.", high=64,
        unit="threads"),
        channel_key("commit", 128, "large objects on their way to a committer. Full: 429 `busy`."),
        channel_key("pack", 1024, "small objects on their way to the pack writer. Full: 429 `busy`."),
        service_drain("5s", "60s"),
    ),
    help="The content store.",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageOptions:
    """What can be tuned."""

    listener: ListenerSettings | None = None
    # None keeps everything in memory.
    directory: Path | None = None
    bytes_max: int = _RAM_BYTES
    put_bytes_max: int = 64 << 20
    public_read: bool = False
    puts_max: int = 128
    gets_max: int = 512
    uploads_max: int = 64
    upload_idle_s: float = 300.0
    transfer_deadline_s: float = 600.0
    committers: int = 8
    io_threads: int = 2
    commit_capacity: int = 128
    pack_capacity: int = 1024
    packed_max: int = 1 << 22
    drain_deadline_s: float = 5.0

    @property
    def where(self) -> str:
        """Say where the objects are."""
        return "memory" if self.directory is None else str(self.directory)

    @classmethod
    def from_settings(cls, settings: Settings, listener: ListenerSettings | None = None) -> StorageOptions:
        """Read the `[storage]` table; the node may hand in listener settings it has fitted to the machine."""
        number, seconds, size = settings.integer, settings.seconds, settings.size
        return cls(
            listener=listener or listener_settings(settings, "storage"),
            directory=_directory(settings),
            bytes_max=size("storage.max_bytes"),
            put_bytes_max=size("storage.put_max_bytes"),
            public_read=settings.flag("storage.public_read"),
            puts_max=number("storage.puts_max"),
            gets_max=number("storage.gets_max"),
            uploads_max=number("storage.uploads_max"),
            upload_idle_s=seconds("storage.upload_idle"),
            transfer_deadline_s=seconds("storage.transfer_deadline"),
            committers=number("storage.committers"),
            io_threads=number("storage.io_threads"),
            commit_capacity=number("storage.channels.commit"),
            pack_capacity=number("storage.channels.pack"),
            packed_max=number("storage.packed_max"),
            drain_deadline_s=seconds("storage.drain_deadline"),
        )


def _directory(settings: Settings) -> Path | None:
    if settings.flag("node.amnesia") or settings.text("storage.engine") == "memory":
        return None
    data_dir = settings.path("node.data_dir")
    return settings.path("storage.dir") or (None if data_dir is None else data_dir / "objects")
