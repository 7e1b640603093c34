"""The inflate guard: no step larger than it may be, no bomb past its first step too many, no truncated body taken."""

from __future__ import annotations

import gzip
import os
import time
import zlib
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernel.errors import Malformed, OverLimit, PenstockError, Unsupported
from penstock.wire.inflate import STEP_BYTES, Inflater

CODERS: dict[bytes, Callable[[bytes], bytes]] = {
    b"gzip": gzip.compress,
    b"deflate": zlib.compress,
    b"zstd": zstandard.ZstdCompressor().compress,
}
MIB = 1 << 20
CHECKED = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compress


def inflate(encoding: bytes, pieces: list[bytes], *, ratio_cap: int = 10, bytes_max: int = 8 * MIB) -> bytes:
    inflater = Inflater(encoding, ratio_cap=ratio_cap, bytes_max=bytes_max)
    steps = [step for piece in pieces for step in inflater.feed(piece)]
    inflater.finish()
    assert all(len(step) <= STEP_BYTES for step in steps)
    return b"".join(steps)


@pytest.mark.parametrize("encoding", CODERS)
def test_a_body_comes_back_whole_in_bounded_steps(encoding: bytes) -> None:
    data = os.urandom(300_000).hex().encode()

    assert inflate(encoding, [CODERS[encoding](data)]) == data


def test_a_zstd_frame_with_checksum_and_unknown_size_comes_back_whole_and_a_wrong_sum_does_not() -> None:
    data = os.urandom(300_000).hex().encode()
    packed = CHECKED(data)

    assert inflate(b"zstd", [packed]) == data
    with pytest.raises(Malformed):
        inflate(b"zstd", [packed[:-1] + bytes([packed[-1] ^ 1])])


def test_a_zstd_frame_that_says_it_is_too_large_is_believed_after_one_step() -> None:
    packed = CODERS[b"zstd"](os.urandom(3 * MIB))
    inflater = Inflater(b"zstd", ratio_cap=10, bytes_max=2 * MIB)
    steps: list[bytes] = []

    with pytest.raises(OverLimit) as caught:
        steps += inflater.feed(packed)

    assert (caught.value.facts["limit"], steps) == ("inflate_bytes", [])


def test_a_zstd_block_of_the_kind_that_repeats_one_byte_is_still_one_bounded_step_at_a_time() -> None:
    """Four bytes that ask for 128 KiB each, a thousand of them: far over the ratio, stopped at once."""
    header = b"\x28\xb5\x2f\xfd\x00\x58"
    block = ((128 * 1024) << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    inflater = Inflater(b"zstd", ratio_cap=10, bytes_max=1 << 40)

    with pytest.raises(OverLimit):
        list(inflater.feed(header + block * 1000))


@pytest.mark.parametrize("encoding", CODERS)
def test_a_bomb_is_stopped_at_the_first_step_past_the_ratio(encoding: bytes) -> None:
    bomb = CODERS[encoding](b"\0" * (64 * MIB))
    inflater = Inflater(encoding, ratio_cap=10, bytes_max=1 << 40)
    produced: list[int] = []

    with pytest.raises(OverLimit) as caught:
        produced.extend(map(len, inflater.feed(bomb)))
    assert caught.value.limit == "inflate_ratio"
    assert sum(produced) <= len(bomb) * 10


@pytest.mark.parametrize("encoding", CODERS)
def test_the_absolute_cap_holds_where_the_ratio_does_not(encoding: bytes) -> None:
    data = os.urandom(200_000)

    with pytest.raises(OverLimit) as caught:
        inflate(encoding, [CODERS[encoding](data)], bytes_max=100_000)
    assert caught.value.limit == "inflate_bytes"


@pytest.mark.parametrize("encoding", CODERS)
@pytest.mark.parametrize("kept", [0, 1, 5, -9, -1])
def test_a_truncated_body_is_malformed(encoding: bytes, kept: int) -> None:
    data = CODERS[encoding](os.urandom(1000))

    with pytest.raises(Malformed):
        inflate(encoding, [data[:kept]])


@pytest.mark.parametrize("encoding", CODERS)
def test_bytes_after_the_end_are_malformed(encoding: bytes) -> None:
    with pytest.raises(Malformed):
        inflate(encoding, [CODERS[encoding](os.urandom(100)), b"more"])


@pytest.mark.parametrize("encoding", [b"gzip, gzip", b"br", b"", b"gzip,deflate", b"compress"])
def test_unknown_and_stacked_encodings_are_unsupported(encoding: bytes) -> None:
    with pytest.raises(Unsupported):
        Inflater(encoding, ratio_cap=10, bytes_max=MIB)


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=2000), st.sampled_from(sorted(CODERS)), st.integers(1, 9))
def test_splitting_the_input_changes_nothing(data: bytes, encoding: bytes, size: int) -> None:
    packed = CODERS[encoding](data)
    pieces = [packed[at : at + size] for at in range(0, len(packed), size)]

    assert inflate(encoding, pieces, ratio_cap=10_000) == data


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(sorted(CODERS)))
def test_garbage_is_an_error_of_ours_and_never_another(data: bytes, encoding: bytes) -> None:
    status = 200
    try:
        inflate(encoding, [data])
    except PenstockError as error:
        status = error.status

    assert status in {200, 400, 413}


