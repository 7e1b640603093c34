"""Crash runs with topic settings: keys in batches, turns by group, idem_keys by the first message.

`python -m tests.services.mailbox.settings_ledger CYCLES`. A producer sends keyed and grouped messages; the mailbox is
killed in the middle. In the next life every send that was cut off is sent again with the same idem_key and other
content: exactly one of the two may ever be delivered. Messages of one key must first come in the order in which they
were sent.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.services.mailbox.ledger import TOPICS, Ledger, consume, take_the_rest
from tests.services.mailbox.process import Http, Server

AGAIN = "!"
PRODUCERS = 4
STORED_MIN = 60
SETTINGS = {
    "key_batch": 3,
    "fair_by": "group",
    "max_attempts": 0,
    "dedup": {"window_s": 600, "mode": "first_wins"},
}


@dataclass
class SettingsLedger(Ledger):
    """What the clients know, and what came in a wrong order."""

    # Of each producer's key, the highest number that was delivered.
    highest: dict[tuple[str, int], int] = field(default_factory=dict)
    overtaken: list[str] = field(default_factory=list)
    first: set[str] = field(default_factory=set)

    def saw(self, names: Iterable[str]) -> None:
        """Note what one answer brought, and whether it came behind a later one of its key."""
        names = list(names)
        for name in names:
            if name not in self.first and not name.endswith(AGAIN):
                self._order(name)
            self.first.add(name)
        super().saw(names)

    def _order(self, name: str) -> None:
        tag, _, number = name.rpartition("-")
        line = (tag, int(number) % 3)
        if int(number) < self.highest.get(line, -1):
            self.overtaken.append(name)
        self.highest[line] = max(self.highest.get(line, -1), int(number))

    def doubled(self) -> set[str]:
        """Name the sends of which both the first and its repeat with other content were delivered."""
        return {name for name in self.first if name + AGAIN in self.first}

    def faults(self) -> dict[str, int]:
        """Count what must not be."""
        found = {"lost": self.lost(), "back": self.reappeared, "overtaken": self.overtaken, "doubled": self.doubled()}
        return {name: len(some) for name, some in found.items() if some}


def body_of(name: str, payload: str) -> dict[str, str]:
    tag, _, number = name.rpartition("-")
    key = int(number) % 3
    said = {"topic": TOPICS[key], "payload_b64": base64.b64encode(payload.encode()).decode(), "idem_key": name}
    return {**said, "key": f"{tag}-{key}", "group": tag}


async def produce(ledger: SettingsLedger, port: int, tag: str) -> None:
    http = Http(port)
    try:
        for number in range(100_000):
            name = f"{tag}-{number}"
            ledger.unknown.add(name)
            status, _ = await http.post("/v1/send", body_of(name, name))
            if status == 200:
                ledger.stored.add(name)
                ledger.unknown.discard(name)
    except OSError:
        return
    finally:
        http.close()


async def repeat(ledger: SettingsLedger, port: int) -> None:
    """Set the topics up, and send what was cut off once more, with other content."""
    http = Http(port)
    for topic in TOPICS:
        status, _ = await http.request("PUT", f"/v1/topics/{topic}/settings", json.dumps(SETTINGS).encode())
        assert status == 200
    for name in sorted(ledger.unknown):
        status, answer = await http.post("/v1/send", body_of(name, name + AGAIN))
        assert status == 200
        ledger.stored.add(name if answer["duplicate"] else name + AGAIN)
    ledger.unknown.clear()
    http.close()


async def run(cycles: int, seconds: float, directory: Path) -> SettingsLedger:
    """Kill and restart so many times, then read what is left."""
    ledger, server = SettingsLedger(), Server(directory)
    try:
        for number in range(cycles):
            await asyncio.to_thread(server.start)
            await repeat(ledger, server.port)
            enough = len(ledger.stored) + STORED_MIN
            work = [asyncio.create_task(produce(ledger, server.port, f"c{number}-{n}")) for n in range(PRODUCERS)]
            work += [asyncio.create_task(consume(ledger, server.port)) for _ in range(3)]
            while len(ledger.stored) < enough:  # noqa: ASYNC110 - answers of another process
                await asyncio.sleep(0.01)
            await asyncio.sleep(seconds)
            await asyncio.to_thread(server.kill)
            await asyncio.wait(work)
        await asyncio.to_thread(server.start)
        await repeat(ledger, server.port)
        await take_the_rest(ledger, server.port)
        await asyncio.to_thread(server.stop)
    finally:
        server.kill()
    return ledger


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as path:
        seen = asyncio.run(run(int(sys.argv[1]), 0.3, Path(path, "mailbox")))
    sys.stdout.write(
        f"stored {len(seen.stored)}, read {len(seen.read)}, settled {len(seen.settled)}: {seen.faults()}\n"
    )
    sys.exit(1 if seen.faults() else 0)
