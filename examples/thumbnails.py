"""A small application on a penstock node: pictures are stored, resized by workers, and the failures can be read.

    penstock up &
    python examples/thumbnails.py

It stores three "pictures", sends a JSON message for each, and lets a worker work on them with a token that is good for
nothing else. One picture is broken: its message becomes a dead letter that tells the error, and is sent again when the
worker is mended. Everything goes by `connect()`: set PENSTOCK_URL and PENSTOCK_TOKEN to use a node elsewhere.
"""

from __future__ import annotations

import asyncio
import secrets

from penstock.client import Client, Delivery, connect

# A name of its own for each run, so that several can share a node.
TOPIC = f"thumbnails/{secrets.token_hex(4)}"
PICTURES = {"cat": b"P5 4 4 255 " + bytes(range(16)), "dog": b"P5 2 2 255 " + bytes(4), "noise": b"not a picture"}


class Worker:
    """Takes messages, fetches each picture, makes it small and stores the result."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.mended = False
        self.done: dict[str, str] = {}
        self.all_done = asyncio.Event()

    async def handle(self, delivery: Delivery) -> None:
        """Work on one message. What is raised here gives it back; after the last attempt it is a dead letter."""
        order = delivery.json()
        picture = await self.client.storage.get(order["picture"])
        small = await self.client.storage.put(self.resize(picture))
        self.done[order["name"]] = small.address
        if len(self.done) == len(PICTURES):
            self.all_done.set()

    def resize(self, picture: bytes) -> bytes:
        """Keep every second pixel."""
        if not picture.startswith(b"P5") and not self.mended:
            raise ValueError("this is no PGM picture")
        return picture[:11] + picture[11::2]


async def main() -> None:
    """Produce, work, look at what failed, mend it, and send it again."""
    async with connect() as operator:
        for name, pixels in PICTURES.items():
            stored = await operator.storage.put(pixels)
            await operator.mailbox.send(TOPIC, {"name": name, "picture": stored.address})
        token = (await operator.passport.worker_token("resizer", TOPIC, store=("get", "put"))).token
        async with connect(token=token) as client:
            worker = Worker(client)
            working = asyncio.create_task(client.mailbox.run(TOPIC, worker.handle, concurrency=4))
            while not (dead := [letter async for letter in operator.mailbox.dead_letters(TOPIC)]):
                await asyncio.sleep(0.2)
            error = dead[0].history[-1].error
            print(f"dead: {error.class_}: {error.message}, after {dead[0].attempts} attempts")
            worker.mended = True
            print("sent again:", await operator.mailbox.reprocess(TOPIC))
            await asyncio.wait_for(worker.all_done.wait(), 60)
            print("done:", ", ".join(sorted(worker.done)))
            working.cancel()
            await asyncio.wait({working})


if __name__ == "__main__":
    asyncio.run(main())
