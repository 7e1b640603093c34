"""A batch like one that was allowed a moment ago is not judged again, and is answered as if it had been."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.services.mailbox.service import MailboxService
from tests.capability.kit import Issuer
from tests.services.mailbox.test_http import HI, Http, served

pytestmark = pytest.mark.real_loop
EVERYTHING = "op=send,recv,ack,nack,admin"


class Client:
    """Sends batches with one token, and counts how many were judged item by item."""

    def __init__(self, http: Http, service: MailboxService, issuer: Issuer) -> None:
        self.http, self.issuer, self.judged = http, issuer, 0
        self.token = issuer.token(EVERYTHING)
        for name in ("send_many", "settle_many"):
            setattr(service.api, name, self._counted(getattr(service.api, name)))

    def _counted(self, call):
        async def counted(*args):
            self.judged += 1
            return await call(*args)

        return counted

    async def post(self, path: str, body: object) -> tuple[int, dict]:
        bearer = f"Authorization: Bearer {self.token}\r\n"
        return await self.http.request("POST", path, json.dumps(body).encode(), bearer)

    async def send(self, *topics: str, **more: object) -> tuple[int, dict]:
        messages = [{"topic": topic, "payload_b64": HI, **more} for topic in topics]
        return await self.post("/v1/send/batch", {"messages": messages})

    async def lease(self, count: int) -> list[dict[str, str]]:
        _, body = await self.post("/v1/recv", {"topic": "orders", "max_messages": count, "visibility_ms": 60_000})
        return [{name: message[name] for name in ("msg_id", "receipt")} for message in body["messages"]]


@asynccontextmanager
async def client() -> AsyncIterator[Client]:
    issuer = Issuer()
    async with served(verifier=issuer.verifier) as (service, http, _):
        yield Client(http, service, issuer)


def codes(answer: tuple[int, dict]) -> list[str]:
    return [result.get("code", "ok") for result in answer[1]["results"]]


async def test_batches_like_the_first_are_judged_no_more_and_answered_alike() -> None:
    async with client() as app:
        answers = [await app.send("orders", "orders") for _ in range(3)]
        assert [codes(answer) for answer in answers] == [["ok", "ok"]] * 3
        assert len({result["msg_id"] for _, body in answers for result in body["results"]}) == 6
        assert app.judged == 1

        for _ in range(3):
            assert await app.post("/v1/ack", {"acks": await app.lease(2)}) == (200, {"results": [{"ok": True}] * 2})
        assert app.judged == 2


async def test_an_item_of_another_topic_is_judged_for_itself() -> None:
    async with client() as app:
        app.token = app.issuer.token(EVERYTHING, "topic=orders")
        for _ in range(2):
            assert codes(await app.send("orders", "orders")) == ["ok", "ok"]
            assert codes(await app.send("orders", "bills")) == ["ok", "forbidden"]
        assert app.judged == 3


async def test_a_revocation_is_seen_by_the_next_batch() -> None:
    async with client() as app:
        for _ in range(2):
            assert (await app.send("orders"))[0] == 200
        (lease,) = await app.lease(1)
        app.issuer.revoke("subject_ref", "alice", 1)

        assert (await app.send("orders"))[0] in {401, 403}
        assert (await app.post("/v1/ack", {"acks": [lease]}))[0] in {401, 403}


async def test_a_batch_that_has_to_be_counted_is_counted_every_time() -> None:
    async with client() as app:
        app.token = app.issuer.token(EVERYTHING, "budget.reqs=3")

        assert [codes(await app.send("orders")) for _ in range(4)] == [["ok"]] * 3 + [["rate_limited"]]


@pytest.mark.parametrize(("path", "empty"), [("/v1/send/batch", {"messages": []}), ("/v1/ack", {"acks": []})])
async def test_what_concerns_no_topic_needs_a_token_each_time(path: str, empty: dict) -> None:
    async with client() as app:
        assert (await app.post(path, empty)) == (200, {"results": []})
        app.token = "nobody"

        assert (await app.post(path, empty))[0] == 401


async def test_a_batch_that_is_not_judged_obeys_the_same_bounds() -> None:
    async with client() as app:
        for count, status in ((1, 200), (256, 200), (257, 413)):
            assert (await app.send(*["orders"] * count))[0] == status
        leases = await app.lease(1)
        assert codes(await app.post("/v1/ack", {"acks": leases})) == ["ok"]
        assert (await app.post("/v1/ack", {"acks": await app.lease(1) * 257}))[0] == 413


async def test_only_an_operator_may_name_an_origin_whatever_was_allowed_before() -> None:
    async with client() as app:
        app.token = app.issuer.token("op=send")
        origin = {"msg_id": "m", "ts": 1}
        for _ in range(2):
            assert codes(await app.send("orders")) == ["ok"]
            assert codes(await app.send("orders", origin=origin)) == ["forbidden"]


async def test_an_item_that_cannot_be_read_is_refused_alone_whatever_was_allowed_before() -> None:
    async with client() as app:
        good, bad = {"topic": "orders", "payload_b64": HI}, {"topic": "orders", "payload_b64": 5}
        # The topic of the item that stands in its place is allowed too.
        assert codes(await app.send("orders", "unread")) == ["ok", "ok"]
        for _ in range(2):
            assert codes(await app.post("/v1/send/batch", {"messages": [good, bad]})) == ["ok", "malformed"]
        assert app.judged == 1


async def test_a_message_that_is_gone_is_judged_by_the_disk_beside_others() -> None:
    async with client() as app:
        await app.send("orders", "orders", "orders")
        one, two, three = await app.lease(3)
        assert codes(await app.post("/v1/ack", {"acks": [one]})) == ["ok"]

        acks = {"acks": [one, two, {"msg_id": "nobody", "receipt": three["receipt"]}]}
        assert codes(await app.post("/v1/ack", acks))[:2] == ["ok", "ok"]
        assert codes(await app.post("/v1/ack", acks))[2] in {"not_found", "forbidden"}
