"""aiobotocore: a long poll that a message wakes, and many at once."""

from __future__ import annotations

import asyncio
import time

from aiobotocore.session import get_session


async def main():
    """Tell the story."""
    async with get_session().create_client("sqs") as sqs:
        url = (await sqs.create_queue(QueueName="async"))["QueueUrl"]
        waiting = asyncio.create_task(sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20))
        await asyncio.sleep(0.5)
        began = time.monotonic()
        await sqs.send_message(QueueUrl=url, MessageBody="wake up")
        (message,) = (await waiting)["Messages"]
        assert time.monotonic() - began < 15
        await sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        print("long poll: woken by the message")
        await asyncio.gather(*(sqs.send_message(QueueUrl=url, MessageBody=str(n)) for n in range(100)))
        seen = set()
        while len(seen) < 100:
            got = await sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=5)
            entries = []
            for n, each in enumerate(got.get("Messages", ())):
                seen.add(int(each["Body"]))
                entries.append({"Id": str(n), "ReceiptHandle": each["ReceiptHandle"]})
            await sqs.delete_message_batch(QueueUrl=url, Entries=entries)
        print("100 messages sent at once, all received and deleted")
        await sqs.delete_queue(QueueUrl=url)


asyncio.run(main())
