"""Trying again: idempotent calls only, a few times, within deadline and budget; the breaker learns from each try."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from penstock.kernel.breaker import BreakerPolicy, BreakerState
from penstock.kernel.errors import DownstreamUnavailable, Timeout
from penstock.net.calls.origin import parse_url
from tests.net.calls.peers import (
    URL,
    Peer,
    answer,
    hangs_up,
    in_turn,
    make_client,
    metric,
    pass_time,
    says,
    silent,
    turns,
)

OK = b"HTTP/1.1 200 OK\r\n"
OFTEN = BreakerPolicy(samples_min=1000, timeouts_in_a_row=0)


def now() -> float:
    return asyncio.get_running_loop().time()


def retries(client) -> dict[str, float]:
    return {
        result: metric(client, "backoff_retries_total", op="http", result=result)
        for result in ("success", "failure", "denied")
    }


def breaker_of(client, url: str = URL):
    return client._downstreams[parse_url(url)[0]].breaker


# --- retries


async def test_idempotent_call_is_tried_three_times_with_growing_pauses() -> None:
    peer = Peer(says(b"garbage\r\n"))
    async with make_client(peer) as client:
        began_at = now()
        with pytest.raises(DownstreamUnavailable):
            await client.request("GET", URL)

        assert len(peer.seen) == 3
        assert now() - began_at == pytest.approx(0.075 + 0.150)
        assert retries(client) == {"success": 0, "failure": 2, "denied": 0}


async def test_retry_that_succeeds_is_the_answer() -> None:
    peer = Peer(in_turn(hangs_up, says(answer())))
    async with make_client(peer) as client:
        assert (await client.request("GET", URL)).status == 200
        assert retries(client) == {"success": 1, "failure": 0, "denied": 0}


@pytest.mark.parametrize(("method", "said"), [("POST", {}), ("PATCH", {}), ("GET", {"idempotent": False})])
async def test_call_that_is_not_idempotent_is_never_repeated(method: str, said: dict) -> None:
    for script in (hangs_up, says(b"garbage\r\n"), says(answer(b"", "503 Unavailable"))):
        peer = Peer(script)
        async with make_client(peer) as client:
            with contextlib.suppress(DownstreamUnavailable):
                await client.request(method, URL, **said)

        assert len(peer.seen) == 1


async def test_post_marked_idempotent_is_repeated_with_its_body() -> None:
    peer = Peer(in_turn(hangs_up, says(answer())))
    async with make_client(peer) as client:
        await client.request("POST", URL, body=b"x" * 100_000, idempotent=True)

    assert [seen.body for seen in peer.seen] == [b"x" * 100_000] * 2


async def test_streamed_body_is_sent_once_only() -> None:
    async def source():
        yield b"one"

    peer = Peer(hangs_up)
    async with make_client(peer) as client:
        with pytest.raises(DownstreamUnavailable):
            await client.request("PUT", URL, body=source())

    assert len(peer.seen) == 1


@pytest.mark.parametrize("status", ["502 Bad Gateway", "503 Unavailable", "504 Timeout"])
async def test_status_that_asks_for_patience_is_tried_again_and_the_last_one_is_the_answer(status: str) -> None:
    peer = Peer(says(answer(b"later", status)))
    async with make_client(peer) as client:
        got = await client.request("GET", URL)

        assert (got.status, got.body, len(peer.seen), peer.accepted) == (int(status[:3]), b"later", 3, 1)
        assert retries(client) == {"success": 0, "failure": 2, "denied": 0}


async def test_retry_after_is_waited_for_when_the_deadline_allows() -> None:
    peer = Peer(in_turn(says(answer(b"", "503 Unavailable", "Retry-After: 4")), says(answer())))
    async with make_client(peer) as client:
        began_at = now()
        assert (await client.request("GET", URL)).status == 200
        assert now() - began_at == pytest.approx(4)


async def test_retry_after_beyond_the_deadline_makes_the_refusal_the_answer_at_once() -> None:
    peer = Peer(says(answer(b"", "503 Unavailable", "Retry-After: 11")))
    async with make_client(peer) as client:
        began_at = now()
        assert (await client.request("GET", URL)).status == 503
        assert (now() - began_at, len(peer.seen)) == (0, 1)


async def test_timeout_of_one_wait_is_tried_again_within_the_calls_time() -> None:
    peer = Peer(in_turn(says(OK, b"Content-Length: 9\r\n\r\nhello"), says(answer())))
    async with make_client(peer, read_timeout_s=1) as client:
        assert (await client.request("GET", URL)).body == b"ok"
        assert metric(client, "io_timeouts_total", op="read") == 1


async def test_retries_are_bounded_by_the_budget_of_the_downstream() -> None:
    peer = Peer(says(b"garbage\r\n"))
    async with make_client(peer, breaker=OFTEN) as client:
        for _ in range(40):
            with pytest.raises(DownstreamUnavailable):
                await client.request("GET", URL)

        # Three a second for the window of ten seconds, and then no more.
        assert retries(client)["failure"] == 30
        assert retries(client)["denied"] > 0
        assert len(peer.seen) == 70


# --- stale connections


async def go_stale(peer: Peer, client, script=hangs_up) -> None:
    """Leave one idle connection that will die when it is next written to."""
    peer.script = says(answer())
    await client.request("GET", URL)
    peer.script = in_turn(script, says(answer(b"fresh")))


async def test_idempotent_call_on_a_dead_kept_connection_is_sent_again_on_a_new_one_without_a_pause() -> None:
    peer = Peer()
    async with make_client(peer) as client:
        await go_stale(peer, client)
        began_at = now()

        assert (await client.request("GET", URL)).body == b"fresh"
        assert (peer.accepted, now() - began_at) == (2, 0)
        assert retries(client) == {"success": 0, "failure": 0, "denied": 0}


async def test_post_on_a_dead_kept_connection_is_not_sent_again() -> None:
    peer = Peer()
    async with make_client(peer) as client:
        await go_stale(peer, client)

        with pytest.raises(DownstreamUnavailable):
            await client.request("POST", URL)
        assert len(peer.seen) == 2


async def test_the_new_connection_is_no_kept_one_even_when_all_places_are_taken() -> None:
    peer = Peer()
    async with make_client(peer, connections_max=2, tries_max=1) as client:
        loop = asyncio.get_running_loop()
        both = [loop.create_task(client.request("GET", URL)) for _ in range(2)]
        for call in both:
            await call
        assert client.connections == 2
        peer.script = lambda connection, _: (
            hangs_up(connection, _) if connection.requests > 1 else connection.send(answer())
        )

        assert (await client.request("GET", URL)).status == 200
        assert client.connections <= 2


async def test_connection_that_died_after_the_first_byte_of_the_answer_is_not_replayed() -> None:
    def half(connection, _) -> None:
        connection.send(b"HTTP/1.1 2")
        connection.hang_up()

    peer = Peer()
    async with make_client(peer, tries_max=1) as client:
        await go_stale(peer, client, half)

        with pytest.raises(DownstreamUnavailable):
            await client.request("GET", URL)
        assert peer.accepted == 1


# --- the breaker, for each origin


async def test_failing_downstream_is_left_alone_and_probed_later() -> None:
    peer = Peer(says(answer(b"", "500 Oops")))
    policy = BreakerPolicy(samples_min=4, open_s=5)
    async with make_client(peer, breaker=policy) as client:
        for _ in range(4):
            assert (await client.request("POST", URL)).status == 500
        with pytest.raises(DownstreamUnavailable) as caught:
            await client.request("POST", URL)
        assert (caught.value.status, caught.value.facts["retry_after"], len(peer.seen)) == (503, 5, 4)

        await pass_time(5)
        peer.script = says(answer())
        assert (await client.request("POST", URL)).status == 200
        assert breaker_of(client).state is BreakerState.CLOSED


async def test_breaker_is_for_each_origin() -> None:
    peer = Peer(says(answer(b"", "500 Oops")))
    async with make_client(peer, breaker=BreakerPolicy(samples_min=2)) as client:
        for _ in range(2):
            await client.request("POST", "http://a/")
        with pytest.raises(DownstreamUnavailable):
            await client.request("POST", "http://a/")

        assert (await client.request("POST", "http://b/")).status == 500


async def test_timeouts_in_a_row_open_the_breaker() -> None:
    peer = Peer(silent)
    async with make_client(peer, breaker=BreakerPolicy(timeouts_in_a_row=2)) as client:
        for _ in range(2):
            with pytest.raises(Timeout):
                await client.request("POST", URL, timeout_s=1)

        assert breaker_of(client).state is BreakerState.OPEN


async def test_callers_without_time_do_not_open_the_breaker() -> None:
    peer = Peer(silent)
    async with make_client(peer, breaker=BreakerPolicy(timeouts_in_a_row=2, samples_min=2)) as client:
        for _ in range(5):
            with pytest.raises(Timeout):
                await client.request("POST", URL, timeout_s=0.01)

        assert breaker_of(client).state is BreakerState.CLOSED


async def test_cancelled_probe_frees_its_place() -> None:
    peer = Peer(says(answer(b"", "500 Oops")))
    async with make_client(peer, breaker=BreakerPolicy(samples_min=1, open_s=5)) as client:
        await client.request("POST", URL)
        await pass_time(5)
        peer.script = silent
        probe = asyncio.get_running_loop().create_task(client.request("POST", URL))
        await turns()
        probe.cancel()
        await turns()
        peer.script = says(answer())

        assert (await client.request("POST", URL)).status == 200


async def test_answers_are_timed_by_service() -> None:
    peer = Peer()
    async with make_client(peer) as client:
        await client.request("GET", URL)
        await client.request("GET", "http://other/")

        assert metric(client, "downstream_latency_seconds", service="peer") == 2
