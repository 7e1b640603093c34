"""`penstock stop` says how the node ended: what a drain cut off and why, and when nobody can tell."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock.cli.commands.stop import ending_of
from penstock.cli.endings import ending_in_words, plain_ending
from tests.acceptance.node_process import STOP_S, NodeProcess, penstock
from tests.cli.conftest import outside

ECHO = ("--set", "node.echo=true", "--set", "echo.drain_deadline=1s")
UNCLEAN = 5


def test_a_drain_that_cut_work_off_is_no_clean_stop(tmp_path: Path) -> None:
    with NodeProcess(*ECHO, data_dir=tmp_path) as node:
        work = node.begin_echo("late", 10_000)
        done = penstock("stop", "--data-dir", str(tmp_path))
        code, out, _ = node.wait()
        work.close()

    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (UNCLEAN, "stopped\n", 1)
    assert "penstock: the node did not drain cleanly; cut off, because it was not done within the drain" in done.stderr
    assert "svc-echo/worker[" in done.stderr
    said = json.loads(out.splitlines()[-1])
    assert (code, said["reason"], any("svc-echo/worker" in name for name in said["aborted"])) == (1, "deadline", True)


def test_programs_are_told_what_was_cut_off_and_why(tmp_path: Path) -> None:
    with NodeProcess(*ECHO, data_dir=tmp_path) as node:
        work = node.begin_echo("late", 10_000)
        done = penstock("stop", "--data-dir", str(tmp_path), "--json")
        node.wait()
        work.close()
    told = json.loads(done.stdout)

    [ending] = told["endings"]
    assert (done.returncode, told["stopped"], told["clean"]) == (UNCLEAN, True, False)
    assert (ending["name"], ending["pid"], ending["reason"]) == ("the node", node.process.pid, "deadline")
    assert any("svc-echo/worker" in name for name in ending["cut"])


def test_a_clean_stop_says_so_to_programs_and_an_ending_before_it_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with NodeProcess(data_dir=tmp_path) as node:
        done = penstock("stop", "--data-dir", str(tmp_path), "--json")
        node.wait()
    told = json.loads(done.stdout)

    assert (done.returncode, done.stderr, told["clean"], told["endings"][0]["cut"]) == (0, "", True, [])


def test_a_node_that_was_killed_while_it_drained_is_told_from_one_that_ended_well(tmp_path: Path) -> None:
    with NodeProcess(data_dir=tmp_path) as node:
        node.signal(signal.SIGSTOP)
        words = [sys.executable, "-m", "penstock.cli", "stop", "--data-dir", str(tmp_path)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as stopping:
            assert _is_asked(node.process.pid)
            node.signal(signal.SIGKILL)
            node.process.wait(STOP_S)
            out, err = stopping.communicate(timeout=STOP_S)

    assert (stopping.returncode, out) == (UNCLEAN, "stopped\n")
    assert "has ended without saying how: it was killed or has crashed." in err


@pytest.mark.parametrize(
    "written",
    ["", "x", '"x"', "5", "null", "[]", '{"pid": PID}', ('{"pid": PID, "clean": false, "cut": [5], "reason": null, '
     '"limit_s": 1.0}'), '{"pid": PID, "clean": false, "cut": [], "reason": null, "limit_s": null}'],
)  # fmt: skip
def test_a_damaged_ending_is_none(tmp_path: Path, written: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "node.ending").write_text(written.replace("PID", "77"))

    assert ending_of(tmp_path, 77, "the node") is None


def test_who_may_not_look_into_the_directory_is_told_whose_node_it_is(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can work as another user")
    tmp_path.chmod(0o700)
    done = _stop_as_nobody(tmp_path)

    said = done.stderr.partition("---")[2]

    assert (done.returncode, said.count("\n")) == (1, 1)
    assert "belongs to another user: permission denied. Stop the node as the user who runs it" in said


def _stop_as_nobody(data_dir: Path) -> subprocess.CompletedProcess[str]:
    # The first call has loaded everything by the time this user can no longer read where Python is.
    become = (
        "import os, sys; from penstock.cli import main; main([*sys.argv[1:-1], '/nowhere/at/all']); "
        "os.setgid(65534); os.setuid(65534); sys.stderr.write('---'); sys.exit(main())"
    )
    words = [sys.executable, "-c", become, "stop", "--data-dir", str(data_dir)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=STOP_S)


def test_who_works_with_a_node_elsewhere_is_told_that_stop_is_for_this_machine(tmp_path: Path) -> None:
    near = penstock("stop", "--data-dir", str(tmp_path), env=outside())
    far = penstock("stop", "--data-dir", str(tmp_path), env=outside(PENSTOCK_URL="http://queue.example.org"))

    assert "stop works on the node's own machine only" in far.stderr
    assert "machine" not in near.stderr


def _is_asked(pid: int) -> bool:
    """Wait until SIGTERM waits for a process that is held."""
    for _ in range(6000):
        fields = dict(
            line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "\t" in line
        )
        if int(fields["ShdPnd"], 16) >> (signal.SIGTERM - 1) & 1:
            return True
        threading.Event().wait(0.01)
    return False


@pytest.mark.parametrize("cause", ["deadline", "signal"])
def test_what_was_cut_off_is_counted_and_a_long_list_is_cut(cause: str) -> None:
    said = ending_in_words(plain_ending(["a/request"] * 3 + [f"b/{n}" for n in range(9)], cause, 10.0))

    assert ": a/request (3 times), b/0, " in said
    assert said.endswith("b/6 and 2 more")
    assert ("a second signal" in said) is (cause == "signal")
