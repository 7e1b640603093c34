"""Names, handles, attributes, digests and the checks of every operation's values."""

from __future__ import annotations

import hashlib
import json
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.services.interop.sqs import attributes as queue_attributes
from penstock.services.interop.sqs import messages
from penstock.services.interop.sqs.checks import (
    QueueRules,
    batch_failure,
    check_delete,
    check_entries,
    check_move_page,
    check_move_rate,
    check_page,
    check_permission,
    check_receive,
    check_send,
    check_send_batch,
    check_tags,
    check_visibility,
)
from penstock.services.interop.sqs.digests import attributes_md5, body_md5
from penstock.services.interop.sqs.handles import (
    MoveTask,
    ReceiptHandle,
    read_handle,
    read_page,
    read_task,
    write_handle,
    write_page,
    write_task,
)
from penstock.services.interop.sqs.names import (
    PathQueue,
    QueueName,
    check_name,
    queue_url,
    read_arn,
    read_path,
    read_queue_url,
    topic_of,
)
from penstock.services.interop.sqs.refusals import SqsRefusal

FIFO = QueueRules(fifo=True)
STANDARD = QueueRules()


def _code(call, *args, **more):
    with pytest.raises(SqsRefusal) as refused:
        call(*args, **more)
    return refused.value.legacy


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "fifo"), [("a", False), ("A_b-9", False), ("a" * 80, False), ("a.fifo", True), ("a" * 75 + ".fifo", True)]
)
def test_good_name(name, fifo):
    assert check_name(name, fifo=fifo) == name


@pytest.mark.parametrize(
    ("name", "fifo"),
    [
        ("", False),
        ("a" * 81, False),
        ("a.b", False),
        ("a b", False),
        ("a/b", False),
        ("a\n", False),
        ("\u00fc", False),
        ("a.fifo", False),
        ("a", True),
        (".fifo", True),
        ("a" * 76 + ".fifo", True),
        ("a.fifo\n", True),
        ("a.b.fifo", True),
    ],
)
def test_bad_name(name, fifo):
    assert _code(check_name, name, fifo=fifo) == "InvalidParameterValue"


@pytest.mark.parametrize("path", ["/", "/sqs", "/sqs/"])
def test_root_paths_are_the_service(path):
    assert read_path(path) is None


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/000000000000/q", PathQueue("000000000000", "q")),
        ("/sqs/000000000000/q", PathQueue("000000000000", "q")),
        ("/000000000000/q.fifo/", PathQueue("000000000000", "q.fifo")),
        ("/queue/eu-west-1/000000000000/q", PathQueue("000000000000", "q", "eu-west-1")),
        ("/sqs/queue/eu-west-1/000000000000/q", PathQueue("000000000000", "q", "eu-west-1")),
    ],
)
def test_paths_of_queues(path, found):
    assert read_path(path) == found


@pytest.mark.parametrize(
    "path",
    [
        "/q",
        "/1/q",
        "/00000000000x/q",
        "/000000000000/a b",
        "/000000000000/q/r",
        "/queue/000000000000/q",
        "/queue/A/000000000000/q",
    ],
)
def test_other_paths_are_404(path):
    with pytest.raises(SqsRefusal) as refused:
        read_path(path)

    assert refused.value.status == 404


@pytest.mark.parametrize(
    "url",
    [
        "q",
        "http://localhost:5309/000000000000/q",
        "https://sqs.us-east-1.amazonaws.com/000000000000/q",
        "/000000000000/q",
    ],
)
def test_queue_urls_of_any_host_and_bare_names_are_understood(url):
    assert read_queue_url(url).name == "q"


@pytest.mark.parametrize("url", ["", "http://h/", "http://[::1", "http://h/q", "a b", "\x00"])
def test_other_queue_urls_name_no_queue(url):
    assert _code(read_queue_url, url) == "AWS.SimpleQueueService.NonExistentQueue"


def test_first_region_has_the_short_names():
    queue = QueueName("eu-west-1", "q")

    assert (topic_of(queue, first=True), topic_of(queue, first=False)) == ("sqs/q", "sqs/eu-west-1/q")
    for first in (True, False):
        found = read_queue_url(queue_url("http://h:1", queue, "000000000000", first=first))
        assert found == PathQueue("000000000000", "q", "" if first else "eu-west-1")
    assert read_arn(queue.arn("000000000000")) == queue


