"""The programs of the tutorial do what it says, and the tutorial shows them as they are."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.acceptance.node_process import STOP_S, NodeProcess

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "examples" / "word_count"
SHOWN = re.findall(r'```python title="(.*?)"\n(.*?)```', (ROOT / "docs" / "tutorial.md").read_text(), re.DOTALL)


def start(node: NodeProcess, program: str, *arguments: str) -> subprocess.Popen[str]:
    env = {**os.environ, "PENSTOCK_DATA_DIR": node.ready["data_dir"], "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, str(PROGRAMS / program), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def submit(node: NodeProcess, *files: Path) -> list[str]:
    """Run the producer; returns the lines it printed."""
    producer = start(node, "producer.py", *map(str, files))
    out, err = producer.communicate(timeout=STOP_S)
    assert (producer.returncode, err) == (0, "")
    return out.splitlines()


def count(node: NodeProcess, texts: int) -> list[str]:
    """Run the worker until it has counted so many texts, then press Ctrl-C; returns what it printed."""
    worker = start(node, "worker.py")
    assert worker.stdout is not None
    lines = [worker.stdout.readline().strip() for _ in range(texts)]
    worker.send_signal(signal.SIGINT)
    _, err = worker.communicate(timeout=STOP_S)
    assert (worker.returncode, "KeyboardInterrupt" in err) == (0, False)
    return sorted(lines)


def test_the_tutorial_shows_the_programs_as_they_are() -> None:
    assert dict(SHOWN) == {f"examples/word_count/{path.name}": path.read_text() for path in PROGRAMS.glob("*.py")}


def test_every_text_is_counted_once_and_one_that_is_no_text_becomes_a_dead_letter(
    node: NodeProcess, tmp_path: Path
) -> None:
    for name, text in (("two.txt", b"hello world"), ("three.txt", b"one more time"), ("broken.txt", b"\377\376\377")):
        (tmp_path / name).write_bytes(text)

    first = submit(node, tmp_path / "two.txt")
    again = submit(node, tmp_path / "two.txt")
    assert first == again, "a repeat within the window is the same message"

    submit(node, tmp_path / "broken.txt", tmp_path / "three.txt")
    assert count(node, 2) == ["three.txt: 3 words", "two.txt: 2 words"]

    worker = start(node, "worker.py")
    try:
        while not (letters := node.ask("mailbox", "GET", "/v1/dlq?topic=texts", token=True).json()["entries"]):
            assert worker.poll() is None
        assert [(letter["attempts"], letter["reason"]) for letter in letters] == [(5, "rejected:UnicodeDecodeError")]
    finally:
        worker.send_signal(signal.SIGINT)
        worker.communicate(timeout=STOP_S)


def shell(node: NodeProcess, script: str) -> subprocess.CompletedProcess[str]:
    """Run lines as in the terminal of somebody who follows the tutorial."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    env |= {"PATH": f"{Path(sys.executable).parent}:{env['PATH']}", "PENSTOCK_DATA_DIR": node.ready["data_dir"]}
    here = Path(node.ready["data_dir"]).parent
    if not (here / "examples").exists():
        (here / "examples").symlink_to(ROOT / "examples")
    return subprocess.run(
        ["bash", "-c", f"set -e\n{script}"], cwd=here, env=env, capture_output=True, text=True, timeout=STOP_S,
        check=False,
    )  # fmt: skip


def tutorial(holding: str) -> str:
    """Return the one shell block of the tutorial that holds a text."""
    page = (ROOT / "docs" / "tutorial.md").read_text()
    [block] = [block for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) if holding in block]
    return block


def test_the_tokens_of_the_tutorial_are_good_for_its_programs_and_for_nothing_else(node: NodeProcess) -> None:
    worker = [line for line in tutorial("--for worker").splitlines() if "worker.py" not in line]
    explained = shell(node, "\n".join(worker))
    produced = shell(node, tutorial("--for producer"))
    env = f"PENSTOCK_TOKEN_FILE={Path(node.ready['data_dir']).parent}/counter.token"
    stranger = shell(node, f"{env} python examples/word_count/producer.py more.txt")

    assert "refused: This needs op=send" in explained.stdout, explained.stderr
    assert produced.stdout.startswith("sent "), produced.stderr
    assert "Forbidden" in stranger.stderr


def test_the_dead_letters_of_the_tutorial_are_listed_and_sent_back(node: NodeProcess) -> None:
    for block in ("penstock dlq list texts", "penstock dlq redrive texts\n"):
        assert shell(node, tutorial(block)).returncode == 0
