"""Trying again and asking twice: only what may be repeated, only so often, only in time; the first answer wins."""

from __future__ import annotations

import asyncio

import pytest

from penstock.kernel.breaker import BreakerPolicy
from tests.net.server.listener_kit import get, post, settle
from tests.services.omnigate.proxy.kit import (
    Gateway,
    UpstreamConnection,
    gateway,
    hangs_up,
    in_turn,
    ok,
    says,
    silent,
)

SICK = ok(b"sick", status="503 Down")


def asked(gate: Gateway) -> list[int]:
    return [len(upstream.requests) for upstream in gate.upstreams.values()]


async def test_upstreams_take_turns() -> None:
    async with gateway(says(ok(b"0")), says(ok(b"1")), says(ok(b"2"))) as gate:
        bodies = [(await gate.ask(get("/api/x"))).body for _ in range(6)]

        assert bodies == [b"0", b"1", b"2"] * 2


@pytest.mark.parametrize(
    "failing", [hangs_up, says(SICK), says(b"nonsense\r\n\r\n")], ids=["hangs up", "503", "nonsense"]
)
async def test_a_failed_try_is_repeated_at_another_upstream_after_a_pause(failing) -> None:
    async with gateway(failing, says(ok(b"well"))) as gate:
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer = await gate.ask(get("/api/x"))

        assert (answer.status, answer.body) == (200, b"well")
        assert asked(gate) == [1, 1]
        # Half way between 50 and 100 ms: the dice always fall in the middle here.
        assert loop.time() - began == pytest.approx(0.075, abs=0.01)
        assert gate.count("backoff_retries_total", op="proxy", result="success") == 1


async def test_after_three_tries_the_last_outcome_stands() -> None:
    async with gateway(says(SICK)) as gate:
        answer = await gate.ask(get("/api/x"))

        assert (answer.status, answer.body) == (503, b"sick")
        assert asked(gate) == [3]
        assert gate.count("backoff_retries_total", op="proxy", result="failure") == 2


async def test_nobody_there_is_tried_three_times() -> None:
    async with gateway() as gate:
        gate.upstreams["up0.test"].refuses = ConnectionRefusedError(111, "no")
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer = await gate.ask(get("/api/x"))

        assert answer.status == 503
        assert loop.time() - began == pytest.approx(0.075 + 0.150, abs=0.01)


@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_what_may_not_be_repeated_is_asked_once(method: str) -> None:
    async with gateway(says(SICK)) as gate:
        request = post("/api/x", b"once", "Idempotency-Key: k").replace(b"POST", method.encode(), 1)
        answer = await gate.ask(request)

        assert (answer.status, asked(gate)) == (503, [1])


async def test_a_put_whose_body_is_here_is_repeated_with_it() -> None:
    async with gateway(in_turn(says(SICK), says(ok()))) as gate:
        answer = await gate.ask(post("/api/x", b"again").replace(b"POST", b"PUT", 1))

        assert answer.status == 200
        assert [raw.partition(b"\r\n\r\n")[2] for raw in gate.upstreams["up0.test"].requests] == [b"again", b"again"]


async def test_a_put_whose_body_was_streamed_is_not_repeated() -> None:
    def sick_at_the_end(connection: UpstreamConnection, raw: bytes) -> None:
        if raw.endswith(b"E" * 40_000):
            connection.next_request()
            connection.say(SICK)

    async with gateway(sick_at_the_end) as gate:
        answer = await gate.ask(post("/api/x", b"E" * 200_000).replace(b"POST", b"PUT", 1))

        assert (answer.status, asked(gate)) == (503, [1])


async def test_a_route_without_retries_has_none() -> None:
    async with gateway(says(SICK), retry=False) as gate:
        assert (await gate.ask(get("/api/x"))).status == 503
        assert asked(gate) == [1]


async def test_no_retry_that_would_begin_after_the_deadline() -> None:
    async with gateway(says(SICK)) as gate:
        answer = await gate.ask(get("/api/x", "X-Deadline-Ms: 100"))

        assert (answer.status, asked(gate)) == (503, [2])


async def test_a_storm_of_failures_does_not_become_a_storm_of_retries() -> None:
    never = BreakerPolicy(error_rate=0.0, timeouts_in_a_row=0)
    async with gateway(says(SICK), options={"breaker": never}) as gate:
        for _ in range(400):
            await gate.ask(get("/api/x"))

        retries = asked(gate)[0] - 400
        # A tenth of the calls, but never fewer than 3 in each second of the last ten.
        assert retries <= 40 + 3 * 10 * 4
        assert gate.count("backoff_retries_total", op="proxy", result="denied") > 100


