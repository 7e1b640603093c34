"""Client and server of OAP/1 together, in virtual time over memory."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from penstock.contracts.call import Call, Origin
from penstock.contracts.method import Methods
from penstock.kernel.deadline import Deadline, use_deadline
from penstock.kernel.errors import (
    Conflict,
    DownstreamUnavailable,
    Integrity,
    Internal,
    Malformed,
    NotFound,
    Timeout,
    Unauthenticated,
)
from penstock.net.oap.connection import FrameTimeouts
from penstock.net.oap.service import OapServerOptions
from penstock.testing.line import Weather
from tests.net.oap.kit import (
    ECHO,
    Ask,
    Kit,
    Told,
    settle,
    spawn,
)


async def test_call_brings_back_the_answer() -> None:
    async with Kit() as kit:
        assert await kit.echo_call(text="hi", data=b"\0\xff") == Told("hi", b"\0\xff")


async def test_many_calls_share_one_connection_and_keep_their_answers_apart() -> None:
    async with Kit() as kit:
        tasks = [spawn(kit.echo_call("later")) for _ in range(10)]
        await settle()
        for number, reply in reversed(list(enumerate(kit.echo.replies))):
            reply.set_result(Told(str(number)))

        assert [(await task).text for task in tasks] == [str(n) for n in range(10)]
        assert kit.dialled == 1


@pytest.mark.parametrize("size", [0, 65_000, 65_536, 65_537, 300_000, 1_000_000])
async def test_payload_over_64_kib_travels_in_frames_of_64_kib_both_ways(size: int) -> None:
    async with Kit() as kit:
        answer = await kit.echo_call(data=bytes(size))

        assert answer.data == bytes(size)


@pytest.mark.parametrize("step", [1, 37, 38])
async def test_bytes_split_anywhere_give_the_same_answer(step: int) -> None:
    kit = Kit()
    kit.weather = Weather(chunk_bytes=step)
    async with kit:
        assert await kit.echo_call(text="split", data=bytes(100)) == Told("split", bytes(100))


@pytest.mark.parametrize("name", ["later", "task"])
async def test_future_and_coroutine_handlers_answer_when_they_are_done(name: str) -> None:
    async with Kit() as kit:
        task = spawn(kit.echo_call(name, text="x"))
        await settle()
        assert not task.done()
        kit.echo.gate.set()
        for reply in kit.echo.replies:
            reply.set_result(Told("x"))

        assert await task == Told("x")


async def test_error_comes_back_as_the_class_it_was_with_its_facts() -> None:
    async with Kit() as kit:
        with pytest.raises(Conflict, match="already there") as caught:
            await kit.echo_call("conflict")

        assert caught.value.facts == {"first": "m-1"}


@pytest.mark.parametrize("name", ["bug", "bug_in_task"])
async def test_handlers_bug_is_internal_leaks_nothing_and_the_connection_lives(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Kit() as kit:
        with pytest.raises(Internal) as caught:
            await kit.echo_call(name, Call(corr_id="c-1"))

        assert "secret" not in str(caught.value.facts) + caught.value.detail
        assert caught.value.facts["corr_id"] == "c-1"
        assert await kit.echo_call(text="still") == Told("still")
        assert kit.dialled == 1
        assert kit.inventory.metrics.value("job_failures_total", worker="oap_request", type="KeyError") == 1


async def test_answer_of_the_wrong_shape_blames_the_downstream() -> None:
    async with Kit() as kit:
        with pytest.raises(DownstreamUnavailable) as caught:
            await kit.echo_call("nonsense")

        assert caught.value.status == 502


async def test_unknown_protocol_method_and_fields_are_refused_and_nothing_is_called() -> None:
    stranger = Methods(999, [(1, "echo", Ask, Told)])
    newer = Methods(100, [(77, "echo", Ask, Told)])

    class Wide(msgspec.Struct):
        surprise: int = 1

    async with Kit() as kit:
        with pytest.raises(NotFound):
            await kit.client.call(stranger, "echo", Ask())
        with pytest.raises(NotFound):
            await kit.client.call(newer, "echo", Ask())
        with pytest.raises(Malformed, match="surprise"):
            await kit.client.call(ECHO, "echo", Wide())
        assert kit.echo.seen == []


async def test_deadline_corr_id_capability_and_tenant_cross_the_wire() -> None:
    async with Kit() as kit:
        call = Call("psp1_abc", "corr-9", "00-trace-01", 1 << 100)
        with use_deadline(Deadline.after(1.5, asyncio.get_running_loop().time())):
            await kit.echo_call("call", call)

        assert kit.echo.calls == [call]
        assert kit.echo.remaining_s == [1.5]


async def test_origin_is_not_believed_from_a_peer_that_is_not_on_the_unix_socket() -> None:
    async with Kit() as kit:
        await kit.echo_call("call", Call(origin=Origin("GET", "/v1/o", "10.0.0.1", charged=True)))

        assert kit.echo.calls[0].origin is None


async def test_capability_that_is_no_text_is_unauthenticated() -> None:
    async with Kit() as kit:
        with pytest.raises(Unauthenticated):
            await raw_request(kit, capability=b"\xff")


async def raw_request(kit: Kit, **fields: object) -> object:
    """Send a hand-made request frame through the client's own connection."""
    from penstock.net.oap.call import RequestHead
    from penstock.wire.oap.frame import REQ, Frame
    from penstock.wire.oap.problem import decode_problem

    await kit.client.connect()
    head = RequestHead(None, "", "", None, msgspec.Raw(msgspec.msgpack.encode(Ask())))
    frame = Frame(REQ, 0, **{"code": 1, "app_proto_id": 100, "payload": msgspec.msgpack.encode(head), **fields})
    answer = await kit.client._connection.ask(frame)
    if answer.code != 200:
        raise decode_problem(answer.code, answer.payload)
    return answer


