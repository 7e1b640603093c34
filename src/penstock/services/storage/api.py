"""The storage contract: what other services and the framed protocol call. Authority first, then the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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

if TYPE_CHECKING:
    from penstock.services.storage.authority import StorageAuthority
    from penstock.services.storage.store import ObjectStore
    from penstock.services.storage.uploads import Uploads

# One answer holds so much at most: it is a value, not a stream.
ANSWER_BYTES_MAX: Final = 1 << 20


class StorageApi:
    """Implements `penstock.contracts.storage.Storage`."""

    def __init__(self, store: ObjectStore, uploads: Uploads, authority: StorageAuthority) -> None:
        """Stand in front of these."""
        self._store = store
        self._uploads = uploads
        self._authority = authority

    async def _allow(self, call: Call, op: str, cost_bytes: int = 0) -> None:
        waiting = self._authority.allow(call, op, cost_bytes)
        if waiting is not None:
            await waiting

    async def put(self, request: Put, call: Call = NOBODY) -> Stored:
        """Store bytes; the same bytes twice are one object."""
        await self._allow(call, "put", len(request.data))
        return await self._store.put(request.data, request.expect)

    async def get(self, request: Get, call: Call = NOBODY) -> Chunk:
        """Read bytes, verified; a whole object was held against its address."""
        await self._allow(call, "get")
        with self._store.reading() as reading:
            found = await reading.find(request.address)
            start, end = clip_range(found.size, request.offset, request.length, ANSWER_BYTES_MAX)
            await reading.span(start, end)
            whole = reading.whole()
            data = b"".join([piece async for piece in reading]) if whole is None else whole
        return Chunk(request.address, found.size, start, data)

    async def head(self, request: Head, call: Call = NOBODY) -> ObjectInfo:
        """Tell the size."""
        await self._allow(call, "get")
        with self._store.reading() as reading:
            found = await reading.find(request.address)
        return ObjectInfo(request.address, found.size)

    async def upload_open(self, request: UploadOpen, call: Call = NOBODY) -> Upload:
        """Begin an object in pieces."""
        await self._allow(call, "put")
        return self._uploads.open()

    async def upload_append(self, request: UploadAppend, call: Call = NOBODY) -> Upload:
        """Add a piece."""
        await self._allow(call, "put", len(request.data))
        return await self._uploads.append(request.upload_id, request.offset, request.data)

    async def upload_finish(self, request: UploadFinish, call: Call = NOBODY) -> Stored:
        """Make the object."""
        await self._allow(call, "put")
        return await self._uploads.finish(request.upload_id, request.expect)

    async def upload_abort(self, request: UploadAbort, call: Call = NOBODY) -> Done:
        """Throw the pieces away."""
        await self._allow(call, "put")
        await self._uploads.abort(request.upload_id)
        return Done()
