"""The life of a node's process: start, refusals to start, reload, drain under load, kill -9 and again."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import threading
from pathlib import Path

import pytest

from tests.acceptance.node_process import NodeProcess, ask, penstock
from tests.net.server.certificates import make_certificate

ECHO = ("--set", "node.echo=true")
SERVICES = ("omnigate", "svc-echo", "svc-mailbox", "svc-passport", "svc-storage", "svc-dht", "svc-interop", "node")


class Load:
    """Clients that ask without pause until the node is gone, and remember every outcome."""

    def __init__(self, node: NodeProcess, clients: int, delay_ms: int) -> None:
        self._node = node
        self._delay_ms = delay_ms
        self.answers: list[int] = []
        self.cut: list[str] = []  # requests that were sent and got no answer, or half of one
        self._threads = [threading.Thread(target=self._ask_on) for _ in range(clients)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(60)

    def _ask_on(self) -> None:
        for _ in range(100_000):
            connection = self._node.connect("echo")
            try:
                connection.connect()
            except OSError:
                return  # the listener is gone
            try:
                while self._ask(connection):
                    pass
            finally:
                connection.close()

    def _ask(self, connection: http.client.HTTPConnection) -> bool:
        try:
            answer = ask(connection, "POST", "/v1/echo", {"text": "x", "delay_ms": self._delay_ms})
        except (OSError, http.client.HTTPException) as error:
            # A connection may end while a request is on its way to it: that one was never admitted. What must not
            # happen is half an answer, or an admitted request without one, which the listener counts itself.
            if not isinstance(error, http.client.RemoteDisconnected | ConnectionError):
                self.cut.append(repr(error))
            return False
        self.answers.append(answer.status)
        return answer.headers.get("connection") != "close"


def test_sigterm_under_load_answers_everything_admitted_and_exits_0() -> None:
    with NodeProcess(*ECHO, "--set", "echo.workers=4", "--set", "echo.drain_deadline=5s") as node:
        load = Load(node, clients=8, delay_ms=30)
        load.start()
        before = node.metric('http_requests_total{method="POST",route="/v1/echo",service="svc-echo",status="200"}')
        while before < 20:
            before = node.metric('http_requests_total{method="POST",route="/v1/echo",service="svc-echo",status="200"}')
        node.signal(signal.SIGTERM)
        code, out, err = node.wait()
        load.join()
        phases = [json.loads(line) for line in out.splitlines()]

        closed = [event for event in map(json.loads, err.splitlines()) if event["event"] == "listener.closed"]

        assert code == 0, err
        assert phases[-1] == {"event": "stopped", "aborted": []}
        assert load.cut == []
        assert {event["service"]: event["unanswered"] for event in closed} == dict.fromkeys(SERVICES, 0)
        assert set(load.answers) <= {200, 503}
        assert load.answers.count(200) >= 20
        stopped = [line["service"] for line in phases if line.get("phase") == "stopped"]
        assert sorted(stopped) == sorted(SERVICES)
        assert stopped[-1] == "node"


def test_work_beyond_the_drain_deadline_is_aborted_counted_and_exits_1() -> None:
    with NodeProcess(*ECHO, "--set", "echo.workers=1", "--set", "echo.drain_deadline=1s") as node:
        connection = node.begin_echo("x", delay_ms=10_000)
        node.signal(signal.SIGTERM)
        code, out, _ = node.wait()
        connection.close()

        assert code == 1
        assert json.loads(out.splitlines()[-1])["aborted"] != []


def test_a_reader_that_left_does_not_disturb_the_drain() -> None:
    """`penstock up --json | head -1` closes our standard output; the admitted job is answered all the same."""
    with NodeProcess(*ECHO, "--set", "echo.workers=1", "--set", "echo.drain_deadline=5s") as node:
        connection = node.begin_echo("admitted", delay_ms=400)
        assert node.process.stdout is not None
        node.process.stdout.close()
        node.process.stdout = None
        node.signal(signal.SIGTERM)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()

        assert (answer.status, json.loads(body)["text"]) == (200, "admitted")
        assert node.process.wait(60) == 0


def test_a_second_stop_signal_changes_nothing() -> None:
    with NodeProcess(*ECHO) as node:
        for _ in range(5):
            node.signal(signal.SIGTERM)
        code, _, err = node.wait()

        assert code == 0, err


def test_kill_9_and_start_again_on_the_same_data_dir(tmp_path: Path) -> None:
    with NodeProcess(*ECHO, data_dir=tmp_path) as node:
        token = node.ready["token"]
        node.signal(signal.SIGKILL)
        node.wait()
    with NodeProcess(*ECHO, data_dir=tmp_path) as again:
        assert again.ready["token"] == token
        assert again.echo(text="back").status == 200


def test_the_data_dir_holds_a_private_token_and_the_ports_while_running(tmp_path: Path) -> None:
    with NodeProcess(*ECHO, data_dir=tmp_path) as node:
        token_file = tmp_path / "operator.token"
        ports = json.loads((tmp_path / "run" / "ports.json").read_text())
        assert token_file.stat().st_mode & 0o777 == 0o600
        assert token_file.read_text().strip() == node.ready["token"]
        assert ports == node.ready["ports"]
        node.signal(signal.SIGTERM)
        assert node.wait()[0] == 0
    assert not (tmp_path / "run" / "ports.json").exists()


def test_a_second_node_on_the_same_data_dir_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with NodeProcess(data_dir=tmp_path) as node:
        second = penstock("up", "--ephemeral-ports", "--data-dir", str(tmp_path))

        assert second.returncode == 1
        assert str(node.process.pid) in second.stderr
        assert len(second.stderr.splitlines()) == 1


def test_a_busy_port_is_one_sentence_and_exit_3() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failed = penstock("up", "--amnesia", "--ephemeral-ports", "--set", f"admin.bind_addr=127.0.0.1:{port}")

        assert failed.returncode == 3
        assert f"127.0.0.1:{port}" in failed.stderr
        assert "Traceback" not in failed.stderr


def test_an_unusable_data_dir_is_one_sentence_and_exit_1(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    failed = penstock("up", "--ephemeral-ports", "--data-dir", str(blocked / "below"))

    assert failed.returncode == 1
    assert len(failed.stderr.splitlines()) == 1


def test_all_faults_of_the_configuration_come_at_once_with_exit_2(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('[echo]\nworkers = 0\nread_timeout = "5"\n[nod]\nx = 1\n')
    failed = penstock("up", "--amnesia", "--config", str(file), "--set", "echo.drain_deadline=9s")

    assert failed.returncode == 2
    for piece in ("echo.workers", "echo.read_timeout", "nod", "echo.drain_deadline", f"{file}:2"):
        assert piece in failed.stderr


def test_wrong_arguments_exit_2() -> None:
    assert penstock("up", "--no-such-flag").returncode == 2
    assert penstock("serve", "nothing").returncode == 2
    assert penstock("no-such-command").returncode == 2


def test_amnesia_writes_no_file(tmp_path: Path) -> None:
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        with NodeProcess(*ECHO) as node:
            assert node.echo(text="x").status == 200
            assert node.ready["data_dir"] is None
            node.signal(signal.SIGTERM)
            assert node.wait()[0] == 0
    finally:
        os.chdir(here)

    assert list(tmp_path.iterdir()) == []


def test_serve_runs_one_service_alone() -> None:
    with NodeProcess(command=("serve", "echo")) as node:
        assert node.echo(text="alone").status == 200
        assert list(node.ready["ports"]) == ["echo"]
        node.signal(signal.SIGTERM)
        assert node.wait()[0] == 0


@pytest.mark.parametrize("door", ["signal", "command"])
def test_reload_swaps_the_settings_and_an_invalid_file_keeps_the_old(tmp_path: Path, door: str) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("[node]\nchaos = false\n")
    data_dir = tmp_path / "data"
    with NodeProcess(*ECHO, "--config", str(file), data_dir=data_dir) as node:

        def reload() -> None:
            if door == "signal":
                node.signal(signal.SIGHUP)
            else:
                penstock("config", "reload", "--data-dir", str(data_dir))

        file.write_text("[node]\nchaos = true\n")
        reload()
        while node.metric("config_reloads_total") < 1:
            pass
        assert node.kill_task("worker").status == 200

        file.write_text("[node]\nchaos = 17\n")
        reload()
        while node.metric("config_reload_errors_total") < 1:
            pass
        assert node.kill_task("worker").status == 200


def test_status_tells_the_verdict_and_exits_by_it(tmp_path: Path) -> None:
    with NodeProcess(*ECHO, data_dir=tmp_path):
        shown = penstock("status", "--json", "--data-dir", str(tmp_path))
        table = penstock("status", "--data-dir", str(tmp_path))

        assert shown.returncode == 0
        assert json.loads(shown.stdout)["ready"] is True
        assert "svc-echo" in table.stdout
    gone = penstock("status", "--data-dir", str(tmp_path))
    assert gone.returncode == 1
    assert f"no node is running in {tmp_path}:" in gone.stderr


def test_status_reaches_a_node_whose_admin_listener_speaks_tls_on_ipv6(tmp_path: Path) -> None:
    pair = make_certificate(tmp_path)
    sets = [f"admin.tls.cert_path={pair['tls_cert_path']}", f"admin.tls.key_path={pair['tls_key_path']}"]
    options = [word for each in (*sets, "admin.bind_addr=[::1]:0") for word in ("--set", each)]
    with NodeProcess(*options, data_dir=tmp_path / "data"):
        shown = penstock("status", "--json", "--data-dir", str(tmp_path / "data"))

        assert shown.returncode == 0, shown.stderr
        assert json.loads(shown.stdout)["ready"] is True


@pytest.mark.parametrize("harm", ["missing", "readable", "garbage"])
def test_bad_tls_files_are_one_sentence_and_exit_2(tmp_path: Path, harm: str) -> None:
    pair = make_certificate(tmp_path)
    if harm == "missing":
        pair["tls_cert_path"].unlink()
    elif harm == "readable":
        pair["tls_key_path"].chmod(0o644)
    else:
        pair["tls_cert_path"].write_text("no certificate")
    sets = [f"admin.tls.cert_path={pair['tls_cert_path']}", f"admin.tls.key_path={pair['tls_key_path']}"]
    failed = penstock("up", "--amnesia", "--ephemeral-ports", *(word for each in sets for word in ("--set", each)))

    assert failed.returncode == 2
    assert str(tmp_path) in failed.stderr.splitlines()[-1]
    assert "Traceback" not in failed.stderr
