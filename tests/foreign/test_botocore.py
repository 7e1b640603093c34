"""botocore's client against a real node on its disk: the promises of queues, through passports, commits and kills."""

from __future__ import annotations

import json
import os
import random
import shlex
import threading
from contextlib import suppress
from itertools import groupby
from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from penstock.testing import wait_until
from tests.acceptance.node_process import NodeProcess, penstock
from tests.foreign.sqs_client import by_query, client_of

FULL = bool(os.environ.get("PENSTOCK_TEST_FULL"))


@pytest.fixture
def sqs(node: NodeProcess):
    return client_of(node.ready["sqs"])


def test_a_message_goes_through_both_protocols(node: NodeProcess, sqs):
    told = node.ready["sqs"]
    attributes = {"a": {"DataType": "String", "StringValue": "x"}, "b": {"DataType": "Binary", "BinaryValue": b"\0"}}
    url = by_query(told, "CreateQueue", QueueName="both")["QueueUrl"]
    sent = sqs.send_message(QueueUrl=url, MessageBody="höllo", MessageAttributes=attributes)

    got = by_query(told, "ReceiveMessage", QueueUrl=url, MessageAttributeNames=["All"], WaitTimeSeconds=20)

    (message,) = got["Messages"]
    assert (message["Body"], message["MessageId"]) == ("höllo", sent["MessageId"])
    assert message["MessageAttributes"] == attributes
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    counts = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    assert counts == dict.fromkeys(names, "0")


def test_an_old_handle_deletes_a_standard_message_whose_lease_just_ended(sqs):
    url = sqs.create_queue(QueueName="old-handles", Attributes={"VisibilityTimeout": "0"})["QueueUrl"]
    for _ in range(10):
        sqs.send_message(QueueUrl=url, MessageBody="x")
        (first,) = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]
        sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)
        sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
        assert "Messages" not in sqs.receive_message(QueueUrl=url)


def test_dead_letters_and_moves_keep_id_and_time(sqs):
    dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    url = sqs.create_queue(QueueName="source", Attributes={"RedrivePolicy": policy})["QueueUrl"]
    sent = sqs.send_message(QueueUrl=url, MessageBody="poison")

    sqs.receive_message(QueueUrl=url, VisibilityTimeout=0, WaitTimeSeconds=20)
    (buried,) = sqs.receive_message(QueueUrl=dead, AttributeNames=["All"], VisibilityTimeout=0, WaitTimeSeconds=20)[
        "Messages"
    ]
    sqs.start_message_move_task(SourceArn=arn)
    (back,) = sqs.receive_message(QueueUrl=url, AttributeNames=["All"], WaitTimeSeconds=20)["Messages"]

    assert buried["MessageId"] == back["MessageId"] == sent["MessageId"]
    assert buried["Attributes"]["DeadLetterQueueSourceArn"].endswith(":source")
    assert buried["Attributes"]["ApproximateReceiveCount"] == "2"
    assert buried["Attributes"]["SentTimestamp"] == back["Attributes"]["SentTimestamp"]
    assert back["Attributes"]["ApproximateReceiveCount"] == "1"


def test_a_fifo_receive_takes_what_it_can_of_the_longest_waiting_group_first(sqs):
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    url = sqs.create_queue(QueueName="runs.fifo", Attributes=attributes)["QueueUrl"]
    # Enough groups that they lie in several shards, and their messages between each other.
    for number in range(3):
        for group in range(6):
            sqs.send_message(QueueUrl=url, MessageBody=f"{group}.{number}", MessageGroupId=f"g{group}")

    got = [sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=each)["Messages"] for each in (2, 3, 10)]

    first, second, rest = ([message["Body"] for message in messages] for messages in got)
    assert first == ["0.0", "0.1"]
    assert second == ["1.0", "1.1", "1.2"]
    assert rest[0] == "2.0"
    # A group's messages stand together, in order; only the last group of an answer may be cut.
    groups = [list(members) for _, members in groupby(rest, key=lambda body: body[0])]
    assert [len(members) for members in groups] == [3, 3, 3, 1]
    assert all(members == [f"{members[0][0]}.{number}" for number in range(len(members))] for members in groups)


def test_the_head_of_a_group_that_is_visible_again_comes_first_and_hides_the_rest(sqs):
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true", "VisibilityTimeout": "600"}
    url = sqs.create_queue(QueueName="head.fifo", Attributes=attributes)["QueueUrl"]
    for number in range(5):
        sqs.send_message(QueueUrl=url, MessageBody=str(number), MessageGroupId="g")

    def receive(count: int) -> list[dict[str, str]]:
        return sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=count).get("Messages", [])

    def give_back(message: dict[str, str]) -> None:
        handle = message["ReceiptHandle"]
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)

    first = receive(3)
    behind = receive(10)
    give_back(first[0])
    (head,) = receive(10)
    for message in first[1:]:
        give_back(message)
    hidden = receive(10)
    give_back(head)
    rest = [message["Body"] for message in receive(10)]

    assert [message["Body"] for message in first] == ["0", "1", "2"]
    assert (behind, head["Body"], hidden) == ([], "0", [])
    assert rest == ["0", "1", "2", "3", "4"]