@pytest.mark.parametrize(
    "arn",
    [
        "",
        "q",
        "arn:aws:sqs:eu-west-1:1:q",
        "arn:aws:sns:eu-west-1:000000000000:q",
        "arn:aws:sqs:eu-west-1:000000000000:a.b",
    ],
)
def test_other_arns_are_refused(arn):
    assert _code(read_arn, arn) == "InvalidParameterValue"


# --- handles ---------------------------------------------------------------------------------------------------------


def test_handles_come_back():
    handle, task = ReceiptHandle("sqs/q", "018f-1", "r:1/2=="), MoveTask("t1", "arn:aws:sqs:eu-west-1:000000000000:q")

    assert read_handle(write_handle(handle)) == handle
    assert read_task(write_task(task)) == task
    assert read_page(write_page("q-9")) == "q-9"


@given(st.text(max_size=60))
@settings(max_examples=100, deadline=None)
def test_foreign_handles_are_refused(text):
    assert _code(read_handle, text) == "ReceiptHandleIsInvalid"
    assert _code(read_task, text) == "InvalidParameterValue"


# --- digests ---------------------------------------------------------------------------------------------------------


def _md5_by_the_book(attributes):
    digest = hashlib.md5(usedforsecurity=False)
    for name in sorted(attributes):
        value = attributes[name]
        data = value.get("BinaryValue") or value["StringValue"].encode()
        for part in (name.encode(), value["DataType"].encode()):
            digest.update(struct.pack("!I", len(part)) + part)
        digest.update(b"\x02" if "BinaryValue" in value else b"\x01")
        digest.update(struct.pack("!I", len(data)) + data)
    return digest.hexdigest()


@pytest.mark.parametrize(
    "attributes",
    [
        {"a": {"DataType": "String", "StringValue": "x"}},
        {"b": {"DataType": "Binary.png", "BinaryValue": b"\0\xff"}},
        {
            "z": {"DataType": "Number.int", "StringValue": "1"},
            "B": {"DataType": "String", "StringValue": "\u00fc"},
            "a": {"DataType": "Binary", "BinaryValue": b"1"},
        },
    ],
)
def test_attribute_digest_is_by_the_book(attributes):
    assert attributes_md5(attributes) == _md5_by_the_book(attributes)


def test_digests_of_known_texts():
    assert body_md5(b"") == "d41d8cd98f00b204e9800998ecf8427e"
    assert body_md5(b"hello world") == "5eb63bbbe01eeed093cb22bb8f5acdc3"
    assert attributes_md5({}) is None


# --- sending ---------------------------------------------------------------------------------------------------------

TEXT = {"DataType": "String", "StringValue": "x"}


