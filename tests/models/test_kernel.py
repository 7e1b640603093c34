"""The kernel's own parts in every schedule: nothing is lost, nobody waits for ever, whoever is cancelled or killed."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from penstock import weave
from penstock.kernel import channel as channels
from penstock.kernel.worker import Job, JobLoop
from penstock.sdk.joining.place_line import PlaceLine
from tests.models import kernel_model as k

WORLDS = {
    "senders, one is cancelled": partial(k.waiting_senders, "cancel"),
    "senders, and a close": partial(k.waiting_senders, "close"),
    "receivers, one is cancelled": k.waiting_receivers,
    "a line of places": k.line_of_places,
    "a pool": k.pool_of_threads,
    "a killed worker": partial(k.restarts, ("worker",)),
    "a killed worker and a stop": partial(k.restarts, ("worker", "stop")),
    "a worker killed twice and a stop": partial(k.restarts, ("worker", "worker", "stop"), jobs=1),
    "a killed listener and a stop": partial(k.restarts, ("listener", "stop")),
}


def explored(name: str, mode: str):
    return weave.explore(WORLDS[name], mode=mode, ignores=k.IGNORES, seconds=None, strategy="hash")


@pytest.mark.parametrize("name", WORLDS)
def test_it_holds_in_every_schedule_of_asyncio(name: str) -> None:
    report = explored(name, "fifo")

    assert (report.verdict, report.complete) == ("holds", True), report


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full) if name == "a pool" else name for name in WORLDS]
)
def test_it_holds_in_any_order(name: str) -> None:
    report = explored(name, "any")

    assert (report.verdict, report.complete) == ("holds", True), report


@pytest.mark.parametrize("name", ["senders, one is cancelled", "receivers, one is cancelled"])
def test_a_channel_that_does_not_pass_a_wake_on_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "_step_back", lambda waiters, waiter: None)

    assert explored(name, "any").verdict == "fails"


def test_a_line_that_keeps_the_place_of_who_was_cancelled_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait(line: PlaceLine) -> None:
        place = asyncio.get_running_loop().create_future()
        line._waiting.append(place)
        await place

    monkeypatch.setattr(PlaceLine, "_wait", wait)

    assert explored("a line of places", "any").kind == "deadlock"


def test_a_worker_that_leaves_its_job_unanswered_when_it_is_killed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(loop: JobLoop[int, int], job: Job[int, int], _: float) -> None:
        job.done(await loop._handle(job.value))

    monkeypatch.setattr(JobLoop, "_work", work)

    assert explored("a killed worker", "fifo").verdict == "fails"
    assert explored("a killed worker and a stop", "fifo").verdict == "fails"
