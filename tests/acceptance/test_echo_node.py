"""A node with svc-echo, as an operator meets it: failures, kills, crash loops, refusals."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from penstock.testing import wait_until
from tests.acceptance.node_process import Answer, NodeProcess

CHAOS = ("--set", "node.echo=true", "--set", "node.chaos=true")


def in_background(call: Callable[[], Answer]) -> Callable[[], Answer]:
    """Run a call on a thread; returns what waits for its answer."""
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(call()))
    thread.start()

    def wait() -> Answer:
        thread.join(60)
        return answers[0]

    return wait


def test_a_job_that_raises_gives_500_and_the_worker_goes_on() -> None:
    with NodeProcess(*CHAOS, "--set", "echo.workers=1") as node:
        failed = node.echo(text="x", fault="raise")
        after = node.echo(text="still here")

        assert (failed.status, failed.json()["code"]) == (500, "internal")
        assert failed.json()["corr_id"] == failed.headers["x-corr-id"]
        assert "asked for this failure" not in failed.body.decode()
        assert (after.status, after.json()["text"]) == (200, "still here")
        assert node.metric('job_failures_total{service="svc-echo"') == 1
        assert node.metric('service_restarts_total{service="svc-echo",task="worker"}') == 0


def test_a_worker_killed_mid_job_answers_its_job_at_once_and_comes_back() -> None:
    with NodeProcess(*CHAOS, "--set", "echo.workers=1") as node:
        wait = in_background(lambda: node.echo(text="long", delay_ms=10_000))
        wait_until(lambda: node.metric('inflight_requests{service="svc-echo"}') == 1)
        killed = node.kill_task("svc-echo:worker")
        cut = wait()
        wait_until(lambda: node.echo(text="back").status == 200)

        assert killed.status == 200
        assert (cut.status, cut.json()["code"]) == (500, "internal")
        assert node.metric('service_restarts_total{service="svc-echo",task="worker"}') == 1


def crash_six_times(node: NodeProcess) -> None:
    """Kill the worker as soon as it runs, six times."""
    for _ in range(6):
        wait_until(lambda: node.kill_task("svc-echo:worker").status == 200)


def test_the_sixth_crash_in_a_minute_quarantines_and_says_so() -> None:
    with NodeProcess(*CHAOS, "--set", "echo.workers=1") as node:
        crash_six_times(node)
        wait_until(lambda: node.ask("echo", "GET", "/readyz").status == 503)
        refused = node.echo(text="anyone?")
        ready = node.ask("echo", "GET", "/readyz").json()

        assert (refused.status, refused.json()["code"]) == (503, "not_ready")
        assert int(refused.headers["retry-after"]) >= 1
        assert ready["missing"] == ["worker"]
        assert node.ask("echo", "GET", "/healthz").status == 200
        assert node.ask("admin", "GET", "/readyz").json()["missing"] == ["svc-echo"]


def test_a_fatal_crash_loop_stops_the_service_but_not_the_node() -> None:
    with NodeProcess(*CHAOS, "--set", "echo.workers=1", "--set", "echo.on_crash_loop=fatal") as node:
        crash_six_times(node)
        wait_until(lambda: node.ask("admin", "GET", "/healthz").status == 503)
        refused = node.echo(text="anyone?")

        assert node.ask("admin", "GET", "/healthz").json() | {"retry_after": 0} == {
            "status": "fatal",
            "task": "svc-echo/worker",
            "retry_after": 0,
        }
        assert (refused.status, refused.json()["code"]) == (503, "not_ready")
        assert node.process.poll() is None


def test_a_fatal_crash_loop_ends_a_process_that_asked_for_it() -> None:
    fatal = ("--set", "echo.workers=1", "--set", "echo.on_crash_loop=fatal", "--set", "node.exit_on_fatal=true")
    with NodeProcess(*CHAOS, *fatal) as node:
        crash_six_times(node)
        code, _, _ = node.wait()

        assert code == 1


def test_a_full_work_channel_refuses_with_429_and_serves_what_it_has() -> None:
    small = ("--set", "echo.workers=1", "--set", "echo.channels.work=1")
    with NodeProcess(*CHAOS, *small) as node:
        # As long as can be, for everything that is asked while it runs; then it is cut, and nobody has to wait for it.
        running = in_background(lambda: node.echo(text="running", delay_ms=10_000))
        wait_until(lambda: node.metric('inflight_requests{service="svc-echo"}') == 1)
        queued = in_background(lambda: node.echo(text="queued"))
        wait_until(lambda: node.metric('queue_depth{queue="work",service="svc-echo"}') == 1)
        refused = node.echo(text="one too many")
        assert node.kill_task("svc-echo:worker").status == 200

        assert (refused.status, refused.json()["code"], refused.json()["queue"]) == (429, "busy", "work")
        assert int(refused.headers["retry-after"]) >= 1
        assert (running().status, queued().status) == (500, 200)
        assert node.metric('queue_dropped_total{queue="work",service="svc-echo"}') == 1
        assert node.metric('busy_rejections_total{endpoint="/v1/echo",queue="work",service="svc-echo"}') == 1


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"txt": "x"}, 400, "malformed"),
        ({"text": 7}, 400, "malformed"),
        ({"text": "x", "delay_ms": -1}, 400, "malformed"),
        ({"text": "x", "fault": "explode"}, 400, "malformed"),
        ({"text": "x" * 65537}, 400, "malformed"),
        ({"text": "x" * 1_100_000}, 413, "over_limit"),
        ([], 400, "malformed"),
    ],
)
def test_bad_input_gets_a_problem_and_nothing_is_enqueued(
    echo_node: NodeProcess, body: object, status: int, code: str
) -> None:
    before = echo_node.metric('http_requests_total{method="POST",route="/v1/echo",service="svc-echo",status="200"}')
    answer = echo_node.ask("echo", "POST", "/v1/echo", body)

    assert (answer.status, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert echo_node.metric('queue_depth{queue="work",service="svc-echo"}') == 0
    after = echo_node.metric('http_requests_total{method="POST",route="/v1/echo",service="svc-echo",status="200"}')
    assert after == before


def test_the_admin_listener_needs_the_operator_token(echo_node: NodeProcess) -> None:
    open_pages = [
        echo_node.ask("admin", "GET", path).status for path in ("/healthz", "/readyz", "/version", "/metrics")
    ]
    shut = [echo_node.ask("admin", "GET", path).status for path in ("/inventory", "/status")]
    with_token = echo_node.ask("admin", "GET", "/inventory", token=True)

    assert open_pages == [200, 200, 200, 200]
    assert shut == [401, 401]
    assert with_token.json()["svc-echo"]["channels"][0]["capacity"] == 512


def test_a_listener_that_crashed_comes_back_on_the_same_port() -> None:
    with NodeProcess(*CHAOS) as node:
        assert node.kill_task("svc-echo:listener").status == 200

        def back() -> bool:
            try:
                return node.echo(text="back").status == 200
            except OSError:
                return False

        wait_until(back)
        assert node.metric('service_restarts_total{service="svc-echo",task="listener"}') == 1


def test_bodies_of_every_listener_count_against_the_nodes_bytes() -> None:
    patient = ("--set", "echo.read_timeout=2m")  # for the body that is held back
    with NodeProcess("--set", "node.echo=true", "--set", "node.body_bytes=1MiB", *patient) as node:
        held = node.connect("echo")
        held.putrequest("POST", "/v1/echo")
        held.putheader("Content-Length", "400000")
        held.endheaders(b'{"text":"' + b"x" * 390_000)
        wait_until(lambda: node.metric('node_bytes_in_use{service="node"}') > 300_000)
        refused = node.ask("echo", "POST", "/v1/echo", {"text": "y" * 60_000, "pad": "z" * 300_000})
        held.close()

        assert (refused.status, refused.json().get("limit")) == (429, "node_bytes")


def test_faults_and_kills_are_refused_without_chaos(echo_node: NodeProcess) -> None:
    assert echo_node.echo(text="x", fault="raise").json()["code"] == "policy_blocked"
    assert echo_node.kill_task("worker").json()["code"] == "policy_blocked"


@pytest.fixture(scope="module")
def echo_node() -> object:
    """One node for the questions that change nothing."""
    with NodeProcess("--set", "node.echo=true") as node:
        yield node
