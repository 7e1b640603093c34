"""OAP/1 when things are full, slow, broken or ending, in virtual time over memory."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernel.deadline import Deadline, use_deadline
from penstock.kernel.errors import (
    Busy,
    Canceled,
    Closed,
    DownstreamUnavailable,
    NotReady,
    OverLimit,
    Timeout,
)
from penstock.net.oap.calling import OapClientConnection
from penstock.net.oap.connection import FrameTimeouts
from penstock.net.oap.service import OapServerOptions
from penstock.testing.line import Weather
from penstock.testing.transport import memory_pair
from penstock.wire.oap.frame import (
    END,
    REQ,
    START,
    Frame,
    encode,
)
from penstock.wire.oap.stream import StreamTable
from tests.net.oap.kit import (
    ECHO,
    Kit,
    Rang,
    Told,
    settle,
    spawn,
)

# --- bounds ----------------------------------------------------------------------------------------------------------


async def test_more_calls_than_the_window_are_busy_at_once() -> None:
    async with Kit(max_inflight=3) as kit:
        tasks = [spawn(kit.echo_call("later")) for _ in range(3)]
        await settle()
        with pytest.raises(Busy):
            await kit.echo_call()
        for reply in kit.echo.replies:
            reply.set_result(Told())

        assert [await task for task in tasks] == [Told()] * 3


async def test_servers_smaller_window_binds_the_client() -> None:
    async with Kit(OapServerOptions(max_inflight=2)) as kit:
        tasks = [spawn(kit.echo_call("later")) for _ in range(2)]
        await settle()
        with pytest.raises(Busy):
            await kit.echo_call()
        for reply in kit.echo.replies:
            reply.set_result(Told())
        assert len([await task for task in tasks]) == 2


async def test_lowered_max_frame_still_carries_everything() -> None:
    async with Kit(OapServerOptions(max_frame=16 << 10)) as kit:
        assert len((await kit.echo_call(data=bytes(200_000), size=100_000)).data) == 300_000


async def test_request_above_the_limit_is_413_and_costs_only_itself() -> None:
    async with Kit(OapServerOptions(request_bytes_max=1000)) as kit:
        waiting = spawn(kit.echo_call("later"))
        await settle()
        with pytest.raises(OverLimit):
            await kit.echo_call(data=bytes(200_000))
        kit.echo.replies[0].set_result(Told("kept"))

        assert await waiting == Told("kept")
        assert kit.dialled == 1


async def test_answer_above_the_clients_limit_fails_its_call_only() -> None:
    async with Kit(answer_bytes_max=100_000) as kit:
        with pytest.raises(DownstreamUnavailable) as caught:
            await kit.echo_call(size=200_000)

        assert caught.value.status == 502
        assert await kit.echo_call(text="ok") == Told("ok")
        assert kit.dialled == 1


async def test_connection_over_the_cap_hears_busy() -> None:
    async with Kit(OapServerOptions(max_conns=1)) as kit:
        await kit.echo_call()
        second = Kit()
        second.server = kit.server
        with pytest.raises(DownstreamUnavailable, match="Too many connections"):
            await second.client.connect()
        await second.client.close()
        assert await kit.echo_call(text="first") == Told("first")


async def test_reader_that_stalls_stops_the_server_from_reading_and_is_cut_after_the_write_deadline() -> None:
    kit = Kit(OapServerOptions(request_deadline_s=60.0), call_timeout_s=30.0)
    async with kit:
        await kit.client.connect()
        assert kit.ends is not None
        kit.ends[0].pause_reading()
        tasks = [spawn(kit.echo_call(size=1_000_000)) for _ in range(20)]
        await settle()
        (connection,) = kit.server.connections
        assert connection._reading_paused
        handled = len(kit.echo.seen)
        await asyncio.sleep(4.9)
        assert connection.is_open
        assert len(kit.echo.seen) == handled
        await asyncio.sleep(0.2)

        assert not kit.server.connections
        kit.ends[0].resume_reading()
        for task in tasks:
            with pytest.raises(DownstreamUnavailable) as caught:
                await task
            assert caught.value.facts["outcome"] == "unknown"
        assert kit.inventory.metrics.value("io_timeouts_total", op="oap_write") == 1


@pytest.mark.parametrize(("gap_s", "alive"), [(0.05, True), (1.0, False)])
async def test_frame_that_drips_in_has_the_read_deadline_for_all_of_it(gap_s: float, alive: bool) -> None:
    async with Kit() as kit:
        transport, _ = memory_pair(
            asyncio.Protocol(), kit.server.protocol(), a_to_b=Weather(chunk_bytes=1, gap_s=gap_s)
        )
        before = asyncio.get_running_loop().time()
        transport.write(encode(Frame(REQ | START | END, 7, code=2, app_proto_id=100)))
        await asyncio.sleep(8)

        assert bool(kit.server.connections) is alive
        assert kit.inventory.metrics.value("io_timeouts_total", op="oap_read") == (0 if alive else 1)
        assert asyncio.get_running_loop().time() - before == pytest.approx(8)
        transport.abort()


async def test_request_of_many_frames_has_the_read_deadline_for_each_of_them() -> None:
    async with Kit() as kit:
        transport, _ = memory_pair(asyncio.Protocol(), kit.server.protocol())
        transport.write(encode(Frame(REQ | START, 7, code=2, app_proto_id=100)))
        for _ in range(4):
            await asyncio.sleep(4)
            transport.write(encode(Frame(REQ, 7, code=2, app_proto_id=100)))
        await asyncio.sleep(4.9)
        assert kit.server.open_requests == 1
        await asyncio.sleep(1.2)

        assert not kit.server.connections


async def test_large_requests_and_large_answers_at_once_do_not_lock_each_other() -> None:
    async with Kit(call_timeout_s=4.0) as kit:
        tasks = [spawn(kit.echo_call(text=str(n), data=bytes(900_000))) for n in range(20)]

        answers = [await task for task in tasks]
        assert [answer.text for answer in answers] == [str(n) for n in range(20)]
        assert kit.dialled == 1


class StubbornConnection(OapClientConnection):
    """The wrong twin: an asker that stops reading while its requests are not taken."""

    must_read = False


async def test_asker_that_stops_reading_would_lock_up() -> None:
    kit = Kit(call_timeout_s=4.0)
    kit.client._protocol = lambda: StubbornConnection(
        StreamTable(max_inflight=65), FrameTimeouts(), kit.client._timeouts, kit.client._log, None
    )
    async with kit:
        tasks = [spawn(kit.echo_call(data=bytes(900_000))) for _ in range(20)]
        failed = 0
        for task in tasks:
            try:
                await task
            except (Timeout, DownstreamUnavailable):
                failed += 1

        assert failed


any_frames = st.lists(
    st.builds(
        Frame,
        flags=st.integers(0, 0xFF),
        corr_id=st.integers(0, 3),
        code=st.integers(0, 11),
        app_proto_id=st.sampled_from([0, 100]),
        payload=st.one_of(st.binary(max_size=40), st.just(msgspec.msgpack.encode([None, "", "", None, {"text": "x"}]))),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(any_frames, st.binary(max_size=60))
async def test_any_frames_and_then_junk_leave_the_server_whole(frames: list[Frame], junk: bytes) -> None:
    async with Kit() as kit:
        peer = asyncio.Protocol()
        transport, _ = memory_pair(peer, kit.server.protocol())
        transport.write(b"".join(map(encode, frames)) + junk)
        await asyncio.sleep(1)
        transport.abort()
        await settle()

        assert not kit.server.connections
        assert kit.server.open_requests == 0
        assert await kit.echo_call(text="alive") == Told("alive")


# --- breaking and mending --------------------------------------------------------------------------------------------


async def test_lost_connection_fails_open_calls_with_outcome_unknown_and_the_next_call_reconnects() -> None:
    async with Kit() as kit:
        task = spawn(kit.echo_call("later"))
        await settle()
        assert kit.ends is not None
        kit.ends[1].abort()
        with pytest.raises(DownstreamUnavailable) as caught:
            await task

        assert caught.value.facts == {"outcome": "unknown"}
        assert kit.echo.replies[0].cancelled()
        assert await kit.echo_call(text="back") == Told("back")


async def test_idempotent_call_is_tried_again_and_others_are_not() -> None:
    async with Kit() as kit:
        await kit.client.connect()
        assert kit.ends is not None
        kit.ends[0].line.stall()
        again, once = spawn(kit.echo_call("again", text="x")), spawn(kit.echo_call("echo"))
        await settle()
        kit.ends[1].abort()

        assert await again == Told("x")
        with pytest.raises(DownstreamUnavailable):
            await once
        assert kit.client_inventory.metrics.value("backoff_retries_total", op="echo.again") == 1


async def test_unreachable_peer_is_dialled_with_backoff_and_found_again() -> None:
    kit = Kit()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    for _ in range(6):
        with pytest.raises(DownstreamUnavailable):
            await kit.echo_call()
    waited = loop.time()
    assert 0.05 + 0.1 + 0.2 + 0.4 + 0.8 <= waited - begun <= 0.1 + 0.2 + 0.4 + 0.8 + 1.6
    with use_deadline(Deadline.after(0.01, loop.time())), pytest.raises(DownstreamUnavailable):
        await kit.echo_call()
    assert loop.time() == waited

    async with kit:
        assert await kit.echo_call(text="there") == Told("there")


async def test_callers_without_time_do_not_keep_the_others_from_reconnecting() -> None:
    kit = Kit()
    loop = asyncio.get_running_loop()
    for _ in range(4):
        with pytest.raises(DownstreamUnavailable):
            await kit.echo_call()
    async with kit:
        patient = spawn(kit.echo_call(text="patient"))
        for _ in range(50):
            with use_deadline(Deadline.after(0.001, loop.time())), pytest.raises((DownstreamUnavailable, Timeout)):
                await kit.echo_call()
        begun = loop.time()

        assert await patient == Told("patient")
        assert loop.time() - begun < 1.0


async def test_callers_that_wait_for_the_same_dial_share_its_failure() -> None:
    kit = Kit()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    tasks = [spawn(kit.echo_call()) for _ in range(30)]
    for task in tasks:
        with pytest.raises(DownstreamUnavailable):
            await task

    # The first fails before the others wait; they all share the second try, one backoff later.
    assert loop.time() - begun <= 0.1


async def test_cancelling_the_call_that_dials_leaves_the_others_a_connection() -> None:
    kit = Kit()
    kit.weather = Weather(latency_s=0.5)
    async with kit:
        first = spawn(kit.echo_call())
        others = [spawn(kit.echo_call(text=str(n))) for n in range(3)]
        await asyncio.sleep(0.1)
        first.cancel()

        assert [(await task).text for task in others] == ["0", "1", "2"]
        with pytest.raises(asyncio.CancelledError):
            await first


async def test_closed_client_refuses_and_closing_twice_is_nothing() -> None:
    async with Kit() as kit:
        task = spawn(kit.echo_call("later"))
        await settle()
        await kit.client.close()
        await kit.client.close()

        with pytest.raises(DownstreamUnavailable):
            await task
        with pytest.raises(Closed):
            await kit.echo_call()


@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.6, 1.1])
async def test_client_closed_while_it_connects_leaves_no_connection(after_s: float) -> None:
    kit = Kit()
    kit.weather = Weather(latency_s=0.5)
    dial = kit.client._dial

    async def slow(protocol: object) -> object:
        await asyncio.sleep(0.5)
        return await dial(protocol)

    kit.client._dial = slow
    async with kit:
        call = spawn(kit.echo_call())
        await asyncio.sleep(after_s)
        await kit.client.close()
        with pytest.raises((Closed, DownstreamUnavailable)):
            await call
        await asyncio.sleep(5)

        assert not kit.server.connections


# --- drain -----------------------------------------------------------------------------------------------------------


async def test_draining_server_finishes_open_requests_and_refuses_new_ones() -> None:
    async with Kit() as kit:
        task = spawn(kit.echo_call("later"))
        await settle()
        kit.server.stop_intake()
        quiet = spawn(kit.server.quiet())
        with pytest.raises(NotReady) as caught:
            await kit.echo_call()
        assert caught.value.facts["phase"] == "draining"
        assert not quiet.done()
        kit.echo.replies[0].set_result(Told("done"))

        assert await task == Told("done")
        await quiet


async def test_closing_server_cuts_work_that_does_not_end() -> None:
    kit = Kit(call_timeout_s=60)
    async with kit:
        task = spawn(kit.echo_call("task"))
        await settle()
        await kit.server.close()

        with pytest.raises((DownstreamUnavailable, Canceled)):
            await task
        assert kit.echo.cancelled == 1


# --- events ----------------------------------------------------------------------------------------------------------


async def test_events_go_both_ways() -> None:
    async with Kit() as kit:
        await kit.client.connect()
        assert kit.server.publish(ECHO, Rang(3)) == 0
        assert await kit.client.send_event(ECHO, Rang(4))
        await settle()

        assert [ECHO.decode_event(code, data) for _, code, data in kit.heard] == [Rang(3)]
        assert kit.echo.events == [Rang(4)]


async def test_slow_peer_loses_events_and_never_holds_up_the_publisher() -> None:
    async with Kit() as kit:
        await kit.client.connect()
        assert kit.ends is not None
        kit.ends[0].pause_reading()
        lost = 0
        for bell in range(200_000):
            lost += kit.server.publish(ECHO, Rang(bell))
            if bell % 1000 == 0:
                await asyncio.sleep(0)
            if lost > 10:
                break

        assert lost > 10
        assert kit.inventory.metrics.value("oap_events_lost_total") == lost
