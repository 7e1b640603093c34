"""The OAP/1 codec: vectors, boundaries, splits, bombs and junk."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.errors import Malformed, OverLimit, PenstockError
from penstock.wire.oap import frame as oap
from penstock.wire.oap.frame import (
    Frame,
    FrameDecoder,
    decode_all,
    encode,
)

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "oap.json").read_text())

frames = st.builds(
    lambda flags, cap, **rest: Frame(flags | (oap.START if cap else 0), capability=cap, **rest),
    flags=st.integers(0, 0xFF),
    cap=st.binary(max_size=40),
    corr_id=st.integers(0, (1 << 64) - 1),
    code=st.integers(0, 0xFFFF),
    app_proto_id=st.integers(0, 0xFFFF),
    tenant_id=st.integers(0, (1 << 128) - 1),
    payload=st.binary(max_size=80),
)


def outcome(pieces: list[bytes]) -> tuple[list[Frame], tuple[type[PenstockError], int, str] | None]:
    """Feed the pieces and then nothing, until the decoder has said all it will say."""
    decoder, got = FrameDecoder(), []
    try:
        for piece in [*pieces, b"", b""]:
            got += decoder.feed(piece)
    except PenstockError as fault:
        return got, (type(fault), fault.status, fault.detail)
    return got, None


@pytest.mark.parametrize("vector", VECTORS["good"], ids=lambda v: v["name"])
def test_vector_decodes_to_its_fields_and_encodes_back_to_its_bytes(vector: dict) -> None:
    raw, want = bytes.fromhex(vector["hex"]), vector["frame"]

    (frame,) = FrameDecoder().feed(raw)

    assert (frame.flags, frame.code, frame.app_proto_id) == (want["flags"], want["code"], want["app_proto_id"])
    assert (frame.tenant_id, frame.corr_id) == (int(want["tenant_id"], 16), want["corr_id"])
    assert (frame.capability, frame.payload) == (want["capability"].encode(), want["payload"].encode())
    assert encode(frame) == raw


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=lambda v: v["name"])
def test_refused_vector_raises_the_typed_error_with_its_status(vector: dict) -> None:
    with pytest.raises(PenstockError) as caught:
        FrameDecoder().feed(bytes.fromhex(vector["hex"]))

    assert caught.value.status == vector["status"]
    assert isinstance(caught.value, OverLimit if vector["status"] == 413 else Malformed)
    assert caught.value.facts.get("reason") == vector["reason"]


@pytest.mark.parametrize("vector", VECTORS["unfinished"], ids=lambda v: v["name"])
def test_unfinished_frame_is_waited_for(vector: dict) -> None:
    raw = bytes.fromhex(vector["hex"])
    decoder = FrameDecoder()

    assert decoder.feed(raw) == []
    assert decoder.pending_bytes == len(raw)


def test_length_is_refused_as_soon_as_its_four_bytes_are_known() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(b"\x7f\xff\xff") == []

    with pytest.raises(OverLimit):
        decoder.feed(b"\xff")
    assert decoder.pending_bytes == 0


@pytest.mark.parametrize("size", [38, 39, (1 << 20) - 1, 1 << 20])
def test_frame_of_an_allowed_size_round_trips(size: int) -> None:
    frame = Frame(oap.REQ | oap.START, 1, payload=bytes(size - 38))

    raw = encode(frame)

    assert len(raw) == size
    assert FrameDecoder().feed(raw) == [frame]


def test_encoder_refuses_one_byte_above_the_maximum() -> None:
    with pytest.raises(ValueError, match="1048577 bytes"):
        encode(Frame(oap.REQ, 1, payload=bytes((1 << 20) + 1 - 38)))


@pytest.mark.parametrize(
    "frame",
    [
        Frame(oap.REQ, 1, capability=b"token"),
        Frame(0x100, 1),
        Frame(oap.REQ, 1 << 64),
        Frame(oap.REQ, -1),
        Frame(oap.REQ, 1, code=1 << 16),
        Frame(oap.REQ, 1, tenant_id=1 << 128),
        Frame(oap.REQ | oap.START, 1, capability=bytes(1 << 16)),
    ],
)
def test_encoder_never_writes_a_frame_that_a_peer_refuses(frame: Frame) -> None:
    with pytest.raises(ValueError, match=r"capability|flag|width"):
        encode(frame)


def test_negotiated_limit_only_goes_down() -> None:
    decoder = FrameDecoder()
    decoder.lower(50)
    decoder.lower(1 << 20)

    assert decoder.feed(encode(Frame(oap.REQ, 1, payload=bytes(12)))) != []
    with pytest.raises(OverLimit):
        decoder.feed(encode(Frame(oap.REQ, 1, payload=bytes(13))))


def test_frames_before_a_fault_are_returned_and_the_fault_stays() -> None:
    decoder, good = FrameDecoder(), Frame(oap.REQ, 5, payload=b"x")

    assert decoder.feed(encode(good) * 2 + b"\0\0\0\0") == [good, good]
    for _ in range(2):
        with pytest.raises(Malformed):
            decoder.feed(encode(good))


def test_split_at_every_byte_gives_the_same_frames() -> None:
    raw = b"".join(bytes.fromhex(vector["hex"]) for vector in VECTORS["good"])
    whole = outcome([raw])

    assert len(whole[0]) == len(VECTORS["good"])
    assert outcome([raw[i : i + 1] for i in range(len(raw))]) == whole
    for cut in range(len(raw)):
        assert outcome([raw[:cut], raw[cut:]]) == whole


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=lambda v: v["name"])
def test_split_at_every_byte_gives_the_same_fault(vector: dict) -> None:
    raw = bytes.fromhex(VECTORS["good"][0]["hex"] + vector["hex"]) + b"tail"
    whole = outcome([raw])

    assert whole[1] is not None
    assert outcome([raw[i : i + 1] for i in range(len(raw))]) == whole


@given(st.lists(frames, max_size=6), st.data())
def test_any_frames_survive_any_split(sent: list[Frame], data: st.DataObject) -> None:
    raw = b"".join(map(encode, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))

    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]

    assert outcome(pieces) == (sent, None)


@given(st.binary(max_size=200), st.integers(0, 200))
def test_junk_raises_nothing_but_its_typed_error_however_it_is_split(junk: bytes, cut: int) -> None:
    whole = outcome([junk])

    assert whole[1] is None or whole[1][:2] in ((Malformed, 400), (OverLimit, 413))
    assert outcome([junk[:cut], junk[cut:]]) == whole


@given(frames, st.integers(0, 37), st.integers(0, 255))
def test_one_wrong_header_byte_never_breaks_the_decoder(frame: Frame, at: int, value: int) -> None:
    raw = bytearray(encode(frame))
    raw[at] = value

    got, fault = outcome([bytes(raw)])

    assert fault is None or fault[0] in (Malformed, OverLimit)
    assert len(got) <= 1 or struct.unpack_from(">I", raw)[0] < len(raw)


def test_memory_held_for_a_frame_is_what_arrived_not_what_was_announced() -> None:
    decoder = FrameDecoder()

    assert decoder.feed(struct.pack(">I", 1 << 20) + encode(Frame(oap.REQ, 1))[4:]) == []
    assert decoder.pending_bytes == 38


# --- COMP ------------------------------------------------------------------------------------------------------------

Pack = Callable[[bytes], bytes]


def unsized(data: bytes) -> bytes:
    """Compress without stating the size, as a streaming peer does."""
    return zstandard.ZstdCompressor(write_content_size=False).compress(data)


def test_deflate_and_inflate_round_trip() -> None:
    text = b"".join(b"%d," % (i * i) for i in range(2000))
    packed = oap.deflate(text)

    assert packed is not None
    assert oap.inflate(packed) == text
    assert oap.inflate(unsized(text)) == text


def test_deflate_declines_what_grows_and_what_a_peer_would_take_for_a_bomb() -> None:
    assert oap.deflate(b"x") is None
    assert oap.deflate(bytes(100_000)) is None


@pytest.mark.parametrize("pack", [zstandard.ZstdCompressor().compress, unsized])
@pytest.mark.parametrize("size", [10_000, 8 << 20, 64 << 20])
def test_bomb_is_413(pack: Pack, size: int) -> None:
    with pytest.raises(OverLimit) as caught:
        oap.inflate(pack(bytes(size)))

    assert (caught.value.status, caught.value.limit) == (413, "inflate_bytes")


@pytest.mark.parametrize("pack", [zstandard.ZstdCompressor().compress, unsized])
def test_ten_times_is_allowed_and_one_byte_more_is_not(pack: Pack) -> None:
    noise = bytes((i * 167 + i * i * 59) % 256 for i in range(60))
    within = max(n for n in range(100, 1200) if 60 + n <= 10 * len(pack(noise + bytes(n))))

    assert oap.inflate(pack(noise + bytes(within))) == noise + bytes(within)
    with pytest.raises(OverLimit):
        oap.inflate(pack(noise + bytes(within + 1)))


@pytest.mark.parametrize("pack", [zstandard.ZstdCompressor().compress, unsized])
def test_caller_may_lower_the_limit(pack: Pack) -> None:
    text = b"".join(b"%d," % i for i in range(300))

    assert oap.inflate(pack(text), bytes_max=len(text)) == text
    with pytest.raises(OverLimit):
        oap.inflate(pack(text), bytes_max=len(text) - 1)


def test_claimed_size_is_compared_before_anything_is_allocated() -> None:
    lie = bytearray(zstandard.ZstdCompressor().compress(bytes(70_000)))
    # Single-segment frame with a 4-byte content size right behind the descriptor.
    assert lie[4] & 0xE0 == 0xA0
    lie[5:9] = struct.pack("<I", 0xFFFF_FFFF)

    with pytest.raises(OverLimit):
        oap.inflate(bytes(lie))


@pytest.mark.parametrize("pack", [zstandard.ZstdCompressor().compress, unsized])
def test_truncated_or_trailed_zstd_is_400(pack: Pack) -> None:
    packed = pack(b"".join(b"%d," % i for i in range(300)))

    for wrong in (packed[:-1], packed[: len(packed) // 2], packed + b"x", packed + packed, b"", b"junk"):
        with pytest.raises(Malformed) as caught:
            oap.inflate(wrong)
        assert caught.value.status == 400


@given(st.binary(max_size=300))
def test_junk_zstd_raises_nothing_but_its_typed_error(junk: bytes) -> None:
    for candidate in (junk, b"\x28\xb5\x2f\xfd" + junk):
        try:
            out = oap.inflate(candidate)
        except (Malformed, OverLimit):
            continue
        assert len(out) <= 10 * len(candidate)


def test_decode_all_is_the_whole_answer_for_bytes_at_rest() -> None:
    frame = Frame(oap.REQ, 1)

    assert decode_all(encode(frame) * 3) == [frame] * 3
    with pytest.raises(Malformed):
        decode_all(encode(frame) + b"\0")
