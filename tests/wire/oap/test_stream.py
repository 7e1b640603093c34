"""The stream rules: what opens, continues, answers and breaks a stream; the window; what is held."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.errors import Busy, Malformed, OverLimit
from penstock.kernel.limiter import ByteBudget
from penstock.wire.oap import frame as oap
from penstock.wire.oap.frame import (
    COMP,
    END,
    EVENT,
    REQ,
    RESP,
    START,
    Frame,
)
from penstock.wire.oap.stream import (
    OapAnswer,
    OapControl,
    OapRefusal,
    OapRequest,
    StreamTable,
)


def req(corr_id: int, flags: int = START | END, payload: bytes = b"", **rest: object) -> Frame:
    return Frame(REQ | flags, corr_id, code=1, app_proto_id=100, payload=payload, **rest)


def resp(corr_id: int, flags: int = END, payload: bytes = b"", code: int = 200) -> Frame:
    return Frame(RESP | flags, corr_id, code=code, app_proto_id=100, payload=payload)


def refused(decision: object, reason: str) -> bool:
    return (
        isinstance(decision, OapRefusal) and decision.error.status == 400 and decision.error.facts["reason"] == reason
    )


def test_request_in_one_frame_is_complete_at_once() -> None:
    table = StreamTable()

    got = table.receive(req(7, payload=b"x", capability=b"cap", tenant_id=9))

    assert got == OapRequest(7, 100, 1, 9, b"cap", b"x")
    assert table.inbound == 1
    assert table.settle(7)
    assert table.inbound == 0


def test_request_over_several_frames_is_joined_and_interleaves_with_others() -> None:
    table = StreamTable()
    assert table.receive(req(1, START, b"a", capability=b"cap")) is None
    assert table.receive(req(2, START, b"A")) is None
    assert table.receive(req(1, 0, b"b")) is None
    assert table.receive(req(2, END, b"B")) == OapRequest(2, 100, 1, 0, b"", b"AB")

    assert table.receive(req(1, END, b"c")) == OapRequest(1, 100, 1, 0, b"cap", b"abc")


def test_second_start_is_400_and_closes_the_stream() -> None:
    table = StreamTable()
    table.receive(req(1, START, b"a"))

    assert refused(table.receive(req(1, START)), "second_start")
    assert table.inbound == 0
    # What is still under way for the closed stream is dropped without a second answer.
    assert table.receive(req(1, 0)) is None
    assert table.receive(req(1, END)) is None
    assert isinstance(table.receive(req(1)), OapRequest)


def test_second_start_while_the_answer_is_worked_on_closes_the_stream() -> None:
    table = StreamTable()
    table.receive(req(1))

    assert refused(table.receive(req(1)), "second_start")
    assert table.inbound == 0
    assert not table.settle(1)


@pytest.mark.parametrize("flags", [END, 0])
def test_end_or_data_without_start_is_400(flags: int) -> None:
    assert refused(StreamTable().receive(req(1, flags)), "no_start")


def test_frame_after_end_is_400() -> None:
    table = StreamTable()
    table.receive(req(1))

    assert refused(table.receive(req(1, END)), "bad_continuation")
    assert table.inbound == 0


def test_continuation_of_another_method_is_400() -> None:
    table = StreamTable()
    table.receive(req(1, START))

    assert refused(table.receive(Frame(REQ | END, 1, code=2, app_proto_id=100)), "bad_continuation")


@pytest.mark.parametrize("kind", [REQ, RESP, EVENT])
def test_capability_without_start_is_400_and_closes_the_stream(kind: int) -> None:
    table = StreamTable()
    table.receive(req(1, START))

    assert refused(table.receive(Frame(kind | END, 1, code=1, app_proto_id=100, capability=b"x")), "cap_without_start")
    assert table.inbound == (0 if kind == REQ else 1)


@pytest.mark.parametrize("kinds", [0, REQ | RESP, REQ | EVENT, RESP | EVENT, REQ | RESP | EVENT])
def test_frame_is_exactly_one_of_the_three_kinds(kinds: int) -> None:
    assert refused(StreamTable().receive(Frame(kinds | START, 1, app_proto_id=100)), "bad_kind")


def test_resp_before_req_is_400_and_refusals_are_not_refused_in_turn() -> None:
    left, right = StreamTable(), StreamTable()

    first = left.receive(resp(5))
    assert refused(first, "resp_before_req")
    assert first.answer
    second = right.receive(resp(5, code=first.error.status))
    assert refused(second, "resp_before_req")
    assert not second.answer


def test_answer_over_several_frames_is_joined() -> None:
    table = StreamTable()
    table.open(3)

    assert table.receive(resp(3, START, b"a")) is None
    assert table.receive(resp(3, 0, b"b")) is None
    assert table.receive(resp(3, END, b"c")) == OapAnswer(3, 200, b"abc")
    assert table.outbound == 0
    assert refused(table.receive(resp(3)), "resp_before_req")


def test_second_start_of_an_answer_is_refused() -> None:
    table = StreamTable()
    table.open(3)
    table.receive(resp(3, START))

    assert refused(table.receive(resp(3, START)), "second_start")


def test_window_is_64_and_more_is_busy() -> None:
    table = StreamTable()
    for corr_id in range(64):
        assert isinstance(table.receive(req(corr_id)), OapRequest)

    over = table.receive(req(64))
    assert isinstance(over, OapRefusal)
    assert isinstance(over.error, Busy)
    assert over.answer
    table.settle(0)
    assert isinstance(table.receive(req(65)), OapRequest)


def test_unfinished_requests_take_places_in_the_window_too() -> None:
    table = StreamTable(max_inflight=2)
    table.receive(req(1, START))
    table.receive(req(2, START))

    over = table.receive(req(3, START))
    assert isinstance(over, OapRefusal)
    assert isinstance(over.error, Busy)
    assert table.receive(req(3, 0)) is None
    assert table.receive(req(3, END)) is None


def test_peer_that_keeps_feeding_refused_streams_is_cut_off() -> None:
    table = StreamTable(max_inflight=4)
    for corr_id in range(4):
        table.receive(req(corr_id, START))
    for corr_id in range(4, 8):
        table.receive(req(corr_id, START))

    with pytest.raises(Busy):
        table.receive(req(8, START))


def test_our_own_window_refuses_before_anything_is_sent() -> None:
    table = StreamTable(max_inflight=2)
    table.open(1)
    table.open(2)

    with pytest.raises(Busy):
        table.open(3)
    assert table.outbound == 2


def test_abandoned_answer_is_dropped_and_then_frees_its_place() -> None:
    table = StreamTable(max_inflight=1)
    table.open(1)
    table.abandon(1)

    assert table.receive(resp(1, START, b"late")) is None
    assert table.outbound == 1
    assert table.receive(resp(1, END, b"later")) is None
    table.open(2)


@pytest.mark.parametrize("frame", [Frame(REQ, 1), Frame(EVENT, 1, app_proto_id=5), Frame(EVENT | START | END, 1)])
def test_control_and_events_take_no_stream(frame: Frame) -> None:
    table = StreamTable(max_inflight=1)

    assert table.receive(frame) == OapControl(frame)
    assert table.inbound == 0


def test_control_answer_needs_no_end() -> None:
    table = StreamTable()
    table.open(1)

    assert table.receive(Frame(RESP, 1, code=200, payload=b"{}")) == OapAnswer(1, 200, b"{}")


def test_payload_above_the_limit_is_413_and_closes_the_stream() -> None:
    table = StreamTable(request_bytes_max=10)
    table.receive(req(1, START, bytes(6)))

    over = table.receive(req(1, 0, bytes(5)))
    assert isinstance(over, OapRefusal)
    assert isinstance(over.error, OverLimit)
    assert table.inbound == 0


def test_compressed_payload_is_inflated_and_a_bomb_costs_only_its_stream() -> None:
    table = StreamTable()
    text = b"".join(b"%d," % i for i in range(500))
    packed = oap.deflate(text)
    assert packed is not None
    table.receive(req(1, START))

    assert table.receive(req(2, START | END | COMP, packed)) == OapRequest(2, 100, 1, 0, b"", text)
    import zstandard

    bomb = table.receive(req(3, START | END | COMP, zstandard.ZstdCompressor().compress(bytes(1 << 24))))
    assert isinstance(bomb, OapRefusal)
    assert bomb.error.status == 413
    junk = table.receive(req(4, START | END | COMP, b"junk"))
    assert isinstance(junk, OapRefusal)
    assert isinstance(junk.error, Malformed)
    assert table.receive(req(1, END, b"fine")) == OapRequest(1, 100, 1, 0, b"", b"fine")


def test_budget_is_taken_as_bytes_arrive_and_given_back_when_settled() -> None:
    budget = ByteBudget(100)
    table = StreamTable(budget=budget)
    table.receive(req(1, START, bytes(60)))
    assert budget.in_use == 60

    over = table.receive(req(2, START | END, bytes(41)))
    assert isinstance(over, OapRefusal)
    assert isinstance(over.error, Busy)
    assert budget.in_use == 60
    table.receive(req(1, END, bytes(10)))
    table.settle(1)
    assert budget.in_use == 0


def test_lost_connection_gives_everything_back() -> None:
    budget = ByteBudget(100)
    table = StreamTable(budget=budget)
    table.receive(req(1, START, bytes(60)))
    table.receive(req(2, START | END, bytes(30)))
    table.open(9)

    table.clear()

    assert (budget.in_use, table.inbound, table.outbound) == (0, 0, 0)


any_frames = st.builds(
    Frame,
    flags=st.integers(0, 0xFF),
    corr_id=st.integers(0, 3),
    code=st.integers(0, 2),
    app_proto_id=st.sampled_from([0, 100]),
    capability=st.sampled_from([b"", b"", b"c"]),
    payload=st.binary(max_size=12),
)


@given(st.lists(any_frames, max_size=60), st.integers(1, 4))
def test_any_frames_keep_the_window_and_the_books(frames: list[Frame], window: int) -> None:
    budget = ByteBudget(64)
    table = StreamTable(max_inflight=window, request_bytes_max=20, budget=budget)
    complete: set[int] = set()
    try:
        for frame in frames:
            got = table.receive(frame)
            if isinstance(got, OapRequest):
                assert got.corr_id not in complete
                assert len(got.payload) <= 20
                complete.add(got.corr_id)
            elif isinstance(got, OapRefusal):
                complete.discard(got.corr_id)
            assert len(complete) <= table.inbound <= window
    except Busy:
        assert len(frames) > window

    table.clear()
    assert budget.in_use == 0
