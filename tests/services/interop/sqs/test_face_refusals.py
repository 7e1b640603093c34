"""Whatever is wrong with a request, the answer is an AWS error with the right code, and never a 5xx."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import urlencode

import msgspec
import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config import ConfigFaults, Sources, listener_settings, load
from penstock.kernel.clock import SYSTEM
from penstock.kernel.errors import DownstreamUnavailable, Timeout
from penstock.node.services import schema
from penstock.services.interop.config import InteropOptions
from penstock.services.interop.sqs.operations import OPERATIONS
from penstock.testing.contracts.memory_mailbox import MemoryMailbox
from tests.services.interop.sqs.signed import KEY, error_of, face

pytestmark = pytest.mark.real_loop
JSON = {"X-Amz-Target": "AmazonSQS.ListQueues", "Content-Type": "application/x-amz-json-1.0"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


# --- who asks --------------------------------------------------------------------------------------------------------


async def test_unsigned_and_wrongly_signed_requests_are_refused_by_their_codes():
    async with face() as sqs:
        ask = sqs.world.http.ask
        target = tuple((name.encode(), value.encode()) for name, value in JSON.items())
        unsigned = await ask("POST", "/", b"{}", target)
        form = await ask("GET", "/?Action=ListQueues")
        sqs.key = msgspec.structs.replace(KEY, secret="another secret")
        wrong = await sqs.raw(b"{}", JSON)
        sqs.key = msgspec.structs.replace(KEY, id="NOSUCHKEY")
        unknown = await sqs.raw(b"{}", JSON)
        sqs.key = KEY
        changed = await ask("POST", "/", b'{"a": 1}', sqs.signed("POST", "/", b"{}", JSON))
        session = await sqs.raw(b"{}", {**JSON, "X-Amz-Security-Token": "t"})
        garbled = await ask("POST", "/", b"{}", (*target, (b"Authorization", b"AWS4-HMAC-SHA256 nonsense")))

    assert error_of(unsigned) == error_of(form) == (403, "MissingAuthenticationToken")
    assert error_of(wrong) == error_of(changed) == (403, "SignatureDoesNotMatch")
    assert error_of(unknown) == error_of(session) == (403, "InvalidClientTokenId")
    assert error_of(garbled) == (403, "IncompleteSignature")
    assert unsigned.headers["x-amzn-requestid"] == unsigned.headers["x-corr-id"]


async def test_a_clock_that_is_wrong_by_more_than_a_quarter_of_an_hour_is_refused(monkeypatch):
    async with face() as sqs:
        codes = []
        for shift_s in (-1000, -800, 800, 1000):
            from botocore import auth

            now = auth.get_current_datetime()
            monkeypatch.setattr(
                auth, "get_current_datetime", lambda *_, now=now, shift_s=shift_s, **__: now + _seconds(shift_s)
            )
            answer = await sqs.raw(b"{}", JSON)
            monkeypatch.undo()
            codes.append(200 if answer.status == 200 else error_of(answer))

    assert codes == [(403, "RequestExpired"), 200, 200, (403, "RequestExpired")]


def _seconds(count):
    from datetime import timedelta

    return timedelta(seconds=count)


async def test_a_presigned_get_works_and_a_changed_one_does_not():
    async with face() as sqs:
        await sqs.queue("q")
        query = urlencode({"Action": "SendMessage", "MessageBody": "by url"})
        request = AWSRequest("GET", f"http://localhost/000000000000/q?{query}", headers={"Host": "localhost"})
        SigV4QueryAuth(Credentials(KEY.id, KEY.secret), "sqs", "us-east-1", expires=60).add_auth(request)
        target = request.url.removeprefix("http://localhost")
        sent = await sqs.world.http.ask("GET", target)
        changed = await sqs.world.http.ask("GET", target.replace("by+url", "forged").replace("by%20url", "forged"))
        bodies = await sqs.bodies("q")

    assert sent.status == 200
    assert error_of(changed) == (403, "SignatureDoesNotMatch")
    assert bodies == ["by url"]


async def test_a_key_reaches_only_what_its_grant_covers():
    narrow = msgspec.structs.replace(KEY, id="NARROWKEY", topics=("sqs/orders",), ops=("recv", "ack"))
    async with face(keys=(KEY, narrow)) as sqs:
        orders, bills = await sqs.queue("orders"), await sqs.queue("bills")
        await sqs.send(orders, "x")
        sqs.key = narrow
        received = await sqs.bodies(orders)
        listed = (await sqs("ListQueues"))["QueueUrls"]
        codes = {
            error_of(await sqs.ask("SendMessage", QueueUrl=orders, MessageBody="x")),
            error_of(await sqs.ask("ReceiveMessage", QueueUrl=bills)),
            error_of(await sqs.ask("GetQueueAttributes", QueueUrl=bills, AttributeNames=["All"])),
            error_of(await sqs.ask("PurgeQueue", QueueUrl=orders)),
            error_of(await sqs.ask("DeleteQueue", QueueUrl=orders)),
            error_of(await sqs.ask("CreateQueue", QueueName="orders2")),
            error_of(await sqs.ask("TagQueue", QueueUrl=orders, Tags={"a": "b"})),
        }

    assert received == ["x"]
    assert listed == [orders]
    assert codes == {(403, "AccessDenied")}


# --- what the listener refuses ---------------------------------------------------------------------------------------


async def test_refusals_of_the_listener_speak_the_protocol_on_the_paths_of_the_face():
    async with face() as sqs:
        ask = sqs.world.http.ask
        put = await ask("PUT", "/", b"{}")
        account = await ask("POST", "/12345/q", b"")
        deep = await ask("POST", "/queue/us-east-1/000000000000/b%2Fad", b"")
        large = await ask("POST", "/", b"x" * ((8 << 20) + 1), ((b"X-Amz-Target", b"AmazonSQS.ListQueues"),))
        other = await ask("POST", "/webhooks/nobody", b"{}")

    assert [error_of(each) for each in (put, account, deep)] == [
        (400, "InvalidAction"),
        (404, "InvalidAddress"),
        (404, "InvalidAddress"),
    ]
    assert error_of(large) == (400, "InvalidParameterValue")
    assert other.headers["content-type"] == "application/problem+json"


async def test_a_foreign_host_is_refused_in_the_protocols_words():
    async with face() as sqs:
        reader, writer = await asyncio.open_connection("127.0.0.1", sqs.world.http.port)
        writer.write(b"POST / HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        data = await reader.read()
        writer.close()

    assert b"<Code>InvalidAddress</Code>" in data


async def test_all_the_paths_lead_to_the_service():
    async with face() as sqs:
        url = await sqs.queue("q")
        paths = ("/", "/sqs", "/sqs/", "/000000000000/q", "/sqs/000000000000/q", "/queue/us-east-1/000000000000/q")
        statuses = [(await sqs.ask("ReceiveMessage", path, QueueUrl=url)).status for path in paths]
        sqs.protocol = "query"
        by_path = [
            (await sqs.raw(b"Action=GetQueueAttributes&AttributeName.1=All", FORM, path=path)).status
            for path in paths[3:]
        ]

    assert statuses == [200] * 6
    assert by_path == [200] * 3


class Failing(MemoryMailbox):
    """A mailbox whose sends and receives fail."""

    error: Exception = DownstreamUnavailable("down")

    async def send(self, request, call=None):
        raise self.error

    async def recv(self, request, call=None):
        raise self.error


@pytest.mark.parametrize("error", [DownstreamUnavailable("down"), Timeout("send", budget_s=1.0)])
async def test_a_mailbox_that_does_not_answer_is_service_unavailable(error):
    mailbox = Failing(SYSTEM)
    mailbox.error = error
    async with face(mailbox=mailbox) as sqs:
        url = await sqs.queue()
        sent = await sqs.ask("SendMessage", QueueUrl=url, MessageBody="x")
        received = await sqs.ask("ReceiveMessage", QueueUrl=url)

    assert error_of(sent) == error_of(received) == (503, "ServiceUnavailable")


async def test_a_rate_of_its_own_throttles():
    async with face(rps=2) as sqs:
        codes = [(await sqs.ask("ListQueues")).status for _ in range(4)]

    assert codes[0] == 200
    assert 429 in codes


# --- batches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([], "AWS.SimpleQueueService.EmptyBatchRequest"),
        (
            [{"Id": str(n), "MessageBody": "x"} for n in range(11)],
            "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
        ),
        ([{"Id": "a", "MessageBody": "x"}] * 2, "AWS.SimpleQueueService.BatchEntryIdsNotDistinct"),
        ([{"Id": "a b", "MessageBody": "x"}], "AWS.SimpleQueueService.InvalidBatchEntryId"),
        (
            [{"Id": str(n), "MessageBody": "x" * 600_000} for n in range(2)],
            "AWS.SimpleQueueService.BatchRequestTooLong",
        ),
    ],
)
async def test_bad_batches_are_refused_whole(entries, code):
    async with face() as sqs:
        url = await sqs.queue()
        body = json.dumps({"QueueUrl": url, "Entries": entries}).encode()
        answer = await sqs.raw(body, {**JSON, "X-Amz-Target": "AmazonSQS.SendMessageBatch"})
        counts = await sqs.counts(url)

    assert error_of(answer) == (400, code)
    assert counts == (0, 0, 0)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("\x00", "InvalidMessageContents"),
        ("￾", "InvalidMessageContents"),
        ("x" * (1 << 20 | 1), "InvalidParameterValue"),
    ],
)
async def test_bodies_that_are_no_text_or_too_long_are_refused(body, code):
    async with face() as sqs:
        url = await sqs.queue()
        answer = await sqs.raw(
            json.dumps({"QueueUrl": url, "MessageBody": body}).encode(),
            {**JSON, "X-Amz-Target": "AmazonSQS.SendMessage"},
        )
        longest = await sqs.send(url, "x" * (1 << 20))

    assert error_of(answer) == (400, code)
    assert longest["MessageId"]


# --- anything at all -------------------------------------------------------------------------------------------------

leaf = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.text(max_size=12), st.floats(allow_nan=False)
)
anything = st.recursive(
    leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
)
fields = sorted({field.name for operation in OPERATIONS.values() for field in operation.takes})
document = st.one_of(
    st.dictionaries(st.sampled_from(fields), anything, max_size=6).map(lambda made: json.dumps(made).encode()),
    st.binary(max_size=60),
)
form_name = st.one_of(
    st.sampled_from(["QueueUrl", "Attribute.1.Name", "Entries.1.Id", "SendMessageBatchRequestEntry.1.Id", "TagKey.1"]),
    st.text("AaQq.1", max_size=12),
    st.sampled_from(fields),
)
form = st.lists(st.tuples(form_name, st.text(max_size=8)), max_size=6)


@pytest.mark.parametrize("protocol", ["json", "query"])
def test_no_body_that_is_signed_well_makes_the_service_fail(protocol):
    """One bridge takes every example: what one leaves behind must not hurt the next."""
    requests: list[tuple[bytes, dict[str, str]]] = []

    @given(operation=st.sampled_from(sorted(OPERATIONS)), body=document, pairs=form)
    @settings(max_examples=150)
    def draw(operation, body, pairs):
        if protocol == "json":
            requests.append((body, {**JSON, "X-Amz-Target": f"AmazonSQS.{operation}"}))
        else:
            requests.append((urlencode([("Action", operation), *pairs]).encode(), FORM))

    draw()
    answers = asyncio.run(_ask_all(requests))

    assert [answer for answer in answers if answer.status >= 500] == []
    assert all(error_of(answer)[0] == answer.status for answer in answers if answer.status >= 300)


async def _ask_all(requests):
    async with face() as sqs:
        await sqs.queue("q")
        answers = [await sqs.raw(body, headers) for body, headers in requests]
        assert await sqs.send("q", "still here")
    return answers


def test_the_host_of_the_faces_own_url_is_one_that_the_listener_answers_to():
    chosen = load(schema(), Sources(sets=("interop.sqs.url=https://sqs.example.org:8443/",)))

    assert "sqs.example.org" in listener_settings(chosen, "interop").allowed_hosts
    assert InteropOptions.from_settings(chosen).sqs.url == "https://sqs.example.org:8443"


@pytest.mark.parametrize(
    "said",
    [
        ("interop.sqs.account=12",),
        ("interop.sqs.keys.k.secret=env:NO_SUCH_VARIABLE",),
        ("interop.sqs.keys.k.id=a b", "interop.sqs.keys.k.secret=env:SQS_TEST_SECRET"),
        ("interop.sqs.keys.k.ops=fly", "interop.sqs.keys.k.secret=env:SQS_TEST_SECRET"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_start(said):
    with pytest.raises(ConfigFaults):
        load(schema(), Sources(sets=said, environ={"SQS_TEST_SECRET": "not a secret"}))


@pytest.mark.parametrize(("address", "enabled"), [("127.0.0.1:5309", True), ("0.0.0.0:5309", False)])
def test_the_face_is_on_by_itself_on_loopback_only(address, enabled):
    chosen = load(schema(), Sources(sets=(f"interop.bind_addr={address}",)))

    assert InteropOptions.from_settings(chosen).sqs.enabled is enabled
