"""Tables by a free name, and secrets that are only named: from file, environment and --set."""

from __future__ import annotations

import pytest

from penstock.config import Apply, ConfigFaults, Key, Kind, Schema, Sources, Table, diff, docs_table, load
from penstock.config.schema import REQUIRED

FIELDS = (
    Key("kind", Kind.STR, ""),
    Key("secrets", Kind.SECRET_REFS, REQUIRED, help="Where the secrets lie."),
    Key("tolerance", Kind.DURATION, "300s", low="1s", high="1h"),
    Key("ips", Kind.LIST, ()),
)
SCHEMA = Schema(
    [Table("bridge", (Key("hooks", Kind.NAMED, {}, fields=FIELDS), Key("port", Kind.INT, 1, apply=Apply.RESTART)))]
)
ENV = {"FIRST": "fake-one", "SECOND": "fake-two"}


def _load(tmp_path, toml="", *, env=None, sets=()):
    file = tmp_path / "node.toml"
    file.write_text(toml)
    return load(SCHEMA, Sources(file=file, environ={**ENV, **(env or {})}, sets=sets))


def _faults(tmp_path, toml="", **more):
    with pytest.raises(ConfigFaults) as found:
        _load(tmp_path, toml, **more)
    return found.value.faults


GOOD = """
[bridge.hooks.github]
secrets = ["env:FIRST"]

[bridge.hooks.git-lab_2]
kind = "gitlab"
secrets = ["env:SECOND", "env:FIRST"]
tolerance = "5s"
"""


def test_tables_are_read_by_their_names_and_completed(tmp_path):
    hooks = _load(tmp_path, GOOD).named("bridge.hooks")

    assert list(hooks) == ["github", "git-lab_2"]
    assert [secret.reveal() for secret in hooks["git-lab_2"]["secrets"]] == ["fake-two", "fake-one"]
    assert (hooks["github"]["kind"], hooks["github"]["tolerance"], hooks["github"]["ips"]) == ("", 300.0, ())


def test_no_table_is_no_fault(tmp_path):
    assert _load(tmp_path).named("bridge.hooks") == {}


def test_single_fields_are_set_over_the_file(tmp_path):
    env = {"PENSTOCK_BRIDGE__HOOKS__GITHUB__KIND": "gitea"}
    settings = _load(
        tmp_path, GOOD, env=env, sets=("bridge.hooks.github.tolerance=7s", "bridge.hooks.new.secrets=env:FIRST")
    )
    hooks = settings.named("bridge.hooks")

    assert (hooks["github"]["kind"], hooks["github"]["tolerance"]) == ("gitea", 7.0)
    assert hooks["github"]["secrets"][0].reveal() == "fake-one"
    assert hooks["new"]["tolerance"] == 300.0


def test_set_gives_several_places(tmp_path):
    for text in ("env:FIRST, env:SECOND", '["env:FIRST", "env:SECOND"]'):
        hooks = _load(tmp_path, sets=(f"bridge.hooks.a.secrets={text}",)).named("bridge.hooks")
        assert [secret.reveal() for secret in hooks["a"]["secrets"]] == ["fake-one", "fake-two"]


@pytest.mark.parametrize(
    ("toml", "key", "rule"),
    [
        ("[bridge.hooks.a]\nkind = 'x'\n", "bridge.hooks.a.secrets", "is required"),
        (
            "[bridge.hooks.a]\nsecrets = ['env:FIRST']\ntolerence = '1s'\n",
            "bridge.hooks.a.tolerence",
            "did you mean tolerance",
        ),
        ("[bridge.hooks.a]\nsecrets = ['env:FIRST']\ntolerance = '2h'\n", "bridge.hooks.a.tolerance", "range"),
        ("[bridge.hooks.Abc]\nsecrets = ['env:FIRST']\n", "bridge.hooks.Abc", "a name is"),
        ("[bridge.hooks]\na = 1\n", "bridge.hooks.a", "must be a table"),
        ("[bridge]\nhooks = 1\n", "bridge.hooks", "must be tables by name"),
        ("[bridge.hooks.a]\nsecrets = []\n", "bridge.hooks.a.secrets", "must be a list of places"),
        ("[bridge.hooks.a]\nsecrets = 5\n", "bridge.hooks.a.secrets", "must be a list of places"),
        ("[bridge.hooks.a]\nsecrets = ['env:NOT_SET']\n", "bridge.hooks.a.secrets", "not set"),
        ("[bridge.hooks.a]\nsecrets = ['file:/nowhere/x']\n", "bridge.hooks.a.secrets", "cannot be read"),
    ],
)
def test_fault_names_key_rule_and_place(tmp_path, toml, key, rule):
    (fault,) = _faults(tmp_path, toml)

    assert fault.key == key
    assert rule in fault.rule
    assert "node.toml" in str(fault.origin)