@pytest.mark.parametrize(
    ("given_", "rules", "code"),
    [
        ({"MessageBody": ""}, STANDARD, "MissingParameter"),
        ({"MessageBody": "\0"}, STANDARD, "InvalidMessageContents"),
        ({"MessageBody": "\ufffe"}, STANDARD, "InvalidMessageContents"),
        ({"MessageBody": "\x0b"}, STANDARD, "InvalidMessageContents"),
        ({"MessageBody": "x" * 1025}, QueueRules(bytes_max=1024), "InvalidParameterValue"),
        (
            {"MessageBody": "x" * 1017, "MessageAttributes": {"a": TEXT}},
            QueueRules(bytes_max=1024),
            "InvalidParameterValue",
        ),
        ({"MessageBody": "b", "DelaySeconds": 901}, STANDARD, "InvalidParameterValue"),
        ({"MessageBody": "b", "DelaySeconds": -1}, STANDARD, "InvalidParameterValue"),
        ({"MessageBody": "b", "MessageDeduplicationId": "d"}, STANDARD, "InvalidParameterValue"),
        ({"MessageBody": "b", "MessageGroupId": ""}, STANDARD, "InvalidParameterValue"),
        ({"MessageBody": "b", "MessageGroupId": "g" * 129}, STANDARD, "InvalidParameterValue"),
        ({"MessageBody": "b", "MessageGroupId": "a b"}, STANDARD, "InvalidParameterValue"),
        ({"MessageBody": "b"}, FIFO, "MissingParameter"),
        ({"MessageBody": "b", "MessageGroupId": "g"}, FIFO, "InvalidParameterValue"),
        (
            {"MessageBody": "b", "MessageGroupId": "g", "MessageDeduplicationId": "d", "DelaySeconds": 1},
            FIFO,
            "InvalidParameterValue",
        ),
        ({"MessageBody": "b", "MessageSystemAttributes": {"Other": TEXT}}, STANDARD, "InvalidParameterValue"),
        (
            {
                "MessageBody": "b",
                "MessageSystemAttributes": {"AWSTraceHeader": {"DataType": "Number", "StringValue": "1"}},
            },
            STANDARD,
            "InvalidParameterValue",
        ),
        (
            {"MessageBody": "b", "MessageAttributes": {f"a{n}": TEXT for n in range(11)}},
            STANDARD,
            "InvalidParameterValue",
        ),
        *(
            ({"MessageBody": "b", "MessageAttributes": {name: TEXT}}, STANDARD, "InvalidParameterValue")
            for name in ("", "a b", ".a", "a.", "a..b", "AWS.x", "amazon.x", "a" * 257, "\u00a7", "a\n")
        ),
        *(
            ({"MessageBody": "b", "MessageAttributes": {"a": value}}, STANDARD, "InvalidParameterValue")
            for value in (
                {"DataType": "Text", "StringValue": "x"},
                {"DataType": "String"},
                {"DataType": "String", "StringValue": ""},
                {"DataType": "Binary", "StringValue": "x"},
                {"DataType": "String", "BinaryValue": b"x"},
                {"DataType": "Stringx", "StringValue": "x"},
                {"DataType": "String.", "StringValue": "x"},
                {"DataType": "Number", "StringValue": "x"},
                {"DataType": "Number", "StringValue": "1 "},
                {"DataType": "String", "StringValue": "\0"},
                {"DataType": "String." + "x" * 256, "StringValue": "x"},
            )
        ),
        (
            {"MessageBody": "b", "MessageAttributes": {"a": {**TEXT, "StringListValues": ["x"]}}},
            STANDARD,
            "AWS.SimpleQueueService.UnsupportedOperation",
        ),
    ],
)
def test_message_that_may_not_be_sent(given_, rules, code):
    assert _code(check_send, given_, rules) == code


def test_good_messages():
    found = check_send(
        {"MessageBody": "x" * 1016, "MessageAttributes": {"a": TEXT}, "DelaySeconds": 900, "MessageGroupId": "g"},
        QueueRules(bytes_max=1024),
    )
    assert (found.size, found.delay_s, found.group) == (1024, 900, "g")
    fifo = check_send(
        {"MessageBody": "b", "MessageGroupId": "!~", "DelaySeconds": 0}, QueueRules(fifo=True, content_dedup=True)
    )
    assert (fifo.delay_s, fifo.dedup_id) == (None, "")
    numbers = {
        str(n): {"DataType": "Number", "StringValue": text} for n, text in enumerate(["1", "-1.5", "+2e10", ".5", "1."])
    }
    assert (
        check_send({"MessageBody": "\t\n\r\ud7ff\U0001f600", "MessageAttributes": numbers}, STANDARD).attributes
        == numbers
    )


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([], "EmptyBatchRequest"),
        ([{"Id": str(n)} for n in range(11)], "TooManyEntriesInBatchRequest"),
        ([{"Id": "a"}, {"Id": "a"}], "BatchEntryIdsNotDistinct"),
        ([{"Id": ""}], "InvalidBatchEntryId"),
        ([{"Id": "a b"}], "InvalidBatchEntryId"),
        ([{"Id": "a" * 81}], "InvalidBatchEntryId"),
        ([{"Id": "a\n"}], "InvalidBatchEntryId"),
    ],
)
def test_batch_that_is_refused_as_a_whole(entries, code):
    assert _code(check_entries, entries, "X") == "AWS.SimpleQueueService." + code


