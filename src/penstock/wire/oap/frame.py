"""OAP/1 frames: bytes <-> `Frame`, free of I/O, never trusting a length before it is checked.

    len u32 | ver u16 | flags u16 | code u16 | app_proto_id u16 | tenant_id u128 | cap_len u16 | corr_id u64
    then cap_len bytes of capability, then the payload; everything big-endian.

The decoder judges what delimits a frame. What a frame means to its stream (a second START, a capability
without START, ...) is judged by `oap_stream.StreamTable`, so that one bad stream does not cost its neighbours.
"""

from __future__ import annotations

import struct
from enum import IntFlag
from typing import Final

import msgspec
import zstandard

from penstock.kernel.errors import Malformed, OverLimit, PenstockError

VERSION: Final = 1
HEADER_BYTES: Final = 38
FRAME_BYTES_MAX: Final = 1 << 20
CAPABILITY_BYTES_MAX: Final = (1 << 16) - 1
CHUNK_BYTES: Final = 64 << 10
INFLATE_RATIO_MAX: Final = 10
INFLATE_BYTES_MAX: Final = 8 << 20
CONTROL: Final = 0

# u128 has no format letter of its own: it is packed as two u64, high half first.
_HEADER: Final = struct.Struct(">IHHHHQQHQ")
_LENGTH: Final = struct.Struct(">I")
_U64: Final = (1 << 64) - 1


class FrameFlag(IntFlag):
    """The closed set of frame flags; any other bit is refused."""

    REQ = 1
    RESP = 2
    EVENT = 4
    START = 8
    END = 16
    ACK_REQ = 32
    COMP = 64
    APP_E2E = 128


