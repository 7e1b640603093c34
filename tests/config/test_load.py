"""Reading files: what cannot be read is a fault like any other, and secrets lose only their line end."""

from __future__ import annotations

import pytest

from penstock.config.faults import ConfigFaults
from penstock.config.load import load, ram_bytes
from penstock.config.sources import CommandFlag, Sources
from tests.config.samples import SCHEMA


def faults_with(**sources):
    with pytest.raises(ConfigFaults) as caught:
        load(SCHEMA, Sources(**sources))
    return caught.value.faults


def test_a_file_is_read_and_named_in_provenance(tmp_path):
    file = tmp_path / "node.toml"
    file.write_text("[gate]\nconns = 3\n")
    settings = load(SCHEMA, Sources(file=file))

    assert settings["gate.conns"] == 3
    assert str(settings.provenance("gate.conns")) == f"{file}:2"


@pytest.mark.parametrize("content", [b"\xff\xfe", b"#" * ((1 << 20) + 1)])
def test_a_file_that_is_no_text_or_too_large_is_one_fault(tmp_path, content):
    file = tmp_path / "node.toml"
    file.write_bytes(content)

    [fault] = faults_with(file=file)
    assert str(fault).startswith(str(file))


def test_a_missing_file_and_a_directory_are_faults(tmp_path):
    assert "cannot be read" in str(faults_with(file=tmp_path / "none.toml")[0])
    assert "cannot be read" in str(faults_with(file=tmp_path)[0])


def test_a_flag_wins_over_the_environment_and_a_set_over_a_flag():
    flag = CommandFlag("--conns", "gate.conns", "5")
    environ = {"PENSTOCK_GATE__CONNS": "4"}
    settings = load(SCHEMA, Sources(environ=environ, flags=(flag,)))

    assert settings["gate.conns"] == 5
    assert str(settings.provenance("gate.conns")) == "--conns"
    assert load(SCHEMA, Sources(flags=(flag,), sets=("gate.conns=6",)))["gate.conns"] == 6


def test_a_secret_file_loses_its_line_end_only(tmp_path):
    file = tmp_path / "hook"
    file.write_text(" s3cret \n")
    settings = load(SCHEMA, Sources(sets=(f"gate.hook.secret_file={file}",)))

    assert settings.secret("gate.hook.secret").reveal() == " s3cret "


def test_a_secret_that_is_nowhere_is_a_fault(tmp_path):
    empty = tmp_path / "empty"
    empty.touch()

    assert "not set" in faults_with(sets=("gate.hook.secret_env=NOWHERE",))[0].rule
    assert "empty" in faults_with(sets=(f"gate.hook.secret_file={empty}",))[0].rule
    assert "cannot be read" in faults_with(sets=(f"gate.hook.secret_file={tmp_path}/none",))[0].rule


def test_a_path_the_system_cannot_even_spell_is_a_fault():
    assert "cannot be read" in faults_with(sets=("gate.hook.secret_file=a\x00b",))[0].rule


def test_the_machine_has_memory():
    assert ram_bytes() > 1 << 20
