"""What a program promises is held in every schedule; and outside events come at any moment."""

from __future__ import annotations

import asyncio

import pytest

from penstock import weave


def test_always_is_looked_at_after_every_step() -> None:
    async def program() -> None:
        inside: list[int] = []
        weave.always(lambda: len(inside) < 2, "one at a time")

        async def visit(number: int) -> None:
            inside.append(number)
            await asyncio.sleep(0)
            inside.remove(number)

        await asyncio.gather(visit(1), visit(2))

    report = weave.explore(program)

    assert (report.verdict, report.kind) == ("fails", "assertion")
    assert "always: one at a time does not hold" in report.message
    assert len(report.trace) == 3


def test_sometimes_fails_only_when_no_schedule_gets_there() -> None:
    async def program(wanted: list[str]) -> None:
        seen: list[str] = []

        async def note(name: str) -> None:
            seen.append(name)

        weave.sometimes("the order", lambda: seen == wanted)
        await asyncio.gather(note("a"), note("b"))

    assert weave.explore(lambda: program(["b", "a"])).verdict == "holds"

    report = weave.explore(lambda: program(["b", "b"]))

    assert report.verdict == "fails"
    assert "sometimes: no schedule gets to the order" in report.message


def test_eventually_fails_in_the_schedule_that_never_gets_there() -> None:
    async def program() -> None:
        seen: list[str] = []
        weave.eventually("b overtakes a", lambda: seen == ["b"])

        async def note(name: str) -> None:
            seen.append(name)

        await asyncio.gather(note("a"), note("b"))

    report = weave.explore(program)

    assert report.verdict == "fails"
    assert "b overtakes a never came true" in report.message


@pytest.mark.parametrize(("mode", "counts"), [("fifo", {1, 2}), ("any", {0, 1, 2})])
def test_an_outside_event_happens_at_any_moment(mode: str, counts: set[int]) -> None:
    """In asyncio's own order it joins behind what is ready."""

    async def program() -> int:
        done: list[int] = []
        seen: list[int] = []
        weave.event(lambda: seen.append(len(done)))
        for number in range(2):
            await asyncio.sleep(0)
            done.append(number)
        while not seen:  # noqa: ASYNC110 it also waits while time passes and the event does not come
            await asyncio.sleep(1)
        return seen[0]

    report = weave.explore(program, mode=mode)

    assert report.complete
    assert {int(outcome.removeprefix("returned ")) for outcome in report.outcomes} == counts


@pytest.mark.real_loop(loop="asyncio")
async def test_promises_do_what_they_can_on_another_loop() -> None:
    seen: list[int] = []
    weave.always(lambda: True)
    weave.sometimes("anything", True)
    weave.eventually("anything", lambda: False)
    weave.view(dict)
    weave.shown()
    weave.event(seen.append, 1)
    await asyncio.sleep(0)

    assert seen == [1]
    with pytest.raises(AssertionError):
        weave.always(lambda: False)


def test_shrinking_leaves_the_fewest_departures() -> None:
    async def program() -> None:
        order: list[int] = []

        async def note(number: int) -> None:
            for _ in range(3):
                await asyncio.sleep(0)
            order.append(number)

        await asyncio.gather(*(note(number) for number in range(3)))
        assert order[-1] != 0, f"the first came last: {order}"

    report = weave.explore(program, strategy="random:500")

    departures = report.token.split(".")[1:-1]
    assert report.verdict == "fails"
    assert len(departures) == 2


@pytest.mark.parametrize("token", ["", "any", "any.x-1.ffff", "some.1-1.ffff", "any.0-9.ffff", "any.0-1.ffff"])
def test_a_token_of_another_program_is_refused(token: str) -> None:
    async def program() -> None:
        await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))

    with pytest.raises(weave.BadToken):
        weave.replay(program, token)
