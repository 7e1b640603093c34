"""What was promised, what was seen: the checker of the crash runs. `python -m tests.services.mailbox.ledger CYCLES`."""

from __future__ import annotations

import asyncio
import base64
import random
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from tests.services.mailbox.process import Http, Server

TOPICS = ("orders", "bills", "parcels")


@dataclass
class Ledger:
    """Everything the clients know for certain, and everything they were given."""

    stored: set[str] = field(default_factory=set)  # sends that were answered with 2xx
    unknown: set[str] = field(default_factory=set)  # sends that were cut off
    settled: set[str] = field(default_factory=set)  # acks that were answered with 2xx
    settling: set[str] = field(default_factory=set)  # acks that were sent
    read: list[str] = field(default_factory=list)
    reappeared: list[str] = field(default_factory=list)
    keys: dict[str, list[int]] = field(default_factory=dict)

    def saw(self, name: str) -> None:
        """Note a delivery; one after its acked ack breaks a promise."""
        self.read.append(name)
        if name in self.settled:
            self.reappeared.append(name)

    def lost(self) -> set[str]:
        """Name the stored messages that nobody ever got."""
        return self.stored - set(self.read)


async def produce(ledger: Ledger, port: int, tag: str) -> None:
    http = Http(port)
    try:
        for number in range(100_000):
            name = f"{tag}-{number}"
            payload = base64.b64encode(name.encode()).decode()
            body = {"topic": random.choice(TOPICS), "payload_b64": payload, "idem_key": name}
            if number % 3 == 0:
                body["key"] = f"k{number % 5}"
            ledger.unknown.add(name)
            status, _ = await http.post("/v1/send", body)
            if status == 200:
                ledger.stored.add(name)
                ledger.unknown.discard(name)
    except OSError:
        return
    finally:
        http.close()


async def consume(ledger: Ledger, port: int, *, until_empty: bool = False) -> None:
    http = Http(port)
    left = list(TOPICS)
    try:
        while left:
            topic = left[-1] if until_empty else random.choice(TOPICS)
            recv = {"topic": topic, "max_messages": 20, "visibility_ms": 1000, "wait_ms": 6000 if until_empty else 50}
            status, body = await http.post("/v1/recv", recv)
            if status != 200:
                await asyncio.sleep(0.01)
                continue
            if until_empty and not body["messages"]:
                left.pop()
            for message in body["messages"]:
                name = base64.b64decode(message["payload_b64"]).decode()
                ledger.saw(name)
                if not until_empty and random.random() < 0.2:
                    continue
                ledger.settling.add(name)
                status, _ = await http.post("/v1/ack", {"msg_id": message["msg_id"], "receipt": message["receipt"]})
                if status == 200:
                    ledger.settled.add(name)
    except OSError:
        return
    finally:
        http.close()


async def cycle(ledger: Ledger, server: Server, tag: str, seconds: float) -> None:
    """Load the mailbox, and kill it in the middle."""
    work = [asyncio.create_task(produce(ledger, server.port, f"{tag}-{n}")) for n in range(4)]
    work += [asyncio.create_task(consume(ledger, server.port)) for _ in range(3)]
    await asyncio.sleep(seconds)
    await asyncio.to_thread(server.kill)
    await asyncio.wait(work)


async def run(cycles: int, seconds: float, directory: Path) -> Ledger:
    """Kill and restart so many times, then read what is left."""
    ledger, server = Ledger(), Server(directory)
    for number in range(cycles):
        await asyncio.to_thread(server.start)
        await cycle(ledger, server, f"c{number}", seconds * (0.5 + random.random()))
    await asyncio.to_thread(server.start)
    await consume(ledger, server.port, until_empty=True)
    await asyncio.to_thread(server.stop)
    return ledger


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as path:
        found = asyncio.run(run(int(sys.argv[1]), 0.5, Path(path)))
    counts = {name: len(getattr(found, name)) for name in ("stored", "unknown", "read", "settled", "reappeared")}
    sys.stdout.write(f"{counts}, lost {len(found.lost())}\n")
    sys.exit(1 if found.lost() or found.reappeared else 0)
