"""The data directory is moved under a running node: the node ends, writes nothing elsewhere, and goes on there."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.node_process import NodeProcess


def test_a_node_whose_directory_was_moved_ends_and_goes_on_where_it_is_now(tmp_path: Path) -> None:
    home, moved = tmp_path / "home", tmp_path / "moved"
    alone = [word for name in ("omnigate", "storage", "dht", "interop") for word in ("--set", f"node.{name}=false")]
    with NodeProcess(*alone, data_dir=home) as node:
        sent = node.ask("mailbox", "POST", "/v1/send", {"topic": "orders", "payload": "two pizzas"}, token=True)
        home.rename(moved)
        code, _out, said = node.wait()

        assert code == 1
        assert f"penstock: the data directory {home} was moved" in said
        # Not made anew, which would be an empty mailbox and other keys.
        assert not home.exists()
    with NodeProcess(*alone, data_dir=moved) as node:
        got = node.ask("mailbox", "POST", "/v1/recv", {"topic": "orders"}, token=True).json()

        assert [message["msg_id"] for message in got["messages"]] == [sent.json()["msg_id"]]
