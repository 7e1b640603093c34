"""LocalStack's AWS-validated SQS tests against a live node, by hand: the suite is in no package, so it is given.

    python -m tests.foreign.localstack_suite CHECKOUT --python INTERPRETER [--part quick,pauses,minutes]

CHECKOUT is a work tree of LocalStack's repository. INTERPRETER is one of Python 3.13 or newer that has
`localstack-core[base-runtime,runtime]`, `localstack-snapshot`, `pytest` and `pytest-httpserver`, in the versions that
the checkout's `requirements-test.txt` names. Port 4566 has to be free: answers are recorded with it. `quick` is nearly
all of them and takes three minutes; `pauses` needs a node with AWS's pauses; `minutes` waits out retention and
deduplication, and takes a quarter of an hour.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.acceptance.node_process import NodeProcess
from tests.foreign.environments import PROGRAMS

KEY_ID, SECRET = "AKIALOCALSTACKTESTS1", "localstack-tests"
HOST = "sqs.us-east-1.localhost.localstack.cloud"
TESTS = ("tests/aws/services/sqs/test_sqs.py", "tests/aws/services/sqs/test_sqs_move_task.py")
MORE = {"pauses": {"interop.sqs.cooldown": "60s"}}
_RUN_S = 1800


def run(checkout: Path, python: str, part: str) -> tuple[int, list[str]]:
    """Run a part of the suite; returns how many passed, and the names of those that did not."""
    settings = {
        "interop.bind_addr": "127.0.0.1:4566",
        "interop.allowed_hosts": f"{HOST},localhost,localhost.localstack.cloud",
        "interop.sqs.keys.suite.id": KEY_ID,
        "interop.sqs.keys.suite.secret": "env:SUITE_SECRET",
        **MORE.get(part, {}),
    }
    said = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    env = {**os.environ, "SUITE_SECRET": SECRET}
    with (
        tempfile.TemporaryDirectory() as data_dir,
        NodeProcess(*said, data_dir=Path(data_dir), env=env) as node,
    ):
        printed = _pytest(checkout, python, part)
        assert node.process.poll() is None, node.log()[-4000:]
    sys.stdout.write(printed)
    failed = re.findall(r"^(?:FAILED|ERROR) \S+?::(.*?)(?: - .*)?$", printed, re.MULTILINE)
    passed = re.findall(r"(\d+) passed", printed)
    return int(passed[-1]) if passed else 0, failed


def _pytest(checkout: Path, python: str, part: str) -> str:
    env = {
        "PYTHONPATH": str(PROGRAMS),
        "PENSTOCK_LOCALSTACK": part,
        # With STS off the account is taken from the settings, not asked for.
        "SERVICES": "sqs",
        "TEST_SKIP_LOCALSTACK_START": "1",
        "TEST_AWS_ENDPOINT_URL": f"http://{HOST}:4566",
        "TEST_AWS_ACCESS_KEY_ID": KEY_ID,
        "TEST_AWS_SECRET_ACCESS_KEY": SECRET,
    }
    quiet = ["-q", "-rfE", "--tb=short", "--show-capture=no", "--color=no", "-W", "ignore", "-p", "no:cacheprovider"]
    command = [python, "-m", "pytest", "-p", "localstack_plugin", *quiet, *TESTS]
    done = subprocess.run(
        command, cwd=checkout, env={**os.environ, **env}, capture_output=True, text=True, timeout=_RUN_S, check=False
    )
    return done.stdout + done.stderr


def main() -> None:
    """Run the parts and print what came of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--python", required=True)
    parser.add_argument("--part", default="quick,pauses")
    options = parser.parse_args()
    passed, failed = 0, []
    for part in options.part.split(","):
        good, bad = run(options.checkout, options.python, part)
        passed, failed = passed + good, failed + bad
    sys.stdout.write(f"\n{passed} passed, {len(failed)} failed\n" + "".join(f"  {name}\n" for name in failed))


if __name__ == "__main__":
    main()
