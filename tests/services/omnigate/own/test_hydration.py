"""A view is whole, or says which part is missing; nobody waits longer than asked; identical fetches are one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from penstock.contracts.call import Call
from penstock.kernel.clock import LoopClock
from penstock.kernel.deadline import Deadline, use_deadline
from penstock.kernel.errors import DownstreamUnavailable, Forbidden, Malformed, NotFound, PenstockError, Timeout
from penstock.kernel.metrics import Metrics
from penstock.kernel.scope import Scope
from penstock.services.omnigate.own.fair_slots import CALLER
from penstock.services.omnigate.own.hydration import (
    STALE_AGE_S_MAX,
    STALE_BYTES_MAX,
    Hydrator,
    LastGood,
)
from penstock.services.omnigate.own.views import (
    VIEW_BYTES_MAX,
    PartSpec,
    ViewRefused,
    ViewSpec,
    read_views,
)

ALICE = Call("psp1_alice")
BOB = Call("psp1_bob")


class Upstream:
    """Answers by target: bytes, an error, or after a pause; counts what it was asked."""

    def __init__(self, **answers: bytes | PenstockError | tuple[float, bytes]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.cancelled = 0

    async def __call__(self, target: str, _call: Call, _timeout_s: float) -> bytes:
        self.asked.append(target)
        answer = self.answers[target]
        if isinstance(answer, tuple):
            try:
                await asyncio.sleep(answer[0])
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            answer = answer[1]
        if isinstance(answer, PenstockError):
            raise answer
        return answer


def hydrator(upstream: Callable[..., Awaitable[bytes]]) -> Hydrator:
    """Make a hydrator whose every source is one upstream."""
    scope = Scope("part", 64, Metrics("omnigate"))
    return Hydrator(dict.fromkeys(("http", "topic"), upstream), lambda: scope, LoopClock())


def part(name: str, **said: Any) -> PartSpec:
    """Make a part whose target is its own name."""
    return PartSpec(**{"name": name, "source": "http", "target": name, **said})


def view(*parts: PartSpec) -> ViewSpec:
    """Make a view."""
    return ViewSpec(name="home", parts=parts, params=())


async def render(made: Hydrator, spec: ViewSpec, *, call: Call = ALICE, budget_s: float = 2.0) -> dict[str, Any]:
    """Render and decode."""
    decoded: dict[str, Any] = msgspec.json.decode(await made.render(spec, {}, call, budget_s))
    return decoded


async def test_parts_run_at_once_and_stand_in_the_views_order() -> None:
    upstream = Upstream(slow=(0.5, b'{"n":1}'), quick=b"[2]")

    loop = asyncio.get_running_loop()
    began = loop.time()
    answer = await render(hydrator(upstream), view(part("slow"), part("quick", timeout_s=0.1)))

    assert loop.time() - began == pytest.approx(0.5)
    assert list(answer["parts"]) == ["slow", "quick"]
    assert answer["parts"]["slow"] == {"status": "ok", "latency_ms": pytest.approx(500), "value": {"n": 1}}
    assert answer["warnings"] == []


async def test_a_required_part_that_is_late_is_a_504_naming_it_just_before_the_clients_deadline() -> None:
    upstream = Upstream(late=(9.0, b"1"), fine=b"1")
    loop = asyncio.get_running_loop()
    began = loop.time()

    with pytest.raises(Timeout) as caught:
        await render(hydrator(upstream), view(part("late", timeout_s=10.0), part("fine")), budget_s=1.0)

    assert caught.value.facts["part"] == "late"
    assert 0.95 <= loop.time() - began <= 1.0


async def test_a_required_part_that_is_wrong_is_a_502_and_the_others_are_let_go() -> None:
    upstream = Upstream(broken=NotFound(), slow=(5.0, b"1"))

    with pytest.raises(DownstreamUnavailable) as caught:
        await render(hydrator(upstream), view(part("slow"), part("broken")))
    await asyncio.sleep(0.01)

    assert (caught.value.status, caught.value.facts["part"], caught.value.facts["reason"]) == (
        502,
        "broken",
        "not_found",
    )
    assert upstream.cancelled == 1


async def test_what_the_caller_may_not_see_is_told_as_it_is() -> None:
    with pytest.raises(Forbidden) as caught:
        await render(hydrator(Upstream(secret=Forbidden("caveat:topic"))), view(part("secret")))

    assert caught.value.facts["part"] == "secret"


@pytest.mark.parametrize(
    ("fallback", "expected"),
    [
        ("omit", {"status": "omitted", "reason": "timeout"}),
        ("default", {"status": "default", "reason": "timeout", "value": {"items": []}}),
    ],
)
async def test_an_optional_part_that_is_late_is_replaced_and_warned_of(fallback: str, expected: dict[str, Any]) -> None:
    upstream = Upstream(late=(9.0, b"1"))
    spec = view(part("late", required=False, timeout_s=0.1, fallback=fallback, default=b'{"items":[]}'))

    answer = await render(hydrator(upstream), spec)

    found = answer["parts"]["late"]
    assert found.pop("latency_ms") == pytest.approx(100, abs=1)
    assert found == expected
    assert answer["warnings"] == [{"part": "late", "code": "timeout"}]


async def test_a_stale_value_stands_in_until_it_is_too_old() -> None:
    upstream = Upstream(feed=b"[1]")
    made, spec = hydrator(upstream), view(part("feed", required=False, fallback="stale"))
    await render(made, spec)
    upstream.answers["feed"] = DownstreamUnavailable()

    soon = await render(made, spec)
    await asyncio.sleep(STALE_AGE_S_MAX + 1)
    late = await render(made, spec)

    assert (soon["parts"]["feed"]["status"], soon["parts"]["feed"]["value"]) == ("stale", [1])
    assert late["parts"]["feed"]["status"] == "omitted"


async def test_identical_fetches_of_several_views_are_one_call() -> None:
    upstream = Upstream(shared=(0.2, b"7"))
    made = hydrator(upstream)
    scope = Scope("test", 8, Metrics("test"))

    tasks = [scope.start(render(made, view(part("shared")))) for _ in range(5)]
    await scope.join()

    assert upstream.asked == ["shared"]
    assert [task.result()["parts"]["shared"]["value"] for task in tasks] == [7] * 5
    assert made.shared == 4


async def test_a_view_that_gives_up_does_not_cut_the_call_others_wait_for() -> None:
    upstream = Upstream(shared=(0.5, b"7"))
    made = hydrator(upstream)
    scope = Scope("test", 8, Metrics("test"))

    with use_deadline(Deadline.after(0.1, asyncio.get_running_loop().time())):
        hasty = scope.start(render(made, view(part("shared", required=False)), budget_s=0.1))
    patient = scope.start(render(made, view(part("shared"))))
    await scope.join()

    assert hasty.result()["parts"]["shared"]["reason"] == "timeout"
    assert patient.result()["parts"]["shared"]["value"] == 7
    assert (upstream.asked, upstream.cancelled) == (["shared"], 0)


async def test_the_last_one_to_leave_ends_the_call() -> None:
    upstream = Upstream(shared=(5.0, b"7"))

    await render(hydrator(upstream), view(part("shared", required=False, timeout_s=0.1)))
    await asyncio.sleep(0.01)

    assert upstream.cancelled == 1


async def test_a_fetch_that_was_given_up_and_ends_late_does_not_hide_the_next_one() -> None:
    asked, scope = list[str](), Scope("test", 8, Metrics("test"))

    async def ends_late(target: str, _call: Call, _timeout_s: float) -> bytes:
        asked.append(target)
        try:
            await asyncio.sleep(1.0)
        except asyncio.CancelledError:
            await asyncio.sleep(0.2)
            raise
        return b"7"

    made = hydrator(ends_late)
    await render(made, view(part("shared", required=False)), budget_s=0.1)
    patient = view(part("shared", timeout_s=5.0))
    second = scope.start(render(made, patient))
    await asyncio.sleep(0.5)
    third = scope.start(render(made, patient))
    await scope.join()

    assert [task.result()["parts"]["shared"]["value"] for task in (second, third)] == [7, 7]
    assert len(asked) == 2, "the third waits for the second's"


async def test_a_part_waits_in_a_downstreams_line_in_its_callers_name() -> None:
    seen = []

    async def notes(_target: str, _call: Call, _timeout_s: float) -> bytes:
        seen.append(CALLER.get())
        return b"1"

    CALLER.set(("authed", "acme"))
    await render(hydrator(notes), view(part("a")))

    assert seen == [("authed", "acme")]


async def test_what_a_service_shows_one_caller_is_never_shared_with_another() -> None:
    upstream = Upstream(orders=(0.1, b"7"))
    made = hydrator(upstream)
    scope = Scope("test", 8, Metrics("test"))

    for call in (ALICE, BOB):
        scope.start(render(made, view(part("orders", source="topic")), call=call))
    await scope.join()

    assert upstream.asked == ["orders", "orders"]


@pytest.mark.parametrize("body", [b"", b"{", b"1 2", b"\xff", b'{"a":1}garbage', b"[" * 100_000])
async def test_a_part_that_is_not_one_json_value_never_reaches_the_answer(body: bytes) -> None:
    with pytest.raises(DownstreamUnavailable) as caught:
        await render(hydrator(Upstream(bad=body)), view(part("bad")))

    assert caught.value.status == 502


async def test_an_answer_larger_than_a_view_may_be_is_refused() -> None:
    half = b'"' + b"x" * (VIEW_BYTES_MAX // 2) + b'"'
    upstream = Upstream(a=half, b=half)

    with pytest.raises(DownstreamUnavailable) as caught:
        await render(hydrator(upstream), view(part("a"), part("b")))

    assert caught.value.facts["limit"] == "view_bytes"


def test_the_memory_of_last_values_is_bounded() -> None:
    kept = LastGood(type("Still", (), {"monotonic": staticmethod(lambda: 0.0)})())
    value = b"x" * (64 << 10)

    for n in range(1000):
        kept.keep((str(n),), value)

    assert kept.held_bytes <= STALE_BYTES_MAX
    assert kept.find(("999",)) == value
    assert kept.find(("0",)) is None


# --- views as data

ROW = {
    "name": "profile",
    "source": "http",
    "target": "http://127.0.0.1:9/u/{id}",
    "required": True,
    "timeout": 1.0,
    "fallback": "omit",
    "default": "null",
}


def rows(*parts: dict[str, Any], name: str = "home") -> tuple[dict[str, Any], ...]:
    """Write a configuration of one view."""
    return ({"name": name, "parts": [{**ROW, **part} for part in parts]},)


def test_a_views_parameters_are_those_its_targets_name() -> None:
    spec = read_views(rows({}, {"name": "feed", "target": "http://h/f/{user}?n={id}"}), parts_max=3)["home"]

    assert spec.params == ("id", "user")
    assert spec.parts[0].fill({"id": "a/../b?x"}) == "http://127.0.0.1:9/u/a%2F..%2Fb%3Fx"


@pytest.mark.parametrize(
    "given", [{}, {"id": ""}, {"id": "1", "more": "2"}, {"id": "x" * 2000}, {"id": "."}, {"id": ".."}]
)
def test_a_query_has_exactly_the_views_parameters(given: dict[str, str]) -> None:
    spec = read_views(rows({}), parts_max=3)["home"]

    with pytest.raises(Malformed):
        spec.read(given)


@pytest.mark.parametrize(
    "wrong",
    [
        rows(),
        rows({}, {}),
        rows({}, {"name": "b"}, {"name": "c"}, {"name": "d"}),
        rows({"name": "Bad Name"}),
        rows({}, name="no/slash"),
        rows({"target": "http://{id}/x"}),
        rows({"target": "http://user:secret@h/x"}),
        rows({"target": "ftp://h/x"}),
        rows({"target": "http://h/{ID}"}),
        rows({"target": "http://h:99999/x"}),
        rows({"target": "http://h:port/x"}),
        rows({"target": "http://[::1/x"}),
        rows({"target": "http://h/a b"}),
        rows({"target": "http://h/x#part"}),
        rows({"default": "{"}),
        rows({}) + rows({}),
    ],
)
def test_a_view_that_cannot_be_served_is_refused(wrong: tuple[dict[str, Any], ...]) -> None:
    with pytest.raises(ViewRefused):
        read_views(wrong, parts_max=3)
