"""The command line in a hostile shell: closed streams, full disks, bytes that are no text, paths that are no files."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest

from penstock.cli import main
from tests.acceptance.node_process import NodeProcess

TIMEOUT_S = 80


@pytest.fixture
def shell(node: NodeProcess):
    """Run a line of bash in which `$P` is the command line of the running node's holder."""

    def run(line: str, **variables: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "P": f"{sys.executable} -m penstock.cli", "PENSTOCK_DATA_DIR": node.ready["data_dir"]}
        return subprocess.run(
            ["bash", "-c", line], env={**env, **variables}, capture_output=True, timeout=TIMEOUT_S, check=False,
            encoding="utf-8", errors="surrogateescape",
        )  # fmt: skip

    return run


LINES = [
    ("$P send t --data x --key $(printf '\\xff')", 2, "not UTF-8"),
    ("$P send t --data x --attr $(printf '\\xff=1')", 2, "not UTF-8"),
    ("$P send t --data x --attr lonely", 2, "NAME=VALUE"),
    ("$P send t --data x --attr a=1 --attr a=2", 2, "once"),
    ("$P send t --file /nonexistent", 2, "/nonexistent cannot be read"),
    ("$P send t </dev/null", 2, "nothing to send"),
    ("$P send t <&-", 2, "nothing to send"),
    ("$P send 'no spaces' --data x", 2, "topic holds letters, digits and . _ : / - only"),
    ("$P recv t --max 0", 2, "'0' is no count"),
    ("$P token inspect - <&-", 2, "not a token"),
    ("$P put /proc/self/mem", 2, "/proc/self/mem cannot be read"),
    ("$P put /dev/zero", 1, "over the limit of 64 MiB"),
    ("$P status >/dev/full", 1, "the output cannot be written: No space left on device"),
    ("$P recv t --json >/dev/full", 1, "the output cannot be written: No space left on device"),
    ("PENSTOCK_TOKEN=psp1_☃ $P status", 1, "a character that no token has"),
    ("PENSTOCK_TOKEN=$(printf 'a\\nb') $P status", 1, "several words; a token is one"),
    ("PENSTOCK_TOKEN=garbage $P status", 1, "PENSTOCK_TOKEN does not begin with psp1_"),
    ("PENSTOCK_TOKEN= $P status", 1, "The variable PENSTOCK_TOKEN is empty"),
    ("PENSTOCK_TOKEN= $P token issue --subject a --audience svc-mailbox", 1, "The variable PENSTOCK_TOKEN is empty"),
    ("PENSTOCK_TOKEN_FILE=' ' $P topics", 1, "The variable PENSTOCK_TOKEN_FILE is empty"),
    ("$P topics --token-file /dev/null", 1, "What lies in the token file /dev/null is empty"),
    ("PENSTOCK_TOKEN=psp1_☃ $P token issue --subject a --audience svc-mailbox", 1, "a character that no token has"),
    ("$P snd t", 2, "there is no command snd; did you mean send?"),
    ("$P dlq list --nope", 2, "unrecognized arguments: --nope (penstock dlq list --help tells more)"),
]


@pytest.mark.parametrize(("line", "code", "told"), LINES, ids=[line for line, _, _ in LINES])
def test_a_failure_is_one_sentence_whatever_the_shell_did(shell, line: str, code: int, told: str) -> None:
    shell("$P send t --data something")
    done = shell(line)

    assert (done.returncode, len(done.stderr.splitlines())) == (code, 1), done.stderr
    assert told in done.stderr


@pytest.mark.parametrize("line", ["$P status", "$P topics", "$P recv narrow --json --visibility 250ms"])
@pytest.mark.parametrize(
    "world", ["LC_ALL=C PYTHONCOERCECLOCALE=0 PYTHONUTF8=0", "PYTHONIOENCODING=ascii", "COLUMNS=1"]
)
def test_a_poor_terminal_is_no_failure(shell, world: str, line: str) -> None:
    done = shell(f"{world} {line}")

    assert (done.returncode, done.stderr) == (0, "")


def test_a_terminal_without_the_letters_shows_them_written_out(shell) -> None:
    shell("$P send snow --data 'snow ☃' --key ☃")
    done = shell("PYTHONIOENCODING=ascii $P recv snow --ack")

    assert (done.returncode, done.stderr) == (0, "")
    assert "snow \\u2603" in done.stdout


def test_bytes_of_the_command_line_are_sent_as_they_are(shell) -> None:
    sent = shell("$P send raw --data $(printf '\\xff\\xfe')")
    got = shell("$P recv raw --raw --ack")

    assert (sent.returncode, os.fsencode(got.stdout)) == (0, b"\xff\xfe")


# --- readers that leave


