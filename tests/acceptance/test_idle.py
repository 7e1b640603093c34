"""What a node costs when nobody asks anything of it."""

from __future__ import annotations

import os
from pathlib import Path

from tests.acceptance.node_process import NodeProcess

LIMIT_KIB = 120 * 1024


def test_an_idle_node_holds_less_than_120_mib(tmp_path: Path) -> None:
    # Whoever watches which lines run needs memory of his own.
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    with NodeProcess(data_dir=tmp_path / "data", env=env) as node:
        assert node.ask("admin", "GET", "/readyz").status == 200
        status = Path(f"/proc/{node.process.pid}/status").read_text()
    (resident,) = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")]

    assert int(resident) < LIMIT_KIB
