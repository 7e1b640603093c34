"""Count the words of every text that is sent, four at a time, until Ctrl-C or SIGTERM."""

import asyncio
import functools

from penstock.client import Client, Delivery, connect


async def count_words(client: Client, delivery: Delivery) -> None:
    """Count one text. What this raises gives the message back; after five attempts it is a dead letter."""
    task = delivery.json()
    text = (await client.storage.get(task["address"])).decode()
    print(f"{task['name']}: {len(text.split())} words", flush=True)


async def main() -> None:
    async with connect() as client:
        count = functools.partial(count_words, client)
        await client.mailbox.run("texts", count, concurrency=4, stop_on_signals=True)


if __name__ == "__main__":
    asyncio.run(main())
