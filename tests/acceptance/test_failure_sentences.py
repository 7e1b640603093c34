"""What keeps a node from starting is said in one sentence with its own exit code, and never as a traceback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.acceptance.node_process import NodeProcess, penstock

Scene = Callable[[Path], Iterator[tuple[list[str], str]]]


def wrong_flag(_here: Path) -> Iterator[tuple[list[str], str]]:
    yield ["--no-such-flag"], "unrecognized arguments: --no-such-flag"


def wrong_value(_here: Path) -> Iterator[tuple[list[str], str]]:
    yield ["--port-base", "99999"], "node.port_base = 99999: must be in the range 1..60000"


def torn_config(here: Path) -> Iterator[tuple[list[str], str]]:
    (here / "penstock.toml").write_text("[node\n")
    yield ["--config", str(here / "penstock.toml")], "penstock.toml:1: is not TOML"


def binary_config(here: Path) -> Iterator[tuple[list[str], str]]:
    (here / "penstock.toml").write_bytes(b"\xff\xfe")
    yield ["--config", str(here / "penstock.toml")], "is not UTF-8 text"


def missing_config(here: Path) -> Iterator[tuple[list[str], str]]:
    yield ["--config", str(here / "none.toml")], "none.toml: cannot be read: No such file or directory"


def busy_port(_here: Path) -> Iterator[tuple[list[str], str]]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        yield ["--amnesia", "--ephemeral-ports", "--set", f"mailbox.bind_addr={address}"], address


def foreign_address(_here: Path) -> Iterator[tuple[list[str], str]]:
    # An address for documentation: no machine has it.
    yield ["--amnesia", "--ephemeral-ports", "--set", "admin.bind_addr=192.0.2.1:0"], "192.0.2.1"


def used_data_dir(here: Path) -> Iterator[tuple[list[str], str]]:
    with NodeProcess(data_dir=here) as node:
        yield ["--ephemeral-ports", "--data-dir", str(here)], f"another node (process {node.process.pid})"


def used_by_a_service(here: Path) -> Iterator[tuple[list[str], str]]:
    with NodeProcess(data_dir=here, command=("serve", "mailbox")) as node:
        yield ["--ephemeral-ports", "--data-dir", str(here)], f"svc-mailbox (process {node.process.pid})"


def file_in_the_way(here: Path) -> Iterator[tuple[list[str], str]]:
    (here / "file").write_text("no directory")
    yield ["--ephemeral-ports", "--data-dir", str(here / "file")], "cannot be used: a file is in the way"


def unwritable_data_dir(here: Path) -> Iterator[tuple[list[str], str]]:
    if os.getuid() != 0:
        here.chmod(0o500)
        yield ["--ephemeral-ports", "--data-dir", str(here / "data")], "cannot be used: Permission denied"
        here.chmod(0o700)
    else:
        with mounted(here, "ro"):
            yield ["--ephemeral-ports", "--data-dir", str(here / "data")], "cannot be used: Read-only file system"


def late_start(here: Path) -> Iterator[tuple[list[str], str]]:
    # A pipe where a key should lie: whoever reads it waits for a writer that never comes.
    here.chmod(0o700)
    (here / "passport").mkdir(mode=0o700)
    os.mkfifo(here / "passport" / "sealing.key", 0o600)
    yield (
        ["--ephemeral-ports", "--data-dir", str(here), "--set", "passport.kms.timeout=200ms"],
        "not ready in time: kms",
    )


@contextmanager
def mounted(here: Path, options: str) -> Iterator[None]:
    """Lay a small file system over a directory, where that is allowed."""
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(here)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(here)], check=True)


# What a program is told beside the exit code.
CODES = {
    "wrong_flag": "malformed", "wrong_value": "malformed", "torn_config": "malformed", "busy_port": "conflict",
    "used_data_dir": "conflict",
    "file_in_the_way": "conflict", "late_start": "timeout",
}  # fmt: skip
SCENES: list[tuple[Scene, int]] = [
    (wrong_flag, 2), (wrong_value, 2), (torn_config, 2), (binary_config, 2), (missing_config, 2), (busy_port, 3),
    (foreign_address, 3),
    (used_data_dir, 1), (used_by_a_service, 1), (file_in_the_way, 1), (unwritable_data_dir, 1), (late_start, 4),
]  # fmt: skip


def said(stderr: str) -> list[str]:
    """Return what was said to a person: all but the log and the usage."""
    return [line for line in stderr.splitlines() if not line.startswith(("{", "usage: "))]


@pytest.mark.parametrize(("scene", "code"), SCENES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_failed_start_is_one_sentence_with_its_exit_code(tmp_path: Path, scene: Scene, code: int) -> None:
    with contextmanager(scene)(tmp_path) as (arguments, sentence):
        failed = penstock("up", *arguments)

    assert failed.returncode == code, failed.stderr
    assert len(said(failed.stderr)) == 1, failed.stderr
    assert sentence in said(failed.stderr)[0]
    assert failed.stdout == ""


@pytest.mark.parametrize("scene", [scene for scene, _ in SCENES if scene.__name__ in CODES])
def test_with_json_a_failed_start_is_one_object_too(tmp_path: Path, scene: Scene) -> None:
    with contextmanager(scene)(tmp_path) as (arguments, sentence):
        failed = penstock("up", "--json", *arguments)
    (line,) = failed.stdout.splitlines()
    error = json.loads(line)["error"]

    assert sentence in error["detail"]
    assert error["code"] == CODES[scene.__name__]
    assert len(said(failed.stderr)) == 1


def test_with_json_every_fault_of_a_configuration_is_told_apart() -> None:
    faults = ["--set", "mailbox.ready_shards=x", "--set", "node.nothing=1"]
    told = [penstock(*command, "--json", *faults) for command in (("up",), ("config", "show"))]

    for failed in told:
        assert failed.returncode == 2
        error = json.loads(failed.stdout)["error"]
        assert [fault["key"] for fault in error["faults"]] == ["mailbox.ready_shards", "node.nothing"]


@pytest.mark.parametrize("size", ["4k", "8k", "12k", "24k", "100k"])
def test_a_disk_that_is_full_at_whatever_step_is_one_sentence(tmp_path: Path, size: str) -> None:
    with mounted(tmp_path, f"size={size}"):
        failed = penstock("up", "--ephemeral-ports", "--data-dir", str(tmp_path / "data"))

    assert failed.returncode == 1, failed.stderr
    assert len(said(failed.stderr)) == 1, failed.stderr
    assert "No space left on device" in said(failed.stderr)[0] or "disk is full" in said(failed.stderr)[0]
