"""Access keys survive restarts and nobody reads them; moves bring every message over exactly once."""

from __future__ import annotations

import asyncio
import json
import stat

import pytest

from penstock.kernel.clock import SYSTEM
from penstock.kernel.errors import Conflict, NotFound
from penstock.kernel.inventory import Inventory
from penstock.services.interop.authority import BridgeAuthority
from penstock.services.interop.brownout import Brownout
from penstock.services.interop.calls import BridgeCalls
from penstock.services.interop.sqs.face.access_keys import AccessKey
from penstock.services.interop.sqs.face.backing import SqsBacking
from penstock.services.interop.sqs.face.key_file import KeyFile
from penstock.services.interop.sqs.face.key_ring import KeyRing
from penstock.services.interop.sqs.refusals import SqsRefusal
from penstock.testing.contracts.memory_mailbox import MemoryMailbox
from tests.services.interop.sqs.signed import SqsClient, SqsError, error_of, face
from tests.services.interop.worlds import until

pytestmark = pytest.mark.real_loop


async def opened(folder, configured=()) -> KeyRing:
    ring = KeyRing(Inventory("test", SYSTEM), None if folder is None else KeyFile(folder), configured)
    await ring.open()
    return ring


# --- keys ------------------------------------------------------------------------------------------------------------


async def test_keys_survive_a_restart_and_the_file_shows_nothing(tmp_path):
    first = await opened(tmp_path)
    made = await first.create("billing", topics=("sqs/invoices",), ops=("recv", "ack"))
    default = first.default()
    await first.close()
    second = await opened(tmp_path)
    await second.close()

    data = (tmp_path / "sqs_keys").read_bytes()
    assert second.get(made.id) == made
    assert second.default() == default
    assert made.secret.encode() not in data
    assert made.id.encode() not in data
    assert stat.S_IMODE((tmp_path / "sqs_keys").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "sealing.key").stat().st_mode) == 0o600
    assert made.secret not in repr(made)


async def test_what_a_key_was_allowed_does_not_outlive_the_key():
    inventory = Inventory("test", SYSTEM)
    calls = BridgeCalls(inventory, "svc-passport", 1.0, Brownout())
    backing = SqsBacking(None, BridgeAuthority(inventory, None, None, calls))
    wide = AccessKey(id="K", secret="s")
    narrow = AccessKey(id="K", secret="s", ops=("recv",))

    assert backing.ready_call(wide, "send", "sqs/q", "c") == backing.ready_call(wide, "send", "sqs/q", "c")
    with pytest.raises(SqsRefusal, match="may not send"):
        backing.ready_call(narrow, "send", "sqs/q", "c")


async def test_a_revoked_key_is_refused_at_once_and_after_a_restart(tmp_path):
    ring = await opened(tmp_path)
    made = await ring.create("x")
    await ring.revoke(made.id)
    gone = ring.secret(made.id)
    with pytest.raises(NotFound):
        await ring.revoke(made.id)
    await ring.close()
    again = await opened(tmp_path)
    await again.close()

    assert gone is None
    assert again.get(made.id) is None


async def test_a_file_that_does_not_open_is_not_overwritten_and_nobody_is_served(tmp_path):
    ring = await opened(tmp_path)
    await ring.close()
    before = (tmp_path / "sqs_keys").read_bytes()
    (tmp_path / "sealing.key").write_bytes(b"another secret")

    async with face(folder=tmp_path) as sqs:
        answer = await sqs.ask("ListQueues")
        ready = await sqs.world.http.ask("GET", "/readyz")

    assert error_of(answer) == (503, "ServiceUnavailable")
    assert ready.status == 503
    assert "sqs_keys" in ready.json()["missing"]
    assert (tmp_path / "sqs_keys").read_bytes() == before


