"""Requests that botocore writes are understood, answers that we write are read by botocore, in both protocols."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.services.interop.sqs import json_protocol, query_json, query_protocol
from penstock.services.interop.sqs.operations import OPERATIONS
from penstock.services.interop.sqs.refusals import KINDS, SqsRefusal
from tests.services.interop.sqs import botocore_models as oracle

# Texts that a form, JSON and XML all have to bring across whole.
text = st.text(
    st.characters(
        codec="utf-8", exclude_categories=("Cs", "Cc"), include_characters="\t\n\r", exclude_characters="\ufffe\uffff"
    ),
    min_size=1,
    max_size=20,
)
name = st.text("abcdefghijklmnopqrstuvwxyz0123456789_-", min_size=1, max_size=10)
whole = st.integers(0, 2**31 - 1)


def _drawn(shape, depth=0):
    """Make values of a botocore shape; optional members may be missing."""
    match shape.type_name:
        case "structure":
            members = {
                key: _drawn(member, depth + 1)
                for key, member in shape.members.items()
                if not key.endswith("ListValues")
            }
            needed = {key: value for key, value in members.items() if key in shape.required_members}
            return st.fixed_dictionaries(
                needed, optional={key: value for key, value in members.items() if key not in needed}
            )
        case "list":
            return st.lists(_drawn(shape.member, depth + 1), min_size=1, max_size=3)
        case "map":
            return st.dictionaries(name, _drawn(shape.value, depth + 1), min_size=1, max_size=3)
        case "integer" | "long":
            return whole
        case "boolean":
            return st.booleans()
        case "blob":
            return st.binary(min_size=1, max_size=20)
        case _:
            return text


def _decode(protocol, operation, request):
    if protocol == "json":
        found = json_protocol.operation_of(request["headers"]["X-Amz-Target"].encode())
        return found, json_protocol.decode_json(found, request["body"])
    tree = query_protocol.decode_form(urlencode(request["body"]).encode())
    found = query_protocol.operation_of(tree)
    return found, query_protocol.decode_query(found, tree)


def _encode(protocol, operation, answer):
    if protocol == "json":
        return json_protocol.encode_json(OPERATIONS[operation], answer)
    return query_protocol.encode_query(OPERATIONS[operation], answer, "req-1")


@pytest.mark.parametrize("protocol", ["json", "query"])
@pytest.mark.parametrize("operation", OPERATIONS)
@given(data=st.data())
@settings(max_examples=12, deadline=None)
def test_request_by_botocore_is_understood(protocol, operation, data):
    params = data.draw(_drawn(oracle.service(protocol).operation_model(operation).input_shape))

    found, fields = _decode(protocol, operation, oracle.serialize(protocol, operation, params))

    assert found.name == operation
    assert fields == params


@pytest.mark.parametrize("protocol", ["json", "query"])
@pytest.mark.parametrize("operation", [name for name, operation in OPERATIONS.items() if operation.answers])
@given(data=st.data())
@settings(max_examples=12, deadline=None)
def test_answer_is_read_whole_by_botocore(protocol, operation, data):
    answer = data.draw(_drawn(oracle.service(protocol).operation_model(operation).output_shape))

    read = oracle.parse(protocol, operation, 200, {}, _encode(protocol, operation, answer))
    read.pop("ResponseMetadata")

    # An empty list stays where clients expect one to look into.
    assert {key: value for key, value in read.items() if value != []} == answer


def test_all_operations_of_the_api_are_there():
    assert set(OPERATIONS) == set(oracle.service("json").operation_names)
    assert len(OPERATIONS) == 23


@pytest.mark.parametrize("operation", [name for name, operation in OPERATIONS.items() if not operation.answers])
def test_operation_without_an_answer_has_an_empty_one(operation):
    assert _encode("json", operation, {}) == b"{}"
    assert (
        oracle.parse("query", operation, 200, {}, _encode("query", operation, {}))["ResponseMetadata"]["RequestId"]
        == "req-1"
    )


def test_empty_receive_has_no_messages():
    assert _encode("json", "ReceiveMessage", {"Messages": []}) == b"{}"
    assert "Messages" not in oracle.parse(
        "query", "ReceiveMessage", 200, {}, _encode("query", "ReceiveMessage", {"Messages": []})
    )


def test_batch_always_says_what_succeeded():
    assert _encode("json", "DeleteMessageBatch", {"Successful": [], "Failed": []}) == b'{"Successful":[]}'


# --- errors ----------------------------------------------------------------------------------------------------------


# In XML AWS has other words for these.
OTHER_IN_XML = {"QueueDoesNotExist", "UnknownOperationException"}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in OTHER_IN_XML])
def test_error_has_its_old_code_in_both_protocols(kind):
    refusal = SqsRefusal(kind, 'It is <wrong> & "so".')
    body, fields = json_protocol.encode_json_refusal(refusal)
    headers = {key.decode(): value.decode() for key, value in fields}

    read = [
        oracle.parse("json", "SendMessage", refusal.status, headers, body),
        oracle.parse("query", "SendMessage", refusal.status, {}, query_protocol.encode_query_refusal(refusal, "req-1")),
    ]

    assert [each["Error"]["Code"] for each in read] == [refusal.legacy] * 2
    assert [each["Error"]["Message"] for each in read] == [refusal.message] * 2
    assert read[1]["ResponseMetadata"]["RequestId"] == "req-1"


def test_an_unknown_queue_and_a_request_for_nothing_have_words_of_their_own_in_xml():
    gone = SqsRefusal("QueueDoesNotExist", "The specified queue does not exist.")
    nothing = SqsRefusal("UnknownOperationException", "")

    read = oracle.parse("query", "SendMessage", 400, {}, query_protocol.encode_query_refusal(gone, "req-1"))

    assert read["Error"]["Message"] == "The specified queue does not exist for this wsdl version."
    assert read["Error"]["Code"] == "AWS.SimpleQueueService.NonExistentQueue"
    assert query_protocol.encode_query_refusal(nothing, "req-1") == b"<UnknownOperationException/>"
    assert b"wsdl" in query_json.encode_query_json_refusal(gone, "req-1")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"x", "SerializationException"),
        (b"[]", "SerializationException"),
        (b"\xff", "SerializationException"),
        (b"[" * 100_000, "SerializationException"),
        (b'{"QueueUrl":1,"MessageBody":"b"}', "SerializationException"),
        (b'{"QueueUrl":"q"}', "MissingParameter"),
        (b"", "MissingParameter"),
        (b'{"QueueUrl":null,"MessageBody":"b"}', "MissingParameter"),
        (b'{"QueueUrl":"q","MessageBody":"b","DelaySeconds":"1"}', "SerializationException"),
        (b'{"QueueUrl":"q","MessageBody":"b","DelaySeconds":true}', "SerializationException"),
        (b'{"QueueUrl":"q","MessageBody":"b","DelaySeconds":1.5}', "SerializationException"),
        (b'{"QueueUrl":"q","MessageBody":"b","DelaySeconds":99999999999999999999}', "SerializationException"),
        (b'{"QueueUrl":"q","MessageBody":"b","MessageAttributes":[]}', "SerializationException"),
        (b'{"QueueUrl":"q","MessageBody":"b","MessageAttributes":{"a":1}}', "SerializationException"),
        (
            b'{"QueueUrl":"q","MessageBody":"b","MessageAttributes":{"a":{"DataType":"Binary","BinaryValue":"!"}}}',
            "SerializationException",
        ),
        (b'{"QueueUrl":"q","MessageBody":"b","MessageAttributes":{"a":{}}}', "MissingParameter"),
    ],
)
def test_broken_json_is_refused(body, code):
    with pytest.raises(SqsRefusal) as refused:
        json_protocol.decode_json(OPERATIONS["SendMessage"], body)

    assert refused.value.legacy == code


@pytest.mark.parametrize("target", [b"", b"AmazonSQS", b"AmazonSQS.", b"AmazonSQS.Nope", b"Other.SendMessage", b"\xff"])
def test_unknown_target_is_refused(target):
    with pytest.raises(SqsRefusal, match="not valid"):
        json_protocol.operation_of(target)


@pytest.mark.parametrize(
    ("form", "code"),
    [
        (b"", "MissingAction"),
        (b"Action=", "MissingAction"),
        (b"Action=Nope", "InvalidAction"),
        (b"Action.1=SendMessage", "MissingAction"),
        (b"Action=SendMessage&Action=SendMessage", "MalformedQueryString"),
        (b"Action=%ff", "MalformedQueryString"),
        (b"\xff", "MalformedQueryString"),
        (b"&".join(b"a%d=1" % n for n in range(2001)), "MalformedQueryString"),
        (b"Action=SendMessage", "MissingParameter"),
        (b"Action=SendMessage&QueueUrl=q", "MissingParameter"),
        (b"Action=SendMessage&QueueUrl.1=q&MessageBody=b", "InvalidParameterValue"),
        (b"Action=SendMessage&QueueUrl=q&MessageBody=b&DelaySeconds=1_0", "InvalidParameterValue"),
        (b"Action=SendMessage&QueueUrl=q&MessageBody=b&DelaySeconds=", "InvalidParameterValue"),
        (b"Action=SendMessage&QueueUrl=q&MessageBody=b&MessageAttribute.x.Name=a", "InvalidParameterValue"),
        (b"Action=SendMessage&QueueUrl=q&MessageBody=b&MessageAttribute.1=a", "InvalidParameterValue"),
        (b"Action=SendMessage&QueueUrl=q&MessageBody=b&MessageAttribute.1.Name=a", "InvalidParameterValue"),
        (
            b"Action=SendMessage&QueueUrl=q&MessageBody=b&MessageAttribute.1.Value.DataType=String",
            "InvalidParameterValue",
        ),
        (b"Action=SendMessage&QueueUrl=q&QueueUrl.1=r&MessageBody=b", "MalformedQueryString"),
        (b"Action=SendMessage&QueueUrl.1=r&QueueUrl=q&MessageBody=b", "MalformedQueryString"),
    ],
)
def test_broken_form_is_refused(form, code):
    with pytest.raises(SqsRefusal) as refused:
        _read_form(form)

    assert refused.value.legacy == code


def _read_form(form):
    tree = query_protocol.decode_form(form)
    return query_protocol.decode_query(query_protocol.operation_of(tree), tree)


def _is_fields_or_refused(read, *args):
    """Tell whether the bytes were understood or refused as the caller's fault; anything else is raised."""
    try:
        return isinstance(read(*args), dict)
    except SqsRefusal as refusal:
        return refusal.status == 400


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_fields_or_a_refusal(data):
    assert all(_is_fields_or_refused(json_protocol.decode_json, operation, data) for operation in OPERATIONS.values())
    assert _is_fields_or_refused(query_protocol.decode_form, data)


