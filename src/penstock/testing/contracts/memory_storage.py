"""svc-storage in RAM: objects in a dict, bounded, verified on every read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.contracts.call import NOBODY, Call
from penstock.contracts.storage import (
    Chunk,
    Done,
    Get,
    Head,
    ObjectInfo,
    Put,
    Stored,
    Upload,
    UploadAbort,
    UploadAppend,
    UploadFinish,
    UploadOpen,
    clip_range,
)
from penstock.kernel.errors import Busy, Conflict, Integrity, NotFound, OverLimit
from penstock.wire.ids import address_of

INSUFFICIENT_STORAGE: Final = 507


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryStorageOptions:
    """Bounds of the store."""

    bytes_max: int = 256 << 20
    object_bytes_max: int = 64 << 20
    answer_bytes_max: int = 1 << 20
    uploads_max: int = 64


class MemoryStorage:
    """The storage contract over a dict. Nothing here waits; the methods are coroutines because the contract's are."""

    def __init__(self, options: MemoryStorageOptions | None = None) -> None:
        self._options = options or MemoryStorageOptions()
        self._objects: dict[str, bytes] = {}
        self._uploads: dict[str, bytearray] = {}
        self._next_upload = 1
        self.used_bytes = 0

    @property
    def objects(self) -> Mapping[str, bytes]:
        """Show what is stored; tests damage it through `damage`."""
        return self._objects

    def damage(self, address: str, data: bytes) -> None:
        """Replace an object's bytes, as a failing disk would."""
        self._objects[address] = data

    async def put(self, request: Put, call: Call = NOBODY) -> Stored:
        """Store bytes under their address."""
        return self._store(request.data, request.expect)

    async def get(self, request: Get, call: Call = NOBODY) -> Chunk:
        """Read a range of an object that is still what its address says."""
        data = self._find(request.address)
        if address_of(data) != request.address:
            raise Integrity("The stored object is damaged.")
        start, end = clip_range(len(data), request.offset, request.length, self._options.answer_bytes_max)
        return Chunk(request.address, len(data), start, data[start:end])

    async def head(self, request: Head, call: Call = NOBODY) -> ObjectInfo:
        """Tell an object's size."""
        return ObjectInfo(request.address, len(self._find(request.address)))

    async def upload_open(self, request: UploadOpen, call: Call = NOBODY) -> Upload:
        """Begin an object in pieces."""
        if len(self._uploads) >= self._options.uploads_max:
            raise Busy("Too many uploads are unfinished.", limit="uploads")
        upload_id = f"u{self._next_upload}"
        self._next_upload += 1
        self._uploads[upload_id] = bytearray()
        return Upload(upload_id, 0)

    async def upload_append(self, request: UploadAppend, call: Call = NOBODY) -> Upload:
        """Add a piece at the end, or see that it is the piece that was added last."""
        pieces, end = self._upload(request.upload_id), request.offset + len(request.data)
        if end == len(pieces) and pieces[request.offset :] == request.data:
            return Upload(request.upload_id, len(pieces))
        if request.offset != len(pieces):
            raise Conflict(f"The upload ends at {len(pieces)}.", reason="bad_offset", size=len(pieces))
        if end > self._options.object_bytes_max:
            raise OverLimit("The object is too large.", limit="object_bytes")
        pieces += request.data
        return Upload(request.upload_id, len(pieces))

    async def upload_finish(self, request: UploadFinish, call: Call = NOBODY) -> Stored:
        """Make the pieces an object; they are gone afterwards only if that worked."""
        stored = self._store(bytes(self._upload(request.upload_id)), request.expect)
        del self._uploads[request.upload_id]
        return stored

    async def upload_abort(self, request: UploadAbort, call: Call = NOBODY) -> Done:
        """Throw the pieces away."""
        self._uploads.pop(request.upload_id, None)
        return Done()

    def _store(self, data: bytes, expect: str | None) -> Stored:
        address = address_of(data)
        if expect is not None and expect != address:
            raise Conflict("The bytes have another address.", reason="digest_mismatch", address=address)
        if address in self._objects:
            return Stored(address, len(data), existed=True)
        if len(data) > self._options.object_bytes_max:
            raise OverLimit("The object is too large.", limit="object_bytes")
        if self.used_bytes + len(data) > self._options.bytes_max:
            raise OverLimit("The store is full.", limit="storage", status=INSUFFICIENT_STORAGE)
        self._objects[address] = data
        self.used_bytes += len(data)
        return Stored(address, len(data), existed=False)

    def _find(self, address: str) -> bytes:
        if (data := self._objects.get(address)) is None:
            raise NotFound("There is no object at this address.")
        return data

    def _upload(self, upload_id: str) -> bytearray:
        if (pieces := self._uploads.get(upload_id)) is None:
            raise NotFound("There is no such upload.")
        return pieces
