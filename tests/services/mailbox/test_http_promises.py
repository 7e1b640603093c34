"""The promises over real sockets.

Order, time, fencing, one message for one idem_key, and a storm that is refused politely.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from pathlib import Path

import pytest

from penstock.kernel.clock import SYSTEM
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from penstock.services.mailbox.config import MailboxOptions
from penstock.services.mailbox.service import SERVICE, MailboxService
from tests.services.mailbox.process import Http
from tests.services.mailbox.test_http import BAD, LISTENER, served

pytestmark = pytest.mark.real_loop


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def text(message: dict) -> str:
    return base64.b64decode(message["payload_b64"]).decode()


def settle(message: dict) -> dict:
    return {"msg_id": message["msg_id"], "receipt": message["receipt"]}


async def one(http: Http, **wishes: object) -> dict:
    _, body = await http.post("/v1/recv", {"topic": "orders", **wishes})
    (message,) = body["messages"]
    return message


async def test_lapsed_lease_comes_back_and_never_early() -> None:
    """How late it may come is shown on virtual time; here the machine may be busy."""
    async with served() as (_, http, _):
        for visibility_ms in (250, 400, 700):
            await http.post("/v1/send", {"topic": "orders", "payload_b64": b64("x")})
            asked = time.monotonic()  # the lease begins after this, and nobody knows how soon
            first = await one(http, visibility_ms=visibility_ms)
            again = await one(http, wait_ms=20_000)
            elapsed_s = time.monotonic() - asked

            assert elapsed_s >= visibility_ms / 1000
            assert (again["msg_id"], again["attempt"]) == (first["msg_id"], 2)
            assert (await http.post("/v1/ack", settle(again)))[0] == 200


async def test_receipt_is_stale_from_the_instant_its_lease_ends_and_changes_nothing() -> None:
    async with served() as (service, http, _):
        await http.post("/v1/send", {"topic": "orders", "payload_b64": b64("x")})
        first = await one(http, visibility_ms=250)
        await asyncio.sleep(0.26)
        for path, more in (("ack", {}), ("nack", {"reason": "no"}), ("extend", {"visibility_ms": 60_000})):
            status, problem = await http.post(f"/v1/{path}", settle(first) | more)
            assert (status, problem["code"], problem["reason"]) == (409, "conflict", "stale_receipt")
        again = await one(http, wait_ms=20_000)
        assert (await http.post("/v1/ack", settle(first)))[0] == 409

        assert (again["msg_id"], again["attempt"], service.state.ledger.messages) == (first["msg_id"], 2, 1)
        assert (await http.post("/v1/ack", settle(again)))[0] == 200


async def test_keys_stay_in_order_under_eight_competing_consumers() -> None:
    async with served() as (service, http, _):
        sends = [{"topic": "orders", "payload_b64": b64(str(n)), "key": f"k{n % 7}"} for n in range(140)]
        _, body = await http.post("/v1/send/batch", {"messages": sends})
        assert len(body["results"]) == 140
        seen: dict[str, list[int]] = {}

        async def consume(number: int) -> None:
            own = Http(service.listener.port)
            while sum(map(len, seen.values())) < 140:
                _, body = await own.post("/v1/recv", {"topic": "orders", "max_messages": 3, "wait_ms": 50})
                for message in body["messages"]:
                    seen.setdefault(message["key"], []).append(int(text(message)))
                await asyncio.sleep(0.001 * number)
                for message in body["messages"]:
                    # Every fifth is given back once: it must come again before the next of its key.
                    if message["attempt"] == 1 and int(text(message)) % 5 == 0:
                        seen[message["key"]].pop()
                        await own.post("/v1/nack", settle(message) | {"delay_ms": 0})
                    else:
                        await own.post("/v1/ack", settle(message))
            own.close()

        await asyncio.gather(*(consume(number) for number in range(8)))

        assert all(numbers == sorted(numbers) for numbers in seen.values())


async def test_poison_is_dead_after_five_attempts_and_comes_back_by_reprocess() -> None:
    async with served() as (_, http, _):
        await http.post("/v1/send", {"topic": "orders", "payload_b64": b64("poison")})
        for attempt in range(1, 6):
            message = await one(http, wait_ms=20_000)
            assert message["attempt"] == attempt
            _, answer = await http.post("/v1/nack", settle(message) | {"delay_ms": 0})
        assert answer["dead_lettered"] is True
        assert (await http.post("/v1/recv", {"topic": "orders"})) == (200, {"messages": []})
        _, page = await http.request("GET", "/v1/dlq?topic=orders")
        (dead,) = page["entries"]
        assert (dead["reason"], dead["attempts"], len(dead["history"])) == ("max_attempts", 5, 5)
        assert (await http.post("/v1/dlq/reprocess", {"topic": "orders", "limit": 1}))[0] == 202
        back = await one(http, wait_ms=5000)

        assert (text(back), back["attempt"], back["redriven_from"]) == ("poison", 1, dead["msg_id"])


async def test_one_idem_key_from_two_producers_at_once_is_one_message_also_after_a_restart(tmp_path: Path) -> None:
    send = {"topic": "orders", "payload_b64": b64("x"), "idem_key": "order-1"}
    found = []
    for _ in range(2):
        options = MailboxOptions(listener=LISTENER, data_dir=tmp_path, wal_bytes=1 << 20)
        service = MailboxService(Inventory(SERVICE, SYSTEM), options)
        supervisor = Supervisor(service.inventory, service.children(), service.supervision())
        await supervisor.start()
        producers = [Http(service.listener.port) for _ in range(6)]
        found += await asyncio.gather(*(http.post("/v1/send", send) for http in producers))
        _, stats = await producers[0].request("GET", "/v1/topics/orders")
        for http in producers:
            http.close()
        await supervisor.drain()
        await service.close()

    assert {status for status, _ in found} == {200}
    assert len({body["msg_id"] for _, body in found}) == 1
    assert [body["duplicate"] for _, body in found].count(False) == 1
    assert stats["ready"] == 1


@pytest.mark.parametrize("case", BAD, ids=range(len(BAD)))
async def test_bad_input_moves_one_counter_and_writes_one_line(case: tuple, caplog: pytest.LogCaptureFixture) -> None:
    method, path, body, status, code = case
    caplog.set_level("INFO", "penstock")
    async with served() as (service, http, _):
        content = b"" if body is None else json.dumps(body).encode()
        await http.request(method, path, content)
        (line,) = [record.fields for record in caplog.records if record.fields["event"] == "request.refused"]
        assert (line["status"], line["reason"], line["corr_id"]) == (status, code, http.headers["x-corr-id"])
        families = {family.name: family for family in service.inventory.metrics.families()}
        refused = [
            (dict(labels), each.value) for labels, each in families["rejected_total"].series.items() if each.value
        ]

        assert refused == [({"reason": code}, 1)]
        http.close()


async def test_storm_is_refused_with_429_and_retry_after_while_consumers_are_served() -> None:
    capacity = 32
    async with served(shard_capacity=capacity, ready_shards=2) as (service, http, _):
        for number in range(64):
            await http.post("/v1/send", {"topic": "orders", "payload_b64": b64(f"old {number}")})
        statuses: dict[int, int] = {}
        deepest, acked, calm = 0, 0, True
        workers = service.dispatcher.workers

        async def storm(number: int) -> None:
            """Send many on one connection without waiting for the answers."""
            reader, writer = await asyncio.open_connection("127.0.0.1", service.listener.port, limit=1 << 24)
            body = json.dumps({"topic": "storm", "payload_b64": b64("x")}).encode()
            head = b"POST /v1/send HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
            for _ in range(20):
                writer.write((head + body) * 8)
                for _ in range(8):
                    raw = await reader.readuntil(b"\r\n\r\n")
                    status = int(raw.split(b" ", 2)[1])
                    size = int(raw.lower().split(b"content-length: ")[1].split(b"\r")[0])
                    await reader.readexactly(size)
                    statuses[status] = statuses.get(status, 0) + 1
                    if status == 429:
                        assert int(raw.lower().split(b"retry-after: ")[1].split(b"\r")[0]) >= 1
            writer.close()

        async def watch() -> None:
            nonlocal deepest
            while calm:
                deepest = max(deepest, *(worker.work.depth for worker in workers))
                await asyncio.sleep(0)

        async def consume() -> None:
            nonlocal acked
            own = Http(service.listener.port)
            while acked < 64:
                _, body = await own.post("/v1/recv", {"topic": "orders", "max_messages": 4})
                for message in body.get("messages", []):
                    # Settlements have their own places: the storm of sends cannot keep them out.
                    assert (await own.post("/v1/ack", settle(message)))[0] == 200
                    acked += 1
            own.close()

        watching = asyncio.create_task(watch())
        await asyncio.gather(*(storm(number) for number in range(64)), consume())
        calm = False
        await watching

        assert acked == 64
        assert set(statuses) == {200, 429}
        assert deepest <= capacity
        assert statuses[200] == service.state.ledger.messages
        metrics = service.inventory.metrics
        assert metrics.value("queue_dropped_total", queue="work") >= statuses[429]
        assert metrics.value("busy_rejections_total", endpoint="/v1/send", queue="work") == statuses[429]
        assert all(0 <= metrics.value("saturation", queue="work", shard=str(n)) <= 1 for n in range(2))


async def test_latency_is_told_by_operation() -> None:
    async with served() as (service, http, _):
        await http.post("/v1/send", {"topic": "orders", "payload_b64": b64("x")})
        message = await one(http)
        await http.post(f"/ack/{message['msg_id']}", {"receipt": message["receipt"]})
        value = service.inventory.metrics.value

        assert value("request_latency_seconds", route="/v1/send", op="send") == 1
        assert value("request_latency_seconds", route="/v1/recv", op="recv") == 1
        assert value("request_latency_seconds", route="/ack/{msg_id}", op="ack") == 1
