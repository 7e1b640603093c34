"""What was promised, what was seen: the checker of the crash runs.

`python -m tests.services.mailbox.ledger CYCLES [SEED]`; with a seed, files of a copy are damaged after every kill.
"""

from __future__ import annotations

import asyncio
import base64
import random
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.services.mailbox.process import Http, Server
from tests.services.mailbox.spoiling import Damages, Promised

TOPICS = ("orders", "bills", "parcels")
STORED_MIN = 20


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

    def saw(self, names: Iterable[str]) -> None:
        """Note what one answer brought; a delivery after its acked ack breaks a promise."""
        for name in names:
            self.read.append(name)
            if name in self.settled:
                self.reappeared.append(name)

    def lost(self) -> set[str]:
        """Name the stored messages that nobody ever got."""
        return self.stored - set(self.read)

    def promised(self) -> Promised:
        """Say what has to be in the files now; of an ack that was cut off nobody knows."""
        return Promised(self.stored - self.settling, self.settled, self.stored | self.unknown)


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


async def consume(ledger: Ledger, port: int) -> None:
    """Take and settle four of five until the mailbox is gone."""
    http = Http(port)
    try:
        while True:
            if not await take(ledger, http, random.choice(TOPICS), forgotten=0.2):
                await asyncio.sleep(0.01)
    except OSError:
        return
    finally:
        http.close()


async def take(ledger: Ledger, http: Http, topic: str, *, forgotten: float = 0.0) -> bool:
    """Receive once and settle what came but for the forgotten part; tells whether anything came."""
    recv = {"topic": topic, "max_messages": 20, "visibility_ms": 1000, "wait_ms": 50}
    _, body = await http.post("/v1/recv", recv)
    messages = {base64.b64decode(message["payload_b64"]).decode(): message for message in body.get("messages", ())}
    # All at once, before the first ack: leases may lapse while we settle, and others then settle what we hold.
    ledger.saw(messages)
    for name, message in messages.items():
        if random.random() < forgotten:
            continue
        ledger.settling.add(name)
        status, _ = await http.post("/v1/ack", {"msg_id": message["msg_id"], "receipt": message["receipt"]})
        if status == 200:
            ledger.settled.add(name)
    return bool(messages)


async def take_the_rest(ledger: Ledger, port: int) -> None:
    """Take and settle until the mailbox says that nothing is left; leases of before the kill lapse on the way."""
    http = Http(port)
    while left := await alive(http):
        for topic in left:
            await take(ledger, http, topic)
    http.close()


async def alive(http: Http) -> list[str]:
    """Name the topics that hold something to deliver, now or later."""
    _, body = await http.request("GET", "/v1/topics")
    return [each["topic"] for each in body["topics"] if each["ready"] + each["inflight"] + each["delayed"]]


async def cycle(ledger: Ledger, server: Server, tag: str, seconds: float) -> None:
    """Load the mailbox, and kill it in the middle: some time after it has stored enough to make it worth it."""
    enough = len(ledger.stored) + STORED_MIN
    work = [asyncio.create_task(produce(ledger, server.port, f"{tag}-{n}")) for n in range(4)]
    work += [asyncio.create_task(consume(ledger, server.port)) for _ in range(3)]
    while len(ledger.stored) < enough:  # noqa: ASYNC110 - answers of another process
        await asyncio.sleep(0.01)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(server.kill)
    await asyncio.wait(work)


async def run(cycles: int, seconds: float, directory: Path, damages: Damages | None = None) -> Ledger:
    """Kill and restart so many times, then read what is left."""
    ledger, server = Ledger(), Server(directory)
    try:
        for number in range(cycles):
            await asyncio.to_thread(server.start)
            await cycle(ledger, server, f"c{number}", seconds * (0.5 + random.random()))
            if damages is not None:
                await damages.strike(directory, ledger.promised(), directory.with_name(f"damaged-{number}"))
        await asyncio.to_thread(server.start)
        await take_the_rest(ledger, server.port)
        await asyncio.to_thread(server.stop)
    finally:
        server.kill()
    return ledger


if __name__ == "__main__":
    spoiled = Damages(random.Random(int(sys.argv[2]))) if len(sys.argv) > 2 else None
    with tempfile.TemporaryDirectory() as path:
        found = asyncio.run(run(int(sys.argv[1]), 0.5, Path(path, "mailbox"), spoiled))
    counts = {name: len(getattr(found, name)) for name in ("stored", "unknown", "read", "settled", "reappeared")}
    sys.stdout.write(f"{counts}, lost {len(found.lost())}\n")
    if spoiled is not None:
        sys.stdout.write(f"damaged: {dict(spoiled.done)}\n{dict(spoiled.outcomes)}\nsilent: {spoiled.silent}\n")
    sys.exit(1 if found.lost() or found.reappeared or (spoiled and spoiled.silent) else 0)
