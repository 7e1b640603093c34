"""One minute of the soak: mixed load, killed tasks, drains; and that its checks see what they are there for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.run import Soak, soak
from tests.soak.watch import Life, running_tasks

MINUTE_S = 60.0


def test_a_minute_of_load_with_kills_and_drains_loses_nothing_and_leaves_nothing_behind(tmp_path: Path) -> None:
    run = soak(MINUTE_S, tmp_path)
    report = run.report()

    assert run.broken() == [], report
    assert report["kills"] >= 5
    assert min(report["done"][what] for what in ("p0", "p1", "handled", "objects", "tokens", "looks")) > 20, report


def life(*, fds_a_second: float = 0.0, mib_a_second: float = 0.0) -> Life:
    samples = [(float(at), int(20 + at * fds_a_second), 50 + at * mib_a_second) for at in range(60)]
    return Life(1, samples)


@pytest.mark.parametrize(
    ("grown", "told"),
    [
        (life(fds_a_second=1.0), "more descriptors"),
        (life(mib_a_second=1.0), "more memory"),
    ],
)
def test_growth_is_told(tmp_path: Path, grown: Life, told: str) -> None:
    run = Soak(tmp_path, 1.0)
    run.promises.seconds.append(0.01)
    run.lives.append(grown)

    assert told in run.broken()[0]


def test_memory_that_grows_slowly_is_told_in_a_long_life_and_a_cache_that_filled_is_not(tmp_path: Path) -> None:
    run = Soak(tmp_path, 1.0)
    run.promises.seconds.append(0.01)
    leaking = Life(1, [(float(at), 20, 50 + at * 0.01) for at in range(1200)])
    filling = Life(1, [(float(at), 20, 50 + min(at, 500) * 0.02) for at in range(1200)])
    run.lives += [leaking, filling]

    assert run.broken() == ["life 1: memory grows by 36 MiB an hour and does not stop"]


def test_a_steady_process_is_no_fault(tmp_path: Path) -> None:
    run = Soak(tmp_path, 1.0)
    run.promises.seconds.append(0.01)
    run.lives.append(life())

    assert run.broken() == []


def test_loss_slowness_and_failed_drains_are_told(tmp_path: Path) -> None:
    run = Soak(tmp_path, 1.0)
    run.promises.seconds.append(60.0)
    run.promises.stored.add("one")
    run.exits.append(1)

    assert len(run.broken()) == 3


def test_every_running_instance_is_named() -> None:
    rows = [{"name": "shard_worker", "instances": 2, "states": ["running", "backoff"]}]

    assert running_tasks({"svc-mailbox": {"tasks": rows}}) == ["svc-mailbox:shard_worker[0]"]