PARTS = [
    "Action",
    "SendMessageBatch",
    "SendMessageBatchRequestEntry",
    "1",
    "2",
    "Id",
    "MessageAttribute",
    "Name",
    "Value",
    "member",
    "",
    "x",
]


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(PARTS), min_size=1, max_size=6), st.sampled_from(["SendMessageBatch", "", "1"])
        ),
        max_size=8,
    )
)
@settings(max_examples=300, deadline=None)
def test_any_names_in_a_form_are_fields_or_a_refusal(pairs):
    form = urlencode([("QueueUrl", "q"), *((".".join(parts), value) for parts, value in pairs)]).encode()
    assert _is_fields_or_refused(_read_batch, form)


def _read_batch(form):
    return query_protocol.decode_query(OPERATIONS["SendMessageBatch"], query_protocol.decode_form(form))


def test_lists_may_be_spelled_with_member_and_in_any_order():
    tree = query_protocol.decode_form(b"QueueUrl=q&AttributeName.2=b&AttributeName.10=c&AttributeName.1=a")
    member = query_protocol.decode_form(b"QueueUrl=q&AttributeName.member.1=a")
    single = query_protocol.decode_form(b"QueueUrl=q&AttributeName=a")
    operation = OPERATIONS["GetQueueAttributes"]

    assert query_protocol.decode_query(operation, tree)["AttributeNames"] == ["a", "b", "c"]
    assert query_protocol.decode_query(operation, member)["AttributeNames"] == ["a"]
    assert query_protocol.decode_query(operation, single)["AttributeNames"] == ["a"]
