"""The routes over real sockets: what they take, what they refuse, and what a refusal leaves behind."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.config import ListenerSettings
from penstock.contracts.capability import Grant, RequestContext
from penstock.contracts.mailbox import Recv, Send
from penstock.kernel.clock import SYSTEM
from penstock.kernel.errors import Forbidden, Unauthenticated
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from penstock.services.mailbox.config import MailboxBounds, MailboxOptions
from penstock.services.mailbox.engines.memory import MemoryEngine
from penstock.services.mailbox.service import SERVICE, MailboxService
from tests.services.mailbox.process import Http

pytestmark = pytest.mark.real_loop
LISTENER = ListenerSettings(
    host="127.0.0.1", port=0, uds_path=None, uds_allow_uids=(), max_conns=256, max_conns_per_ip=256,
    read_timeout_s=60.0, write_timeout_s=60.0, idle_timeout_s=60.0, request_deadline_s=30.0, body_bytes_max=1 << 20,
    decompress_ratio_cap=10, tls_cert_path=None, tls_key_path=None, allowed_hosts=(),
)  # fmt: skip
HI = base64.b64encode(b"hi").decode()


class Listed:
    """A verifier that knows two tokens: one for everything, one for receiving from `orders`."""

    def verify(self, token: str, context: RequestContext, *, cost_bytes: int = 0) -> Grant:
        if token not in ("all", "reader"):
            raise Unauthenticated(reason="invalid")
        if token == "reader" and (context.op, context.topic) != ("recv", "orders"):
            raise Forbidden(reason="caveat")
        return Grant("me", "sub:me", "authed", "t", ("svc-mailbox",), 0)

    def check(self, grant: Grant, context: RequestContext) -> None:
        return None


@asynccontextmanager
async def served(**more: object) -> AsyncIterator[tuple[MailboxService, Http, Supervisor]]:
    verifier = more.pop("verifier", None)
    inventory = Inventory(SERVICE, SYSTEM)
    options = MailboxOptions(listener=LISTENER, engine="memory", **more)
    service = MailboxService(inventory, options, engine=MemoryEngine(bytes(32)), verifier=verifier)
    supervisor = Supervisor(inventory, service.children(), service.supervision())
    await supervisor.start()
    http = Http(service.listener.port)
    try:
        yield service, http, supervisor
    finally:
        http.close()
        await supervisor.drain()
        await service.close()


async def test_a_final_nack_that_is_sent_twice_is_told_what_may_have_become_of_the_message() -> None:
    async with served() as (_, http, _):
        await http.post("/v1/send", {"topic": "orders", "payload_b64": HI})
        _, body = await http.post("/v1/recv", {"topic": "orders"})
        final = {"receipt": body["messages"][0]["receipt"], "final": True}
        path = f"/v1/nack/{body['messages'][0]['msg_id']}"
        first, again = await http.post(path, final), await http.post(path, final)

        assert (first[0], first[1]["dead_lettered"]) == (200, True)
        assert (again[0], again[1]["reason"]) == (409, "stale_receipt")
        assert "is a dead letter" in again[1]["hint"]


async def test_message_goes_round() -> None:
    async with served() as (_, http, _):
        status, sent = await http.post("/v1/send", {"topic": "orders", "payload_b64": HI})
        assert (status, sent["duplicate"]) == (200, False)
        status, body = await http.post("/v1/recv", {"topic": "orders"})
        (message,) = body["messages"]
        assert message["payload_b64"] == HI
        assert set(body) == {"messages"}

        settle = {"msg_id": message["msg_id"], "receipt": message["receipt"]}
        assert (await http.post("/v1/ack", settle)) == (200, {"ok": True})


async def test_a_query_beyond_its_bounds_is_told_the_bound() -> None:
    async with served() as (_, http, _):
        status, problem = await http.request("GET", "/v1/topics?limit=99999")

    assert (status, problem["limit"], problem["limit_value"]) == (400, "limit", 1000)


@pytest.mark.parametrize("path", ["/v1/ack/{}", "/ack/{}", "/v1/nack/{}", "/nack/{}", "/ack", "/nack", "/v1/extend/{}"])
async def test_settlements_take_the_msg_id_in_the_path_or_the_body(path: str) -> None:
    async with served() as (_, http, _):
        await http.post("/v1/send", {"topic": "orders", "payload_b64": HI})
        _, body = await http.post("/v1/recv", {"topic": "orders"})
        (message,) = body["messages"]
        settle = {"receipt": message["receipt"]}
        if "{}" not in path:
            settle["msg_id"] = message["msg_id"]
        if "extend" in path:
            settle["visibility_ms"] = 9000

        assert (await http.post(path.format(message["msg_id"]), settle))[0] == 200


BAD = [
    ("POST", "/v1/send", {"topic": "orders", "payload_b64": HI, "surprise": 1}, 400, "malformed"),
    ("POST", "/v1/send", {"topic": "orders", "payload_b64": "?"}, 400, "malformed"),
    ("POST", "/v1/send", {"topic": "", "payload_b64": HI}, 400, "malformed"),
    ("POST", "/v1/send", {"topic": "x" * 201, "payload_b64": HI}, 400, "malformed"),
    ("POST", "/v1/send", {"topic": "orders", "payload_b64": HI, "delay_ms": -1}, 400, "malformed"),
    ("POST", "/v1/send", {"topic": "orders", "payload_b64": HI, "delay_ms": 1, "key": "k"}, 400, "malformed"),
    ("POST", "/v1/send", {"topic": "orders", "payload_b64": HI, "payload_hash": "b3:" + "0" * 64}, 422, "integrity"),
    ("POST", "/v1/send", {"topic": "orders", "payload_b64": "A" * (1 << 20)}, 413, "over_limit"),
    ("POST", "/v1/send", {"topic": "orders", "payload_b64": base64.b64encode(bytes(721_000)).decode()}, 413,
    "over_limit"),
    ("POST", "/v1/send/batch", {"messages": [{"topic": "orders", "payload_b64": ""}] * 257}, 413, "over_limit"),
    ("POST", "/v1/send", {"topic": "orders", "payload_b64": HI, "ttl_ms": 0}, 400, "malformed"),
    ("POST", "/v1/send", {"topic": "orders", "payload_b64": HI, "ttl_ms": 1 << 53}, 400, "malformed"),
    ("POST", "/v1/send", {"topic": "orders", "payload_b64": HI, "ttl_ms": (1 << 63) - 1}, 400, "malformed"),
    ("POST", "/v1/recv", {"topic": "orders", "visibility_ms": 249}, 400, "malformed"),
    ("POST", "/v1/recv/stream", {"topic": "orders", "visibility_ms": 249}, 400, "malformed"),
    ("POST", "/v1/recv/stream", {"topic": "orders", "wait_ms": 20_001}, 400, "malformed"),
    ("POST", "/v1/recv", {"topic": "orders", "max_messages": 257}, 400, "malformed"),
    ("POST", "/v1/ack", {"msg_id": "nobody", "receipt": "r"}, 404, "not_found"),
    ("POST", "/v1/ack", {"acks": [], "msg_id": "x"}, 400, "malformed"),
    ("POST", "/v1/ack", {"receipt": "r"}, 400, "malformed"),
    ("POST", "/v1/nack", {"msg_id": "x", "receipt": "r", "final": True, "delay_ms": 0}, 400, "malformed"),
    ("POST", "/v1/nack/x", {"receipt": "r", "final": True, "uncounted": True}, 400, "malformed"),
    ("GET", "/v1/send", None, 405, "unsupported"),
    ("GET", "/v1/topics/nowhere", None, 404, "not_found"),
    ("GET", "/v1/topics/orders/peek?limit=0", None, 400, "malformed"),
    ("GET", "/v1/topics/orders/peek?surprise=1", None, 400, "malformed"),
    ("GET", "/v1/topics/orders/peek?cursor=abc", None, 400, "malformed"),
    ("GET", "/v1/topics/orders/peek?cursor=1&msg_id=x", None, 400, "malformed"),
    ("GET", "/v1/topics/orders/peek?msg_id=x", None, 404, "not_found"),
    ("GET", "/v1/dlq?cursor=abc", None, 400, "malformed"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body", "status", "code"), BAD, ids=range(len(BAD)))
async def test_bad_input_is_refused_and_changes_nothing(method: str, path: str, body, status: int, code: str) -> None:
    async with served() as (service, http, _):
        content = b"" if body is None else json.dumps(body).encode()
        got, problem = await http.request(method, path, content)

        assert (got, problem["code"], problem["status"]) == (status, code, status)
        assert problem["corr_id"] == http.headers["x-corr-id"]
        assert service.state.ledger.messages == 0
        http.close()


async def test_receipt_of_somebody_else_settles_nothing() -> None:
    async with served() as (_, http, _):
        for _ in range(2):
            await http.post("/v1/send", {"topic": "orders", "payload_b64": HI})
        _, body = await http.post("/v1/recv", {"topic": "orders", "max_messages": 2})
        one, two = body["messages"]
        status, problem = await http.post("/v1/ack", {"msg_id": one["msg_id"], "receipt": two["receipt"]})
        assert (status, problem["code"], problem["reason"]) == (409, "conflict", "stale_receipt")

        for message in (one, two):
            settle = {"msg_id": message["msg_id"], "receipt": message["receipt"]}
            assert (await http.post("/v1/ack", settle))[0] == 200


async def test_batch_of_256_with_one_bad_item_settles_the_others() -> None:
    async with served() as (_, http, _):
        await http.post("/v1/send/batch", {"messages": [{"topic": "orders", "payload_b64": HI}] * 256})
        _, body = await http.post("/v1/recv", {"topic": "orders", "max_messages": 256})
        acks = [{"msg_id": each["msg_id"], "receipt": each["receipt"]} for each in body["messages"]]
        acks[100]["receipt"] = "wrong"
        _, settled = await http.post("/v1/ack", {"acks": acks})

        assert [place for place, each in enumerate(settled["results"]) if "code" in each] == [100]
        assert sum(each.get("ok", False) for each in settled["results"]) == 255


async def test_raw_body_is_a_message_and_its_headers_are_obeyed() -> None:
    async with served() as (_, http, _):
        header = "Idempotency-Key: one\r\nContent-Type: text/plain\r\n"
        status, first = await http.request("POST", "/v1/send/orders%2Feu", b"hello", header)
        _, again = await http.request("POST", "/v1/send/orders%2Feu", b"hello", header)
        strict = header + "X-Idempotency-Mode: 409-conflict\r\n"
        assert (status, again["msg_id"], again["duplicate"]) == (200, first["msg_id"], True)
        assert (await http.request("POST", "/v1/send/orders%2Feu", b"hello", strict))[0] == 409
        assert (await http.request("POST", "/v1/send/orders", b"x", f"X-Payload-Hash: b3:{'0' * 64}\r\n"))[0] == 422
        _, body = await http.post("/v1/recv", {"topic": "orders/eu"})

        assert base64.b64decode(body["messages"][0]["payload_b64"]) == b"hello"


@pytest.mark.parametrize(
    ("kind", "kept"),
    [
        ("application/x-www-form-urlencoded", {}),
        ("Application/X-WWW-Form-URLEncoded; charset=utf-8", {}),
        ("image/png", {"content-type": "image/png"}),
    ],
)
async def test_raw_send_keeps_the_kind_of_its_body_but_not_what_curl_says_of_any(
    kind: str, kept: dict[str, str]
) -> None:
    async with served() as (_, http, _):
        await http.request("POST", "/v1/send/orders", b"hello", f"Content-Type: {kind}\r\n")
        _, body = await http.post("/v1/recv", {"topic": "orders"})

        assert body["messages"][0].get("attrs", {}) == kept


async def test_every_route_needs_a_capability_for_its_op_and_topic() -> None:
    async with served(verifier=Listed()) as (_, http, _):
        body = json.dumps({"topic": "orders", "payload_b64": HI}).encode()
        assert (await http.request("POST", "/v1/send", body))[0] == 401
        assert (await http.request("POST", "/v1/send", body, "Authorization: Bearer other\r\n"))[0] == 401
        assert (await http.request("POST", "/v1/send", body, "Authorization: Bearer reader\r\n"))[0] == 403
        assert (await http.request("POST", "/v1/send", body, "Authorization: Bearer all\r\n"))[0] == 200
        status, got = await http.request("POST", "/v1/recv", b'{"topic":"orders"}', "Authorization: Bearer reader\r\n")
        assert (status, len(got["messages"])) == (200, 1)
        message = got["messages"][0]
        ack = json.dumps({"msg_id": message["msg_id"], "receipt": message["receipt"]}).encode()

        assert (await http.request("POST", "/v1/ack", ack, "Authorization: Bearer reader\r\n"))[0] == 403
        assert (await http.request("POST", "/v1/ack", ack, "Authorization: Bearer all\r\n"))[0] == 200
        assert (await http.request("GET", "/v1/dlq", b"", "Authorization: Bearer reader\r\n"))[0] == 403


async def test_full_inflight_says_so_in_a_header() -> None:
    async with served(bounds=MailboxBounds(global_inflight=1)) as (_, http, _):
        for _ in range(2):
            await http.post("/v1/send", {"topic": "orders", "payload_b64": HI})
        await http.post("/v1/recv", {"topic": "orders"})

        assert (await http.post("/v1/recv", {"topic": "orders"})) == (200, {"messages": []})
        assert http.headers["x-inflight-full"] == "1"


async def test_stream_never_has_more_unsettled_than_its_credit() -> None:
    async with served() as (service, http, _):
        for number in range(5):
            await service.api.send(Send("orders", b"%d" % number))
        reader, writer = await asyncio.open_connection("127.0.0.1", service.listener.port)
        body = b'{"topic":"orders","max_inflight":2}'
        writer.write(
            b"POST /v1/recv/stream HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"application/x-ndjson" in head
        lines = [json.loads(await _line(reader)) for _ in range(2)]
        assert service.state.ledger.inflight == 2
        settle = {"msg_id": lines[0]["msg_id"], "receipt": lines[0]["receipt"]}
        assert (await http.post("/v1/ack", settle))[0] == 200
        third = json.loads(await _line(reader))

        assert [base64.b64decode(each["payload_b64"]) for each in (*lines, third)] == [b"0", b"1", b"2"]
        assert service.state.ledger.inflight == 2
        service.stop_intake()
        settle = {"msg_id": third["msg_id"], "receipt": third["receipt"]}
        assert (await http.post("/v1/ack", settle))[0] == 200
        assert json.loads(await _line(reader)) == {"end": "draining"}
        writer.close()


async def _line(reader: asyncio.StreamReader) -> bytes:
    """Read one chunk of a chunked body."""
    size = int(await reader.readline(), 16)
    line = await reader.readexactly(size)
    await reader.readline()
    return line


async def test_draining_refuses_new_work_with_429_and_still_takes_settlements() -> None:
    async with served(drain_deadline_s=60.0) as (service, http, supervisor):
        await http.post("/v1/send", {"topic": "orders", "payload_b64": HI})
        _, body = await http.post("/v1/recv", {"topic": "orders"})
        (message,) = body["messages"]
        drained = asyncio.create_task(supervisor.drain())
        while not service.state.draining:  # noqa: ASYNC110 - nothing tells us
            await asyncio.sleep(0)
        status, problem = await http.post("/v1/send", {"topic": "orders", "payload_b64": HI})
        assert (status, problem["code"], "retry-after" in http.headers) == (429, "busy", True)
        assert (await http.request("GET", "/readyz"))[0] == 503
        settle = {"msg_id": message["msg_id"], "receipt": message["receipt"]}
        assert (await http.post("/v1/ack", settle))[0] == 200

        assert (await drained).clean


async def test_saturated_shard_answers_429_keeps_its_bound_and_still_settles() -> None:
    async with served(shard_capacity=8) as (service, http, _):
        await service.api.send(Send("orders", b"x"))
        (held,) = (await service.api.recv(Recv("orders"))).messages
        sends = [service.api.send(Send("orders", b"%d" % number)) for number in range(100)]
        results = await asyncio.gather(*sends, return_exceptions=True)
        refused = [each for each in results if isinstance(each, Exception)]
        assert refused
        assert {each.status for each in refused} == {429}
        assert max(worker.work.depth for worker in service.dispatcher.workers) <= 8
        metrics = service.inventory.metrics
        assert metrics.value("queue_dropped_total", queue="work") == len(refused)

        settle = {"msg_id": held.msg_id, "receipt": held.receipt}
        assert (await http.post("/v1/ack", settle))[0] == 200


async def test_operator_sees_purges_and_sends_dead_letters_back() -> None:
    async with served() as (_, http, _):
        await http.post("/v1/send", {"topic": "orders", "payload_b64": HI})
        status, stats = await http.request("GET", "/v1/topics/orders")
        assert (status, stats["ready"]) == (200, 1)
        _, seen = await http.request("GET", "/v1/topics/orders/peek?payload=1&state=ready")
        assert seen["messages"][0]["payload_b64"] == HI
        for _ in range(5):
            _, body = await http.post("/v1/recv", {"topic": "orders", "wait_ms": 1000})
            (message,) = body["messages"]
            nack = {"msg_id": message["msg_id"], "receipt": message["receipt"], "reason": "no", "delay_ms": 0}
            _, answer = await http.post("/v1/nack", nack)
        assert answer["dead_lettered"] is True
        _, page = await http.request("GET", "/v1/dlq?topic=orders")
        assert (page["entries"][0]["reason"], len(page["entries"][0]["history"])) == ("rejected:no", 5)
        assert (await http.post("/v1/dlq/reprocess", {"topic": "orders"})) == (202, {"accepted": 1})
        _, body = await http.post("/v1/recv", {"topic": "orders", "wait_ms": 5000})
        assert (body["messages"][0]["attempt"], body["messages"][0]["redriven_from"]) == (1, message["msg_id"])

        assert (await http.request("POST", "/v1/topics/orders/purge")) == (200, {"purged": 1})


async def test_every_metric_of_the_service_is_declared() -> None:
    async with served() as (service, _, _):
        names = {family.name for family in service.inventory.metrics.families()}

        assert names >= {
            "queue_depth", "queue_dropped_total", "tasks_spawned_total", "tasks_aborted_total", "tasks_canceled_total",
            "saturation", "request_latency_seconds", "scanner_wake_jitter_ms", "requeue_backoff_total",
            "reorder_depth_max",
            "io_timeouts_total", "integrity_fail_total", "bus_lagged_total",
        }  # fmt: skip
