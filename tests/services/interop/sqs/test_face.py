"""The SQS face over real sockets, with a mailbox in RAM: operations in both protocols, and what each promises."""

from __future__ import annotations

import asyncio
import hashlib
import json
from urllib.parse import urlencode, urlsplit

import pytest

from penstock.kernel.clock import SYSTEM
from penstock.testing.contracts.memory_mailbox import MemoryMailbox
from tests.services.interop.sqs.signed import SqsError, error_of, face
from tests.services.interop.worlds import until

pytestmark = pytest.mark.real_loop
both = pytest.mark.parametrize("protocol", ["json", "query"])
ATTRIBUTES = {
    "text": {"DataType": "String", "StringValue": "x"},
    "number": {"DataType": "Number.int", "StringValue": "12"},
    "bytes": {"DataType": "Binary.png", "BinaryValue": b"\x00\xff"},
}


async def refused(call) -> tuple[int, str]:
    with pytest.raises(SqsError) as error:
        await call
    return error.value.status, error.value.code


# --- messages --------------------------------------------------------------------------------------------------------


@both
async def test_a_message_is_sent_received_and_deleted(protocol):
    async with face(protocol) as sqs:
        url = await sqs.queue()
        sent = await sqs.send(url, "höllo <&>\r\n", MessageAttributes=ATTRIBUTES)
        (message,) = await sqs.receive(url, MessageAttributeNames=["All"])
        hidden = await sqs.receive(url)
        await sqs.delete(url, message)
        await sqs.delete(url, message)
        counts = await sqs.counts(url)

    assert message["Body"] == "höllo <&>\r\n"
    assert message["MessageAttributes"] == ATTRIBUTES
    assert message["MD5OfBody"] == sent["MD5OfMessageBody"] == hashlib.md5("höllo <&>\r\n".encode()).hexdigest()
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert message["MessageId"] == sent["MessageId"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert message["Attributes"]["SenderId"] == "TESTKEYID"
    assert hidden == []
    assert counts == (0, 0, 0)


async def test_an_empty_receive_has_no_messages_key():
    async with face() as sqs:
        answer = await sqs.ask("ReceiveMessage", QueueUrl=await sqs.queue())

    assert json.loads(answer.body) == {}


async def test_a_message_carries_the_trace_of_its_request_unless_it_says_one_itself():
    own = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=own"}}
    async with face() as sqs:
        url = await sqs.queue()
        for more in ({}, {"MessageSystemAttributes": own}):
            fields = {"QueueUrl": url, "MessageBody": "x", **more}
            headers = {"X-Amz-Target": "AmazonSQS.SendMessage", "X-Amzn-Trace-Id": "Root=asked"}
            await sqs.raw(json.dumps(fields).encode(), headers)
        received = await sqs.receive(url)

    assert sorted(each["Attributes"]["AWSTraceHeader"] for each in received) == ["Root=asked", "Root=own"]


@pytest.mark.parametrize("name", ["All", "*", ".*"])
async def test_three_words_ask_for_all_message_attributes(name):
    async with face() as sqs:
        url = await sqs.queue()
        await sqs.send(url, "x", MessageAttributes=ATTRIBUTES)
        (message,) = await sqs.receive(url, MessageAttributeNames=[name])

    assert message["MessageAttributes"] == ATTRIBUTES


async def test_at_the_address_of_a_queue_only_its_own_operations_are_valid():
    async with face("query") as sqs:
        await sqs.queue()
        path = "/000000000000/q"
        answers = [await sqs.ask("ListQueues", path=path), await sqs.ask("CreateQueue", path=path, QueueName="r")]
        nothing = await sqs.raw(b"", method="GET", path=path)
        listed = await sqs("ListQueues")

    assert [error_of(answer) for answer in answers] == [(400, "InvalidAction")] * 2
    assert (nothing.status, nothing.body) == (404, b"<UnknownOperationException/>")
    assert [url.rpartition("/")[2] for url in listed["QueueUrls"]] == ["q"]


async def test_a_query_client_that_accepts_json_gets_the_same_answer_and_refusals_in_json():
    wanted = {"Accept": "application/json, text/plain", "Content-Type": "application/x-www-form-urlencoded"}
    async with face("query") as sqs:
        url = await sqs.queue()
        await sqs.send(url, "höllo <&>", MessageAttributes=ATTRIBUTES)
        form = {"Action": "ReceiveMessage", "QueueUrl": url, "AttributeName.1": "All", "MessageAttributeName.1": "All"}
        received = await sqs.raw(urlencode(form).encode(), wanted)
        listed = await sqs.raw(b"Action=ListQueues", wanted)
        refusal = await sqs.raw(b"Action=Nonsense", wanted)
        nothing = await sqs.raw(b"", {"Accept": "application/json"}, method="GET")
        browser = await sqs.raw(b"Action=ListQueues", {**wanted, "Accept": "text/html,application/json"})

    (message,) = json.loads(received.body)["ReceiveMessageResponse"]["ReceiveMessageResult"]["messages"]
    attributes = {each["Name"]: each["Value"] for each in message["MessageAttributes"]}
    assert received.headers["content-type"] == listed.headers["content-type"] == "application/json"
    assert message["Body"] == "höllo <&>"
    assert {"Name": "SenderId", "Value": "TESTKEYID"} in message["Attributes"]
    assert attributes["text"]["StringValue"] == "x"
    assert attributes["bytes"]["BinaryValue"] == "AP8="
    found = json.loads(listed.body)["ListQueuesResponse"]
    assert found["ListQueuesResult"] == {"queueUrls": [url], "NextToken": None}
    assert found["ResponseMetadata"]["RequestId"] == listed.headers["x-amzn-requestid"]
    assert refusal.status == 400
    assert json.loads(refusal.body)["Error"]["Code"] == "InvalidAction"
    assert (nothing.status, nothing.body) == (404, b"<UnknownOperationException/>")
    assert browser.headers["content-type"] == "text/xml"


@both
async def test_a_bad_entry_of_a_batch_fails_alone(protocol):
    async with face(protocol) as sqs:
        url = await sqs.queue()
        entries = [
            {"Id": "a", "MessageBody": "1"},
            {"Id": "b", "MessageBody": "2", "DelaySeconds": 901},
            {"Id": "c", "MessageBody": "3"},
        ]
        sent = await sqs("SendMessageBatch", QueueUrl=url, Entries=entries)
        received = await sqs.receive(url)
        gone = [{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(received)]
        deleted = await sqs(
            "DeleteMessageBatch", QueueUrl=url, Entries=[*gone, {"Id": "bad", "ReceiptHandle": "nonsense"}]
        )

    assert [each["Id"] for each in sent["Successful"]] == ["a", "c"]
    assert [(each["Id"], each["Code"], each["SenderFault"]) for each in sent["Failed"]] == [
        ("b", "InvalidParameterValue", True)
    ]
    assert sorted(message["Body"] for message in received) == ["1", "3"]
    assert [each["Id"] for each in deleted["Successful"]] == ["0", "1"]
    assert [(each["Id"], each["Code"]) for each in deleted["Failed"]] == [("bad", "ReceiptHandleIsInvalid")]


async def test_any_handle_of_a_standard_message_settles_it_while_it_lives():
    async with face() as sqs:
        url = await sqs.queue()
        await sqs.send(url, "x")
        (first,) = await sqs.receive(url, VisibilityTimeout=0)
        (second,) = await sqs.receive(url)
        await sqs("ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=60)
        await sqs.delete(url, first)
        left = await sqs.counts(url)
        await sqs.delete(url, second)

    assert first["ReceiptHandle"] != second["ReceiptHandle"]
    assert left == (0, 0, 0)


@both
async def test_a_standard_message_whose_lease_is_over_stays_visible_and_its_old_handle_is_no_error(protocol):
    async with face(protocol) as sqs:
        url = await sqs.queue()
        await sqs.send(url, "x")
        (first,) = await sqs.receive(url, VisibilityTimeout=0)
        handle = first["ReceiptHandle"]
        alone = await sqs("ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=60)
        entry = {"Id": "a", "ReceiptHandle": handle, "VisibilityTimeout": 60}
        batch = await sqs("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=[entry])
        bodies = await sqs.bodies(url)

    assert alone == {}
    assert batch == {"Successful": [{"Id": "a"}]}
    assert bodies == ["x"]


async def test_visibility_zero_makes_a_message_visible_at_once():
    async with face() as sqs:
        url = await sqs.queue()
        await sqs.send(url, "x")
        (message,) = await sqs.receive(url)
        entry = {"Id": "1", "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 0}
        changed = await sqs("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=[entry])
        (again,) = await sqs.receive(url)

    assert [each["Id"] for each in changed["Successful"]] == ["1"]
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"


async def test_a_handle_of_another_queue_is_refused_and_nothing_is_lost():
    async with face() as sqs:
        one, two = await sqs.queue("one"), await sqs.queue("two")
        await sqs.send(one, "x")
        (message,) = await sqs.receive(one)
        handle = message["ReceiptHandle"]
        codes = [
            await refused(sqs("DeleteMessage", QueueUrl=two, ReceiptHandle=handle)),
            await refused(sqs("DeleteMessage", QueueUrl=one, ReceiptHandle="unknown")),
            await refused(sqs("ChangeMessageVisibility", QueueUrl=two, ReceiptHandle=handle, VisibilityTimeout=0)),
        ]
        counts = await sqs.counts(one)

    assert codes == [(404, "ReceiptHandleIsInvalid")] * 3
    assert counts == (0, 1, 0)


async def test_delays_of_messages_and_queues():
    async with face() as sqs:
        slow, plain = await sqs.queue("slow", DelaySeconds="900"), await sqs.queue("plain")
        await sqs.send(slow, "waits")
        await sqs.send(slow, "now", DelaySeconds=0)
        await sqs.send(plain, "later", DelaySeconds=900)
        found = await sqs.bodies(slow), await sqs.bodies(plain)
        counts = await sqs.counts(plain)

    assert found == (["now"], [])
    assert counts == (0, 0, 1)


async def test_native_consumers_read_the_plain_body_and_native_bytes_come_as_base64():
    mailbox = MemoryMailbox(SYSTEM)
    from penstock.contracts.mailbox import Recv, Send

    async with face(mailbox=mailbox) as sqs:
        url = await sqs.queue()
        await sqs.send(url, "plain", MessageAttributes=ATTRIBUTES)
        (native,) = (await mailbox.recv(Recv("sqs/q"))).messages
        await mailbox.send(Send("sqs/q", b"\xff\x00"))
        await mailbox.send(Send("sqs/q", b"text"))
        received = await sqs.receive(url, MessageAttributeNames=["All"])

    assert native.payload == b"plain"
    by_body = {message["Body"]: message.get("MessageAttributes", {}) for message in received}
    assert by_body == {"text": {}, "/wA=": {"penstock.encoding": {"DataType": "String", "StringValue": "base64"}}}


# --- waiting ---------------------------------------------------------------------------------------------------------


async def test_a_receiver_that_waits_is_woken_by_a_message_and_holds_no_worker():
    async with face(waiters_max=1) as sqs:
        url = await sqs.queue()
        waiting = asyncio.ensure_future(sqs.bodies(url, WaitTimeSeconds=20))
        limit = sqs.world.service.sqs._errands._waiters
        await until(lambda: limit.in_use == 1)
        throttled = await refused(sqs.receive(url, WaitTimeSeconds=20))
        workers_busy = sqs.world.service.work.depth
        await sqs.send(url, "x")
        woken = await waiting
        free = limit.in_use

    assert woken == ["x"]
    assert throttled == (429, "RequestThrottled")
    assert (workers_busy, free) == (0, 0)


class StoppedClock:
    """A clock on which nothing that waits is ever over."""

    @staticmethod
    def monotonic() -> float:
        return 0.0

    wall = staticmethod(SYSTEM.wall)


async def test_the_drain_answers_receivers_that_wait_with_nothing():
    async with face(mailbox=MemoryMailbox(StoppedClock())) as sqs:
        url = await sqs.queue()
        waiting = asyncio.ensure_future(sqs.bodies(url, WaitTimeSeconds=20))
        limit = sqs.world.service.sqs._errands._waiters
        await until(lambda: limit.in_use == 1)

    assert await waiting == []
    assert limit.in_use == 0


# --- order -----------------------------------------------------------------------------------------------------------


async def test_a_fifo_queue_keeps_the_order_of_each_group_and_hides_what_is_behind_a_leased_message():
    async with face() as sqs:
        url = await sqs.fifo()
        for body in ("a1", "a2", "a3"):
            await sqs.send(url, body, MessageGroupId="a")
        await sqs.send(url, "b1", MessageGroupId="b")
        first = await sqs.receive(url, 2)
        others = await sqs.bodies(url)
        await sqs.delete(url, first[0])
        still = await sqs.bodies(url)
        await sqs.delete(url, first[1])
        then = await sqs.bodies(url)

    assert [message["Body"] for message in first] == ["a1", "a2"]
    assert (others, still, then) == (["b1"], [], ["a3"])
    assert {len(message["Attributes"]["SequenceNumber"]) for message in first} == {20}
    assert first[0]["Attributes"]["MessageGroupId"] == "a"


async def test_the_head_of_a_group_made_visible_again_hides_the_rest():
    async with face() as sqs:
        url = await sqs.fifo()
        for body in ("1", "2", "3"):
            await sqs.send(url, body, MessageGroupId="g")
        taken = await sqs.receive(url, 2)
        head = taken[0]["ReceiptHandle"]
        await sqs("ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=head, VisibilityTimeout=0)
        again = await sqs.bodies(url)

    # "2" is still leased: only what stands before it may come, and "3" may not.
    assert again == ["1"]


@pytest.mark.parametrize("scope", ["queue", "messageGroup"])
async def test_repeats_of_a_fifo_message_are_one_message(scope):
    async with face() as sqs:
        url = await sqs.fifo(DeduplicationScope=scope)
        first = await sqs.send(url, "same", MessageGroupId="a")
        again = await sqs.send(url, "same", MessageGroupId="a")
        by_id = await sqs.send(url, "other", MessageGroupId="a", MessageDeduplicationId="d")
        repeat = await sqs.send(url, "not other", MessageGroupId="a", MessageDeduplicationId="d")
        elsewhere = await sqs.send(url, "same", MessageGroupId="b")
        bodies = await sqs.bodies(url)

    assert again["MessageId"] == first["MessageId"]
    assert again["SequenceNumber"] == first["SequenceNumber"]
    assert repeat["MessageId"] == by_id["MessageId"]
    assert (elsewhere["MessageId"] == first["MessageId"]) is (scope == "queue")
    assert sorted(bodies) == (["other", "same"] if scope == "queue" else ["other", "same", "same"])


async def test_an_ended_lease_of_a_fifo_message_settles_nothing():
    async with face() as sqs:
        url = await sqs.fifo()
        await sqs.send(url, "x", MessageGroupId="g")
        (old,) = await sqs.receive(url, VisibilityTimeout=0)
        (new,) = await sqs.receive(url)
        with pytest.raises(SqsError) as stale:
            await sqs.delete(url, old)
        await sqs.delete(url, new)
        await sqs.delete(url, new)

    assert (stale.value.status, stale.value.code) == (400, "InvalidParameterValue")
    assert stale.value.message.endswith("The receipt handle has expired.")


async def test_what_a_fifo_queue_demands():
    async with face() as sqs:
        url = (await sqs("CreateQueue", QueueName="f.fifo", Attributes={"FifoQueue": "true"}))["QueueUrl"]
        codes = [
            await refused(sqs.send(url, "x")),
            await refused(sqs.send(url, "x", MessageGroupId="g")),
            await refused(sqs.send(url, "x", MessageGroupId="g", MessageDeduplicationId="d", DelaySeconds=1)),
            await refused(sqs.send(await sqs.queue(), "x", MessageDeduplicationId="d")),
        ]

    assert codes == [(400, "MissingParameter"), *[(400, "InvalidParameterValue")] * 3]


# --- queues ----------------------------------------------------------------------------------------------------------


@both
async def test_queues_are_found_listed_and_deleted(protocol):
    async with face(protocol) as sqs:
        urls = [await sqs.queue(name) for name in ("b1", "b2", "a1")]
        again = await sqs.queue("b1")
        found = (await sqs("GetQueueUrl", QueueName="b1"))["QueueUrl"]
        listed = (await sqs("ListQueues", QueueNamePrefix="b"))["QueueUrls"]
        page = await sqs("ListQueues", MaxResults=2)
        rest = await sqs("ListQueues", MaxResults=2, NextToken=page["NextToken"])
        await sqs("DeleteQueue", QueueUrl=urls[0])
        gone = await refused(sqs("GetQueueUrl", QueueName="b1"))
        unknown = await refused(sqs.send(urls[0], "x"))

    assert again == found == urls[0] == "http://localhost/000000000000/b1"
    assert listed == urls[:2]
    assert page["QueueUrls"] + rest["QueueUrls"] == [urls[2], *urls[:2]]
    assert "NextToken" not in rest
    assert gone == unknown == (400, "AWS.SimpleQueueService.NonExistentQueue")


async def test_a_queue_of_the_same_name_with_other_attributes_is_refused():
    async with face() as sqs:
        await sqs.queue("q", VisibilityTimeout="10")
        same = await sqs.queue("q", VisibilityTimeout="10")
        plain = await sqs.queue("q")
        other = await refused(sqs.queue("q", VisibilityTimeout="11"))

    assert same == plain
    assert other == (400, "QueueAlreadyExists")


async def test_queues_made_at_the_same_time_are_one_queue():
    async with face() as sqs:
        same = [asyncio.ensure_future(sqs.queue("q")) for _ in range(8)]
        differing = [asyncio.ensure_future(sqs.queue("r", VisibilityTimeout=str(n))) for n in range(8)]
        await asyncio.wait([*same, *differing])

    assert len({each.result() for each in same}) == 1
    assert [type(each.exception()) for each in differing].count(SqsError) == 7


async def test_each_region_has_queues_of_its_own():
    async with face() as sqs:
        east = await sqs.queue("q")
        sqs.region = "eu-west-1"
        west = await sqs.queue("q")
        await sqs.send(west, "west")
        listed = (await sqs("ListQueues"))["QueueUrls"]
        by_name = await sqs.bodies("q")
        sqs.region = "us-east-1"
        await sqs.send(east, "east")
        east_bodies = await sqs.bodies(east)
        from_afar = await sqs.counts(west)

    assert west.endswith("/queue/eu-west-1/000000000000/q")
    assert listed == [west]
    assert (by_name, east_bodies) == (["west"], ["east"])
    assert from_afar == (0, 1, 0)


async def test_queues_survive_a_restart():
    mailbox = MemoryMailbox(SYSTEM)
    async with face(mailbox=mailbox) as sqs:
        url = await sqs.fifo("kept.fifo", VisibilityTimeout="7")
        await sqs("TagQueue", QueueUrl=url, Tags={"team": "ours"})
        sqs.region = "eu-west-1"
        await sqs.fifo("kept.fifo")
        await sqs.send(await sqs.queue("other"), "x")
    async with face(mailbox=mailbox) as sqs:
        attributes = (await sqs("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"]))["Attributes"]
        tags = (await sqs("ListQueueTags", QueueUrl=url))["Tags"]
        sqs.region = "eu-west-1"
        listed = (await sqs("ListQueues"))["QueueUrls"]

    assert (attributes["VisibilityTimeout"], attributes["FifoQueue"]) == ("7", "true")
    assert tags == {"team": "ours"}
    assert [each.rpartition("/")[2] for each in listed] == ["kept.fifo", "other"]


async def test_attributes_are_set_shown_and_checked():
    async with face() as sqs:
        url = await sqs.queue()
        await sqs(
            "SetQueueAttributes", QueueUrl=url, Attributes={" VisibilityTimeout ": "5", "Policy": '{"Statement": []}'}
        )
        names = ["VisibilityTimeout", "QueueArn", "Policy"]
        some = (await sqs("GetQueueAttributes", QueueUrl=url, AttributeNames=names))["Attributes"]
        await sqs("SetQueueAttributes", QueueUrl=url, Attributes={"Policy": ""})
        without = (await sqs("GetQueueAttributes", QueueUrl=url, AttributeNames=names))["Attributes"]
        codes = [
            await refused(sqs("GetQueueAttributes", QueueUrl=url, AttributeNames=["Nonsense"])),
            await refused(sqs("SetQueueAttributes", QueueUrl=url, Attributes={"QueueArn": "x"})),
            await refused(sqs("SetQueueAttributes", QueueUrl=url, Attributes={"VisibilityTimeout": "43201"})),
            await refused(sqs("SetQueueAttributes", QueueUrl=url, Attributes={"FifoQueue": "true"})),
        ]

    assert some == {
        "VisibilityTimeout": "5", "QueueArn": "arn:aws:sqs:us-east-1:000000000000:q", "Policy": '{"Statement": []}'
    }  # fmt: skip
    assert "Policy" not in without
    assert [code for _, code in codes] == [
        "InvalidAttributeName", "InvalidAttributeName", "InvalidAttributeValue", "InvalidAttributeName"
    ]  # fmt: skip


async def test_permissions_are_kept_in_the_policy():
    async with face() as sqs:
        url = await sqs.queue()
        grant = {"Label": "l", "AWSAccountIds": ["111111111111"], "Actions": ["SendMessage"]}
        await sqs("AddPermission", QueueUrl=url, **grant)
        taken = await refused(sqs("AddPermission", QueueUrl=url, **grant))
        policy = (await sqs("GetQueueAttributes", QueueUrl=url, AttributeNames=["Policy"]))["Attributes"]["Policy"]
        await sqs("RemovePermission", QueueUrl=url, Label="l")
        left = await sqs("GetQueueAttributes", QueueUrl=url, AttributeNames=["Policy"])
        unknown = await refused(sqs("RemovePermission", QueueUrl=url, Label="l"))

    assert json.loads(policy)["Statement"][0]["Action"] == "SQS:SendMessage"
    assert taken == unknown == (400, "InvalidParameterValue")
    assert "Attributes" not in left


async def test_purge_empties_a_queue_and_a_cooldown_is_kept_where_it_is_set():
    async with face() as sqs:
        url = await sqs.queue()
        await sqs.send(url, "x")
        await sqs("PurgeQueue", QueueUrl=url)
        await sqs("PurgeQueue", QueueUrl=url)
        counts = await sqs.counts(url)
    async with face(cooldown_s=60.0) as sqs:
        url = await sqs.queue()
        await sqs("PurgeQueue", QueueUrl=url)
        purged = await refused(sqs("PurgeQueue", QueueUrl=url))
        await sqs("DeleteQueue", QueueUrl=url)
        with pytest.raises(SqsError) as again:
            await sqs.queue()

    assert counts == (0, 0, 0)
    assert purged == (403, "AWS.SimpleQueueService.PurgeQueueInProgress")
    assert (again.value.status, again.value.code) == (400, "AWS.SimpleQueueService.QueueDeletedRecently")
    # AWS's own words: the rule is about making the queue, not about deleting it.
    assert again.value.message.endswith("before you can create another with the same name.")


async def test_a_redrive_policy_needs_a_queue_of_the_same_type_that_is_there():
    def policy(name: str) -> str:
        return json.dumps({"deadLetterTargetArn": f"arn:aws:sqs:us-east-1:000000000000:{name}", "maxReceiveCount": 1})

    async with face() as sqs:
        dead = await sqs.queue("dead")
        await sqs.fifo("dead.fifo")
        source = await sqs.queue("q", RedrivePolicy=policy("dead"))
        sources = (await sqs("ListDeadLetterSourceQueues", QueueUrl=dead))["queueUrls"]
        codes = [
            await refused(sqs.queue("r", RedrivePolicy=policy("nowhere"))),
            await refused(sqs.queue("r", RedrivePolicy=policy("dead.fifo"))),
            await refused(sqs.queue("r", RedrivePolicy=policy("r"))),
            await refused(sqs("SetQueueAttributes", QueueUrl=dead, Attributes={"RedrivePolicy": policy("q")})),
        ]

    assert sources == [source]
    assert codes == [(400, "InvalidParameterValue")] * 4


async def test_a_queue_that_is_its_own_dead_letter_queue_delivers_without_end():
    policy = {"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:q", "maxReceiveCount": 1}
    async with face() as sqs:
        url = await sqs.queue(VisibilityTimeout="0")
        await sqs("SetQueueAttributes", QueueUrl=url, Attributes={"RedrivePolicy": json.dumps(policy)})
        shown = (await sqs("GetQueueAttributes", QueueUrl=url, AttributeNames=["RedrivePolicy"]))["Attributes"]
        await sqs.send(url, "x")
        seen = [await sqs.bodies(url) for _ in range(4)]
        await sqs("SetQueueAttributes", QueueUrl=url, Attributes={"RedrivePolicy": ""})
        after = await sqs("GetQueueAttributes", QueueUrl=url, AttributeNames=["RedrivePolicy"])

    assert json.loads(shown["RedrivePolicy"])["deadLetterTargetArn"] == policy["deadLetterTargetArn"]
    assert seen == [["x"]] * 4
    assert after == {}


async def test_the_url_of_any_queue_may_be_asked_for_at_the_address_of_one():
    async with face("query") as sqs:
        one, other = await sqs.queue("one"), await sqs.queue("other")
        path = urlsplit(one).path
        answer = await sqs.ask("GetQueueUrl", path, QueueName="other")
        wrong = error_of(await sqs.ask("ListQueues", path))

    assert sqs.read("GetQueueUrl", answer) == {"QueueUrl": other}
    assert wrong == (400, "InvalidAction")
