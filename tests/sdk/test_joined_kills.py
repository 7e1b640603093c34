"""A node killed under joined calls: what was answered is there, once, and what was acked does not come back."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.client import Client, SdkOptions, connect
from penstock.kernel.errors import PenstockError
from penstock.testing import until
from tests.acceptance.node_process import NodeProcess

pytestmark = pytest.mark.real_loop(watchdog_s=170)

TOPIC = "kills"
SENDERS = 32
# Enough for requests with many calls to be under way when the node is killed.
ANSWERED_MIN = 100
# A restart on a busy machine may take long; the calls wait for it.
OPTIONS = SdkOptions(timeout_s=60.0)


@dataclass
class Records:
    """What the senders and the receiver know for certain."""

    # Number by message id, of sends that were answered.
    answered: dict[str, int] = field(default_factory=dict)
    numbers: int = 0
    stop: bool = False
    # How often each number was received under which message id.
    received: dict[int, set[str]] = field(default_factory=dict)
    acked: set[int] = field(default_factory=set)
    came_back: list[int] = field(default_factory=list)
    order: dict[str, list[int]] = field(default_factory=dict)

    def saw(self, number: int, msg_id: str, key: str | None) -> None:
        """Note a delivery."""
        if number in self.acked:
            self.came_back.append(number)
        if number not in self.received and key is not None:
            self.order.setdefault(key, []).append(number)
        self.received.setdefault(number, set()).add(msg_id)


async def send_on(client: Client, records: Records, key: str | None) -> None:
    """Send one message after the other, each until it is answered: with its own idem_key it is one message."""
    while not records.stop:
        number, records.numbers = records.numbers, records.numbers + 1
        while True:
            try:
                sent = await client.mailbox.send(TOPIC, str(number), key=key, idem_key=f"n-{number}")
            except PenstockError:
                await asyncio.sleep(0.05)  # lint: allow PK018 a node that restarts is asked again
            else:
                records.answered[sent.msg_id] = number
                break


async def kill_under_load(client: Client, records: Records, node: NodeProcess) -> None:
    """Let enough be answered, then kill the node in the middle of it."""
    enough = len(records.answered) + ANSWERED_MIN

    async def has_enough() -> bool:
        return len(records.answered) >= enough

    await until(has_enough)
    assert client.inventory.metrics.value("tasks_spawned_total", kind="joined_call") > 0
    node.signal(signal.SIGKILL)
    await asyncio.to_thread(node.wait)


async def take_all(client: Client, records: Records) -> None:
    """Receive and ack everything, all acks of an answer at once."""
    while messages := await client.mailbox.recv(TOPIC, max_messages=100, visibility_ms=60_000, wait_ms=500):
        for message in messages:
            records.saw(int(message.payload), message.msg_id, message.key)
        async with asyncio.TaskGroup() as acks:
            for message in messages:
                acks.create_task(client.mailbox.ack(message))
        records.acked.update(int(message.payload) for message in messages)


async def run(directory: Path, kills: int) -> Records:
    records = Records()
    async with connect(directory, options=OPTIONS) as client, asyncio.TaskGroup() as senders:
        for number in range(SENDERS):
            senders.create_task(send_on(client, records, f"k{number}" if number % 4 == 0 else None))
        for _ in range(kills):
            with NodeProcess(data_dir=directory) as node:
                await kill_under_load(client, records, node)
        with NodeProcess(data_dir=directory):
            records.stop = True
            await until(lambda: _all_answered(records))
            await take_all(client, records)
    return records


async def _all_answered(records: Records) -> bool:
    return len(records.answered) == records.numbers


def check(records: Records, kills: int) -> None:
    """Compare what was promised with what was seen."""
    assert len(records.answered) >= kills * ANSWERED_MIN
    assert set(records.answered.values()) - set(records.received) == set()
    assert {number: ids for number, ids in records.received.items() if len(ids) > 1} == {}
    assert set(records.received) == set(range(records.numbers))
    assert records.came_back == []
    assert all(numbers == sorted(numbers) for numbers in records.order.values())


async def test_a_node_killed_under_joined_calls_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    records = await run(tmp_path, 2)

    check(records, 2)
    assert Counter(records.answered.values()).most_common(1)[0][1] == 1


@pytest.mark.full
@pytest.mark.real_loop(watchdog_s=1500)
async def test_many_kills_under_joined_calls_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    records = await run(tmp_path, 50)

    check(records, 50)
    assert len(records.answered) == records.numbers