def longest_step_s(encoding: bytes, data: bytes) -> float:
    """Return how much of the processor's time the longest step took, garbage collector and all."""
    steps = Inflater(encoding, ratio_cap=10, bytes_max=MIB).feed(data)
    longest, began = 0.0, time.thread_time()
    for _step in steps:
        longest = max(longest, time.thread_time() - began)
        began = time.thread_time()
    return longest


EMPTY_BLOCKS = {
    b"zstd": b"\x28\xb5\x2f\xfd\x00\x58" + b"\0\0\0" * 349_000 + b"\1\0\0",
    b"deflate": b"\x78\x01" + b"\x00\x00\x00\xff\xff" * 200_000 + b"\x01\x00\x00\xff\xff\x00\x00\x00\x01",
}


@pytest.mark.parametrize("encoding", EMPTY_BLOCKS)
def test_a_body_of_empty_blocks_is_many_small_steps_of_work(encoding: bytes) -> None:
    """A mebibyte that gives nothing: whoever takes the steps can stop between any two of them."""
    data = EMPTY_BLOCKS[encoding]
    steps = list(Inflater(encoding, ratio_cap=10, bytes_max=MIB).feed(data))

    assert b"".join(steps) == b""
    assert len(steps) >= len(data) / STEP_BYTES
    # The best of three: a slice of somebody else's in the middle of a step is no fault of the step.
    assert min(longest_step_s(encoding, data) for _ in range(3)) < 0.05


def test_zstd_work_is_linear_in_the_number_of_blocks() -> None:
    """Counts steps: so many blocks give so many of them, and small blocks share one."""
    compressor = zstandard.ZstdCompressor().compressobj()
    words = [os.urandom(3).hex().encode() for _ in range(1500)]
    packed = b"".join(compressor.compress(word) + compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) for word in words)
    packed += compressor.flush()
    steps = list(Inflater(b"zstd", ratio_cap=10, bytes_max=MIB).feed(packed))

    assert b"".join(steps) == b"".join(words)
    assert 1500 / 64 <= len(steps) <= 1500 / 16


def test_a_guard_that_measures_only_at_the_end_would_be_caught() -> None:
    """The planted twin: without the check in each step the whole bomb would be produced first."""

    class Late(Inflater):
        def _measure(self, step_bytes: int) -> None:
            self._bytes_out += step_bytes

    bomb = gzip.compress(b"\0" * (4 * MIB))
    produced = sum(len(step) for step in Late(b"gzip", ratio_cap=10, bytes_max=MIB).feed(bomb))

    assert produced > MIB
