"""A small application on a penstock node: pictures are stored, and a pool of workers makes them small.

    penstock up &
    python examples/thumbnails.py

The producer stores large payloads and sends small messages that hold their addresses. Each worker has a token of its
own that is good for this one topic and the store. One picture fails once and is tried again; one is broken: its
message becomes a dead letter that tells the error, and is sent again when the workers are mended. Everything goes by
`connect()`: PENSTOCK_URL, PENSTOCK_CA and PENSTOCK_TOKEN_FILE name a node elsewhere, as the how-to
`reach-from-elsewhere` explains.
"""

from __future__ import annotations

import asyncio
import secrets

from penstock.client import Client, Delivery, Reject, connect, narrow

# A name of its own for each run, so that several can share a node.
TOPIC = f"thumbnails/{secrets.token_hex(4)}"
WORKERS = 3
PICTURES = {name: b"P5 1024 1024 255 " + name.encode() * 300_000 for name in ("cat", "dog", "fox", "owl")}
PICTURES["noise"] = b"not a picture"


class Pool:
    """What the workers share: how far the work is, and whether the fault was mended."""

    def __init__(self) -> None:
        self.mended = False
        self.done: dict[str, str] = {}
        self.all_done = asyncio.Event()

    async def work(self, token: str) -> None:
        """Be one worker until cancelled; its client can do no more than its token says."""
        async with connect(token=token) as client:
            await client.mailbox.run(TOPIC, lambda delivery: self.resize(client, delivery), concurrency=2)

    async def resize(self, client: Client, delivery: Delivery) -> None:
        """Work on one message. What is raised here gives it back; after the fifth attempt it is a dead letter."""
        task = delivery.json()
        if task["name"] == "fox" and delivery.attempt == 1:
            raise Reject("the printer is warming up", delay_ms=100)  # tried again soon, and not an error
        picture = await client.storage.get(task["address"])
        if not picture.startswith(b"P5") and not self.mended:
            raise ValueError("this is no PGM picture")
        self.done[task["name"]] = (await client.storage.put(picture[::8])).address
        if self.done.keys() == PICTURES.keys():
            self.all_done.set()


async def produce(client: Client) -> None:
    """Store each picture and send where it lies; the idem_key makes a repeat the same message."""
    for name, picture in PICTURES.items():
        address = (await client.storage.put(picture)).address
        await client.mailbox.send(TOPIC, {"name": name, "address": address}, idem_key=f"{TOPIC}:{name}")


async def main() -> None:
    """Produce, work, look at what failed, mend it, and send it again."""
    pool = Pool()
    async with connect() as operator:
        await produce(operator)
        issued = await operator.passport.worker_token("thumbnails", "thumbnails/", store=("get", "put"), ttl_s=600)
        tokens = [narrow(issued.token, f"svc-mailbox:topic={TOPIC}", sealed=True) for _ in range(WORKERS)]
        workers = [asyncio.create_task(pool.work(token)) for token in tokens]
        while not (dead := [letter async for letter in operator.mailbox.dead_letters(TOPIC)]):
            await asyncio.sleep(0.2)
        error = dead[0].history[-1].error
        print(f"dead: {error.class_}: {error.message}, after {dead[0].attempts} attempts")
        pool.mended = True
        print("sent again:", await operator.mailbox.reprocess(TOPIC))
        await asyncio.wait_for(pool.all_done.wait(), 60)
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
        print("done:", ", ".join(sorted(pool.done)))


if __name__ == "__main__":
    asyncio.run(main())