def test_batch_is_bounded_as_a_whole_and_a_bad_entry_fails_alone():
    big = "x" * (1 << 19)
    entries = [{"Id": "a", "MessageBody": big}, {"Id": "b", "MessageBody": big}]
    assert [item.id for item in check_send_batch(entries, STANDARD)] == ["a", "b"]
    assert (
        _code(check_send_batch, [*entries, {"Id": "c", "MessageBody": "x"}], STANDARD)
        == "AWS.SimpleQueueService.BatchRequestTooLong"
    )

    good, bad = check_send_batch([{"Id": "a", "MessageBody": "b"}, {"Id": "c", "MessageBody": "\0"}], STANDARD)
    assert good.value.body == "b"
    failure = batch_failure(bad.id, bad.value)
    assert (failure["Id"], failure["Code"], failure["SenderFault"]) == ("c", "InvalidMessageContents", True)


# --- receiving, settling, lists --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "code"),
    [
        ({"MaxNumberOfMessages": 0}, "InvalidParameterValue"),
        ({"MaxNumberOfMessages": 11}, "InvalidParameterValue"),
        ({"WaitTimeSeconds": 21}, "InvalidParameterValue"),
        ({"WaitTimeSeconds": -1}, "InvalidParameterValue"),
        ({"VisibilityTimeout": 43201}, "InvalidParameterValue"),
        ({"VisibilityTimeout": -1}, "InvalidParameterValue"),
        ({"AttributeNames": ["Nope"]}, "InvalidAttributeName"),
        ({"MessageSystemAttributeNames": ["Nope"]}, "InvalidAttributeName"),
    ],
)
def test_receive_that_is_refused(given_, code):
    assert _code(check_receive, given_) == code


def test_good_receive():
    found = check_receive(
        {
            "AttributeNames": [" SenderId "],
            "MessageSystemAttributeNames": ["SentTimestamp"],
            "VisibilityTimeout": 0,
            "WaitTimeSeconds": 20,
        }
    )

    assert (found.messages_max, found.visibility_s, found.wait_s, found.system_names) == (
        1,
        0,
        20,
        {"SenderId", "SentTimestamp"},
    )
    assert check_receive({"AttributeNames": ["All"]}).system_names == messages.SYSTEM_NAMES


def test_settling():
    handle = write_handle(ReceiptHandle("sqs/q", "m", "r"))

    assert check_delete({"ReceiptHandle": handle}) == ("sqs/q", "m", "r")
    assert check_visibility({"ReceiptHandle": handle, "VisibilityTimeout": 43200}).visibility_s == 43200
    assert _code(check_visibility, {"ReceiptHandle": handle}) == "MissingParameter"
    assert _code(check_visibility, {"ReceiptHandle": handle, "VisibilityTimeout": 43201}) == "InvalidParameterValue"
    assert _code(check_visibility, {"ReceiptHandle": "x", "VisibilityTimeout": 1}) == "ReceiptHandleIsInvalid"


def test_pages_tags_permissions_and_moves():
    assert (check_page({}), check_page({"MaxResults": 5, "NextToken": "x"})) == (1000, 5)
    assert {_code(check_page, given_) for given_ in ({"NextToken": "x"}, {"MaxResults": 0}, {"MaxResults": 1001})} == {
        "InvalidParameterValue"
    }
    assert check_tags({"a": ""}, "q") == {"a": ""}
    for tags in ({"": "x"}, {"aws:x": "y"}, {"a" * 129: "x"}, {"a": "x" * 257}, {str(n): "" for n in range(51)}):
        assert _code(check_tags, tags, "q") == "InvalidParameterValue"
    good = {"Label": "l", "Actions": ["*"], "AWSAccountIds": ["000000000000"]}
    assert check_permission(good) is None
    assert _code(check_permission, {**good, "Label": "a b"}) == "InvalidParameterValue"
    assert _code(check_permission, {**good, "Actions": []}) == "MissingParameter"
    assert _code(check_permission, {**good, "AWSAccountIds": ["x"]}) == "InvalidParameterValue"
    assert (check_move_rate({}), check_move_rate({"MaxNumberOfMessagesPerSecond": 500}), check_move_page({})) == (
        None,
        500,
        1,
    )
    assert _code(check_move_rate, {"MaxNumberOfMessagesPerSecond": 501}) == "InvalidParameterValue"
    assert _code(check_move_page, {"MaxResults": 11}) == "InvalidParameterValue"


