"""A start that fails leaves nothing behind that was not there before."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.node_process import NodeProcess, penstock
from tests.net.server.certificates import make_certificate


@pytest.fixture
def taken() -> Iterator[str]:
    """An address that somebody else listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def files(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


# Early and late in the order of the start, and a listener that is not HTTP.
@pytest.mark.parametrize("key", ["admin.bind_addr", "mailbox.bind_addr", "omnigate.bind_addr", "dht.peer_addr"])
def test_a_port_that_is_taken_leaves_no_data_directory(tmp_path: Path, taken: str, key: str) -> None:
    words = ("--ephemeral-ports", "--set", f"{key}={taken}", "--data-dir", str(tmp_path / "data"))
    failed = penstock("up", *words)

    assert (failed.returncode, taken in failed.stderr) == (3, True), failed.stderr
    assert not (tmp_path / "data").exists()


def test_a_service_alone_whose_port_is_taken_leaves_no_data_directory(tmp_path: Path, taken: str) -> None:
    words = ("--ephemeral-ports", "--set", f"mailbox.bind_addr={taken}", "--data-dir", str(tmp_path / "data"))

    assert penstock("serve", "mailbox", *words).returncode == 3
    assert not (tmp_path / "data").exists()


def test_a_key_that_others_can_read_leaves_no_data_directory(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    certificate["tls_key_path"].chmod(0o644)
    tls = [f"omnigate.tls.{name}={certificate[f'tls_{name}']}" for name in ("cert_path", "key_path")]
    words = ("--ephemeral-ports", "--set", tls[0], "--set", tls[1], "--data-dir", str(tmp_path / "data"))
    failed = penstock("up", *words)

    assert (failed.returncode, "can be read by others" in failed.stderr) == (2, True), failed.stderr
    assert not (tmp_path / "data").exists()


def test_a_failed_start_in_a_directory_that_was_there_issues_nothing_and_keeps_it(tmp_path: Path, taken: str) -> None:
    with NodeProcess(data_dir=tmp_path) as node:
        node.process.terminate()
        node.wait()
    before, audit = files(tmp_path), (tmp_path / "audit" / "passport.jsonl").read_bytes()
    failed = penstock("up", "--ephemeral-ports", "--set", f"omnigate.bind_addr={taken}", "--data-dir", str(tmp_path))

    assert failed.returncode == 3
    assert files(tmp_path) == before
    assert (tmp_path / "audit" / "passport.jsonl").read_bytes() == audit, "no token was issued"
