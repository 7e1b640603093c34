"""A ticket's life: whatever the order of events, what it holds is given back exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.net.message import Request, StreamResponse
from penstock.services.omnigate.gate.classes import AdmissionRule
from penstock.services.omnigate.gate.gate import AdmissionGate
from penstock.services.omnigate.gate.ticket import PAYMENT_BYTES
from penstock.testing.sweep import Run, sweep
from tests.net.server.listener_kit import (
    RawClient,
    get,
    post,
    route,
    settle,
)
from tests.services.omnigate.gate.kit import (
    OFF,
    GateSite,
    check_nothing_is_held,
    gated,
)

KINDS = ("now", "later", "stream", "poll", "slow_body", "open", "unknown", "forged", "too_large", "pipelined", "giant")
EVENTS = ("send", "send", "send", "answer", "wake", "abort", "eof", "body", "tick", "time", "long_time", "reload")


class Handlers:
    """Streams and polls that go on when the test says so."""

    def __init__(self) -> None:
        self.waits: list[asyncio.Future[None]] = []

    def _wait(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waits.append(future)
        return future

    def wake(self) -> None:
        while self.waits:
            future = self.waits.pop(0)
            if not future.done():
                future.set_result(None)
                return

    async def poll(self, request: Request) -> dict[str, int]:
        ticket = request.ticket
        assert ticket is not None
        if ticket.park():
            await self._wait()
            slot = ticket.unpark()
            if slot is not None:
                await slot
        return {"n": 1}

    def stream(self, request: Request) -> StreamResponse:
        async def chunks() -> AsyncIterator[bytes]:
            yield b"first"
            await self._wait()
            yield b"second"

        return StreamResponse(200, chunks())

    def giant(self, request: Request) -> StreamResponse:
        """Stream as if each piece were a payment's worth, and wait after every second one."""

        async def chunks() -> AsyncIterator[bytes]:
            for number in range(6):
                assert request.ticket is not None
                request.ticket.bytes_seen += PAYMENT_BYTES
                yield b"x"
                if number % 2:
                    await self._wait()

        return StreamResponse(200, chunks())

    def routes(self) -> dict[Any, AdmissionRule]:
        return {
            route(self.giant, path="/giant", deadline_s=30.0): AdmissionRule(op="get"),
            route(self.poll, path="/poll", deadline_s=30.0): AdmissionRule(op="get", long_poll=True),
            route(self.stream, path="/stream", deadline_s=30.0): AdmissionRule(op="get"),
        }


def request_of(site: GateSite, kind: str, field: str) -> bytes:
    """Write a request of a kind."""
    if kind == "pipelined":
        return get("/later", field) + post("/later", b"abc", field) + get("/poll", field)
    if kind == "slow_body":
        return post("/later", b"x" * 10, field)[:-10]
    if kind == "too_large":
        return post("/later", b"x" * 2000, field)
    if kind == "open":
        return get("/open")
    if kind == "unknown":
        return get("/later", site.bearer())
    if kind == "forged":
        return get("/later", site.bearer()[:-8] + "AAAAAAAA")
    return get(f"/{kind}", field)


def check_bounds(gate: AdmissionGate) -> None:
    """Demand what holds at every moment."""
    queue = gate.queue
    assert 0 <= queue.running <= queue.limit
    assert queue.parked >= 0
    for each in queue.classes.values():
        assert 0 <= each.waiting <= each.capacity
        assert each.running >= 0
        assert each.rounds.waiting == sum(tenant.entries.first is not None for tenant in each.tenants.values())


async def play(site: GateSite, handlers: Handlers, script: list[tuple[str, int]]) -> None:
    """Let the events happen, one after the other."""
    field = await site.known()
    clients: list[RawClient] = []
    finished: set[RawClient] = set()
    loop = asyncio.get_running_loop()
    for event, number in script:
        alive = [client for client in clients if not (client.ended or client in finished)]
        target = alive[number % len(alive)] if alive else None
        if event == "send":
            client = target if target is not None and number % 3 == 0 else site.connect()
            clients.append(client)
            client.send(request_of(site, KINDS[number % len(KINDS)], field))
        elif event == "answer" and site.work.replies:
            site.work.answer()
        elif event == "wake":
            handlers.wake()
        elif event == "tick":
            site.gate.tick(loop.time())
        elif event == "reload":
            site.gate.apply(replace(OFF, per_ip_rps=number % 2 * 50, per_cap_rps=number % 3 * 50))
        elif event in {"time", "long_time"}:
            await asyncio.sleep(0.3 if event == "time" else 3.0)
        elif target is not None and event == "body":
            target.send(b"x" * 10)
        elif target is not None:
            finished.add(target)
            (target.transport.abort if event == "abort" else target.transport.write_eof)()
        await settle(number % 4)
        check_bounds(site.gate)


@settings(max_examples=120, deadline=None)
@given(
    script=st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 59)), max_size=60),
    limit=st.integers(1, 3),
    end=st.sampled_from(["close", "drain"]),
)
async def test_everything_is_given_back_once_whatever_happens(
    script: list[tuple[str, int]], limit: int, end: str
) -> None:
    handlers = Handlers()
    options = {"body_bytes_max": 1000, "request_deadline_s": 2.0}
    async with gated(
        more=handlers.routes(), max_inflight=limit, max_parked=4, work_capacity=64, options=options
    ) as site:
        await play(site, handlers, script)
        if end == "drain":
            site.listener.stop_intake()
            for _ in range(len(script) * 3):
                handlers.wake()
                if site.work.replies:
                    site.work.answer()
                await settle(2)
            quiet = asyncio.get_running_loop().create_task(site.listener.quiet())
            await asyncio.sleep(60.0)
            assert quiet.done(), "a drain waits for nobody who is not there"
        gate = site.gate

    check_nothing_is_held(gate)


def test_a_poll_cancelled_at_any_step_gives_back_its_slot_or_its_place() -> None:
    async def scenario(run: Run[tuple[int, int, int]]) -> tuple[int, int, int]:
        async with gated(max_inflight=1) as site:
            field = await site.known()
            client = await site.ask("/later", field)
            ticket = site.work.seen[0].ticket
            assert ticket is not None
            gone = asyncio.Event()

            async def poll() -> None:
                try:
                    assert ticket.park()
                    await asyncio.sleep(1)
                    slot = ticket.unpark()
                    if slot is not None:
                        await slot
                    await asyncio.sleep(1)
                finally:
                    gone.set()

            run.start(poll())
            await asyncio.sleep(0.5)
            other = await site.ask("/later", field)
            await asyncio.sleep(1.0)
            client.transport.abort()
            await settle()
            if len(site.work.replies) > 1:
                site.work.answer(count=2)
            await run.ended()
            other.transport.abort()
            await settle()
            queue = site.gate.queue
            return queue.waiting, queue.running, queue.parked

    def nothing_is_held(held: tuple[int, int, int]) -> None:
        assert held == (0, 0, 0)

    assert sweep(scenario, check=nothing_is_held, ends="anyhow") > 10
