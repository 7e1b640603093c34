"""Calls that share a request: each keeps its own answer, error, deadline and cancel, at any step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock.contracts import mailbox as m
from penstock.contracts.call import NOBODY, Call
from penstock.kernel.clock import LoopClock
from penstock.kernel.deadline import timeout
from penstock.kernel.errors import Busy, Conflict, DownstreamUnavailable, OverLimit, PenstockError, Timeout
from penstock.kernel.inventory import Inventory
from penstock.sdk.errors import ClientClosed
from penstock.sdk.joining import call_joiner
from penstock.sdk.joining.joined_mailbox import JoinedMailbox
from penstock.sdk.joining.place_line import PlaceLine
from penstock.testing import Run, sweep
from penstock.testing.contracts.memory_mailbox import MemoryMailbox
from tests.sdk.kit import TOPIC


class Wire(MemoryMailbox):
    """The mailbox in RAM behind a line that takes time; notes how many items each request had."""

    def __init__(self) -> None:
        super().__init__(LoopClock(1_700_000_000.0))
        self.requests: list[tuple[str, int]] = []
        self.fails: PenstockError | None = None
        self.lag_s = 0.1

    async def _cross(self, kind: str, items: int) -> None:
        self.requests.append((kind, items))
        # A call knows the deadline it is under, and ends by it.
        async with timeout("wire", 3600.0):
            await asyncio.sleep(self.lag_s)
        if self.fails is not None:
            raise self.fails

    async def send(self, request: m.Send, call: Call = NOBODY) -> m.Sent:
        await self._cross("send", 1)
        return await super().send(request, call)

    async def send_batch(self, request: m.SendBatch, call: Call = NOBODY) -> m.SentBatch:
        await self._cross("send", len(request.messages))
        return await super().send_batch(request, call)

    async def ack(self, request: m.Ack, call: Call = NOBODY) -> m.Acked:
        await self._cross("ack", 1)
        return await super().ack(request, call)

    async def ack_batch(self, request: m.AckBatch, call: Call = NOBODY) -> m.SettledBatch:
        await self._cross("ack", len(request.acks))
        return await super().ack_batch(request, call)

    async def nack(self, request: m.Nack, call: Call = NOBODY) -> m.Nacked:
        await self._cross("nack", 1)
        return await super().nack(request, call)

    async def nack_batch(self, request: m.NackBatch, call: Call = NOBODY) -> m.SettledBatch:
        await self._cross("nack", len(request.nacks))
        return await super().nack_batch(request, call)

    async def extend(self, request: m.Extend, call: Call = NOBODY) -> m.Extended:
        await self._cross("extend", 1)
        return await super().extend(request, call)

    async def extend_batch(self, request: m.ExtendBatch, call: Call = NOBODY) -> m.SettledBatch:
        await self._cross("extend", len(request.extends))
        return await super().extend_batch(request, call)

    def stored(self) -> list[str]:
        """Return the payloads of what is there, in the order they were stored."""
        return [stored.sent.payload.decode() for stored in self.state.messages.values()]

    def stored_of(self, key: str) -> list[int]:
        """Return the numbers that were stored under one key, in order."""
        return [int(each.sent.payload) for each in self.state.messages.values() if each.sent.key == key]


@asynccontextmanager
async def joined() -> AsyncIterator[tuple[JoinedMailbox, Wire]]:
    wire = Wire()
    mailbox = JoinedMailbox(wire, Inventory("client"))
    try:
        yield mailbox, wire
    finally:
        await mailbox.close()


def message(name: object, **said: Any) -> m.Send:
    return m.Send(TOPIC, str(name).encode(), **{"idem_key": f"idem-{name}", **said})


def started(*work: Coroutine[Any, Any, Any]) -> list[asyncio.Task[Any]]:
    return [asyncio.get_running_loop().create_task(each) for each in work]


async def outcomes(tasks: list[asyncio.Task[Any]]) -> list[object]:
    """Wait for all, and return what each got: its answer, or its error."""
    await asyncio.wait(tasks)
    return [None if task.cancelled() else task.exception() or task.result() for task in tasks]


async def within(seconds: float, work: Coroutine[Any, Any, Any]) -> Any:
    async with timeout("send", seconds):
        return await work


async def test_a_lone_call_goes_out_at_once_by_the_single_route() -> None:
    async with joined() as (mailbox, wire):
        began_at = asyncio.get_running_loop().time()
        for name in "ab":
            await mailbox.send(message(name))

        assert wire.requests == [("send", 1), ("send", 1)]
        assert asyncio.get_running_loop().time() - began_at == pytest.approx(2 * wire.lag_s)


async def test_calls_that_come_while_one_is_in_flight_leave_together() -> None:
    async with joined() as (mailbox, wire):
        sent = await outcomes(started(*(mailbox.send(message(n)) for n in range(20))))

        assert wire.requests == [("send", 1), ("send", 19)]
        assert len({each.msg_id for each in sent}) == 20
        assert sorted(wire.stored(), key=int) == [str(n) for n in range(20)]


async def test_the_callers_of_one_answer_are_in_flight_again_before_those_of_another_run() -> None:
    async with joined() as (mailbox, wire):
        wire.lag_s = 0.001
        wire.requests = happened = []

        async def again_and_again(n: int) -> None:
            for turn in range(4):
                await mailbox.send(message(f"{n} {turn}"))
                happened.append(("answered", n))

        await outcomes(started(*(again_and_again(n) for n in range(40))))

        halves = happened.index(("send", 20))
        kinds = [kind for kind, _ in happened[halves:]]
        # Two halves leave, and are answered in the same turn of the loop.
        assert kinds[: 2 + 42] == ["send", "send", *(["answered"] * 20 + ["send"]) * 2]
        assert len(wire.stored()) == 160


async def test_a_slow_request_does_not_hold_up_those_behind_it() -> None:
    async with joined() as (mailbox, wire):
        wire.lag_s = 60.0
        slow = started(mailbox.send(message("slow")))
        await asyncio.sleep(1)
        wire.lag_s = 0.1
        await within(1.0, mailbox.send(message("next")))

        assert not slow[0].done()
        slow[0].cancel()
        await asyncio.wait(slow)


class BareHandle:
    """What uvloop returns for a timer whose instant has passed: it can be cancelled, and tells nothing."""

    def __init__(self, handle: asyncio.Handle) -> None:
        self.cancel = handle.cancel


async def test_a_timer_is_asked_for_nothing_but_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    call_at = loop.call_at
    async with joined() as (mailbox, wire):

        def bare(when: float, call: Any, *rest: Any, **said: Any) -> Any:
            handle = call_at(when, call, *rest, **said)
            ours = isinstance(getattr(call, "__self__", None), call_joiner.CallJoiner)
            return BareHandle(handle) if ours else handle

        monkeypatch.setattr(loop, "call_at", bare)
        sent = await outcomes(started(*(mailbox.send(message(n)) for n in range(5))))
        monkeypatch.undo()

        assert {type(each) for each in sent} == {m.Sent}
        assert len(wire.stored()) == 5


async def test_settlements_are_joined_each_kind_by_itself() -> None:
    async with joined() as (mailbox, wire):
        for n in range(12):
            await wire.send(message(n))
        wire.requests.clear()
        leased = (await wire.recv(m.Recv(TOPIC, 12, 60_000))).messages
        acks = [mailbox.ack(m.Ack(each.msg_id, each.receipt)) for each in leased[:4]]
        nacks = [mailbox.nack(m.Nack(each.msg_id, each.receipt, None, 1000)) for each in leased[4:8]]
        extends = [mailbox.extend(m.Extend(each.msg_id, each.receipt, 90_000)) for each in leased[8:]]
        answers = await outcomes(started(*acks, *nacks, *extends))

        assert [type(each) for each in answers] == [m.Acked] * 4 + [m.Nacked] * 4 + [m.Extended] * 4
        assert [each.visible_in_ms for each in answers[4:8]] == [1000] * 4
        assert [each.receipt for each in answers[8:]] == [each.receipt for each in leased[8:]]
        assert sorted(wire.requests) == [(kind, count) for kind in ("ack", "extend", "nack") for count in (1, 3)]


async def test_an_item_that_fails_fails_its_call_alone_with_every_fact_of_the_error() -> None:
    async with joined() as (mailbox, wire):
        await wire.send(message("taken"))
        sends = ["a", "b", "c"]
        tasks = started(
            *(mailbox.send(message(name)) for name in sends), mailbox.send(message("x", idem_key="idem-taken"))
        )
        first, second, third, refused = await outcomes(tasks)
        with pytest.raises(Conflict) as alone:
            await wire.send(message("x", idem_key="idem-taken"))

        assert (type(refused), refused.facts, refused.status) == (Conflict, alone.value.facts, alone.value.status)
        assert [type(each) for each in (first, second, third)] == [m.Sent] * 3


async def test_a_request_that_fails_is_told_to_every_call_with_an_error_of_its_own() -> None:
    async with joined() as (mailbox, wire):
        wire.fails = DownstreamUnavailable("Connection refused.", reason="refused")
        errors = await outcomes(started(*(mailbox.send(message(n)) for n in range(5))))

        assert [(type(error), error.facts) for error in errors] == [(DownstreamUnavailable, {"reason": "refused"})] * 5
        assert len({id(error) for error in errors}) == 5


async def test_a_request_too_large_for_the_node_is_made_call_by_call() -> None:
    async with joined() as (mailbox, wire):

        async def too_large(_request: m.SendBatch, _call: Call = NOBODY) -> m.SentBatch:
            raise OverLimit("The body is too large.", limit="body_bytes")

        wire.send_batch = too_large  # type: ignore[method-assign]
        sent = await outcomes(started(*(mailbox.send(message(n)) for n in range(40))))

        assert {type(each) for each in sent} == {m.Sent}
        assert len(wire.stored()) == 40


async def test_an_answer_about_other_calls_is_believed_by_nobody() -> None:
    async with joined() as (mailbox, wire):

        async def one_only(_request: m.SendBatch, _call: Call = NOBODY) -> m.SentBatch:
            return m.SentBatch((m.SendResult("id", False, 0),))

        wire.send_batch = one_only  # type: ignore[method-assign]
        first, *others = await outcomes(started(*(mailbox.send(message(n)) for n in range(4))))

        assert isinstance(first, m.Sent)
        assert {type(each) for each in others} == {DownstreamUnavailable}


async def test_a_nack_whose_outcome_is_unknown_is_not_repeated() -> None:
    async with joined() as (mailbox, wire):
        for n in range(3):
            await wire.send(message(n))
        leased = (await wire.recv(m.Recv(TOPIC, 3, 60_000))).messages

        async def unknown(request: m.NackBatch, _call: Call = NOBODY) -> m.SettledBatch:
            return m.SettledBatch(tuple(m.SettleResult(code="internal", detail="?") for _ in request.nacks))

        wire.nack_batch, wire.requests = unknown, []  # type: ignore[method-assign]
        nacks = (mailbox.nack(m.Nack(each.msg_id, each.receipt)) for each in leased)
        _, *others = await outcomes(started(*nacks))

        assert [error.code for error in others] == ["internal", "internal"]
        assert wire.requests == [("nack", 1)]


async def test_a_call_out_of_time_is_told_so_and_the_others_are_not() -> None:
    async with joined() as (mailbox, wire):
        wire.lag_s = 1.0
        patience = (5.0, 0.5, 5.0, 1.5, 5.0)
        tasks = started(*(within(each, mailbox.send(message(n))) for n, each in enumerate(patience)))
        answers = await outcomes(tasks)

        # The second leaves while its request is in flight; the fourth has its answer in time.
        assert [type(each) for each in answers] == [m.Sent, Timeout, m.Sent, m.Sent, m.Sent]


async def test_a_request_that_nobody_waits_for_is_cut() -> None:
    async with joined() as (mailbox, wire):
        wire.lag_s = 1.0
        tasks = started(*(mailbox.send(message(n)) for n in range(4)))
        await asyncio.sleep(0.5)
        for task in tasks[1:]:
            task.cancel()
        await outcomes(tasks)
        await asyncio.sleep(5)

        assert wire.stored() == ["0"]


async def test_calls_with_one_key_arrive_in_the_order_they_were_made() -> None:
    async with joined() as (mailbox, wire):
        await outcomes(started(*(mailbox.send(message(n, key=f"k{n % 3}")) for n in range(60))))

        assert [wire.stored_of(f"k{n}") for n in range(3)] == [list(range(n, 60, 3)) for n in range(3)]


async def test_a_call_passes_no_earlier_one_with_its_key_that_is_slow() -> None:
    async with joined() as (mailbox, wire):
        wire.lag_s = 1.0
        slow = started(mailbox.send(message(0, key="k")))
        await asyncio.sleep(0.5)
        wire.lag_s = 0.1
        await outcomes(slow + started(mailbox.send(message(1, key="k")), mailbox.send(message(2))))

        assert wire.stored() == ["2", "0", "1"]


async def test_a_call_cancelled_while_it_gathers_never_leaves() -> None:
    async with joined() as (mailbox, wire):
        tasks = started(*(mailbox.send(message(n)) for n in range(4)))
        await asyncio.sleep(0.001)
        # As many as in flight would leave; one waits for company.
        late = started(mailbox.send(message("late")))
        await asyncio.sleep(0.001)
        late[0].cancel()
        await outcomes(tasks + late)

        assert wire.requests == [("send", 1), ("send", 3)]
        assert wire.stored() == ["0", "1", "2", "3"]


async def test_the_deadline_of_the_caller_that_fills_a_request_is_not_that_of_the_others() -> None:
    async with joined() as (mailbox, wire):
        wire.lag_s = 1.0
        patient = [within(5.0, mailbox.send(message(n))) for n in range(32)]
        *answers, last = await outcomes(started(*patient, within(0.5, mailbox.send(message("last")))))

        assert {type(each) for each in answers} == {m.Sent}
        assert isinstance(last, Timeout)


async def test_a_closed_client_ends_calls_that_gather_and_calls_in_flight() -> None:
    async with joined() as (mailbox, wire):
        wire.lag_s = 3600.0
        tasks = started(*(mailbox.send(message(n, key="k")) for n in range(3)))
        others = started(*(mailbox.send(message(f"o{n}")) for n in range(3)))
        await asyncio.sleep(1)
        await mailbox.close()
        tasks[0].cancel()

        assert {type(each) for each in (await outcomes(tasks + others))[1:]} == {ClientClosed}
        with pytest.raises(ClientClosed):
            await mailbox.send(message("late"))


async def test_above_the_bound_a_caller_waits_in_line_and_a_full_line_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_joiner, "UNDER_WAY_MAX", 4)
    monkeypatch.setattr(call_joiner, "WAITING_MAX", 3)
    async with joined() as (mailbox, wire):
        answers = await outcomes(started(*(mailbox.send(message(n)) for n in range(10))))

        # One goes alone, four gather, three wait, two are refused.
        assert [type(each) for each in answers] == [m.Sent] * 8 + [Busy] * 2
        assert sorted(wire.stored(), key=int) == [str(n) for n in range(8)]


async def test_who_left_the_line_takes_no_place_in_it() -> None:
    line = PlaceLine("test", 1, waiting_max=1)
    await line.take()
    for _ in range(3):
        with pytest.raises(Timeout):
            await within(0.1, line.take())
    line.give()

    assert not line.full


# --- at any step


def test_a_call_cancelled_at_any_step_leaves_the_others_alone() -> None:
    async def scenario(run: Run) -> tuple[list[object], list[str], list[int]]:
        async with joined() as (mailbox, wire):
            before = started(mailbox.send(message(0)), mailbox.send(message(1, key="k")))
            await asyncio.sleep(0.01)
            run.start(mailbox.send(message(2, key="k")))
            await asyncio.sleep(0.01)
            after = started(mailbox.send(message(3, key="k")), mailbox.send(message(4)))
            await run.ended()
            answers = await outcomes(before + after)
            assert mailbox._sends.queue.idle
            return [type(each) for each in answers], wire.stored(), wire.stored_of("k")

    def others_are_stored(outcome: tuple[list[object], list[str], list[int]]) -> None:
        kinds, stored, keyed = outcome
        assert kinds == [m.Sent] * 4
        assert sorted(set(stored) - {"2"}) == ["0", "1", "3", "4"]
        assert keyed == sorted(keyed)

    assert sweep(scenario, check=others_are_stored) > 10


def test_a_client_closed_at_any_step_leaves_no_call_without_an_end() -> None:
    async def scenario(run: Run) -> list[object]:
        async with joined() as (mailbox, _wire):
            tasks = started(*(mailbox.send(message(n, key=f"k{n % 2}")) for n in range(6)))

            async def close_when_struck() -> None:
                try:
                    await asyncio.sleep(1)
                finally:
                    await mailbox.close()

            run.start(close_when_struck())
            await run.ended()
            return [type(each) for each in await outcomes(tasks)]

    def each_has_an_end(kinds: list[object]) -> None:
        assert set(kinds) <= {m.Sent, ClientClosed}

    assert sweep(scenario, check=each_has_an_end) > 10


def test_a_place_is_lost_at_no_step() -> None:
    async def scenario(run: Run) -> bool:
        line = PlaceLine("test", 1, waiting_max=2)

        async def hold() -> None:
            await line.take()
            try:
                await asyncio.sleep(0.1)
            finally:
                line.give()

        others = started(hold())
        await asyncio.sleep(0.01)
        run.start(hold())
        await asyncio.sleep(0.01)
        others += started(hold())
        await run.ended()
        await outcomes(others)
        return line.full

    assert sweep(scenario, check=lambda full: not full) > 3
