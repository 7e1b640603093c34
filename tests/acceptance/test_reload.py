"""Reload while running: live keys take effect, a changed address is moved to, and nothing is lost on the way."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path

from penstock.testing import wait_until
from tests.acceptance.node_process import NodeProcess, ask, free_port, penstock


class Reloading:
    """A node with a configuration file that a test rewrites."""

    def __init__(self, tmp_path: Path, text: str) -> None:
        self.file = tmp_path / "penstock.toml"
        self.data_dir = tmp_path / "data"
        self.file.write_text(text)
        self.node = NodeProcess("--set", "node.echo=true", "--config", str(self.file), data_dir=self.data_dir)

    def change(self, text: str, code: int = 0) -> str:
        """Rewrite the file and have the node read it; returns what the command printed."""
        self.file.write_text(text)
        done = penstock("config", "reload", "--data-dir", str(self.data_dir))
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    def ports(self) -> dict[str, int]:
        """Read where the services say they are."""
        return dict(json.loads((self.data_dir / "run" / "ports.json").read_text()))


def test_a_live_limit_takes_effect_on_connections_that_are_open(tmp_path: Path) -> None:
    reloading = Reloading(tmp_path, "")
    with reloading.node as node:
        kept = node.connect("echo")
        body = {"text": "x" * 3000}
        before = ask(kept, "POST", "/v1/echo", body)
        shown = reloading.change('[echo]\nlimits.max_body_bytes = "2KiB"\n')
        wait_until(lambda: ask(kept, "POST", "/v1/echo", body).status == 413)
        kept.close()

        assert before.status == 200
        assert "echo.limits.max_body_bytes: 1MiB -> 2KiB" in shown


def test_a_changed_address_is_moved_to_and_open_connections_go_on(tmp_path: Path) -> None:
    reloading = Reloading(tmp_path, "")
    with reloading.node as node:
        kept = node.connect("echo")
        assert ask(kept, "POST", "/v1/echo", {"text": "before"}).status == 200
        port = free_port()
        reloading.change(f'[echo]\nbind_addr = "127.0.0.1:{port}"\n')
        wait_until(lambda: reloading.ports()["echo"] == port)
        moved = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

        assert ask(moved, "POST", "/v1/echo", {"text": "new door"}).status == 200
        assert ask(kept, "POST", "/v1/echo", {"text": "old connection"}).status == 200
        moved.close()
        kept.close()
        try:
            socket.create_connection(("127.0.0.1", node.port("echo")), timeout=60).close()
        except ConnectionRefusedError:
            return
        raise AssertionError("the old address still answers")


def test_an_address_that_cannot_be_bound_leaves_the_old_one_and_the_next_reload_tries_again(tmp_path: Path) -> None:
    reloading = Reloading(tmp_path, "")
    with reloading.node as node:
        port = free_port()
        with socket.create_server(("127.0.0.1", port)):
            wanted = f'[echo]\nbind_addr = "127.0.0.1:{port}"\n'
            told = reloading.change(wanted, code=1)
            assert "the old stays: echo: cannot listen" in told
            assert node.echo(text="still here").status == 200
            assert reloading.ports()["echo"] == node.port("echo")
            assert node.metric("config_reload_errors_total") == 1

        reloading.change(wanted)
        assert reloading.ports()["echo"] == port


def test_the_live_inventory_shows_what_is_in_force(tmp_path: Path) -> None:
    reloading = Reloading(tmp_path, "")
    with reloading.node as node:
        reloading.change('[echo]\nmax_conns = 50\nread_timeout = "1s"\n')
        tables = node.ask("admin", "GET", "/inventory", token=True).json()["svc-echo"]
        limits = {row["name"]: row["capacity"] for row in tables["limits"]}
        seconds = {row["name"]: row["seconds"] for row in tables["timeouts"]}

        assert limits["listener.max_conns"] == 50
        assert seconds["listener.read"] == 1.0


def test_a_key_that_needs_a_restart_is_told_and_keeps_its_value(tmp_path: Path) -> None:
    reloading = Reloading(tmp_path, "[echo]\nworkers = 2\n")
    with reloading.node as node:
        shown = reloading.change("[echo]\nworkers = 3\n")
        tasks = node.ask("admin", "GET", "/inventory", token=True).json()["svc-echo"]["tasks"]

        assert "echo.workers: waits for a restart" in shown
        assert next(task for task in tasks if task["name"] == "worker")["states"] == ["running", "running"]


def test_metrics_can_be_served_apart() -> None:
    port = free_port()
    with NodeProcess("--set", "node.echo=true", "--set", f"echo.metrics_addr=127.0.0.1:{port}") as node:
        apart = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        page = ask(apart, "GET", "/metrics")
        data = ask(apart, "POST", "/v1/echo", {"text": "x"})
        ready = ask(apart, "GET", "/readyz")
        apart.close()

        assert b'queue_depth{queue="work",service="svc-echo"} 0.0' in page.body
        assert b'service="node"' not in page.body
        assert (data.status, ready.status) == (404, 200)
        assert node.echo(text="x").status == 200


def test_insecure_dev_opens_the_admin_listener_on_loopback_only() -> None:
    with NodeProcess("--insecure-dev") as node:
        assert node.ask("admin", "GET", "/inventory").status == 200

    refused = penstock("up", "--amnesia", "--insecure-dev", "--set", "admin.bind_addr=0.0.0.0:0")
    assert refused.returncode == 2
    assert "must be loopback" in refused.stderr