async def test_a_key_that_cannot_be_written_is_none(tmp_path, monkeypatch):
    ring = await opened(tmp_path)
    monkeypatch.setattr(KeyFile, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    before = ring.all()

    with pytest.raises(Exception, match="cannot be written"):
        await ring.create("x")

    assert ring.all() == before
    await ring.close()


async def test_keys_made_at_the_same_time_are_all_kept_and_they_are_bounded(tmp_path, monkeypatch):
    ring = await opened(tmp_path)
    making = [asyncio.ensure_future(ring.create(str(number))) for number in range(8)]
    await asyncio.wait(making)
    made = [each.result() for each in making]
    monkeypatch.setattr("penstock.services.interop.sqs.face.key_ring.KEYS_MAX", 9)
    with pytest.raises(Conflict):
        await ring.create("one more")
    await ring.close()
    again = await opened(tmp_path)
    await again.close()

    assert {key.id for key in made} <= {key.id for key in again.all()}


async def test_configured_keys_are_swapped_by_a_reload_and_cannot_be_revoked():
    ring = await opened(None, [AccessKey(id="CONFIGURED", secret="s1")])
    with pytest.raises(NotFound, match="settings"):
        await ring.revoke("CONFIGURED")
    ring.configure([AccessKey(id="CONFIGURED", secret="s2")])
    await ring.close()

    assert ring.secret("CONFIGURED") == "s2"


async def test_the_operator_makes_lists_and_revokes_keys_by_http():
    async with face() as sqs:
        ask = sqs.world.http.ask
        made = await ask("POST", "/v1/sqs/keys", b'{"name": "ci", "topics": ["sqs/ci"]}')
        key = AccessKey(id=made.json()["access_key_id"], secret=made.json()["secret_access_key"])
        url = await SqsClient(sqs.world, key=key).queue("ci-jobs")
        listed = (await ask("GET", "/v1/sqs/keys")).json()["keys"]
        bad = await ask("POST", "/v1/sqs/keys", b'{"ops": ["fly"]}')
        gone = await ask("DELETE", f"/v1/sqs/keys/{key.id}")
        with pytest.raises(SqsError) as refused:
            await SqsClient(sqs.world, key=key).send(url, "x")
        env = (await ask("GET", "/v1/sqs/env")).json()

    assert made.status == 201
    assert {each["name"] for each in listed} == {"ci", "default", "test"}
    assert all("secret_access_key" not in each for each in listed)
    assert (bad.status, gone.status, refused.value.code) == (400, 200, "InvalidClientTokenId")
    assert env["endpoint"] == f"http://127.0.0.1:{sqs.world.http.port}"


# --- moves -----------------------------------------------------------------------------------------------------------


def arn(name: str) -> str:
    return f"arn:aws:sqs:us-east-1:000000000000:{name}"


async def a_dead_letter_queue(sqs: SqsClient, count: int) -> tuple[str, str]:
    """Make a source and its dead-letter queue with so many messages, sent to it directly."""
    dead = await sqs.queue("dead")
    source = await sqs.queue(
        "source", RedrivePolicy=json.dumps({"deadLetterTargetArn": arn("dead"), "maxReceiveCount": 1})
    )
    for number in range(count):
        await sqs.send(dead, f"m{number}", MessageAttributes={"n": {"DataType": "Number", "StringValue": str(number)}})
    return dead, source


async def finished(sqs: SqsClient, status: str) -> dict:
    """Wait for the newest move of the dead-letter queue to end."""
    book = sqs.world.service.sqs.registry.book
    await until(lambda: book.by_topic("sqs/dead").record.moves[0].status == status)
    return (await sqs("ListMessageMoveTasks", SourceArn=arn("dead")))["Results"][0]


async def test_a_move_brings_every_message_to_its_source_with_its_attributes():
    async with face() as sqs:
        dead, source = await a_dead_letter_queue(sqs, 7)
        started = await sqs("StartMessageMoveTask", SourceArn=arn("dead"))
        done = await finished(sqs, "COMPLETED")
        messages = await sqs.receive(source, MessageAttributeNames=["All"])
        left = await sqs.counts(dead)

    assert started["TaskHandle"]
    assert done["ApproximateNumberOfMessagesMoved"] == 7
    assert {(m["Body"], m["MessageAttributes"]["n"]["StringValue"]) for m in messages} == {
        (f"m{n}", str(n)) for n in range(7)
    }
    assert left == (0, 0, 0)


async def test_a_move_goes_on_after_a_restart():
    mailbox = MemoryMailbox(SYSTEM)
    async with face(mailbox=mailbox) as sqs:
        dead, source = await a_dead_letter_queue(sqs, 20)
        await sqs("StartMessageMoveTask", SourceArn=arn("dead"), MaxNumberOfMessagesPerSecond=1)
        await until(lambda: sqs.world.count("sqs_messages_moved_total") >= 1)
        moving = (await sqs("ListMessageMoveTasks", SourceArn=arn("dead")))["Results"][0]
    async with face(mailbox=mailbox) as sqs:
        await until(lambda: sqs.world.count("sqs_messages_moved_total") >= 1)
        moved = sum([(await sqs.counts(url))[0] for url in (dead, source)])
        task = (await sqs("ListMessageMoveTasks", SourceArn=arn("dead")))["Results"][0]
        await sqs("CancelMessageMoveTask", TaskHandle=task["TaskHandle"])
        cancelled = (await sqs("ListMessageMoveTasks", SourceArn=arn("dead")))["Results"][0]

    assert moving["Status"] == "RUNNING"
    assert moved == 20
    assert cancelled["Status"] == "CANCELLED"
    assert "TaskHandle" not in cancelled


async def test_what_cannot_be_moved_is_refused():
    async with face() as sqs:
        await a_dead_letter_queue(sqs, 1)
        await sqs.fifo("other.fifo")
        codes = []
        for params in (
            {"SourceArn": arn("nowhere")},
            {"SourceArn": arn("source")},
            {"SourceArn": arn("dead"), "DestinationArn": arn("nowhere")},
            {"SourceArn": arn("dead"), "DestinationArn": arn("other.fifo")},
            {"SourceArn": arn("dead"), "DestinationArn": arn("dead")},
            {"SourceArn": arn("dead"), "MaxNumberOfMessagesPerSecond": 501},
        ):
            with pytest.raises(SqsError) as refused:
                await sqs("StartMessageMoveTask", **params)
            codes.append((refused.value.status, refused.value.code))

    assert codes == [
        (404, "ResourceNotFoundException"),
        (400, "InvalidParameterValue"),
        (404, "ResourceNotFoundException"),
        *[(400, "InvalidParameterValue")] * 3,
    ]


async def test_one_move_of_a_queue_at_a_time():
    async with face() as sqs:
        await a_dead_letter_queue(sqs, 5)
        await sqs("StartMessageMoveTask", SourceArn=arn("dead"), MaxNumberOfMessagesPerSecond=1)
        with pytest.raises(SqsError) as refused:
            await sqs("StartMessageMoveTask", SourceArn=arn("dead"))

    assert "already a task running" in refused.value.message
