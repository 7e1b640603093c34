"""The mailbox's files vanish under a node that nobody asks anything of: it notices by itself, and says so."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.testing import wait_until
from tests.acceptance.node_process import NodeProcess

WAYS: dict[str, Callable[[Path], object]] = {
    "database removed": lambda home: (home / "mailbox.db").unlink(),
    "directory moved": lambda home: shutil.move(home, home.with_name("elsewhere")),
}


@pytest.mark.parametrize("how", WAYS)
def test_an_idle_node_notices_that_the_files_of_its_mailbox_are_gone(tmp_path: Path, how: str) -> None:
    # The fewer services the sooner it starts; readyz is answered by the listener and wakes nobody behind it.
    with NodeProcess(*_alone(), data_dir=tmp_path) as node:
        assert node.ask("mailbox", "GET", "/readyz").status == 200
        WAYS[how](tmp_path / "mailbox")
        wait_until(lambda: node.ask("mailbox", "GET", "/readyz").status == 503)
        # It opens the files anew, and does not make others in their place.
        wait_until(lambda: "storage" in node.ask("mailbox", "GET", "/readyz").json()["missing"])
        refused = node.ask("mailbox", "GET", "/v1/topics", token=True)

        assert refused.status == 503
        assert "a mailbox lived" in refused.json()["detail"]
        assert not (tmp_path / "mailbox" / "mailbox.db").exists()


def _alone() -> list[str]:
    off = ("omnigate", "storage", "dht", "interop")
    return [word for name in off for word in ("--set", f"node.{name}=false")]
