"""Errands to a mailbox in the same process need no task; both ways to the mailbox answer alike, and lose nothing."""

from __future__ import annotations

import asyncio
import copy
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import pytest

from penstock.kernel.lifecycle import Shutdown
from penstock.net.server.ticket import NoTicket
from penstock.services.interop.sqs.face.access_keys import AccessKey
from penstock.services.interop.sqs.face.errands import Errands
from penstock.services.interop.sqs.face.wiring import SqsOptions
from penstock.services.interop.sqs.json_protocol import encode_json, encode_written
from penstock.services.interop.sqs.operations import OPERATIONS
from penstock.services.interop.sqs.refusals import KINDS
from tests.services.interop.sqs.signed import KEY, SqsClient, SqsError, error_of
from tests.services.interop.test_authority import everything
from tests.services.interop.worlds import until

pytestmark = pytest.mark.real_loop


@asynccontextmanager
async def real(way: str = "short", **options: Any) -> AsyncIterator[SqsClient]:
    """Run the face over a real mailbox that checks every passport; the long way is that of a mailbox elsewhere."""
    async with everything(sqs=SqsOptions(**{"keys": (KEY,), **options})) as (world, _):
        sqs = SqsClient(world)
        errands = world.service.sqs._errands
        if way == "long":
            errands._backing.prompt = None
        await until(lambda: world.service.sqs.registry.loaded)
        yield sqs


def waiters(sqs: SqsClient) -> Any:
    return sqs.world.service.sqs._errands._waiters


async def refusal(asking: Any) -> tuple[int, str]:
    with pytest.raises(SqsError) as refused:
        await asking
    return refused.value.status, refused.value.code


@pytest.mark.parametrize("way", ["short", "long"])
async def test_a_receiver_for_whom_a_gateway_has_no_place_is_throttled_and_leaves_nothing(way, monkeypatch):
    async with real(way) as sqs:
        url = await sqs.queue()
        # Passports are fetched by now: the short way is taken where it can be.
        assert await sqs.receive(url) == []
        monkeypatch.setattr(NoTicket, "park", lambda _self: False)
        refused = await refusal(sqs.receive(url, WaitTimeSeconds=20))
        at_once = await sqs.receive(url)
        held = waiters(sqs).in_use

    assert refused == (429, "RequestThrottled")
    assert (at_once, held) == ([], 0)


