"""The tour: it passes on a sound node, finds what is not as it should be, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.tour.context import TourContext, TourOutput, TourStep
from penstock.cli.tour.steps import STEPS
from penstock.client import connect, sync
from penstock.kernel.errors import Busy
from penstock.sdk.discovery import Discovery
from tests.acceptance.node_process import NodeProcess

TIMEOUT_S = 300
# What the tour shows happens on the real clock, and the machine may freeze for seconds.
PATIENT = ("--patience", "3", "--timeout", "60s")


def tour(*words: str, env: dict[str, str] | None = None) -> tuple[int, list[dict], str]:
    command = [sys.executable, "-m", "penstock.cli", "tour", "--json", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=env)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_a_node_of_its_own_passes_and_is_gone_afterwards() -> None:
    code, said, err = tour("--self", *PATIENT)
    surprises = [line for line in said if not line["ok"]]

    assert surprises == []
    assert (code, err) == (0, "")
    assert (said[-1]["event"], said[-1]["surprises"]) == ("done", 0)


def test_a_running_node_passes_and_keeps_nothing_of_it(tmp_path: Path) -> None:
    with NodeProcess(data_dir=tmp_path) as node, sync.connect(tmp_path) as client:
        client.mailbox.send("mine", "not the tour's")
        before = client.passport.revocations()
        code, said, err = tour("--data-dir", str(tmp_path), *PATIENT)

        assert [line for line in said if not line["ok"]] == []
        assert (code, err) == (0, "")
        services = set(node.ready["ports"])
        assert said[-1]["steps"] == len([step for step in STEPS if services.issuperset(step.needs)])
        assert [stats.topic for stats in client.mailbox.topics()] == ["mine"]
        assert list(client.mailbox.dead_letters()) == []
        # The feed names nobody, but says that a tenant or a subject of the tour's was revoked.
        assert {"tenant", "subject_ref"} & {entry.kind for entry in client.passport.revocations(before.seq).entries}
        assert node.process.poll() is None, "only a node of its own is drained"


@pytest.mark.full
def test_a_node_that_checks_no_tokens_is_a_surprise(tmp_path: Path) -> None:
    with NodeProcess("--insecure-dev", data_dir=tmp_path):
        code, said, _ = tour("--data-dir", str(tmp_path))

    surprising = {line["did"] for line in said if not line["ok"] and "did" in line}
    assert (code, said[-1]["ok"]) == (1, False)
    assert {"receive with it", "send elsewhere with it", "revoke it and go on sending"} <= surprising


def test_patience_is_a_factor() -> None:
    code, said, err = tour("--self", "--patience", "0")

    assert (code, said) == (2, [{"error": {"code": "malformed", "detail": err.removeprefix("penstock: ").strip()}}])
    assert "'0' is no number from 1 to 10" in err


def test_a_node_that_does_not_start_is_said_in_one_sentence(tmp_path: Path) -> None:
    code, said, err = tour("--self", env={**os.environ, "PENSTOCK_MAILBOX__READY_SHARDS": "-1"})

    assert (code, said) == (4, [])
    assert "did not start" in err
    assert "ready_shards" in err


@pytest.mark.parametrize("raised", [None, Busy("too much")])
async def test_an_error_in_a_step_is_a_surprise_and_the_tour_goes_on(raised, capsys) -> None:
    async def act(shown: TourContext, _client) -> None:
        await asyncio.sleep(0)
        shown.check("one and one", 2, should=2)
        if raised is not None:
            raise raised

    shown = TourContext(Discovery(ports={}), as_json=True)
    async with connect(ports={}) as client:
        await shown.walk(1, TourStep("sums", act, ()), client)
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert (shown.show.checks, shown.show.surprises) == ((1, 0) if raised is None else (2, 1))
    assert all(line["step"] == "sums" for line in said)


def test_a_surprise_is_seen_by_people_too(capsys: pytest.CaptureFixture[str]) -> None:
    show = TourOutput(as_json=False)
    show.begin(1, "sums")
    show.check("one and one", "3", ok=False, should="2")
    show.end(1)

    out = capsys.readouterr().out
    assert "SURPRISE: should be 2" in out
    assert "1 not as it should be" in out