# Plain integers: the decoder tests bits for every frame and IntFlag arithmetic is slow.
REQ: Final = 1
RESP: Final = 2
EVENT: Final = 4
START: Final = 8
END: Final = 16
COMP: Final = 64
KINDS: Final = REQ | RESP | EVENT
KNOWN_FLAGS: Final = 0xFF


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One frame; `len` and `cap_len` are not here because the encoder computes them."""

    flags: int
    corr_id: int
    code: int = 0
    app_proto_id: int = CONTROL
    tenant_id: int = 0
    capability: bytes = b""
    payload: bytes = b""


def encode(frame: Frame, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> bytes:
    """Write one frame; a frame that a peer would refuse is our bug and raises ValueError."""
    cap_bytes = len(frame.capability)
    whole_bytes = HEADER_BYTES + cap_bytes + len(frame.payload)
    if whole_bytes > frame_bytes_max:
        raise ValueError(f"a frame of {whole_bytes} bytes is above the limit of {frame_bytes_max}")
    if cap_bytes and not frame.flags & START:
        raise ValueError("a capability travels only with START")
    if frame.flags & ~KNOWN_FLAGS:
        raise ValueError(f"unknown flag bits in {frame.flags:#x}")
    return _header(frame, whole_bytes, cap_bytes) + frame.capability + frame.payload


def _header(frame: Frame, whole_bytes: int, cap_bytes: int) -> bytes:
    tenant = frame.tenant_id
    try:
        return _HEADER.pack(
            whole_bytes,
            VERSION,
            frame.flags,
            frame.code,
            frame.app_proto_id,
            tenant >> 64,
            tenant & _U64,
            cap_bytes,
            frame.corr_id,
        )
    except struct.error as exc:
        raise ValueError(f"a header field does not fit its width: {exc}") from exc


class FrameDecoder:
    """Turns bytes as they come into frames; holds at most one unfinished frame.

    After a fault nothing more is decoded: the place where the next frame begins can no longer be trusted.
    """

    __slots__ = ("_buffer", "_fault", "_need", "frame_bytes_max")

    def __init__(self, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        if not HEADER_BYTES <= frame_bytes_max <= FRAME_BYTES_MAX:
            raise ValueError(f"frame_bytes_max must lie in {HEADER_BYTES}..{FRAME_BYTES_MAX}")
        self.frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()
        # Below this many buffered bytes nothing new can be decided, so a dripped frame is scanned three times, not n.
        self._need = _LENGTH.size
        self._fault: PenstockError | None = None

    @property
    def pending_bytes(self) -> int:
        """Bytes of an unfinished frame; zero means that the peer owes us nothing."""
        return len(self._buffer)

    def lower(self, frame_bytes_max: int) -> None:
        """Take a negotiated limit; the limit only goes down."""
        self.frame_bytes_max = max(HEADER_BYTES, min(self.frame_bytes_max, frame_bytes_max))

    def feed(self, data: bytes | bytearray | memoryview) -> list[Frame]:
        """Return the frames that are complete now.

        A fault is raised by the call that has no frame left to return before it, so no good frame is lost:
        feed until the answer is empty (`feed(b"")` is enough) to learn of it. Raises Malformed or OverLimit only.
        """
        if self._fault is not None:
            raise self._fault
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._need:
                return []
            data = self._buffer
        frames: list[Frame] = []
        try:
            self._scan(bytes(data), frames)
        except PenstockError as fault:
            self._fault = fault
            self._buffer = bytearray()
            if not frames:
                raise
        return frames

    def _scan(self, data: bytes, frames: list[Frame]) -> None:
        """Decode every whole frame in `data` and keep the rest."""
        at = 0
        have = len(data)
        while have - at >= HEADER_BYTES:
            whole, version, flags, code, app, high, low, cap_bytes, corr_id = _HEADER.unpack_from(data, at)
            body = at + HEADER_BYTES + cap_bytes
            end = at + whole
            if not HEADER_BYTES <= whole <= self.frame_bytes_max:
                raise _bad_length(whole, self.frame_bytes_max)
            if version != VERSION or flags > KNOWN_FLAGS or body > end:
                raise _bad_header(version, flags, corr_id)
            if end > have:
                self._keep(data, at, whole)
                return
            capability = data[body - cap_bytes : body] if cap_bytes else b""
            frames.append(Frame(flags, corr_id, code, app, high << 64 | low, capability, data[body:end]))
            at = end
        if have - at >= _LENGTH.size:
            # The length is judged as soon as it is known, before its frame may take any room.
            whole = _LENGTH.unpack_from(data, at)[0]
            if not HEADER_BYTES <= whole <= self.frame_bytes_max:
                raise _bad_length(whole, self.frame_bytes_max)
            self._keep(data, at, HEADER_BYTES)
        else:
            self._keep(data, at, _LENGTH.size)

    def _keep(self, data: bytes, at: int, need: int) -> None:
        self._buffer = bytearray(data[at:])
        self._need = need


def decode_all(data: bytes) -> list[Frame]:
    """Decode bytes at rest: every frame, and nothing may be left over."""
    decoder = FrameDecoder()
    frames: list[Frame] = []
    while more := decoder.feed(data):
        frames += more
        data = b""
    if decoder.pending_bytes:
        raise Malformed("The last frame is cut off.", reason="truncated")
    return frames


def _bad_header(version: int, flags: int, corr_id: int) -> Malformed:
    if version != VERSION:
        return Malformed(f"Frame version {version} is not {VERSION}.", reason="bad_version", stream=corr_id)
    if flags > KNOWN_FLAGS:
        return Malformed(f"Frame flags {flags:#06x} hold unknown bits.", reason="bad_flags", stream=corr_id)
    return Malformed("The capability is longer than its frame.", reason="bad_cap_len", stream=corr_id)


def _bad_length(whole_bytes: int, frame_bytes_max: int) -> PenstockError:
    if whole_bytes < HEADER_BYTES:
        return Malformed(f"A frame of {whole_bytes} bytes is shorter than its header.", reason="bad_length")
    return OverLimit(f"A frame of {whole_bytes} bytes is above {frame_bytes_max}.", limit="frame_bytes")


def split(frame: Frame, *, frame_bytes_max: int = FRAME_BYTES_MAX, chunk_bytes: int = CHUNK_BYTES) -> list[bytes]:
    """Encode a whole request (REQ) or answer (RESP) as its frames: START .. END, at most `chunk_bytes` of payload each.

    A request says START even when it is one frame; an answer of one frame is END alone.
    """
    payload = frame.payload
    room = min(chunk_bytes, frame_bytes_max - HEADER_BYTES - len(frame.capability))
    if len(payload) <= room:
        flags = START | END if frame.flags & REQ else END
        return [encode(msgspec.structs.replace(frame, flags=frame.flags | flags), frame_bytes_max=frame_bytes_max)]
    if room <= 0:
        raise ValueError(f"a capability of {len(frame.capability)} bytes leaves no room in {frame_bytes_max}")
    frames: list[bytes] = []
    for at in range(0, len(payload), room):
        flags = frame.flags | (START if at == 0 else 0) | (END if at + room >= len(payload) else 0)
        part = msgspec.structs.replace(
            frame, flags=flags, capability=b"" if at else frame.capability, payload=payload[at : at + room]
        )
        frames.append(encode(part, frame_bytes_max=frame_bytes_max))
    return frames


def deflate(payload: bytes, *, level: int = 3) -> bytes | None:
    """Compress a payload for a COMP frame; None when that saves nothing or a peer would take it for a bomb."""
    packed = zstandard.ZstdCompressor(level=level).compress(payload)
    if len(packed) >= len(payload) or len(payload) > min(INFLATE_BYTES_MAX, INFLATE_RATIO_MAX * len(packed)):
        return None
    return packed


def inflate(payload: bytes, *, bytes_max: int = INFLATE_BYTES_MAX) -> bytes:
    """Inflate the payload of a COMP frame: exactly one zstd frame, at most min(10x, 8 MiB).

    Nothing larger than that limit is ever allocated. A size claimed by the zstd header is compared with the
    limit before it is used; without a claim the output is counted in steps first.
    """
    limit = min(bytes_max, INFLATE_BYTES_MAX, INFLATE_RATIO_MAX * len(payload))
    try:
        claimed = zstandard.get_frame_parameters(payload).content_size
        if claimed != zstandard.CONTENTSIZE_UNKNOWN:
            return _inflate_claimed(payload, claimed, limit)
        return _inflate_counted(payload, limit)
    except zstandard.ZstdError as exc:
        raise Malformed("The payload is not one whole zstd frame.", reason="bad_zstd") from exc


def _inflate_claimed(payload: bytes, claimed: int, limit: int) -> bytes:
    if claimed > limit:
        raise _bomb(limit)
    worker = zstandard.ZstdDecompressor(max_window_size=INFLATE_BYTES_MAX)
    return worker.decompress(payload, max_output_size=limit, allow_extra_data=False)


def _inflate_counted(payload: bytes, limit: int) -> bytes:
    worker = zstandard.ZstdDecompressor(max_window_size=INFLATE_BYTES_MAX)
    with worker.stream_reader(payload) as reader:
        total = 0
        while part := reader.read(CHUNK_BYTES):
            total += len(part)
            if total > limit:
                raise _bomb(limit)
    whole = worker.decompressobj()
    out = whole.decompress(payload)
    if not whole.eof or whole.unused_data:
        raise zstandard.ZstdError("truncated, or bytes after the end")
    return out


def _bomb(limit: int) -> OverLimit:
    return OverLimit(f"The payload inflates beyond {limit} bytes.", limit="inflate_bytes")
