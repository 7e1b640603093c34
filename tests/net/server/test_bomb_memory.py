"""A body that inflates to 12 MiB is refused before it takes 2 MiB, measured from outside in a process of its own."""

from __future__ import annotations

import asyncio
import gzip
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from tests.net.server.listener_kit import post, serving

WHOLE_BYTES = 12 << 20
PEAK_KIB_MAX = 2 << 10
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from /proc")
@pytest.mark.parametrize("encoding", PACKERS)
def test_a_bomb_is_refused_before_it_takes_two_mebibytes(encoding: str, tmp_path: Path) -> None:
    pack = PACKERS[encoding]
    bomb, small = tmp_path / "bomb", tmp_path / "small"
    bomb.write_bytes(pack((os.urandom(100 << 10) + bytes(WHOLE_BYTES))[:WHOLE_BYTES]))
    small.write_bytes(pack(b'{"text":"warm"}'))
    assert 100 << 10 <= bomb.stat().st_size < 200 << 10
    command = [sys.executable, "-m", "tests.net.server.test_bomb_memory", encoding, str(small), str(bomb)]

    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    assert told.stderr == ""
    warm, refused, taken_kib = map(int, told.stdout.split())
    assert (warm, refused) == (200, 413)
    assert taken_kib < PEAK_KIB_MAX


async def _serve(encoding: str, small: bytes, bomb: bytes) -> None:
    field = f"Content-Encoding: {encoding}"
    async with serving(options={"host": "127.0.0.1"}) as site:
        client = await site.dial()
        client.send(post("/echo", small, field))
        warm = await client.answer()
        asked = post("/echo", bomb, field)
        _forget_peak()
        before = _peak_kib()
        client.send(asked)
        refused = await client.answer()
        sys.stdout.write(f"{warm.status} {refused.status} {_peak_kib() - before}")


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _peak_kib() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], *(Path(name).read_bytes() for name in sys.argv[2:])))