def test_fault_points_to_its_line(tmp_path):
    (fault,) = _faults(tmp_path, GOOD.replace('"5s"', '"2h"'))

    assert str(fault.origin).endswith("node.toml:8")


@pytest.mark.parametrize(
    "literal", ["fake-literal-secret", "whsec_fakefakefake", "env:", "file:", "env:lower case", "http://x"]
)
def test_literal_secret_is_refused_and_never_shown(tmp_path, literal):
    for faults in (
        _faults(tmp_path, f"[bridge.hooks.a]\nsecrets = ['{literal}']\n"),
        _faults(tmp_path, sets=(f"bridge.hooks.a.secrets={literal}",)),
    ):
        assert "must name where the secret lies" in faults[0].rule
        assert literal not in str(faults[0]).replace("env:NAME or file:path", "")


def test_empty_secret_is_refused(tmp_path):
    assert "not set" in _faults(tmp_path, "[bridge.hooks.a]\nsecrets = ['env:EMPTY']\n", env={"EMPTY": ""})[0].rule
    empty = tmp_path / "empty"
    empty.write_text("\n")
    empty.chmod(0o600)
    assert "empty file" in _faults(tmp_path, f"[bridge.hooks.a]\nsecrets = ['file:{empty}']\n")[0].rule


@pytest.mark.parametrize(
    ("written", "read"),
    [("x", "x"), ("x\n", "x"), ("x\r\n", "x"), ("x\n\n", "x\n"), ("x\r\n\r\n", "x\r\n"), (" x ", " x ")],
)
def test_one_newline_of_a_file_is_cut(tmp_path, written, read):
    file = tmp_path / "secret"
    file.write_bytes(written.encode())
    file.chmod(0o600)
    hooks = _load(tmp_path, f"[bridge.hooks.a]\nsecrets = ['file:{file}']\n").named("bridge.hooks")

    assert hooks["a"]["secrets"][0].reveal() == read


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_secret_that_others_can_read_is_refused(tmp_path, mode):
    file = tmp_path / "secret"
    file.write_text("fake")
    file.chmod(mode)

    assert "readable by group or world" in _faults(tmp_path, f"[bridge.hooks.a]\nsecrets = ['file:{file}']\n")[0].rule


def test_secrets_are_redacted_and_a_changed_one_is_a_change(tmp_path):
    old = _load(tmp_path, GOOD)
    new = _load(tmp_path, GOOD, env={"FIRST": "fake-three"})
    (change,) = diff(old, new)

    assert change.key == "bridge.hooks"
    assert "fake" not in str(change)
    assert "fake" not in str(list(new.show()))
    assert "fake" not in repr(new.named("bridge.hooks"))


def test_unknown_field_of_a_set_is_refused(tmp_path):
    for name in ("bridge.hooks.a.nope", "bridge.hooks.A.kind", "bridge.hooks.a"):
        assert "no such key" in _faults(tmp_path, sets=(f"{name}=x",))[0].rule


def test_reference_lists_the_fields():
    page = docs_table(SCHEMA)

    assert "| `bridge.hooks` | named tables |" in page
    assert "`secrets` | secret references | required |" in page
