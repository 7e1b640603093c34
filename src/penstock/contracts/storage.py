"""svc-storage: bytes under the address that is their BLAKE3 digest. Pure."""

from __future__ import annotations

from typing import Annotated, Final, Protocol

import msgspec

from penstock.contracts.call import NOBODY, Call
from penstock.contracts.method import Method, Methods
from penstock.kernel.errors import Integrity, Malformed
from penstock.wire.ids import address_of

CHUNK_BYTES: Final = 64 << 10
VOUCHED_BYTES: Final = 3 * CHUNK_BYTES
"""A read of so many bytes is answered only after the whole object was held against its address; a shorter one vouches
for its own bytes alone."""

Address = Annotated[str, msgspec.Meta(pattern="^b3:[0-9a-f]{64}$", min_length=67, max_length=67)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)]
UploadId = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class Put(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Store these bytes; with `expect` only if that is their address."""

    data: bytes
    expect: Address | None = None


class Stored(msgspec.Struct, frozen=True):
    """Where the bytes are; `existed` tells a repeat from a first time."""

    address: Address
    size: int
    existed: bool


class Get(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Read a range; `length` None means to the end, within the answerer's limit for one answer."""

    address: Address
    offset: Offset = 0
    length: Annotated[int, msgspec.Meta(ge=1)] | None = None


class Chunk(msgspec.Struct, frozen=True):
    """Bytes of an object: `size` is the whole object's, so a reader knows when it has all."""

    address: Address
    size: int
    offset: int
    data: bytes


class Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask about an object without its bytes."""

    address: Address


class ObjectInfo(msgspec.Struct, frozen=True):
    """What is known of an object."""

    address: Address
    size: int


class UploadOpen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Begin an object that comes in pieces."""


class Upload(msgspec.Struct, frozen=True):
    """An unfinished object and how much of it has arrived."""

    upload_id: UploadId
    size: int


class UploadAppend(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Add a piece at `offset`, which has to be where the last one ended."""

    upload_id: UploadId
    offset: Offset
    data: bytes


class UploadFinish(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Make the pieces an object; with `expect` only if that is its address."""

    upload_id: UploadId
    expect: Address | None = None


class UploadAbort(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Throw the pieces away."""

    upload_id: UploadId


class Done(msgspec.Struct, frozen=True):
    """Nothing more to say."""

    ok: bool = True


class StoragePuts(Protocol):
    """The half of the contract that writes."""

    async def put(self, request: Put, call: Call = NOBODY) -> Stored:
        """Store bytes; the same bytes twice are one object. Conflict when `expect` does not match."""

    async def upload_open(self, request: UploadOpen, call: Call = NOBODY) -> Upload:
        """Begin an object in pieces; Busy when too many are unfinished."""

    async def upload_append(self, request: UploadAppend, call: Call = NOBODY) -> Upload:
        """Add a piece; repeating the last one changes nothing, any other gap or overlap is a Conflict."""

    async def upload_finish(self, request: UploadFinish, call: Call = NOBODY) -> Stored:
        """Make the object."""

    async def upload_abort(self, request: UploadAbort, call: Call = NOBODY) -> Done:
        """Throw the pieces away; repeating it is nothing."""


class Storage(StoragePuts, Protocol):
    """What svc-storage does for the others."""

    async def get(self, request: Get, call: Call = NOBODY) -> Chunk:
        """Read bytes, verified; NotFound, Malformed (416) beyond the end, Integrity when they are damaged.

        `VOUCHED_BYTES` or more are answered only when the whole object is what its address says.
        """

    async def head(self, request: Head, call: Call = NOBODY) -> ObjectInfo:
        """Tell the size; NotFound."""


def clip_range(size: int, offset: int, length: int | None, limit: int) -> tuple[int, int]:
    """Return start and end of a range inside an object; a start beyond the end is Malformed (416)."""
    if offset > size or (offset == size and size > 0):
        raise Malformed(f"The object ends at {size}.", status=416, reason="bad_range", size=size)
    wanted = limit if length is None else min(length, limit)
    return offset, min(size, offset + wanted)


def check_chunk(chunk: Chunk) -> None:
    """Refuse a whole object whose bytes do not have its address; a part alone cannot be judged."""
    if chunk.offset == 0 and len(chunk.data) == chunk.size and address_of(chunk.data) != chunk.address:
        raise Integrity("The object's bytes do not match its address.")


METHODS: Final = Methods(
    3,
    [
        Method(1, "put", Put, Stored, idempotent=True),
        Method(2, "get", Get, Chunk, idempotent=True, check_answer=check_chunk),
        Method(3, "head", Head, ObjectInfo, idempotent=True),
        Method(4, "upload_open", UploadOpen, Upload),
        Method(5, "upload_append", UploadAppend, Upload, idempotent=True),
        Method(6, "upload_finish", UploadFinish, Stored),
        Method(7, "upload_abort", UploadAbort, Done, idempotent=True),
    ],
    service="storage",
)
