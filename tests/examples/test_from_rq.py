"""The program of the page for users of RQ works as it is printed, and ends by a signal without an error."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.acceptance.node_process import STOP_S, NodeProcess

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "from-rq.md").read_text()


def test_the_worker_of_the_page_does_its_job_and_stops(node: NodeProcess) -> None:
    [program] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    env = {**os.environ, "PENSTOCK_DATA_DIR": node.ready["data_dir"], "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    ) as worker:
        try:
            assert worker.stdout is not None
            said = worker.stdout.readline()
            worker.send_signal(signal.SIGTERM)
            _, err = worker.communicate(timeout=STOP_S)
        finally:
            worker.kill()

    assert (said, worker.returncode, err) == ("mail to ada@example.org\n", 0, "")
