"""`penstock status` and `penstock doctor` name the upstreams of the gateway that fail, by themselves and by a URL."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

import pytest

from penstock.cli.upstreams import failing
from tests.acceptance.node_process import NodeProcess, free_port, penstock
from tests.cli.conftest import outside

LEFT_ALONE = (
    "/shop leads to http://h, which fails. The last 20 tries failed, the first 1m 30s ago. "
    "The gateway leaves it alone for now."
)
PATIENCE_S = 40
CLOSED = {"url": "http://h", "state": "closed", "failures": 0, "failing_s": None, "problem": ""}


def route(*upstreams: dict, source: str = "live") -> dict:
    return {"prefix": "/shop", "source": source, "upstreams": [{**CLOSED, **each} for each in upstreams]}


@pytest.mark.parametrize(
    ("upstream", "said"),
    [
        (
            {"problem": "Connection refused."},
            "/shop leads to http://h, which does not answer (connection refused).",
        ),
        (
            {"state": "open", "failures": 20, "failing_s": 90.0},
            LEFT_ALONE,
        ),
    ],
)
def test_a_failing_upstream_is_said_in_sentences(upstream: dict, said: str) -> None:
    assert [each.said() for each in failing([route(upstream)])] == [said]


def test_a_few_failures_are_not_told_and_an_older_node_tells_nothing() -> None:
    assert failing([route({"failures": 2, "failing_s": 1.0})]) == []
    assert len(failing([route({"failures": 3, "failing_s": 1.0})])) == 1
    assert failing([{"prefix": "/shop", "source": "live"}]) == []


def test_a_route_fails_when_none_of_its_upstreams_is_well() -> None:
    dead = {"problem": "Connection refused."}

    other = {**dead, "url": "http://i"}

    assert [each.alone for each in failing([route(dead, {"url": "http://i"})])] == [False]
    assert [each.alone for each in failing([route(dead, other)])] == [True, True]


def test_an_upstream_that_was_dialled_just_now_is_no_reason_to_start_it() -> None:
    left_alone = {"state": "open", "failures": 12, "failing_s": 60.0}
    [seen] = failing([route(left_alone)], dialled=True)

    assert not seen.alone
    assert seen.said() == (
        "/shop leads to http://h, which takes connections now, but failed before. The last 12 tries failed, the first "
        "1m ago. The gateway still leaves it alone for now."
    )
    assert seen.hint().startswith("The gateway tries it again by itself")


def test_a_dead_upstream_beside_one_that_was_dialled_is_a_note() -> None:
    dead = {"url": "http://dead", "problem": "Connection refused."}
    both = failing([route({"failures": 3, "failing_s": 1.0}, dead)], dialled=True)

    assert [each.alone for each in both] == [False, False]
    assert "takes connections" not in both[1].said()


def test_an_upstream_that_a_route_names_twice_is_told_once() -> None:
    dead = {"problem": "Connection refused."}

    assert len(failing([route(dead, dead)])) == 1


def test_the_next_step_is_where_the_route_was_made() -> None:
    live, file = failing([route({"problem": "x"}), route({"problem": "x"}, source="file")])

    assert "penstock route remove /shop" in live.hint()
    assert "in the configuration" in file.hint()


def test_a_dead_upstream_is_named_with_its_route_since_when_and_what_to_do(tmp_path: Path) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    with NodeProcess(data_dir=tmp_path) as node:

        def run(*words: str, code: int = 0) -> str:
            done = penstock(*words, env=outside(PENSTOCK_DATA_DIR=str(tmp_path)))
            assert done.returncode == code, done.stdout + done.stderr
            return done.stdout

        assert "/shop" not in run("doctor")
        run("route", "add", "/shop", dead)
        # Nobody has asked for anything yet: the doctor has the gateway dial it.
        assert f"wrong  /shop leads to {dead}, which does not answer (connection refused)." in run("doctor", code=1)
        assert "/shop" not in run("status")

        while node.ask("admin", "GET", "/v1/node/routes", token=True).json()["routes"][0]["healthy"]:
            assert node.ask("omnigate", "GET", "/shop/x").status == 503
        status = run("status")
        assert f"/shop leads to {dead}, which fails. The last " in status
        assert "The gateway leaves it alone for now." in status
        [told] = json.loads(run("status", "--json"))["failing_upstreams"]
        assert (told["route"], told["url"], told["state"]) == ("/shop", dead, "open")
        assert told["failures"] >= 20
        assert told["failing_s"] >= 0
        assert "penstock route remove /shop" in run("doctor", code=1)
        run("route", "remove", "/shop")
        assert "/shop" not in run("doctor") + run("status")


def test_the_doctor_calls_an_upstream_that_has_come_up_no_fault(tmp_path: Path) -> None:
    port = free_port()
    with NodeProcess(data_dir=tmp_path) as node:
        where = ("--data-dir", str(tmp_path))
        penstock("route", "add", "/shop", f"http://127.0.0.1:{port}", *where)
        while node.ask("admin", "GET", "/v1/node/routes", token=True).json()["routes"][0]["healthy"]:
            assert node.ask("omnigate", "GET", "/shop/x").status == 503
        with socket.create_server(("127.0.0.1", port)):
            done = penstock("doctor", *where)

    assert (done.returncode, "note   /shop leads to" in done.stdout) == (0, True), done.stdout
    assert "takes connections now" in done.stdout


def test_by_the_url_of_a_gateway_the_doctor_dials_there(tmp_path: Path) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    with NodeProcess("--amnesia") as node:
        where = ("--url", f"http://127.0.0.1:{node.port('omnigate')}")
        env = outside(PENSTOCK_TOKEN=node.ready["token"])
        penstock("route", "add", "/shop", dead, *where, env=env)
        told = penstock("doctor", *where, "--json", env=env)

    findings = [json.loads(line) for line in told.stdout.splitlines()]
    assert [each["verdict"] for each in findings if "/shop" in each["what"]] == ["wrong"]
    assert told.returncode == 1


def test_an_upstream_of_a_route_that_was_removed_is_not_missed(tmp_path: Path) -> None:
    """It was not there at the start, and nobody waits for it once its route is gone."""
    dead = f"http://127.0.0.1:{free_port()}"
    with NodeProcess(data_dir=tmp_path):
        penstock("route", "add", "/shop", dead, "--data-dir", str(tmp_path))
    with NodeProcess(data_dir=tmp_path) as node:
        assert seen(node, degraded=True)
        shown = penstock("status", "--data-dir", str(tmp_path)).stdout
        penstock("route", "remove", "/shop", "--data-dir", str(tmp_path))
        assert seen(node, degraded=False)

    assert f"/shop leads to {dead}, which does not answer (not reached since the node started)." in shown


def seen(node: NodeProcess, *, degraded: bool) -> bool:
    """Wait until the gateway is degraded, or is not."""
    for _ in range(100 * PATIENCE_S):
        status = node.ask("admin", "GET", "/v1/node/status", token=True).json()
        if ("omnigate" in status["degraded"]) is degraded:
            return True
        threading.Event().wait(0.01)
    return False