async def test_unreadable_request_head_is_malformed() -> None:
    async with Kit() as kit:
        with pytest.raises(Malformed):
            await raw_request(kit, payload=b"\xc1")


async def test_checks_of_the_contract_run_at_both_ends() -> None:
    async with Kit() as kit:
        with pytest.raises(Integrity):
            await kit.echo_call("checked", text="poison")
        assert kit.echo.seen == []
        blind = Methods(100, [(8, "checked", Ask, Told)])
        with pytest.raises(Integrity):
            await kit.client.call(blind, "checked", Ask("poison"))
        assert kit.echo.seen == []


# --- time ------------------------------------------------------------------------------------------------------------


async def test_call_times_out_at_its_own_budget_and_the_work_is_withdrawn() -> None:
    async with Kit(call_timeout_s=2.0) as kit:
        before = asyncio.get_running_loop().time()
        with pytest.raises(Timeout) as caught:
            await kit.echo_call("later")

        assert asyncio.get_running_loop().time() - before == pytest.approx(2.0)
        assert caught.value.op == "echo.later"
        await settle()
        assert kit.echo.replies[0].cancelled()


async def test_callers_deadline_is_the_bound_when_it_is_nearer() -> None:
    async with Kit(call_timeout_s=9.0) as kit:
        loop = asyncio.get_running_loop()
        before = loop.time()
        with use_deadline(Deadline.after(0.25, before)), pytest.raises(Timeout):
            await kit.echo_call("later")

        assert loop.time() - before == pytest.approx(0.25)


async def test_server_ends_a_request_at_its_own_limit() -> None:
    async with Kit(OapServerOptions(request_deadline_s=1.0), call_timeout_s=9.0) as kit:
        with pytest.raises(Timeout) as caught:
            await kit.echo_call("task")

        assert caught.value.op == "oap_request"
        await settle()
        assert kit.echo.cancelled == 1


@pytest.mark.parametrize("name", ["later", "task"])
async def test_cancelled_call_withdraws_the_work_and_gives_its_place_back(name: str) -> None:
    async with Kit(max_inflight=1) as kit:
        task = spawn(kit.echo_call(name))
        await settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await settle()

        assert kit.echo.cancelled + sum(reply.cancelled() for reply in kit.echo.replies) == 1
        assert kit.server.open_requests == 0
        assert await kit.echo_call(text="next") == Told("next")


async def test_idle_connection_is_closed_and_the_next_call_makes_a_new_one() -> None:
    async with Kit() as kit:
        await kit.echo_call()
        await asyncio.sleep(40)
        assert not kit.server.connections

        assert await kit.echo_call(text="again") == Told("again")
        assert kit.dialled == 2


async def test_connection_with_an_open_request_is_not_idle() -> None:
    kit = Kit(OapServerOptions(request_deadline_s=500.0, waits=FrameTimeouts(idle_s=5.0)), call_timeout_s=300.0)
    async with kit:
        task = spawn(kit.echo_call("later"))
        await asyncio.sleep(200)
        kit.echo.replies[0].set_result(Told("late"))

        assert await task == Told("late")
        assert kit.dialled == 1