async def test_a_retry_carries_the_time_that_is_left() -> None:
    async with gateway(says(SICK)) as gate:
        await gate.ask(get("/api/x", "X-Deadline-Ms: 1000"))

        left = [
            int(raw.partition(b"X-Deadline-Ms: ")[2].split(b"\r\n")[0]) for raw in gate.upstreams["up0.test"].requests
        ]
        assert left == [pytest.approx(980, abs=2), pytest.approx(905, abs=2), pytest.approx(755, abs=2)]


async def test_a_client_that_goes_during_the_pause_ends_the_retries() -> None:
    async with gateway(says(SICK)) as gate:
        client = gate.connect()
        client.send(get("/api/x"))
        await settle()
        client.transport.abort()
        await asyncio.sleep(1.0)

        assert asked(gate) == [1]


# --- hedging


async def learned(gate: Gateway, calls: int = 40) -> None:
    """Let the proxy see enough answers to know what is late."""
    for _ in range(calls):
        assert (await gate.ask(get("/api/x"))).status == 200


async def test_a_late_answer_is_asked_for_once_more_and_the_loser_is_cut() -> None:
    async with gateway(says(ok(b"0")), says(ok(b"1")), hedge=True) as gate:
        await learned(gate)
        gate.upstreams["up0.test"].script = silent
        before = asked(gate)
        answer = await gate.ask(get("/api/x"))
        await settle()

        assert answer.body == b"1"
        assert [now - then for now, then in zip(asked(gate), before, strict=True)] == [1, 1]
        assert gate.count("hedges_total", service="/api", result="won") == 1
        assert gate.upstreams["up0.test"].open == 0


async def test_no_hedge_is_made_before_the_tail_is_known_or_where_none_is_asked_for() -> None:
    for options in ({"hedge": True}, {"hedge": False}):
        async with gateway(silent, says(ok()), **options) as gate:
            assert (await gate.ask(get("/api/x", "X-Deadline-Ms: 500"))).status == 504
            assert asked(gate) == [1, 0]


async def test_no_hedge_is_made_while_the_gateway_sheds() -> None:
    shedding = [False]
    async with gateway(says(ok()), says(ok()), hedge=True, around={"shedding": lambda: shedding[0]}) as gate:
        await learned(gate)
        shedding[0] = True
        gate.upstreams["up0.test"].script = silent
        before = sum(asked(gate))
        answer = await gate.ask(get("/api/x"))

        assert (answer.status, sum(asked(gate)) - before) == (504, 1)


async def test_hedges_are_at_most_one_call_in_twenty() -> None:
    # Every answer is late: all calls would be hedged, if it were only for the tail.
    def late(connection: UpstreamConnection, raw: bytes) -> None:
        connection.next_request()
        asyncio.get_running_loop().call_later(0.05, connection.say, ok())

    async with gateway(says(ok()), says(ok()), hedge=True) as gate:
        await learned(gate)
        for upstream in gate.upstreams.values():
            upstream.script = late
        before = sum(asked(gate))
        for _ in range(200):
            await gate.ask(get("/api/x"))

        extra = sum(asked(gate)) - before - 200
        assert 0 < extra <= (200 + 40) * 0.05


@pytest.mark.parametrize("method", ["POST", "PUT", "HEAD"])
async def test_only_a_get_is_hedged(method: str) -> None:
    async with gateway(says(ok()), says(ok()), hedge=True) as gate:
        await learned(gate)
        for upstream in gate.upstreams.values():
            upstream.script = silent
        before = sum(asked(gate))
        client = gate.connect()
        client.send(post("/api/x", b"").replace(b"POST", method.encode(), 1))
        (answer,) = await client.answers(1, heads_only=[0] if method == "HEAD" else [])

        assert (answer.status, sum(asked(gate)) - before) == (504, 1)


async def test_a_hedge_that_fails_leaves_the_first_try_alone() -> None:
    async with gateway(says(ok(b"0")), says(ok(b"1")), hedge=True) as gate:
        await learned(gate)
        held: list[UpstreamConnection] = []
        gate.upstreams["up0.test"].script = lambda connection, _: (connection.next_request(), held.append(connection))
        gate.upstreams["up1.test"].script = says(SICK)
        asking = asyncio.get_running_loop().create_task(gate.ask(get("/api/x")))
        await asyncio.sleep(0.5)
        held[0].say(ok(b"slow but well"))

        assert (await asking).body == b"slow but well"