@pytest.mark.parametrize("line", ["inventory", "status", "topics", "config show", "completion bash", "help up"])
def test_a_reader_that_has_left_is_no_failure(shell, line: str) -> None:
    """It leaves before the first word, which is what `head` does to the second page."""
    done = shell(f"$P {line} | true; exit ${{PIPESTATUS[0]}}")

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("output", ["nobody reads", "/dev/full"])
def test_a_node_that_cannot_say_it_is_ready_runs_all_the_same(tmp_path: Path, output: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    words = [sys.executable, "-m", "penstock.cli", "up", "--ephemeral-ports", "--data-dir", str(tmp_path)]
    with (
        Path("/dev/full").open("wb") as full,
        subprocess.Popen(words, stdout=writer if output != "/dev/full" else full, stderr=subprocess.PIPE) as process,
    ):
        os.close(writer)
        try:
            seen = _until_bound(process, tmp_path / "run" / "ports.json")
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()

    assert (seen, process.returncode) == (True, 0), err


def _until_bound(process: subprocess.Popen[bytes], ports: Path) -> bool:
    """Wait until a node says where it listens, or has ended."""
    for _ in range(100 * TIMEOUT_S):
        if ports.exists() or process.poll() is not None:
            break
        threading.Event().wait(0.01)
    return ports.exists()


# --- get -o


def test_what_is_no_plain_file_is_written_into_and_stays_what_it_was(shell, tmp_path: Path) -> None:
    """As root, to rename a file over /dev/null would take it from the whole machine."""
    os.mkfifo(tmp_path / "pipe")
    done = shell(
        f"A=$(echo some bytes | $P put -); cat {tmp_path}/pipe & "
        f"$P get $A -o {tmp_path}/pipe; code=$?; wait; exit $code"
    )

    assert (done.returncode, done.stdout) == (0, "some bytes\n")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_link_is_followed_not_replaced(shell, tmp_path: Path) -> None:
    (tmp_path / "goal").write_text("old")
    (tmp_path / "link").symlink_to("goal")
    done = shell(f"$P get $(echo new | $P put -) -o {tmp_path}/link")

    assert (done.returncode, (tmp_path / "goal").read_text()) == (0, "new\n")
    assert (tmp_path / "link").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["goal", "link"]


def test_a_pipe_can_be_put(shell) -> None:
    done = shell("$P get $($P put <(echo through a pipe))")

    assert (done.returncode, done.stdout) == (0, "through a pipe\n")


# --- tokens


def test_a_token_goes_its_way_on_the_command_line(shell) -> None:
    issue = "$P token issue --subject ada --audience svc-mailbox --caveat op=send,recv --ttl 10m"
    narrowed = shell(f"{issue} | $P token attenuate - --caveat op=send --seal").stdout.strip()
    inspected = json.loads(shell(f"$P token inspect {narrowed} --json").stdout)
    good = shell(f"$P token verify {narrowed} --aud svc-mailbox --op send --json")
    bad = shell(f"$P token verify {narrowed} --aud svc-mailbox --op recv --json")

    assert (inspected["sealed"], inspected["exp"] - inspected["iat"]) == (True, 600)
    assert (good.returncode, json.loads(good.stdout)["ok"]) == (0, True)
    assert (bad.returncode, json.loads(bad.stdout)["reason"]) == (1, "caveat:op")

    sent = shell("$P send tokens --data x", PENSTOCK_TOKEN=narrowed)
    revoked = shell(f"$P token revoke --tid {inspected['tid']} --reason 'left' --json")
    refused = shell("$P send tokens --data x --json", PENSTOCK_TOKEN=narrowed)
    assert (sent.returncode, revoked.returncode) == (0, 0)
    assert (refused.returncode, json.loads(refused.stdout)["error"]["reason"]) == (1, "revoked")


# --- failures for programs

COMMANDS = [
    ("status",),
    ("inventory",),
    ("config", "reload"),
    ("topics",),
    ("token", "issue", "--subject", "a", "--audience", "b"),
    ("token", "verify", "x"),
    ("token", "revoke", "--tid", "x"),
    ("audit", "verify"),
    ("mailbox", "check"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_with_json_every_failure_is_an_object_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    code = main([*words, "--json", "--data-dir", str(tmp_path / "nothing")])
    said = capsys.readouterr()

    assert code == 1
    assert set(json.loads(said.out)["error"]) == {"code", "detail"}
    assert said.err.startswith("penstock: ")


MISUSES = [
    ("send", "t", "--nope"),
    ("recv", "t", "--wait", "5"),
    ("dlq",),
    ("token", "revoke", "--epoch", "x"),
    ("snd",),
    ("send", "t", "--data", "x", "--key", "\udcff"),
]


@pytest.mark.parametrize("words", MISUSES, ids=lambda words: " ".join(words[:2]))
def test_with_json_a_misuse_is_an_object_too(
    node: NodeProcess, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("PENSTOCK_DATA_DIR", node.ready["data_dir"])
    try:
        code = main([*words, "--json"])
    except SystemExit as left:
        code = left.code
    said = capsys.readouterr()

    assert (code, json.loads(said.out)["error"]["code"], len(said.err.splitlines())) == (2, "malformed", 1)


# --- Ctrl-C

INTERRUPT = """
import sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
sys.argv = ["penstock", "topics"]
from penstock.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    "module", ["argparse", "penstock.cli", "penstock.cli.commands.topics", "penstock.sdk", "asyncio"]
)
def test_ctrl_c_while_the_command_is_still_being_read_is_quiet(tmp_path: Path, module: str) -> None:
    script = INTERRUPT.format(module=module)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=tmp_path
    )

    assert (done.returncode, done.stderr) == (130, "")


def test_the_installed_command_is_the_one_that_can_be_interrupted() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())

    assert project["project"]["scripts"]["penstock"] == "penstock.__main__:main"


def test_a_checked_file_is_judged_for_programs_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.toml").write_text("[echo]\nworkers = 99\nwokers = 3\n")
    code = main(["config", "check", str(tmp_path / "bad.toml"), "--json"])
    said = json.loads(capsys.readouterr().out)

    assert (code, said["ok"], [fault["key"] for fault in said["faults"]]) == (2, False, ["echo.workers", "echo.wokers"])


@pytest.mark.parametrize("line", ["$P audit verify", "$P mailbox check", "$P config show | grep -F data_dir"])
def test_every_command_goes_by_the_data_directory_of_the_environment(shell, node: NodeProcess, line: str) -> None:
    done = shell(f"cd / && {line}")

    assert "no data directory" not in done.stderr
    assert "no mailbox" not in done.stderr
    assert done.returncode == (1 if "mailbox" in line else 0), "the mailbox of a running node is in use"
    assert "config" not in line or node.ready["data_dir"] in done.stdout
