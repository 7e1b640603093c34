"""Store each file that is named, and send a message that tells the workers where it lies."""

import asyncio
import sys
from pathlib import Path

from penstock.client import Client, connect


async def submit(client: Client, file: Path) -> str:
    """Store one file and ask for its words to be counted; returns the id of the message."""
    stored = await client.storage.put(file.read_bytes())
    task = {"name": file.name, "address": stored.address}
    sent = await client.mailbox.send("texts", task, idem_key=f"{file.name}:{stored.address}")
    return sent.msg_id


async def main() -> None:
    async with connect() as client:
        for msg_id in await asyncio.gather(*(submit(client, Path(name)) for name in sys.argv[1:])):
            print("sent", msg_id)


if __name__ == "__main__":
    asyncio.run(main())