async def _story(sqs: SqsClient) -> list[Any]:
    """Use every operation on messages, twice where a passport has to be fetched first; returns what was seen."""
    url, seen = await sqs.queue(), []
    for body in ("a", "b"):
        sent = await sqs.send(url, body, MessageAttributes={"n": {"DataType": "Number", "StringValue": "1"}})
        seen.append({name: value for name, value in sent.items() if name != "MessageId"})
    entries = [{"Id": "x", "MessageBody": "c"}, {"Id": "y", "MessageBody": "\x00"}, {"Id": "z", "MessageBody": "d"}]
    batch = await sqs("SendMessageBatch", QueueUrl=url, Entries=entries)
    seen += [[each["Id"] for each in batch["Successful"]], batch["Failed"]]
    got = await sqs.receive(url, 1, MessageAttributeNames=["All"])
    got += await sqs.receive(url, 10, MessageAttributeNames=["All"], WaitTimeSeconds=1)
    seen.append([(m["Body"], m["MD5OfBody"], m.get("MessageAttributes"), sorted(m["Attributes"])) for m in got])
    handles = {m["Body"]: m["ReceiptHandle"] for m in got}
    for _ in range(2):
        await sqs("ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=handles["a"], VisibilityTimeout=30)
    await sqs("DeleteMessage", QueueUrl=url, ReceiptHandle=handles["a"])
    await sqs("DeleteMessage", QueueUrl=url, ReceiptHandle=handles["a"])
    late = sqs("ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=handles["a"], VisibilityTimeout=30)
    seen.append(await refusal(late))
    seen.append(await refusal(sqs("DeleteMessage", QueueUrl=url, ReceiptHandle="nonsense")))
    visible = [{"Id": "1", "ReceiptHandle": handles["b"], "VisibilityTimeout": 0}]
    seen.append(await sqs("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=visible))
    (again,) = await sqs.receive(url)
    rest = [again["ReceiptHandle"], handles["c"], handles["d"], "nonsense"]
    deletes = [{"Id": str(n), "ReceiptHandle": handle} for n, handle in enumerate(rest)]
    gone = await sqs("DeleteMessageBatch", QueueUrl=url, Entries=deletes)
    seen += [again["Attributes"]["ApproximateReceiveCount"], gone["Successful"], [f["Code"] for f in gone["Failed"]]]
    return [*seen, await sqs.counts(url), await sqs("ReceiveMessage", QueueUrl=url)]


@pytest.fixture
def tasks(monkeypatch) -> list[str]:
    """The ids of the errands that took a coroutine."""
    taken: list[str] = []
    long_way = Errands._run_later
    monkeypatch.setattr(Errands, "_run_later", lambda self, e, *more: taken.append(e.op) or long_way(self, e, *more))
    return taken


async def test_both_ways_to_the_mailbox_answer_alike(tasks):
    async with real("short") as sqs:
        short, first = await _story(sqs), [*tasks]
        again = await _story(sqs)
    # One for each passport that had to be fetched, and one for a message that is not in RAM any more.
    few = len(first)
    tasks.clear()
    async with real("long") as sqs:
        long = await _story(sqs)

    assert short == again == long
    assert (few, len(tasks)) == (5, 14)
    assert short[:2] == [{"MD5OfMessageBody": "0cc175b9c0f1b6a831c399e269772661", **short[0]}, short[1]]
    assert short[-1] == {}


async def test_answers_to_operations_on_messages_are_made_without_empty_members(monkeypatch):
    written: list[dict[str, Any]] = []
    async with real() as sqs:
        monkeypatch.setattr(
            "penstock.services.interop.sqs.json_protocol.encode_written",
            lambda answer: written.append(answer) or encode_written(answer),
        )
        await _story(sqs)
        fifo = await sqs.fifo()
        await sqs.send(fifo, "f", MessageGroupId="g")
        await sqs.receive(fifo)

    on_messages = [operation for operation in OPERATIONS.values() if operation.on_messages]
    assert len(on_messages) == 7
    assert len(written) == 15
    for answer in written:
        plain = [json.loads(encode_json(operation, answer)) for operation in on_messages]
        assert json.loads(encode_written(answer)) in plain


@pytest.mark.parametrize("way", ["short", "long"])
async def test_a_client_that_leaves_gives_its_place_back_and_takes_no_message_along(way):
    async with real(way, waiters_max=1) as sqs:
        url = await sqs.queue()
        await sqs.receive(url)
        waiting = asyncio.ensure_future(sqs.bodies(url, WaitTimeSeconds=20))
        await until(lambda: waiters(sqs).in_use == 1)
        throttled = await refusal(sqs.receive(url, WaitTimeSeconds=20))
        waiting.cancel()
        await until(lambda: waiters(sqs).in_use == 0)
        await sqs.send(url, "x")
        received = await sqs.bodies(url, WaitTimeSeconds=5)

    assert throttled == (429, "RequestThrottled")
    assert received == ["x"]
    assert waiters(sqs).in_use == 0


@pytest.mark.parametrize("way", ["short", "long"])
async def test_the_drain_answers_who_waits_with_nothing(way):
    async with real(way) as sqs:
        url = await sqs.queue()
        await sqs.receive(url)
        waiting = [asyncio.ensure_future(sqs.bodies(url, WaitTimeSeconds=20)) for _ in range(3)]
        await until(lambda: waiters(sqs).in_use == 3)

    assert [await each for each in waiting] == [[], [], []]
    assert waiters(sqs).in_use == 0


@pytest.mark.parametrize("way", ["short", "long"])
async def test_a_receive_that_comes_while_its_listener_drains_does_not_wait(way, monkeypatch):
    async with real(way) as sqs:
        url = await sqs.queue()
        await sqs.receive(url)
        # As at a gateway, which lets requests in that were in its queue when the drain began.
        monkeypatch.setattr(Shutdown, "draining", True)
        received = await sqs.bodies(url, WaitTimeSeconds=20)
        monkeypatch.undo()
        await sqs.send(url, "x")
        then = await sqs.bodies(url)

    assert (received, then) == ([], ["x"])
    assert waiters(sqs).in_use == 0


async def test_a_bug_in_writing_an_answer_is_one_failure_and_the_mailbox_goes_on(monkeypatch):
    async with real() as sqs:
        url = await sqs.queue()
        await sqs.send(url, "a")
        with monkeypatch.context() as planted:
            name = "penstock.services.interop.sqs.face.message_desk.sent_answer"
            planted.setattr(name, lambda *_args, **_more: 1 / 0)
            failed = await refusal(sqs.send(url, "b"))
        await sqs.send(url, "c")
        bodies = await sqs.bodies(url)

    assert failed == (500, "InternalFailure")
    assert sorted(bodies) == ["a", "b", "c"]


async def test_what_a_key_sends_counts_for_its_tenant_and_not_for_the_bridges(monkeypatch):
    acme = AccessKey(id="ACMEKEY", secret="obviously/not+secret", name="acme", tenant="acme")
    async with real(keys=(KEY, acme)) as sqs:
        await sqs.send(await sqs.queue("bridges"), "x")
        other = SqsClient(sqs.world, key=acme)
        url = await other.queue("acmes")
        for _ in range(3):
            await other.send(url, "x")
        ledger = sqs.world.mailbox._ledger
        tenants = {name: ledger.topics[f"sqs/{name}"].tenant for name in ("bridges", "acmes")}
        # Above its share of the backlog, while there are others: it is told to wait, and the other is not.
        monkeypatch.setattr(sqs.world.mailbox._dispatcher._shares, "crowding", frozenset({"acme"}))
        crowded = await refusal(other.send(url, "y"))
        await sqs.send(await sqs.queue("bridges"), "y")
        minted = sqs.world.service.authority._issuers

    assert tenants == {"bridges": "svc-interop", "acmes": "acme"}
    assert crowded == (429, "RequestThrottled")
    assert list(minted) == ["acme"]


async def test_a_bridge_that_cannot_mint_for_a_tenant_sends_as_itself():
    acme = AccessKey(id="ACMEKEY", secret="obviously/not+secret", name="acme", tenant="acme")
    async with real(keys=(acme,)) as sqs:
        sqs.world.service.authority._mint_for = None
        other = SqsClient(sqs.world, key=acme)
        await other.send(await other.queue("acmes"), "x")
        tenant = sqs.world.mailbox._ledger.topics["sqs/acmes"].tenant

    assert tenant == "svc-interop"


# --- anything at all, to a mailbox that is real ----------------------------------------------------------------------

ODD: tuple[Any, ...] = (
    None,
    "",
    0,
    -1,
    2**63,
    2**70,
    1.5,
    True,
    [],
    {},
    [None],
    {"a": 1},
    "x" * 300,
    "\x00",
    "q2",
    "\ud800",
)


def _valid(handle: str) -> dict[str, dict[str, Any]]:
    """Say what is asked well of each operation on messages."""
    attributes = {"a": {"DataType": "Binary", "BinaryValue": "YQ=="}}
    sending = {"MessageBody": "b", "DelaySeconds": 0, "MessageAttributes": attributes, "MessageGroupId": "g"}
    visible = {"ReceiptHandle": handle, "VisibilityTimeout": 0}
    names = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"], "MessageSystemAttributeNames": ["SenderId"]}
    return {
        "SendMessage": sending,
        "SendMessageBatch": {"Entries": [{"Id": str(n), **sending} for n in range(3)]},
        "ReceiveMessage": {"MaxNumberOfMessages": 2, "VisibilityTimeout": 0, "WaitTimeSeconds": 0, **names},
        "DeleteMessage": {"ReceiptHandle": handle},
        "DeleteMessageBatch": {"Entries": [{"Id": "1", "ReceiptHandle": handle}]},
        "ChangeMessageVisibility": visible,
        "ChangeMessageVisibilityBatch": {"Entries": [{"Id": "1", **visible}]},
    }


def _spoilt(draw: random.Random, fields: dict[str, Any]) -> dict[str, Any]:
    """Change one thing about a request: a value, the whole of a field, how many entries there are, or its queue."""
    fields = copy.deepcopy({"QueueUrl": "q", **fields})
    within = fields
    if "Entries" in fields and draw.random() < 0.7:
        within = draw.choice(fields["Entries"])
    name, how = draw.choice(sorted(within)), draw.randrange(5)
    if how == 0:
        del within[name]
    elif how == 1 and isinstance(within[name], str):
        at = draw.randrange(len(within[name]) + 1)
        within[name] = within[name][:at] + draw.choice("=A\n%") + within[name][at + 1 :]
    elif how == 2 and "Entries" in fields:
        fields["Entries"] *= draw.choice((0, 2, 5))
    else:
        within[name] = draw.choice(ODD)
    return fields


def _form(operation: str, fields: dict[str, Any]) -> bytes:
    """Write a request as a form, as far as it can be; numbers for lists and maps."""
    pairs = [("Action", operation)]

    def write(name: str, value: Any) -> None:
        if isinstance(value, dict):
            for number, (key, each) in enumerate(value.items(), 1):
                write(f"{name}.{number}.Name", key)
                write(f"{name}.{number}.Value", each) if not isinstance(each, dict) else [
                    write(f"{name}.{number}.Value.{k}", v) for k, v in each.items()
                ]
        elif isinstance(value, list):
            for number, each in enumerate(value, 1):
                if isinstance(each, dict):
                    for key, inner in each.items():
                        write(f"{name}.{number}.{_singular(operation, key)}", inner)
                else:
                    write(f"{name}.{number}", each)
        elif value is not None:
            pairs.append((name, str(value).encode("utf-8", "replace").decode()))

    for name, value in fields.items():
        write(_singular(operation, name), value)
    return urlencode(pairs).encode()


def _singular(operation: str, name: str) -> str:
    known = {field.name: field.query_name for field in OPERATIONS[operation].takes}
    inner = {f.name: f.query_name for field in OPERATIONS[operation].takes for f in field.fields}
    return {**inner, **known}.get(name, name)


@pytest.mark.parametrize("protocol", ["json", "query"])
async def test_no_spoilt_operation_on_messages_makes_the_service_fail_or_lose_a_message(protocol):
    draw, answers = random.Random(20231114), []
    codes = {legacy for legacy, status in KINDS.values() if status < 500}
    async with real() as sqs:
        await sqs.queue("q2")
        await sqs.send("q2", "kept")
        kept_url = await sqs.queue("q")
        await sqs.send(kept_url, "first")
        (got,) = await sqs.receive(kept_url, VisibilityTimeout=600)
        for _ in range(120):
            operation, fields = draw.choice(sorted(_valid(got["ReceiptHandle"]).items()))
            spoilt = _spoilt(draw, fields)
            if protocol == "json":
                headers = {"X-Amz-Target": f"AmazonSQS.{operation}", "Content-Type": "application/x-amz-json-1.0"}
                answer = await sqs.raw(json.dumps(spoilt).encode(), headers)
            else:
                kind = {"Content-Type": "application/x-www-form-urlencoded"}
                answer = await sqs.raw(_form(operation, spoilt), kind)
            answers.append((answer.status, operation, spoilt, answer))
        kept = await sqs.bodies("q2")
        await sqs("PurgeQueue", QueueUrl=kept_url)
        await sqs.send(kept_url, "still here")
        last = await sqs.bodies(kept_url)
        free = waiters(sqs).in_use

    assert [each[:3] for each in answers if each[0] >= 500] == []
    refused = [error_of(each[3]) for each in answers if each[0] != 200]
    assert len(refused) > 40
    assert {code for _, code in refused} <= codes
    assert "kept" in kept
    assert (last, free) == (["still here"], 0)
