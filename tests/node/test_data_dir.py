"""One node a directory; the token is made once and private."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from penstock.node.data_dir import DataDir, DataDirRefused


def test_the_directory_is_private_and_the_token_lasts(tmp_path: Path) -> None:
    first = DataDir(tmp_path / "data")
    first.open()
    token = first.operator_token()
    first.close()
    second = DataDir(tmp_path / "data")
    second.open()

    assert second.operator_token() == token
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    second.close()


def test_a_second_holder_is_refused_until_the_first_lets_go(tmp_path: Path) -> None:
    first, second = DataDir(tmp_path), DataDir(tmp_path)
    first.open()

    with pytest.raises(DataDirRefused, match="another node"):
        second.open()
    first.close()
    second.open()
    second.close()


def test_services_alone_share_a_directory_but_no_service_runs_twice(tmp_path: Path) -> None:
    mailbox, storage, again, node = (DataDir(tmp_path, only=only) for only in ("mailbox", "storage", "mailbox", None))
    mailbox.open()
    storage.open()

    with pytest.raises(DataDirRefused, match=rf"svc-mailbox \(process {os.getpid()}\) is using"):
        again.open()
    with pytest.raises(DataDirRefused, match=r"svc-\w+ \(process \d+\) is using"):
        node.open()
    for each in (mailbox, storage):
        each.close()
    node.open()
    with pytest.raises(DataDirRefused, match="another node"):
        again.open()
    node.close()
    again.open()
    again.close()


def test_a_service_that_ends_leaves_the_addresses_of_a_node_alone(tmp_path: Path) -> None:
    node = DataDir(tmp_path)
    node.open()
    node.write_ports({"admin": 5300}, {"url": None, "certificate": None})
    refused = DataDir(tmp_path, only="mailbox")
    with pytest.raises(DataDirRefused):
        refused.open()
    refused.close()

    assert (tmp_path / "run" / "ports.json").exists()
    node.close()


def test_an_empty_token_file_left_by_a_crash_is_filled(tmp_path: Path) -> None:
    (tmp_path / "operator.token").touch(0o600)
    directory = DataDir(tmp_path)
    directory.open()

    assert directory.operator_token().startswith("psp1_")
    assert (tmp_path / "operator.token").read_text().strip() == directory.operator_token()
    directory.close()


def test_closing_twice_changes_nothing(tmp_path: Path) -> None:
    directory = DataDir(tmp_path)
    directory.open()
    directory.write_ports({"admin": 5300}, {"url": None, "certificate": None})
    directory.close()
    directory.close()

    assert not (tmp_path / "run" / "ports.json").exists()


@pytest.mark.parametrize("content", [b"\xff\xfe", b"weak", b"psp1_short"])
def test_a_token_file_that_holds_no_token_is_refused_in_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "operator.token").touch(0o600)
    (tmp_path / "operator.token").write_bytes(content)
    directory = DataDir(tmp_path)
    directory.open()

    with pytest.raises(DataDirRefused, match="operator token"):
        directory.operator_token()
    directory.close()


def test_a_token_file_others_can_read_is_refused(tmp_path: Path) -> None:
    directory = DataDir(tmp_path)
    directory.open()
    directory.operator_token()
    (tmp_path / "operator.token").chmod(0o644)

    with pytest.raises(DataDirRefused, match="0644"):
        directory.operator_token()
    directory.close()


def test_a_token_others_can_read_is_refused_whoever_minted_it(tmp_path: Path) -> None:
    (tmp_path / "operator.token").touch(0o644)
    (tmp_path / "operator.token").chmod(0o640)
    directory = DataDir(tmp_path)

    with pytest.raises(DataDirRefused, match="0640"):
        directory.open()
    directory.close()


def test_a_directory_in_the_tokens_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "operator.token").mkdir()
    directory = DataDir(tmp_path)
    directory.open()

    with pytest.raises(DataDirRefused, match="cannot be used"):
        directory.operator_token()
    directory.close()


def lost(how: str, home: Path) -> None:
    """Take the directory away, as a person might."""
    if how == "removed":
        shutil.rmtree(home)
        return
    home.rename(home.with_name("elsewhere"))
    if how == "replaced":
        other = DataDir(home)
        other.open()
        other.close()


@pytest.mark.parametrize("how", ["moved", "removed", "replaced"])
@pytest.mark.parametrize("only", [None, "mailbox"])
def test_a_holder_notices_that_its_directory_is_elsewhere(tmp_path: Path, how: str, only: str | None) -> None:
    held = DataDir(tmp_path / "data", only=only)
    held.open()
    assert held.astray() == ""

    lost(how, tmp_path / "data")

    assert "was moved" in held.astray()
    if how != "removed" and Path("/proc/self/fd").exists():
        assert f"penstock up --data-dir {tmp_path / 'elsewhere'}" in held.astray()
    held.close()


def test_a_holder_that_lost_its_directory_leaves_the_files_of_the_next_one_alone(tmp_path: Path) -> None:
    first, second = DataDir(tmp_path / "data"), DataDir(tmp_path / "data")
    first.open()
    lost("moved", tmp_path / "data")
    second.open()
    second.write_ports({"mailbox": 5305}, {})

    first.close()

    assert (tmp_path / "data" / "run" / "ports.json").exists()
    second.close()


def test_a_closed_directory_may_be_moved(tmp_path: Path) -> None:
    held = DataDir(tmp_path / "data")
    held.open()
    held.close()

    lost("moved", tmp_path / "data")

    assert held.astray() == ""
