"""The command line and the SDK find services that run by themselves, and no longer when they have ended."""

from __future__ import annotations

import json
import select
import signal
from pathlib import Path

import pytest

from penstock.client import NoNode, NoService
from penstock.sdk.discovery import Discovery
from tests.acceptance.node_process import STOP_S, NodeProcess, penstock


def end(node: NodeProcess) -> None:
    node.signal(signal.SIGTERM)
    assert node.wait()[0] == 0


def test_services_that_share_a_data_directory_are_found_there(tmp_path: Path) -> None:
    here = ("--data-dir", str(tmp_path / "data"))
    place = Discovery(tmp_path / "data")
    with NodeProcess(data_dir=tmp_path / "data", command=("serve", "passport")) as issuer:
        issued = penstock("token", "issue", "--subject", "a", "--audience", "svc-mailbox", *here)
        assert issued.stdout.startswith("psp1_"), issued.stderr
        assert place.url("passport") == f"http://127.0.0.1:{issuer.port('passport')}"
        with pytest.raises(NoService):
            place.url("mailbox")

        with NodeProcess(data_dir=tmp_path / "data", command=("serve", "mailbox")) as mailbox:
            sent = penstock("send", "orders", "--data", "two pizzas", *here)
            received = penstock("recv", "orders", "--raw", "--ack", *here)
            assert (sent.returncode, received.stdout) == (0, "two pizzas"), sent.stderr
            end(mailbox)
        assert Discovery(tmp_path / "data").services() == ("passport",)
        end(issuer)

    with pytest.raises(NoNode):
        Discovery(tmp_path / "data").services()
    assert penstock("send", "orders", "--data", "x", *here).returncode == 1


def test_a_node_is_found_beside_what_a_killed_service_left(tmp_path: Path) -> None:
    with NodeProcess(data_dir=tmp_path / "data", command=("serve", "mailbox")) as alone:
        alone.process.kill()
        alone.process.wait()
    assert (tmp_path / "data" / "run" / "mailbox.json").exists()

    with NodeProcess(data_dir=tmp_path / "data") as node:
        assert Discovery(tmp_path / "data").url("mailbox") == f"http://127.0.0.1:{node.port('mailbox')}"


def test_a_service_that_waits_for_another_says_when_it_is_ready(tmp_path: Path) -> None:
    with NodeProcess(data_dir=tmp_path, command=("serve", "mailbox")) as mailbox:
        assert mailbox.ready["missing"] == ["svc-mailbox/capability"]
        with NodeProcess(data_dir=tmp_path, command=("serve", "passport")):
            assert select.select([mailbox.process.stdout], [], [], STOP_S)[0], "it said nothing more"
            assert json.loads(mailbox.process.stdout.readline()) == {"event": "all_ready"}


def test_stop_ends_services_that_run_alone_and_names_them(tmp_path: Path) -> None:
    with (
        NodeProcess(data_dir=tmp_path, command=("serve", "passport")) as issuer,
        NodeProcess(data_dir=tmp_path, command=("serve", "mailbox")) as mailbox,
    ):
        stopped = penstock("stop", "--data-dir", str(tmp_path))
        codes = [each.wait()[0] for each in (issuer, mailbox)]

    assert (stopped.returncode, stopped.stdout) == (0, "stopped svc-mailbox, svc-passport\n"), stopped.stderr
    assert codes == [0, 0]
    assert "no node is running" in penstock("stop", "--data-dir", str(tmp_path)).stderr
