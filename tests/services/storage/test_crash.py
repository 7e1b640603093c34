"""Kill the process in the middle of puts, again and again: what was answered is there, and nothing is half there."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from pathlib import Path

import pytest

from penstock.services.storage.engines.disk import RealStorageDisk
from penstock.services.storage.engines.packs import read_packs
from penstock.wire.ids import address_of, format_address
from tests.services.storage.process import Server
from tests.services.storage.worlds import Http, temporary_files

pytestmark = pytest.mark.real_loop
CYCLES = 4
CLIENTS = 6
STORED_MIN = 20


async def put_on(port: int, dice: random.Random, stored: dict[str, int]) -> None:
    """Put objects of all sizes until the server is gone; note what it vouched for."""
    http = Http(port)
    try:
        while True:
            data = dice.randbytes(dice.choice([0, 100, 4096, 65_536, 65_537, 300_000]) + dice.randrange(50))
            answer = await http.put(data)
            assert answer.status in (200, 201)
            stored[json.loads(answer.body)["address"]] = len(data)
    except ConnectionError:
        http.close()


def objects_in(directory: Path) -> list[str]:
    """Name every object that can be seen: those with a file of their own, and those the packs name."""
    files = [f"b3:{path.name}" for path in directory.glob("[0-9a-f][0-9a-f]/*")]
    _, packs, faults = read_packs(RealStorageDisk(directory))
    assert faults == []
    return files + [format_address(entry.digest) for pack in packs for entry in pack.entries]


async def test_killed_store_keeps_every_object_it_answered_for_and_shows_none_half(tmp_path: Path) -> None:
    stored: dict[str, int] = {}
    for cycle in range(CYCLES):
        server = Server(tmp_path)
        server.start()
        clients = [
            asyncio.create_task(put_on(server.port, random.Random(cycle * 100 + each), stored))
            for each in range(CLIENTS)
        ]
        try:
            while len(stored) < STORED_MIN * (cycle + 1):
                assert not any(client.done() for client in clients), clients
                await asyncio.sleep(0.01)
        finally:
            server.end(signal.SIGKILL)
            await asyncio.gather(*clients)
    server = Server(tmp_path)
    server.start()
    http = Http(server.port)
    seen = objects_in(tmp_path)
    for address in seen:
        answer = await http.get(address)
        assert (answer.status, address_of(answer.body)) == (200, address)
    http.close()

    assert len(stored) >= STORED_MIN * CYCLES
    assert set(stored) <= set(seen)
    assert temporary_files(tmp_path) == []
    assert server.end(signal.SIGTERM) == 0