# --- queue attributes ------------------------------------------------------------------------------------------------

ARN = "arn:aws:sqs:us-east-1:000000000000:dead"


@pytest.mark.parametrize(
    ("given_", "fifo", "code"),
    [
        ({"Nope": "1"}, False, "InvalidAttributeName"),
        ({"QueueArn": "x"}, False, "InvalidAttributeName"),
        ({"FifoQueue": "true"}, False, "InvalidAttributeName"),
        ({"FifoQueue": "false"}, True, "InvalidAttributeValue"),
        ({"VisibilityTimeout": "43201"}, False, "InvalidAttributeValue"),
        ({"VisibilityTimeout": "-1"}, False, "InvalidAttributeValue"),
        ({"VisibilityTimeout": "1_0"}, False, "InvalidAttributeValue"),
        ({"DelaySeconds": "901"}, False, "InvalidAttributeValue"),
        ({"MessageRetentionPeriod": "59"}, False, "InvalidAttributeValue"),
        ({"MessageRetentionPeriod": "1209601"}, False, "InvalidAttributeValue"),
        ({"MaximumMessageSize": "1023"}, False, "InvalidAttributeValue"),
        ({"MaximumMessageSize": "1048577"}, False, "InvalidAttributeValue"),
        ({"ReceiveMessageWaitTimeSeconds": "21"}, False, "InvalidAttributeValue"),
        ({"Policy": "x"}, False, "InvalidAttributeValue"),
        ({"Policy": "[]"}, False, "InvalidAttributeValue"),
        ({"RedrivePolicy": "x"}, False, "InvalidAttributeValue"),
        ({"RedrivePolicy": "{}"}, False, "InvalidParameterValue"),
        (
            {"RedrivePolicy": json.dumps({"deadLetterTargetArn": ARN, "maxReceiveCount": 0})},
            False,
            "InvalidParameterValue",
        ),
        (
            {"RedrivePolicy": json.dumps({"deadLetterTargetArn": ARN, "maxReceiveCount": 1001})},
            False,
            "InvalidParameterValue",
        ),
        (
            {"RedrivePolicy": json.dumps({"deadLetterTargetArn": "x", "maxReceiveCount": 1})},
            False,
            "InvalidParameterValue",
        ),
        (
            {"RedrivePolicy": json.dumps({"deadLetterTargetArn": ARN, "maxReceiveCount": True})},
            False,
            "InvalidParameterValue",
        ),
        ({"RedriveAllowPolicy": '{"redrivePermission":"x"}'}, False, "InvalidAttributeValue"),
        ({"RedriveAllowPolicy": '{"redrivePermission":"byQueue"}'}, False, "InvalidAttributeValue"),
        ({"DeduplicationScope": "x"}, True, "InvalidAttributeValue"),
        ({"ContentBasedDeduplication": "x"}, True, "InvalidAttributeValue"),
        ({"KmsMasterKeyId": "k", "SqsManagedSseEnabled": "True"}, False, "InvalidAttributeName"),
    ],
)
def test_attribute_that_may_not_be_set(given_, fifo, code):
    assert _code(queue_attributes.check_attributes, given_, fifo=fifo) == code


@pytest.mark.parametrize("given_", [{"KmsMasterKeyId": "k", "SqsManagedSseEnabled": "false"}, {"KmsMasterKeyId": "k"}])
def test_one_kind_of_encryption_may_be_set(given_):
    assert queue_attributes.check_attributes(given_, fifo=False) == given_