def test_a_noisy_group_does_not_hold_another_one_up(sqs):
    noise = 10_000 if FULL else 500
    url = sqs.create_queue(QueueName="fair")["QueueUrl"]
    for start in range(0, noise, 10):
        entries = [{"Id": str(n), "MessageBody": str(start + n), "MessageGroupId": "noisy"} for n in range(10)]
        sqs.send_message_batch(QueueUrl=url, Entries=entries)
    sqs.send_message(QueueUrl=url, MessageBody="quiet", MessageGroupId="other")

    bodies: list[str] = []
    while "quiet" not in bodies and len(bodies) <= 20:
        bodies += [each["Body"] for each in sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]]
    sqs.delete_queue(QueueUrl=url)

    assert "quiet" in bodies[:20]


# --- the command line ------------------------------------------------------------------------------------------------


def test_the_command_line_makes_and_revokes_keys(node: NodeProcess):
    where = ("--data-dir", node.ready["data_dir"])
    made = json.loads(penstock("sqs", "key", "create", "--name", "ci", "--topic", "sqs/ci", "--json", *where).stdout)
    told = {**made, "endpoint": node.ready["sqs"]["endpoint"]}
    url = client_of(told).create_queue(QueueName="ci-jobs")["QueueUrl"]
    with pytest.raises(ClientError, match="AccessDenied"):
        client_of(told).create_queue(QueueName="other")
    listed = penstock("sqs", "key", "list", *where).stdout
    revoked = penstock("sqs", "key", "revoke", made["access_key_id"], *where)
    with pytest.raises(ClientError, match="InvalidClientTokenId"):
        client_of(told).send_message(QueueUrl=url, MessageBody="x")
    unknown = penstock("sqs", "key", "revoke", "NOSUCHKEY", *where)

    assert made["access_key_id"] in listed
    assert made["secret_access_key"] not in listed
    assert revoked.returncode == 0
    assert unknown.returncode == 1
    assert "There is no such access key." in unknown.stderr


def test_the_environment_that_is_printed_is_what_the_ready_line_says(node: NodeProcess):
    printed = penstock("sqs", "env", "--data-dir", node.ready["data_dir"]).stdout

    words = shlex.split(printed)
    found = dict(word.split("=", 1) for word in words[1:])
    told = node.ready["sqs"]
    assert words[0] == "export"
    assert found == {
        "AWS_ENDPOINT_URL_SQS": told["endpoint"],
        "AWS_ACCESS_KEY_ID": told["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": told["secret_access_key"],
        "AWS_DEFAULT_REGION": "us-east-1",
    }


# --- kills -----------------------------------------------------------------------------------------------------------


class Producer(threading.Thread):
    """Sends numbered messages of a few groups, each again until it is answered; notes what was answered."""

    def __init__(self, told, url: str, start: int) -> None:
        super().__init__()
        self._sqs, self._url = client_of(told, tries=0), url
        self.next = start
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.is_set():
            body = str(self.next)
            with suppress(BotoCoreError, ClientError):
                # A repeat of one that was stored and not answered has the same content, and is one message.
                self._sqs.send_message(QueueUrl=self._url, MessageBody=body, MessageGroupId=f"g{self.next % 3}")
                self.next += 1
                continue
            return


def test_a_fifo_queue_loses_repeats_and_reorders_nothing_when_the_node_is_killed(tmp_path: Path):
    """Send from a ledger, kill the node at any moment, start it again and go on with the first unanswered message."""
    kills, moments, answered = (10 if FULL else 2), random.Random(11), 0
    url = told = None
    for _ in range(kills):
        with NodeProcess("--set", "node.dht=false", data_dir=tmp_path / "data") as node:
            told = node.ready["sqs"]
            sqs = client_of(told)
            # Longer than a machine may freeze: a lease that ended would be a repeat of the test's own making.
            attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true", "VisibilityTimeout": "600"}
            url = sqs.create_queue(QueueName="ledger.fifo", Attributes=attributes)["QueueUrl"]
            producer = Producer(told, url, answered)
            producer.start()
            wait_until(lambda before=answered, thread=producer: thread.next > before + 5)
            threading.Event().wait(moments.uniform(0.0, 0.2))
            node.process.kill()
            producer.stopped.set()
            producer.join()
            answered = producer.next
    with NodeProcess("--set", "node.dht=false", data_dir=tmp_path / "data") as node:
        sqs = client_of(node.ready["sqs"])
        url = sqs.get_queue_url(QueueName="ledger.fifo")["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody=str(answered), MessageGroupId=f"g{answered % 3}")
        seen: dict[str, list[int]] = {}
        while sum(map(len, seen.values())) <= answered:
            got = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"], WaitTimeSeconds=20)
            assert got.get("Messages"), (answered, seen)
            for message in got["Messages"]:
                seen.setdefault(message["Attributes"]["MessageGroupId"], []).append(int(message["Body"]))
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        rest = sqs.receive_message(QueueUrl=url).get("Messages")

    assert seen == {f"g{n}": list(range(n, answered + 1, 3)) for n in range(3)}
    assert rest is None
