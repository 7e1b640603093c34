"""Objects over the SDK and the command line, on a real node."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.client import StorageClient, connect
from penstock.kernel.errors import Conflict, DownstreamUnavailable, Integrity, Malformed, NotFound
from penstock.kernel.inventory import Inventory
from penstock.sdk.calling import Caller
from penstock.sdk.discovery import Discovery
from penstock.wire.ids import address_of
from tests.acceptance.node_process import NodeProcess
from tests.net.calls.peers import Peer, answer, says

DATA = bytes(range(256)) * 4096


async def pieces(data: bytes):
    for start in range(0, len(data), 100_000):
        yield data[start : start + 100_000]


@pytest.mark.real_loop
async def test_an_object_comes_back_whole_and_in_parts(node: NodeProcess) -> None:
    data = DATA + b"nobody else's"
    async with connect(node.ready["data_dir"]) as client:
        stored = await client.storage.put(data)
        again = await client.storage.put(data)

        assert (stored.address, stored.size, stored.existed) == (address_of(data), len(data), False)
        assert again.existed
        assert await client.storage.get(stored.address) == data
        assert await client.storage.get(stored.address, offset=10, length=5) == data[10:15]
        assert await client.storage.get(stored.address, offset=len(data) - 3) == data[-3:]
        assert (await client.storage.head(stored.address)).size == len(data)
        async with client.storage.open(stored.address) as answered:
            assert b"".join([piece async for piece in answered]) == data


@pytest.mark.real_loop
async def test_a_stream_is_stored_under_its_address(node: NodeProcess) -> None:
    async with connect(node.ready["data_dir"]) as client:
        data = DATA + b"streamed"
        for size in (len(data), None):
            stored = await client.storage.put_stream(pieces(data), size=size)
            assert (stored.address, stored.size) == (address_of(data), len(data))
        with pytest.raises(Conflict):
            await client.storage.put_stream(pieces(data), expect=address_of(b"something else"))


@pytest.mark.real_loop
async def test_what_is_not_there_or_no_address_or_beyond_the_end_is_said(node: NodeProcess) -> None:
    async with connect(node.ready["data_dir"]) as client:
        stored = await client.storage.put(b"short")
        for asked, error in (
            (client.storage.get(address_of(b"never put")), NotFound),
            (client.storage.head(address_of(b"never put")), NotFound),
            (client.storage.get("b3:nonsense"), Malformed),
            (client.storage.get(5), Malformed),  # type: ignore[arg-type]
            (client.storage.put("text"), Malformed),  # type: ignore[arg-type]
            (client.storage.get(stored.address, offset=99), Malformed),
            (client.storage.get(stored.address, offset=-1), Malformed),
        ):
            with pytest.raises(error):
                await asked
        assert (await client.storage.put(bytearray(b"short"))).address == stored.address


def storage_of(peer: Peer) -> tuple[Caller, StorageClient]:
    caller = Caller("storage", Discovery(ports={"storage": 9}, token=""), Inventory("client"), dial=peer.dial)
    return caller, StorageClient(caller)


async def test_an_object_changed_on_its_way_is_never_handed_out() -> None:
    caller, storage = storage_of(Peer(says(answer(b"changed"))))
    async with caller:
        with pytest.raises(Integrity):
            await storage.get(address_of(b"original"))
        with pytest.raises(DownstreamUnavailable):
            await storage.get(address_of(b"original"), offset=1)


async def test_a_stream_stored_under_another_address_is_found() -> None:
    told = b'{"address":"%b","size":3,"existed":false}' % address_of(b"other").encode()
    caller, storage = storage_of(Peer(says(answer(told, "201 Created"))))
    async with caller:
        with pytest.raises(Integrity):
            await storage.put_stream(pieces(b"abc"), size=3)


# --- the command line


def penstock(node: NodeProcess, *words: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "penstock.cli", *words, "--data-dir", node.ready["data_dir"]]
    return subprocess.run(command, input=data, capture_output=True, timeout=120, check=False)


def test_put_prints_an_address_and_get_brings_the_bytes(node: NodeProcess, tmp_path: Path) -> None:
    source, goal = tmp_path / "source", tmp_path / "goal"
    source.write_bytes(DATA)
    address = penstock(node, "put", str(source)).stdout.decode().strip()
    piped = penstock(node, "put", "-", data=DATA).stdout.decode().strip()

    assert address == piped == address_of(DATA)
    assert penstock(node, "get", address).stdout == DATA
    assert penstock(node, "get", address, "--range", "5-9").stdout == DATA[5:10]
    assert penstock(node, "get", address, "-o", str(goal)).returncode == 0
    assert goal.read_bytes() == DATA
    assert sorted(path.name for path in tmp_path.iterdir()) == ["goal", "source"]


def test_get_that_fails_writes_no_file(node: NodeProcess, tmp_path: Path) -> None:
    done = penstock(node, "get", address_of(b"never put"), "-o", str(tmp_path / "goal"))
    nowhere = penstock(node, "get", address_of(b"never put"), "-o", str(tmp_path / "no" / "goal"))

    assert (done.returncode, nowhere.returncode, list(tmp_path.iterdir())) == (1, 1, [])
    assert b"cannot be written" in nowhere.stderr


def test_put_of_what_is_not_expected_is_refused(node: NodeProcess) -> None:
    done = penstock(node, "put", "-", "--expect", address_of(b"other"), data=b"this")

    assert (done.returncode, b"conflict" in done.stderr) == (1, True)
    assert penstock(node, "put", "/nonexistent").returncode == 2