def test_attributes_become_topic_settings():
    given_ = {
        " VisibilityTimeout ": "0045",
        "RedrivePolicy": json.dumps({"deadLetterTargetArn": ARN, "maxReceiveCount": "3"}),
    }
    stored = queue_attributes.check_attributes(given_, fifo=False)
    assert stored["VisibilityTimeout"] == "45"
    found = queue_attributes.topic_settings(stored, fifo=False, dead_letter_topic="sqs/dead")
    assert (found["max_attempts"], found["visibility_ms"], found["receipts"], found["dead_letter_to"]) == (
        3,
        45_000,
        "any",
        "sqs/dead",
    )

    fifo = queue_attributes.topic_settings({}, fifo=True, dead_letter_topic=None)
    assert (fifo["max_attempts"], fifo["receipts"], fifo["key_batch"]) == (0, "strict", 10)
    assert fifo["dedup"] == {"mode": "first_wins", "window_s": 300}
    assert queue_attributes.merged(stored, {"RedrivePolicy": ""}) == {"VisibilityTimeout": "45"}


def test_group_throughput_needs_group_dedup():
    assert (
        _code(queue_attributes.check_together, {"FifoThroughputLimit": "perMessageGroupId"}) == "InvalidAttributeValue"
    )
    assert (
        queue_attributes.check_together(
            {"FifoThroughputLimit": "perMessageGroupId", "DeduplicationScope": "messageGroup"}
        )
        is None
    )


def test_attributes_asked_for():
    everything = {**queue_attributes.effective({}, fifo=False), "QueueArn": ARN}
    assert queue_attributes.select([" QueueArn", "RedrivePolicy"], everything) == {"QueueArn": ARN}
    assert queue_attributes.select(["All", "Nope"], everything) == everything
    assert _code(queue_attributes.select, ["Nope"], everything) == "InvalidAttributeName"
    assert queue_attributes.select([], everything) == {}


# --- how messages travel ---------------------------------------------------------------------------------------------

values = st.one_of(st.text(max_size=8), st.binary(max_size=8))


@given(st.dictionaries(st.text(max_size=5), st.tuples(st.text(max_size=5), values), max_size=4), st.text(max_size=8))
@settings(max_examples=100, deadline=None)
def test_meta_comes_back(attributes, trace):
    meta = messages.MessageMeta(attributes=attributes, trace=trace)

    assert messages.unpack_meta(messages.pack_meta(meta)) == meta


@pytest.mark.parametrize("data", [None, b"", b"x", b"\x91\x01", b"\x80", b"\xff" * 9])
def test_meta_of_a_native_producer_is_empty(data):
    assert messages.unpack_meta(data) == messages.MessageMeta()


def test_a_plain_body_carries_no_meta():
    assert messages.pack_meta(messages.MessageMeta()) is None


def test_attributes_travel_and_come_back_as_they_were():
    given_ = {"a": TEXT, "b": {"DataType": "Binary.x", "BinaryValue": b"\0"}}

    assert messages.shown(messages.carried(given_)) == given_


@pytest.mark.parametrize(
    ("payload", "text", "encoded"),
    [(b"plain", "plain", False), (b"\xff", "/w==", True), (b"", "", True), (b"a\0", "YQA=", True)],
)
def test_native_payload_is_a_body_or_base64(payload, text, encoded):
    body = messages.body_of(payload)

    assert body.text == text
    assert bool(body.attributes) is encoded


def test_message_attributes_asked_for():
    attributes = {"foo.a": 1, "foo.b": 2, "bar": 3, "foobar": 4}
    select = messages.select_attributes

    assert select(["All"], attributes) == select([".*"], attributes) == attributes
    assert select(["foo.*", "bar"], attributes) == attributes
    assert select(["foo.a*", "foo..*"], attributes) == {"foo.a": 1, "foo.b": 2}
    assert select([], attributes) == select(["nope"], attributes) == {}


def test_fifo_repeats_are_told_by_id_or_body_and_by_group():
    key = messages.fifo_idem_key
    same = [key("b", "d", group=""), key("c", "d", group="")]
    others = [
        key("b", "", group=""),
        key("c", "", group=""),
        key("b", "d", group="g"),
        key("b", "d", group="h"),
        key("b", "", group="g"),
    ]

    assert len(set(same)) == 1
    assert len({*same, *others}) == 6
    # A body and its own digest as an id are one, as AWS has it.
    assert key("b", "", group="") == key("other", hashlib.sha256(b"b").hexdigest(), group="")
    assert messages.sequence_number(7) == "0" * 19 + "7"
