"""How a stream ends, and what does not end it."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from penstock.contracts.mailbox import Recv, Send
from penstock.services.mailbox.config import ShardRules
from penstock.services.mailbox.engines.engine import EngineFailed
from penstock.services.mailbox.stream import RecvStream
from tests.services.mailbox.lagging import lagging
from tests.services.mailbox.test_http import Http, served
from tests.services.mailbox.worlds import RequestMeta


def lines_of(mailbox, max_inflight: int):
    recv = Recv("orders", 3, visibility_ms=60_000)
    return RecvStream(mailbox.parts, recv, max_inflight).lines(RequestMeta())


async def test_stream_without_credit_ends_politely_as_soon_as_the_service_drains() -> None:
    async with lagging() as mailbox:
        for _ in range(2):
            await mailbox.api.send(Send("orders", b"x"))
        lines = lines_of(mailbox, 1)
        assert "msg_id" in msgspec.json.decode(await anext(lines))
        loop = asyncio.get_running_loop()
        last = loop.create_task(anext(lines))
        await asyncio.sleep(0.5)
        assert not last.done()
        before = loop.time()
        mailbox.stop_intake()

        assert msgspec.json.decode(await last) == {"end": "draining"}
        assert loop.time() - before < 0.1
        assert [line async for line in lines] == []
        assert mailbox.state.credits == set()


async def test_stream_lives_on_when_a_payload_cannot_be_read_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with lagging(bounds={"cache_bytes": 1}) as mailbox:
        for payload in (b"first", b"second"):
            await mailbox.api.send(Send("orders", payload))
        read, failures = mailbox.engine.reads.rows, [1, 1]

        def failing(seqs):
            if failures:
                failures.pop()
                raise EngineFailed("The mailbox file cannot be read.")
            return read(seqs)

        monkeypatch.setattr(mailbox.engine.reads, "rows", failing)
        lines = lines_of(mailbox, 5)
        got = [msgspec.json.decode(await anext(lines)) for _ in range(2)]
        await lines.aclose()

        assert [each["attempt"] for each in got] == [1, 1]
        assert failures == []


@pytest.mark.real_loop
async def test_stream_with_a_lease_below_the_configured_minimum_is_refused_before_it_begins() -> None:
    async with served(rules=ShardRules(visibility_ms_min=1000), default_visibility_ms=1000) as (service, _, _):
        http = Http(service.listener.port)
        status, problem = await http.post("/v1/recv/stream", {"topic": "orders", "visibility_ms": 500})
        http.close()

        assert (status, problem["code"]) == (400, "malformed")
