"""boto3, client and resource: every kind of queue, and what its users rely on. Prints a line for each promise."""

from __future__ import annotations

import json
import time

import boto3
from botocore.exceptions import ClientError

sqs = boto3.client("sqs")
resource = boto3.resource("sqs")


def until(found, seconds=30.0):
    """Look until something is found."""
    due = time.monotonic() + seconds
    while not (value := found()):
        if time.monotonic() > due:
            raise SystemExit("it never came true")
        time.sleep(0.05)
    return value


def standard():
    """Send, receive, delete; attributes; batches; the resource's own objects."""
    url = sqs.create_queue(QueueName="story", Attributes={"VisibilityTimeout": "30"})["QueueUrl"]
    attributes = {"n": {"DataType": "Number", "StringValue": "1"}, "b": {"DataType": "Binary", "BinaryValue": b"\0"}}
    sent = sqs.send_message(QueueUrl=url, MessageBody="höllo", MessageAttributes=attributes)
    got = sqs.receive_message(QueueUrl=url, MessageAttributeNames=["All"], AttributeNames=["All"], WaitTimeSeconds=5)
    (message,) = got["Messages"]
    assert message["MessageId"] == sent["MessageId"]
    assert message["MessageAttributes"] == attributes
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    queue = resource.get_queue_by_name(QueueName="story")
    queue.send_messages(Entries=[{"Id": str(n), "MessageBody": f"m{n}"} for n in range(10)])
    seen = set()
    while len(seen) < 10:
        for each in queue.receive_messages(MaxNumberOfMessages=10, WaitTimeSeconds=5):
            seen.add(each.body)
            each.delete()
    queue.load()
    assert queue.attributes["ApproximateNumberOfMessages"] == "0"
    print("standard: 11 messages sent, received once each with attributes and MD5s checked by boto3, deleted")
    queue.delete()


def fifo():
    """Keep order within a group, and take repeats for one."""
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true", "VisibilityTimeout": "30"}
    url = sqs.create_queue(QueueName="story.fifo", Attributes=attributes)["QueueUrl"]
    for n in range(30):
        for _ in range(2):
            sqs.send_message(QueueUrl=url, MessageBody=str(n), MessageGroupId=f"g{n % 3}")
    seen: dict[str, list[int]] = {}
    numbers: dict[str, list[str]] = {}
    while sum(map(len, seen.values())) < 30:
        got = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"], WaitTimeSeconds=5)
        for message in got.get("Messages", ()):
            group = message["Attributes"]["MessageGroupId"]
            seen.setdefault(group, []).append(int(message["Body"]))
            numbers.setdefault(group, []).append(message["Attributes"]["SequenceNumber"])
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert all(found == sorted(found) and len(found) == 10 for found in seen.values()), seen
    assert all(found == sorted(found) for found in numbers.values()), numbers
    print("fifo: 60 sends of 30 messages in 3 groups came as 30, each group in order, by rising SequenceNumber")
    sqs.delete_queue(QueueUrl=url)


def dead_letters():
    """Move what is received too often, and move it back."""
    dead = sqs.create_queue(QueueName="story-dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2})
    url = sqs.create_queue(QueueName="story-source", Attributes={"RedrivePolicy": policy})["QueueUrl"]
    sent = sqs.send_message(QueueUrl=url, MessageBody="poison")
    for _ in range(2):
        got = sqs.receive_message(QueueUrl=url, VisibilityTimeout=0, WaitTimeSeconds=5)
        assert got["Messages"][0]["Body"] == "poison"
    (message,) = until(
        lambda: sqs.receive_message(QueueUrl=dead, AttributeNames=["All"], VisibilityTimeout=0).get("Messages")
    )
    assert message["MessageId"] == sent["MessageId"]
    assert message["Attributes"]["DeadLetterQueueSourceArn"].endswith(":story-source")
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    sqs.start_message_move_task(SourceArn=arn)
    (back,) = until(lambda: sqs.receive_message(QueueUrl=url, AttributeNames=["All"]).get("Messages"))
    assert back["MessageId"] == sent["MessageId"]
    assert back["Attributes"]["SentTimestamp"] == message["Attributes"]["SentTimestamp"]
    done = until(
        lambda: [t for t in sqs.list_message_move_tasks(SourceArn=arn)["Results"] if t["Status"] == "COMPLETED"]
    )
    assert done[0]["ApproximateNumberOfMessagesMoved"] == 1
    print("dead letters: moved after 2 receives and back by a move task, with MessageId and SentTimestamp kept")
    for each in (url, dead):
        sqs.delete_queue(QueueUrl=each)


def errors():
    """Get AWS's exceptions."""
    for call, wanted in (
        (lambda: sqs.get_queue_url(QueueName="nowhere"), sqs.exceptions.QueueDoesNotExist),
        (lambda: sqs.create_queue(QueueName="bad name"), ClientError),
    ):
        try:
            call()
        except wanted:
            continue
        raise SystemExit("nothing was raised")
    print("errors: AWS's exception classes")


standard()
fifo()
dead_letters()
errors()
